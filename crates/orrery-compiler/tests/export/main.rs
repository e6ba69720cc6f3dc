//! The export through its public interface: models in memory, resources and problems out.

mod code;
mod exclusions;
mod identity;
mod machine_facts;
mod models;
mod pages;
mod properties;
mod reference_compiler;
mod values;
