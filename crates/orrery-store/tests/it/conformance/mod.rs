//! What every store must do. Each case gets a store with nothing in it.

mod accounts;
mod begun;
mod cluster_documents;
mod compiles;
mod details;
mod engine;
mod kept;
mod queries;
mod records;
mod remote_agents;
mod removal;
mod small;
mod told;
mod versions;

use crate::support::Backend;

pub(crate) type Case = (&'static str, fn(Backend));

pub(crate) fn cases() -> Vec<Case> {
    [
        versions::CASES,
        accounts::CASES,
        begun::CASES,
        cluster_documents::CASES,
        compiles::CASES,
        details::CASES,
        engine::CASES,
        kept::CASES,
        queries::CASES,
        records::CASES,
        removal::CASES,
        remote_agents::CASES,
        small::CASES,
        told::CASES,
    ]
    .concat()
}

/// Names each function as a case of its own.
macro_rules! list_cases {
    ($($name:ident),+ $(,)?) => {
        pub(crate) const CASES: &[super::Case] = &[$((stringify!($name), $name)),+];
    };
}
use list_cases;
