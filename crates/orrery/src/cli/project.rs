//! Arguments of `orrery project`.

use clap::{Args, Subcommand};

use super::common::{Confirmation, EXIT_CODES, ServerArgs};

/// Manage the projects of a server
///
/// A project owns environments.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery project create shop --description 'Everything that sells'
  orrery project list

{EXIT_CODES}"))]
pub(crate) struct ProjectGroup {
    #[command(flatten)]
    pub(crate) args: ServerArgs,
    #[command(subcommand)]
    pub(crate) action: ProjectAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectAction {
    /// List projects
    List,
    /// Show a project and its environments
    Show {
        /// Name or id
        project: String,
    },
    /// Create a project
    Create {
        name: String,
        /// Description
        #[arg(long, default_value = "")]
        description: String,
    },
    /// Change the name or description of a project
    Rename {
        /// Name or id
        project: String,
        /// New name
        name: String,
        /// Description
        #[arg(long)]
        description: Option<String>,
    },
    /// Delete a project that has no environments
    Delete {
        /// Name or id
        project: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}
