//! Arguments of commands that inspect a deployment without changing it.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use orrery_model::Status;

use crate::remote::DeploymentChoice;
use crate::state::StateOptions;

const EXIT_CODES: &str = "Exit codes: 0 done, 1 error.";

/// Options that these commands share.
#[derive(Debug, Args)]
pub(crate) struct InspectOptions {
    /// Project directory [default: the nearest parent with a project.yml]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateOptions,
    #[command(flatten)]
    pub(crate) deployment: DeploymentChoice,
    /// Write only JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the state of the deployment
///
/// The version, the number of resources by status, failures with their reasons, the time of the
/// last verification, and the deploy in progress, if any.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery status
  orrery status --json | jq .statuses

Exit codes: 0 everything is deployed, 1 error, 2 a resource is not deployed or parked, or an agent is unavailable.")]
pub(crate) struct ShowStatus {
    #[command(flatten)]
    pub(crate) inspect: InspectOptions,
}

/// List resources with their status
///
/// Sorted by id. Resources that are no longer in the model are listed only with --status orphaned.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery resources --status failed,skipped
  orrery resources --agent web1 --type std::File
  orrery resources --filter '/etc/*.conf'
  orrery resources --limit 100 --after 'std::File[web1,path=/etc/motd]'

{EXIT_CODES}"))]
pub(crate) struct Resources {
    /// Only ids that contain this text; with * and ?, ids or values that match the whole pattern
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Only resources of this agent
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// Only resources of this type, such as std::File
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) entity: Option<String>,
    /// Only resources with these statuses, comma-separated
    #[arg(long = "status", value_name = "STATUS", value_delimiter = ',')]
    #[arg(value_parser = status_parser())]
    pub(crate) statuses: Vec<Status>,
    /// Maximum number of resources
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) limit: Option<usize>,
    /// Start after this id
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) inspect: InspectOptions,
}

/// Show the log of a resource
///
/// Newest first: the changes, and the messages of the handler. A run that found nothing to change
/// has no entry.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery log 'std::File[web1,path=/etc/motd]'
  orrery log /etc/motd --limit 1
  orrery log /etc/motd -v          with debug lines

{EXIT_CODES}"))]
pub(crate) struct Log {
    /// Id of a resource, or a unique part of it; * and ? are wildcards
    pub(crate) resource: String,
    /// Maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one())]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) inspect: InspectOptions,
}

/// Explain the status of a resource
///
/// Shows where the model defines it, the outcome of its last run and why it ran, what it waits for,
/// and what happens next.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery why 'std::Service[web1,name=nginx]'
  orrery why nginx

{EXIT_CODES}"))]
pub(crate) struct Why {
    /// Id of a resource, or a unique part of it; * and ? are wildcards
    pub(crate) resource: String,
    #[command(flatten)]
    pub(crate) inspect: InspectOptions,
}

/// Decide about effects with an unknown outcome
///
/// A command that must run once, or a request that must not be repeated, is recorded before it
/// starts. If its outcome is lost, for example in a power failure, it is not run again until an
/// operator decides. Without a resource, lists all such effects.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery settle
  orrery settle --done 'exec::Run[web1,command=/opt/app/migrate]'
  orrery settle --again migrate

Exit codes: 0 done, or no unknown outcome, 1 error, 2 effects with an unknown outcome exist.")]
pub(crate) struct Settle {
    /// Id of the resource, or a unique part of it
    #[arg(requires = "choice")]
    pub(crate) resource: Option<String>,
    /// The effect happened: the resource counts as deployed
    #[arg(long, group = "choice", requires = "resource")]
    pub(crate) done: bool,
    /// The effect did not happen, or may happen twice: run it again
    #[arg(long, group = "choice", requires = "resource")]
    pub(crate) again: bool,
    #[command(flatten)]
    pub(crate) inspect: InspectOptions,
}

/// List the versions of the desired state
///
/// Newest first, each with its difference from the previous version.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery versions --limit 5
  orrery versions --json | jq '.versions[0].number'

{EXIT_CODES}"))]
pub(crate) struct Versions {
    /// Maximum number of versions
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) inspect: InspectOptions,
}

/// Show how two versions of the desired state differ
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery diff 7            what version 7 changed
  orrery diff 5 7          what changed from version 5 to version 7
  orrery diff 7 5          what a rollback would change
  orrery diff 7 --short    ids only

Exit codes: 0 the versions are equal, 2 they differ, 1 error.")]
pub(crate) struct Diff {
    /// Version
    #[arg(value_name = "V1")]
    pub(crate) first: u32,
    /// Second version; without it, V1 is compared with the previous version
    #[arg(value_name = "V2")]
    pub(crate) second: Option<u32>,
    /// List the resources that differ, without their differences
    #[arg(long)]
    pub(crate) short: bool,
    #[command(flatten)]
    pub(crate) inspect: InspectOptions,
}

/// List facts of resources
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery facts                       all resources
  orrery facts 'std::File[web1,*'    resources with matching ids

{EXIT_CODES}"))]
pub(crate) struct Facts {
    /// Ids that contain this text; with * and ?, ids or values that match the whole pattern
    pub(crate) resource: Option<String>,
    #[command(flatten)]
    pub(crate) inspect: InspectOptions,
}

fn status_parser() -> impl TypedValueParser<Value = Status> {
    PossibleValuesParser::new(Status::ALL.map(Status::as_str)).try_map(|word| {
        let found = Status::ALL.into_iter().find(|status| status.as_str() == word);
        found.ok_or_else(|| format!("unknown status {word}"))
    })
}

fn at_least_one() -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u32).range(1..).map(|number| number as usize)
}
