//! Arguments of `orrery token`.

use clap::{Args, Subcommand};

use super::common::{Confirmation, EXIT_CODES, ServerArgs};
use super::user::RoleName;

/// Manage tokens for programs
///
/// A token never has more rights than its owner. It is shown once, when it is created.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery token create ci --role developer --only-environment shop/live --days 30
  orrery token revoke ci

{EXIT_CODES}"))]
pub(crate) struct TokenGroup {
    #[command(flatten)]
    pub(crate) args: ServerArgs,
    #[command(subcommand)]
    pub(crate) action: TokenAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenAction {
    /// List tokens
    List {
        /// Tokens of all accounts
        #[arg(long)]
        all: bool,
    },
    /// Create a token and write it to standard output
    Create {
        name: String,
        /// Role of the token
        #[arg(long, value_enum, default_value = "viewer")]
        role: RoleName,
        /// Restrict the token to this project
        #[arg(long, value_name = "NAME", conflicts_with = "only_environment")]
        only_project: Option<String>,
        /// Restrict the token to this environment
        #[arg(long, value_name = "NAME")]
        only_environment: Option<String>,
        /// Allowed HTTP methods, such as GET,POST [default: all]
        #[arg(long, value_name = "METHOD", value_delimiter = ',')]
        verbs: Vec<String>,
        /// Allowed route groups of the API, such as versions,files [default: all]
        #[arg(long, value_name = "GROUP", value_delimiter = ',')]
        groups: Vec<String>,
        /// Days until the token expires; 0 for never
        #[arg(long, value_name = "N", default_value_t = 90)]
        days: u32,
    },
    /// Revoke a token
    Revoke {
        /// Name or id
        token: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}
