//! What the command line understands, and the help that teaches it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use crate::cli_cluster::ClusterGroup;
use crate::cli_deploy::{Deploy, Destroy, LimitOptions, Plan, Repair, Watch};
use crate::cli_documents::{
    HardwareGroup, ImageGroup, ProviderGroup, ServiceGroup, TemplateGroup, TenantGroup,
};
use crate::cli_export::Export;
use crate::cli_inspect;
use crate::cli_modules::{Modules, Sdk};
use crate::cli_server::Server;
use crate::cli_session::{ContextGroup, Login, Logout};
use crate::cli_things::{AgentGroup, CompileAction, EnvironmentGroup, ProjectGroup, VersionGroup};
use crate::cli_values::{
    AuditGroup, FactGroup, NotificationGroup, ParamGroup, SecretGroup, TokenGroup, UserGroup,
};
use crate::projects::MAIN_FILE;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  an error: in the model, in a file, or in what was asked for
  2  changes are pending, or some resources failed (for commands that deploy)";

const START: &str = "\
Start here:
  orrery new my-project       create a small project to play with
  cd my-project
  orrery plan                 show what deploying it would change
  orrery deploy               deploy it
  orrery docs std::File       show what can be said about a file

With a server:
  orrery login URL            log in; then deploy, status, why and log work there, too";

const GLOBAL: &str = "Global options";

/// Intent-based orchestration: write a model of what should exist, and make it real.
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
    /// When to use colours: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", value_enum)]
    #[arg(hide_possible_values = true, help_heading = GLOBAL)]
    pub(crate) color: Color,
    /// Tell on standard error what happens; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = GLOBAL)]
    pub(crate) verbose: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
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
    Status(cli_inspect::ShowStatus),
    Resources(cli_inspect::Resources),
    Log(cli_inspect::Log),
    Why(cli_inspect::Why),
    Settle(cli_inspect::Settle),
    Versions(cli_inspect::Versions),
    Diff(cli_inspect::Diff),
    Facts(cli_inspect::Facts),
    /// Carry out a job of a server's compile service
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
    Provider(ProviderGroup),
    Hardware(HardwareGroup),
    Image(ImageGroup),
    Service(ServiceGroup),
    Template(TemplateGroup),
    Tenant(TenantGroup),
    Server(Box<Server>),
    Completion(Completion),
}

/// Create a new project
///
/// The project has a small model that deploys files below /tmp. The directory is created if it does not
/// exist; it must be empty.
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
/// What the model prints goes to standard output; errors, warnings and a summary go to standard
/// error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery compile                            the project around the working directory
  orrery compile --project examples/fabric  another one
  orrery compile --main test.cf             start from another file of the project
  orrery compile --resources                list what a deploy would manage
  orrery compile --json | jq .model.variables
  orrery compile request --follow           let a server compile

Exit codes: 0 done, 1 error.")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Compile {
    #[command(subcommand)]
    pub(crate) on_server: Option<CompileAction>,
    #[command(flatten)]
    pub(crate) project: ProjectOptions,
    /// List the resources that the model describes; the JSON report has them with their attributes
    #[arg(long)]
    pub(crate) resources: bool,
    /// Run an exporter that a module offers, after everything else; can be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) exporter: Vec<String>,
    /// Run the code of modules in the process at the other end of standard input, and answer it afterwards
    #[arg(long, hide = true)]
    pub(crate) serve_host: bool,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ProjectOptions {
    /// The project's directory [default: the nearest with a project.yml, from here upwards]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    /// The file to start from, as seen from the project's directory
    #[arg(long, value_name = "FILE", default_value = MAIN_FILE, value_hint = ValueHint::FilePath)]
    pub(crate) main: String,
    /// Do not import std by itself
    #[arg(long)]
    pub(crate) no_std: bool,
    /// A Python environment in which modules are installed
    #[arg(long, value_name = "DIR", env = "VIRTUAL_ENV", hide_env_values = true, value_hint = ValueHint::DirPath)]
    pub(crate) python_env: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    /// Write a JSON report to standard output, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the JSON report to a file as well
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
}

/// Show what can be said about a type, with an example
///
/// Attributes with their types and defaults, relations and an example, from the declarations of the modules:
/// those inside Orrery, and those that the project around the working directory imports.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery docs                  all resources and modules
  orrery docs std              a module
  orrery docs std::File        a type
  orrery docs std::File --json

Exit codes: 0 done, 1 there is no such name.")]
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
/// All syntax errors of the file are reported.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery parse main.cf
  git show HEAD:main.cf | orrery parse -

Exit codes: 0 the file can be parsed, 1 it can not.")]
pub(crate) struct Parse {
    /// The file, or - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
}

/// Bring models into the one canonical style
///
/// Without paths, all models of the project are formatted: every .cf file below it, except for what
/// belongs to somebody else (Python environments, checkouts of other repositories, hidden
/// directories). A file with a syntax error is left alone.
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
    /// Change nothing, but name the files that would change
    #[arg(long)]
    pub(crate) check: bool,
    /// Change nothing, but show what would change
    #[arg(long)]
    pub(crate) diff: bool,
}

/// Show the page of an error or warning
///
/// Every error has an id, which stands in brackets at its beginning: `error[not-complete]`. Its page
/// says what it means, why it happens, and shows an example and a remedy.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery explain not-complete
  orrery explain                 list all ids")]
pub(crate) struct Explain {
    /// The id of an error or warning; without one, all are listed
    pub(crate) id: Option<String>,
}

/// Write a script that completes commands in a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(orrery completion bash)
  orrery completion fish > ~/.config/fish/completions/orrery.fish")]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}
