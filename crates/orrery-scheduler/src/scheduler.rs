//! The state machine itself: what it keeps, how an event enters and how commands leave.

use std::sync::Arc;

use orrery_model::{ResourceId, Timestamp, VersionNumber};
use rustc_hash::FxHashMap;

use crate::command::{Changes, Command, Parts, Reason, ResourceIndex, TaskNumber};
use crate::dispatch::Groups;
use crate::dry_run::DryRuns;
use crate::edges::{Edges, NONE};
use crate::event::Event;
use crate::queue::{Cause, Mention, Queues};
use crate::run::Runs;
use crate::settings::Settings;
use crate::table::{List, Names, Table};
use crate::timers::Timers;

/// The deploy engine of one environment. See the documentation of the crate.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) settings: Settings,
    /// The last version that was processed.
    pub(crate) version: Option<VersionNumber>,
    pub(crate) halted: bool,
    pub(crate) resources: Table,
    pub(crate) edges: Edges,
    pub(crate) queues: Queues,
    pub(crate) agent_names: Names,
    pub(crate) groups: Groups,
    pub(crate) runs: Runs,
    /// Resources that are dirty, or report that something differs.
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
    /// Whether the cron jobs have been set: only the first event tells what time it is.
    crons_set: bool,
    /// Number of the next request.
    pub(crate) next_request: u64,
    /// Resources whose tasks may wait for less urgent ones.
    pub(crate) lifting: Vec<u32>,
    /// Agents that may have something to start, in the order in which that became so.
    pub(crate) woken: Vec<u32>,
    /// Resources whose state changed during this event.
    changed: Vec<u32>,
    /// The wake-up that was last asked for.
    asked_wakeup: Option<Timestamp>,
}

impl Scheduler {
    pub fn new(settings: Settings) -> Self {
        let groups = Groups::new(&settings);
        Scheduler {
            settings,
            version: None,
            halted: false,
            resources: Table::default(),
            edges: Edges::new(),
            queues: Queues::default(),
            agent_names: Names::default(),
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
            lifting: Vec::new(),
            woken: Vec::new(),
            changed: Vec::new(),
            asked_wakeup: None,
        }
    }

    /// Takes in one event that happened at `now`; appends what is to be done to `commands`.
    ///
    /// Time must not go back from one event to the next.
    pub fn handle(&mut self, event: Event, now: Timestamp, commands: &mut Vec<Command>) {
        if !std::mem::replace(&mut self.crons_set, true) {
            self.rearm_crons(now);
        }
        match event {
            Event::NewVersions(diffs) => self.new_versions(diffs, now, commands),
            Event::TaskFinished { task, result } => self.task_finished(task, result, now, commands),
            Event::Deploy(filter) => self.user_deploy(&filter, now),
            Event::Repair(filter) => self.user_repair(&filter, None, now),
            Event::ContinueRepair { filter, since } => {
                self.user_repair(&filter, Some(since), now);
            }
            Event::Cancel(filter) => self.cancel(&filter, now, commands),
            Event::Pause(agents) => self.set_paused(agents, true, commands),
            Event::Unpause(agents) => self.set_paused(agents, false, commands),
            Event::Halt => self.halt(now, commands),
            Event::Resume => self.resume(now),
            Event::SettingsChanged(settings) => self.change_settings(*settings, now, commands),
            Event::Room(running_max) => self.set_room(running_max),
            Event::Tick => self.tick(now, commands),
            Event::Recover(recovery) => self.recover(*recovery, now, commands),
            Event::DryRun(request) => self.start_dry_run(request, now, commands),
            Event::FactRefresh(ids) => self.request_facts(&ids, now),
        }
        let starts_at = commands.len();
        self.lift_requirements();
        self.dispatch(now, commands);
        self.persist(starts_at, commands);
        self.tidy();
        self.ask_for_wakeup(now, commands);
    }

    /// Names what changed, in front of the tasks that are to start.
    fn persist(&mut self, starts_at: usize, commands: &mut Vec<Command>) {
        let mut changes = Changes::new();
        for slot in self.changed.drain(..) {
            let record = &mut self.resources[slot];
            let parts = std::mem::take(&mut record.changed);
            if record.present && parts != Parts::default() {
                changes.push((ResourceIndex(slot), parts));
            }
        }
        if !changes.is_empty() {
            commands.insert(starts_at, Command::Persist(changes));
        }
    }

    /// Remembers that a part of a resource's state changed.
    pub(crate) fn touch(&mut self, slot: u32, parts: Parts) {
        let record = &mut self.resources[slot];
        if record.changed == Parts::default() {
            self.changed.push(slot);
        }
        record.changed = record.changed | parts;
    }

    fn tidy(&mut self) {
        let resources = &self.resources;
        self.timers.tidy(|slot| resources[slot].due);
        let queues = &self.queues;
        self.deadlines.tidy(|agent| queues.agent(agent).due);
    }

    /// When a `Tick` is needed at the latest.
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

    /// A wake-up that was asked for and turned out to be needless costs less than asking for each anew.
    fn ask_for_wakeup(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        self.asked_wakeup = self.asked_wakeup.filter(|asked| *asked > now);
        if let Some(next) = self.next_wakeup()
            && self.asked_wakeup.is_none_or(|asked| next < asked)
        {
            self.asked_wakeup = Some(next);
            commands.push(Command::WakeAt(next));
        }
    }

    /// The agent of this name, made if it is new.
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

    /// Puts a resource, which is in no list yet, among the managed ones.
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

    pub(crate) fn mention(&self, slot: u32) -> Mention {
        Mention { slot, generation: self.resources[slot].generation }
    }

    /// The resource that was meant, if it is still there.
    pub(crate) fn mentioned(&self, mention: Mention) -> Option<&ResourceId> {
        let record = &self.resources[mention.slot];
        let same = record.present && record.generation == mention.generation;
        if same { self.resources.id(mention.slot) } else { None }
    }

    pub(crate) fn reason(&self, cause: Cause) -> Reason {
        let id = |mention| self.mentioned(mention).cloned();
        match cause {
            Cause::NewVersion(version) => Reason::NewVersion(version),
            Cause::UserDeploy => Reason::UserDeploy,
            Cause::UserRepair => Reason::UserRepair,
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

    /// Whether this task was started and has neither ended nor been given up.
    pub fn is_running(&self, task: TaskNumber) -> bool {
        self.runs.find(task).is_some()
    }
}
