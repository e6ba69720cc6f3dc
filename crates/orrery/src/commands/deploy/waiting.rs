//! Waiting for what a server does: its progress on a bar, the reason if it does not go on, and patience if it restarts.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use orrery_api::{Operation, OperationProgress, RemovalPlan, Transitioning};
use orrery_model::Timestamp;

use crate::cli_deploy::Selection;
use crate::commands::trouble::Trouble;
use crate::remote::RemoteEnvironment;
use crate::signals::Interrupt;
use crate::{Exit, output, style};

use super::bar::{Bar, State};
use super::pass;
use super::placing::Unplaced;
use super::progress::more_changes;
use super::reconnecting::{Reconnecting, Unanswered};
use super::results::{CHANGES_MAX, RunResult, closing_lines};
use super::server_report::{Report, ServerResult};
use super::unmanaged::Unmanaged;

const LOOK_EVERY: Duration = Duration::from_millis(150);
/// Work that does not go on for so long has a reason that people want to know.
const REASON_AFTER: Duration = Duration::from_secs(2);

/// Resources that did not run and are named.
const WAITING_MAX: usize = 20;

pub(super) fn number(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Work of a server that is waited for.
pub(super) struct Run<'a> {
    pub(super) of: &'a RemoteEnvironment,
    pub(super) json: bool,
    pub(super) selection: &'a Selection,
    /// What was told before it began.
    pub(super) unplaced: &'a Unplaced,
    /// What is left alone from now on; for the form for programs.
    pub(super) unmanaged: &'a Unmanaged,
    /// What it removes, if it was asked to; for the form for programs.
    pub(super) removal: Option<&'a RemovalPlan>,
}

impl Run<'_> {
    /// Waits for the end of what was begun, and tells what it did.
    pub(super) fn follow(
        &self,
        begun: &Operation,
        version: u32,
        since: Timestamp,
    ) -> Result<Exit, Trouble> {
        let interrupt = Interrupt::listen().map_err(|error| Trouble::of(&error))?;
        let promise = match begun.kind.as_str() {
            "deploy" => format!("version {version} is stored and released"),
            kind => format!("the {kind} was accepted"),
        };
        let patience = Reconnecting::new(&interrupt, promise);
        let mut bar = Bar::new(self.json);
        let waited = self.wait(begun, &interrupt, &patience, &mut bar);
        bar.clear();
        let interrupted = match waited {
            Ok(()) => false,
            Err(Unanswered::Interrupted) => true,
            Err(Unanswered::Failed(trouble)) => return Err(trouble),
        };
        if interrupted {
            let text =
                "interrupted: the server continues by itself; `orrery status` shows how far it is";
            output::say(text);
        }
        let report = Report { of: self.of, selection: self.selection, begun, since };
        let read = || match interrupted {
            true => report.read_unfinished(version),
            false => report.read(self.json),
        };
        let (end, results) = match patience.ask(&bar, read) {
            Ok(found) => found,
            Err(Unanswered::Failed(trouble)) => return Err(trouble),
            Err(Unanswered::Interrupted) => {
                return Err(Trouble::said(patience.still_true())
                    .help("`orrery status` shows how far it is as soon as the server answers"));
            }
        };
        if self.json {
            let report = pass::Report {
                version: Some(version),
                end: &end,
                resources: results.iter().map(ServerResult::as_json).collect(),
                unplaced: self.unplaced,
                unmanaged: self.unmanaged,
                removal: self.removal,
            };
            return Ok(if report.print() { end.exit() } else { Exit::Error });
        }
        let reported: BTreeSet<String> =
            self.unplaced.ids().iter().map(ToString::to_string).collect();
        let mut results = results;
        results.retain(|result| !reported.contains(result.id()));
        tell(&results, number(end.tally.changed()));
        output::say(&end.summary(bar.elapsed()));
        Ok(end.exit())
    }

    /// Waits for the end of what was begun.
    fn wait(
        &self,
        begun: &Operation,
        interrupt: &Interrupt,
        patience: &Reconnecting<'_>,
        bar: &mut Bar,
    ) -> Result<(), Unanswered> {
        let at = self.of.path(&["operations", &begun.id.to_string()]);
        let mut reason = Reason::new();
        loop {
            let now: Operation = patience.ask(bar, || self.of.client.get(&at))?;
            match now.transitioning {
                Transitioning::No => return Ok(()),
                Transitioning::Error => {
                    let trouble = Trouble::said(now.transitioning_message);
                    return Err(Unanswered::Failed(trouble));
                }
                Transitioning::Yes => {}
            }
            if interrupt.is_asked() {
                return Err(Unanswered::Interrupted);
            }
            if let Some(text) = reason.worth_telling(&now, Instant::now()) {
                bar.say(&format!("{}: {}", style::help("note"), style::harmless(&text)));
            }
            if let Some(progress) = &now.progress {
                bar.draw(&state_of(progress));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn state_of(progress: &OperationProgress) -> State {
    let OperationProgress { total, done, running } = progress;
    State {
        total: *total,
        done: *done,
        counts: Vec::new(),
        running: running.iter().map(|id| (id.clone(), None)).collect(),
    }
}

/// Lists what was changed, and behind it what did not end well.
fn tell(results: &[ServerResult], changed: usize) {
    let good = results.iter().filter_map(|result| result.run.as_ref()).filter(|run| run.is_good());
    let mut shown = 0;
    for run in good.take(CHANGES_MAX) {
        shown += 1;
        run.lines().iter().for_each(|line| output::say(line));
    }
    if changed > shown {
        output::say(&more_changes(changed - shown));
    }
    let waiting: Vec<&ServerResult> =
        results.iter().filter(|result| result.run.is_none()).collect();
    for result in waiting.iter().take(WAITING_MAX) {
        output::say(&result.line());
    }
    if waiting.len() > WAITING_MAX {
        let more = style::grouped(waiting.len() - WAITING_MAX);
        output::say(&format!("… and {more} more that did not run: `orrery status` tells why"));
    }
    let bad: Vec<RunResult> = results
        .iter()
        .filter_map(|result| result.run.clone())
        .filter(|run| !run.is_good())
        .collect();
    closing_lines(&bad).iter().for_each(|line| output::say(line));
}

/// Why nothing goes on, told once.
struct Reason {
    since: Instant,
    text: Option<String>,
    told: bool,
}

impl Reason {
    fn new() -> Self {
        Reason { since: Instant::now(), text: None, told: false }
    }

    /// The reason, when it has been the same for so long that somebody has to know.
    fn worth_telling(&mut self, operation: &Operation, now: Instant) -> Option<String> {
        let text = reason(operation);
        if text != self.text {
            *self = Reason { since: now, text, told: false };
        }
        let text = self.text.as_ref()?;
        if self.told || now.duration_since(self.since) < REASON_AFTER {
            return None;
        }
        self.told = true;
        Some(text.clone())
    }
}

/// Why an operation does not go on, unless it does.
pub(in crate::commands) fn reason(operation: &Operation) -> Option<String> {
    let message = &operation.transitioning_message;
    match (&operation.taken, message.as_str()) {
        (Some(_), "under way") => None,
        (None, "waiting for the engine") => {
            Some(format!("{message}: no server with the role process has taken it up yet"))
        }
        _ => Some(message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn operation(taken: bool, message: &str) -> Operation {
        let text = json!({
            "id": uuid::Uuid::nil(), "kind": "deploy", "request": {}, "created": "", "finished": null, "outcome": null,
            "taken": taken.then_some("2026-11-16T12:00:00.000000Z"),
            "transitioning": "yes", "transitioning_message": message, "actions": {},
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn a_reason_is_told_once_and_not_at_once() {
        let mut reason = Reason::new();
        let start = Instant::now();
        let paused = operation(true, "waits for paused agents: web1");
        let later = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(reason.worth_telling(&operation(true, "under way"), later(10)), None);
        assert_eq!(reason.worth_telling(&paused, later(10)), None);
        assert_eq!(reason.worth_telling(&paused, later(11)), None);
        let told = reason.worth_telling(&paused, later(12));
        assert_eq!(told.as_deref(), Some("waits for paused agents: web1"));
        assert_eq!(reason.worth_telling(&paused, later(20)), None);
        let idle = operation(false, "waiting for the engine");
        assert_eq!(reason.worth_telling(&idle, later(21)), None);
        assert!(reason.worth_telling(&idle, later(24)).unwrap().contains("role process"));
    }
}
