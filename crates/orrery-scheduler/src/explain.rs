//! Explains the state of a resource: a chain of reasons, each naming its cause.

use std::fmt;
use std::sync::Arc;

use orrery_model::{Blocked, Compliance, ResourceId, Status, Timestamp};

use crate::command::{CancelReason, Priority, Reason, ResourceIndex, TaskNumber};
use crate::due::TimerKind;
use crate::edges::NONE;
use crate::queue::{Kind, ResourceRef, TaskState};
use crate::scheduler::Scheduler;

/// Status of a resource and the reasons for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceExplanation {
    pub id: ResourceId,
    pub status: Status,
    /// The strongest first.
    pub reasons: Vec<StateReason>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateReason {
    /// Undeployable: the last resource of the path is undefined. The path starts with the resource
    /// itself.
    Undefined {
        path: Vec<ResourceId>,
    },
    Running {
        task: TaskNumber,
        priority: Priority,
        reason: Reason,
        since: Timestamp,
        deadline: Option<Timestamp>,
        cancelled: Option<CancelReason>,
    },
    /// Its intent changed during the run: that run does not count, and the next follows.
    Outdated,
    /// Its task waits for requirements. `first` explains one of them, up to a maximum depth.
    WaitingOn {
        resources: Vec<ResourceId>,
        priority: Priority,
        reason: Reason,
        first: Option<Box<ResourceExplanation>>,
    },
    /// Its task is ready. `behind` is the agent's running resource.
    Queued {
        agent: Arc<str>,
        /// Number of ready tasks before it.
        ahead: usize,
        priority: Priority,
        reason: Reason,
        since: Timestamp,
        behind: Option<ResourceId>,
    },
    Halted,
    AgentPaused {
        agent: Arc<str>,
    },
    /// The group's limit on running tasks is reached.
    GroupFull {
        group: Arc<str>,
        limit: u32,
    },
    /// Waiting for these to recover; it then runs at once.
    WaitingForRecovery {
        bad: Vec<ResourceId>,
    },
    Parked {
        attempts: u32,
    },
    /// Idle until this timer.
    NextTimer {
        at: Timestamp,
        kind: TimerKind,
    },
    NextCron {
        at: Timestamp,
        kind: TimerKind,
    },
    /// Compliant, and no interval is configured.
    Settled,
    /// Not compliant, and no automatic run is planned.
    NothingPlanned,
}

/// Maximum depth of an explained chain of waits.
const CHAIN_MAX: usize = 16;

impl Scheduler {
    /// Explains a resource; `None` if it is not managed.
    pub fn explain(&self, resource: ResourceIndex) -> Option<ResourceExplanation> {
        self.explain_slot(resource.0, CHAIN_MAX)
    }

    fn explain_slot(&self, slot: u32, depth: usize) -> Option<ResourceExplanation> {
        let id = self.resources.id(slot)?.clone();
        let record = &self.resources[slot];
        let mut reasons = Vec::new();
        if record.running {
            self.explain_run(slot, &mut reasons);
        }
        if record.undeployable {
            reasons.push(StateReason::Undefined { path: self.path_to_undefined(slot) });
        } else if record.task != NONE {
            self.explain_task(slot, depth, &mut reasons);
        } else if !record.running {
            self.explain_idle(slot, &mut reasons);
        }
        Some(ResourceExplanation { id, status: record.state().status(), reasons })
    }

    fn explain_run(&self, slot: u32, reasons: &mut Vec<StateReason>) {
        let record = &self.resources[slot];
        if let Some(run) = self.runs.get(self.queues.agent(record.agent).run) {
            reasons.push(StateReason::Running {
                task: run.task,
                priority: run.priority,
                reason: self.reason(run.cause),
                since: run.started_at,
                deadline: run.deadline,
                cancelled: run.cancelled,
            });
        }
        if !record.running_latest {
            reasons.push(StateReason::Outdated);
        }
    }

    fn explain_task(&self, slot: u32, depth: usize, reasons: &mut Vec<StateReason>) {
        let record = &self.resources[slot];
        let task = &self.queues[record.task];
        let (priority, reason) = (task.priority, self.reason(task.cause));
        if task.state == TaskState::Waiting {
            let mut slots: Vec<u32> = self
                .edges
                .requirements(slot)
                .filter(|requirement| self.resources[*requirement].is_scheduled())
                .collect();
            slots.sort_unstable();
            let first = slots.first().filter(|_| depth > 0);
            let first = first.and_then(|first| self.explain_slot(*first, depth - 1)).map(Box::new);
            let resources = self.ids(&slots);
            reasons.push(StateReason::WaitingOn { resources, priority, reason, first });
            return;
        }
        let agent = self.queues.agent(record.agent);
        let own = record.task;
        let ready = self.queues.ready_of(record.agent);
        let ahead = ready.iter().take_while(|task| **task != own);
        let behind = self.runs.get(agent.run).and_then(|run| match run.kind {
            Kind::Deploy { slot } | Kind::FactRefresh { slot } => {
                self.resolve_ref(ResourceRef { slot, generation: run.generation }).cloned()
            }
            Kind::DryRun { .. } => None,
        });
        reasons.push(StateReason::Queued {
            agent: agent.name.clone(),
            ahead: ahead.count(),
            priority,
            reason,
            since: task.requested_at,
            behind,
        });
        if self.halted {
            reasons.push(StateReason::Halted);
        }
        if agent.paused {
            reasons.push(StateReason::AgentPaused { agent: agent.name.clone() });
        }
        if agent.run == NONE
            && let Some((group, limit)) = self.groups.limit_reached(agent.group)
        {
            reasons.push(StateReason::GroupFull { group: group.clone(), limit });
        }
    }

    fn explain_idle(&self, slot: u32, reasons: &mut Vec<StateReason>) {
        let record = &self.resources[slot];
        if record.blocked == Blocked::TemporarilyBlocked {
            let mut bad: Vec<u32> = self
                .edges
                .requirements(slot)
                .filter(|requirement| self.resources[*requirement].is_known_bad())
                .collect();
            bad.sort_unstable();
            reasons.push(StateReason::WaitingForRecovery { bad: self.ids(&bad) });
        }
        if record.parked {
            reasons.push(StateReason::Parked { attempts: record.attempts });
            return;
        }
        if self.halted {
            reasons.push(StateReason::Halted);
        }
        if let Some((at, kind)) = self.timer(ResourceIndex(slot)) {
            reasons.push(StateReason::NextTimer { at, kind });
        }
        let crons = [
            (self.deploy_cron_at.filter(|_| record.unsettled_at != NONE), TimerKind::Retry),
            (self.repair_cron_at, TimerKind::Repair),
        ];
        for (at, kind) in crons {
            reasons.extend(at.map(|at| StateReason::NextCron { at, kind }));
        }
        if reasons.is_empty() {
            let settled = record.compliance() == Compliance::Compliant && !record.dirty;
            reasons.push(if settled { StateReason::Settled } else { StateReason::NothingPlanned });
        }
    }

    fn ids(&self, slots: &[u32]) -> Vec<ResourceId> {
        slots.iter().filter_map(|slot| self.resources.id(*slot).cloned()).collect()
    }

    /// Returns the path from an undeployable resource to an undefined one, by the lowest slot at
    /// each step.
    fn path_to_undefined(&self, slot: u32) -> Vec<ResourceId> {
        let mut path = vec![slot];
        let mut at = slot;
        while !self.resources[at].flags.undefined {
            let undeployable = |slot: &u32| self.resources[*slot].undeployable;
            match self.edges.requirements(at).filter(undeployable).min() {
                Some(next) if !path.contains(&next) => at = next,
                _ => break,
            }
            path.push(at);
        }
        self.ids(&path)
    }
}

impl fmt::Display for ResourceExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl ResourceExplanation {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        write!(f, "{indent}{} is {}", self.id, self.status.as_str())?;
        for reason in &self.reasons {
            write!(f, "\n{indent}  {reason}")?;
            if let StateReason::WaitingOn { first: Some(first), .. } = reason {
                f.write_str("\n")?;
                first.write(f, depth + 2)?;
            }
        }
        Ok(())
    }
}

fn join(ids: &[ResourceId], by: &str) -> String {
    ids.iter().map(ResourceId::as_str).collect::<Vec<_>>().join(by)
}

impl fmt::Display for StateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |kind: &TimerKind| match kind {
            TimerKind::Retry => "retried",
            TimerKind::Repair => "verified",
        };
        match self {
            StateReason::Undefined { path } if path.len() < 2 => {
                f.write_str("blocked: undefined, because an attribute is unknown")
            }
            StateReason::Undefined { path } => {
                write!(f, "blocked by an undefined resource: {}", join(path, " requires "))
            }
            StateReason::Running { reason, since, deadline, cancelled, .. } => {
                write!(f, "running since {since}, because {reason}")?;
                match cancelled {
                    Some(CancelReason::Deadline) => f.write_str("; its deadline passed")?,
                    Some(CancelReason::Halt) => f.write_str("; being cancelled by a halt")?,
                    Some(CancelReason::User) => f.write_str("; being cancelled on request")?,
                    None => {}
                }
                match deadline {
                    Some(deadline) if cancelled.is_none() => write!(f, "; deadline {deadline}"),
                    _ => Ok(()),
                }
            }
            StateReason::Outdated => {
                f.write_str("the run is outdated: the intent changed during it")
            }
            StateReason::WaitingOn { resources, reason, .. } => {
                write!(f, "waiting for {}, because {reason}", join(resources, ", "))
            }
            StateReason::Queued { agent, ahead, priority, reason, since, behind } => {
                write!(
                    f,
                    "queued on {agent} since {since} ({}), because {reason}",
                    priority.as_str()
                )?;
                match ahead {
                    0 => f.write_str("; next")?,
                    ahead => write!(f, "; {ahead} before it")?,
                }
                match behind {
                    Some(behind) => write!(f, "; now running {behind}"),
                    None => Ok(()),
                }
            }
            StateReason::Halted => f.write_str("the environment is halted"),
            StateReason::AgentPaused { agent } => write!(f, "agent {agent} is paused"),
            StateReason::GroupFull { group, limit } => {
                write!(f, "{group} is at its limit of {limit} running tasks")
            }
            StateReason::WaitingForRecovery { bad } => {
                write!(f, "waiting for {} to be deployed", join(bad, ", "))
            }
            StateReason::Parked { attempts } => {
                write!(
                    f,
                    "parked after {attempts} failed attempts: a deploy, a repair or a new intent retries it"
                )
            }
            StateReason::NextTimer { at, kind } | StateReason::NextCron { at, kind } => {
                write!(f, "will be {} at {at}", verb(kind))
            }
            StateReason::Settled => {
                f.write_str("compliant; not verified automatically: run `orrery repair`")
            }
            StateReason::NothingPlanned => {
                f.write_str("not compliant; a deploy or a repair retries it")
            }
        }
    }
}
