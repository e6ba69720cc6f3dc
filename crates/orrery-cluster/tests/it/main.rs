//! Tests of the documents, macros and the planner through the public interface.

mod cases;
mod documents;
mod macros;
mod webstack;
