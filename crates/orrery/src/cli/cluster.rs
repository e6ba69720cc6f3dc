//! Arguments of `orrery cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use orrery_cluster::solver::MAX_SIZE;

use super::cluster_life::ClusterLife;
use crate::remote::ServerChoice;

/// Manage clusters, and check and solve their templates
///
/// Documents are JSON or YAML files in a directory: clustertemplates/, partialtemplates/,
/// services/, hardwaretypes/, imagetypes/, providers/ and tenants/. A server can store them, too.
/// A server creates clusters from them, and changes, monitors and deletes these.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster check documents
  orrery cluster solve webstack --size 7 --documents documents
  orrery cluster import documents
  orrery cluster solve webstack --size 7
  orrery cluster create shop --template webstack --size 7
  orrery cluster grow shop 9
  orrery cluster show shop")]
pub(crate) struct ClusterGroup {
    #[command(subcommand)]
    pub(crate) action: ClusterAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterAction {
    Check(CheckDocuments),
    Solve(SolveTemplate),
    Import(ImportDocuments),
    Upload(UploadResources),
    #[command(flatten)]
    Life(ClusterLife),
}

impl ClusterGroup {
    pub(crate) fn json(&self) -> bool {
        match &self.action {
            ClusterAction::Check(options) => options.json,
            ClusterAction::Solve(options) => options.json,
            ClusterAction::Import(options) => options.json,
            ClusterAction::Upload(options) => options.json,
            ClusterAction::Life(action) => action.json(),
        }
    }
}

/// Check the documents of a directory
///
/// Reports every problem with its location and solves each template for its smallest size.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster check .
  orrery cluster check documents --size 20    each template must have a layout of that size
  orrery cluster check documents --json | jq '.templates[].smallest'

Exit codes: 0 no problems, 1 problems, or a template without a layout.")]
pub(crate) struct CheckDocuments {
    /// Directory with the documents
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Also solve each template for this number of nodes
    #[arg(long, value_name = "NODES", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)))]
    pub(crate) size: Option<u32>,
    /// Time limit per template
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) timeout: u64,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Solve a template for a number of nodes
///
/// Shows the layout, the dependencies between services, the cost, and the plan that would create
/// it. If there is no layout, shows the conflicting rules and what to change.
///
/// The documents come from --documents, or from the working directory if it has any. Otherwise the
/// server solves the template with its stored documents.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster solve webstack --size 7 --documents examples/webstack
  orrery cluster solve webstack --size 7                with the documents of the server
  orrery cluster solve webstack --size 7 --project shop with the documents of a project
  orrery cluster solve webstack --size 7 --set hardwaretype=large
  orrery cluster solve webstack --size 7 --set services=base,app,postgresql
  orrery cluster solve webstack --size 7 --json | jq .layout
  orrery cluster solve webstack --size 7 --json > seven.json
  orrery cluster solve webstack --size 9 --from seven.json    two more nodes

Exit codes: 0 layout found, 1 no layout, or an error.")]
pub(crate) struct SolveTemplate {
    /// Name of the template
    #[arg(value_name = "TEMPLATE")]
    pub(crate) template: String,
    /// Number of nodes
    #[arg(long, value_name = "NODES", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)))]
    pub(crate) size: u32,
    /// JSON output of this command for an existing cluster; its nodes are kept
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) from: Option<PathBuf>,
    /// Override a default of the template: provider, hardwaretype, imagetype or services
    /// (comma-separated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Directory with the documents [default: the working directory, if it has any]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(conflicts_with_all = ["server", "context", "project"])]
    pub(crate) documents: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    /// Project on the server; its documents take precedence over those of the installation
    #[arg(long, value_name = "NAME", conflicts_with = "local")]
    pub(crate) project: Option<String>,
    /// Use the documents of the working directory even if a server is selected
    #[arg(long, conflicts_with_all = ["server", "context"])]
    pub(crate) local: bool,
    /// Behave as Coopr does: services without a minimum may be omitted
    #[arg(long)]
    pub(crate) compatible: bool,
    /// Time limit
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) timeout: u64,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Store the documents of a directory on a server
///
/// Shows the changes and asks for confirmation. Stores all documents or none: they must be
/// consistent with each other and with those already stored. Documents that the directory does not
/// contain are unchanged.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster import examples/webstack
  orrery cluster import examples/webstack --dry-run    only show the changes
  orrery cluster import examples/webstack --project shop --yes

Exit codes: 0 done, 1 error, 2 changes are pending (with --dry-run).")]
pub(crate) struct ImportDocuments {
    /// Directory with the documents
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    /// Project that the documents belong to [default: all projects]
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
    /// Write only the API's JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Upload scripts and other files that plug-ins use
///
/// The files are below DIR as PLUGIN/TYPE/NAME, such as shell/scripts/app.sh. Each changed file is a
/// new version, which new operations of the project's clusters use. Existing clusters adopt it with
/// `orrery cluster update`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster upload examples/webstack/plugin-resources --project shop

Exit codes: 0 done, 1 error.")]
pub(crate) struct UploadResources {
    /// Directory with the files
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    /// Project that uses the files [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Write only the API's JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of commands that change documents.
#[derive(Debug, Args)]
pub(crate) struct ChangeOptions {
    /// Skip confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Only show the changes
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}
