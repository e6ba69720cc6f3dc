//! What the command line understands of what is on a server: projects, environments, versions, agents and compiles.

use clap::{Args, Subcommand, ValueHint};

use crate::cli_agent::{AgentJoin, AgentRun};
use crate::cli_export::message_parser;
use crate::remote::{EnvironmentChoice, ServerChoice};

pub(crate) const EXIT_CODES: &str = "Exit codes: 0 done, 1 error.";

/// For commands about a server.
#[derive(Debug, Args)]
pub(crate) struct AskServer {
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    /// Write the API's JSON to standard output, and nothing else
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// For commands about an environment of a server.
#[derive(Debug, Args)]
pub(crate) struct AskEnvironment {
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    #[command(flatten)]
    pub(crate) environment: EnvironmentChoice,
    /// Write the API's JSON to standard output, and nothing else
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Whether somebody is asked first.
#[derive(Debug, Args)]
pub(crate) struct Confirmation {
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

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
    pub(crate) ask: AskServer,
    #[command(subcommand)]
    pub(crate) action: ProjectAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectAction {
    /// List projects
    List,
    /// Show a project and its environments
    Show {
        /// Its name or its id
        project: String,
    },
    /// Make a project
    Create {
        name: String,
        /// What it is, for people
        #[arg(long, default_value = "")]
        description: String,
    },
    /// Give a project another name or description
    Rename {
        /// Its name or its id
        project: String,
        /// The new name
        name: String,
        /// What it is, for people
        #[arg(long)]
        description: Option<String>,
    },
    /// Delete a project that has no environments
    Delete {
        /// Its name or its id
        project: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

/// Manage the environments of a server
///
/// An environment is one desired state and its history. `use` chooses one for the commands in a project's directory.
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
    pub(crate) ask: AskEnvironment,
    #[command(subcommand)]
    pub(crate) action: EnvironmentAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnvironmentAction {
    /// List environments
    List {
        /// Only those of this project
        #[arg(long, value_name = "NAME")]
        project: Option<String>,
    },
    /// Show an environment
    Show(Named),
    /// Make an environment
    Create {
        name: String,
        /// The project that it belongs to [default: the only one that there is]
        #[arg(long, value_name = "NAME")]
        project: Option<String>,
        #[command(flatten)]
        properties: EnvironmentProperties,
        /// Choose it for the project's directory, as `use` does
        #[arg(long = "use")]
        then_use: bool,
    },
    /// Change what an environment is called, where it belongs, or where its model comes from
    Update {
        #[command(flatten)]
        named: Named,
        /// The new name
        #[arg(long)]
        name: Option<String>,
        /// Move it to this project
        #[arg(long, value_name = "NAME")]
        project: Option<String>,
        /// Bind it to the model of this name in project.yml; empty to let the next version bind it
        #[arg(long, value_name = "NAME")]
        model_project: Option<String>,
        #[command(flatten)]
        properties: EnvironmentProperties,
    },
    /// Delete an environment with all its history
    Delete {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Forget all versions, states, parameters and facts of an environment
    Clear {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Stop everything in an environment
    Halt(Named),
    /// Let a halted environment go on
    Resume(Named),
    /// Choose the environment that a project is deployed to
    ///
    /// Writes .orrery.toml next to project.yml. From then on, commands in the project's directory are about that environment; other
    /// directories are not affected. The file holds no secrets: commit it if everybody who works on the project means the same
    /// environment. Outside of projects, it chooses the default for commands there.
    Use {
        /// project/name, a name that no other one has, or its id; none to choose no environment
        #[arg(value_name = "NAME")]
        chosen: String,
        /// The project's directory [default: the nearest with a project.yml, from here upwards]
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        project: Option<std::path::PathBuf>,
    },
    /// Look at settings, and change them
    Setting {
        #[command(subcommand)]
        action: SettingAction,
    },
    /// Show where a forge announces pushes, and give it a secret to sign them with
    ///
    /// GitHub, GitLab, Gitea and Forgejo call the address after each push; the server then reads the branch at once instead of at the
    /// next interval (setting repository_poll_interval).
    Webhook {
        #[command(flatten)]
        named: Named,
        /// Create a new secret and show it, this once; an older one is void
        #[arg(long, conflicts_with = "remove")]
        new_secret: bool,
        /// Remove the secret: every call is refused
        #[arg(long)]
        remove: bool,
    },
}

/// An environment that is named without --environment.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The environment [default: the one that is chosen]
    #[arg(value_name = "NAME", conflicts_with = "environment")]
    pub(crate) named: Option<String>,
}

/// What an environment is for, and where its model comes from.
#[derive(Debug, Args)]
pub(crate) struct EnvironmentProperties {
    /// What it is, for people
    #[arg(long)]
    pub(crate) description: Option<String>,
    /// The git repository with the model: the server follows it, and refuses versions that are pushed
    #[arg(long, value_name = "URL")]
    pub(crate) repository: Option<String>,
    /// The branch of the repository [default: the repository's own]
    #[arg(long)]
    pub(crate) branch: Option<String>,
    /// A picture of it, as a data URL such as "data:image/png;base64,$(base64 -w0 icon.png)"; an empty text for none
    #[arg(long, value_name = "DATA")]
    pub(crate) icon: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SettingAction {
    /// List all settings with their values
    List,
    /// Show one setting, and what it does
    Get { name: String },
    /// Give a setting a value
    Set {
        name: String,
        /// JSON, or a text
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Give a setting its usual value again
    Reset { name: String },
}

/// Manage the versions of an environment on a server
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery version list
  orrery version dry-run 12        what releasing it would change
  orrery version release 12
  orrery version roll-back 11 -f   what 11 wanted becomes a new version; wait for it

Exit codes: 0 done, 1 error, 2 changes are pending (compare, dry-run) or some resources failed (with --follow).")]
pub(crate) struct VersionGroup {
    #[command(flatten)]
    pub(crate) ask: AskEnvironment,
    #[command(subcommand)]
    pub(crate) action: VersionAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VersionAction {
    /// List versions, the newest first
    List {
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// Show a version
    Show { version: u32 },
    /// Make a version the one that is wanted
    Release {
        version: u32,
        /// Wait until it is deployed, and tell
        #[arg(short, long)]
        follow: bool,
    },
    /// Go back to what a version wanted
    RollBack {
        version: u32,
        /// Wait until it is deployed, and tell
        #[arg(short, long)]
        follow: bool,
    },
    /// Show how two versions differ
    Compare {
        from: u32,
        to: u32,
        /// Show which resources differ, but not how
        #[arg(long)]
        short: bool,
    },
    /// Delete a version that is not in use
    Delete {
        version: u32,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Find out what a version would change, without changing anything
    DryRun {
        version: u32,
        /// List every resource and every line: without it, long lists and long texts are folded
        #[arg(long)]
        all: bool,
    },
}

/// Manage the agents of an environment on a server
///
/// An agent is one queue of work, for one target.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery agent pause web1 web2
  orrery agent unpause --all
  orrery agent pause web1 --on-resume     while halted: web1 stays paused when it ends
  orrery agent invite web1                a token, with which a machine joins as web1

{EXIT_CODES}"))]
pub(crate) struct AgentGroup {
    #[command(flatten)]
    pub(crate) ask: AskEnvironment,
    #[command(subcommand)]
    pub(crate) action: AgentAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentAction {
    Join(AgentJoin),
    Run(AgentRun),
    /// List agents with the states of their resources
    List,
    /// Let agents begin nothing new
    Pause(AgentNames),
    /// Let agents go on
    Unpause(AgentNames),
    /// Let one machine join, and run the handlers of these agents there
    ///
    /// The token is shown this one time, and is good for one machine.
    Invite(AgentInvite),
    /// List remote agents: machines that have joined, and what they serve
    Remotes,
    /// Refuse a remote agent from now on, and end its session
    Revoke(AgentRevoke),
}

#[derive(Debug, Args)]
pub(crate) struct AgentInvite {
    /// The agents that the machine will serve
    #[arg(value_name = "AGENT", required = true)]
    pub(crate) names: Vec<String>,
    /// How long the token is good, in seconds: a week at most
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) expires_in: u32,
}

#[derive(Debug, Args)]
pub(crate) struct AgentRevoke {
    /// Its id, or an agent that it serves
    #[arg(value_name = "REMOTE")]
    pub(crate) remote: String,
    /// Give its names up, instead of waiting for another machine to join: they are the server's own machine only if declared so
    #[arg(long)]
    pub(crate) release: bool,
    #[command(flatten)]
    pub(crate) confirmation: Confirmation,
}

#[derive(Debug, Args)]
pub(crate) struct AgentNames {
    /// Their names
    #[arg(value_name = "AGENT", required_unless_present = "all")]
    pub(crate) names: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
    /// Only while the environment is halted: not now, but when that ends
    #[arg(long)]
    pub(crate) on_resume: bool,
}

/// Compiles on a server, as subcommands of the command that compiles here.
#[derive(Debug, Subcommand)]
pub(crate) enum CompileAction {
    /// Ask a server to compile an environment
    ///
    /// The environment needs a repository: orrery environment update --repository URL.
    Request(CompileRequest),
    /// List the compiles of a server, the newest first
    List {
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        ask: AskEnvironment,
    },
    /// Show a compile of a server with all that it wrote
    Show {
        id: uuid::Uuid,
        /// Wait for its end, and show what it writes
        #[arg(short, long)]
        follow: bool,
        #[command(flatten)]
        ask: AskEnvironment,
    },
    /// List what waits and runs on a server
    Queue {
        #[command(flatten)]
        ask: AskEnvironment,
    },
    /// Take back a compile of a server
    Cancel {
        id: uuid::Uuid,
        #[command(flatten)]
        ask: AskEnvironment,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery compile request --follow     fetch the newest sources, compile, and show how that goes
  orrery compile request --deploy     … and release what it makes, and wait until that is deployed

Exit codes: 0 done, 1 error, 2 the compile failed (with --follow) or some resources did (with --deploy).")]
pub(crate) struct CompileRequest {
    /// Compile the sources and modules that the server has, instead of fetching the newest first
    #[arg(long)]
    pub(crate) no_update: bool,
    /// Fetch first, which is what happens anyway
    #[arg(long, hide = true, conflicts_with = "no_update")]
    pub(crate) update: bool,
    /// Start from an empty directory: clone and install anew
    #[arg(long)]
    pub(crate) reinstall: bool,
    /// Only check the model, store no version
    #[arg(long)]
    pub(crate) check: bool,
    /// Why
    #[arg(long, value_name = "TEXT", value_parser = message_parser())]
    pub(crate) message: Option<String>,
    /// Wait for its end, and show what it writes
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Wait for its end, release its version if it is not released, and wait until that is deployed
    #[arg(long, conflicts_with = "check")]
    pub(crate) deploy: bool,
    #[command(flatten)]
    pub(crate) ask: AskEnvironment,
}
