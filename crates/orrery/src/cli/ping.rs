//! Arguments of `orrery ping`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::remote::DeploymentChoice;

/// Check that the hosts of the inventory are reached over SSH
///
/// Connects to all hosts at once, and shows for each one its round trip, operating system, and how
/// changes get their rights. Nothing is changed on them.
///
/// A host whose key or password is a secret of an environment is reached by its server only: its
/// state is that of the server's connection, if the environment is selected.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery ping                   all hosts
  orrery ping web               the host or the hosts of the group web
  orrery ping 'web*'            all hosts whose names begin with web
  orrery ping --json | jq -r '.items[] | select(.state != \"reachable\") | .name'

Exit codes: 0 all hosts are reached, 1 error, also if nothing matches, 2 some hosts are not reached.")]
pub(crate) struct Ping {
    /// Only the host or the group with this name; * and ? are wildcards
    #[arg(value_name = "NAME")]
    pub(crate) pattern: Option<String>,
    /// Project directory [default: the nearest parent with a project.yml]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) deployment: DeploymentChoice,
    /// Time limit for each host
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: u64,
    /// Write only JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}
