//! Arguments of `orrery user`.

use std::fmt;

use clap::{Args, Subcommand, ValueEnum};

use super::common::{Confirmation, EXIT_CODES, ServerArgs};

/// Manage the accounts of a server
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery user create ada                       prompts for a password
  orrery user role add ada developer --in-project shop
  orrery user update ada --disable
  orrery user password                         your own

{EXIT_CODES}"))]
pub(crate) struct UserGroup {
    #[command(flatten)]
    pub(crate) args: ServerArgs,
    #[command(subcommand)]
    pub(crate) action: UserAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserAction {
    /// List accounts
    List,
    /// Show an account and its roles
    Show { name: String },
    /// Create an account; the password is prompted for, or read from standard input
    Create {
        name: String,
        /// Make it an administrator
        #[arg(long)]
        admin: bool,
        /// Authenticate with this issuer of the server's configuration instead of a password
        #[arg(long, value_name = "NAME")]
        issuer: Option<String>,
    },
    /// Enable or disable an account, or change its administrator rights
    Update {
        name: String,
        /// Disable the account and end its sessions
        #[arg(long, required_unless_present_any = ["enable", "admin", "no_admin"])]
        disable: bool,
        /// Enable the account
        #[arg(long, conflicts_with = "disable")]
        enable: bool,
        /// Make it an administrator
        #[arg(long)]
        admin: bool,
        /// Remove administrator rights; its roles remain
        #[arg(long, conflicts_with = "admin")]
        no_admin: bool,
    },
    /// Delete an account
    Delete {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Change the password of an account
    Password {
        /// Account [default: your own]
        name: Option<String>,
    },
    /// Manage roles
    Role {
        #[command(subcommand)]
        action: RoleAction,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RoleAction {
    /// List role assignments
    List {
        /// Only roles of this account
        name: Option<String>,
        #[command(flatten)]
        target: RoleTarget,
    },
    /// Assign a role to an account
    Add {
        /// Name of the account
        name: String,
        #[arg(value_enum)]
        role: RoleName,
        #[command(flatten)]
        target: RoleTarget,
    },
    /// Remove a role from an account
    Remove {
        /// Name of the account
        name: String,
        #[arg(value_enum)]
        role: RoleName,
        #[command(flatten)]
        target: RoleTarget,
    },
}

/// Scope of a role: everywhere, unless a project or environment is named.
#[derive(Debug, Args)]
pub(crate) struct RoleTarget {
    /// Only in this project
    #[arg(long, value_name = "NAME", conflicts_with = "in_environment")]
    pub(crate) in_project: Option<String>,
    /// Only in this environment
    #[arg(long, value_name = "NAME")]
    pub(crate) in_environment: Option<String>,
}

impl fmt::Display for RoleTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.in_project, &self.in_environment) {
            (Some(project), _) => write!(f, "in project {project}"),
            (None, Some(environment)) => write!(f, "in environment {environment}"),
            (None, None) => f.write_str("everywhere"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleName {
    /// Read access
    Viewer,
    /// Also deploy, repair, pause and halt
    Operator,
    /// Also change the desired state: versions, compiles, parameters, settings
    Developer,
    /// Also create and delete environments, and assign roles
    Admin,
}

impl From<RoleName> for orrery_api::RoleName {
    fn from(role: RoleName) -> Self {
        match role {
            RoleName::Viewer => orrery_api::RoleName::Viewer,
            RoleName::Operator => orrery_api::RoleName::Operator,
            RoleName::Developer => orrery_api::RoleName::Developer,
            RoleName::Admin => orrery_api::RoleName::Admin,
        }
    }
}

impl RoleName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RoleName::Viewer => "viewer",
            RoleName::Operator => "operator",
            RoleName::Developer => "developer",
            RoleName::Admin => "admin",
        }
    }
}
