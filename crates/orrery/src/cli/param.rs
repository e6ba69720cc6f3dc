//! Arguments of `orrery param`.

use clap::{Args, Subcommand};

use super::common::{Confirmation, EXIT_CODES, EnvironmentArgs};

/// Manage the parameters of an environment on a server
///
/// A parameter is a named value that models can read.
#[derive(Debug, Args)]
#[command(visible_alias = "parameter")]
#[command(after_help = format!("\
Examples:
  orrery param set region eu-west
  orrery param set region eu-west --recompile
  orrery param list

{EXIT_CODES}"))]
pub(crate) struct ParamGroup {
    #[command(flatten)]
    pub(crate) args: EnvironmentArgs,
    #[command(subcommand)]
    pub(crate) action: ParamAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ParamAction {
    /// List parameters
    List,
    /// Show the value of a parameter
    Get { name: String },
    /// Set a parameter
    Set {
        name: String,
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Request a compile if the value changed
        #[arg(long)]
        recompile: bool,
    },
    /// Delete a parameter
    Delete {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}
