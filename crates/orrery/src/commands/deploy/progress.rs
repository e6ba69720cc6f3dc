//! Showing how far an engine is: a bar on a terminal, a line for each change everywhere, and what went wrong at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orrery_executor::{Engine, Finished, Progress, Tally};
use orrery_model::ResourceId;
use orrery_scheduler::{Event, Filter};

use crate::signals::Interrupt;
use crate::style;

use super::bar::{Bar, State};
use super::results::{CHANGES_MAX, RunResult, closing_lines};

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// When a run that did not end well is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Failures {
    /// Behind everything else, grouped by their causes.
    AtTheEnd,
    /// As they happen: there is no end to wait for.
    AtOnce,
}

/// What is shown of a run.
pub(super) struct Display {
    bar: Bar,
    quiet: bool,
    failures: Failures,
    lines: usize,
    untold: usize,
    /// The last run of each resource that did not end well.
    bad: BTreeMap<String, RunResult>,
    /// Resources that were reported before the run began.
    reported: BTreeSet<ResourceId>,
}

impl Display {
    pub(super) fn new(quiet: bool, failures: Failures) -> Self {
        Display {
            bar: Bar::new(quiet),
            quiet,
            failures,
            lines: 0,
            untold: 0,
            bad: BTreeMap::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Shows nothing more of resources that were reported before.
    pub(super) fn without(mut self, reported: BTreeSet<ResourceId>) -> Self {
        self.reported = reported;
        self
    }

    /// Shows a bar and nothing else.
    pub(super) fn only_bar(quiet: bool) -> Self {
        Display { bar: Bar::new(quiet), ..Display::new(true, Failures::AtTheEnd) }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.bar.elapsed()
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        for warning in &progress.warnings {
            self.bar.say(&format!("{}: {}", style::warning("warning"), style::harmless(warning)));
        }
        if !self.quiet {
            progress.finished.iter().for_each(|finished| self.tell(finished));
        }
        self.bar.draw(&state_of(progress));
    }

    fn tell(&mut self, finished: &Finished) {
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
        result.lines().iter().for_each(|line| self.bar.say(line));
    }

    pub(super) fn close(&mut self) {
        self.bar.clear();
        if self.untold > 0 {
            self.bar.say(&more_changes(self.untold));
        }
        let bad: Vec<RunResult> = std::mem::take(&mut self.bad).into_values().collect();
        closing_lines(&bad).iter().for_each(|line| self.bar.say(line));
        self.untold = 0;
    }
}

/// The line for changes that are not listed.
pub(super) fn more_changes(count: usize) -> String {
    let more = style::count(count, "more change");
    format!("… and {more}; `orrery log RESOURCE` tells of each, --json lists them all")
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
            .map(|one| (one.id.to_string(), Some(one.for_so_long)))
            .collect(),
    }
}

/// Waits until an engine is done, or until it was asked to end and has. All that was worth telling is given to
/// `collect`, too.
pub(super) fn follow(
    engine: &Engine,
    display: &mut Display,
    interrupt: &Interrupt,
    collect: &mut dyn FnMut(&Finished),
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
        if interrupt.is_asked() && !stopping {
            stopping = true;
            let text = "stopping: waiting for running handlers to end; press Ctrl-C again to leave";
            display.bar.say(text);
            engine.tell(Event::Cancel(Filter::all()));
        }
    }
}
