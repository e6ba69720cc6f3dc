//! The server through its public interfaces.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod api;
mod clusters;
mod console;
mod engines;
mod gateway;
mod health;
mod jwt;
mod limits;
mod logins;
mod process;
mod support;
mod tls;
mod world;

use orrery_server::FurtherApi;

/// APIs of the servers under test, beside their own.
fn further_apis() -> Vec<FurtherApi> {
    Vec::new()
}
