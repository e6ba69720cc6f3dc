//! The state machine: its state, event handling and command output.

use std::sync::Arc;

use orrery_model::{ResourceId, Timestamp, VersionNumber};
use rustc_hash::FxHashMap;

use crate::command::{ChangedFields, Changes, Reason, ResourceIndex, SchedulerCommand, TaskNumber};
use crate::dispatch::Groups;
use crate::dry_run::DryRuns;
use crate::edges::{Edges, NONE};
use crate::event::Event;
use crate::queue::{Cause, Queues, ResourceRef};
use crate::resource_table::{AgentNames, List, ResourceTable};
use crate::run::Runs;
use crate::settings::Settings;
use crate::timers::Timers;

/// The deploy engine of one environment. See the documentation of the crate.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) settings: Settings,
    /// Last processed version.
    pub(crate) version: Option<VersionNumber>,
    pub(crate) halted: bool,
    pub(crate) resources: ResourceTable,
    pub(crate) edges: Edges,
    pub(crate) queues: Queues,
    pub(crate) agent_names: AgentNames,
    pub(crate) groups: Groups,
    pub(crate) runs: Runs,
    /// Resources that are dirty or reported a difference.
    pub(crate) unsettled: Vec<u32>,
    /// Queued fact refreshes, by slot.
    pub(crate) fact_tasks: FxHashMap<u32, u32>,
    pub(crate) dry_runs: DryRuns,
    /// Repair and retry timers, by slot.
    pub(crate) timers: Timers,
    /// Deadlines of running tasks, by agent.
    pub(crate) deadlines: Timers,
    pub(crate) deploy_cron_at: Option<Timestamp>,
    pub(crate) repair_cron_at: Option<Timestamp>,
    /// True once the cron schedules are set: the first event supplies the time.
    crons_set: bool,
    /// Number of the next request.
    pub(crate) next_request: u64,
    /// Resources with tasks that may wait for less urgent ones.
    pub(crate) inheriting: Vec<u32>,
    /// Agents to dispatch, in the order of their wake-ups.
    pub(crate) woken: Vec<u32>,
    /// Resources with state changes during this event.
    changed: Vec<u32>,
    /// Last requested wake-up.
    requested_wakeup: Option<Timestamp>,
    /// Resources that may be checked for invariants, saved up over events.
    #[cfg(debug_assertions)]
    check_credit: usize,
}

/// Resources that every event pays for in [`Scheduler::assert_invariants`].
#[cfg(debug_assertions)]
const CHECKED_PER_EVENT: usize = 256;

impl Scheduler {
    pub fn new(settings: Settings) -> Self {
        let groups = Groups::new(&settings);
        Scheduler {
            settings,
            version: None,
            halted: false,
            resources: ResourceTable::default(),
            edges: Edges::new(),
            queues: Queues::default(),
            agent_names: AgentNames::default(),
            groups,
            runs: Runs::default(),
            unsettled: Vec::new(),
            fact_tasks: FxHashMap::default(),
            dry_runs: DryRuns::default(),
            timers: Timers::default(),
            deadlines: Timers::default(),
            deploy_cron_at: None,
            repair_cron_at: None,
            crons_set: false,
            next_request: 0,
            inheriting: Vec::new(),
            woken: Vec::new(),
            changed: Vec::new(),
            requested_wakeup: None,
            #[cfg(debug_assertions)]
            check_credit: 0,
        }
    }

    /// Processes one event that happened at `now`; appends the resulting commands.
    ///
    /// Time must not go back from one event to the next.
    pub fn handle(&mut self, event: Event, now: Timestamp, commands: &mut Vec<SchedulerCommand>) {
        if !std::mem::replace(&mut self.crons_set, true) {
            self.rearm_crons(now);
        }
        match event {
            Event::NewVersions(diffs) => self.apply_versions(diffs, now, commands),
            Event::TaskFinished { task, result } => self.finish_task(task, result, now, commands),
            Event::DeployDirty(filter) => self.deploy_dirty(&filter, now),
            Event::Verify(filter) => self.verify_resources(&filter, None, now),
            Event::Drift(filter) => self.verify_drifted(&filter, now),
            Event::ResumeVerify { filter, since } => {
                self.verify_resources(&filter, Some(since), now);
            }
            Event::Cancel(filter) => self.cancel(&filter, now, commands),
            Event::Pause(agents) => self.set_paused(agents, true, commands),
            Event::Unpause(agents) => self.set_paused(agents, false, commands),
            Event::Halt => self.halt(now, commands),
            Event::Resume => self.resume(now),
            Event::SettingsChanged(settings) => self.change_settings(*settings, now, commands),
            Event::RunningMax(running_max) => self.set_running_max(running_max),
            Event::Tick => self.tick(now, commands),
            Event::Recover(recovery) => self.recover(*recovery, now, commands),
            Event::DryRun(request) => self.start_dry_run(request, now, commands),
            Event::FactRefresh(ids) => self.request_facts(&ids, now),
        }
        let starts_at = commands.len();
        self.inherit_priorities();
        self.dispatch(now, commands);
        self.persist(starts_at, commands);
        self.compact_timers();
        self.request_wakeup(now, commands);
        #[cfg(debug_assertions)]
        self.assert_invariants();
    }

    /// Panics if an invariant is broken; in debug builds only.
    ///
    /// A check visits every resource. Up to [`CHECKED_PER_EVENT`] of them, it runs after every
    /// event; beyond, after so many events that it costs each of them the same.
    #[cfg(debug_assertions)]
    fn assert_invariants(&mut self) {
        self.check_credit += CHECKED_PER_EVENT;
        if self.check_credit >= self.resources.count() {
            self.check_credit = 0;
            let checked = self.check_invariants();
            assert!(checked.is_ok(), "defect of the scheduler: {checked:?}");
        }
    }

    /// Inserts a `Persist` of the changed states before the starts.
    fn persist(&mut self, starts_at: usize, commands: &mut Vec<SchedulerCommand>) {
        let mut changes = Changes::new();
        for slot in self.changed.drain(..) {
            let record = &mut self.resources[slot];
            let parts = std::mem::take(&mut record.changed);
            if record.present && parts != ChangedFields::default() {
                changes.push((ResourceIndex(slot), parts));
            }
        }
        if !changes.is_empty() {
            commands.insert(starts_at, SchedulerCommand::Persist(changes));
        }
    }

    /// Records that fields of a resource's state changed.
    pub(crate) fn touch(&mut self, slot: u32, parts: ChangedFields) {
        let record = &mut self.resources[slot];
        if record.changed == ChangedFields::default() {
            self.changed.push(slot);
        }
        record.changed = record.changed | parts;
    }

    fn compact_timers(&mut self) {
        let resources = &self.resources;
        self.timers.compact(|slot| resources[slot].due);
        let queues = &self.queues;
        self.deadlines.compact(|agent| queues.agent(agent).due);
    }

    /// Returns the latest time at which a `Tick` is needed.
    pub fn next_wakeup(&mut self) -> Option<Timestamp> {
        let queues = &self.queues;
        let deadline = self.deadlines.next(|agent| queues.agent(agent).due);
        if self.halted {
            return deadline;
        }
        let resources = &self.resources;
        let timer = self.timers.next(|slot| resources[slot].due);
        [deadline, timer, self.deploy_cron_at, self.repair_cron_at].into_iter().flatten().min()
    }

    /// Requests an earlier wake-up only. A needless wake-up costs less than rescheduling each one.
    fn request_wakeup(&mut self, now: Timestamp, commands: &mut Vec<SchedulerCommand>) {
        self.requested_wakeup = self.requested_wakeup.filter(|asked| *asked > now);
        if let Some(next) = self.next_wakeup()
            && self.requested_wakeup.is_none_or(|asked| next < asked)
        {
            self.requested_wakeup = Some(next);
            commands.push(SchedulerCommand::WakeAt(next));
        }
    }

    /// Returns the agent of this name, created if new.
    pub(crate) fn intern_agent(&mut self, name: &str) -> u32 {
        if let Some(agent) = self.agent_names.find(name) {
            return agent;
        }
        let name: Arc<str> = name.into();
        let group = self.groups.group_of(&name);
        let agent = self.queues.add_agent(name.clone(), group);
        self.agent_names.insert(name, agent);
        agent
    }

    /// Adds an unlisted resource to the managed ones.
    pub(crate) fn enlist(&mut self, slot: u32, set: u32) {
        let agent = match self.resources.id(slot).cloned() {
            Some(id) => self.intern_agent(id.agent()),
            None => return,
        };
        let head = self.queues.agent(agent).resources;
        self.queues.agent_mut(agent).resources = self.resources.join(List::Agent, slot, head);
        self.resources.join_set(slot, set);
        let record = &mut self.resources[slot];
        record.agent = agent;
        record.present = true;
    }

    /// Undoes [`enlist`](Self::enlist) and frees the slot.
    pub(crate) fn delist(&mut self, slot: u32) -> Option<ResourceId> {
        let agent = self.resources[slot].agent;
        if agent != NONE {
            let head = self.queues.agent(agent).resources;
            self.queues.agent_mut(agent).resources = self.resources.leave(List::Agent, slot, head);
        }
        self.resources.leave_set(slot);
        self.resources.release(slot)
    }

    pub(crate) fn resource_ref(&self, slot: u32) -> ResourceRef {
        ResourceRef { slot, generation: self.resources[slot].generation }
    }

    /// Returns the referenced resource, if it still exists.
    pub(crate) fn resolve_ref(&self, resource_ref: ResourceRef) -> Option<&ResourceId> {
        let record = &self.resources[resource_ref.slot];
        let same = record.present && record.generation == resource_ref.generation;
        if same { self.resources.id(resource_ref.slot) } else { None }
    }

    pub(crate) fn reason(&self, cause: Cause) -> Reason {
        let id = |resource_ref| self.resolve_ref(resource_ref).cloned();
        match cause {
            Cause::NewVersion(version) => Reason::NewVersion(version),
            Cause::UserDeployDirty => Reason::UserDeployDirty,
            Cause::UserVerify => Reason::UserVerify,
            Cause::Drift => Reason::Drift,
            Cause::Retry(attempts) => Reason::Retry { attempts },
            Cause::RepairInterval => Reason::RepairInterval,
            Cause::DeployCron => Reason::DeployCron,
            Cause::RepairCron => Reason::RepairCron,
            Cause::Event(from) => Reason::Event { from: id(from) },
            Cause::Recovered(requirement) => Reason::Recovered { requirement: id(requirement) },
            Cause::RequirementScheduled(requirement) => {
                Reason::RequirementScheduled { requirement: id(requirement) }
            }
            Cause::Restart => Reason::Restart,
            Cause::Interrupted => Reason::Interrupted,
            Cause::DryRun => Reason::DryRun,
            Cause::FactRefresh => Reason::FactRefresh,
        }
    }

    /// True if this task was started and has neither ended nor been abandoned.
    pub fn is_running(&self, task: TaskNumber) -> bool {
        self.runs.find(task).is_some()
    }
}
