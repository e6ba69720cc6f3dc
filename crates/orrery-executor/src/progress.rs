//! What can be seen of a running engine.

use std::time::Duration;

use orrery_model::{Change, ChangeKind, OutcomeStatus, ResourceId};
use orrery_scheduler::Reason;

/// How many runs came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Found as wanted, or made so.
    pub deployed: u64,
    /// Of those, how many were changed.
    pub created: u64,
    pub updated: u64,
    pub purged: u64,
    pub failed: u64,
    pub skipped: u64,
    pub unavailable: u64,
    pub non_compliant: u64,
    pub cancelled: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, status: OutcomeStatus, change: ChangeKind) {
        match status {
            OutcomeStatus::Deployed => self.deployed += 1,
            OutcomeStatus::Failed => self.failed += 1,
            OutcomeStatus::Skipped | OutcomeStatus::SkippedForDependency => self.skipped += 1,
            OutcomeStatus::Unavailable => self.unavailable += 1,
            OutcomeStatus::NonCompliant => self.non_compliant += 1,
        }
        match change {
            // What a run did before it failed is in its log.
            _ if status != OutcomeStatus::Deployed => {}
            ChangeKind::NoChange => {}
            ChangeKind::Created => self.created += 1,
            ChangeKind::Updated => self.updated += 1,
            ChangeKind::Purged => self.purged += 1,
        }
    }

    /// Runs that came to an end.
    pub fn done(&self) -> u64 {
        self.deployed
            + self.failed
            + self.skipped
            + self.unavailable
            + self.non_compliant
            + self.cancelled
    }

    pub fn changed(&self) -> u64 {
        self.created + self.updated + self.purged
    }
}

/// A run that changed something or did not end well: what people want to hear of.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    pub id: ResourceId,
    pub status: OutcomeStatus,
    pub change: Change,
    /// What the handler complained of.
    pub message: Option<String>,
    /// What could be done about it.
    pub hint: Option<String>,
    /// Of a skipped resource: the requirements that are not deployed.
    pub blocked_by: Vec<String>,
    pub took: Duration,
    pub reason: Reason,
}

/// A run that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub id: ResourceId,
    pub for_so_long: Duration,
}

/// A look at the engine.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub tally: Tally,
    /// Tasks that are ready, wait for others, and run.
    pub queued: usize,
    pub waiting: usize,
    pub running: usize,
    /// The longest running ones first, some of them.
    pub slowest: Vec<Running>,
    /// What ended since the last look.
    pub finished: Vec<Finished>,
    /// What the scheduler found strange since the last look.
    pub warnings: Vec<String>,
    /// Nothing runs, waits or is ready: all is done that can be.
    pub idle: bool,
    /// Only tasks of paused agents are left.
    pub stalled: bool,
}
