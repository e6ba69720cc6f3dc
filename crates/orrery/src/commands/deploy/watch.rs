//! `orrery watch`: deploys, and keeps the deployment compliant until interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_executor::{Engine, LocalTargets, recover};
use orrery_handlers::LocalTarget;
use orrery_handlers::drift::FileWatch;
use orrery_model::{DriftPolicies, ResourceId};
use orrery_scheduler::{Event, Filter, Interval};

use crate::cli::deploy::Watch;
use crate::error::CliError;
use crate::remote::DeploymentChoice;
use crate::signals::Interrupt;
use crate::ssh::UserMachines;
use crate::{Exit, output, style};

use super::progress::{Failures, RunDisplay};
use super::unmanaged::Unmanaged;
use super::unplaced::Unplaced;
use super::{
    DeployableProject, Handlers, LocalPaths, Purpose, failed, finish, open, prepare, setup,
};

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Rejects a selected environment on a server: this command changes the local machine.
fn refuse_if_on_server(options: &Watch) -> Result<(), CliError> {
    let choice = DeploymentChoice { local: options.local, ..DeploymentChoice::default() };
    let is_local =
        options.state.data.is_some() || !choice.is_remote(options.project.project.as_deref())?;
    if is_local {
        return Ok(());
    }
    let error = CliError::new(
        "an environment on a server is selected, but `orrery watch` deploys on this machine",
    );
    Err(error.help("use --local to deploy here; a server keeps its deployments compliant itself"))
}

pub(in crate::commands) fn run(options: &Watch) -> Exit {
    if let Err(error) = refuse_if_on_server(options) {
        return finish(Err(error));
    }
    let interval = |text: &str| text.parse::<Interval>();
    let intervals = (interval(&options.deploy_interval), interval(&options.repair_interval));
    let (deploy_interval, repair_interval) = match intervals {
        (Ok(deploy), Ok(repair)) => (deploy, repair),
        (Err(error), _) | (_, Err(error)) => return failed(&error),
    };
    let prepared = match prepare(&options.project, &options.limits, false, &options.state) {
        Ok(prepared) => prepared,
        Err(exit) => return exit,
    };
    prepared.warn_if_empty(false);
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
    let opened = match open(&options.state, &project, "watch") {
        Ok(opened) => opened,
        Err(error) => return failed(&error),
    };
    let paths = LocalPaths {
        project: &project,
        state: &options.state,
        run: &options.run,
        opened: Some(&opened),
    };
    let handlers = match Handlers::for_code(code, &paths) {
        Ok(handlers) => handlers,
        Err(error) => return failed(&error),
    };
    let unplaced = Unplaced::here(&resources, &declared_agents, &handlers.registry);
    unplaced.report();
    let binding = Some(options.takeover.binding(&name));
    let code = handlers.code.as_deref();
    let start = opened
        .put(
            resources,
            &unknowns,
            code,
            &declared_agents,
            Purpose::deploy("orrery deploy"),
            binding,
        )
        .and_then(|(desired, _)| {
            let unmanaged = Unmanaged::of_local(&opened, &desired, &declared_agents, &left_out)?;
            Ok((recover(&opened.store, opened.environment, desired)?, unmanaged))
        });
    let start = match start {
        Ok((start, unmanaged)) => {
            unmanaged.report();
            start
        }
        Err(error) => return failed(&error),
    };
    let interrupt = match Interrupt::listen() {
        Ok(interrupt) => interrupt,
        Err(error) => return failed(&error),
    };
    let (sender, drifted) = channel();
    let files = FileWatch::default();
    files.set_sink(Some(Box::new(move |ids| sender.send(ids.to_vec()).is_ok())));
    let target = LocalTarget::default().with_watch(Arc::new(files));
    let count = style::count(start.desired.resources.len(), "resource");
    let left_out = match problems {
        0 => String::new(),
        problems => format!(", {problems} left out"),
    };
    output::print_status(&format!("watching {count}{left_out}; Ctrl-C to stop"));
    let mut setup = setup(&handlers, &options.run, Some(&opened), unplaced.inventory.clone());
    setup.targets = Arc::new(
        LocalTargets::new(target, unplaced.inventory).with_machines(Arc::new(UserMachines)),
    );
    setup.settings.deploy_interval = deploy_interval;
    setup.settings.repair_interval = repair_interval;
    let first = vec![Event::Verify(Filter::all())];
    let engine = match Engine::start(setup, start, first) {
        Ok(engine) => engine,
        Err(error) => return failed(&error),
    };
    let policies = BTreeMap::from([("*".to_owned(), options.on_drift.policy())]);
    engine.set_drift_policies(DriftPolicies(policies));
    run_until_interrupted(&engine, &drifted, &interrupt);
    let ended = engine.finish();
    handlers.close();
    let released = opened.store.leases().release(&opened.lease);
    match (ended, released) {
        (Err(error), _) => failed(&error),
        (_, Err(error)) => failed(&error),
        (Ok(tally), Ok(())) => {
            let changed =
                style::count(usize::try_from(tally.changed()).unwrap_or(usize::MAX), "change");
            output::print_status(&format!("{}: {changed} made", style::good("stopped")));
            Exit::Done
        }
    }
}

/// Runs the engine until an interrupt, and until running handlers have ended.
fn run_until_interrupted(
    engine: &Engine,
    drifted: &Receiver<Vec<ResourceId>>,
    interrupt: &Interrupt,
) {
    let mut display = RunDisplay::new(false, Failures::AtOnce);
    let mut stopping = false;
    loop {
        let looked = monotonic();
        let progress = engine.wait(LOOK_EVERY);
        display.show(&progress);
        if engine.has_failed() || (stopping && progress.running == 0) {
            break;
        }
        if interrupt.is_requested() && !stopping {
            stopping = true;
            engine.handle_event(Event::Halt);
        }
        let changed: BTreeSet<ResourceId> = drifted.try_iter().flatten().collect();
        if !changed.is_empty() && !stopping {
            engine.handle_event(Event::Drift(Filter::ids(changed)));
        }
        if progress.idle && !stopping {
            // An idle engine returns at once.
            std::thread::sleep(LOOK_EVERY.saturating_sub(looked.elapsed()));
        }
    }
    display.close();
}
