//! Tests of the documents, macros and the planner through the public interface.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod cases;
mod document_properties;
mod documents;
mod intent_operations;
mod intents;
mod macros;
mod planner_cases;
mod planner_properties;
mod render_cases;
mod render_properties;
mod rendered_graph;
mod simulated_cluster;
mod webstack;
