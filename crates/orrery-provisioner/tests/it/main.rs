//! Clusters from hand-made resources, through the handlers, with effects observed at the nodes.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run in real time, and say why one is skipped"
)]

mod automators;
mod ec2;
mod harness;
mod machines;
mod process;
mod rendered;
mod s3;
mod sim;
mod workers;
