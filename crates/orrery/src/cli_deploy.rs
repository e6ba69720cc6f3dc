//! What the command line understands of deploying: options that several commands share.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use orrery_api::UploadBinding;
use orrery_compiler::project::Limits;
use orrery_model::Pattern;
use orrery_store::ProjectBinding;

use crate::cli::ProjectOptions;
use crate::cli_export::message_parser;
use crate::commands::trouble::Trouble;
use crate::remote::WhereChoice;
use crate::state::StateOptions;

const SELECTION: &str = "Selection";

/// How far a model may go.
#[derive(Debug, Args)]
pub(crate) struct LimitOptions {
    /// Stop a model that grows beyond this many instances
    #[arg(long, value_name = "N", default_value_t = Limits::default().instances)]
    pub(crate) max_instances: u32,
    /// Stop when implementations make instances this deep inside of each other
    #[arg(long, value_name = "N", default_value_t = Limits::default().creation_depth)]
    pub(crate) max_depth: u32,
    /// Stop a model that needs more memory than this, in MiB
    #[arg(long, value_name = "MIB", default_value_t = Limits::default().memory_bytes >> 20)]
    pub(crate) max_memory: usize,
    /// Stop at a value whose text would have more than this, in MiB
    #[arg(long, value_name = "MIB", default_value_t = Limits::default().text_bytes >> 20)]
    pub(crate) max_text: usize,
}

fn pattern(text: &str) -> Result<Pattern, std::convert::Infallible> {
    Ok(Pattern::new(text))
}

/// Which resources a command is about.
#[derive(Debug, Default, Args)]
pub(crate) struct Selection {
    /// Only resources of this agent; can be given several times
    #[arg(long = "agent", value_name = "NAME", help_heading = SELECTION)]
    pub(crate) agents: Vec<String>,
    /// Only resources whose id has this text in it, or matches it if it has a * or ?
    #[arg(long, value_name = "TEXT", help_heading = SELECTION, value_parser = pattern)]
    pub(crate) filter: Option<Pattern>,
}

/// How handlers are run.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// How many handlers may run at once; those of one agent run one after the other [default: as many as are slow, up to
    /// 1000, and 16 beside them, or 64 if there are handlers in Python]
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<u16>,
    /// How long one handler may take, in seconds; 0 for ever [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// How much memory a process that runs handlers in Python may have, in MiB; 0 for as much as there is [default: 4096]
    #[arg(long, value_name = "MIB")]
    host_memory: Option<u64>,
}

impl RunOptions {
    /// How long one handler may take, in seconds; 0 for ever.
    pub(crate) fn timeout(&self) -> u64 {
        self.timeout.unwrap_or(3600)
    }

    /// How much memory a process of handlers may have, in MiB; 0 for as much as there is.
    pub(crate) fn host_memory(&self) -> u64 {
        self.host_memory.unwrap_or(4096)
    }

    /// A server runs handlers as its own options say.
    pub(crate) fn refuse_on_server(&self) -> Result<(), Trouble> {
        let given = [
            ("--jobs", self.jobs.is_some()),
            ("--timeout", self.timeout.is_some()),
            ("--host-memory", self.host_memory.is_some()),
        ];
        let given: Vec<&str> =
            given.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect();
        if given.is_empty() {
            return Ok(());
        }
        let names = given.join(" and ");
        let trouble = Trouble::said(format!("{names}: a server runs handlers as it is told to"));
        Err(trouble.help("these are options of `orrery server`, and settings of the environment"))
    }
}

/// A project, what of it is meant, and how it is to be deployed or looked at.
#[derive(Debug, Args)]
pub(crate) struct Wanted {
    #[command(flatten)]
    pub(crate) project: ProjectOptions,
    #[command(flatten)]
    pub(crate) state: StateOptions,
    #[command(flatten)]
    pub(crate) selection: Selection,
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    #[command(flatten)]
    pub(crate) place: WhereChoice,
    /// Also remove what was deployed and is not in the model any more
    #[arg(long)]
    pub(crate) prune: bool,
    /// With --prune: also remove what existed before its first recorded deploy
    #[arg(long, requires = "prune")]
    pub(crate) include_adopted: bool,
    #[command(flatten)]
    pub(crate) takeover: Takeover,
    /// Write the result as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is done about an environment that belongs to another project.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Takeover {
    /// Take the environment over, although it belongs to another project
    #[arg(long)]
    pub(crate) rebind: bool,
}

impl Takeover {
    /// What a version of a project here means to the state that it is kept in.
    pub(crate) fn binding(self, project: &str) -> ProjectBinding<'_> {
        if self.rebind { ProjectBinding::Rebind(project) } else { ProjectBinding::Bind(project) }
    }

    /// The same for an environment on a server.
    pub(crate) fn upload_binding(self) -> UploadBinding {
        if self.rebind { UploadBinding::Rebind } else { UploadBinding::Bind }
    }
}

/// Make the model real
///
/// Compiles the project, keeps its resources as a version, and brings every resource into its desired state: those
/// that changed in the model, and those that changed in the world. What matches the model is left alone.
///
/// With an environment on a server, the version is pushed there and released, and the server does the rest; the command waits for
/// it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery deploy                      everything
  orrery deploy --dry-run            only say what would change, as `orrery plan` does
  orrery deploy --filter /etc/nginx  only what has this in its id; not on a server, which deploys all of a version
  orrery deploy -e shop/live         in an environment on a server
  orrery deploy --prune              also remove what is not in the model any more; asks first
  orrery deploy --json | jq .tally

Ctrl-C ends running handlers, or waits for those that do not heed it; once more leaves them. What was done is
recorded, and the next deploy goes on from there.
Exit codes: 0 everything matches the model, 1 error or stopped with Ctrl-C, 2 some resources failed, were skipped or
left out, 130 left with a second Ctrl-C.")]
pub(crate) struct Deploy {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    /// Change nothing, but say what would be changed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// What the version is about, for people
    #[arg(short, long, value_name = "TEXT", value_parser = message_parser())]
    pub(crate) message: Option<String>,
    /// With --prune: do not ask
    #[arg(short, long, requires = "prune")]
    pub(crate) yes: bool,
}

/// Remove everything that was deployed
///
/// Every resource of the environment is purged, dependents first, also what the model does not have any more. What cannot be
/// purged is named and left in place, and so is what existed before its first recorded deploy. What was edited by hand since it was
/// deployed is marked in the plan. Nothing is compiled. Afterwards, the environment is empty and belongs to no project.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery destroy                     asks for the name of the environment or project
  orrery destroy -e shop/test --yes  for scripts

When it is stopped or killed, `orrery destroy` goes on from there.
Exit codes: 0 everything is removed, 1 error or stopped with Ctrl-C, 2 something is left, 130 left with a second Ctrl-C.")]
pub(crate) struct Destroy {
    /// The project's directory [default: the nearest with a project.yml, from here upwards]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateOptions,
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(flatten)]
    pub(crate) place: WhereChoice,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Also remove what existed before its first recorded deploy
    #[arg(long)]
    pub(crate) include_adopted: bool,
    /// Write the result as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say what a deploy would change, and why
///
/// Every resource is looked at, nothing is changed and nothing is kept.
///
/// With an environment on a server, the version is pushed there without releasing it, the server looks, and the version is deleted
/// again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery plan
  orrery plan --agent web1
  orrery plan --prune                with what `orrery deploy --prune` would remove
  orrery plan --all | less           nothing is folded
  orrery plan --json | jq '.resources[].id'

Exit codes: 0 nothing would change, 1 error or stopped with Ctrl-C, 2 changes are pending or something could not
be looked at.")]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    /// On a server: keep the version, so that it can be released
    #[arg(long)]
    pub(crate) keep: bool,
    /// List every resource and every line: without it, long lists and long texts are folded
    #[arg(long)]
    pub(crate) all: bool,
}

/// Verify what was deployed, and repair it
///
/// The newest version is taken as it is kept: nothing is compiled.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery repair
  orrery repair --filter std::File
  orrery repair --pending            try again what is not deployed, and leave the rest alone

Exit codes: 0 everything matches the model, 1 error or stopped with Ctrl-C, 2 some resources failed or were skipped,
130 left with a second Ctrl-C.")]
pub(crate) struct Repair {
    /// The project's directory [default: the nearest with a project.yml, from here upwards]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateOptions,
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Only what is not deployed: the rest is not looked at
    #[arg(long, help_heading = SELECTION)]
    pub(crate) pending: bool,
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(flatten)]
    pub(crate) place: WhereChoice,
    /// Write the result as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Deploy, stay, and keep it so
///
/// What fails is tried again, everything is verified now and then, and managed files that somebody changes are
/// mended at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery watch
  orrery watch --repair-interval 3600 --deploy-interval 60

Intervals are seconds, a cron expression of five to seven fields in UTC, or 0 for never.
Exit codes: 0 stopped with Ctrl-C or SIGTERM, 1 error, 130 left with a second Ctrl-C.")]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) project: ProjectOptions,
    #[command(flatten)]
    pub(crate) state: StateOptions,
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    /// Deploy on this machine, although an environment on a server is chosen
    #[arg(long)]
    pub(crate) local: bool,
    #[command(flatten)]
    pub(crate) takeover: Takeover,
    /// When what is not deployed is tried again
    #[arg(long, value_name = "INTERVAL", default_value = "600")]
    pub(crate) deploy_interval: String,
    /// When everything is verified again
    #[arg(long, value_name = "INTERVAL", default_value = "86400")]
    pub(crate) repair_interval: String,
}
