//! Tests of hosts as real processes: start and end.

mod processes;
