//! The same commands for an environment on a server: the model is compiled here and pushed, the server does the work, and the command
//! waits and tells.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use orrery_api::{
    DeployRequest, Operation, ReleaseRequest, ResourceCounts, Transitioning, VersionReleased,
    VersionUpload,
};
use orrery_executor::Tally;
use orrery_model::{Change, ChangeKind, OutcomeStatus, Status, Timestamp};
use orrery_store::{Action, ActionKind, ResourceFilter};
use serde_json::{Value, json};

use crate::cli_deploy::{Repair, Selection, Wanted};
use crate::commands::export::{ExportError, Push, info, store};
use crate::commands::inspect::on_server::OnServer;
use crate::commands::inspect::source::{Deployment as _, Seen};
use crate::commands::inspect::{find, text};
use crate::commands::remote::dry_run;
use crate::commands::trouble::{Trouble, finish};
use crate::remote::{RemoteEnvironment, WhereChoice};
use crate::signals::Interrupt;
use crate::state::StateOptions;
use crate::{Exit, output, style};

use super::pass::End;
use super::progress;

const LOOK_EVERY: Duration = Duration::from_millis(150);
/// How often resources are counted for a bar.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// Work that is over at once needs no bar.
const BAR_AFTER: Duration = Duration::from_millis(400);
/// Resources of which more is told than their state: what was done to each is asked for one by one.
const TOLD_MAX: usize = 200;
/// The latest actions that are searched for the run.
const ACTIONS_MAX: usize = 5;

/// The environment on a server that is meant, if one is.
pub(super) fn chosen(
    place: &WhereChoice,
    state: &StateOptions,
    project: Option<&Path>,
) -> Result<Option<RemoteEnvironment>, Trouble> {
    // Whoever names the place of a local state means that.
    if state.data.is_some() { Ok(None) } else { place.remote(project) }
}

pub(super) fn deploy(of: &RemoteEnvironment, wanted: &Wanted) -> Exit {
    match try_deploy(of, wanted) {
        Ok(exit) => exit,
        Err(error) => error.tell(wanted.json),
    }
}

fn try_deploy(of: &RemoteEnvironment, wanted: &Wanted) -> Result<Exit, ExportError> {
    refuse_if_halted(of)?;
    if !wanted.selection.is_all() {
        let trouble = Trouble::said("a server deploys all of a version");
        let help = "leave out --agent and --filter; `orrery repair` takes them on a server, too";
        return Err(trouble.help(help).into());
    }
    let new = VersionUpload {
        info: info("orrery deploy"),
        release: Some(true),
        only_if_changed: true,
        verify: true,
        ..VersionUpload::default()
    };
    let stored = how_to_push(wanted).push(of, new)?;
    let version = stored.version.number;
    if !wanted.json {
        let count = style::count(number(stored.version.total), "resource");
        let place = style::harmless(&of.place());
        let as_before = if stored.created_now { "" } else { ", as before" };
        output::say(&format!("version {version} of {place}: {count}{as_before}"));
    }
    let begun = match stored.operation {
        Some(begun) => begun,
        // A newer version was released meanwhile. The server says so, unless that is gone again.
        None => {
            let at = of.path(&["versions", &version.to_string(), "release"]);
            let wish = ReleaseRequest { deploy: true, verify: true };
            let released: VersionReleased = of.client.post(&at, &wish)?;
            released.operation.ok_or_else(|| superseded(version))?
        }
    };
    // The engine takes up a released version at once: what it did until now belongs to this, too.
    let since = if stored.created_now { &stored.version.created } else { &begun.created };
    let since = since.parse().unwrap_or_default();
    let run = Run { of, json: wanted.json, selection: &wanted.selection };
    Ok(run.follow(&begun, version, since)?)
}

/// A version that was stored, but not released: somebody else's was, meanwhile.
fn superseded(version: u32) -> Trouble {
    let trouble = Trouble::said(format!("version {version} is not released: a newer one is"));
    trouble.help("`orrery version list` shows which")
}

/// What a release or a roll-back has to ask for along with the version, so that it can be waited for: in one step with it, so that no
/// handler runs twice.
pub(in crate::commands) const DEPLOY_ALONG: ReleaseRequest =
    ReleaseRequest { deploy: true, verify: false };

/// Does something that releases a version along with [`DEPLOY_ALONG`], and waits until that is deployed.
pub(in crate::commands) fn release(
    of: &RemoteEnvironment,
    json: bool,
    release: impl FnOnce() -> Result<(u32, Option<Operation>), Trouble>,
) -> Result<Exit, Trouble> {
    refuse_if_halted(of)?;
    let before: ResourceCounts = of.client.get(&of.path(&["resource-counts"]))?;
    let (version, begun) = release()?;
    let begun = begun.ok_or_else(|| superseded(version))?;
    let since = before.counted_at.parse().unwrap_or_default();
    Run { of, json, selection: &Selection::default() }.follow(&begun, version, since)
}

fn how_to_push(wanted: &Wanted) -> Push<'_> {
    Push {
        project: &wanted.project,
        limits: &wanted.limits,
        exporters: &[],
        verbose: false,
        quiet: wanted.json,
    }
}

pub(super) fn plan(of: &RemoteEnvironment, wanted: &Wanted, keep: bool) -> Exit {
    match try_plan(of, wanted, keep) {
        Ok(exit) => exit,
        Err(error) => error.tell(wanted.json),
    }
}

fn try_plan(of: &RemoteEnvironment, wanted: &Wanted, keep: bool) -> Result<Exit, ExportError> {
    let new = VersionUpload {
        info: info("orrery plan"),
        release: Some(false),
        ..VersionUpload::default()
    };
    let upload = how_to_push(wanted).make(of, new)?;
    // From here on there may be a version to be deleted: whoever is in a hurry is heard when its number is known.
    let interrupt = Interrupt::listen().map_err(|error| Trouble::of(&error))?;
    let version = store(of, &upload)?.version.number;
    let found = dry_run::follow(of, version, wanted.json, &interrupt);
    // Whatever came of it: nobody asked for a version.
    let removed = match keep {
        true => Ok(()),
        false => of.client.delete::<()>(&of.path(&["versions", &version.to_string()])),
    };
    let mut found = found?;
    removed?;
    let selection = &wanted.selection;
    found.changes.retain(|change| {
        change.resource.parse().is_ok_and(|id: orrery_model::ResourceId| selection.covers_id(&id))
    });
    let exit = dry_run::show(&found, wanted.json)?;
    if keep && !wanted.json {
        output::say(&format!("it is kept: orrery version release {version}"));
    }
    Ok(exit)
}

pub(super) fn repair(of: &RemoteEnvironment, options: &Repair) -> Exit {
    finish(try_repair(of, options))
}

fn try_repair(of: &RemoteEnvironment, options: &Repair) -> Result<Exit, Trouble> {
    refuse_if_halted(of)?;
    let server = OnServer::new(of.clone());
    let Some(version) = server.processed()? else { return Err(server.nothing_deployed()) };
    let mut request = DeployRequest::default();
    let selection = &options.selection;
    if selection.filter.is_some() {
        let mut ids = Vec::new();
        server.each(&ResourceFilter::default(), None, find::PAGE, &mut |seen| {
            if selection.covers_id(&seen.id) {
                ids.push(seen.id.to_string());
            }
            Ok(true)
        })?;
        if ids.is_empty() {
            let trouble = Trouble::said(format!("no resource of {} is selected", of.place()));
            return Err(trouble.help("`orrery resources` lists those that there are"));
        }
        request.ids = Some(ids);
    } else if !selection.agents.is_empty() {
        request.agents = Some(selection.agents.clone());
    }
    let begun: Operation = of.client.post(&of.path(&["repair"]), &request)?;
    let since = begun.created.parse().unwrap_or_default();
    Run { of, json: options.json, selection }.follow(&begun, version.0, since)
}

fn refuse_if_halted(of: &RemoteEnvironment) -> Result<(), Trouble> {
    if of.environment.halted {
        let trouble = Trouble::said(format!("{} is halted: nothing is deployed there", of.place()));
        return Err(trouble.help(format!("orrery environment resume -e {}", of.name())));
    }
    Ok(())
}

fn number(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Work of a server that is waited for.
struct Run<'a> {
    of: &'a RemoteEnvironment,
    json: bool,
    selection: &'a Selection,
}

/// A resource that was changed or did not end well.
struct Told {
    seen: Seen,
    action: Option<Action>,
}

impl Run<'_> {
    fn follow(&self, begun: &Operation, version: u32, since: Timestamp) -> Result<Exit, Trouble> {
        let started = Instant::now();
        let interrupted = self.wait(begun)?;
        if interrupted {
            output::say("the server goes on without you; `orrery status` shows how far it is");
        }
        let server = OnServer::new(self.of.clone());
        let (end, told) = self.result(&server, since, interrupted)?;
        if self.json {
            let resources: Vec<Value> = told.iter().map(Told::as_json).collect();
            let report = json!({
                "version": version,
                "interrupted": interrupted,
                "tally": end.tally_json(),
                "resources": resources,
            });
            let written = output::print(|out| writeln!(out, "{report}"));
            return Ok(if written { end.exit() } else { Exit::Error });
        }
        told.iter().flat_map(Told::lines).for_each(|line| output::say(&line));
        output::say(&end.summary(started.elapsed()));
        Ok(end.exit())
    }

    /// Waits for the end of what was begun; true if somebody did not want to.
    fn wait(&self, begun: &Operation) -> Result<bool, Trouble> {
        let interrupt = Interrupt::listen().map_err(|error| Trouble::of(&error))?;
        let at = self.of.path(&["operations", &begun.id.to_string()]);
        let (started, mut bar, mut counted) = (Instant::now(), None, Instant::now());
        loop {
            let now: Operation = self.of.client.get(&at)?;
            match now.transitioning {
                Transitioning::No => break,
                Transitioning::Error => return Err(Trouble::said(now.transitioning_message)),
                Transitioning::Yes => {}
            }
            if interrupt.is_asked() {
                return Ok(true);
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
        Ok(interrupt.is_asked())
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
        interrupted: bool,
    ) -> Result<(End, Vec<Told>), Trouble> {
        let mut counts: BTreeMap<Status, u64> = BTreeMap::new();
        // Verified resources are not told of, but only their actions say which those are.
        let (mut bad, mut ran) = (Vec::new(), Vec::new());
        let mut ran_count = 0_usize;
        server.each(&ResourceFilter::default(), None, find::PAGE, &mut |seen| {
            if !self.selection.covers_id(&seen.id) {
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
            let action = last_run(server, &seen, Timestamp::default())?;
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
        Ok((End { tally, unknown, problems: 0, interrupted }, told))
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
