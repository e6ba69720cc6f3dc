//! Arguments of `orrery worker`.

use clap::{Args, Subcommand};

use super::common::ServerArgs;

/// Show the workers of a server
///
/// Workers execute the actions of clusters. So far, they are slots of the servers themselves.
#[derive(Debug, Args)]
pub(crate) struct WorkerGroup {
    #[command(flatten)]
    pub(crate) args: ServerArgs,
    #[command(subcommand)]
    pub(crate) action: WorkerAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerAction {
    /// List workers with their slots
    #[command(after_help = "\
Examples:
  orrery worker list
  orrery worker list --json | jq '.items[].slots'

Exit codes: 0 done, 1 error.")]
    List,
}
