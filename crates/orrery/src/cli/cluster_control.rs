//! Arguments of the commands of `orrery cluster` that show clusters and control operations.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use orrery_cluster::document::LeaseTime;

use super::cluster_life::ClusterName;
use super::common::{Confirmation, EXIT_CODES, ServerArgs};

/// List clusters
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster list
  orrery cluster list --project web
  orrery cluster list --all       also deleted ones

Exit codes: 0 done, 1 error.")]
pub(crate) struct ListClusters {
    /// Project [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Include deleted clusters
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) args: ServerArgs,
}

/// Show a cluster: status, layout, nodes and links
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster show shop
  orrery cluster show shop --json | jq '.nodes[].hostname'

Exit codes: 0 done, 1 error.")]
pub(crate) struct ShowCluster {
    #[command(flatten)]
    pub(crate) of: ClusterName,
}

/// Show the progress of an operation until it ends
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster watch shop
  orrery cluster watch shop --operation 3

Exit codes: 0 done, 1 error, 2 failed or aborted.")]
pub(crate) struct WatchCluster {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    /// Number of the operation [default: the last one]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) operation: Option<i64>,
}

/// Renew the lease of a cluster
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster renew shop 7d     ends in seven days from now
  orrery cluster renew shop 0      no end

Exit codes: 0 done, 1 error.")]
pub(crate) struct RenewCluster {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    /// Time from now, such as 90m, 12h or 7d; 0 for no end
    #[arg(value_name = "TIME", value_parser = LeaseTime::parse)]
    pub(crate) lease: LeaseTime,
}

/// Pause the operation of a cluster
///
/// Running actions end; no other one begins.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct NamedCluster {
    #[command(flatten)]
    pub(crate) of: ClusterName,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 done, 1 error, 2 failed or aborted.")]
pub(crate) struct WaitForCluster {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    /// Return at once, without waiting for the operation
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// Abort the operation of a cluster
///
/// What is done stays, unless --revert returns to the state before.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster abort shop
  orrery cluster abort shop --revert

Exit codes: 0 done, 1 error, 2 failed.")]
pub(crate) struct AbortCluster {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    /// Return to the state before the operation
    #[arg(long)]
    pub(crate) revert: bool,
    #[command(flatten)]
    pub(crate) confirmation: Confirmation,
    /// Return at once, without waiting for the return
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// Open a shell on a node, or run a command there
///
/// Uses the program ssh with the address and the host key that the server knows.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster ssh shop                    the first node
  orrery cluster ssh shop shop-1002
  orrery cluster ssh shop shop-1002 -- uptime

Exit codes: those of ssh; 1 error.")]
pub(crate) struct ClusterShell {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    /// Name of the node [default: the first]
    pub(crate) node: Option<String>,
    /// Private key for the login
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) identity: Option<PathBuf>,
    /// Command with its arguments
    #[arg(last = true)]
    pub(crate) command: Vec<String>,
}

/// Show failed actions of an operation, and those with a lost outcome
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster logs shop
  orrery cluster logs shop --node shop-1002
  orrery cluster logs shop --operation 3 --json

Exit codes: 0 no failures, 1 error, 2 failures.")]
pub(crate) struct ClusterLogs {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    /// Only this node
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Number of the operation [default: the last one]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) operation: Option<i64>,
}
