//! Tests of handler hosts and target hosts as real processes: limits, operations and end.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

/// Runs functions of a module as tests on the machine of a target host.
macro_rules! on_every_machine {
    ($($test:ident),* $(,)?) => {
        mod hosted {
            $(
                #[test]
                fn $test() {
                    super::$test(&crate::this_machine());
                }
            )*
        }
    };
}

pub(crate) use on_every_machine;

mod example;
mod faults;
mod handlers;
mod world;

/// The tests of targets and handlers, run through a target host.
#[path = "../../../orrery-handlers/tests/it/accounts.rs"]
mod accounts;
#[path = "../../../orrery-handlers/tests/it/commands.rs"]
mod commands;
#[path = "../../../orrery-handlers/tests/it/harness.rs"]
mod harness;
#[path = "../../../orrery-handlers/tests/it/laws.rs"]
mod laws;
#[path = "../../../orrery-handlers/tests/it/packages.rs"]
mod packages;
#[path = "../../../orrery-handlers/tests/it/requests.rs"]
mod requests;
#[path = "../../../orrery-handlers/tests/it/services.rs"]
mod services;
mod target_hosts;
#[path = "../../../orrery-handlers/tests/it/this_machine.rs"]
mod this_machine;

use target_hosts::this_machine;
