//! What a server keeps beside the state of deploys: projects, requests, compiles, accounts and the like.
//!
//! Each module has the records of one subject and the transactions on them, written once for both databases in the dialect
//! of [`crate::sql`]. Start from [`Records`], which every store gives out.

mod accounts;
mod actions;
mod agents;
mod audit;
mod begun;
mod changes;
mod cluster_documents;
mod commit_statuses;
mod compile_merge;
mod compile_runs;
mod compiles;
mod contents;
mod discovered;
mod dry_runs;
mod environments;
mod erase;
mod familiar;
mod followed;
mod gateways;
mod handlers;
mod idempotency;
mod invitations;
mod meta;
mod metrics;
mod notifications;
mod parameters;
mod projects;
pub(crate) mod released;
mod remnants;
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
mod versions;

use crate::sql::{Database, Sql};
use crate::{Lease, Result};

pub use accounts::{AccountRecord, Identity, NewAccount, RoleRecord, RoleScope, SessionRecord};
pub use actions::{ChangeCounts, EventfulRuns};
pub use agents::AgentRecord;
pub use audit::{AuditEntry, AuditFilter, AuditRecord, AuditVerdict};
pub use begun::{BegunEffect, EffectChoice, EffectDecision};
pub use changes::{ChangeNote, ChangeSeq, NewNote};
pub(crate) use changes::{KEPT_CHANGES, TIDY_EVERY, note, subject_of, subject_of_versions};
pub use cluster_documents::{
    ClusterDocumentRecord, DocumentFilter, DocumentName, DocumentSnapshot, DocumentWrite,
};
pub use commit_statuses::{CommitStatusRecord, NewCommitStatus};
pub use compile_merge::{CompileRequest, merge_compiles};
pub use compile_runs::{
    ClaimedCompile, CompileFailure, CompileRun, FailureNotice, OutputPiece, StageRecord, Waiting,
};
pub use compiles::{
    CompileFilter, CompileRecord, NewCompile, enqueue_compile, enqueue_consequence,
};
pub use contents::{Collected, ContentHolder, ContentView, UnusedContents, mentioned_hashes};
pub use discovered::{DiscoveredRecord, NewDiscovered};
pub use dry_runs::{DryRunRecord, DryRunResult};
pub(crate) use environments::bind_project;
pub use environments::{EnvironmentChange, EnvironmentRecord, NewEnvironment};
pub use followed::{Followed, FollowedBranch, FollowedFailure};
pub use gateways::{GatewayRecord, LiveGateway};
pub(crate) use idempotency::INTERRUPT_ALL;
pub use idempotency::{KeptAnswer, Repetition};
pub use invitations::{Join, Joining, NewInvitation};
pub use metrics::MetricRecord;
pub use notifications::{NewNotification, NotificationFilter, NotificationRecord};
pub use parameters::{NewParameter, OldFacts, ParameterFilter};
pub use projects::ProjectRecord;
pub use released::{RemovalStage, Wanted};
pub use remnants::RemnantScope;
pub use remote_agents::{
    AgentSession, NewAgentSession, OpenedSession, RemoteAgentRecord, ServedName,
};
pub(crate) use requests::insert_request;
pub use requests::{Claim, NewRequest, RequestKey, RequestRecord};
pub use resource_counts::StatusCount;
pub use resource_details::ResourceDetails;
pub use resource_list::{ResourceLine, ResourceLines, ResourceQuery};
pub use resource_order::IdRange;
pub use resources::HistoryEntry;
pub use secrets::SecretRecord;
pub use settings::SettingRecord;
pub use tokens::TokenRecord;
pub use versions::{Standing, VersionResource};

/// The records of one store.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    database: &'a dyn Database,
    /// What all changes are made under; `None` for what needs no lease.
    lease: Option<Lease>,
}

impl std::fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Records")
    }
}

impl<'a> Records<'a> {
    pub(crate) fn of(database: &'a dyn Database) -> Self {
        Records { database, lease: None }
    }

    /// The same records for whoever acts for an environment: every change is refused with `StaleEpoch` if this lease is not the
    /// current one.
    #[must_use]
    pub fn under(self, lease: &Lease) -> Self {
        Records { lease: Some(*lease), ..self }
    }

    /// Answers from one state of the database.
    fn look<T>(&self, mut work: impl FnMut(&mut dyn Sql) -> Result<T>) -> Result<T> {
        let mut answer = None;
        self.database.look(&mut |sql| {
            answer = Some(work(sql)?);
            Ok(())
        })?;
        answer.ok_or_else(never_ran)
    }

    /// One transaction: all of it or nothing.
    fn change<T>(&self, mut work: impl FnMut(&mut dyn Sql) -> Result<T>) -> Result<T> {
        let mut answer = None;
        self.database.change(&mut |sql| {
            if let Some(lease) = &self.lease {
                sql.check_lease(lease)?;
            }
            answer = Some(work(sql)?);
            Ok(())
        })?;
        answer.ok_or_else(never_ran)
    }
}

fn never_ran() -> crate::StoreError {
    crate::StoreError::Unreadable("the database did not run a transaction".to_owned())
}
