//! Arguments of commands that run handlers, and options that they share.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use orrery_api::UploadBinding;
use orrery_compiler::project::CompileLimits;
use orrery_model::{DriftPolicy, Pattern};
use orrery_store::ProjectBinding;

use super::ProjectOptions;
use super::export::message_parser;
use crate::error::CliError;
use crate::remote::DeploymentChoice;
use crate::state::StateOptions;

const SELECTION: &str = "Selection";

/// Limits of a compile.
#[derive(Debug, Args)]
pub(crate) struct LimitOptions {
    /// Maximum number of instances
    #[arg(long, value_name = "N", default_value_t = CompileLimits::default().instances)]
    pub(crate) max_instances: u32,
    /// Maximum nesting of instances that implementations create
    #[arg(long, value_name = "N", default_value_t = CompileLimits::default().creation_depth)]
    pub(crate) max_depth: u32,
    /// Memory limit of the model, in MiB
    #[arg(long, value_name = "MIB", default_value_t = CompileLimits::default().memory_bytes >> 20)]
    pub(crate) max_memory: usize,
    /// Size limit of a single text, in MiB
    #[arg(long, value_name = "MIB", default_value_t = CompileLimits::default().text_bytes >> 20)]
    pub(crate) max_text: usize,
}

impl LimitOptions {
    /// Limits in the units of the compiler.
    pub(crate) fn compile_limits(&self) -> CompileLimits {
        CompileLimits {
            instances: self.max_instances,
            creation_depth: self.max_depth,
            memory_bytes: self.max_memory.saturating_mul(1 << 20),
            text_bytes: self.max_text.saturating_mul(1 << 20),
        }
    }
}

fn pattern(text: &str) -> Result<Pattern, std::convert::Infallible> {
    Ok(Pattern::new(text))
}

/// Resources that a command applies to.
#[derive(Debug, Default, Args)]
pub(crate) struct Selection {
    /// Only resources of this agent; repeatable
    #[arg(long = "agent", value_name = "NAME", help_heading = SELECTION)]
    pub(crate) agents: Vec<String>,
    /// Only resources with this text in their id; with * or ?, with an id or value that matches it
    #[arg(long, value_name = "TEXT", help_heading = SELECTION, value_parser = pattern)]
    pub(crate) filter: Option<Pattern>,
}

/// Options of the handler runs.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Maximum number of handlers that run at once; handlers of one agent run one after another
    /// [default: as many as are slow, up to 5000, plus 16, or 64 if there are Python handlers]
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<u16>,
    /// Time limit of one handler, in seconds; 0 for none [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Memory limit of a process that runs Python handlers, in MiB; 0 for none [default: 4096]
    #[arg(long, value_name = "MIB")]
    host_memory: Option<u64>,
}

impl RunOptions {
    /// Time limit of one handler, in seconds; 0 for none.
    pub(crate) fn timeout(&self) -> u64 {
        self.timeout.unwrap_or(3600)
    }

    /// Memory limit of a handler process, in MiB; 0 for none.
    pub(crate) fn host_memory(&self) -> u64 {
        self.host_memory.unwrap_or(4096)
    }

    /// Rejects these options for an environment on a server, which has its own.
    pub(crate) fn refuse_on_server(&self) -> Result<(), CliError> {
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
        let error = CliError::new(format!("{names}: not available for an environment on a server"));
        Err(error.help("set them as options of `orrery server` or as settings of the environment"))
    }
}

/// Options of `orrery deploy` and `orrery plan`: the project, the selection and the run.
#[derive(Debug, Args)]
pub(crate) struct DeployOptions {
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
    pub(crate) deployment: DeploymentChoice,
    /// Also remove deployed resources that are no longer in the model
    #[arg(long)]
    pub(crate) prune: bool,
    /// With --prune: also remove resources that existed before their first recorded deploy
    #[arg(long, requires = "prune")]
    pub(crate) include_adopted: bool,
    #[command(flatten)]
    pub(crate) takeover: Takeover,
    /// Write the result as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Policy for an environment that is bound to another project.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Takeover {
    /// Take over an environment that is bound to another project
    #[arg(long)]
    pub(crate) rebind: bool,
}

impl Takeover {
    /// Binding of a version that is stored locally.
    pub(crate) fn binding(self, project: &str) -> ProjectBinding<'_> {
        if self.rebind { ProjectBinding::Rebind(project) } else { ProjectBinding::Bind(project) }
    }

    /// Binding of a version that is uploaded to a server.
    pub(crate) fn upload_binding(self) -> UploadBinding {
        if self.rebind { UploadBinding::Rebind } else { UploadBinding::Bind }
    }
}

/// Deploy the model
///
/// Compiles the project, stores its resources as a version, and brings every resource into its
/// desired state: those that changed in the model and those that drifted. Resources that match the
/// model are unchanged.
///
/// For an environment on a server, the version is uploaded and released, and the command waits for
/// the server to deploy it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery deploy                      everything
  orrery deploy --dry-run            only show what would change, as `orrery plan` does
  orrery deploy --filter /etc/nginx  only ids that contain this; not on a server, which deploys whole versions
  orrery deploy -e shop/live         in an environment on a server
  orrery deploy --prune              also remove what is no longer in the model; asks first
  orrery deploy --json | jq .tally

Ctrl-C cancels running handlers and waits for them; a second Ctrl-C exits immediately. Completed work is
recorded, and the next deploy continues from there.
Exit codes: 0 everything matches the model, 1 error or interrupted, 2 some resources failed, were skipped or
left out, 130 second Ctrl-C.")]
pub(crate) struct Deploy {
    #[command(flatten)]
    pub(crate) deploy_options: DeployOptions,
    /// Change nothing; show what would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Message of the version
    #[arg(short, long, value_name = "TEXT", value_parser = message_parser())]
    pub(crate) message: Option<String>,
    /// With --prune: skip confirmation
    #[arg(short, long, requires = "prune")]
    pub(crate) yes: bool,
}

/// Remove everything that was deployed
///
/// Purges every resource of the environment, dependents first, including resources that are no
/// longer in the model. Resources that cannot be purged, or that existed before their first
/// recorded deploy, are listed and left in place. The plan marks resources that were edited by hand
/// since their deploy. Nothing is compiled. Afterwards the environment is empty and bound to no
/// project.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery destroy                     asks for the name of the environment or project
  orrery destroy -e shop/test --yes  for scripts

If it is interrupted, run `orrery destroy` again to continue.
Exit codes: 0 everything removed, 1 error or interrupted, 2 some resources remain, 130 second Ctrl-C.")]
pub(crate) struct Destroy {
    /// Project directory [default: the nearest parent with a project.yml]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateOptions,
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(flatten)]
    pub(crate) deployment: DeploymentChoice,
    /// Skip confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Also remove resources that existed before their first recorded deploy
    #[arg(long)]
    pub(crate) include_adopted: bool,
    /// Write the result as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show what a deploy would change, and why
///
/// Reads the state of every resource. Changes and stores nothing.
///
/// For an environment on a server, the version is uploaded without releasing it, the server
/// performs a dry run, and the version is deleted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery plan
  orrery plan --agent web1
  orrery plan --prune                including what `orrery deploy --prune` would remove
  orrery plan --all | less           without folding
  orrery plan --json | jq '.resources[].id'

Exit codes: 0 nothing would change, 1 error or interrupted, 2 changes are pending or a resource could not
be read.")]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) deploy_options: DeployOptions,
    /// On a server: keep the version, so that it can be released
    #[arg(long)]
    pub(crate) keep: bool,
    /// Show all resources and lines; by default, long lists and texts are folded
    #[arg(long)]
    pub(crate) all: bool,
}

/// Verify the deployed version and repair drift
///
/// Uses the newest stored version; nothing is compiled.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery repair
  orrery repair --filter std::File
  orrery repair --pending            retry only what is not deployed

Exit codes: 0 everything matches the model, 1 error or interrupted, 2 some resources failed or were skipped,
130 second Ctrl-C.")]
pub(crate) struct Repair {
    /// Project directory [default: the nearest parent with a project.yml]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateOptions,
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Only resources that are not deployed; the others are not verified
    #[arg(long, help_heading = SELECTION)]
    pub(crate) pending: bool,
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(flatten)]
    pub(crate) deployment: DeploymentChoice,
    /// Write the result as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Deploy and keep the deployment compliant
///
/// Retries failed resources, verifies all resources periodically, and repairs managed files as soon
/// as they change.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery watch
  orrery watch --repair-interval 3600 --deploy-interval 60

Intervals are seconds, a cron expression of five to seven fields in UTC, or 0 for never.
Exit codes: 0 stopped by Ctrl-C or SIGTERM, 1 error, 130 second Ctrl-C.")]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) project: ProjectOptions,
    #[command(flatten)]
    pub(crate) state: StateOptions,
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    /// Deploy on this machine even if an environment on a server is selected
    #[arg(long)]
    pub(crate) local: bool,
    #[command(flatten)]
    pub(crate) takeover: Takeover,
    /// Interval at which resources that are not deployed are retried
    #[arg(long, value_name = "INTERVAL", default_value = "600")]
    pub(crate) deploy_interval: String,
    /// Interval at which all resources are verified
    #[arg(long, value_name = "INTERVAL", default_value = "86400")]
    pub(crate) repair_interval: String,
    /// Reaction to changes that no deploy made
    #[arg(long, value_enum, default_value_t = OnDrift::Heal)]
    pub(crate) on_drift: OnDrift,
}

/// Reaction to drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnDrift {
    /// Repair them
    Heal,
    /// Only report them, until the next requested deploy or repair
    Report,
}

impl OnDrift {
    pub(crate) fn policy(self) -> DriftPolicy {
        match self {
            OnDrift::Heal => DriftPolicy::Heal,
            OnDrift::Report => DriftPolicy::Report,
        }
    }
}
