//! Tests of the solver through the public interface.

mod facts;
mod properties;
mod support;
