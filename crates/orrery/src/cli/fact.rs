//! Arguments of `orrery fact`.

use clap::{Args, Subcommand};

use super::common::{Confirmation, EXIT_CODES, EnvironmentArgs};

/// Manage the facts of an environment on a server
///
/// A fact is a value about a resource, found by its handler or set by hand. `orrery facts` lists
/// them, too.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery fact list 'std::File[web1,path=/etc/motd]'
  orrery fact set 'std::File[web1,path=/etc/motd]' size 12

{EXIT_CODES}"))]
pub(crate) struct FactGroup {
    #[command(flatten)]
    pub(crate) args: EnvironmentArgs,
    #[command(subcommand)]
    pub(crate) action: FactAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FactAction {
    /// List facts
    List {
        /// Only facts of this resource
        resource: Option<String>,
    },
    /// Show the value of a fact
    Get { resource: String, name: String },
    /// Set a fact
    Set {
        resource: String,
        name: String,
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Never expire the fact
        #[arg(long)]
        permanent: bool,
        /// Request a compile if the value changed
        #[arg(long)]
        recompile: bool,
    },
    /// Delete a fact
    Delete {
        resource: String,
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}
