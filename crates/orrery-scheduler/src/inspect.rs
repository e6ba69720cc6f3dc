//! Inspection of the scheduler: states, queues, runs, and a check of its invariants.

use orrery_model::{
    Blocked, Duration, ResourceFlags, ResourceId, ResourceState, Timestamp, VersionNumber,
};

use crate::command::{AgentIndex, DryRunId, Priority, Reason, ResourceIndex, TaskKind, TaskNumber};
use crate::due::TimerKind;
use crate::edges::NONE;
use crate::event::Filter;
use crate::queue::{Kind, TaskState};
use crate::scheduler::Scheduler;
use crate::settings::Settings;

/// Counts of resources and tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub resources: usize,
    pub dirty: usize,
    /// Tasks that wait for requirements.
    pub waiting: usize,
    /// Ready tasks, including those of paused agents.
    pub queued: usize,
    pub running: usize,
}

/// A ready task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedTask {
    pub kind: TaskKind,
    pub priority: Priority,
    pub reason: Reason,
    pub requested_at: Timestamp,
}

/// A running task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningTask {
    pub task: TaskNumber,
    pub kind: TaskKind,
    pub agent: AgentIndex,
    pub priority: Priority,
    pub reason: Reason,
    pub started_at: Timestamp,
    pub deadline: Option<Timestamp>,
}

impl Scheduler {
    pub fn version(&self) -> Option<VersionNumber> {
        self.version
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn is_halted(&self) -> bool {
        self.halted
    }

    pub fn index_of(&self, id: &str) -> Option<ResourceIndex> {
        self.resources.find(id).map(ResourceIndex)
    }

    pub fn id(&self, resource: ResourceIndex) -> Option<&ResourceId> {
        self.resources.id(resource.0)
    }

    pub fn state(&self, resource: ResourceIndex) -> Option<ResourceState> {
        self.resources.id(resource.0).map(|_| self.resources[resource.0].state())
    }

    pub fn flags(&self, resource: ResourceIndex) -> Option<ResourceFlags> {
        self.resources.id(resource.0).map(|_| self.resources[resource.0].flags)
    }

    /// All managed resources.
    pub fn resources(&self) -> impl Iterator<Item = ResourceIndex> + '_ {
        self.resources.present().map(ResourceIndex)
    }

    pub fn requirements(&self, resource: ResourceIndex) -> Vec<ResourceIndex> {
        let mut slots: Vec<_> = self.edges.requirements(resource.0).map(ResourceIndex).collect();
        slots.sort_unstable();
        slots
    }

    pub fn dependents(&self, resource: ResourceIndex) -> Vec<ResourceIndex> {
        let mut slots: Vec<_> = self.edges.dependents(resource.0).map(ResourceIndex).collect();
        slots.sort_unstable();
        slots
    }

    /// True if a deploy of dirty resources would run it.
    pub fn is_dirty(&self, resource: ResourceIndex) -> bool {
        self.resources.id(resource.0).is_some() && self.resources[resource.0].dirty
    }

    /// True if it manages resources of an agent.
    pub fn has_resources(&self, agent: &str) -> bool {
        let agent = self.agent_names.find(agent);
        agent.is_some_and(|agent| self.queues.agent(agent).resources != NONE)
    }

    /// Returns the resources that match a filter.
    pub fn resources_matching(&self, filter: &Filter) -> Vec<ResourceIndex> {
        self.slots_matching(filter).into_iter().map(ResourceIndex).collect()
    }

    /// True if a deploy of the resource is scheduled or running.
    pub fn has_deploy_task(&self, resource: ResourceIndex) -> bool {
        self.resources.id(resource.0).is_some() && {
            let record = &self.resources[resource.0];
            record.task != NONE || record.running
        }
    }

    /// True if a fact refresh of the resource is scheduled or running.
    pub fn has_fact_task(&self, resource: ResourceIndex) -> bool {
        if self.resources.id(resource.0).is_none() {
            return false;
        }
        let run = self.queues.agent(self.resources[resource.0].agent).run;
        self.fact_tasks.contains_key(&resource.0)
            || self
                .runs
                .get(run)
                .is_some_and(|run| run.kind == Kind::FactRefresh { slot: resource.0 })
    }

    /// Returns the time and kind of the resource's next timer.
    pub fn timer(&self, resource: ResourceIndex) -> Option<(Timestamp, TimerKind)> {
        let due = self.resources.id(resource.0).map(|_| self.resources[resource.0].due)?;
        let (_, kind) = self.timer_of(resource.0, due)?;
        (due != crate::timers::NEVER).then_some((due, kind))
    }

    pub fn agents(&self) -> impl Iterator<Item = AgentIndex> + '_ {
        (0..).take(self.queues.agents.len()).map(AgentIndex)
    }

    pub fn agent_of(&self, name: &str) -> Option<AgentIndex> {
        self.agent_names.find(name).map(AgentIndex)
    }

    pub fn agent_name(&self, agent: AgentIndex) -> Option<&str> {
        self.queues.agents.get(agent.as_usize()).map(|agent| &*agent.name)
    }

    pub fn is_paused(&self, agent: AgentIndex) -> bool {
        self.queues.agents.get(agent.as_usize()).is_some_and(|agent| agent.paused)
    }

    pub fn counts(&self) -> Counts {
        let dirty = self.unsettled.iter().filter(|slot| self.resources[**slot].dirty).count();
        Counts {
            resources: self.resources.count(),
            dirty,
            waiting: self.queues.live() - self.queues.queued(),
            queued: self.queues.queued(),
            running: self.runs.count(),
        }
    }

    /// True if no task is waiting, ready or running.
    pub fn is_idle(&self) -> bool {
        self.runs.count() == 0 && self.queues.live() == 0
    }

    /// True if only the limit on running tasks prevents a start.
    pub fn is_limited(&self) -> bool {
        !self.groups.has_room() && self.groups.next_agent().is_some()
    }

    /// Returns the ready tasks of an agent in execution order.
    pub fn queue(&self, agent: AgentIndex) -> Vec<QueuedTask> {
        if agent.as_usize() >= self.queues.agents.len() {
            return Vec::new();
        }
        let describe = |task: u32| {
            let task = &self.queues[task];
            QueuedTask {
                kind: self.describe_kind(task.kind),
                priority: task.priority,
                reason: self.reason(task.cause),
                requested_at: task.requested_at,
            }
        };
        self.queues.ready_of(agent.0).into_iter().map(describe).collect()
    }

    /// Returns the first tasks that an agent will probably run next. The cost is proportional to
    /// their number.
    pub fn upcoming(&self, agent: AgentIndex, limit: usize) -> Vec<TaskKind> {
        if agent.as_usize() >= self.queues.agents.len() {
            return Vec::new();
        }
        let tasks = self.queues.first_in_lanes(agent.0).take(limit);
        tasks.map(|task| self.describe_kind(self.queues[task].kind)).collect()
    }

    pub(crate) fn describe_kind(&self, kind: Kind) -> TaskKind {
        match kind {
            Kind::Deploy { slot } => TaskKind::Deploy(ResourceIndex(slot)),
            Kind::FactRefresh { slot } => TaskKind::FactRefresh(ResourceIndex(slot)),
            Kind::DryRun { run, entry } => {
                let dry_run = self.dry_runs.get(run).map_or(DryRunId(0), |run| run.id);
                TaskKind::DryRun { dry_run, entry }
            }
        }
    }

    /// Returns the requirements that the resource's task waits for; `None` without a waiting task.
    pub fn waiting_on(&self, resource: ResourceIndex) -> Option<Vec<ResourceIndex>> {
        self.resources.id(resource.0)?;
        let task = self.resources[resource.0].task;
        if task == NONE || self.queues[task].state != TaskState::Waiting {
            return None;
        }
        let mut requirements = self.requirements(resource);
        requirements.retain(|requirement| self.resources[requirement.0].is_scheduled());
        Some(requirements)
    }

    /// Returns priority and reason of the resource's waiting or ready task.
    pub fn scheduled(&self, resource: ResourceIndex) -> Option<(Priority, Reason)> {
        self.resources.id(resource.0)?;
        let task = self.resources[resource.0].task;
        let task = (task != NONE).then(|| &self.queues[task])?;
        Some((task.priority, self.reason(task.cause)))
    }

    /// Returns all running tasks, oldest first.
    pub fn running(&self) -> Vec<RunningTask> {
        let describe = |(_, run): (u32, &crate::run::Run)| RunningTask {
            task: run.task,
            kind: self.describe_kind(run.kind),
            agent: AgentIndex(run.agent),
            priority: run.priority,
            reason: self.reason(run.cause),
            started_at: run.started_at,
            deadline: run.deadline,
        };
        let mut running: Vec<_> = self.runs.iter().map(describe).collect();
        running.sort_unstable_by_key(|run| run.task);
        running
    }

    /// Returns the run time of a task so far.
    pub fn age(&self, task: TaskNumber, now: Timestamp) -> Option<Duration> {
        let run = self.runs.get(self.runs.find(task)?)?;
        Some(now.since(run.started_at))
    }

    /// Recomputes every incrementally maintained counter and compares.
    ///
    /// # Errors
    /// A description of the first inconsistency, which is a defect of the scheduler.
    pub fn check_invariants(&self) -> Result<(), String> {
        let (mut tasks, mut dirty, mut armed) = (self.fact_tasks.len(), 0, 0);
        for slot in self.resources.present() {
            let record = &self.resources[slot];
            let fail = |what: &str| {
                Err(match self.resources.id(slot) {
                    Some(id) => format!("{id}: {what}"),
                    None => format!("slot {slot} without an id: {what}"),
                })
            };
            let required = |test: fn(&crate::resource_table::Record) -> bool| {
                self.edges.requirements(slot).filter(|slot| test(&self.resources[*slot])).count()
            };
            let undeployable = required(|record| record.undeployable);
            if undeployable != record.undeployable_requirements as usize {
                return fail("undeployable requirements are miscounted");
            }
            if required(crate::resource_table::Record::is_known_bad)
                != record.bad_requirements as usize
            {
                return fail("bad requirements are miscounted");
            }
            if record.undeployable != (record.flags.undefined || undeployable > 0)
                || record.undeployable != (record.blocked == Blocked::Blocked)
            {
                return fail("is blocked for no reason, or not blocked for one");
            }
            if record.blocked == Blocked::TemporarilyBlocked && !self.has_bad_requirement(slot) {
                return fail("waits for a bad requirement, and has none");
            }
            if record.dirty && record.blocked != Blocked::NotBlocked {
                return fail("is dirty and blocked");
            }
            if record.task != NONE {
                tasks += 1;
                let task = &self.queues[record.task];
                if task.waiting_on as usize != required(crate::resource_table::Record::is_scheduled)
                {
                    return fail("waiting requirements are miscounted");
                }
                if (task.waiting_on > 0) != (task.state == TaskState::Waiting) {
                    return fail("is ready and waits, or does neither");
                }
            }
            let scheduled = record.is_scheduled() || record.running;
            if record.due != crate::timers::NEVER {
                armed += 1;
                if scheduled {
                    return fail("has a timer while it is scheduled");
                }
            }
            dirty += usize::from(record.unsettled_at != NONE);
        }
        let counts = [
            ("unsettled resources", dirty, self.unsettled.len()),
            ("timers", armed, self.timers.armed()),
        ];
        for (what, counted, kept) in counts {
            if counted != kept {
                return Err(format!("{what}: {counted} counted, {kept} stored"));
            }
        }
        if self.dry_runs.count() == 0 && tasks != self.queues.live() {
            return Err(format!("tasks: {tasks} counted, {} stored", self.queues.live()));
        }
        Ok(())
    }
}
