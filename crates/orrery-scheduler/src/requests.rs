//! What people ask for: deploys, repairs, cancellations, pauses, halts, facts.

use std::sync::Arc;

use orrery_model::{Blocked, ResourceId, Timestamp};

use crate::command::{CancelReason, Command, Parts, Priority};
use crate::edges::NONE;
use crate::event::Filter;
use crate::queue::{Cause, Kind, Task};
use crate::scheduler::Scheduler;
use crate::table::List;

impl Scheduler {
    /// Tries what is not as wanted. Who names a resource wants it tried even if it waits for a bad one.
    pub(crate) fn user_deploy(&mut self, filter: &Filter, now: Timestamp) {
        let slots = match &filter.ids {
            Some(_) => self.matching(filter),
            None => {
                let agents = self.agents_of(filter);
                let mut dirty = self.dirty();
                if let Some(agents) = agents {
                    dirty.retain(|slot| agents.contains(&self.resources[*slot].agent));
                }
                dirty
            }
        };
        let wanted = |slot: &u32| {
            let record = &self.resources[*slot];
            record.dirty || record.blocked == Blocked::TemporarilyBlocked
        };
        let slots: Vec<u32> = slots.into_iter().filter(wanted).collect();
        self.unpark(&slots);
        self.request_all(slots, Priority::UserDeploy, Cause::UserDeploy, now);
    }

    /// Verifies everything that can be deployed, but for what has been since the repair began. That something is
    /// to be verified makes nothing dirty: a version or a deploy that comes meanwhile must not raise it.
    pub(crate) fn user_repair(
        &mut self,
        filter: &Filter,
        since: Option<Timestamp>,
        now: Timestamp,
    ) {
        let mut slots = self.matching(filter);
        slots.retain(|slot| {
            let record = &self.resources[*slot];
            let done = since.is_some() && !record.dirty && record.last_success.get() >= since;
            !record.undeployable && !done
        });
        self.unpark(&slots);
        self.request_all(slots, Priority::UserRepair, Cause::UserRepair, now);
    }

    fn unpark(&mut self, slots: &[u32]) {
        for slot in slots {
            let record = &mut self.resources[*slot];
            if record.parked {
                record.parked = false;
                record.attempts = 0;
                self.touch(*slot, Parts::RUN);
            }
        }
    }

    /// The known agents that a filter names; `None` if it names none.
    fn agents_of(&self, filter: &Filter) -> Option<Vec<u32>> {
        let names = filter.agents.as_ref()?;
        let mut agents: Vec<u32> =
            names.iter().filter_map(|name| self.agent_names.find(name)).collect();
        agents.sort_unstable();
        agents.dedup();
        Some(agents)
    }

    /// The resources that a filter means. All of them are looked at only if it says nothing.
    pub(crate) fn matching(&self, filter: &Filter) -> Vec<u32> {
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

    /// Takes back what has not begun and stops what has. The resources stay as dirty as they were.
    pub(crate) fn cancel(&mut self, filter: &Filter, now: Timestamp, commands: &mut Vec<Command>) {
        for slot in self.matching(filter) {
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

    /// An agent that nobody knows yet can be paused too: its name is in the request, its work may come.
    pub(crate) fn set_paused(
        &mut self,
        names: Option<Vec<Arc<str>>>,
        paused: bool,
        commands: &mut Vec<Command>,
    ) {
        let agents: Vec<u32> = match names {
            Some(names) => names.iter().map(|name| self.intern_agent(name)).collect(),
            None => (0..).take(self.queues.agents.len()).collect(),
        };
        for agent in agents {
            self.queues.agent_mut(agent).paused = paused;
            self.wake(agent);
            if paused {
                self.answer_dry_runs(agent, commands);
            }
        }
    }

    pub(crate) fn halt(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        self.halted = true;
        for agent in (0..).take(self.queues.agents.len()) {
            self.answer_dry_runs(agent, commands);
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
            let number = self.take_request_number();
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
