//! Tests of virtualenvs with a real interpreter and pip.

mod virtualenvs;
