//! Follows an operation on a server: progress bar, reason for a stall, and reconnection.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use orrery_api::{Operation, OperationKind, OperationProgress, RemovalPlan, Transitioning};
use orrery_base::clock::monotonic;
use orrery_model::Timestamp;

use crate::cli::deploy::Selection;
use crate::error::CliError;
use crate::remote::RemoteEnvironment;
use crate::signals::Interrupt;
use crate::{Exit, output, style};

use super::local_run;
use super::progress::more_changes;
use super::progress_bar::{Bar, State};
use super::reconnect::{ReconnectLoop, Unanswered};
use super::results::{CHANGES_MAX, RunResult, closing_lines};
use super::server_report::{ServerReport, ServerResult};
use super::unmanaged::Unmanaged;
use super::unplaced::Unplaced;

const LOOK_EVERY: Duration = Duration::from_millis(150);
/// Time without progress after which the reason is shown.
const REASON_AFTER: Duration = Duration::from_secs(2);

/// Maximum number of listed resources that did not run.
const WAITING_MAX: usize = 20;

pub(super) fn number(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// An operation on a server to wait for.
pub(super) struct FollowedOperation<'a> {
    pub(super) of: &'a RemoteEnvironment,
    pub(super) json: bool,
    pub(super) selection: &'a Selection,
    /// Already reported before the start.
    pub(super) unplaced: &'a Unplaced,
    /// Resources that are no longer managed, for the JSON report.
    pub(super) unmanaged: &'a Unmanaged,
    /// Removal plan, if requested, for the JSON report.
    pub(super) removal: Option<&'a RemovalPlan>,
}

impl FollowedOperation<'_> {
    /// Waits for the operation and reports its result.
    pub(super) fn follow(
        &self,
        begun: &Operation,
        version: u32,
        since: Timestamp,
    ) -> Result<Exit, CliError> {
        let interrupt = Interrupt::listen().map_err(|error| CliError::from_error(&error))?;
        let promise = match begun.kind {
            OperationKind::Deploy => format!("version {version} is stored and released"),
            kind => format!("the {kind} was accepted"),
        };
        let patience = ReconnectLoop::new(&interrupt, promise);
        let mut bar = Bar::new(self.json);
        let waited = self.wait(begun, &interrupt, &patience, &mut bar);
        bar.clear();
        let interrupted = match waited {
            Ok(()) => false,
            Err(Unanswered::Interrupted) => true,
            Err(Unanswered::Failed(error)) => return Err(error),
        };
        if interrupted {
            let text = "interrupted: the server continues; `orrery status` shows the progress";
            output::print_status(text);
        }
        let report = ServerReport { of: self.of, selection: self.selection, begun, since };
        let read = || match interrupted {
            true => report.read_unfinished(version),
            false => report.read(self.json),
        };
        let (end, results) = match patience.ask(&bar, read) {
            Ok(found) => found,
            Err(Unanswered::Failed(error)) => return Err(error),
            Err(Unanswered::Interrupted) => {
                return Err(CliError::new(patience.still_true())
                    .help("`orrery status` shows the progress once the server responds"));
            }
        };
        if self.json {
            let report = local_run::RunReport {
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
        print_results(&results, number(end.tally.changed()));
        output::print_status(&end.summary(bar.elapsed()));
        Ok(end.exit())
    }

    /// Waits for the operation.
    fn wait(
        &self,
        begun: &Operation,
        interrupt: &Interrupt,
        patience: &ReconnectLoop<'_>,
        bar: &mut Bar,
    ) -> Result<(), Unanswered> {
        let at = self.of.path(&["operations", &begun.id.to_string()]);
        let mut reason = StallReason::new();
        loop {
            let now: Operation = patience.ask(bar, || self.of.client.get(&at))?;
            match now.transitioning {
                Transitioning::No => return Ok(()),
                Transitioning::Error => {
                    let error = CliError::new(now.transitioning_message);
                    return Err(Unanswered::Failed(error));
                }
                Transitioning::Yes => {}
            }
            if interrupt.is_requested() {
                return Err(Unanswered::Interrupted);
            }
            if let Some(text) = reason.reason_to_report(&now, monotonic()) {
                bar.print_above(&format!("{}: {}", style::help("note"), style::sanitize(&text)));
            }
            if let Some(progress) = &now.progress {
                bar.draw(&state_of(progress));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn state_of(progress: &OperationProgress) -> State {
    let OperationProgress { total, done, running, by_outcome: _ } = progress;
    State {
        total: *total,
        done: *done,
        counts: Vec::new(),
        running: running.iter().map(|id| (id.clone(), None)).collect(),
    }
}

/// Lists changes, then failures.
fn print_results(results: &[ServerResult], changed: usize) {
    let good = results.iter().filter_map(|result| result.run.as_ref()).filter(|run| run.is_good());
    let mut shown = 0;
    for run in good.take(CHANGES_MAX) {
        shown += 1;
        run.lines().iter().for_each(|line| output::print_status(line));
    }
    if changed > shown {
        output::print_status(&more_changes(changed - shown));
    }
    let waiting: Vec<&ServerResult> =
        results.iter().filter(|result| result.run.is_none()).collect();
    for result in waiting.iter().take(WAITING_MAX) {
        output::print_status(&result.line());
    }
    if waiting.len() > WAITING_MAX {
        let more = style::grouped(waiting.len() - WAITING_MAX);
        output::print_status(&format!(
            "… and {more} more that did not run: `orrery status` shows why"
        ));
    }
    let bad: Vec<RunResult> = results
        .iter()
        .filter_map(|result| result.run.clone())
        .filter(|run| !run.is_good())
        .collect();
    closing_lines(&bad).iter().for_each(|line| output::print_status(line));
}

/// Reason for a stall, reported once.
struct StallReason {
    since: Instant,
    text: Option<String>,
    is_reported: bool,
}

impl StallReason {
    fn new() -> Self {
        StallReason { since: monotonic(), text: None, is_reported: false }
    }

    /// Returns the reason once it has been the same for [`REASON_AFTER`].
    fn reason_to_report(&mut self, operation: &Operation, now: Instant) -> Option<String> {
        let text = reason(operation);
        if text != self.text {
            *self = StallReason { since: now, text, is_reported: false };
        }
        let text = self.text.as_ref()?;
        if self.is_reported || now.duration_since(self.since) < REASON_AFTER {
            return None;
        }
        self.is_reported = true;
        Some(text.clone())
    }
}

/// Reason why an operation makes no progress, if any.
pub(in crate::commands) fn reason(operation: &Operation) -> Option<String> {
    let message = &operation.transitioning_message;
    match (&operation.taken, message.as_str()) {
        (Some(_), "under way") => None,
        (None, "waiting for the engine") => {
            Some(format!("{message}: no server with the role process has claimed it yet"))
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
            "id": uuid::Uuid::nil(), "kind": "deploy", "request": {}, "created": "2026-11-16T11:59:00.000000Z", "finished": null, "outcome": null,
            "taken": taken.then_some("2026-11-16T12:00:00.000000Z"),
            "transitioning": "yes", "transitioning_message": message, "actions": {},
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn a_stall_is_reported_once_after_a_delay() {
        let mut reason = StallReason::new();
        let start = Instant::now();
        let paused = operation(true, "waits for paused agents: web1");
        let later = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(reason.reason_to_report(&operation(true, "under way"), later(10)), None);
        assert_eq!(reason.reason_to_report(&paused, later(10)), None);
        assert_eq!(reason.reason_to_report(&paused, later(11)), None);
        let reported = reason.reason_to_report(&paused, later(12));
        assert_eq!(reported.as_deref(), Some("waits for paused agents: web1"));
        assert_eq!(reason.reason_to_report(&paused, later(20)), None);
        let idle = operation(false, "waiting for the engine");
        assert_eq!(reason.reason_to_report(&idle, later(21)), None);
        assert!(reason.reason_to_report(&idle, later(24)).unwrap().contains("role process"));
    }
}
