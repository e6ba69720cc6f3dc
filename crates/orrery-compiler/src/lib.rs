//! Types, dataflow evaluation and standard plugins of the modelling language.
//!
//! Pure but for two traits: `files::Files`, through which sources are read, and `plugins::Context`.
//! Start from `compile`, `value::Value` and `eval`. Tests of behaviour are in `tests/language`.

pub mod builtin;
pub mod plugins;
pub mod value;
