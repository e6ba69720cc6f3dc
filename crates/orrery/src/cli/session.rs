//! Arguments of `orrery login`, `orrery logout` and `orrery context`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 error.";

/// Log in to a server
///
/// Prompts for a name and a password, opens a session and stores it as the current context:
/// commands use that server once `orrery environment use` has selected an environment. Without a
/// terminal, the password is read from standard input.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery login https://orrery.example.com:8888
  orrery login https://orrery.example.com:8888 --name ada --as production
  orrery login http://127.0.0.1:8888 --setup TOKEN    a new server: create the first account
  orrery login https://orrery.example.com --token < token.txt

The setup token follows the # in the link that a new server prints.

{EXIT_CODES}"))]
pub(crate) struct Login {
    /// URL of the server [default: that of the current context]
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) server: Option<String>,
    /// Name of the account
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Log in with a token from standard input instead of a name and password
    #[arg(long, conflicts_with_all = ["name", "setup"])]
    pub(crate) token: bool,
    /// Create the first account of a new server, with the token of the printed link
    #[arg(long, value_name = "TOKEN")]
    pub(crate) setup: Option<String>,
    /// Name of the context [default: host name of the server]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// CA certificate file to trust instead of the system's certificates
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
    /// Write the context as JSON to standard output, without secrets
    #[arg(long)]
    pub(crate) json: bool,
}

/// Log out of a server
///
/// Ends the session and deletes it locally. The context is kept for the next login.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXIT_CODES}"))]
pub(crate) struct Logout {
    /// Name of the context [default: the current one]
    #[arg(value_hint = ValueHint::Other)]
    pub(crate) context: Option<String>,
    /// Write the context as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Manage contexts
///
/// A context is a server with a session or token and a default environment. Contexts are stored in
/// ~/.config/orrery/contexts.toml, readable only by you; ORRERY_CONTEXTS names another file.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery context list
  orrery context use production
  orrery context add ci --server https://orrery.example.com < token.txt

{EXIT_CODES}"))]
pub(crate) struct ContextGroup {
    /// Write only JSON to standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) action: ContextAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextAction {
    /// List contexts; a star marks the current one
    List,
    /// Show a context and its account
    Show {
        /// Name of the context [default: the current one]
        name: Option<String>,
    },
    /// Set the current context
    Use { name: String },
    /// Unset the current context: commands use the local project again
    Leave,
    /// Add a context with a token from standard input
    Add {
        name: String,
        /// URL of the server
        #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
        server: String,
        /// CA certificate file to trust instead of the system's certificates
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        ca: Option<PathBuf>,
    },
    /// Remove a context
    Remove { name: String },
}
