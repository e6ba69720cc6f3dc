//! Tests of the solver through the public interface.

mod facts;
mod properties;
mod requests;
mod resize;
mod rules;
mod scale;
mod support;
