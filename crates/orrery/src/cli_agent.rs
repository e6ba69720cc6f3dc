//! What the command line understands of remote agents, on the machines that they are on.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use orrery_agent::GatewayAddress;

use crate::cli_server::LogFormat;

/// Have this machine join as a remote agent
///
/// `orrery agent invite` makes a token on the server. With it, this machine gets a certificate of its own, which it keeps with its key in the state
/// directory. The token says which gateway to trust: no certificate has to be copied. Afterwards, `orrery agent run` serves.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery agent join orrery.example.com:8889 orrj_…
  orrery agent join orrery.example.com:8889 < token.txt

Exit codes: 0 joined, 1 error.")]
pub(crate) struct AgentJoin {
    /// Where the gateway is, as the invitation says
    #[arg(value_name = "GATEWAY", value_hint = ValueHint::Hostname)]
    pub(crate) gateway: GatewayAddress,
    /// The token of the invitation [default: asked for, or read from standard input]
    #[arg(value_name = "TOKEN", env = "ORRERY_AGENT_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Serve only this agent of the invitation; may be repeated
    #[arg(long = "name", value_name = "AGENT")]
    pub(crate) names: Vec<String>,
    /// Forget the agent that the state directory belongs to, once this one has joined
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) state: AgentState,
}

/// Serve as a remote agent
///
/// Dials the gateway, and runs the handlers that the server asks for on this machine, as the user that this runs as. It comes again when the connection is
/// lost, renews its certificate in time, and remembers what it did, so that nothing is done twice. SIGTERM lets what runs come to its end.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 stopped as asked, 1 error, or the agent was revoked.")]
pub(crate) struct AgentRun {
    #[command(flatten)]
    pub(crate) state: AgentState,
    /// How many handlers may run at once; those of one agent name run one after the other
    #[arg(long, value_name = "COUNT", env = "ORRERY_AGENT_WORKERS", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) workers: u16,
    /// Which lines to log: error, warn, info, debug or trace, or a filter
    #[arg(long, value_name = "LEVEL", env = "ORRERY_LOG", default_value = "info")]
    pub(crate) log: String,
    /// How lines of the log look
    #[arg(long, value_name = "FORMAT", env = "ORRERY_LOG_FORMAT", value_enum)]
    pub(crate) log_format: Option<LogFormat>,
}

#[derive(Debug, Args)]
pub(crate) struct AgentState {
    /// Where the agent keeps its key, its certificate and its journal [default: /var/lib/orrery-agent for root, ~/.local/state/orrery-agent else]
    #[arg(long, value_name = "DIR", env = "ORRERY_AGENT_STATE", value_hint = ValueHint::DirPath)]
    pub(crate) state: Option<PathBuf>,
}
