//! Arguments of `orrery compile request`, `list`, `show`, `queue` and `cancel`.

use clap::{Args, Subcommand};

use super::common::EnvironmentArgs;
use super::export::message_parser;

/// Compiles on a server: subcommands of `orrery compile`.
#[derive(Debug, Subcommand)]
pub(crate) enum CompileAction {
    /// Request a compile of an environment on a server
    ///
    /// The environment needs a repository: orrery environment update --repository URL.
    Request(CompileRequest),
    /// List compiles on a server, newest first
    List {
        /// Maximum number of compiles
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        args: EnvironmentArgs,
    },
    /// Show a compile on a server with its output
    Show {
        id: uuid::Uuid,
        /// Wait for the compile and show its output
        #[arg(short, long)]
        follow: bool,
        #[command(flatten)]
        args: EnvironmentArgs,
    },
    /// List waiting and running compiles on a server
    Queue {
        #[command(flatten)]
        args: EnvironmentArgs,
    },
    /// Cancel a compile on a server
    Cancel {
        id: uuid::Uuid,
        #[command(flatten)]
        args: EnvironmentArgs,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery compile request --follow     fetch the newest sources, compile, and show the output
  orrery compile request --deploy     also release the version and wait until it is deployed

Exit codes: 0 done, 1 error, 2 the compile failed (with --follow) or some resources failed (with --deploy).")]
pub(crate) struct CompileRequest {
    /// Compile the sources and modules that the server has, without fetching newer ones
    #[arg(long)]
    pub(crate) no_update: bool,
    /// Fetch first; this is the default
    #[arg(long, hide = true, conflicts_with = "no_update")]
    pub(crate) update: bool,
    /// Start from an empty directory: clone and install again
    #[arg(long)]
    pub(crate) reinstall: bool,
    /// Only check the model; store no version
    #[arg(long)]
    pub(crate) check: bool,
    /// Reason, shown in the list of compiles
    #[arg(long, value_name = "TEXT", value_parser = message_parser())]
    pub(crate) message: Option<String>,
    /// Wait for the compile and show its output
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Wait for the compile, release its version if necessary, and wait until it is deployed
    #[arg(long, conflicts_with = "check")]
    pub(crate) deploy: bool,
    #[command(flatten)]
    pub(crate) args: EnvironmentArgs,
}
