//! Outputs of the scheduler: start and cancel tasks, persist states, request a wake-up.

use std::fmt;

use orrery_model::{AttributeHash, ResourceId, Status, Timestamp, VersionNumber};
use smallvec::SmallVec;

/// Dense number of a managed resource within one scheduler. Reused after the resource is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceIndex(pub(crate) u32);

impl ResourceIndex {
    /// Index into tables that the driver maintains beside the scheduler.
    pub fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// Dense number of an agent (a serial queue) within one scheduler. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentIndex(pub(crate) u32);

impl AgentIndex {
    pub fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// Number of a started task. Never reused by one scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskNumber(pub u64);

/// The caller's identifier of a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DryRunId(pub u64);

/// Urgency of a task, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Priority {
    UserDeployDirty,
    NewVersion,
    UserVerify,
    DryRun,
    IntervalDeploy,
    FactRefresh,
    IntervalRepair,
}

impl Priority {
    pub const ALL: [Priority; 7] = [
        Priority::UserDeployDirty,
        Priority::NewVersion,
        Priority::UserVerify,
        Priority::DryRun,
        Priority::IntervalDeploy,
        Priority::FactRefresh,
        Priority::IntervalRepair,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Priority::UserDeployDirty => "user deploy",
            Priority::NewVersion => "new version",
            Priority::UserVerify => "user repair",
            Priority::DryRun => "dry run",
            Priority::IntervalDeploy => "interval deploy",
            Priority::FactRefresh => "fact refresh",
            Priority::IntervalRepair => "interval repair",
        }
    }
}

/// Reason that a task exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    NewVersion(VersionNumber),
    UserDeployDirty,
    UserVerify,
    /// Its files changed, and no run did that.
    Drift,
    /// The resource's retry timer fired.
    Retry {
        /// Failed runs so far.
        attempts: u32,
    },
    /// The resource's repair timer fired.
    RepairInterval,
    DeployCron,
    RepairCron,
    /// `None`: the sender is no longer managed.
    Event {
        from: Option<ResourceId>,
    },
    /// A requirement is compliant again.
    Recovered {
        requirement: Option<ResourceId>,
    },
    /// A requirement was scheduled while this resource was deploying.
    RequirementScheduled {
        requirement: Option<ResourceId>,
    },
    /// The resource was not compliant when the engine started.
    Restart,
    /// A halt cancelled the previous run.
    Interrupted,
    DryRun,
    FactRefresh,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |id: &Option<ResourceId>| match id {
            Some(id) => id.to_string(),
            None => "a resource that is no longer managed".to_owned(),
        };
        match self {
            Reason::NewVersion(version) => write!(f, "version {version} was released"),
            Reason::UserDeployDirty => f.write_str("a deploy of dirty resources was requested"),
            Reason::UserVerify => f.write_str("a deploy or repair was requested"),
            Reason::Drift => f.write_str("its files changed"),
            Reason::Retry { attempts: 0 } => {
                f.write_str("it was not compliant, and its deploy interval passed")
            }
            Reason::Retry { attempts } => {
                write!(f, "it is retried after {attempts} failed attempts")
            }
            Reason::RepairInterval => f.write_str("its repair interval passed"),
            Reason::DeployCron => f.write_str("the deploy schedule is due"),
            Reason::RepairCron => f.write_str("the repair schedule is due"),
            Reason::Event { from } => write!(f, "an event was received from {}", name(from)),
            Reason::Recovered { requirement } => write!(f, "{} recovered", name(requirement)),
            Reason::RequirementScheduled { requirement } => {
                write!(f, "{} was scheduled while it was deploying", name(requirement))
            }
            Reason::Restart => f.write_str("it was not compliant when the engine started"),
            Reason::Interrupted => f.write_str("it was interrupted by a halt"),
            Reason::DryRun => f.write_str("a dry run was requested"),
            Reason::FactRefresh => f.write_str("a fact refresh was requested"),
        }
    }
}

/// Instruction for the driver. One event yields, in this order: the results for versions and dry
/// runs, at most one `Persist`, the tasks to start, at most one `WakeAt`.
#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerCommand {
    Start(Start),
    /// Cancel this task, and send its result as soon as it ends.
    Cancel {
        task: TaskNumber,
        reason: CancelReason,
    },
    /// The cancelled task did not end in time. It counts as failed, its agent continues, and a late
    /// result is ignored.
    GaveUp {
        task: TaskNumber,
    },
    /// The result was late, repeated or of an unknown task, and changed nothing.
    Ignored {
        task: TaskNumber,
    },
    /// Changed states: read them with [`Scheduler::state`](crate::Scheduler::state) before the next
    /// event.
    Persist(Changes),
    /// The resource is no longer managed. `last_version` held it last.
    Orphan {
        id: ResourceId,
        last_version: VersionNumber,
    },
    /// Mark all stored states of resources that are not managed now as orphans.
    OrphanOthers,
    /// The version is processed: recovery may start from it once the states above are persisted.
    Processed(VersionNumber),
    /// A resource of a dry run that is not run.
    DryRunSkipped {
        dry_run: DryRunId,
        entry: u32,
        reason: DryRunSkip,
    },
    /// The dry run has ended. `refused`: the environment is halted.
    DryRunFinished {
        dry_run: DryRunId,
        refused: bool,
    },
    Warn(SchedulerWarning),
    /// The resource failed `attempts` times, the configured maximum, and is not retried
    /// automatically. Notify operators.
    Parked {
        id: ResourceId,
        attempts: u32,
    },
    /// Send a `Tick` at this time at the latest. Replaces the previous wake-up.
    WakeAt(Timestamp),
}

/// Changed resources, with the fields that changed.
pub type Changes = SmallVec<[(ResourceIndex, ChangedFields); 4]>;

/// Set of fields of a resource's state, as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangedFields(pub(crate) u8);

impl ChangedFields {
    /// The intent and its undefined flag.
    pub const INTENT: ChangedFields = ChangedFields(1);
    pub const BLOCKED: ChangedFields = ChangedFields(2);
    /// The mark of a running handler. Marked resources are verified after a crash, so persist the
    /// mark before the task starts. It adds information only for a compliant resource.
    pub const DEPLOYING: ChangedFields = ChangedFields(4);
    /// Outcome of the last run, attempts and parking.
    pub const RUN: ChangedFields = ChangedFields(8);
    pub const ALL: ChangedFields = ChangedFields(15);

    pub fn contains(self, part: ChangedFields) -> bool {
        self.0 & part.0 == part.0
    }
}

impl std::ops::BitOr for ChangedFields {
    type Output = ChangedFields;

    fn bitor(self, other: ChangedFields) -> ChangedFields {
        ChangedFields(self.0 | other.0)
    }
}

/// A task to start, with the decisions about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    pub task: TaskNumber,
    pub kind: TaskKind,
    pub agent: AgentIndex,
    pub intent: AttributeHash,
    pub version: VersionNumber,
    /// Statuses of the direct requirements, input of the handler's [`decide`](crate::decide).
    pub dependencies: Vec<Dependency>,
    pub deadline: Option<Timestamp>,
    pub priority: Priority,
    pub reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    Deploy(ResourceIndex),
    FactRefresh(ResourceIndex),
    /// `entry` is the index in the request's list.
    DryRun {
        dry_run: DryRunId,
        entry: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    pub resource: ResourceIndex,
    pub status: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    Deadline,
    Halt,
    User,
}

/// Reason that a resource of a dry run has no diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRunSkip {
    Undefined,
    SkippedForUndefined,
    AgentDown,
}

/// Unexpected condition to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulerWarning {
    /// A resource was deployed although it waits for bad requirements. If `bad` names any, its
    /// handler does not honour them; if not, the scheduler failed to unblock it.
    UnexpectedSuccess { id: ResourceId, bad: Vec<ResourceId> },
    /// A requirement is not part of the version; the resource is deployed without waiting for it.
    UnknownRequirement { id: ResourceId, requirement: ResourceId },
    /// A cycle of requirements; the last resource is deployed without waiting for the first.
    Cycle(Vec<ResourceId>),
}

impl fmt::Display for SchedulerWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |ids: &[ResourceId], by: &str| {
            ids.iter().map(ResourceId::as_str).collect::<Vec<_>>().join(by)
        };
        match self {
            SchedulerWarning::UnexpectedSuccess { id, bad } if bad.is_empty() => write!(
                f,
                "{id} was deployed while it counted as blocked, although all its requirements are compliant: \
                 the scheduler should have unblocked it"
            ),
            SchedulerWarning::UnexpectedSuccess { id, bad } => write!(
                f,
                "{id} was deployed although {} is not: its handler does not honour its requirements",
                join(bad, ", ")
            ),
            SchedulerWarning::UnknownRequirement { id, requirement } => {
                write!(f, "{id} requires {requirement}, which is not part of the version")
            }
            SchedulerWarning::Cycle(ids) => {
                write!(f, "resources require each other in a cycle: {}", join(ids, " requires "))
            }
        }
    }
}
