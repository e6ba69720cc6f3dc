//! `orrery cluster`: checks and solves documents of a directory locally, or templates on a server,
//! and manages clusters of a server.

mod apply;
mod check;
mod document_commands;
mod documents;
mod drawing;
mod life;
mod plan_text;
mod preview_text;
mod problems;
mod solve;
mod upload;

use std::time::Duration;

use orrery_base::clock::monotonic;

use crate::Exit;
use crate::cli::cluster::{ClusterAction, ClusterGroup};
use crate::error;

pub(super) use document_commands::manage;
pub(super) use life::complete_names;

pub(crate) fn run(options: &ClusterGroup) -> Exit {
    error::finish(match &options.action {
        ClusterAction::Check(options) => check::run(options),
        ClusterAction::Solve(options) => solve::run(options),
        ClusterAction::Import(options) => apply::import(options),
        ClusterAction::Upload(options) => upload::run(options),
        ClusterAction::Life(action) => life::run(action),
    })
}

/// Returns a function that is true once the time is over.
fn deadline(seconds: u64) -> impl Fn() -> bool {
    let end = monotonic().checked_add(Duration::from_secs(seconds));
    move || end.is_some_and(|end| monotonic() >= end)
}
