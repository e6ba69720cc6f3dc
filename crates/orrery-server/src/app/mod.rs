//! Application layer: the rules, one module per noun. APIs, the process role and maintenance call the
//! same functions; none of them knows HTTP.

pub(crate) mod parameters;
