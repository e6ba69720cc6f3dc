//! Waiting for what a server does, and telling what came of it.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use orrery_api::{Operation, ResourceCounts, Transitioning};
use orrery_executor::Tally;
use orrery_model::{Change, ChangeKind, OutcomeStatus, Status, Timestamp};
use orrery_store::{Action, ActionKind, ResourceFilter};
use serde_json::{Value, json};

use crate::cli_deploy::Selection;
use crate::commands::inspect::on_server::OnServer;
use crate::commands::inspect::source::{Deployment as _, Seen};
use crate::commands::inspect::{find, text};
use crate::commands::trouble::Trouble;
use crate::remote::RemoteEnvironment;
use crate::signals::Interrupt;
use crate::{Exit, output, style};

use super::pass::End;
use super::placing::Unplaced;
use super::progress;
use super::unmanaged::Unmanaged;

const LOOK_EVERY: Duration = Duration::from_millis(150);
/// How often resources are counted for a bar.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// Work that is over at once needs no bar.
const BAR_AFTER: Duration = Duration::from_millis(400);
/// Whoever waits so long for work that does not go on wants to know why.
const REASON_AFTER: Duration = Duration::from_secs(2);
/// Resources of which more is told than their state: what was done to each is asked for one by one.
const TOLD_MAX: usize = 200;
/// The latest actions that are searched for the run.
const ACTIONS_MAX: usize = 5;

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
}

/// Work that somebody did not want to wait for any longer.
#[derive(Clone, Copy)]
struct Left {
    /// Everything is looked at, also what is as wanted.
    verifies: bool,
    /// The engine knows the version that is meant.
    is_taken_in: bool,
}

impl Left {
    /// Whether what is known of a resource comes from this work.
    fn has_had_its_turn(self, seen: &Seen, since: Timestamp) -> bool {
        let has_run = seen.last_run_at.is_some_and(|at| at >= since);
        match seen.status {
            _ if !self.is_taken_in => false,
            Status::Available | Status::Deploying => false,
            Status::Deployed => has_run || !self.verifies,
            Status::Undefined | Status::SkippedForUndefined | Status::Orphaned => true,
            Status::Failed | Status::Unavailable | Status::Skipped | Status::NonCompliant => {
                has_run
            }
        }
    }
}

/// A resource that was changed or did not end well.
struct Told {
    seen: Seen,
    action: Option<Action>,
}

impl Run<'_> {
    /// Waits for the end of what was begun, and tells what was done since then.
    pub(super) fn follow(
        &self,
        begun: &Operation,
        version: u32,
        since: Timestamp,
    ) -> Result<Exit, Trouble> {
        let started = Instant::now();
        let interrupted = self.wait(begun)?;
        if interrupted {
            output::say("the server goes on without you; `orrery status` shows how far it is");
        }
        let server = OnServer::new(self.of.clone());
        let left = match interrupted {
            true => Some(Left {
                verifies: begun.kind == "repair" || begun.request["verify"] == true,
                is_taken_in: server.processed()?.is_some_and(|number| number.0 == version),
            }),
            false => None,
        };
        let (end, told) = self.result(&server, since, left)?;
        if self.json {
            let resources: Vec<Value> = told.iter().map(Told::as_json).collect();
            let report = json!({
                "version": version,
                "interrupted": interrupted,
                "tally": end.tally_json(),
                "resources": resources,
                "unavailable_agents": self.unplaced.as_json(),
                "unmanaged": self.unmanaged.as_json(),
            });
            let written = output::print(|out| writeln!(out, "{report}"));
            return Ok(if written { end.exit() } else { Exit::Error });
        }
        let before = self.unplaced.ids();
        let news = told.iter().filter(|one| !before.contains(&one.seen.id));
        news.flat_map(Told::lines).for_each(|line| output::say(&line));
        output::say(&end.summary(started.elapsed()));
        Ok(end.exit())
    }

    /// Waits for the end of what was begun; true if somebody did not want to.
    fn wait(&self, begun: &Operation) -> Result<bool, Trouble> {
        let interrupt = Interrupt::listen().map_err(|error| Trouble::of(&error))?;
        let at = self.of.path(&["operations", &begun.id.to_string()]);
        let (started, mut counted) = (Instant::now(), Instant::now());
        let mut bar: Option<ProgressBar> = None;
        let mut reason = Reason::new();
        loop {
            let now: Operation = self.of.client.get(&at)?;
            match now.transitioning {
                Transitioning::No => break,
                Transitioning::Error => return Err(Trouble::said(now.transitioning_message)),
                Transitioning::Yes => {}
            }
            if interrupt.is_asked() {
                if let Some(bar) = bar {
                    bar.finish_and_clear();
                }
                return Ok(true);
            }
            if let Some(text) = reason.worth_telling(&now, Instant::now()) {
                let line = format!("{}: {}", style::help("note"), style::harmless(&text));
                match &bar {
                    Some(bar) => bar.suspend(|| output::say(&line)),
                    None => output::say(&line),
                }
            }
            let shows = !self.json && std::io::stderr().is_terminal();
            if shows
                && started.elapsed() > BAR_AFTER
                && (bar.is_none() || counted.elapsed() > COUNT_EVERY)
            {
                counted = Instant::now();
                self.draw(bar.get_or_insert_with(new_bar))?;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        Ok(false)
    }

    fn draw(&self, bar: &ProgressBar) -> Result<(), Trouble> {
        let counts: ResourceCounts = self.of.client.get(&self.of.path(&["resource-counts"]))?;
        let count = |name: &str| counts.by_status.get(name).copied().unwrap_or(0);
        bar.set_length(counts.total);
        bar.set_position(counts.total.saturating_sub(count("available") + count("deploying")));
        let told =
            ["deploying", "failed", "skipped", "unavailable"].map(|name| (name, count(name)));
        let told: Vec<String> = told
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        bar.set_message(told.join(", "));
        Ok(())
    }

    /// How the resources are now, and what was done to those of which there is something to tell.
    fn result(
        &self,
        server: &OnServer,
        since: Timestamp,
        left: Option<Left>,
    ) -> Result<(End, Vec<Told>), Trouble> {
        let mut counts: BTreeMap<Status, u64> = BTreeMap::new();
        // Verified resources are not told of, but only their actions say which those are.
        let (mut bad, mut ran) = (Vec::new(), Vec::new());
        let mut ran_count = 0_usize;
        server.each(&ResourceFilter::default(), None, find::PAGE, &mut |seen| {
            if !self.selection.covers_id(&seen.id) {
                return Ok(true);
            }
            if left.is_some_and(|left| !left.has_had_its_turn(&seen, since)) {
                *counts.entry(Status::Available).or_default() += 1;
                return Ok(true);
            }
            *counts.entry(seen.status).or_default() += 1;
            let is_recent = seen.last_run_at.is_some_and(|at| at >= since);
            if seen.status != Status::Deployed {
                if bad.len() < TOLD_MAX {
                    bad.push(seen);
                }
            } else if is_recent {
                ran_count += 1;
                if ran.len() < TOLD_MAX {
                    ran.push(seen);
                }
            }
            Ok(true)
        })?;
        if ran_count > TOLD_MAX {
            ran.clear();
        }
        let mut tally = Tally::default();
        let mut told = Vec::new();
        for seen in ran {
            let action = last_run(server, &seen, since)?;
            let kind = action.as_ref().map_or(ChangeKind::NoChange, |action| action.change.kind);
            match kind {
                ChangeKind::Created => tally.created += 1,
                ChangeKind::Updated => tally.updated += 1,
                ChangeKind::Purged => tally.purged += 1,
                ChangeKind::NoChange => continue,
            }
            told.push(Told { seen, action });
        }
        for seen in bad {
            // What waits for its turn has nothing to do with how it ended earlier.
            let action = match seen.status {
                Status::Available | Status::Deploying => None,
                _ => last_run(server, &seen, Timestamp::default())?,
            };
            told.push(Told { seen, action });
        }
        let count = |status: Status| counts.get(&status).copied().unwrap_or(0);
        tally.deployed = count(Status::Deployed);
        tally.failed = count(Status::Failed);
        tally.unavailable = count(Status::Unavailable);
        tally.skipped = count(Status::Skipped);
        tally.non_compliant = count(Status::NonCompliant);
        // What has not been tried, since its agent is paused or the environment was halted meanwhile.
        tally.cancelled = count(Status::Available) + count(Status::Deploying);
        let unknown = number(count(Status::Undefined) + count(Status::SkippedForUndefined));
        Ok((End { tally, unknown, problems: 0, interrupted: left.is_some() }, told))
    }
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

fn new_bar() -> ProgressBar {
    let look = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
    ProgressBar::new(0).with_style(look.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The last run that began at this time or later.
fn last_run(server: &OnServer, seen: &Seen, since: Timestamp) -> Result<Option<Action>, Trouble> {
    let actions = server.actions(seen.id.as_str(), ACTIONS_MAX)?;
    let mut runs = actions.into_iter().filter(|action| action.kind == ActionKind::Deploy);
    Ok(runs.next().filter(|action| action.finished.unwrap_or(action.started) >= since))
}

/// How long a run took, if it has ended.
fn seconds(action: &Action) -> Option<f64> {
    let micros = action.finished?.0.saturating_sub(action.started.0);
    u64::try_from(micros).ok().map(|micros| Duration::from_micros(micros).as_secs_f64())
}

impl Told {
    fn outcome(&self) -> Option<OutcomeStatus> {
        self.action.as_ref().and_then(|action| action.outcome)
    }

    fn message(&self) -> Option<String> {
        self.action.as_ref().and_then(text::complaint)
    }

    fn lines(&self) -> Vec<String> {
        let id = self.seen.id.as_str();
        let Some(outcome) = self.outcome() else {
            let status = text::coloured(self.seen.status, self.seen.status.as_str());
            return vec![format!("{status} {}", style::harmless(id))];
        };
        let nothing = Change::default();
        let change = self.action.as_ref().map_or(&nothing, |action| &action.change);
        let hint = self.action.as_ref().and_then(text::hint);
        progress::told(id, outcome, change, self.message().as_deref(), hint)
    }

    fn as_json(&self) -> Value {
        let action = self.action.as_ref();
        json!({
            "id": self.seen.id,
            "status": self.outcome().map_or(self.seen.status.as_str(), |outcome| outcome.as_str()),
            "change": action.map_or(ChangeKind::NoChange, |action| action.change.kind),
            "attributes": action.map(|action| action.change.attributes.clone()).unwrap_or_default(),
            "message": self.message().filter(|_| self.seen.status != Status::Deployed),
            "hint": action.and_then(text::hint),
            "seconds": action.and_then(seconds),
        })
    }
}

#[cfg(test)]
mod tests {
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
