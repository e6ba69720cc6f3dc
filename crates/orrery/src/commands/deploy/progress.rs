//! Progress of a local engine: a bar on a terminal, a line per change, and failures at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orrery_executor::{Engine, FinishedRun, Progress, Tally};
use orrery_model::ResourceId;
use orrery_scheduler::{Event, Filter};

use crate::signals::Interrupt;
use crate::style;

use super::progress_bar::{Bar, State};
use super::results::{CHANGES_MAX, RunResult, closing_lines};

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time at which failures are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Failures {
    /// At the end, grouped by cause.
    AtTheEnd,
    /// Immediately: the run has no end.
    AtOnce,
}

/// Display of a run.
pub(super) struct RunDisplay {
    bar: Bar,
    quiet: bool,
    failures: Failures,
    lines: usize,
    untold: usize,
    /// The last failed run of each resource.
    bad: BTreeMap<String, RunResult>,
    /// Resources that were reported before the run.
    reported: BTreeSet<ResourceId>,
}

impl RunDisplay {
    pub(super) fn new(quiet: bool, failures: Failures) -> Self {
        RunDisplay {
            bar: Bar::new(quiet),
            quiet,
            failures,
            lines: 0,
            untold: 0,
            bad: BTreeMap::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Hides resources that were reported before.
    pub(super) fn without(mut self, reported: BTreeSet<ResourceId>) -> Self {
        self.reported = reported;
        self
    }

    /// Shows only a bar.
    pub(super) fn only_bar(quiet: bool) -> Self {
        RunDisplay { bar: Bar::new(quiet), ..RunDisplay::new(true, Failures::AtTheEnd) }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.bar.elapsed()
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        for warning in &progress.warnings {
            self.bar.print_above(&format!(
                "{}: {}",
                style::warning("warning"),
                style::sanitize(warning)
            ));
        }
        if !self.quiet {
            progress.finished.iter().for_each(|finished| self.print_finished(finished));
        }
        self.bar.draw(&state_of(progress));
    }

    fn print_finished(&mut self, finished: &FinishedRun) {
        if self.reported.contains(&finished.id) {
            return;
        }
        let result = RunResult::from(finished);
        if !result.is_good() && self.failures == Failures::AtTheEnd {
            self.bad.insert(result.id.clone(), result);
            return;
        }
        self.bad.remove(&result.id);
        let is_shown = self.failures == Failures::AtOnce || self.lines < CHANGES_MAX;
        if !is_shown {
            self.untold += 1;
            return;
        }
        self.lines += 1;
        result.lines().iter().for_each(|line| self.bar.print_above(line));
    }

    pub(super) fn close(&mut self) {
        self.bar.clear();
        if self.untold > 0 {
            self.bar.print_above(&more_changes(self.untold));
        }
        let bad: Vec<RunResult> = std::mem::take(&mut self.bad).into_values().collect();
        closing_lines(&bad).iter().for_each(|line| self.bar.print_above(line));
        self.untold = 0;
    }
}

/// Line about changes that are not listed.
pub(super) fn more_changes(count: usize) -> String {
    let more = style::count(count, "more change");
    format!("… and {more}; `orrery log RESOURCE` shows each, --json lists all")
}

fn state_of(progress: &Progress) -> State {
    let Tally { failed, skipped, unavailable, .. } = progress.tally;
    let done = progress.tally.done();
    let left = (progress.queued + progress.waiting + progress.running) as u64;
    State {
        total: done + left,
        done,
        counts: vec![
            (progress.tally.changed(), "changed"),
            (failed, "failed"),
            (skipped, "skipped"),
            (unavailable, "unavailable"),
        ],
        running: progress
            .slowest
            .iter()
            .map(|one| (one.id.to_string(), Some(one.elapsed)))
            .collect(),
    }
}

/// Waits until the engine is done, or has stopped after an interrupt. Passes finished runs to
/// `collect`.
pub(super) fn follow(
    engine: &Engine,
    display: &mut RunDisplay,
    interrupt: &Interrupt,
    collect: &mut dyn FnMut(&FinishedRun),
) -> bool {
    let mut stopping = false;
    loop {
        let progress = engine.wait(LOOK_EVERY);
        progress.finished.iter().for_each(&mut *collect);
        display.show(&progress);
        if progress.idle || progress.stalled || engine.has_failed() {
            display.close();
            return stopping;
        }
        if interrupt.is_requested() && !stopping {
            stopping = true;
            let text = "stopping: waiting for running handlers to end; press Ctrl-C again to exit";
            display.bar.print_above(text);
            engine.handle_event(Event::Cancel(Filter::all()));
        }
    }
}
