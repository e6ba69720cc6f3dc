//! Tests of hosts as real processes: start and end.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod processes;
