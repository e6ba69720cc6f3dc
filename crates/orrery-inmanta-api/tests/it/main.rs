//! A server with both APIs, through its public interfaces: they agree, and rules hold for both.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod access;
mod accounts;
mod audit;
mod canary;
mod clients;
mod contents;
mod limits;
mod lists;
mod rules;
mod secrets;
#[allow(dead_code, reason = "shared with the tests of orrery-server")]
#[path = "../../../orrery-server/tests/it/support.rs"]
mod support;
mod webhooks;
#[allow(dead_code, reason = "shared with the tests of orrery-server")]
#[path = "../../../orrery-server/tests/it/world.rs"]
mod world;

use orrery_inmanta_api::inmanta_api;
use orrery_server::{FurtherApi, RouteAccess, routes};

/// APIs of the servers under test, beside their own.
fn further_apis() -> Vec<FurtherApi> {
    vec![inmanta_api()]
}

/// Routes of all APIs of the server under test.
fn all_routes() -> impl Iterator<Item = RouteAccess> {
    routes().chain(inmanta_api().routes())
}
