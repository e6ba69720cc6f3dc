//! Tests of the store.
//!
//! `conformance` is one suite for every implementation; `random` compares sequences of versions
//! with a slow and obvious model; `files` and `crash` test the file of `Store`. Some tests
//! need a second process: this binary, started with a role.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "roles of this binary report to the test that started them"
)]

mod async_reads;
mod conformance;
mod crash;
mod files;
mod postgres;
mod postgres_leases;
mod random;
mod support;

use libtest_mimic::{Arguments, Trial};

use crate::support::Backend;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(support::ROLE) {
        let role = arguments.next().unwrap_or_default();
        let path = arguments.next().unwrap_or_default();
        match role.as_str() {
            "hold" => files::hold(path.as_ref()),
            "write" => crash::write_until_killed(&path),
            "connect" => postgres::connect(&path),
            _ => panic!("there is no role {role:?}"),
        }
        return;
    }
    let mut trials = Vec::new();
    for backend in Backend::ALL {
        for (name, case) in conformance::cases().into_iter().chain(random::cases()) {
            let name = format!("{}::{name}", backend.name());
            trials.push(Trial::test(name, move || {
                case(backend);
                Ok(())
            }));
        }
    }
    let single = files::cases().into_iter().chain(crash::cases());
    let shared = postgres::cases().into_iter().chain(postgres_leases::cases());
    for (name, case) in single.chain(shared).chain(async_reads::cases()) {
        trials.push(Trial::test(name, move || {
            case();
            Ok(())
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
