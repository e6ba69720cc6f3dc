//! Arguments of `orrery environment`.

use clap::{Args, Subcommand, ValueHint};

use super::common::{Confirmation, EXIT_CODES, EnvironmentArgs};

/// Manage the environments of a server
///
/// An environment is one desired state and its history. `use` selects one for the commands in a
/// project directory.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery environment create live --project shop
  orrery environment create live --project shop --repository https://git.example.com/shop.git --branch main
  orrery environment use shop/live
  orrery environment setting set auto_deploy false
  orrery environment webhook --new-secret
  orrery environment halt

{EXIT_CODES}"))]
#[command(visible_alias = "env")]
pub(crate) struct EnvironmentGroup {
    #[command(flatten)]
    pub(crate) args: EnvironmentArgs,
    #[command(subcommand)]
    pub(crate) action: EnvironmentAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnvironmentAction {
    /// List environments
    List {
        /// Only environments of this project
        #[arg(long, value_name = "NAME")]
        project: Option<String>,
    },
    /// Show an environment
    Show(EnvironmentName),
    /// Create an environment
    Create {
        name: String,
        /// Project of the environment [default: the only project]
        #[arg(long, value_name = "NAME")]
        project: Option<String>,
        #[command(flatten)]
        properties: EnvironmentProperties,
        /// Select it for the project directory, as `use` does
        #[arg(long = "use")]
        then_use: bool,
    },
    /// Change the name, project or repository of an environment
    Update {
        #[command(flatten)]
        named: EnvironmentName,
        /// New name
        #[arg(long)]
        name: Option<String>,
        /// Move it to this project
        #[arg(long, value_name = "NAME")]
        project: Option<String>,
        /// Bind it to the project of this name in project.yml; empty: the next version binds it
        #[arg(long, value_name = "NAME")]
        model_project: Option<String>,
        #[command(flatten)]
        properties: EnvironmentProperties,
    },
    /// Delete an environment with all its history
    Delete {
        #[command(flatten)]
        named: EnvironmentName,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Delete all versions, states, parameters and facts of an environment
    Clear {
        #[command(flatten)]
        named: EnvironmentName,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Halt an environment: nothing is deployed
    Halt(EnvironmentName),
    /// Resume a halted environment
    Resume(EnvironmentName),
    /// Select the environment that a project is deployed to
    ///
    /// Writes .orrery.toml next to project.yml. Commands in the project directory then use that
    /// environment; other directories are not affected. The file contains no secrets: commit it if
    /// the whole team uses the same environment. Outside of projects, `use` sets the default
    /// environment.
    Use {
        /// project/name, a unique name, or an id; `none` to select no environment
        #[arg(value_name = "NAME")]
        chosen: String,
        /// Project directory [default: the nearest parent with a project.yml]
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        project: Option<std::path::PathBuf>,
    },
    /// Show and change settings
    Setting {
        #[command(subcommand)]
        action: SettingAction,
    },
    /// Show the webhook of an environment and set its secret
    ///
    /// GitHub, GitLab, Gitea and Forgejo call the address after each push; the server then reads
    /// the branch immediately instead of at the next interval (setting repository_poll_interval).
    Webhook {
        #[command(flatten)]
        named: EnvironmentName,
        /// Create a new secret and show it once; it replaces the old one
        #[arg(long, conflicts_with = "remove")]
        new_secret: bool,
        /// Remove the secret: every call is rejected
        #[arg(long)]
        remove: bool,
    },
}

/// Environment as a positional argument.
#[derive(Debug, Args)]
pub(crate) struct EnvironmentName {
    /// Environment [default: the selected one]
    #[arg(value_name = "NAME", conflicts_with = "environment")]
    pub(crate) named: Option<String>,
}

/// Description and model source of an environment.
#[derive(Debug, Args)]
pub(crate) struct EnvironmentProperties {
    /// Description
    #[arg(long)]
    pub(crate) description: Option<String>,
    /// Git repository with the model; the server follows it and rejects pushed versions
    #[arg(long, value_name = "URL")]
    pub(crate) repository: Option<String>,
    /// Branch of the repository [default: the repository's default branch]
    #[arg(long)]
    pub(crate) branch: Option<String>,
    /// Icon as a data URL, such as "data:image/png;base64,$(base64 -w0 icon.png)"; empty for none
    #[arg(long, value_name = "DATA")]
    pub(crate) icon: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SettingAction {
    /// List all settings with their values
    List,
    /// Show a setting and its description
    Get { name: String },
    /// Set a setting
    Set {
        name: String,
        /// JSON, or plain text
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Reset a setting to its default
    Reset { name: String },
}
