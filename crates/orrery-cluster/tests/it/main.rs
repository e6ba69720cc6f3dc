//! Tests of the documents, macros and the planner through the public interface.

mod cases;
mod document_laws;
mod documents;
mod macros;
mod planner_cases;
mod planner_laws;
mod planner_world;
mod webstack;
