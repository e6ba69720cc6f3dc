//! `orrery watch`: deploys, stays, and keeps it so.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use orrery_executor::{Engine, recovery};
use orrery_handlers::Registry;
use orrery_model::{Resource, ResourceId};
use orrery_scheduler::{Event, Filter, Interval};

use crate::cli_deploy::Watch;
use crate::commands::trouble::Trouble;
use crate::remote::WhereChoice;
use crate::signals::Interrupt;
use crate::{Exit, output, projects, style};

use super::placing::Unplaced;
use super::progress::{Display, Failures};
use super::unmanaged::Unmanaged;
use super::{Handlers, Place, Prepared, Purpose, failed, finish, open, prepare, setup};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Whoever writes a file often does so in several steps; it is looked at when it has been quiet for so long.
const QUIET_FOR: Duration = Duration::from_millis(150);
/// How often directories that were not there are looked for.
const DIRECTORIES_EVERY: Duration = Duration::from_millis(300);

/// Whoever has chosen an environment on a server does not expect that this machine is changed.
fn refuse_if_on_server(options: &Watch) -> Result<(), Trouble> {
    let place = WhereChoice { local: options.local, ..WhereChoice::default() };
    let is_local =
        options.state.data.is_some() || !place.is_remote(options.project.project.as_deref())?;
    if is_local {
        return Ok(());
    }
    let trouble = Trouble::said(
        "an environment on a server is chosen, and `orrery watch` deploys on this machine",
    );
    Err(trouble.help("--local does that; a server keeps what is deployed there by itself"))
}

pub(in crate::commands) fn run(options: &Watch) -> Exit {
    if let Err(trouble) = refuse_if_on_server(options) {
        return finish(Err(trouble));
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
    prepared.tell_if_empty(false);
    let Prepared { project, resources, unknowns, problems, left_out, code, local_agents } =
        prepared;
    let opened = match open(&options.state, &project, "watch") {
        Ok(opened) => opened,
        Err(error) => return failed(&error),
    };
    let place = Place {
        project: &project,
        state: &options.state,
        run: &options.run,
        opened: Some(&opened),
    };
    let handlers = match Handlers::of(code, &place) {
        Ok(handlers) => handlers,
        Err(error) => return failed(&error),
    };
    let unplaced = Unplaced::here(&resources, &local_agents, &handlers.registry);
    unplaced.tell();
    let name = projects::name_of(&project);
    let binding = Some(options.takeover.binding(&name));
    let code = handlers.code.as_deref();
    let start = opened
        .put(resources, &unknowns, code, &local_agents, Purpose::deploy("orrery deploy"), binding)
        .and_then(|(desired, _)| {
            let unmanaged = Unmanaged::of_local(&opened, &desired, &local_agents, &left_out)?;
            Ok((recovery(&*opened.store, opened.environment, desired)?, unmanaged))
        });
    let start = match start {
        Ok((start, unmanaged)) => {
            unmanaged.tell();
            start
        }
        Err(error) => return failed(&error),
    };
    let interrupt = match Interrupt::listen() {
        Ok(interrupt) => interrupt,
        Err(error) => return failed(&error),
    };
    let files = match Files::watch(&start.desired.resources, &handlers.registry) {
        Ok(files) => Some(files),
        Err(error) => {
            output::say(&format!(
                "{}: changes of files are not noticed at once: {error}",
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
    output::say(&format!("watching {count}{left_out}; Ctrl-C ends"));
    let mut setup = setup(&handlers, &options.run, Some(&opened), unplaced.inventory);
    setup.settings.deploy_interval = deploy_interval;
    setup.settings.repair_interval = repair_interval;
    let first = vec![Event::Repair(Filter::all())];
    let engine = match Engine::start(setup, start, first) {
        Ok(engine) => engine,
        Err(error) => return failed(&error),
    };
    stay(&engine, files, &interrupt);
    let ended = engine.finish();
    handlers.close();
    let released = orrery_store::Store::release_lease(&*opened.store, &opened.lease);
    match (ended, released) {
        (Err(error), _) => failed(&error),
        (_, Err(error)) => failed(&error),
        (Ok(tally), Ok(())) => {
            let changed =
                style::count(usize::try_from(tally.changed()).unwrap_or(usize::MAX), "change");
            output::say(&format!("{}: {changed} made", style::good("stopped")));
            Exit::Done
        }
    }
}

/// Keeps the engine going until somebody asks for the end, and running handlers have ended.
fn stay(engine: &Engine, mut files: Option<Files>, interrupt: &Interrupt) {
    let mut display = Display::new(false, Failures::AtOnce);
    let mut stopping = false;
    loop {
        let looked = Instant::now();
        let progress = engine.wait(LOOK_EVERY);
        display.show(&progress);
        if engine.has_failed() || (stopping && progress.running == 0) {
            break;
        }
        if interrupt.is_asked() && !stopping {
            stopping = true;
            engine.tell(Event::Halt);
        }
        let touched = files.as_mut().map(Files::touched).unwrap_or_default();
        if !touched.is_empty() && !stopping {
            engine.tell(Event::Repair(Filter::ids(touched)));
        }
        if progress.idle && !stopping {
            // An idle engine answers at once.
            std::thread::sleep(LOOK_EVERY.saturating_sub(looked.elapsed()));
        }
    }
    display.close();
}

/// Managed paths, and what happens to them.
struct Files {
    watcher: RecommendedWatcher,
    events: Receiver<notify::Result<notify::Event>>,
    resources: HashMap<PathBuf, Vec<ResourceId>>,
    /// Directories that hold managed paths, and whether they are watched. One that is not there, or was
    /// removed, is watched as soon as it is there again.
    directories: BTreeMap<PathBuf, bool>,
    looked_at: Instant,
    /// Touched paths, and when that last happened.
    pending: HashMap<PathBuf, Instant>,
}

impl Files {
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
        let mut files = Files {
            watcher,
            events,
            resources: paths,
            directories,
            looked_at: Instant::now(),
            pending: HashMap::new(),
        };
        // Everything is verified after this.
        files.watch_directories()?;
        Ok(files)
    }

    /// Watches directories that are there and not watched yet. Answers which.
    fn watch_directories(&mut self) -> notify::Result<Vec<PathBuf>> {
        let mut new = Vec::new();
        for (directory, is_watched) in &mut self.directories {
            if !*is_watched && directory.is_dir() {
                self.watcher.watch(directory, RecursiveMode::NonRecursive)?;
                *is_watched = true;
                new.push(directory.clone());
            }
        }
        self.looked_at = Instant::now();
        Ok(new)
    }

    /// Resources whose paths were changed, and have been quiet since.
    fn touched(&mut self) -> Vec<ResourceId> {
        let now = Instant::now();
        while let Ok(event) = self.events.try_recv() {
            match event {
                // The kernel had too many changes to tell them all.
                Ok(event) if event.need_rescan() => self.all_in(None, now),
                Ok(event) => self.take_in(event, now),
                Err(error) => tracing::debug!(%error, "a change of a file was not understood"),
            }
        }
        if self.looked_at.elapsed() >= DIRECTORIES_EVERY {
            match self.watch_directories() {
                // What happened before it was watched was not noticed.
                Ok(new) => new.iter().for_each(|directory| self.all_in(Some(directory), now)),
                Err(error) => tracing::warn!(%error, "a directory cannot be watched"),
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

    fn take_in(&mut self, event: notify::Event, now: Instant) {
        let reads = matches!(event.kind, EventKind::Access(kind)
            if kind != AccessKind::Close(AccessMode::Write));
        if reads {
            return;
        }
        let gone =
            matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)));
        for path in event.paths {
            if gone && let Some(is_watched) = self.directories.get_mut(&path) {
                // The watch goes with the directory, or away with it; there may be none left to remove.
                let _ = self.watcher.unwatch(&path);
                *is_watched = false;
            }
            if self.resources.contains_key(&path) {
                self.pending.insert(path, now);
            }
        }
    }

    /// Counts all paths as touched, or those in a directory.
    fn all_in(&mut self, directory: Option<&Path>, now: Instant) {
        let is_meant = |path: &&PathBuf| directory.is_none() || path.parent() == directory;
        self.pending.extend(self.resources.keys().filter(is_meant).map(|path| (path.clone(), now)));
    }
}
