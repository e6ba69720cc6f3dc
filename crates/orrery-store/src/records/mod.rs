//! Records of a server beside the state of deploys: projects, requests, compiles, accounts and
//! others.
//!
//! Each module has the records of one subject and the transactions on them, written once for both
//! databases in the dialect of [`crate::sql`]. Start from [`Records`], which every store provides.

mod accounts;
mod actions;
mod agents;
mod audit;
mod changes;
mod cluster_documents;
mod commit_statuses;
mod compile_merge;
mod compile_runs;
mod compiles;
mod contents;
mod discovered;
mod dry_runs;
mod effects;
mod environment_deletion;
mod environments;
mod familiar_networks;
mod followed_branches;
mod gateways;
mod handler_callbacks;
mod idempotency;
mod invitations;
mod meta;
mod metrics;
mod notifications;
mod parameters;
pub(crate) mod pending_release;
mod projects;
mod remote_agents;
mod requests;
mod resource_counts;
mod resource_details;
mod resource_list;
mod resource_order;
mod resources;
mod secrets;
mod settings;
mod tokens;
mod unmanaged;
mod versions;

use crate::sql::{Database, Sql};
use crate::{Lease, Result};

pub use accounts::{AccountRecord, Identity, NewAccount, RoleRecord, RoleScope, SessionRecord};
pub use actions::{ChangeCounts, RunSelection};
pub use agents::AgentRecord;
pub use audit::{AuditFilter, AuditRecord, AuditVerification, ChainedAuditRecord};
pub(crate) use changes::{
    CHANGES_MAX, TRIM_INTERVAL, record_change, resources_subject, versions_subject,
};
pub use changes::{ChangeRecord, ChangeSeq, NewChange};
pub use cluster_documents::{
    ClusterDocumentRecord, DocumentFilter, DocumentName, DocumentSnapshot, DocumentWrite,
};
pub use commit_statuses::{CommitStatusRecord, NewCommitStatus};
pub use compile_merge::{CompileRequest, merge_compiles};
pub use compile_runs::{
    ClaimedCompile, CompileFailure, CompileQueueState, CompileRun, FailureNotice, OutputChunk,
    StageRecord,
};
pub use compiles::{
    CompileFilter, CompileRecord, NewCompileRecord, enqueue_automatic_compile, enqueue_compile,
};
pub use contents::{
    CollectionSummary, ContentHolder, ContentView, UnusedContents, mentioned_hashes,
};
pub use discovered::{DiscoveredRecord, NewDiscovered};
pub use dry_runs::{DryRunRecord, DryRunResult};
pub use effects::{BegunEffect, EffectResolution, EffectVerdict};
pub(crate) use environments::bind_project;
pub use environments::{EnvironmentChange, EnvironmentRecord, NewEnvironmentRecord};
pub use followed_branches::{BranchFailure, BranchState, NewFollowedBranch};
pub use gateways::{GatewayHeartbeat, GatewayRecord};
pub(crate) use idempotency::INTERRUPT_ALL_SQL;
pub use idempotency::{KeyState, StoredResponse};
pub use invitations::{JoinOutcome, JoiningAgent, NewInvitationRecord};
pub use metrics::MetricRecord;
pub use notifications::{NewNotification, NotificationFilter, NotificationRecord};
pub use parameters::{NewParameter, ParameterFilter, StaleFacts};
pub use pending_release::{ReleaseState, RemovalStage};
pub use projects::ProjectRecord;
pub use remote_agents::{
    AgentSession, NewAgentSession, OpenedSession, RemoteAgentRecord, ServedName,
};
pub(crate) use requests::insert_request;
pub use requests::{NewRequest, RequestClaim, RequestKey, RequestRecord};
pub use resource_counts::StatusCount;
pub use resource_details::ResourceDetailsRecord;
pub use resource_list::{ResourceLine, ResourceLines, ResourceQuery};
pub use resource_order::IdRange;
pub use resources::HistoryEntry;
pub use secrets::SecretRecord;
pub use settings::SettingRecord;
pub use tokens::TokenRecord;
pub use unmanaged::RemovalScope;
pub use versions::{NewestRevision, VersionEntry};

/// The records of one store.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    database: &'a dyn Database,
    /// The lease under which all changes are made; `None` for changes that need no lease.
    lease: Option<Lease>,
}

impl std::fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Records")
    }
}

impl<'a> Records<'a> {
    pub(crate) fn new(database: &'a dyn Database) -> Self {
        Records { database, lease: None }
    }

    /// The same records under a lease: every change fails with `StaleEpoch` if the lease is not the
    /// current one.
    #[must_use]
    pub fn under_lease(self, lease: &Lease) -> Self {
        Records { lease: Some(*lease), ..self }
    }

    /// Runs `work` on one snapshot of the database.
    fn read<T>(&self, mut work: impl FnMut(&mut dyn Sql) -> Result<T>) -> Result<T> {
        let mut answer = None;
        self.database.read_transaction(&mut |sql| {
            answer = Some(work(sql)?);
            Ok(())
        })?;
        answer.ok_or_else(no_result)
    }

    /// Runs `work` in one atomic transaction.
    fn write<T>(&self, mut work: impl FnMut(&mut dyn Sql) -> Result<T>) -> Result<T> {
        let mut answer = None;
        self.database.write_transaction(&mut |sql| {
            if let Some(lease) = &self.lease {
                sql.check_lease(lease)?;
            }
            answer = Some(work(sql)?);
            Ok(())
        })?;
        answer.ok_or_else(no_result)
    }
}

fn no_result() -> crate::StoreError {
    crate::StoreError::Unreadable("the database did not run a transaction".to_owned())
}
