//! `orrery deploy` in a local project: compiles, stores a version, runs it and waits.

use std::time::Duration;

use orrery_api::RemovalPlan;
use orrery_executor::{Engine, FinishedRun, StartState, StoredStates, Tally, recover_with};
use orrery_model::{Blocked, OutcomeStatus};
use orrery_scheduler::{Event, ResourceIndex, Scheduler};
use serde_json::{Value, json};

use crate::cli::deploy::{Deploy, DeployOptions, Plan, RunOptions, Selection};
use crate::signals::Interrupt;
use crate::{Exit, output, style};

use super::progress::{Failures, RunDisplay, follow};
use super::unmanaged::Unmanaged;
use super::unplaced::Unplaced;
use super::{
    DeployableProject, Handlers, LocalPaths, LocalStore, Purpose, failed, finish, on_server, open,
    prepare_and_open, prune, setup,
};

pub(in crate::commands) fn run(options: Deploy) -> Exit {
    let Deploy { deploy_options, dry_run, message, yes } = options;
    let message = message.as_deref().unwrap_or("orrery deploy");
    if dry_run {
        return super::plan(&Plan { deploy_options, keep: false, all: false });
    }
    match on_server::chosen(
        &deploy_options.deployment,
        &deploy_options.state,
        deploy_options.project.project.as_deref(),
    ) {
        Ok(Some(of)) => {
            return match deploy_options.run.refuse_on_server() {
                Ok(()) => on_server::deploy(&of, &deploy_options, message, yes),
                Err(error) => finish(Err(error)),
            };
        }
        Ok(None) => {}
        Err(error) => return finish(Err(error)),
    }
    if deploy_options.prune {
        return prune::run(&deploy_options, message, yes);
    }
    let DeployOptions { project, state, selection, run, limits, json, .. } = &deploy_options;
    let (prepared, opened) = match prepare_and_open(project, limits, *json, state, "deploy") {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    prepared.warn_if_empty(*json);
    let DeployableProject {
        project,
        name,
        resources,
        unknowns,
        problems,
        left_out,
        code,
        declared_agents,
    } = prepared;
    if let Err(error) = selection.check_selects_some(&resources) {
        return finish(Err(error));
    }
    let opened = opened.unwrap_or_else(|| {
        let opened = open(state, &project, "deploy")?;
        let states = StoredStates::read(&opened.store, opened.environment)?;
        Ok((opened, states))
    });
    let (opened, states) = match opened {
        Ok(opened) => opened,
        Err(error) => return failed(&error),
    };
    let paths = LocalPaths { project: &project, state, run, opened: Some(&opened) };
    let handlers = match Handlers::for_code(code, &paths) {
        Ok(handlers) => handlers,
        Err(error) => return failed(&error),
    };
    let unplaced = Unplaced::here(&resources, &declared_agents, &handlers.registry);
    let unplaced = unplaced.of_selected(selection);
    let code = handlers.code.as_deref();
    let binding = Some(deploy_options.takeover.binding(&name));
    let put =
        opened.put(resources, &unknowns, code, &declared_agents, Purpose::deploy(message), binding);
    let start = put.and_then(|(desired, created)| {
        let unmanaged = Unmanaged::of_local(&opened, &desired, &declared_agents, &left_out)?;
        let start = recover_with(&opened.store, opened.environment, desired, states)?;
        Ok((start, created, unmanaged))
    });
    let (start, created, unmanaged) = match start {
        Ok(found) => found,
        Err(error) => return failed(&error),
    };
    if created && !json {
        let count = style::count(start.desired.resources.len(), "resource");
        output::print_status(&format!("version {}: {count}", start.desired.version));
    }
    let (json, unmanaged) = (*json, &unmanaged);
    let (pending, removal) = (false, None);
    let local_run =
        LocalRun { selection, run, json, problems, pending, unplaced, unmanaged, removal };
    let exit = local_run.run_to_end(&opened, start, &handlers);
    if !json {
        unmanaged.report();
    }
    paths.remove_unused(handlers.code.as_deref());
    exit
}

/// One run over the resources of a version.
pub(super) struct LocalRun<'a> {
    pub(super) selection: &'a Selection,
    pub(super) run: &'a RunOptions,
    pub(super) json: bool,
    /// Number of resources that are left out.
    pub(super) problems: usize,
    /// True to skip resources that are already deployed.
    pub(super) pending: bool,
    /// Resources of agents without a machine here.
    pub(super) unplaced: Unplaced,
    /// Resources that are no longer managed, for the JSON report.
    pub(super) unmanaged: &'a Unmanaged,
    /// Removal plan, if requested, for the JSON report.
    pub(super) removal: Option<&'a RemovalPlan>,
}

impl LocalRun<'_> {
    /// Deploys the selected resources, or only the pending ones; waits and reports.
    pub(super) fn run_to_end(
        &self,
        opened: &LocalStore,
        start: StartState,
        handlers: &Handlers,
    ) -> Exit {
        let interrupt = match Interrupt::listen() {
            Ok(interrupt) => interrupt,
            Err(error) => return failed(&error),
        };
        if !self.json {
            self.unplaced.report();
        }
        let mut display =
            RunDisplay::new(self.json, Failures::AtTheEnd).without(self.unplaced.ids());
        let version = start.desired.version;
        let selected = self.selection.selected(&start.desired.resources);
        let others = self.selection.others(&start.desired.resources);
        let mut first =
            vec![if self.pending { Event::DeployDirty(selected) } else { Event::Verify(selected) }];
        if !self.selection.is_all() {
            first.insert(0, Event::Cancel(others));
        }
        let inventory = self.unplaced.inventory.clone();
        let setup = setup(handlers, self.run, Some(opened), inventory);
        let engine = match Engine::start(setup, start, first) {
            Ok(engine) => engine,
            Err(error) => return failed(&error),
        };
        let mut finished = Vec::new();
        let mut collect = |one: &FinishedRun| {
            if self.json {
                finished.push(one.clone());
            }
        };
        let interrupted = follow(&engine, &mut display, &interrupt, &mut collect);
        let unknown = engine.with_scheduler(blocked);
        let ended = engine.finish();
        handlers.close();
        let tally = match ended {
            Ok(tally) => tally,
            Err(error) => return failed(&error),
        };
        if let Err(error) = opened.store.leases().release(&opened.lease) {
            return failed(&error);
        }
        let end = RunSummary { tally, unknown, problems: self.problems, interrupted };
        if self.json {
            let report = RunReport {
                version: Some(version.0),
                end: &end,
                resources: finished.iter().map(finished_as_json).collect(),
                unplaced: &self.unplaced,
                unmanaged: self.unmanaged,
                removal: self.removal,
            };
            if !report.print() {
                return Exit::Error;
            }
        } else {
            output::print_status(&end.summary(display.elapsed()));
        }
        end.exit()
    }
}

/// Number of resources that are blocked by unknown values.
fn blocked(scheduler: &Scheduler) -> usize {
    let blocked = |index: &ResourceIndex| {
        scheduler.state(*index).is_some_and(|state| state.blocked == Blocked::Blocked)
    };
    scheduler.resources().filter(blocked).count()
}

/// Summary of a finished run.
#[derive(Default)]
pub(super) struct RunSummary {
    pub(super) tally: Tally,
    pub(super) unknown: usize,
    pub(super) problems: usize,
    pub(super) interrupted: bool,
}

impl RunSummary {
    pub(super) fn exit(&self) -> Exit {
        let RunSummary { tally, unknown, problems, interrupted } = self;
        let bad = tally.failed + tally.skipped + tally.unavailable + tally.non_compliant;
        match (interrupted, bad > 0 || *problems > 0 || *unknown > 0) {
            (true, _) => Exit::Error,
            (false, true) => Exit::Pending,
            (false, false) => Exit::Done,
        }
    }

    pub(super) fn tally_json(&self) -> serde_json::Value {
        let RunSummary { tally, unknown, problems, .. } = self;
        json!({
            "deployed": tally.deployed,
            "created": tally.created,
            "updated": tally.updated,
            "removed": tally.purged,
            "failed": tally.failed,
            "skipped": tally.skipped,
            "unavailable": tally.unavailable,
            "non_compliant": tally.non_compliant,
            "stopped": tally.cancelled,
            "unknown": unknown,
            "left_out": problems,
        })
    }

    /// Closing line.
    pub(super) fn summary(&self, time: Duration) -> String {
        let RunSummary { tally, unknown, problems, interrupted } = *self;
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let time = style::duration(time);
        let parts = [
            (tally.created, "created"),
            (tally.updated, "updated"),
            (tally.purged, "removed"),
            (tally.failed, "failed"),
            (tally.unavailable, "unavailable"),
            (tally.skipped, "skipped"),
            (tally.non_compliant, "non-compliant"),
            (tally.cancelled, "stopped"),
            (unknown as u64, "undefined"),
            (problems as u64, "left out"),
        ];
        let mut texts: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{} {word}", style::grouped(number(count))))
            .collect();
        let unchanged = tally.deployed.saturating_sub(tally.changed());
        if texts.is_empty() && !interrupted {
            let count = style::count(number(tally.deployed), "resource");
            return format!("{}: {count} unchanged, in {time}", style::good("nothing to change"));
        }
        if unchanged > 0 || texts.is_empty() {
            texts.push(format!("{} unchanged", style::grouped(number(unchanged))));
        }
        let good = tally.failed + tally.unavailable + tally.skipped + tally.non_compliant == 0;
        let word = match (interrupted, good && problems + unknown == 0) {
            (true, _) => style::warning("stopped"),
            (false, true) => style::good("deployed"),
            (false, false) => style::error("partially deployed"),
        };
        format!("{word}: {} in {time}", texts.join(", "))
    }
}

fn finished_as_json(one: &FinishedRun) -> Value {
    json!({
        "id": one.id,
        "status": one.status,
        "change": one.change.kind,
        "attributes": one.change.attributes,
        "message": one.message.as_ref().filter(|_| one.status != OutcomeStatus::Deployed),
        "hint": one.hint,
        "blocked_by": one.blocked_by,
        "seconds": one.took.as_secs_f64(),
        "reason": one.reason.to_string(),
    })
}

/// JSON report, with the same keys for every command that runs handlers, locally and on a server.
pub(super) struct RunReport<'a> {
    /// `None` if there is no version.
    pub(super) version: Option<u32>,
    pub(super) end: &'a RunSummary,
    pub(super) resources: Vec<Value>,
    pub(super) unplaced: &'a Unplaced,
    pub(super) unmanaged: &'a Unmanaged,
    pub(super) removal: Option<&'a RemovalPlan>,
}

impl RunReport<'_> {
    /// Prints the report; returns false if the output failed.
    pub(super) fn print(self) -> bool {
        let report = json!({
            "version": self.version,
            "interrupted": self.end.interrupted,
            "tally": self.end.tally_json(),
            "resources": self.resources,
            "unavailable_agents": self.unplaced.as_json(),
            "unmanaged": self.unmanaged.as_json(),
            "removal": self.removal,
        });
        output::print(|out| writeln!(out, "{report}"))
    }
}
