//! Behaviour that every store must have. Each case gets an empty store.

mod accounts;
mod cluster_documents;
mod clusters;
mod compiles;
mod details;
mod effects;
mod engine;
mod handler_callbacks;
mod patterns;
mod queries;
mod records;
mod remote_agents;
mod removal;
mod server_records;
mod settings_and_files;
mod versions;

use crate::support::Backend;

pub(crate) type Case = (&'static str, fn(Backend));

pub(crate) fn cases() -> Vec<Case> {
    [
        versions::CASES,
        accounts::CASES,
        effects::CASES,
        cluster_documents::CASES,
        clusters::CASES,
        compiles::CASES,
        details::CASES,
        engine::CASES,
        server_records::CASES,
        patterns::CASES,
        queries::CASES,
        records::CASES,
        removal::CASES,
        remote_agents::CASES,
        settings_and_files::CASES,
        handler_callbacks::CASES,
    ]
    .concat()
}

/// Declares each function as a test case.
macro_rules! list_cases {
    ($($name:ident),+ $(,)?) => {
        pub(crate) const CASES: &[super::Case] = &[$((stringify!($name), $name)),+];
    };
}
use list_cases;
