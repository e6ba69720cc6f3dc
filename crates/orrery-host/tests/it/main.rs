//! Tests of hosts as real processes: start and end, and their virtualenvs.

mod processes;
mod virtualenvs;
