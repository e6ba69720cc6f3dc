//! User requests: deploys, repairs, cancellations, pauses, halts, fact refreshes.

use std::sync::Arc;

use orrery_model::{Blocked, ResourceId, Timestamp};

use crate::command::{CancelReason, ChangedFields, Priority, SchedulerCommand};
use crate::edges::NONE;
use crate::event::Filter;
use crate::queue::{Cause, Kind, Task};
use crate::resource_table::List;
use crate::scheduler::Scheduler;

impl Scheduler {
    /// Requests the dirty resources in scope. A resource named by id also runs if it waits for a
    /// bad requirement.
    pub(crate) fn deploy_dirty(&mut self, filter: &Filter, now: Timestamp) {
        let slots = match &filter.ids {
            Some(_) => self.slots_matching(filter),
            None => {
                let agents = self.agents_of(filter);
                let mut dirty = self.dirty();
                if let Some(agents) = agents {
                    dirty.retain(|slot| agents.contains(&self.resources[*slot].agent));
                }
                dirty
            }
        };
        let is_requested = |slot: &u32| {
            let record = &self.resources[*slot];
            record.dirty || record.blocked == Blocked::TemporarilyBlocked
        };
        let slots: Vec<u32> = slots.into_iter().filter(is_requested).collect();
        self.unpark(&slots);
        self.request_all(slots, Priority::UserDeployDirty, Cause::UserDeployDirty, now);
    }

    /// Requests all deployable resources in scope, except those with a successful run since
    /// `since`. It makes no resource dirty: a version or a deploy must not raise a pending
    /// verification.
    pub(crate) fn verify_resources(
        &mut self,
        filter: &Filter,
        since: Option<Timestamp>,
        now: Timestamp,
    ) {
        let mut slots = self.slots_matching(filter);
        slots.retain(|slot| {
            let record = &self.resources[*slot];
            let done = since.is_some() && !record.dirty && record.last_success.get() >= since;
            !record.undeployable && !done
        });
        self.unpark(&slots);
        self.request_all(slots, Priority::UserVerify, Cause::UserVerify, now);
    }

    /// Requests resources whose files changed. A pending version or a failure takes precedence: it
    /// runs them anyway.
    pub(crate) fn verify_drifted(&mut self, filter: &Filter, now: Timestamp) {
        let mut slots = self.slots_matching(filter);
        slots.retain(|slot| {
            let record = &self.resources[*slot];
            !record.undeployable && !record.parked
        });
        self.request_all(slots, Priority::IntervalDeploy, Cause::Drift, now);
    }

    fn unpark(&mut self, slots: &[u32]) {
        for slot in slots {
            let record = &mut self.resources[*slot];
            if record.parked {
                record.parked = false;
                record.attempts = 0;
                self.touch(*slot, ChangedFields::RUN);
            }
        }
    }

    /// Returns the known agents that a filter names; `None` if it has no agents.
    fn agents_of(&self, filter: &Filter) -> Option<Vec<u32>> {
        let names = filter.agents.as_ref()?;
        let mut agents: Vec<u32> =
            names.iter().filter_map(|name| self.agent_names.find(name)).collect();
        agents.sort_unstable();
        agents.dedup();
        Some(agents)
    }

    /// Returns the slots that match a filter. Scans all resources only for an empty filter.
    pub(crate) fn slots_matching(&self, filter: &Filter) -> Vec<u32> {
        let agents = self.agents_of(filter);
        if let Some(ids) = &filter.ids {
            let found = ids.iter().filter_map(|id| self.resources.find(id.as_str()));
            let mut slots: Vec<u32> = found
                .filter(|slot| {
                    let agent = self.resources[*slot].agent;
                    agents.as_ref().is_none_or(|agents| agents.contains(&agent))
                })
                .collect();
            slots.sort_unstable();
            slots.dedup();
            return slots;
        }
        let Some(agents) = agents else {
            return self.resources.present().collect();
        };
        let mut slots = Vec::new();
        for agent in agents {
            let mut slot = self.queues.agent(agent).resources;
            while slot != NONE {
                slots.push(slot);
                slot = self.resources.next_in(List::Agent, slot);
            }
        }
        slots
    }

    /// Removes queued tasks and cancels running ones. Dirty resources stay dirty.
    pub(crate) fn cancel(
        &mut self,
        filter: &Filter,
        now: Timestamp,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        for slot in self.slots_matching(filter) {
            if self.resources[slot].task != NONE {
                self.remove_task(slot);
                self.arm(slot, now);
            }
            if self.resources[slot].running {
                let run = self.queues.agent(self.resources[slot].agent).run;
                self.cancel_run(run, CancelReason::User, now, commands);
            }
        }
    }

    /// Pauses or unpauses agents. An unknown name is accepted: its resources may come later.
    pub(crate) fn set_paused(
        &mut self,
        names: Option<Vec<Arc<str>>>,
        paused: bool,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        let agents: Vec<u32> = match names {
            Some(names) => names.iter().map(|name| self.intern_agent(name)).collect(),
            None => (0..).take(self.queues.agents.len()).collect(),
        };
        for agent in agents {
            self.queues.agent_mut(agent).paused = paused;
            self.wake(agent);
            if paused {
                self.skip_dry_runs(agent, commands);
            }
        }
    }

    pub(crate) fn halt(&mut self, now: Timestamp, commands: &mut Vec<SchedulerCommand>) {
        self.halted = true;
        for agent in (0..).take(self.queues.agents.len()) {
            self.skip_dry_runs(agent, commands);
        }
        let running: Vec<u32> = self.runs.iter().map(|(at, _)| at).collect();
        for at in running {
            self.cancel_run(at, CancelReason::Halt, now, commands);
        }
    }

    pub(crate) fn resume(&mut self, now: Timestamp) {
        if !std::mem::take(&mut self.halted) {
            return;
        }
        self.rearm_crons(now);
        for agent in (0..).take(self.queues.agents.len()) {
            self.wake(agent);
        }
    }

    pub(crate) fn request_facts(&mut self, ids: &[ResourceId], now: Timestamp) {
        for id in ids {
            let Some(slot) = self.resources.find(id.as_str()) else {
                continue;
            };
            let record = &self.resources[slot];
            if record.undeployable || self.fact_tasks.contains_key(&slot) {
                continue;
            }
            let agent = record.agent;
            let number = self.next_request_number();
            let (kind, priority) = (Kind::FactRefresh { slot }, Priority::FactRefresh);
            let task = Task::new(kind, Cause::FactRefresh, priority, agent, number, now);
            let task = self.queues.insert(task);
            self.fact_tasks.insert(slot, task);
            self.make_ready(task);
        }
    }

    pub(crate) fn remove_fact_task(&mut self, slot: u32) {
        if let Some(task) = self.fact_tasks.remove(&slot) {
            let removed = self.queues.remove(task);
            self.wake(removed.agent);
        }
    }
}
