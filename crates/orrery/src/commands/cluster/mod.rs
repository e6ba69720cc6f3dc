//! `orrery cluster`: documents of a directory, checked and solved without a server.

mod check;
mod documents;
mod drawing;
mod problems;
mod solve;
mod stages;

use std::time::{Duration, Instant};

use crate::Exit;
use crate::cli_cluster::{ClusterAction, ClusterGroup};
use crate::commands::trouble;

pub(crate) fn run(options: &ClusterGroup) -> Exit {
    trouble::finish(match &options.action {
        ClusterAction::Check(options) => check::run(options),
        ClusterAction::Solve(options) => solve::run(options),
    })
}

/// Says when a search has to end.
fn deadline(seconds: u64) -> impl Fn() -> bool {
    let end = Instant::now().checked_add(Duration::from_secs(seconds));
    move || end.is_some_and(|end| Instant::now() >= end)
}
