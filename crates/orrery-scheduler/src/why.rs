//! Why a resource is where it is: a chain of reasons, each of which names its owner.

use std::fmt;
use std::sync::Arc;

use orrery_model::{Blocked, Compliance, ResourceId, Status, Timestamp};

use crate::command::{CancelReason, Priority, Reason, ResourceIndex, TaskNumber};
use crate::edges::NONE;
use crate::queue::{Kind, Mention, Place};
use crate::scheduler::Scheduler;
use crate::ticks::TimerKind;

/// How a resource is, and what keeps it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    pub id: ResourceId,
    pub status: Status,
    /// The strongest first.
    pub because: Vec<Because>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// It cannot be deployed: the last of the path is undefined. The path begins with the resource itself.
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
    /// Its intent changed while it was running: that run does not count, and the next follows.
    Outdated,
    /// Its task waits for others to end. `first` explains one of them, unless the chain is very long.
    WaitingOn {
        resources: Vec<ResourceId>,
        priority: Priority,
        reason: Reason,
        first: Option<Box<Why>>,
    },
    /// Its task is ready. `behind` is what the agent does now.
    Queued {
        agent: Arc<str>,
        /// Ready tasks before it.
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
    /// As many tasks run as are allowed.
    GroupFull {
        group: Arc<str>,
        limit: u32,
    },
    /// It waits for these to get better, and will then be tried at once.
    WaitingForRecovery {
        bad: Vec<ResourceId>,
    },
    Parked {
        attempts: u32,
    },
    /// Nothing to do before then.
    NextTimer {
        at: Timestamp,
        kind: TimerKind,
    },
    NextCron {
        at: Timestamp,
        kind: TimerKind,
    },
    /// It is as wanted, and no interval is set.
    Settled,
    /// It is not as wanted, and nothing will happen on its own.
    NothingPlanned,
}

/// How far a chain of waiting resources is followed.
const CHAIN_MAX: usize = 16;

impl Scheduler {
    /// Explains a resource; `None` if it is not managed.
    pub fn why(&self, resource: ResourceIndex) -> Option<Why> {
        self.explain(resource.0, CHAIN_MAX)
    }

    fn explain(&self, slot: u32, depth: usize) -> Option<Why> {
        let id = self.resources.id(slot)?.clone();
        let record = &self.resources[slot];
        let mut because = Vec::new();
        if record.running {
            self.explain_run(slot, &mut because);
        }
        if record.undeployable {
            because.push(Because::Undefined { path: self.path_to_undefined(slot) });
        } else if record.task != NONE {
            self.explain_task(slot, depth, &mut because);
        } else if !record.running {
            self.explain_rest(slot, &mut because);
        }
        Some(Why { id, status: record.state().status(), because })
    }

    fn explain_run(&self, slot: u32, because: &mut Vec<Because>) {
        let record = &self.resources[slot];
        if let Some(run) = self.runs.get(self.queues.agent(record.agent).run) {
            because.push(Because::Running {
                task: run.task,
                priority: run.priority,
                reason: self.reason(run.cause),
                since: run.started_at,
                deadline: run.deadline,
                cancelled: run.cancelled,
            });
        }
        if !record.running_latest {
            because.push(Because::Outdated);
        }
    }

    fn explain_task(&self, slot: u32, depth: usize, because: &mut Vec<Because>) {
        let record = &self.resources[slot];
        let task = &self.queues[record.task];
        let (priority, reason) = (task.priority, self.reason(task.cause));
        if task.place == Place::Waiting {
            let mut slots: Vec<u32> = self
                .edges
                .requirements(slot)
                .filter(|requirement| self.resources[*requirement].is_scheduled())
                .collect();
            slots.sort_unstable();
            let first = slots.first().filter(|_| depth > 0);
            let first = first.and_then(|first| self.explain(*first, depth - 1)).map(Box::new);
            let resources = self.ids(&slots);
            because.push(Because::WaitingOn { resources, priority, reason, first });
            return;
        }
        let agent = self.queues.agent(record.agent);
        let own = record.task;
        let ready = self.queues.ready_of(record.agent);
        let ahead = ready.iter().take_while(|task| **task != own);
        let behind = self.runs.get(agent.run).and_then(|run| match run.kind {
            Kind::Deploy { slot } | Kind::FactRefresh { slot } => {
                self.mentioned(Mention { slot, generation: run.generation }).cloned()
            }
            Kind::DryRun { .. } => None,
        });
        because.push(Because::Queued {
            agent: agent.name.clone(),
            ahead: ahead.count(),
            priority,
            reason,
            since: task.requested_at,
            behind,
        });
        if self.halted {
            because.push(Because::Halted);
        }
        if agent.paused {
            because.push(Because::AgentPaused { agent: agent.name.clone() });
        }
        if agent.run == NONE
            && let Some((group, limit)) = self.groups.full(agent.group)
        {
            because.push(Because::GroupFull { group: group.clone(), limit });
        }
    }

    fn explain_rest(&self, slot: u32, because: &mut Vec<Because>) {
        let record = &self.resources[slot];
        if record.blocked == Blocked::TemporarilyBlocked {
            let mut bad: Vec<u32> = self
                .edges
                .requirements(slot)
                .filter(|requirement| self.resources[*requirement].is_known_bad())
                .collect();
            bad.sort_unstable();
            because.push(Because::WaitingForRecovery { bad: self.ids(&bad) });
        }
        if record.parked {
            because.push(Because::Parked { attempts: record.attempts });
            return;
        }
        if self.halted {
            because.push(Because::Halted);
        }
        if let Some((at, kind)) = self.timer(ResourceIndex(slot)) {
            because.push(Because::NextTimer { at, kind });
        }
        let crons = [
            (self.deploy_cron_at.filter(|_| record.unsettled_at != NONE), TimerKind::Retry),
            (self.repair_cron_at, TimerKind::Repair),
        ];
        for (at, kind) in crons {
            because.extend(at.map(|at| Because::NextCron { at, kind }));
        }
        if because.is_empty() {
            let settled = record.compliance() == Compliance::Compliant && !record.dirty;
            because.push(if settled { Because::Settled } else { Because::NothingPlanned });
        }
    }

    fn ids(&self, slots: &[u32]) -> Vec<ResourceId> {
        slots.iter().filter_map(|slot| self.resources.id(*slot).cloned()).collect()
    }

    /// From an undeployable resource down to one that is undefined, by the lowest slot at each step.
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

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl Why {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        write!(f, "{indent}{} is {}", self.id, self.status.as_str())?;
        for because in &self.because {
            write!(f, "\n{indent}  {because}")?;
            if let Because::WaitingOn { first: Some(first), .. } = because {
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

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |kind: &TimerKind| match kind {
            TimerKind::Retry => "tried again",
            TimerKind::Repair => "verified",
        };
        match self {
            Because::Undefined { path } if path.len() < 2 => {
                f.write_str("blocked: it is undefined, an attribute is unknown")
            }
            Because::Undefined { path } => {
                write!(f, "blocked by something undefined: {}", join(path, " requires "))
            }
            Because::Running { reason, since, deadline, cancelled, .. } => {
                write!(f, "running since {since}, because {reason}")?;
                match cancelled {
                    Some(CancelReason::Deadline) => f.write_str("; its deadline passed")?,
                    Some(CancelReason::Halt) => f.write_str("; being stopped by a halt")?,
                    Some(CancelReason::User) => f.write_str("; being stopped on request")?,
                    None => {}
                }
                match deadline {
                    Some(deadline) if cancelled.is_none() => write!(f, "; to end by {deadline}"),
                    _ => Ok(()),
                }
            }
            Because::Outdated => {
                f.write_str("that run is out of date: its intent changed meanwhile")
            }
            Because::WaitingOn { resources, reason, .. } => {
                write!(f, "waiting for {}, because {reason}", join(resources, ", "))
            }
            Because::Queued { agent, ahead, priority, reason, since, behind } => {
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
            Because::Halted => f.write_str("everything is halted"),
            Because::AgentPaused { agent } => write!(f, "agent {agent} is paused"),
            Because::GroupFull { group, limit } => {
                write!(f, "{limit} of {limit} tasks run already for {group}")
            }
            Because::WaitingForRecovery { bad } => {
                write!(f, "waiting for {} to be deployed", join(bad, ", "))
            }
            Because::Parked { attempts } => {
                write!(
                    f,
                    "parked after {attempts} failed attempts: a deploy, a repair or a new intent starts it again"
                )
            }
            Because::NextTimer { at, kind } | Because::NextCron { at, kind } => {
                write!(f, "will be {} at {at}", verb(kind))
            }
            Because::Settled => {
                f.write_str("it is as wanted; it is not checked automatically: run `orrery repair`")
            }
            Because::NothingPlanned => {
                f.write_str("it is not as wanted; a deploy or a repair tries it")
            }
        }
    }
}
