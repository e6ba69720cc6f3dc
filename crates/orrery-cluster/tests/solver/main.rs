//! Tests of the solver through the public interface.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod facts;
mod properties;
mod requests;
mod resize;
mod rules;
mod scale;
mod support;
