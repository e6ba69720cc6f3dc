//! Showing how far an engine is: a bar on a terminal, a line for each thing worth telling everywhere.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use orrery_executor::{Engine, Finished, Progress, Tally};
use orrery_model::{Change, ChangeKind, OutcomeStatus, ResourceId};
use orrery_scheduler::{Event, Filter};

use crate::signals::Interrupt;
use crate::{output, style};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A deploy that is over at once needs no bar.
const BAR_AFTER: Duration = Duration::from_millis(400);
/// More lines than this tell nothing new; they are counted, and kept in the log of each resource.
const LINES_MAX: usize = 200;

/// What is shown of a run.
pub(super) struct Display {
    bar: Option<ProgressBar>,
    started: Instant,
    quiet: bool,
    lines: usize,
    untold: usize,
    /// Resources that were told of already.
    told: BTreeSet<ResourceId>,
}

impl Display {
    pub(super) fn new(quiet: bool) -> Self {
        let told = BTreeSet::new();
        Display { bar: None, started: Instant::now(), quiet, lines: 0, untold: 0, told }
    }

    /// Shows nothing more of resources that were told of before.
    pub(super) fn without(mut self, told: BTreeSet<ResourceId>) -> Self {
        self.told = told;
        self
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn say(&mut self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::say(line)),
            None => output::say(line),
        }
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        for warning in &progress.warnings {
            self.say(&format!("{}: {}", style::warning("warning"), style::harmless(warning)));
        }
        if self.quiet {
            return;
        }
        let told = &self.told;
        let news = progress.finished.iter().filter(|one| !told.contains(&one.id));
        for finished in news.collect::<Vec<_>>() {
            if self.lines >= LINES_MAX {
                self.untold += 1;
                continue;
            }
            self.lines += 1;
            for line in lines(finished) {
                self.say(&line);
            }
        }
        self.draw(progress);
    }

    fn draw(&mut self, progress: &Progress) {
        if self.started.elapsed() < BAR_AFTER || !std::io::stderr().is_terminal() {
            return;
        }
        let done = progress.tally.done();
        let left = (progress.queued + progress.waiting + progress.running) as u64;
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let form = "{bar:24} {pos}/{len} {msg}";
            let look = ProgressStyle::with_template(form);
            bar.with_style(look.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_length(done + left);
        bar.set_position(done);
        let Tally { failed, skipped, unavailable, .. } = progress.tally;
        let mut message = format!("{} changed", progress.tally.changed());
        for (count, word) in
            [(failed, "failed"), (skipped, "skipped"), (unavailable, "unavailable")]
        {
            if count > 0 {
                message.push_str(&format!(", {count} {word}"));
            }
        }
        let slow = progress.slowest.iter().filter(|one| one.for_so_long > Duration::from_secs(1));
        for one in slow {
            let time = style::duration(one.for_so_long);
            message.push_str(&format!("\n  {} {}", style::harmless(one.id.as_str()), time));
        }
        bar.set_message(message);
    }

    pub(super) fn close(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if self.untold > 0 {
            let more = style::count(self.untold, "more line");
            output::say(&format!("… and {more}; `orrery log RESOURCE` tells of each"));
        }
    }
}

/// What is told of a run that changed something or did not end well.
pub(super) fn lines(finished: &Finished) -> Vec<String> {
    let Finished { id, status, change, message, hint, .. } = finished;
    told(id.as_str(), *status, change, message.as_deref(), hint.as_deref())
}

/// The same for a run that is known from its record.
pub(super) fn told(
    id: &str,
    status: OutcomeStatus,
    change: &Change,
    message: Option<&str>,
    hint: Option<&str>,
) -> Vec<String> {
    let word = match (status, change.kind) {
        (OutcomeStatus::Deployed, ChangeKind::Created) => style::added("created"),
        (OutcomeStatus::Deployed, ChangeKind::Updated) => style::warning("updated"),
        (OutcomeStatus::Deployed, ChangeKind::Purged) => style::removed("removed"),
        (OutcomeStatus::Deployed, ChangeKind::NoChange) => style::good("as wanted"),
        (OutcomeStatus::Skipped | OutcomeStatus::SkippedForDependency, _) => {
            style::warning("skipped")
        }
        (OutcomeStatus::Failed, _) => style::error("failed"),
        (OutcomeStatus::Unavailable, _) => style::error("unavailable"),
        (OutcomeStatus::NonCompliant, _) => style::warning("differs"),
    };
    let mut line = format!("{word} {}", style::harmless(id));
    if !change.attributes.is_empty() {
        let names: Vec<&str> = change.attributes.iter().map(|change| &*change.name).collect();
        line.push_str(&format!(" ({})", names.join(", ")));
    }
    let mut lines = vec![line];
    if status != OutcomeStatus::Deployed
        && let Some(message) = message
    {
        lines.push(format!("  {}", style::harmless(message).replace('\n', "\n  ")));
    }
    if let Some(hint) = hint {
        lines.push(format!("  {}: {}", style::help("help"), style::harmless(hint)));
    }
    lines
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
            display.say("stopping: running handlers are asked to end; once more to leave them");
            engine.tell(Event::Cancel(Filter::all()));
        }
    }
}
