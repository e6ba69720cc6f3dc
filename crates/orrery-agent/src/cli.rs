//! Options of a remote agent on the command line, shared by the binaries that run one.
//!
//! The structs have no doc comments: clap would take them for the description of the command.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::address::GatewayAddress;
use crate::agent_command::STATE_VARIABLE;

// Options to join as a remote agent, without the token.
#[derive(Debug, Args)]
pub struct JoinOptions {
    /// Address of the gateway, as shown by the invitation
    #[arg(value_name = "GATEWAY", value_hint = ValueHint::Hostname)]
    pub gateway: GatewayAddress,
    /// Serve only this agent of the invitation; repeatable
    #[arg(long = "name", value_name = "AGENT")]
    pub names: Vec<String>,
    /// Replace the agent that the state directory belongs to, once this one has joined
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub state: StateOptions,
}

// Options to serve as a remote agent.
#[derive(Debug, Args)]
pub struct ServeOptions {
    #[command(flatten)]
    pub state: StateOptions,
    /// Maximum number of handlers that run at once; handlers of one agent run one after another
    #[arg(long, value_name = "COUNT", env = "ORRERY_AGENT_WORKERS", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: u16,
    /// Policy of this machine: the types, paths, commands and users that the server may use
    /// [default: /etc/orrery-agent/policy.toml, if it exists; otherwise everything is allowed]
    #[arg(long, value_name = "FILE", env = "ORRERY_AGENT_POLICY", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,
    /// Memory limit of each process of Python handlers, in MiB; 0 for none
    #[arg(long, value_name = "MIB", env = "ORRERY_AGENT_HOST_MEMORY", default_value_t = 4096)]
    pub host_memory: u64,
    /// Log filter: error, warn, info, debug, trace, or a filter expression
    #[arg(long, value_name = "LEVEL", env = "ORRERY_LOG", default_value = "info")]
    pub log: String,
}

// Location of the state of a remote agent.
#[derive(Debug, Args)]
pub struct StateOptions {
    /// State directory: key, certificate and journal [default: /var/lib/orrery-agent for root,
    /// otherwise ~/.local/state/orrery-agent]
    #[arg(long, value_name = "DIR", env = STATE_VARIABLE)]
    #[arg(value_hint = ValueHint::DirPath)]
    pub state: Option<PathBuf>,
}
