//! What the command line understands of values on a server (parameters, facts, secrets, notifications), and of who may do what there
//! (tokens, users, the audit log).

use clap::{Args, Subcommand, ValueEnum};
use uuid::Uuid;

use crate::cli_things::{AskEnvironment, AskServer, Confirmation, EXIT_CODES};

/// Manage the parameters of an environment on a server
///
/// A parameter is a named value that the model can ask for.
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
    pub(crate) ask: AskEnvironment,
    #[command(subcommand)]
    pub(crate) action: ParamAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ParamAction {
    /// List parameters
    List,
    /// Show the value of a parameter
    Get { name: String },
    /// Give a parameter a value
    Set {
        name: String,
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Compile again if the value is new or another one
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

/// Manage the facts of an environment on a server
///
/// A fact is what a handler learned about a resource, or what somebody told about it. `orrery facts` lists them, too.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery fact list 'std::File[web1,path=/etc/motd]'
  orrery fact set 'std::File[web1,path=/etc/motd]' size 12

{EXIT_CODES}"))]
pub(crate) struct FactGroup {
    #[command(flatten)]
    pub(crate) ask: AskEnvironment,
    #[command(subcommand)]
    pub(crate) action: FactAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FactAction {
    /// List facts
    List {
        /// Only those of this resource
        resource: Option<String>,
    },
    /// Show the value of a fact
    Get { resource: String, name: String },
    /// Tell a fact
    Set {
        resource: String,
        name: String,
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// It stays true: nobody has to tell it again
        #[arg(long)]
        permanent: bool,
        /// Compile again if the value is new or another one
        #[arg(long)]
        recompile: bool,
    },
    /// Forget a fact
    Delete {
        resource: String,
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

/// Manage the secrets that a server keeps
///
/// They can be set and used, never read. A model refers to them; handlers get them when they run.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery secret set db-password < password.txt
  orrery secret set db-password --shared < password.txt    for all environments
  orrery secret list

{EXIT_CODES}"))]
pub(crate) struct SecretGroup {
    #[command(flatten)]
    pub(crate) ask: AskEnvironment,
    /// Those of all environments of the server, instead of those of one
    #[arg(long, global = true, conflicts_with = "environment")]
    pub(crate) shared: bool,
    #[command(subcommand)]
    pub(crate) action: SecretAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretAction {
    /// List secrets, without their values
    List,
    /// Set a secret; its value is typed, or read from standard input
    Set { name: String },
    /// Delete a secret
    Delete {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

/// Read what a server wants people to know
#[derive(Debug, Args)]
#[command(after_help = format!("{EXIT_CODES}"))]
pub(crate) struct NotificationGroup {
    #[command(flatten)]
    pub(crate) ask: AskEnvironment,
    #[command(subcommand)]
    pub(crate) action: NotificationAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NotificationAction {
    /// List notifications, the newest first
    List {
        /// Also those that were read or put away
        #[arg(long)]
        all: bool,
    },
    /// Mark notifications as read
    Read(NotificationIds),
    /// Put notifications away: they are read, and no longer listed
    Clear(NotificationIds),
}

#[derive(Debug, Args)]
pub(crate) struct NotificationIds {
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(crate) ids: Vec<Uuid>,
    /// All that are listed
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleName {
    /// Look
    Viewer,
    /// Also deploy, repair, pause and halt
    Operator,
    /// Also change what is wanted: versions, compiles, parameters, settings
    Developer,
    /// Also make and delete environments, and give roles
    Admin,
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

/// Manage tokens for programs
///
/// A token never can do more than its owner. It is shown once, when it is made.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery token create ci --role developer --only-environment shop/live --days 30
  orrery token revoke ci

{EXIT_CODES}"))]
pub(crate) struct TokenGroup {
    #[command(flatten)]
    pub(crate) ask: AskServer,
    #[command(subcommand)]
    pub(crate) action: TokenAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenAction {
    /// List tokens, without what they are
    List {
        /// Those of everybody
        #[arg(long)]
        all: bool,
    },
    /// Make a token; it is written to standard output
    Create {
        name: String,
        /// What it may do
        #[arg(long, value_enum, default_value = "viewer")]
        role: RoleName,
        /// It is good in this project only
        #[arg(long, value_name = "NAME", conflicts_with = "only_environment")]
        only_project: Option<String>,
        /// It is good in this environment only
        #[arg(long, value_name = "NAME")]
        only_environment: Option<String>,
        /// Methods that it may use, such as GET,POST, separated by commas; all if absent
        #[arg(long, value_name = "METHOD", value_delimiter = ',')]
        verbs: Vec<String>,
        /// Groups of routes that it may use, as they stand in the paths of the API, such as versions,files; all if absent
        #[arg(long, value_name = "GROUP", value_delimiter = ',')]
        groups: Vec<String>,
        /// Days until it expires; 0 for never
        #[arg(long, value_name = "N", default_value_t = 90)]
        days: u32,
    },
    /// Make a token useless
    Revoke {
        /// Its name or its id
        token: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

/// Manage the accounts of a server
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery user create ada                       asks for a password
  orrery user role add ada developer --in-project shop
  orrery user update ada --disable
  orrery user password                         your own

{EXIT_CODES}"))]
pub(crate) struct UserGroup {
    #[command(flatten)]
    pub(crate) ask: AskServer,
    #[command(subcommand)]
    pub(crate) action: UserAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserAction {
    /// List accounts
    List,
    /// Show an account, and its roles
    Show { name: String },
    /// Make an account; its password is typed, or read from standard input
    Create {
        name: String,
        /// It may do everything everywhere
        #[arg(long)]
        admin: bool,
        /// Who vouches for it, instead of a password: an issuer by the name that the server's configuration gives it
        #[arg(long, value_name = "NAME")]
        issuer: Option<String>,
    },
    /// Lock an account out or in, or let it do everything
    Update {
        name: String,
        /// It cannot log in, and is logged out at once
        #[arg(long, required_unless_present_any = ["enable", "admin", "no_admin"])]
        disable: bool,
        /// It can log in again
        #[arg(long, conflicts_with = "disable")]
        enable: bool,
        /// It may do everything everywhere
        #[arg(long)]
        admin: bool,
        /// It may do what its roles allow, and no more
        #[arg(long, conflicts_with = "admin")]
        no_admin: bool,
    },
    /// Delete an account
    Delete {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Give an account another password
    Password {
        /// The account [default: your own]
        name: Option<String>,
    },
    /// Give roles, or take them away
    Role {
        #[command(subcommand)]
        action: RoleAction,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RoleAction {
    /// List who has which role
    List {
        /// Only those of this account
        name: Option<String>,
        #[command(flatten)]
        place: RolePlace,
    },
    /// Give an account a role
    Add {
        name: String,
        #[arg(value_enum)]
        role: RoleName,
        #[command(flatten)]
        place: RolePlace,
    },
    /// Take a role away
    Remove {
        name: String,
        #[arg(value_enum)]
        role: RoleName,
        #[command(flatten)]
        place: RolePlace,
    },
}

/// Where a role counts: everywhere, unless something is named.
#[derive(Debug, Args)]
pub(crate) struct RolePlace {
    /// In this project
    #[arg(long, value_name = "NAME", conflicts_with = "in_environment")]
    pub(crate) in_project: Option<String>,
    /// In this environment
    #[arg(long, value_name = "NAME")]
    pub(crate) in_environment: Option<String>,
}

/// See who did what on a server
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery audit list --limit 20
  orrery audit list --actor ada --since 2026-11-16 --in-environment shop/live
  orrery audit verify                       note the head that it tells
  orrery audit verify --entry 120 --hash …  … and compare with it later

Exit codes: 0 done, 1 error, 2 the log was tampered with (verify).")]
pub(crate) struct AuditGroup {
    #[command(flatten)]
    pub(crate) ask: AskServer,
    #[command(subcommand)]
    pub(crate) action: AuditAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditAction {
    /// List what was done, the latest first
    List {
        /// Only what this one did: user:NAME, token:USER/NAME or anonymous; a bare name is an account
        #[arg(long, value_name = "WHO")]
        actor: Option<String>,
        /// Only what concerned this environment
        #[arg(long, value_name = "NAME")]
        in_environment: Option<String>,
        /// Only this method and route of the API, such as 'POST /api/v1/projects'
        #[arg(long, value_name = "ACTION")]
        action: Option<String>,
        /// Not before this time, such as 2026-11-16 or 2026-11-16T09:30:00Z
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Before this time
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// Check that nobody changed the log afterwards
    Verify {
        /// An entry whose hash was noted earlier …
        #[arg(long, value_name = "N", requires = "hash")]
        entry: Option<i64>,
        /// … and that hash
        #[arg(long, value_name = "HASH", requires = "entry", value_parser = sha256)]
        hash: Option<String>,
    },
}

/// A hash as `orrery audit verify` tells it: anything else would look like a log that was tampered with.
fn sha256(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(text.to_ascii_lowercase());
    }
    Err("a hash has 64 hexadecimal digits".to_owned())
}
