//! Arguments of `orrery hosts`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::remote::DeploymentChoice;

/// Show the inventory: hosts with their groups, addresses and values
///
/// That of the project, from inventory.yml, or that of an environment on a server. Each value is
/// shown with its source: the host itself, a group, or the defaults.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery hosts                  all hosts
  orrery hosts web              the host or the hosts of the group web
  orrery hosts 'web?.example.org'
  orrery hosts --json | jq -r '.items[].address'

Exit codes: 0 done, 1 error, also if nothing matches.")]
pub(crate) struct Hosts {
    /// Only the host or the group with this name; * and ? are wildcards
    #[arg(value_name = "NAME")]
    pub(crate) pattern: Option<String>,
    /// Project directory [default: the nearest parent with a project.yml]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) deployment: DeploymentChoice,
    /// Write only JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}
