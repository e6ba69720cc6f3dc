//! Arguments of `orrery secret`.

use clap::{Args, Subcommand};

use super::common::{Confirmation, EXIT_CODES, EnvironmentArgs};

/// Manage the secrets of a server
///
/// Secrets are write-only. A model refers to them; handlers receive them when they run.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery secret set db-password < password.txt
  orrery secret set db-password --shared < password.txt    for all environments
  orrery secret list

{EXIT_CODES}"))]
pub(crate) struct SecretGroup {
    #[command(flatten)]
    pub(crate) args: EnvironmentArgs,
    /// Secrets shared by all environments of the server
    #[arg(long, global = true, conflicts_with = "environment")]
    pub(crate) shared: bool,
    #[command(subcommand)]
    pub(crate) action: SecretAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretAction {
    /// List secrets, without their values
    List,
    /// Set a secret; the value is prompted for, or read from standard input
    Set { name: String },
    /// Delete a secret
    Delete {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}
