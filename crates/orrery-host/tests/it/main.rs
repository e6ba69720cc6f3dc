//! Hosts as real processes: how they are started, what they are allowed, and how they end.

mod processes;
