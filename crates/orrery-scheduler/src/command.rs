//! What the scheduler wants done: start and cancel tasks, keep states, be woken.

use std::fmt;

use orrery_model::{AttributeHash, ResourceId, Status, Timestamp, VersionNumber};
use smallvec::SmallVec;

/// A managed resource within one scheduler: a dense number, used again after its resource is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceIndex(pub(crate) u32);

impl ResourceIndex {
    /// For tables that the driver keeps beside the scheduler.
    pub fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// A target's serial queue within one scheduler: a dense number, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentIndex(pub(crate) u32);

impl AgentIndex {
    pub fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// One started task; never used twice by one scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskNumber(pub u64);

/// The caller's name for a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DryRunId(pub u64);

/// How urgent a task is; the first is the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Priority {
    UserDeploy,
    NewVersion,
    UserRepair,
    DryRun,
    IntervalDeploy,
    FactRefresh,
    IntervalRepair,
}

impl Priority {
    pub const ALL: [Priority; 7] = [
        Priority::UserDeploy,
        Priority::NewVersion,
        Priority::UserRepair,
        Priority::DryRun,
        Priority::IntervalDeploy,
        Priority::FactRefresh,
        Priority::IntervalRepair,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Priority::UserDeploy => "user deploy",
            Priority::NewVersion => "new version",
            Priority::UserRepair => "user repair",
            Priority::DryRun => "dry run",
            Priority::IntervalDeploy => "interval deploy",
            Priority::FactRefresh => "fact refresh",
            Priority::IntervalRepair => "interval repair",
        }
    }
}

/// Why a task exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    NewVersion(VersionNumber),
    UserDeploy,
    UserRepair,
    /// The retry timer of the resource ran out.
    Retry {
        /// Failed runs so far.
        attempts: u32,
    },
    /// The repair timer of the resource ran out.
    RepairInterval,
    DeployCron,
    RepairCron,
    /// `None`: the sender is no longer wanted.
    Event {
        from: Option<ResourceId>,
    },
    /// Something that it requires is good again.
    Recovered {
        requirement: Option<ResourceId>,
    },
    /// Something that it requires was scheduled while it was deploying.
    RequirementScheduled {
        requirement: Option<ResourceId>,
    },
    /// It was not as wanted when the engine started.
    Restart,
    /// It was stopped by a halt.
    Interrupted,
    DryRun,
    FactRefresh,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |id: &Option<ResourceId>| match id {
            Some(id) => id.to_string(),
            None => "a resource that is no longer wanted".to_owned(),
        };
        match self {
            Reason::NewVersion(version) => write!(f, "version {version} was released"),
            Reason::UserDeploy => f.write_str("a deploy was requested"),
            Reason::UserRepair => f.write_str("a repair was requested"),
            Reason::Retry { attempts: 0 } => {
                f.write_str("it was not as wanted, and its deploy interval passed")
            }
            Reason::Retry { attempts } => write!(f, "it is tried again after {attempts} failed"),
            Reason::RepairInterval => f.write_str("its repair interval passed"),
            Reason::DeployCron => f.write_str("the schedule for deploys came round"),
            Reason::RepairCron => f.write_str("the schedule for repairs came round"),
            Reason::Event { from } => write!(f, "an event was received from {}", name(from)),
            Reason::Recovered { requirement } => write!(f, "{} recovered", name(requirement)),
            Reason::RequirementScheduled { requirement } => {
                write!(f, "{} was scheduled while it was deploying", name(requirement))
            }
            Reason::Restart => f.write_str("it was not as wanted when the engine started"),
            Reason::Interrupted => f.write_str("it was stopped by a halt"),
            Reason::DryRun => f.write_str("a dry run was requested"),
            Reason::FactRefresh => f.write_str("its facts were asked for"),
        }
    }
}

/// What the driver is to do. Within one event: first the outcome for versions and dry runs, then at most
/// one `Persist`, then the tasks to start, then at most one `WakeAt`.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Start(Start),
    /// Stop this task and send its result as soon as it has ended.
    Cancel {
        task: TaskNumber,
        reason: CancelReason,
    },
    /// The task did not end in time after it was cancelled. It counts as failed, its agent goes on, and
    /// whatever it still answers is ignored.
    GaveUp {
        task: TaskNumber,
    },
    /// The answer came too late, twice, or belongs to no task: nothing was changed by it.
    Ignored {
        task: TaskNumber,
    },
    /// These states changed: read them with [`Scheduler::state`](crate::Scheduler::state) before the next event.
    Persist(Changes),
    /// A resource is no longer wanted. `last_version` held it last.
    Orphan {
        id: ResourceId,
        last_version: VersionNumber,
    },
    /// Every stored state of a resource that is not managed now is an orphan's.
    OrphanOthers,
    /// This version is processed: recovery may start from it once the states above are kept.
    Processed(VersionNumber),
    /// A resource of a dry run that needs no task.
    DryRunAnswer {
        dry_run: DryRunId,
        entry: u32,
        answer: DryRunAnswer,
    },
    /// No more answers follow. Refused: the environment is halted.
    DryRunFinished {
        dry_run: DryRunId,
        refused: bool,
    },
    Warn(Warning),
    /// This resource failed as often as the settings allow, and is not tried again by itself: people are to know.
    Parked {
        id: ResourceId,
        attempts: u32,
    },
    /// Send a `Tick` at this time at the latest; replaces what was said before.
    WakeAt(Timestamp),
}

/// Resources whose state changed, and which parts of it.
pub type Changes = SmallVec<[(ResourceIndex, Parts); 4]>;

/// Parts of a resource's state, as they are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(pub(crate) u8);

impl Parts {
    /// What is wanted: the intent and whether it is undefined.
    pub const INTENT: Parts = Parts(1);
    pub const BLOCKED: Parts = Parts(2);
    /// Whether a handler runs now. What is marked when the engine dies is verified after the restart, so
    /// the mark should be kept before the task starts; only for a compliant resource does it say anything new.
    pub const DEPLOYING: Parts = Parts(4);
    /// How the last run ended, attempts and parking.
    pub const RUN: Parts = Parts(8);
    pub const ALL: Parts = Parts(15);

    pub fn contains(self, part: Parts) -> bool {
        self.0 & part.0 == part.0
    }
}

impl std::ops::BitOr for Parts {
    type Output = Parts;

    fn bitor(self, other: Parts) -> Parts {
        Parts(self.0 | other.0)
    }
}

/// A task, with all that was decided about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    pub task: TaskNumber,
    pub kind: TaskKind,
    pub agent: AgentIndex,
    pub intent: AttributeHash,
    pub version: VersionNumber,
    /// How the direct requirements are now: the handler's [`decide`](crate::decide) looks at these.
    pub dependencies: Vec<Dependency>,
    pub deadline: Option<Timestamp>,
    pub priority: Priority,
    pub reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    Deploy(ResourceIndex),
    FactRefresh(ResourceIndex),
    /// `entry` is the place in the list of the request.
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

/// Why a resource of a dry run has no diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRunAnswer {
    Undefined,
    SkippedForUndefined,
    AgentDown,
}

/// Something that should not happen, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// It was waiting for bad requirements and deployed well nevertheless. If `bad` names any, its handler
    /// does not honour them; if not, the scheduler failed to unblock it.
    UnexpectedSuccess { id: ResourceId, bad: Vec<ResourceId> },
    /// A resource requires what its version does not hold; it is deployed without waiting for that.
    UnknownRequirement { id: ResourceId, requirement: ResourceId },
    /// These require each other in a circle; the last is deployed without waiting for the first.
    Cycle(Vec<ResourceId>),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |ids: &[ResourceId], by: &str| {
            ids.iter().map(ResourceId::as_str).collect::<Vec<_>>().join(by)
        };
        match self {
            Warning::UnexpectedSuccess { id, bad } if bad.is_empty() => write!(
                f,
                "{id} was deployed while it counted as blocked, although all that it requires is good: \
                 the scheduler should have unblocked it"
            ),
            Warning::UnexpectedSuccess { id, bad } => write!(
                f,
                "{id} was deployed although {} is not: its handler does not honour what it requires",
                join(bad, ", ")
            ),
            Warning::UnknownRequirement { id, requirement } => {
                write!(f, "{id} requires {requirement}, which is not part of the version")
            }
            Warning::Cycle(ids) => {
                write!(f, "resources require each other in a circle: {}", join(ids, " requires "))
            }
        }
    }
}
