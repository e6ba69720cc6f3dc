//! `orrery cluster`: documents of a directory, checked and solved without a server, and templates solved by one.

mod apply;
mod check;
mod documents;
mod drawing;
mod problems;
mod solve;
mod solved;
mod stages;
mod stored;

use std::time::{Duration, Instant};

use crate::Exit;
use crate::cli_cluster::{ClusterAction, ClusterGroup};
use crate::commands::trouble;

pub(super) use stored::manage;

pub(crate) fn run(options: &ClusterGroup) -> Exit {
    trouble::finish(match &options.action {
        ClusterAction::Check(options) => check::run(options),
        ClusterAction::Solve(options) => solve::run(options),
        ClusterAction::Import(options) => apply::import(options),
    })
}

/// Says when a search has to end.
fn deadline(seconds: u64) -> impl Fn() -> bool {
    let end = Instant::now().checked_add(Duration::from_secs(seconds));
    move || end.is_some_and(|end| Instant::now() >= end)
}
