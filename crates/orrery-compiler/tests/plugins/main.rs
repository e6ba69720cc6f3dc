//! The standard plugins, compared with the reference compiler.
//!
//! `tests/recorded` contains calls with the answers of the reference compiler; `tools/oracle`
//! records them.

mod effects;
mod memory;
mod never_panics;
mod recorded;
mod signatures;
mod templates;
mod validation;
