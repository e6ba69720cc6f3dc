//! Hosts as real processes: how they are started, what they are allowed, what they do, and how they end.

mod environments;
mod example;
mod faults;
mod handlers;
mod processes;
mod world;
