//! Selection of the tasks to start: one at a time for each agent, within the limits.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_model::{AttributeHash, Duration, Timestamp, VersionNumber};
use rustc_hash::FxHashMap;

use crate::command::{
    AgentIndex, CancelReason, ChangedFields, Dependency, ResourceIndex, SchedulerCommand, Start,
    TaskKind,
};
use crate::edges::NONE;
use crate::queue::Kind;
use crate::run::Run;
use crate::scheduler::Scheduler;
use crate::settings::Settings;
use crate::timers::NEVER;

/// Agents that share a limit. The first group has the agents that no other group names.
#[derive(Debug)]
struct Group {
    name: Arc<str>,
    limit: Option<u32>,
    running: u32,
    /// Agents with a startable task, by the key of that task.
    held: BTreeSet<(u64, u32)>,
}

#[derive(Debug)]
pub(crate) struct Groups {
    groups: Vec<Group>,
    by_agent: FxHashMap<Arc<str>, u32>,
    /// Limit over all groups.
    limit: Option<u32>,
    running: u32,
}

impl Groups {
    pub(crate) fn new(settings: &Settings) -> Self {
        let group = |name: &str, limit| Group {
            name: name.into(),
            limit,
            running: 0,
            held: BTreeSet::new(),
        };
        let mut groups = vec![group("all agents", None)];
        let mut by_agent = FxHashMap::default();
        for (number, given) in (1..).zip(&settings.groups) {
            groups.push(group(&given.name, Some(given.running_max)));
            for agent in &given.agents {
                by_agent.entry(agent.clone()).or_insert(number);
            }
        }
        Groups { groups, by_agent, limit: settings.running_max, running: 0 }
    }

    pub(crate) fn group_of(&self, agent: &str) -> u32 {
        self.by_agent.get(agent).copied().unwrap_or(0)
    }

    fn is_limited(&self, group: u32) -> bool {
        self.limit.is_some() || self.groups[group as usize].limit.is_some()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.running < limit)
    }

    fn count(&mut self, group: u32, change: i32) {
        self.running = self.running.saturating_add_signed(change);
        let running = &mut self.groups[group as usize].running;
        *running = running.saturating_add_signed(change);
    }

    /// Returns the name and value of the limit that blocks this group now.
    pub(crate) fn limit_reached(&self, group: u32) -> Option<(&Arc<str>, u32)> {
        let own = &self.groups[group as usize];
        if let Some(limit) = own.limit
            && own.running >= limit
        {
            return Some((&own.name, limit));
        }
        let limit = self.limit.filter(|limit| self.running >= *limit)?;
        Some((&self.groups[0].name, limit))
    }

    /// Returns the held agent with the most urgent task in a group below its limit.
    pub(crate) fn next_agent(&self) -> Option<u32> {
        let has_room = |group: &&Group| group.limit.is_none_or(|limit| group.running < limit);
        let first = |group: &Group| group.held.first().copied();
        let next_agent = self.groups.iter().filter(has_room).filter_map(first).min()?;
        Some(next_agent.1)
    }
}

impl Scheduler {
    /// Queues an agent for dispatch at the end of this event: its queue, run or pause changed.
    pub(crate) fn wake(&mut self, agent: u32) {
        let entry = self.queues.agent_mut(agent);
        if !entry.woken {
            entry.woken = true;
            self.woken.push(agent);
        }
    }

    /// Starts all startable tasks. Runs after every other effect of the event.
    pub(crate) fn dispatch(&mut self, now: Timestamp, commands: &mut Vec<SchedulerCommand>) {
        let mut woken = std::mem::take(&mut self.woken);
        for agent in woken.drain(..) {
            let group = {
                let entry = self.queues.agent_mut(agent);
                entry.woken = false;
                if let Some(key) = entry.held.take() {
                    self.groups.groups[entry.group as usize].held.remove(&(key, agent));
                }
                entry.group
            };
            let Some(task) = self.next_startable(agent) else {
                continue;
            };
            if self.groups.is_limited(group) {
                let key = self.queues[task].key();
                self.queues.agent_mut(agent).held = Some(key);
                self.groups.groups[group as usize].held.insert((key, agent));
            } else {
                self.start(agent, task, now, commands);
            }
        }
        self.woken = woken;
        while self.groups.has_room()
            && let Some(agent) = self.groups.next_agent()
        {
            let entry = self.queues.agent_mut(agent);
            if let Some(key) = entry.held.take() {
                self.groups.groups[entry.group as usize].held.remove(&(key, agent));
            }
            if let Some(task) = self.next_startable(agent) {
                self.start(agent, task, now, commands);
            }
        }
    }

    /// Returns the task that the agent would start now. A pause is a barrier, so it is checked
    /// last.
    fn next_startable(&mut self, agent: u32) -> Option<u32> {
        let entry = self.queues.agent(agent);
        if self.halted || entry.paused || entry.run != NONE {
            return None;
        }
        self.queues.next_of(agent)
    }

    fn start(
        &mut self,
        agent: u32,
        task: u32,
        now: Timestamp,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        let task = self.queues.remove(task);
        let version = self.version.unwrap_or(VersionNumber(0));
        let mut dependencies = Vec::new();
        let (kind, intent, version, generation) = match task.kind {
            Kind::Deploy { slot } => {
                let record = &mut self.resources[slot];
                record.task = NONE;
                record.running = true;
                record.running_latest = true;
                let (intent, generation) = (record.intent, record.generation);
                if self.edges.has_requirements(slot) {
                    dependencies = self.dependencies_of(slot);
                }
                self.touch(slot, ChangedFields::DEPLOYING);
                (TaskKind::Deploy(ResourceIndex(slot)), intent, version, generation)
            }
            Kind::FactRefresh { slot } => {
                self.fact_tasks.remove(&slot);
                let record = &self.resources[slot];
                let kind = TaskKind::FactRefresh(ResourceIndex(slot));
                (kind, record.intent, version, record.generation)
            }
            Kind::DryRun { run, entry } => match self.dry_runs.get(run) {
                Some(dry_run) => {
                    let intent = dry_run.hashes.get(entry as usize).copied();
                    let kind = TaskKind::DryRun { dry_run: dry_run.id, entry };
                    (kind, intent.unwrap_or(AttributeHash([0; 16])), dry_run.version, 0)
                }
                None => return,
            },
        };
        let deadline = self.settings.task_time_max.map(|time| now + time);
        let number = self.runs.next_number();
        let reason = self.reason(task.cause);
        let run = self.runs.insert(Run {
            task: number,
            kind: task.kind,
            agent,
            priority: task.priority,
            cause: task.cause,
            intent,
            generation,
            started_at: now,
            deadline,
            cancelled: None,
        });
        let entry = self.queues.agent_mut(agent);
        entry.run = run;
        let group = entry.group;
        self.groups.count(group, 1);
        self.set_due(agent, deadline.unwrap_or(NEVER));
        commands.push(SchedulerCommand::Start(Start {
            task: number,
            kind,
            agent: AgentIndex(agent),
            intent,
            version,
            dependencies,
            deadline,
            priority: task.priority,
            reason,
        }));
    }

    pub(crate) fn dependencies_of(&self, slot: u32) -> Vec<Dependency> {
        let status = |requirement: u32| Dependency {
            resource: ResourceIndex(requirement),
            status: self.resources[requirement].status_for_dependents(),
        };
        let mut dependencies: Vec<_> = self.edges.requirements(slot).map(status).collect();
        dependencies.sort_unstable_by_key(|dependency| dependency.resource);
        dependencies
    }

    /// Ends a run and frees its agent.
    pub(crate) fn end_run(&mut self, at: u32) -> Option<Run> {
        let run = self.runs.remove(at)?;
        let entry = self.queues.agent_mut(run.agent);
        entry.run = NONE;
        let group = entry.group;
        self.groups.count(group, -1);
        self.set_due(run.agent, NEVER);
        self.wake(run.agent);
        Some(run)
    }

    pub(crate) fn set_due(&mut self, agent: u32, due: Timestamp) {
        let entry = self.queues.agent_mut(agent);
        let old = std::mem::replace(&mut entry.due, due);
        self.deadlines.change(agent, old, due);
    }

    /// Cancels a running task, with a grace period. An earlier cancellation keeps its reason.
    pub(crate) fn cancel_run(
        &mut self,
        at: u32,
        reason: CancelReason,
        now: Timestamp,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        let grace: Duration = self.settings.cancel_time_max;
        let Some(run) = self.runs.get_mut(at) else {
            return;
        };
        if run.cancelled.is_none() {
            run.cancelled = Some(reason);
            let (task, agent) = (run.task, run.agent);
            self.set_due(agent, now + grace);
            commands.push(SchedulerCommand::Cancel { task, reason });
        }
    }

    /// Changes the limit on running tasks without regrouping, in constant time.
    pub(crate) fn set_running_max(&mut self, running_max: Option<u32>) {
        let was_limited = self.groups.limit.is_some();
        self.settings.running_max = running_max;
        self.groups.limit = running_max;
        if was_limited != running_max.is_some() {
            self.regroup();
        }
    }

    /// Assigns the agents to the groups of new settings.
    pub(crate) fn regroup(&mut self) {
        self.groups = Groups::new(&self.settings);
        for agent in 0..u32::try_from(self.queues.agents.len()).unwrap_or(NONE) {
            let group = self.groups.group_of(&self.queues.agent(agent).name);
            let entry = self.queues.agent_mut(agent);
            entry.group = group;
            entry.held = None;
            if entry.run != NONE {
                self.groups.count(group, 1);
            }
            self.wake(agent);
        }
    }
}
