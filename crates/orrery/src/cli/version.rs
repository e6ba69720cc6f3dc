//! Arguments of `orrery version`.

use clap::{Args, Subcommand};

use super::common::{Confirmation, EnvironmentArgs};

/// Manage the versions of an environment on a server
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery version list
  orrery version dry-run 12        what releasing it would change
  orrery version release 12
  orrery version roll-back 11 -f   store version 11 as a new version and wait for it

Exit codes: 0 done, 1 error, 2 changes are pending (compare, dry-run) or some resources failed (with --follow).")]
pub(crate) struct VersionGroup {
    #[command(flatten)]
    pub(crate) args: EnvironmentArgs,
    #[command(subcommand)]
    pub(crate) action: VersionAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VersionAction {
    /// List versions, newest first
    List {
        /// Maximum number of versions
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// Show a version
    Show { version: u32 },
    /// Release a version: make it the desired state
    Release {
        version: u32,
        /// Wait until it is deployed and report the result
        #[arg(short, long)]
        follow: bool,
    },
    /// Roll back to the desired state of an earlier version
    RollBack {
        version: u32,
        /// Wait until it is deployed and report the result
        #[arg(short, long)]
        follow: bool,
    },
    /// Show how two versions differ
    Compare {
        from: u32,
        to: u32,
        /// List the resources that differ, without their differences
        #[arg(long)]
        short: bool,
    },
    /// Delete a version that is not in use
    Delete {
        version: u32,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Show what a version would change, without changing anything
    DryRun {
        version: u32,
        /// Show all resources and lines; by default, long lists and texts are folded
        #[arg(long)]
        all: bool,
    },
}
