//! The options of `orrery cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use orrery_cluster::solver::MAX_SIZE;

use crate::remote::ServerChoice;

/// Check cluster templates, and preview clusters
///
/// Documents are JSON or YAML files in a directory: clustertemplates/, partialtemplates/, services/, hardwaretypes/,
/// imagetypes/, providers/ and tenants/. A server can keep them, too. No machine is touched.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster check documents
  orrery cluster solve webstack --size 7 --documents documents
  orrery cluster import documents
  orrery cluster solve webstack --size 7")]
pub(crate) struct ClusterGroup {
    #[command(subcommand)]
    pub(crate) action: ClusterAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterAction {
    Check(CheckDocuments),
    Solve(SolveTemplate),
    Import(ImportDocuments),
}

impl ClusterGroup {
    pub(crate) fn json(&self) -> bool {
        match &self.action {
            ClusterAction::Check(options) => options.json,
            ClusterAction::Solve(options) => options.json,
            ClusterAction::Import(options) => options.json,
        }
    }
}

/// Check the documents of a directory
///
/// Reports every problem with its place, and solves each template for its smallest size.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster check .
  orrery cluster check documents --size 20    each template has to have a layout of that size
  orrery cluster check documents --json | jq '.templates[].smallest'

Exit codes: 0 all is well, 1 there are problems, or a template without a layout.")]
pub(crate) struct CheckDocuments {
    /// Directory with the documents
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Solve each template for this number of nodes as well
    #[arg(long, value_name = "NODES", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)))]
    pub(crate) size: Option<u32>,
    /// Give up on a template after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) timeout: u64,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the cluster that a template gives for a size
///
/// Shows the layout, how the services depend on each other, what it costs, and the plan that would create it. If
/// there is no layout, shows the rules that contradict each other, and what to change.
///
/// The documents are those of --documents, or of the working directory if it has some. Otherwise, the server solves the
/// template with the documents that it keeps.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster solve webstack --size 7 --documents examples/webstack
  orrery cluster solve webstack --size 7                with the documents of the server
  orrery cluster solve webstack --size 7 --project shop with those that the project sees
  orrery cluster solve webstack --size 7 --set hardwaretype=large
  orrery cluster solve webstack --size 7 --set services=base,app,postgresql
  orrery cluster solve webstack --size 7 --json | jq .layout
  orrery cluster solve webstack --size 7 --json > seven.json
  orrery cluster solve webstack --size 9 --from seven.json    two nodes more

Exit codes: 0 there is a layout, 1 there is none, or an error.")]
pub(crate) struct SolveTemplate {
    /// Name of the template
    #[arg(value_name = "TEMPLATE")]
    pub(crate) template: String,
    /// Number of nodes
    #[arg(long, value_name = "NODES", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)))]
    pub(crate) size: u32,
    /// What this command wrote with --json for a cluster that exists: its nodes stay what they are
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) from: Option<PathBuf>,
    /// Replace a default of the template: provider, hardwaretype, imagetype or services (separated by commas)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Directory with the documents [default: the working directory, if it has some]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(conflicts_with_all = ["server", "context", "project"])]
    pub(crate) documents: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    /// A project of the server: its documents come before those of the installation
    #[arg(long, value_name = "NAME", conflicts_with = "local")]
    pub(crate) project: Option<String>,
    /// Use the documents of the working directory, whatever server is chosen
    #[arg(long, conflicts_with_all = ["server", "context"])]
    pub(crate) local: bool,
    /// Answer as the reference does: services without a minimum may be left out
    #[arg(long)]
    pub(crate) compatible: bool,
    /// Give up after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) timeout: u64,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Store the documents of a directory on a server
///
/// Shows what would change and asks first. All documents are stored, or none of them: they have to fit together, and with
/// those that are stored already. Documents that the directory does not have stay as they are.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster import examples/webstack
  orrery cluster import examples/webstack --dry-run    only show what would change
  orrery cluster import examples/webstack --project shop --yes

Exit codes: 0 done, 1 error, 2 changes are pending (with --dry-run).")]
pub(crate) struct ImportDocuments {
    /// Directory with the documents
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    /// The project that the documents are for [default: all projects]
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
    /// Write the API's JSON to standard output, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a change of documents is made.
#[derive(Debug, Args)]
pub(crate) struct ChangeOptions {
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Only show what would change
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}
