//! Arguments that commands about a server share.

use clap::Args;

use crate::remote::{EnvironmentChoice, ServerChoice};

pub(crate) const EXIT_CODES: &str = "Exit codes: 0 done, 1 error.";

/// Arguments of commands about a server.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    /// Write only the API's JSON to standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Arguments of commands about an environment of a server.
#[derive(Debug, Args)]
pub(crate) struct EnvironmentArgs {
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    #[command(flatten)]
    pub(crate) environment: EnvironmentChoice,
    /// Write only the API's JSON to standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Confirmation of a command that cannot be undone.
#[derive(Debug, Args)]
pub(crate) struct Confirmation {
    /// Skip confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}
