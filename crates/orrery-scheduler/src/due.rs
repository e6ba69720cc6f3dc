//! Processing of due timers: retries, repairs, cron schedules and deadlines.

use orrery_model::{Blocked, Compliance, LastRunStatus, ResourceId, ResourceState, Timestamp};

use crate::command::{CancelReason, ChangedFields, Priority, SchedulerCommand};
use crate::event::TaskResult;
use crate::queue::Cause;
use crate::resource_table::stable_hash;
use crate::schedule::RerunPolicy;
use crate::scheduler::Scheduler;
use crate::settings::{Interval, Settings};
use crate::timers::NEVER;

/// Purpose of a resource's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerKind {
    /// Retries a resource that is not compliant.
    Retry,
    /// Verifies a resource that was compliant when last run.
    Repair,
}

impl Settings {
    /// Returns the next timer of an idle, unparked resource, from intervals that are durations.
    fn timer_after(
        &self,
        last_run: Timestamp,
        attempts: u32,
        settled: bool,
        id: &ResourceId,
    ) -> Option<(Timestamp, TimerKind)> {
        let repair = match self.repair_interval {
            Interval::Every(interval) => Some((last_run + interval, TimerKind::Repair)),
            Interval::Off | Interval::Cron(_) => None,
        };
        let retry = match self.deploy_interval {
            Interval::Every(interval) if !settled => {
                let number = if self.retry.jitter_percent > 0 { stable_hash(id) } else { 0 };
                let delay = self.retry.delay_after(attempts, interval, self.seed, number);
                Some((last_run + delay, TimerKind::Retry))
            }
            Interval::Every(_) | Interval::Off | Interval::Cron(_) => None,
        };
        match (retry, repair) {
            (Some(retry), Some(repair)) if repair.0 < retry.0 => Some(repair),
            (retry, repair) => retry.or(repair),
        }
    }

    /// Returns the time and kind of the next automatic run of an idle resource in this state,
    /// without a scheduler. A past time means as soon as the agent is free. `None`: never.
    pub fn next_run(
        &self,
        id: &ResourceId,
        state: &ResourceState,
        now: Timestamp,
    ) -> Option<(Timestamp, TimerKind)> {
        let compliance = state.compliance()?;
        let cannot = compliance == Compliance::Undefined || state.blocked == Blocked::Blocked;
        if cannot || state.parked {
            return None;
        }
        let settled =
            state.blocked == Blocked::TemporarilyBlocked || compliance == Compliance::Compliant;
        let last_run = state.last_run_at.unwrap_or(now);
        let timer = self.timer_after(last_run, state.attempts, settled, id);
        let cron = |interval: &Interval, kind| match interval {
            Interval::Cron(cron) => Some((cron.next_after(now)?, kind)),
            Interval::Off | Interval::Every(_) => None,
        };
        let retry = cron(&self.deploy_interval, TimerKind::Retry).filter(|_| !settled);
        let repair = cron(&self.repair_interval, TimerKind::Repair);
        [timer, retry, repair].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

impl Scheduler {
    pub(crate) fn tick(&mut self, now: Timestamp, commands: &mut Vec<SchedulerCommand>) {
        self.end_overdue_runs(now, commands);
        if self.halted {
            return;
        }
        loop {
            let resources = &self.resources;
            let Some(slot) = self.timers.pop_due(now, |slot| resources[slot].due) else {
                break;
            };
            let kind = self.timer_of(slot, now);
            self.set_timer(slot, NEVER);
            let attempts = self.resources[slot].attempts;
            let (priority, cause) = match kind {
                Some((_, TimerKind::Retry)) => (Priority::IntervalDeploy, Cause::Retry(attempts)),
                Some((_, TimerKind::Repair)) => (Priority::IntervalRepair, Cause::RepairInterval),
                None => continue,
            };
            self.request(slot, priority, cause, RerunPolicy::IfStale, now);
        }
        if self.deploy_cron_at.is_some_and(|at| at <= now) {
            // A resource that reported a difference is not dirty, but only a retry detects that the
            // difference is gone.
            let unsettled: Vec<u32> = self
                .unsettled
                .iter()
                .copied()
                .filter(|slot| !self.resources[*slot].parked)
                .collect();
            self.request_all(unsettled, Priority::IntervalDeploy, Cause::DeployCron, now);
        }
        if self.repair_cron_at.is_some_and(|at| at <= now) {
            let resources = &self.resources;
            let all = resources.present().filter(|slot| !resources[*slot].parked).collect();
            self.request_all(all, Priority::IntervalRepair, Cause::RepairCron, now);
        }
        self.advance_crons(now);
    }

    /// Cancels runs past their deadline, and abandons cancelled runs that do not end.
    fn end_overdue_runs(&mut self, now: Timestamp, commands: &mut Vec<SchedulerCommand>) {
        loop {
            let queues = &self.queues;
            let Some(agent) = self.deadlines.pop_due(now, |agent| queues.agent(agent).due) else {
                break;
            };
            self.set_due(agent, NEVER);
            let at = self.queues.agent(agent).run;
            let Some(run) = self.runs.get(at) else {
                continue;
            };
            if run.cancelled.is_none() {
                self.cancel_run(at, CancelReason::Deadline, now, commands);
            } else {
                commands.push(SchedulerCommand::GaveUp { task: run.task });
                self.finish(at, TaskResult::Cancelled, now, commands);
            }
        }
    }

    /// Returns the time and kind of the resource's next timer.
    pub(crate) fn timer_of(&self, slot: u32, now: Timestamp) -> Option<(Timestamp, TimerKind)> {
        let record = &self.resources[slot];
        if record.undeployable || record.parked || record.running || record.is_scheduled() {
            return None;
        }
        let last_run = record.last_run_at.get().unwrap_or(now);
        let settled = record.blocked == Blocked::TemporarilyBlocked
            || (record.compliance() == Compliance::Compliant && !record.dirty);
        let id = self.resources.id(slot)?;
        self.settings.timer_after(last_run, record.attempts, settled, id)
    }

    /// Sets the timer of a resource according to its state.
    pub(crate) fn arm(&mut self, slot: u32, now: Timestamp) {
        let due = self.timer_of(slot, now).map_or(NEVER, |(at, _)| at);
        self.set_timer(slot, due);
    }

    pub(crate) fn disarm(&mut self, slot: u32) {
        self.set_timer(slot, NEVER);
    }

    fn set_timer(&mut self, slot: u32, due: Timestamp) {
        let old = std::mem::replace(&mut self.resources[slot].due, due);
        self.timers.change(slot, old, due);
    }

    /// Sets both cron schedules to their first time after `now`: missed times are not caught up.
    pub(crate) fn rearm_crons(&mut self, now: Timestamp) {
        let next = |interval: &Interval| match interval {
            Interval::Cron(cron) => cron.next_after(now),
            Interval::Off | Interval::Every(_) => None,
        };
        self.deploy_cron_at = next(&self.settings.deploy_interval);
        self.repair_cron_at = next(&self.settings.repair_interval);
    }

    /// Parks resources that have reached the limit of failed attempts. Scheduled and running ones
    /// are checked when their run ends.
    fn park_failed(&mut self, commands: &mut Vec<SchedulerCommand>) {
        let Some(limit) = self.settings.retry.attempts_max else { return };
        let all: Vec<u32> = self.resources.present().collect();
        for slot in all {
            let record = &mut self.resources[slot];
            let has_failed = record.last_run == LastRunStatus::Failed && record.attempts >= limit;
            if !has_failed || record.parked || record.running || record.is_scheduled() {
                continue;
            }
            record.parked = true;
            let attempts = record.attempts;
            self.touch(slot, ChangedFields::RUN);
            if let Some(id) = self.resources.id(slot).cloned() {
                commands.push(SchedulerCommand::Parked { id, attempts });
            }
        }
    }

    fn advance_crons(&mut self, now: Timestamp) {
        let passed = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        if passed(self.deploy_cron_at) || passed(self.repair_cron_at) {
            self.rearm_crons(now);
        }
    }

    pub(crate) fn change_settings(
        &mut self,
        settings: Settings,
        now: Timestamp,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        let old = std::mem::replace(&mut self.settings, settings);
        let new = &self.settings;
        let same_timers = old.deploy_interval == new.deploy_interval
            && old.repair_interval == new.repair_interval
            && old.retry == new.retry
            && old.seed == new.seed;
        if old.groups != new.groups || old.running_max != new.running_max {
            self.regroup();
        }
        if old.retry.attempts_max != self.settings.retry.attempts_max {
            self.park_failed(commands);
        }
        if !same_timers {
            self.rearm_crons(now);
            let all: Vec<u32> = self.resources.present().collect();
            for slot in all {
                self.arm(slot, now);
            }
        }
    }
}
