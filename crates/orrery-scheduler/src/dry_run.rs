//! Dry runs: one task for each resource of a version, independent of the managed version.
//!
//! Dependencies do not order the tasks: they change nothing, so none has to wait.

use orrery_model::{AttributeHash, Timestamp, VersionNumber};
use rustc_hash::FxHashMap;

use crate::command::{DryRunId, DryRunSkip, Priority, SchedulerCommand};
use crate::event::{DryRunRequest, Intent};
use crate::queue::{Cause, Kind, Task};
use crate::scheduler::Scheduler;

/// A dry run with unfinished tasks.
#[derive(Debug)]
pub(crate) struct DryRun {
    pub(crate) id: DryRunId,
    pub(crate) version: VersionNumber,
    pub(crate) hashes: Vec<AttributeHash>,
    /// Number of unfinished tasks.
    remaining: usize,
}

#[derive(Debug, Default)]
pub(crate) struct DryRuns {
    runs: Vec<Option<DryRun>>,
}

impl DryRuns {
    pub(crate) fn get(&self, at: u32) -> Option<&DryRun> {
        self.runs.get(at as usize)?.as_ref()
    }

    pub(crate) fn count(&self) -> usize {
        self.runs.iter().flatten().count()
    }

    fn is_known(&self, id: DryRunId) -> bool {
        self.runs.iter().flatten().any(|run| run.id == id)
    }

    fn insert(&mut self, run: DryRun) -> u32 {
        let free = self.runs.iter().position(Option::is_none).unwrap_or(self.runs.len());
        if free == self.runs.len() {
            self.runs.push(None);
        }
        self.runs[free] = Some(run);
        u32::try_from(free).expect("invariant: few dry runs at a time")
    }
}

impl Scheduler {
    pub(crate) fn start_dry_run(
        &mut self,
        request: DryRunRequest,
        now: Timestamp,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        let DryRunRequest { dry_run, version, resources } = request;
        if self.halted {
            commands.push(SchedulerCommand::DryRunFinished { dry_run, refused: true });
            return;
        }
        // A repeated request: its results are on their way.
        if self.dry_runs.is_known(dry_run) {
            return;
        }
        let undeployable = undeployable_among(&resources);
        let hashes = resources.iter().map(|intent| intent.hash).collect();
        let run = self.dry_runs.insert(DryRun { id: dry_run, version, hashes, remaining: 0 });
        let mut tasks = 0;
        for (entry, (intent, undeployable)) in (0..).zip(resources.iter().zip(undeployable)) {
            let agent = self.intern_agent(intent.id.agent());
            let answer = if intent.flags.undefined {
                DryRunSkip::Undefined
            } else if undeployable {
                DryRunSkip::SkippedForUndefined
            } else if self.queues.agent(agent).paused {
                DryRunSkip::AgentDown
            } else {
                let number = self.next_request_number();
                let kind = Kind::DryRun { run, entry };
                let task = Task::new(kind, Cause::DryRun, Priority::DryRun, agent, number, now);
                let task = self.queues.insert(task);
                self.make_ready(task);
                tasks += 1;
                continue;
            };
            commands.push(SchedulerCommand::DryRunSkipped { dry_run, entry, reason: answer });
        }
        self.count_remaining(run, |_| tasks, commands);
    }

    /// Skips the dry-run tasks of an agent that starts no tasks, so that the dry run can end.
    pub(crate) fn skip_dry_runs(&mut self, agent: u32, commands: &mut Vec<SchedulerCommand>) {
        if self.dry_runs.count() == 0 {
            return;
        }
        for task in self.queues.ready_of(agent) {
            let Kind::DryRun { run, entry } = self.queues[task].kind else {
                continue;
            };
            self.queues.remove(task);
            if let Some(dry_run) = self.dry_runs.get(run).map(|run| run.id) {
                let answer = DryRunSkip::AgentDown;
                commands.push(SchedulerCommand::DryRunSkipped { dry_run, entry, reason: answer });
                self.finish_dry_run_task(run, commands);
            }
        }
        self.wake(agent);
    }

    pub(crate) fn finish_dry_run_task(&mut self, run: u32, commands: &mut Vec<SchedulerCommand>) {
        self.count_remaining(run, |remaining| remaining - 1, commands);
    }

    fn count_remaining(
        &mut self,
        run: u32,
        count: impl Fn(usize) -> usize,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        let Some(entry) = self.dry_runs.runs.get_mut(run as usize) else {
            return;
        };
        if let Some(dry_run) = entry {
            dry_run.remaining = count(dry_run.remaining);
            if dry_run.remaining == 0 {
                commands
                    .push(SchedulerCommand::DryRunFinished { dry_run: dry_run.id, refused: false });
                *entry = None;
            }
        }
    }
}

/// Marks the resources that are undefined or depend, transitively, on one that is. Ids outside the
/// list are ignored.
fn undeployable_among(resources: &[Intent]) -> Vec<bool> {
    let by_id: FxHashMap<&str, usize> =
        resources.iter().enumerate().map(|(at, intent)| (intent.id.as_str(), at)).collect();
    let mut dependents: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
    for (at, intent) in resources.iter().enumerate() {
        for requirement in &intent.requires {
            if let Some(requirement) = by_id.get(requirement.as_str()) {
                dependents.entry(*requirement).or_default().push(at);
            }
        }
    }
    let mut undeployable: Vec<bool> =
        resources.iter().map(|intent| intent.flags.undefined).collect();
    let mut reached: Vec<usize> = (0..resources.len()).filter(|at| undeployable[*at]).collect();
    while let Some(at) = reached.pop() {
        for dependent in dependents.get(&at).into_iter().flatten() {
            if !std::mem::replace(&mut undeployable[*dependent], true) {
                reached.push(*dependent);
            }
        }
    }
    undeployable
}
