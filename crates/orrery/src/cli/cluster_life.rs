//! Arguments of the commands of `orrery cluster` about clusters of a server.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use orrery_cluster::document::LeaseTime;
use orrery_cluster::solver::MAX_SIZE;

use super::cluster_control::{
    AbortCluster, ClusterLogs, ClusterShell, ListClusters, NamedCluster, RenewCluster, ShowCluster,
    WaitForCluster, WatchCluster,
};
use super::common::ServerArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterLife {
    Create(CreateCluster),
    List(ListClusters),
    Show(ShowCluster),
    Plan(PlanCluster),
    Watch(WatchCluster),
    /// Add nodes to a cluster
    ///
    /// Existing nodes keep their machines and services.
    #[command(after_help = "\
Example:
  orrery cluster grow shop 8

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
    Grow(ResizeCluster),
    /// Remove nodes from a cluster
    ///
    /// Those with few services go first, and the newest among them. Remaining nodes keep their
    /// machines and services. Numbers of removed nodes are not used again.
    #[command(after_help = "\
Example:
  orrery cluster shrink shop 5 --restart rolling

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
    Shrink(ResizeCluster),
    /// Add services to a cluster
    ///
    /// They are placed on existing nodes.
    #[command(after_help = "\
Example:
  orrery cluster add-service shop redis

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
    AddService(ChangeServices),
    /// Remove services from a cluster
    ///
    /// A service that another one requires is removed only together with it.
    #[command(after_help = "\
Example:
  orrery cluster remove-service shop redis

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
    RemoveService(ChangeServices),
    /// Adopt the newest revisions of the template and of the services
    ///
    /// Refused if the nodes do not satisfy the new rules.
    #[command(after_help = "\
Example:
  orrery cluster update shop --restart rolling

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
    Update(UpdateCluster),
    Reconfigure(ReconfigureCluster),
    /// Start services of a cluster, and the services that they need
    #[command(after_help = "\
Examples:
  orrery cluster start shop            all services
  orrery cluster start shop app

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
    Start(OperateServices),
    /// Stop services of a cluster, and the services that need them
    #[command(after_help = "\
Examples:
  orrery cluster stop shop             all services
  orrery cluster stop shop postgresql

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
    Stop(OperateServices),
    Restart(RestartServices),
    Replace(ReplaceNode),
    Renew(RenewCluster),
    Pause(NamedCluster),
    /// Resume a paused operation, or a failed creation or deletion
    Resume(WaitForCluster),
    Abort(AbortCluster),
    /// Return to the state before the last operation
    #[command(after_help = "\
Example:
  orrery cluster revert shop

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
    Revert(UpdateCluster),
    /// Delete a cluster with all its machines
    #[command(after_help = "\
Example:
  orrery cluster delete shop

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
    Delete(UpdateCluster),
    Ssh(ClusterShell),
    Logs(ClusterLogs),
}

/// Name of a cluster.
#[derive(Debug, Args)]
pub(crate) struct ClusterName {
    /// Cluster: a name, project/name, or an id
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: String,
    #[command(flatten)]
    pub(crate) args: ServerArgs,
}

/// Options of commands that change a cluster.
#[derive(Debug, Args)]
pub(crate) struct Change {
    /// Skip confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Only show the plan
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Return at once, without waiting for the operation
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// Create a cluster
///
/// Solves the template, shows the layout and the plan, and asks for confirmation. Then it shows
/// the progress; the server continues if this command is interrupted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster create shop --template webstack --size 4
  orrery cluster create shop --template webstack --size 4 --project web --lease 7d
  orrery cluster create shop --template webstack --size 4 --config shop.yml --yes
  orrery cluster create shop --template webstack --size 4 --dry-run    only show the plan

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
pub(crate) struct CreateCluster {
    /// Name of the cluster: lower-case letters, digits and hyphens
    pub(crate) name: String,
    /// Name of the template
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) template: String,
    /// Number of nodes
    #[arg(long, value_name = "NODES")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)))]
    pub(crate) size: u32,
    /// Project that the cluster belongs to [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Description
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) description: String,
    /// Provider of the machines [default: that of the template]
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// The only hardware type of the cluster
    #[arg(long, value_name = "NAME")]
    pub(crate) hardware: Option<String>,
    /// The only image type of the cluster
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// Services, comma-separated [default: those of the template]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) services: Option<Vec<String>>,
    /// File with the configuration, YAML or JSON [default: that of the template]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Domain of the host names [default: that of the template]
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) dns_suffix: Option<String>,
    /// Duration of the lease, such as 90m, 12h or 7d; 0 for no end [default: that of the template]
    #[arg(long, value_name = "TIME", value_parser = LeaseTime::parse)]
    pub(crate) lease: Option<LeaseTime>,
    #[command(flatten)]
    pub(crate) change: Change,
    #[command(flatten)]
    pub(crate) args: ServerArgs,
}

/// Show the plan of a change without making it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster plan shop --size 8
  orrery cluster plan shop --config shop.yml --restart rolling
  orrery cluster plan shop --update      newest revisions of template and services
  orrery cluster plan shop --replace shop-1001
  orrery cluster plan shop --delete

Exit codes: 0 nothing would change, 1 error, 2 changes are pending.")]
pub(crate) struct PlanCluster {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    #[command(flatten)]
    pub(crate) what: PlannedOperation,
    #[command(flatten)]
    pub(crate) restart: RestartOptions,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PlannedOperation {
    /// Number of nodes
    #[arg(long, value_name = "NODES")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)))]
    pub(crate) size: Option<u32>,
    /// File with the configuration, YAML or JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Newest revisions of the template and of the services
    #[arg(long)]
    pub(crate) update: bool,
    /// Node whose machine is replaced
    #[arg(long, value_name = "NODE")]
    pub(crate) replace: Option<String>,
    /// Intent before the last operation
    #[arg(long)]
    pub(crate) revert: bool,
    /// Deletion of the cluster
    #[arg(long)]
    pub(crate) delete: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResizeCluster {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    /// Number of nodes afterwards
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)))]
    pub(crate) size: u32,
    #[command(flatten)]
    pub(crate) restart: RestartOptions,
    #[command(flatten)]
    pub(crate) change: Change,
}

#[derive(Debug, Args)]
pub(crate) struct ChangeServices {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    /// Names of services
    #[arg(required = true, value_name = "SERVICE")]
    pub(crate) services: Vec<String>,
    #[command(flatten)]
    pub(crate) restart: RestartOptions,
    #[command(flatten)]
    pub(crate) change: Change,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateCluster {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    #[command(flatten)]
    pub(crate) restart: RestartOptions,
    #[command(flatten)]
    pub(crate) change: Change,
}

/// Replace the configuration of a cluster
///
/// The file replaces the configuration as a whole. Services whose configuration changes are
/// restarted together with their dependents, unless --restart says otherwise.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster reconfigure shop --config shop.yml
  orrery cluster reconfigure shop --config shop.yml --restart rolling --max-unavailable 2
  orrery cluster reconfigure shop --config shop.yml --restart none

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
pub(crate) struct ReconfigureCluster {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    /// File with the configuration, YAML or JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) restart: RestartOptions,
    #[command(flatten)]
    pub(crate) change: Change,
}

#[derive(Debug, Args)]
pub(crate) struct OperateServices {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    /// Names of services [default: all]
    #[arg(value_name = "SERVICE")]
    pub(crate) services: Vec<String>,
    #[command(flatten)]
    pub(crate) change: Change,
}

/// Restart services of a cluster, and the services that need them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery cluster restart shop
  orrery cluster restart shop app --restart rolling

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
pub(crate) struct RestartServices {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    /// Names of services [default: all]
    #[arg(value_name = "SERVICE")]
    pub(crate) services: Vec<String>,
    #[command(flatten)]
    pub(crate) restart: RestartOptions,
    #[command(flatten)]
    pub(crate) change: Change,
}

/// Options about restarts.
#[derive(Debug, Args)]
pub(crate) struct RestartOptions {
    /// Restarts of services whose configuration changes: none, together or rolling
    #[arg(long, value_name = "HOW", value_enum, hide_possible_values = true)]
    pub(crate) restart: Option<RestartChoice>,
    /// Instances of a service that a rolling restart may stop at the same time [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_unavailable: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RestartChoice {
    None,
    Together,
    Rolling,
}

/// Replace the machine of a node
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  orrery cluster replace shop shop-1001

Exit codes: 0 done, 1 error, 2 failed, or changes are pending (with --dry-run).")]
pub(crate) struct ReplaceNode {
    #[command(flatten)]
    pub(crate) of: ClusterName,
    /// Name of the node
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) restart: RestartOptions,
    #[command(flatten)]
    pub(crate) change: Change,
}

impl ClusterLife {
    pub(crate) fn json(&self) -> bool {
        match self {
            ClusterLife::Create(options) => options.args.json,
            ClusterLife::List(options) => options.args.json,
            ClusterLife::Show(ShowCluster { of })
            | ClusterLife::Plan(PlanCluster { of, .. })
            | ClusterLife::Watch(WatchCluster { of, .. })
            | ClusterLife::Grow(ResizeCluster { of, .. })
            | ClusterLife::Shrink(ResizeCluster { of, .. })
            | ClusterLife::AddService(ChangeServices { of, .. })
            | ClusterLife::RemoveService(ChangeServices { of, .. })
            | ClusterLife::Update(UpdateCluster { of, .. })
            | ClusterLife::Revert(UpdateCluster { of, .. })
            | ClusterLife::Delete(UpdateCluster { of, .. })
            | ClusterLife::Reconfigure(ReconfigureCluster { of, .. })
            | ClusterLife::Start(OperateServices { of, .. })
            | ClusterLife::Stop(OperateServices { of, .. })
            | ClusterLife::Restart(RestartServices { of, .. })
            | ClusterLife::Replace(ReplaceNode { of, .. })
            | ClusterLife::Renew(RenewCluster { of, .. })
            | ClusterLife::Pause(NamedCluster { of })
            | ClusterLife::Resume(WaitForCluster { of, .. })
            | ClusterLife::Abort(AbortCluster { of, .. })
            | ClusterLife::Ssh(ClusterShell { of, .. })
            | ClusterLife::Logs(ClusterLogs { of, .. }) => of.args.json,
        }
    }
}
