//! Second part of the reference model: results, versions and restarts.

use std::collections::BTreeSet;

use orrery_model::{Compliance, LastRunStatus, OutcomeStatus, ResourceState, VersionNumber};
use orrery_scheduler::{CancelReason, Priority, Reason, TaskResult};

use crate::reference::{Cause, ModelResource, Reference, RequestOrder, Running};
use crate::world::Model;

impl Reference {
    // Results.

    pub(crate) fn finish(&mut self, agent: &str, result: TaskResult, order: RequestOrder) {
        let run = self.running.remove(agent).unwrap();
        if run.detached {
            return;
        }
        let name = run.name.clone();
        let was_bad = self.is_bad(&name);
        let stale = {
            let known = &self.known[&name];
            known.state.intent != Some(run.intent) || known.flags.undefined
        };
        let verdict = match result {
            TaskResult::Finished(status) => Some(status),
            TaskResult::Cancelled if run.cancelled == Some(CancelReason::Deadline) => {
                Some(OutcomeStatus::Failed)
            }
            TaskResult::Cancelled => None,
            TaskResult::Parked => Some(OutcomeStatus::Failed),
        };
        match verdict {
            Some(status) => self.apply_verdict(&run, status, stale),
            None => {
                let known = self.known.get_mut(&name).unwrap();
                known.state.last_run_at = Some(self.now);
                self.clear_verdict(&name);
                if self.halted || run.cancelled == Some(CancelReason::Halt) {
                    self.request(&name, run.priority, Cause::Plain(Reason::Interrupted), false);
                }
            }
        }
        let incarnation = self.known[&name].incarnation;
        if was_bad && !self.is_bad(&name) {
            for dependent in self.dependents(&name, order) {
                if self.known[&dependent].waits_for_bad && !self.has_bad_requirement(&dependent) {
                    let known = self.known.get_mut(&dependent).unwrap();
                    (known.waits_for_bad, known.dirty) = (false, true);
                    let cause = Cause::Recovered(name.clone(), incarnation);
                    self.request(&dependent, run.priority, cause, false);
                }
            }
        }
        if verdict.is_some() && !stale && self.known[&name].flags.send_event {
            for dependent in self.dependents(&name, order) {
                let known = &self.known[&dependent];
                if known.flags.receive_events && !known.waits_for_bad {
                    let cause = Cause::Event(name.clone(), incarnation);
                    self.request(&dependent, run.priority, cause, true);
                }
            }
        }
    }

    pub(crate) fn apply_verdict(&mut self, run: &Running, status: OutcomeStatus, stale: bool) {
        let good = status == OutcomeStatus::Deployed;
        let known = self.known.get_mut(&run.name).unwrap();
        let state = &mut known.state;
        state.last_run = LastRunStatus::from(status);
        state.last_run_compliant = Some(good);
        state.last_outcome = Some(status);
        state.last_run_at = Some(self.now);
        state.last_deployed = Some(run.intent);
        if stale {
            return;
        }
        match state.last_run {
            LastRunStatus::Failed => {
                state.attempts += 1;
                if self.settings.retry.attempts_max.is_some_and(|limit| state.attempts >= limit) {
                    state.parked = true;
                }
            }
            LastRunStatus::Successful => (state.attempts, state.parked) = (0, false),
            LastRunStatus::Skipped | LastRunStatus::New => {}
        }
        if good {
            state.last_success = Some(run.started_at);
        }
        if known.flags.send_event {
            state.last_produced_events = Some(self.now);
        }
        if self.is_blocked(&run.name) {
            return;
        }
        let waits =
            status == OutcomeStatus::SkippedForDependency && self.has_bad_requirement(&run.name);
        let dirty = !waits && self.needs_deploy(&run.name);
        let known = self.known.get_mut(&run.name).unwrap();
        (known.waits_for_bad, known.dirty) = (waits, dirty);
    }

    pub(crate) fn clear_verdict(&mut self, name: &str) {
        let known = self.known.get_mut(name).unwrap();
        known.state.last_deployed = None;
        known.state.last_run_compliant = None;
        known.state.last_outcome = None;
        known.waits_for_bad = false;
        let dirty = !self.is_blocked(name) && self.needs_deploy(name);
        self.known.get_mut(name).unwrap().dirty = dirty;
    }

    // Versions and restarts.

    /// Processes versions, oldest first; the last becomes the desired state.
    pub(crate) fn versions(&mut self, versions: &[(u32, Vec<Model>)], order: RequestOrder) {
        let Some((number, last)) = versions.last() else {
            return;
        };
        let was_blocked: BTreeSet<String> =
            self.known.keys().filter(|name| self.is_blocked(name)).cloned().collect();
        let names = |models: &[Model]| -> BTreeSet<String> {
            models.iter().map(|model| model.name.clone()).collect()
        };
        let mut kept: BTreeSet<String> = self.known.keys().cloned().collect();
        for (_, models) in versions {
            kept = kept.intersection(&names(models)).cloned().collect();
        }
        for name in self.known.keys().cloned().collect::<Vec<_>>() {
            if !kept.contains(&name) {
                self.tasks.remove(&name);
                self.known.remove(&name);
                for run in self.running.values_mut().filter(|run| run.name == name) {
                    run.detached = true;
                }
            }
        }
        let mut changed = BTreeSet::new();
        for model in last {
            if self.take_model(model) {
                changed.insert(model.name.clone());
            }
        }
        for name in self.known.keys().cloned().collect::<Vec<_>>() {
            if self.is_blocked(&name) {
                self.tasks.remove(&name);
                let known = self.known.get_mut(&name).unwrap();
                (known.dirty, known.waits_for_bad) = (false, false);
            } else if was_blocked.contains(&name) || changed.contains(&name) {
                let dirty = self.needs_deploy(&name);
                self.known.get_mut(&name).unwrap().dirty = dirty;
            } else if self.known[&name].waits_for_bad && !self.has_bad_requirement(&name) {
                let known = self.known.get_mut(&name).unwrap();
                (known.dirty, known.waits_for_bad) = (true, false);
            }
        }
        let reason = Reason::NewVersion(VersionNumber(*number));
        let (new, tried) = self.dirty_names();
        self.request_all(new, Priority::NewVersion, &reason, order);
        self.request_all(tried, Priority::NewVersion, &reason, order);
    }

    /// Returns unparked dirty resources: untried intents, and the others.
    pub(crate) fn dirty_names(&self) -> (Vec<String>, Vec<String>) {
        let desired_states = |known: &ModelResource| known.dirty && !known.state.parked;
        let is_new =
            |name: &String| self.known[name].state.compliance() == Some(Compliance::HasUpdate);
        let dirty = self.known.iter().filter(|(_, known)| desired_states(known));
        dirty.map(|(name, _)| name.clone()).partition(is_new)
    }

    /// Returns true if the intent is new.
    pub(crate) fn take_model(&mut self, model: &Model) -> bool {
        let intent = model.intent();
        let requires: BTreeSet<String> = model.requires.iter().cloned().collect();
        let Some(known) = self.known.get_mut(&model.name) else {
            self.next_incarnation += 1;
            let known = ModelResource {
                state: ResourceState::new(intent.hash, intent.flags.undefined),
                flags: intent.flags,
                requires,
                agent: intent.id.agent().to_owned(),
                dirty: false,
                waits_for_bad: false,
                incarnation: self.next_incarnation,
                idle_since: self.now,
            };
            self.known.insert(model.name.clone(), known);
            return true;
        };
        known.requires = requires;
        let same = known.state.intent == Some(intent.hash)
            && known.state.undefined == intent.flags.undefined;
        known.flags = intent.flags;
        if same {
            return false;
        }
        let state = &mut known.state;
        (state.intent, state.undefined) = (Some(intent.hash), intent.flags.undefined);
        (state.attempts, state.parked) = (0, false);
        if state.last_deployed == state.intent {
            state.last_deployed = None;
        }
        known.waits_for_bad = false;
        for run in self.running.values_mut().filter(|run| run.name == model.name && !run.detached) {
            run.latest = false;
        }
        true
    }

    pub(crate) fn restart(
        &mut self,
        reset: bool,
        newer: &[(u32, Vec<Model>)],
        order: RequestOrder,
    ) {
        let cut_off: Vec<String> =
            self.running.values().filter(|run| !run.detached).map(|run| run.name.clone()).collect();
        self.running.clear();
        self.tasks.clear();
        for name in cut_off {
            // The wait is decided below, from the state after the interruption.
            let waits = self.known[&name].waits_for_bad;
            self.clear_verdict(&name);
            self.known.get_mut(&name).unwrap().waits_for_bad = waits;
        }
        for name in self.known.keys().cloned().collect::<Vec<_>>() {
            if reset {
                let known = self.known.get_mut(&name).unwrap();
                let intent = known.state.intent.unwrap();
                known.state = ResourceState::new(intent, known.flags.undefined);
            }
        }
        for name in self.known.keys().cloned().collect::<Vec<_>>() {
            let compliance = self.known[&name].state.compliance();
            let blocked = self.is_blocked(&name);
            let waits = self.known[&name].waits_for_bad
                && !blocked
                && compliance == Some(Compliance::NonCompliant)
                && self.has_bad_requirement(&name);
            let unheard =
                compliance == Some(Compliance::Compliant) && self.has_unheard_event(&name);
            let dirty = !blocked && !waits && (self.needs_deploy(&name) || unheard);
            let now = self.now;
            let known = self.known.get_mut(&name).unwrap();
            (known.waits_for_bad, known.dirty, known.idle_since) = (waits, dirty, now);
        }
        if newer.is_empty() {
            let (new, tried) = self.dirty_names();
            let urgent = if reset { Priority::IntervalDeploy } else { Priority::NewVersion };
            self.request_all(new, urgent, &Reason::Restart, order);
            self.request_all(tried, Priority::IntervalDeploy, &Reason::Restart, order);
        } else {
            self.versions(newer, order);
        }
    }

    pub(crate) fn has_unheard_event(&self, name: &str) -> bool {
        let known = &self.known[name];
        known.flags.receive_events
            && known.requires.iter().any(|required| {
                let sender = &self.known[required];
                sender.flags.send_event
                    && sender.state.last_produced_events > known.state.last_success
            })
    }
}
