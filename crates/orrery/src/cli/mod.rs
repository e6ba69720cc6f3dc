//! Command line arguments and their help texts.

#![expect(clippy::doc_markdown, reason = "these comments are help texts, shown without markup")]

pub(crate) mod agent;
pub(crate) mod audit;
pub(crate) mod cluster;
pub(crate) mod cluster_control;
pub(crate) mod cluster_life;
pub(crate) mod common;
pub(crate) mod compile;
pub(crate) mod deploy;
pub(crate) mod documents;
pub(crate) mod environment;
pub(crate) mod export;
pub(crate) mod fact;
pub(crate) mod hosts;
pub(crate) mod inspect;
pub(crate) mod modules;
pub(crate) mod notification;
pub(crate) mod param;
pub(crate) mod ping;
pub(crate) mod project;
pub(crate) mod secret;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod token;
pub(crate) mod user;
pub(crate) mod version;
pub(crate) mod worker;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use orrery_base::clock;
use orrery_compiler::error::CompileError;
use orrery_compiler::project::Options;
use orrery_project::{FoundProject, MAIN_FILE, ProjectRequest};

use self::agent::AgentGroup;
use self::audit::AuditGroup;
use self::cluster::ClusterGroup;
use self::compile::CompileAction;
use self::deploy::{Deploy, Destroy, LimitOptions, Plan, Repair, Watch};
use self::documents::{
    HardwareGroup, ImageGroup, ProviderGroup, ServiceGroup, TemplateGroup, TenantGroup,
};
use self::environment::EnvironmentGroup;
use self::export::Export;
use self::fact::FactGroup;
use self::modules::{Modules, Sdk};
use self::notification::NotificationGroup;
use self::param::ParamGroup;
use self::project::ProjectGroup;
use self::secret::SecretGroup;
use self::server::Server;
use self::session::{ContextGroup, Login, Logout};
use self::token::TokenGroup;
use self::user::UserGroup;
use self::version::VersionGroup;
use self::worker::WorkerGroup;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  error
  2  changes are pending, or some resources failed (for commands that deploy)";

const START: &str = "\
Start here:
  orrery new my-project       create a small example project
  cd my-project
  orrery plan                 show what a deploy would change
  orrery deploy               deploy it
  orrery docs std::File       show the attributes of a type

With a server:
  orrery login URL            log in to a server; then `orrery environment use NAME`";

const GLOBAL: &str = "Global options";

/// Intent-based orchestration: write a model of the desired state and deploy it.
#[derive(Debug, Parser)]
#[command(name = "orrery", version, max_term_width = 100)]
#[command(after_help = format!("{START}\n\n{EXIT_CODES}"))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Use of colours: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", value_enum)]
    #[arg(hide_possible_values = true, help_heading = GLOBAL)]
    pub(crate) color: Color,
    /// Log to standard error; repeat for more detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = GLOBAL)]
    pub(crate) verbose: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl From<Color> for anstream::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    New(New),
    Compile(Compile),
    Plan(Plan),
    Deploy(Deploy),
    Repair(Repair),
    Watch(Watch),
    Docs(Docs),
    Destroy(Destroy),
    Parse(Parse),
    Fmt(Fmt),
    Explain(Explain),
    Modules(Modules),
    Sdk(Sdk),
    Status(inspect::ShowStatus),
    Resources(inspect::Resources),
    Log(inspect::Log),
    Why(inspect::Why),
    Settle(inspect::Settle),
    Versions(inspect::Versions),
    Diff(inspect::Diff),
    Facts(inspect::Facts),
    Hosts(hosts::Hosts),
    Ping(ping::Ping),
    /// Run a job of a server's compile service
    #[command(hide = true)]
    CompileJob,
    Login(Login),
    Logout(Logout),
    Context(ContextGroup),
    Project(ProjectGroup),
    Environment(EnvironmentGroup),
    Version(VersionGroup),
    Agent(AgentGroup),
    Param(ParamGroup),
    Fact(FactGroup),
    Secret(SecretGroup),
    Notification(NotificationGroup),
    Token(TokenGroup),
    User(UserGroup),
    Audit(AuditGroup),
    Export(Export),
    Cluster(ClusterGroup),
    Worker(WorkerGroup),
    Provider(ProviderGroup),
    Hardware(HardwareGroup),
    Image(ImageGroup),
    Service(ServiceGroup),
    Template(TemplateGroup),
    Tenant(TenantGroup),
    Server(Box<Server>),
    Completion(Completion),
    /// List names on a server for shell completion
    #[command(hide = true)]
    CompleteNames(CompleteNames),
}

/// Create a new project
///
/// The project has a small model that deploys files below /tmp. The directory is created if it does
/// not exist; it must be empty.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  orrery new my-project && cd my-project && orrery plan")]
pub(crate) struct New {
    /// Directory of the new project
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// Compile a project
///
/// Output of the model goes to standard output; errors, warnings and a summary go to standard
/// error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery compile                            the current project
  orrery compile --project examples/fabric  another project
  orrery compile --main test.cf             with another main file
  orrery compile --resources                list the resources of the model
  orrery compile --json | jq .model.variables
  orrery compile request --follow           compile on a server

Exit codes: 0 done, 1 error.")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Compile {
    #[command(subcommand)]
    pub(crate) on_server: Option<CompileAction>,
    #[command(flatten)]
    pub(crate) project: ProjectOptions,
    /// List the resources of the model; the JSON report includes their attributes
    #[arg(long)]
    pub(crate) resources: bool,
    /// Run an exporter of a module after everything else; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) exporter: Vec<String>,
    /// Run module code in the process connected to standard input, and report the result to it
    #[arg(long, hide = true)]
    pub(crate) serve_host: bool,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ProjectOptions {
    /// Project directory [default: the nearest parent with a project.yml]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    /// Main file, relative to the project directory
    #[arg(long, value_name = "FILE", default_value = MAIN_FILE, value_hint = ValueHint::FilePath)]
    pub(crate) main: String,
    /// Do not import std automatically
    #[arg(long)]
    pub(crate) no_std: bool,
    /// Virtualenv with installed modules
    #[arg(long, value_name = "DIR", env = "VIRTUAL_ENV", hide_env_values = true, value_hint = ValueHint::DirPath)]
    pub(crate) python_env: Option<PathBuf>,
}

impl ProjectOptions {
    /// Finds the project.
    ///
    /// # Errors
    /// A diagnostic if there is none.
    pub(crate) fn find(&self) -> Result<FoundProject, Box<CompileError>> {
        FoundProject::find(self.project.as_deref(), &self.main)
    }

    /// Request that compiles the project without facts and without an export.
    pub(crate) fn request(&self, limits: &LimitOptions) -> ProjectRequest {
        ProjectRequest {
            without_std: self.no_std,
            python_environment: self.python_env.clone(),
            now: clock::unix_seconds(),
            limits: limits.compile_limits(),
            ..ProjectRequest::default()
        }
    }

    /// Options of the compiler for commands that only read the project.
    ///
    /// # Errors
    /// A diagnostic if there is no project.
    pub(crate) fn compiler_options(&self) -> Result<Options, Box<CompileError>> {
        let mut options = self.find()?.options();
        options.implicit_std = !self.no_std;
        options.python_environment.clone_from(&self.python_env);
        options.now = clock::unix_seconds();
        Ok(options)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    /// Write only a JSON report to standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write the JSON report to a file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
}

/// Show the documentation of a type, with an example
///
/// Attributes with types and defaults, relations, and an example, from the declarations of modules:
/// the built-in ones and those that the current project imports.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery docs                  all resources and modules
  orrery docs std              a module
  orrery docs std::File        a type
  orrery docs std::File --json

Exit codes: 0 done, 1 no such name.")]
pub(crate) struct Docs {
    /// A type or a module [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) project: ProjectOptions,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Check the syntax of a file
///
/// Reports all syntax errors of the file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery parse main.cf
  git show HEAD:main.cf | orrery parse -

Exit codes: 0 no syntax errors, 1 error.")]
pub(crate) struct Parse {
    /// File, or - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
}

/// Format models
///
/// Without paths, formats all .cf files of the project, except virtualenvs, checkouts of other
/// repositories, and hidden directories. Files with syntax errors are unchanged.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery fmt                     the whole project
  orrery fmt main.cf libs/shop   a file and a directory
  orrery fmt --check             for continuous integration
  orrery fmt - < main.cf         from standard input to standard output

Exit codes: 0 done, 1 error; with --check or --diff, 1 also if something would change.")]
pub(crate) struct Fmt {
    /// Files and directories, or - for standard input
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// Change nothing; list the files that would change
    #[arg(long)]
    pub(crate) check: bool,
    /// Change nothing; show the diff
    #[arg(long)]
    pub(crate) diff: bool,
}

/// Explain an error or warning
///
/// Every error has an id, shown in brackets: `error[not-complete]`. Its page describes the meaning
/// and the cause, with an example and a remedy.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery explain not-complete
  orrery explain                 list all ids")]
pub(crate) struct Explain {
    /// Id of an error or warning; without it, all ids are listed
    pub(crate) id: Option<String>,
}

/// Write a shell completion script
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(orrery completion bash)
  orrery completion fish > ~/.config/fish/completions/orrery.fish")]
pub(crate) struct Completion {
    /// Shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct CompleteNames {
    /// Kind of the names
    #[arg(value_enum)]
    pub(crate) kind: NamesKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NamesKind {
    Clusters,
    Templates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}
