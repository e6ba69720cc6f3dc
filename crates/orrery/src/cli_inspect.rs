//! What the command line understands of the commands that look at a deployment without changing it.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use orrery_model::Status;

use crate::remote::WhereChoice;
use crate::state::StateOptions;

const EXIT_CODES: &str = "Exit codes: 0 done, 1 error.";

/// What all of them understand.
#[derive(Debug, Args)]
pub(crate) struct LookOptions {
    /// The project's directory [default: the nearest with a project.yml, from here upwards]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateOptions,
    #[command(flatten)]
    pub(crate) place: WhereChoice,
    /// Write JSON to standard output, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show how the deployment is
///
/// The version, how many resources are in which state, what failed and why, when everything was last verified, and
/// whether something is being deployed now.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery status
  orrery status --json | jq .statuses

Exit codes: 0 everything is deployed, 1 error, 2 something is not, or an agent is unavailable, or a resource is parked.")]
pub(crate) struct ShowStatus {
    #[command(flatten)]
    pub(crate) look: LookOptions,
}

/// List resources with their states
///
/// They come in the order of their ids. Those that are no longer wanted are only listed with
/// --status orphaned.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery resources --status failed,skipped
  orrery resources --agent web1 --type std::File
  orrery resources --filter '/etc/*.conf'
  orrery resources --limit 100 --after 'std::File[web1,path=/etc/motd]'

{EXIT_CODES}"))]
pub(crate) struct Resources {
    /// Only ids that hold this text; with * and ?, ids or values that fit this pattern as a whole
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Only those of this agent
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// Only those of this type, such as std::File
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) entity: Option<String>,
    /// Only those in these states, separated by commas
    #[arg(long = "status", value_name = "STATUS", value_delimiter = ',')]
    #[arg(value_parser = status_parser())]
    pub(crate) statuses: Vec<Status>,
    /// At most this many
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) limit: Option<usize>,
    /// Continue behind this id
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) look: LookOptions,
}

/// Show what was done to a resource
///
/// The latest first: what was changed, and what its handler had to say. A look at a resource that
/// found nothing to change leaves no entry.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery log 'std::File[web1,path=/etc/motd]'
  orrery log /etc/motd --limit 1
  orrery log /etc/motd -v          with lines for debugging

{EXIT_CODES}"))]
pub(crate) struct Log {
    /// The id of a resource, or a part of it that no other one has; * and ? stand for text
    pub(crate) resource: String,
    /// How many entries
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one())]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) look: LookOptions,
}

/// Explain why a resource is as it is
///
/// Where the model defines it, what its last run came to and why it ran, what it waits for, and what
/// will happen next.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery why 'std::Service[web1,name=nginx]'
  orrery why nginx

{EXIT_CODES}"))]
pub(crate) struct Why {
    /// The id of a resource, or a part of it that no other one has; * and ? stand for text
    pub(crate) resource: String,
    #[command(flatten)]
    pub(crate) look: LookOptions,
}

/// Decide about effects whose outcome is unknown
///
/// A command that is to run once, or a request that must not be sent twice, is recorded before it begins. If its result is
/// lost, for example because the machine lost its power, nobody knows whether it was done, and it is not run again until
/// somebody decides. Without a resource, all of them are listed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery settle
  orrery settle --done 'exec::Run[web1,command=/opt/app/migrate]'
  orrery settle --again migrate

Exit codes: 0 done, or nothing is unknown, 1 error, 2 there are effects whose outcome is unknown.")]
pub(crate) struct Settle {
    /// The id of the resource, or a part of it that no other one has
    #[arg(requires = "choice")]
    pub(crate) resource: Option<String>,
    /// It happened: the resource counts as deployed
    #[arg(long, group = "choice", requires = "resource")]
    pub(crate) done: bool,
    /// It did not happen, or may happen again: it is run again
    #[arg(long, group = "choice", requires = "resource")]
    pub(crate) again: bool,
    #[command(flatten)]
    pub(crate) look: LookOptions,
}

/// List the versions of the desired state
///
/// The newest first, each with how it differs from the one before.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery versions --limit 5
  orrery versions --json | jq '.versions[0].number'

{EXIT_CODES}"))]
pub(crate) struct Versions {
    /// At most this many
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) look: LookOptions,
}

/// Show how two versions of the desired state differ
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery diff 7            what version 7 changed
  orrery diff 5 7          what changed from version 5 to version 7
  orrery diff 7 5          what going back would change
  orrery diff 7 --short    ids only

Exit codes: 0 the versions are equal, 2 they differ, 1 error.")]
pub(crate) struct Diff {
    /// A version
    #[arg(value_name = "V1")]
    pub(crate) first: u32,
    /// Another one; without it, V1 is compared with the version before
    #[arg(value_name = "V2")]
    pub(crate) second: Option<u32>,
    /// Show which resources differ, but not how
    #[arg(long)]
    pub(crate) short: bool,
    #[command(flatten)]
    pub(crate) look: LookOptions,
}

/// List what handlers learned about resources
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery facts                       of all resources
  orrery facts 'std::File[web1,*'    of those whose ids fit

{EXIT_CODES}"))]
pub(crate) struct Facts {
    /// Ids that hold this text; with * and ?, ids or values that fit this pattern as a whole
    pub(crate) resource: Option<String>,
    #[command(flatten)]
    pub(crate) look: LookOptions,
}

fn status_parser() -> impl TypedValueParser<Value = Status> {
    PossibleValuesParser::new(Status::ALL.map(Status::as_str)).try_map(|word| {
        let found = Status::ALL.into_iter().find(|status| status.as_str() == word);
        found.ok_or_else(|| format!("there is no status {word}"))
    })
}

fn at_least_one() -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u32).range(1..).map(|number| number as usize)
}
