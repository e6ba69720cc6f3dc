//! Arguments of `orrery agent`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use orrery_agent::cli::{JoinOptions, ServeOptions};

use super::common::{Confirmation, EXIT_CODES, EnvironmentArgs};
use super::server::LogFormat;

/// Manage the agents of an environment on a server
///
/// An agent is one queue of work, for one target.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery agent pause web1 web2
  orrery agent unpause --all
  orrery agent pause web1 --on-resume     while halted: web1 stays paused after resume
  orrery agent invite web1                a token for a machine to join as web1

{EXIT_CODES}"))]
pub(crate) struct AgentGroup {
    #[command(flatten)]
    pub(crate) args: EnvironmentArgs,
    #[command(subcommand)]
    pub(crate) action: AgentAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentAction {
    Join(AgentJoin),
    Run(AgentRun),
    /// Run commands from standard input until it ends; started over SSH
    #[command(hide = true)]
    Once,
    /// List agents with the states of their resources
    List,
    /// Pause agents: nothing new starts
    Pause(AgentNames),
    /// Resume paused agents
    Unpause(AgentNames),
    /// Invite a machine to join, to run the handlers of these agents
    ///
    /// The token is shown once and admits one machine.
    Invite(AgentInvite),
    InstallScript(AgentInstallScript),
    /// List remote agents: machines that have joined, and what they serve
    Remotes,
    /// Revoke a remote agent and end its session
    Revoke(AgentRevoke),
}

#[derive(Debug, Args)]
pub(crate) struct AgentInvite {
    /// Agents that the machine will serve
    #[arg(value_name = "AGENT", required = true)]
    pub(crate) names: Vec<String>,
    /// Lifetime of the token in seconds; at most a week
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) expires_in: u32,
}

/// Print a boot script that installs an agent on a new machine
///
/// Invites a machine, and prints a shell script that installs the agent's program and its systemd
/// unit, joins with the one-time token, and starts. Run as root, it can be repeated. The program
/// comes from the gateway unless --program names another source; its SHA-256 is part of the script.
/// The script contains the token: keep it from other users until it has run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery agent install-script web1 --output install.sh
  orrery agent install-script web1 --cloud-init --output user-data
  orrery agent install-script web1 --program /usr/local/bin/orrery-agent    an image that has it

Exit codes: 0 done, 1 error.")]
pub(crate) struct AgentInstallScript {
    #[command(flatten)]
    pub(crate) invite: AgentInvite,
    /// Print user data for cloud-init instead of a shell script
    #[arg(long)]
    pub(crate) cloud_init: bool,
    /// Source of the program: a URL, or a path on the machine [default: the gateway]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) program: Option<String>,
    /// SHA-256 of the program; required for a URL
    #[arg(long, value_name = "DIGEST", requires = "program")]
    pub(crate) sha256: Option<String>,
    /// Run the agent as this user, without rights of root; created if it does not exist
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Write to this file, readable only by you, instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AgentRevoke {
    /// Id of the remote agent, or an agent that it serves
    #[arg(value_name = "REMOTE")]
    pub(crate) remote: String,
    /// Give up its agent names instead of waiting for another machine; they run on the server's own
    /// machine only if declared local
    #[arg(long)]
    pub(crate) release: bool,
    #[command(flatten)]
    pub(crate) confirmation: Confirmation,
}

#[derive(Debug, Args)]
pub(crate) struct AgentNames {
    /// Names of the agents
    #[arg(value_name = "AGENT", required_unless_present = "all")]
    pub(crate) names: Vec<String>,
    /// All agents
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
    /// While the environment is halted: applies when it resumes
    #[arg(long)]
    pub(crate) on_resume: bool,
}

/// Join this machine as a remote agent
///
/// `orrery agent invite` creates a token on the server. With it, this machine obtains its own
/// certificate, which is stored with its key in the state directory. The token identifies the
/// gateway: no certificate needs to be copied. Then start `orrery agent run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery agent join orrery.example.com:8889 orrj_…
  orrery agent join orrery.example.com:8889 < token.txt

Exit codes: 0 joined, 1 error.")]
pub(crate) struct AgentJoin {
    #[command(flatten)]
    pub(crate) join: JoinOptions,
    /// Token of the invitation [default: prompt, or standard input]
    #[arg(value_name = "TOKEN", env = "ORRERY_AGENT_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

/// Serve as a remote agent
///
/// Connects to the gateway and runs the handlers that the server requests on this machine, as the
/// current user. Reconnects after a lost connection, renews its certificate, and keeps a journal so
/// that nothing is done twice. SIGTERM waits for running handlers.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 stopped, 1 error, 3 the server revoked the agent.")]
pub(crate) struct AgentRun {
    #[command(flatten)]
    pub(crate) serve: ServeOptions,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", env = "ORRERY_LOG_FORMAT", value_enum)]
    pub(crate) log_format: Option<LogFormat>,
}
