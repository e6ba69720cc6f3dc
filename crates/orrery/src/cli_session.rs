//! What the command line understands of servers: which ones there are, and as whom they are used.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 error.";

/// Log in to a server
///
/// Asks for a name and a password, opens a session and keeps it as a context, which becomes the current one: commands then
/// work on that server. Without a terminal, the password is read from standard input.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery login https://orrery.example.com:8888
  orrery login https://orrery.example.com:8888 --name ada --as production
  orrery login http://127.0.0.1:8888 --setup TOKEN    a new server: make the first account
  orrery login https://orrery.example.com --token < token.txt

The set-up token is what stands behind the # of the link that a new server prints.

{EXIT_CODES}"))]
pub(crate) struct Login {
    /// The address of the server [default: that of the current context]
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) server: Option<String>,
    /// The name of the account
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Use a token, which is read from standard input, instead of a name and a password
    #[arg(long, conflicts_with_all = ["name", "setup"])]
    pub(crate) token: bool,
    /// Make the first account of a new server first, with the token of the link that it printed
    #[arg(long, value_name = "TOKEN")]
    pub(crate) setup: Option<String>,
    /// The name of the context [default: the host of the server]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// A file with the certificate to trust, instead of those of this machine
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
    /// Write the context as JSON to standard output, without what is secret
    #[arg(long)]
    pub(crate) json: bool,
}

/// Log out of a server
///
/// Ends the session and forgets it. The context stays, for the next login.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXIT_CODES}"))]
pub(crate) struct Logout {
    /// The name of the context [default: the current one]
    #[arg(value_hint = ValueHint::Other)]
    pub(crate) context: Option<String>,
    /// Write the context as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Choose between servers
///
/// A context is a server with a session or a token, and the environment that is used there. They are kept in
/// ~/.config/orrery/contexts.toml, which only you can read; ORRERY_CONTEXTS names another file.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery context list
  orrery context use production
  orrery context add ci --server https://orrery.example.com < token.txt

{EXIT_CODES}"))]
pub(crate) struct ContextGroup {
    /// Write JSON to standard output, and nothing else
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) action: ContextAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextAction {
    /// List contexts; the current one has a star
    List,
    /// Show a context, and who you are there
    Show {
        /// The name of the context [default: the current one]
        name: Option<String>,
    },
    /// Make a context the current one
    Use { name: String },
    /// Have no current context: commands work on the local project again
    Leave,
    /// Add a context with a token, which is read from standard input
    Add {
        name: String,
        /// The address of the server
        #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
        server: String,
        /// A file with the certificate to trust, instead of those of this machine
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        ca: Option<PathBuf>,
    },
    /// Forget a context
    Remove { name: String },
}
