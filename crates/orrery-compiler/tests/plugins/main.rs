//! The standard plugins, asked what the reference was asked.
//!
//! `tests/recorded` holds calls with the reference's answers; `tools/oracle` records them.

mod effects;
mod memory;
mod never_panics;
mod recorded;
mod signatures;
mod templates;
mod validation;
