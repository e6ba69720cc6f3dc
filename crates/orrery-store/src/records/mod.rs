//! The nouns of the store: versions, environments, requests, compiles, accounts and others.
//!
//! Each module has the records of one subject and the transactions on them, written once for both
//! databases in the dialect of `crate::sql`, as methods of one group per noun: [`Accounts`],
//! [`Versions`] and others. [`crate::Store`] gives access to them.

mod accounts;
mod actions;
mod agent_connections;
mod agents;
mod audit;
mod changes;
mod cluster_changes;
mod cluster_documents;
mod cluster_operations;
mod clusters;
mod commit_statuses;
mod compile_merge;
mod compile_runs;
mod compiles;
mod contents;
mod discovered;
mod dry_runs;
mod effects;
mod engine;
mod engine_overview;
mod environment_deletion;
mod environments;
mod facts;
mod familiar_networks;
mod file_contents;
mod followed_branches;
mod gateways;
mod idempotency;
mod invitations;
mod leases;
mod meta;
mod metrics;
mod notifications;
mod parameters;
pub(crate) mod pending_release;
mod plugin_resources;
mod projects;
mod release;
mod remote_agents;
mod requests;
mod resource_counts;
mod resource_details;
mod resource_facets;
mod resource_graph;
mod resource_line;
mod resource_list;
mod resource_order;
mod resource_query;
mod resources;
mod results;
mod retention;
mod run_list;
mod run_times;
mod secrets;
mod settings;
mod tokens;
mod unknowns;
mod unmanaged;
mod version_read;
mod versions;

use crate::backend::Backend;
use crate::sql::{Sql, Work};
use crate::{Lease, Result};

pub use accounts::{AccountRecord, Identity, NewAccount, RoleRecord, RoleScope, SessionRecord};
pub use actions::{ChangeCounts, RunSelection};
pub use agent_connections::AgentConnectionRecord;
pub(crate) use agent_connections::encode_latencies;
pub use agents::AgentRecord;
pub use audit::{AuditFilter, AuditRecord, AuditVerification, ChainedAuditRecord};
pub(crate) use changes::{
    CHANGES_MAX, TRIM_INTERVAL, record_change, resources_subject, versions_subject,
};
pub use changes::{ChangeRecord, ChangeSeq};
pub(crate) use cluster_changes::prepare;
pub use cluster_documents::{
    ClusterDocumentRecord, DocumentFilter, DocumentName, DocumentSnapshot, DocumentWrite,
};
pub use cluster_operations::ClusterOperationRecord;
pub use clusters::{
    ClusterFilter, ClusterIntentRecord, ClusterKey, ClusterRecord, ClusterRecordChange,
    ClusterUsage, LeaseEnd,
};
pub use commit_statuses::{CommitStatusRecord, NewCommitStatus};
pub use compile_merge::{CompileRequest, merge_compiles};
pub use compile_runs::{
    ClaimedCompile, CompileFailure, CompileQueueState, CompileRun, FailureNotice, OutputChunk,
    StageRecord,
};
pub(crate) use compiles::enqueue_automatic_compile;
pub use compiles::{CompileFilter, CompileRecord, NewCompileRecord};
pub use contents::{
    CollectionSummary, ContentHolder, ContentView, UnusedContents, mentioned_hashes,
};
pub use discovered::{DiscoveredRecord, NewDiscovered};
pub use dry_runs::{DryRunRecord, DryRunResult};
pub use effects::{BegunEffect, EffectResolution, EffectVerdict};
pub use engine_overview::{EngineOverview, LeaseRecord};
#[cfg(any(test, feature = "test-support"))]
pub(crate) use environments::create_environment;
pub use environments::{EnvironmentChange, EnvironmentRecord, NewEnvironmentRecord};
pub(crate) use environments::{bind_project, lock_environment};
pub use followed_branches::{BranchFailure, BranchState, NewFollowedBranch};
pub use gateways::{GatewayHeartbeat, GatewayRecord};
pub(crate) use idempotency::INTERRUPT_ALL_SQL;
pub use idempotency::{KeyState, StoredResponse};
pub use invitations::{JoinOutcome, JoiningAgent, NewInvitationRecord, OpenInvitation};
pub(crate) use leases::lease_holder;
pub use metrics::MetricRecord;
pub use notifications::{NewNotification, NotificationFilter, NotificationRecord};
#[cfg(test)]
pub(crate) use parameters::put_then;
pub use parameters::{
    NewParameter, OnParameterChanged, ParameterFilter, ParameterWrite, StaleFacts,
};
pub use pending_release::{ReleaseState, RemovalStage};
pub use plugin_resources::{PluginResourceName, PluginResourceRecord};
pub use projects::ProjectRecord;
pub(crate) use release::reserve_version;
pub use remote_agents::{
    AgentSession, NewAgentSession, OpenedSession, RemoteAgentRecord, ServedName, SessionChange,
};
pub use requests::RequestClaim;
pub(crate) use requests::insert_request;
pub use resource_counts::StatusCount;
pub use resource_details::ResourceDetailsRecord;
pub use resource_facets::FacetCounts;
pub use resource_graph::GraphResource;
pub use resource_line::ResourceLine;
pub use resource_list::ResourceLines;
pub use resource_order::IdRange;
pub use resource_query::{ResourceQuery, StateFilter};
pub use resources::HistoryEntry;
pub use run_list::{RunPage, RunQuery};
pub use run_times::RunTimes;
pub use secrets::SecretRecord;
pub use settings::SettingRecord;
pub use tokens::TokenRecord;
pub(crate) use unknowns::put_unknowns;
pub use unmanaged::RemovalScope;
pub use versions::{NewestRevision, VersionEntry};

/// Access of a group of methods to the database.
#[derive(Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) backend: &'a dyn Backend,
    /// The lease under which all changes are made; `None` for changes that need no lease.
    pub(crate) lease: Option<Lease>,
}

/// Transactions of a group of methods.
pub(crate) trait Transactions {
    fn access(&self) -> Access<'_>;

    fn backend(&self) -> &dyn Backend {
        self.access().backend
    }

    /// Runs `work` on one snapshot of the database.
    fn query<T>(&self, work: impl FnMut(&mut dyn Sql) -> Result<T>) -> Result<T> {
        collect(work, |work| self.backend().read_transaction(work))
    }

    /// As `query`, for work that is not repeated: it has several statements, or a visitor.
    fn scan<T>(&self, work: impl FnMut(&mut dyn Sql) -> Result<T>) -> Result<T> {
        collect(work, |work| self.backend().scan_transaction(work))
    }

    /// Runs `work` in one atomic transaction.
    fn transact<T>(&self, mut work: impl FnMut(&mut dyn Sql) -> Result<T>) -> Result<T> {
        let Access { backend, lease } = self.access();
        let work = |sql: &mut dyn Sql| {
            if let Some(lease) = &lease {
                sql.check_lease(lease)?;
            }
            work(sql)
        };
        collect(work, |work| backend.write_transaction(work))
    }

    /// As `transact`, for work that first locks a row and then sees all that was committed before.
    ///
    /// The lease is checked last: all such transactions lock the environment before the lease, so
    /// that no two of them wait for each other.
    fn transact_locked<T>(&self, mut work: impl FnMut(&mut dyn Sql) -> Result<T>) -> Result<T> {
        let Access { backend, lease } = self.access();
        let work = |sql: &mut dyn Sql| {
            let answer = work(sql)?;
            if let Some(lease) = &lease {
                sql.check_lease(lease)?;
            }
            Ok(answer)
        };
        collect(work, |work| backend.locked_transaction(work))
    }

    /// As `transact_locked`, for work that an idempotent request may repeat.
    fn transact_unmarked<T>(&self, work: impl FnMut(&mut dyn Sql) -> Result<T>) -> Result<T> {
        collect(work, |work| self.backend().unmarked_transaction(work))
    }
}

/// Runs a transaction, and returns the result of its last run.
fn collect<T>(
    mut work: impl FnMut(&mut dyn Sql) -> Result<T>,
    run: impl FnOnce(&mut Work<'_>) -> Result<()>,
) -> Result<T> {
    let mut answer = None;
    run(&mut |sql| {
        answer = Some(work(sql)?);
        Ok(())
    })?;
    answer.ok_or_else(no_result)
}

/// Declares the groups of methods of a store, one per noun.
macro_rules! nouns {
    ($($(#[$doc:meta])* $accessor:ident: $noun:ident;)+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub struct $noun<'a>(pub(crate) Access<'a>);

            impl Transactions for $noun<'_> {
                fn access(&self) -> Access<'_> {
                    self.0
                }
            }

            impl std::fmt::Debug for $noun<'_> {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str(stringify!($noun))
                }
            }
        )+
    };
}

/// Passes the groups of methods, each with its accessor, to another macro.
macro_rules! for_each_noun {
    ($with:ident) => {
        $with! {
            /// Accounts, their roles and their sessions.
            accounts: Accounts;
            /// Actions on resources, with their logs.
            actions: Actions;
            /// Agents, paused or not.
            agents: Agents;
            /// The audit log.
            audit: Audit;
            /// Followed branches of repositories.
            branches: Branches;
            /// The change feed.
            changes: Changes;
            /// Documents of clusters.
            cluster_documents: ClusterDocuments;
            /// Operations on clusters.
            cluster_operations: ClusterOperations;
            /// Clusters and their intents.
            clusters: Clusters;
            /// Statuses of commits to report.
            commit_statuses: CommitStatuses;
            /// Compiles: queue, runs, output.
            compiles: Compiles;
            /// Contents of files.
            contents: Contents;
            /// Discovered resources.
            discovered: Discovered;
            /// Dry runs and their results.
            dry_runs: DryRuns;
            /// Effects that must not be repeated.
            effects: Effects;
            /// State of engines.
            engine: Engine;
            /// Environments.
            environments: Environments;
            /// Processes that remote agents connect to.
            gateways: Gateways;
            /// Keys of requests that must be executed at most once.
            idempotency: Idempotency;
            /// Invitations for remote agents.
            invitations: Invitations;
            /// Leases of environments.
            leases: Leases;
            /// Named values of the installation.
            meta: Meta;
            /// Metrics of environments.
            metrics: Metrics;
            /// Notifications.
            notifications: Notifications;
            /// Parameters and facts.
            parameters: Parameters;
            /// Resources of plug-ins, such as scripts.
            plugin_resources: PluginResources;
            /// Projects, which own environments.
            projects: Projects;
            /// Enrolled remote agents and their sessions.
            remote_agents: RemoteAgents;
            /// Requests to engines.
            requests: Requests;
            /// Resources of the newest versions, with their states.
            resources: Resources;
            /// Secrets, sealed.
            secrets: Secrets;
            /// Settings of environments.
            settings: Settings;
            /// Access tokens.
            tokens: Tokens;
            /// Versions: the desired state.
            versions: Versions;
        }
    };
}
pub(crate) use for_each_noun;

for_each_noun!(nouns);

fn no_result() -> crate::StoreError {
    crate::StoreError::Unreadable("the database did not run a transaction".to_owned())
}
