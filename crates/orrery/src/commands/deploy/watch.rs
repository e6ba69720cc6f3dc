//! `orrery watch`: deploys, and keeps the deployment compliant until interrupted.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use orrery_base::clock::monotonic;
use orrery_executor::{Engine, recover};
use orrery_handlers::Registry;
use orrery_model::{Resource, ResourceId};
use orrery_scheduler::{Event, Filter, Interval};

use crate::cli::deploy::Watch;
use crate::error::CliError;
use crate::remote::DeploymentChoice;
use crate::signals::Interrupt;
use crate::{Exit, output, style};

use super::progress::{Failures, RunDisplay};
use super::unmanaged::Unmanaged;
use super::unplaced::Unplaced;
use super::{
    DeployableProject, Handlers, LocalPaths, Purpose, failed, finish, open, prepare, setup,
};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A file is checked once it has been unchanged for this time: programs write in several steps.
const QUIET_FOR: Duration = Duration::from_millis(150);
/// Interval at which missing directories are looked for.
const DIRECTORIES_EVERY: Duration = Duration::from_millis(300);

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
    let files = match FileWatcher::watch(&start.desired.resources, &handlers.registry) {
        Ok(files) => Some(files),
        Err(error) => {
            output::print_status(&format!(
                "{}: cannot watch files for changes: {error}",
                style::warning("warning")
            ));
            None
        }
    };
    let count = style::count(start.desired.resources.len(), "resource");
    let left_out = match problems {
        0 => String::new(),
        problems => format!(", {problems} left out"),
    };
    output::print_status(&format!("watching {count}{left_out}; Ctrl-C to stop"));
    let mut setup = setup(&handlers, &options.run, Some(&opened), unplaced.inventory);
    setup.settings.deploy_interval = deploy_interval;
    setup.settings.repair_interval = repair_interval;
    let first = vec![Event::Verify(Filter::all())];
    let engine = match Engine::start(setup, start, first) {
        Ok(engine) => engine,
        Err(error) => return failed(&error),
    };
    run_until_interrupted(&engine, files, &interrupt);
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
fn run_until_interrupted(engine: &Engine, mut files: Option<FileWatcher>, interrupt: &Interrupt) {
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
        let touched = files.as_mut().map(FileWatcher::touched).unwrap_or_default();
        if !touched.is_empty() && !stopping {
            engine.handle_event(Event::Verify(Filter::ids(touched)));
        }
        if progress.idle && !stopping {
            // An idle engine returns at once.
            std::thread::sleep(LOOK_EVERY.saturating_sub(looked.elapsed()));
        }
    }
    display.close();
}

/// Watches managed paths.
struct FileWatcher {
    watcher: RecommendedWatcher,
    events: Receiver<notify::Result<notify::Event>>,
    resources: HashMap<PathBuf, Vec<ResourceId>>,
    /// Directories of managed paths, and whether they are watched. A missing or removed directory
    /// is watched as soon as it exists.
    directories: BTreeMap<PathBuf, bool>,
    looked_at: Instant,
    /// Changed paths and the time of their last change.
    pending: HashMap<PathBuf, Instant>,
}

impl FileWatcher {
    fn watch(resources: &[Resource], registry: &Registry) -> notify::Result<Self> {
        let (sender, events) = channel();
        let watcher = notify::recommended_watcher(sender)?;
        let mut paths: HashMap<PathBuf, Vec<ResourceId>> = HashMap::new();
        for resource in resources {
            let handler = registry.handler(resource.id.entity());
            if let Some(path) = handler.and_then(|handler| handler.watched_path(&resource.id)) {
                paths.entry(PathBuf::from(path)).or_default().push(resource.id.clone());
            }
        }
        let directories = paths.keys().filter_map(|path| path.parent());
        let directories = directories.map(|directory| (directory.to_owned(), false)).collect();
        let mut files = FileWatcher {
            watcher,
            events,
            resources: paths,
            directories,
            looked_at: monotonic(),
            pending: HashMap::new(),
        };
        // Everything is verified after this.
        files.watch_directories()?;
        Ok(files)
    }

    /// Starts watching existing directories that are not watched yet, and returns them.
    fn watch_directories(&mut self) -> notify::Result<Vec<PathBuf>> {
        let mut new = Vec::new();
        for (directory, is_watched) in &mut self.directories {
            if !*is_watched && directory.is_dir() {
                self.watcher.watch(directory, RecursiveMode::NonRecursive)?;
                *is_watched = true;
                new.push(directory.clone());
            }
        }
        self.looked_at = monotonic();
        Ok(new)
    }

    /// Resources with changed paths that have been quiet since.
    fn touched(&mut self) -> Vec<ResourceId> {
        let now = monotonic();
        while let Ok(event) = self.events.try_recv() {
            match event {
                // The kernel dropped events.
                Ok(event) if event.need_rescan() => self.touch_all_in(None, now),
                Ok(event) => self.record_event(event, now),
                Err(error) => tracing::debug!(%error, "unexpected file event"),
            }
        }
        if self.looked_at.elapsed() >= DIRECTORIES_EVERY {
            match self.watch_directories() {
                // Changes before the watch started were not seen.
                Ok(new) => new.iter().for_each(|directory| self.touch_all_in(Some(directory), now)),
                Err(error) => tracing::warn!(%error, "cannot watch directory"),
            }
        }
        let quiet: Vec<PathBuf> = self
            .pending
            .iter()
            .filter(|(_, at)| at.elapsed() >= QUIET_FOR)
            .map(|(path, _)| path.clone())
            .collect();
        let mut touched = Vec::new();
        for path in quiet {
            self.pending.remove(&path);
            touched.extend(self.resources.get(&path).into_iter().flatten().cloned());
        }
        touched.sort_unstable();
        touched
    }

    fn record_event(&mut self, event: notify::Event, now: Instant) {
        let reads = matches!(event.kind, EventKind::Access(kind)
            if kind != AccessKind::Close(AccessMode::Write));
        if reads {
            return;
        }
        let gone =
            matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)));
        for path in event.paths {
            if gone && let Some(is_watched) = self.directories.get_mut(&path) {
                // The watch may already be gone with the directory.
                let _ = self.watcher.unwatch(&path);
                *is_watched = false;
            }
            if self.resources.contains_key(&path) {
                self.pending.insert(path, now);
            }
        }
    }

    /// Marks all paths, or those in a directory, as changed.
    fn touch_all_in(&mut self, directory: Option<&Path>, now: Instant) {
        let is_meant = |path: &&PathBuf| directory.is_none() || path.parent() == directory;
        self.pending.extend(self.resources.keys().filter(is_meant).map(|path| (path.clone(), now)));
    }
}
