//! Tests of the documents, macros and the planner through the public interface.

mod documents;
mod webstack;
