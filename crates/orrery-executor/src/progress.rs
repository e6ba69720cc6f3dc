//! Progress of a running engine.

use std::time::Duration;

use orrery_model::{Change, ChangeKind, OutcomeStatus, ResourceId};
use orrery_scheduler::Reason;

/// Number of runs by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Compliant after the run.
    pub deployed: u64,
    /// Of those, the runs with a change.
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
            // Changes before a failure are in the log of the run.
            _ if status != OutcomeStatus::Deployed => {}
            ChangeKind::NoChange => {}
            ChangeKind::Created => self.created += 1,
            ChangeKind::Updated => self.updated += 1,
            ChangeKind::Purged => self.purged += 1,
        }
    }

    /// Ended runs.
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

/// A run that changed something or failed, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedRun {
    pub id: ResourceId,
    pub status: OutcomeStatus,
    pub change: Change,
    /// Last warning or error of the handler.
    pub message: Option<String>,
    /// Remedy.
    pub hint: Option<String>,
    /// Requirements that are not deployed, for a skipped resource.
    pub blocked_by: Vec<String>,
    pub took: Duration,
    pub reason: Reason,
}

/// A resource with a running handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningResource {
    pub id: ResourceId,
    pub elapsed: Duration,
}

/// Snapshot of the engine's progress.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub tally: Tally,
    /// Tasks that are ready, that wait for others, and that run.
    pub queued: usize,
    pub waiting: usize,
    pub running: usize,
    /// Some of the running resources, the longest running first.
    pub slowest: Vec<RunningResource>,
    /// Runs that ended since the last snapshot.
    pub finished: Vec<FinishedRun>,
    /// Scheduler warnings since the last snapshot.
    pub warnings: Vec<String>,
    /// Nothing runs, waits or is ready.
    pub idle: bool,
    /// Only tasks of paused agents are left.
    pub stalled: bool,
}
