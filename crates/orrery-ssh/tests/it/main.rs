//! Tests with real programs of OpenSSH.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod openssh_config;
