//! The options of `orrery cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Check cluster templates, and preview clusters
///
/// Documents are JSON or YAML files in a directory: clustertemplates/, partialtemplates/, services/, hardwaretypes/,
/// imagetypes/, providers/ and tenants/. No server is needed, and no machine is touched.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster check documents
  orrery cluster solve webstack --size 7 --documents documents")]
pub(crate) struct ClusterGroup {
    #[command(subcommand)]
    pub(crate) action: ClusterAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterAction {
    Check(CheckDocuments),
    Solve(SolveTemplate),
}

impl ClusterGroup {
    pub(crate) fn json(&self) -> bool {
        match &self.action {
            ClusterAction::Check(options) => options.json,
            ClusterAction::Solve(options) => options.json,
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
    #[arg(long, value_name = "NODES")]
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
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster solve webstack --size 7
  orrery cluster solve webstack --size 7 --set hardwaretype=large
  orrery cluster solve webstack --size 7 --set services=base,app,postgresql
  orrery cluster solve webstack --size 7 --json | jq .layout

Exit codes: 0 there is a layout, 1 there is none, or an error.")]
pub(crate) struct SolveTemplate {
    /// Name of the template
    #[arg(value_name = "TEMPLATE")]
    pub(crate) template: String,
    /// Number of nodes
    #[arg(long, value_name = "NODES")]
    pub(crate) size: u32,
    /// Replace a default of the template: provider, hardwaretype, imagetype or services (separated by commas)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Directory with the documents
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) documents: PathBuf,
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
