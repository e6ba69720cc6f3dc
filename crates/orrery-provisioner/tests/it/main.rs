//! Clusters from hand-made resources, through the handlers, with effects observed at the nodes.

#![allow(clippy::disallowed_methods, reason = "tests run in real time")]

mod automators;
mod ec2;
mod harness;
mod machines;
mod process;
mod sim;
