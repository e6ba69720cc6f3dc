//! Commands that run handlers: deploy, plan, repair, watch. What they have in common is here: from a project
//! to its resources, and from those to a running engine.

pub(super) mod bar;
mod destroy;
mod edits;
pub(super) mod forecast;
mod hosted;
pub(super) mod new_attributes;
pub(super) mod on_server;
mod pass;
pub(super) mod placing;
mod plan;
pub(super) mod plan_order;
mod progress;
mod prune;
pub(super) mod reconnecting;
mod removal;
mod repair;
mod results;
mod server_report;
pub(super) mod unmanaged;
pub(super) mod waiting;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orrery_compiler::diagnostic::Diagnostic;
use orrery_compiler::export::{Exported, LeftOutResources, Note};
use orrery_executor::{Desired, Keeper, KnownStates, LocalTargets, Setup, StoredContents, Workers};
use orrery_handlers::{Contents, LocalTarget, Permit, Registry};
use orrery_host::code::CodeSet;
use orrery_model::{Inventory, LogLevel, Resource, ResourceId};
use orrery_scheduler::{Filter, Interval, Settings};
use orrery_store::{
    EnvironmentKey, LOCAL_AGENTS, Lease, LeaseRequest, NewVersion, ProjectBinding, REMOVES, Scope,
    SqliteStore, Store, StoreError, Unknown,
};

pub(super) use destroy::run as destroy;
pub(super) use pass::run as deploy;
pub(super) use plan::run as plan;
pub(super) use repair::run as repair;
pub(super) use watch::run as watch;

use crate::cli::ProjectOptions;
use crate::cli_deploy::{LimitOptions, RunOptions, Selection, Takeover};
use crate::code::{DeployingMachine, Work};
use crate::commands::report;
use crate::commands::trouble::{Trouble, finish};
use crate::render::Shown;
use crate::state::{StateOptions, now};
use crate::{Exit, output, projects, style};

use hosted::{Handlers, Place};

/// Says what went wrong, with all its causes, and how the command ends.
pub(super) fn failed(error: &dyn std::error::Error) -> Exit {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    output::say(&format!("{}: {}", style::error("error"), style::harmless(&text)));
    Exit::Error
}

/// A project that was compiled and exported.
pub(super) struct Prepared {
    pub(super) project: PathBuf,
    pub(super) resources: Vec<Resource>,
    pub(super) unknowns: Vec<Unknown>,
    /// How many resources are left out: they could not be exported, or have no handler.
    pub(super) problems: usize,
    /// Resources of the model that are left out: they are still wanted.
    pub(super) left_out: LeftOutResources,
    /// The code of modules that has handlers, if there is any.
    pub(super) code: Option<CodeSet>,
    /// Patterns of agents that the project declares to be this machine.
    pub(super) local_agents: Vec<String>,
}

impl Prepared {
    /// Says why nothing will happen, if there is nothing to deploy.
    fn tell_if_empty(&self, quiet: bool) {
        if !quiet {
            super::compile::tell_if_no_resources(self.resources.len(), self.problems);
        }
    }
}

/// Compiles the project and makes resources of its instances. Errors are shown.
pub(super) fn prepare(
    given: &ProjectOptions,
    limits: &LimitOptions,
    quiet: bool,
    state: &StateOptions,
) -> Result<Prepared, Exit> {
    let mut work = super::compile::compile(given, limits, Some(state));
    let exported = work.export(&Registry::native(), DeployingMachine::This);
    let code = work.code();
    let local_agents = work.local_agents();
    let Work { project, compiled, host, .. } = work;
    if !quiet && !output::print(|out| out.write_all(compiled.output.as_bytes())) {
        return Err(Exit::Error);
    }
    let path = |name: &str| projects::path_from_here(&project, name);
    let shown = Shown { sources: &compiled.sources, path: &path, width: output::width() };
    let warnings: Vec<Diagnostic> = compiled
        .warnings
        .iter()
        .map(Diagnostic::from)
        .filter(|warning| warning.id != Some(super::compile::QUIET_WARNING))
        .collect();
    report::show_warnings(&shown, &warnings);
    report::show_errors(&shown, &compiled.errors());
    let Some(exported) = exported else {
        output::say(&format!("{}: the model does not compile", style::error("error")));
        return Err(Exit::Error);
    };
    let exported = exported.map_err(|error| failed(&error))?;
    let (count, left_out) = (exported.left_out(), exported.left_out_resources());
    let Exported { resources, unknowns, problems, notes, .. } = exported;
    for note in &notes {
        output::say(&format!(
            "{}: {}",
            style::warning("warning"),
            style::harmless(&note.to_string())
        ));
    }
    let diagnostics: Vec<Diagnostic> = problems.iter().map(Diagnostic::from).collect();
    report::show_errors(&shown, &diagnostics);
    // What a large model leaves behind is not needed any more, but tidying it up takes longer than keeping it.
    let without_handler: usize = notes
        .iter()
        .map(|note| match note {
            Note::NoHandler { count, .. } => *count,
            _ => 0,
        })
        .sum();
    let problems = count + without_handler;
    std::mem::forget(compiled);
    drop(host);
    let unknown = |one: orrery_compiler::export::Unknown| Unknown {
        name: one.attribute.to_string(),
        source: if one.fact_of.is_some() { "fact" } else { "plugin" }.to_owned(),
        resource: one.fact_of,
    };
    let unknowns = unknowns.into_iter().map(unknown).collect();
    Ok(Prepared { project, resources, unknowns, problems, left_out, code, local_agents })
}

/// An open store, its only environment, and the right to write to it.
pub(super) struct Opened {
    pub(super) store: Arc<SqliteStore>,
    pub(super) environment: EnvironmentKey,
    pub(super) lease: Lease,
}

pub(super) fn open(
    state: &StateOptions,
    project: &std::path::Path,
    command: &str,
) -> Result<Opened, orrery_store::StoreError> {
    let store = state.open(project, command)?;
    let environment = store.default_environment()?;
    let holder = orrery_store::Holder::this_process(format!("orrery {command}"), now());
    let request = LeaseRequest { holder, now: now(), expires: None };
    let lease = store.acquire_lease(environment, &request)?;
    let interrupted = orrery_executor::note_interrupted(&store, &lease, now())?;
    tracing::debug!(interrupted, "the state is open");
    Ok(Opened { store: Arc::new(store), environment, lease })
}

/// Refuses a project that the state does not belong to.
fn check_project(
    opened: &Opened,
    project: &std::path::Path,
    takeover: Takeover,
) -> Result<(), StoreError> {
    compare_projects(&opened.store, opened.environment, project, takeover)
}

/// The same for whoever only looks.
fn compare_projects(
    store: &SqliteStore,
    environment: EnvironmentKey,
    project: &std::path::Path,
    takeover: Takeover,
) -> Result<(), StoreError> {
    let bound = store.records().environment_of(environment)?.model_project;
    let declared = projects::name_of(project);
    match bound.is_empty() || bound == declared || takeover.rebind {
        true => Ok(()),
        false => Err(StoreError::OtherProject { bound, declared }),
    }
}

/// A store that was opened while the model was compiled, with what it knows of the resources.
pub(super) type OpenedEarly = Option<Result<(Opened, KnownStates), orrery_store::StoreError>>;

/// Compiles the project, and opens its store meanwhile if there is one already. Errors of the model are shown;
/// those of the store count only after them.
pub(super) fn prepare_and_open(
    given: &ProjectOptions,
    limits: &LimitOptions,
    quiet: bool,
    state: &StateOptions,
    command: &str,
) -> Result<(Prepared, OpenedEarly), Exit> {
    let project = projects::directory(given.project.as_deref(), &given.main).ok();
    let existing = project.filter(|project| state.file(project).exists());
    std::thread::scope(|scope| {
        let opening = existing.and_then(|project| {
            let read = move || {
                let opened = open(state, &project, command)?;
                let states = KnownStates::read(&*opened.store, opened.environment)?;
                Ok((opened, states))
            };
            // Without a thread, it is opened later.
            std::thread::Builder::new().name("opener".to_owned()).spawn_scoped(scope, read).ok()
        });
        let prepared = prepare(given, limits, quiet, state);
        let opened = opening.and_then(|thread| thread.join().ok());
        Ok((prepared?, opened))
    })
}

/// What a version is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose<'a> {
    /// For people.
    pub(super) message: &'a str,
    /// Resources that it removes.
    pub(super) removes: usize,
}

impl<'a> Purpose<'a> {
    /// The purpose of a version that has what is wanted, and nothing else.
    pub(super) fn deploy(message: &'a str) -> Self {
        Purpose { message, removes: 0 }
    }
}

impl Opened {
    /// Keeps the resources as a version, unless the newest has the same.
    pub(super) fn put(
        &self,
        resources: Vec<Resource>,
        unknowns: &[Unknown],
        code: Option<&str>,
        local_agents: &[String],
        purpose: Purpose<'_>,
        project: Option<ProjectBinding<'_>>,
    ) -> Result<(Desired, bool), orrery_store::StoreError> {
        let mut info = serde_json::json!({ "message": purpose.message });
        if purpose.removes > 0 {
            info[REMOVES] = purpose.removes.into();
        }
        if !local_agents.is_empty() {
            info[LOCAL_AGENTS] = local_agents.into();
        }
        // Where resources are applied is a part of what is wanted, and so is whether the version removes.
        let newest = self.store.versions(self.environment)?.pop();
        let only_if_changed = newest.is_none_or(|newest| {
            orrery_store::local_agents(&newest.info) == local_agents
                && (orrery_store::removes(&newest.info) > 0) == (purpose.removes > 0)
        });
        if let Some(code) = code {
            info["code"] = code.into();
        }
        let put = self.store.put_version(
            self.environment,
            &NewVersion {
                number: None,
                made_at: now(),
                info: &info,
                scope: Scope::All,
                base: None,
                resources: &resources,
                unknowns,
                released: true,
                only_if_changed,
                lease: Some(&self.lease),
                project,
            },
        )?;
        Ok((Desired { version: put.number, resources, keys: put.keys }, put.created))
    }

    pub(super) fn keeper(&self) -> Keeper {
        // The lock of the file is the lease here: nobody takes over while this process lives.
        let permit = Permit::unlimited();
        Keeper { store: Arc::clone(&self.store) as Arc<dyn Store>, lease: self.lease, permit }
    }
}

/// What an engine needs, for the agents that are this machine.
fn setup(
    handlers: &Handlers,
    run: &RunOptions,
    opened: Option<&Opened>,
    inventory: Inventory,
) -> Setup {
    let contents: Arc<dyn Contents> = match opened {
        Some(opened) => Arc::new(StoredContents {
            store: Arc::clone(&opened.store) as Arc<dyn Store>,
            environment: opened.environment,
        }),
        None => Arc::new(orrery_handlers::NoContents),
    };
    Setup {
        registry: Arc::clone(&handlers.registry),
        targets: Arc::new(LocalTargets::new(LocalTarget::default(), inventory)),
        contents,
        secrets: Arc::new(orrery_handlers::LocalSecrets),
        settings: settings(run),
        workers: Workers::asked_for(run.jobs, handlers.workers()),
        log_level: LogLevel::Debug,
        keeper: opened.map(Opened::keeper),
        listener: None,
    }
}

/// One pass: nothing is tried again by itself.
fn settings(run: &RunOptions) -> Settings {
    Settings {
        deploy_interval: Interval::Off,
        repair_interval: Interval::Off,
        task_time_max: (run.timeout() > 0).then(|| Duration::from_secs(run.timeout())),
        ..Settings::default()
    }
}

impl Selection {
    pub(super) fn is_all(&self) -> bool {
        self.agents.is_empty() && self.filter.is_none()
    }

    /// Whether a resource is meant.
    pub(super) fn covers(&self, resource: &Resource) -> bool {
        self.covers_id(&resource.id)
    }

    pub(super) fn covers_id(&self, id: &ResourceId) -> bool {
        let agent = self.agents.is_empty() || self.agents.iter().any(|agent| agent == id.agent());
        agent && self.filter.as_ref().is_none_or(|pattern| pattern.matches(id))
    }

    /// Whoever selects something that is not there has made a mistake, and does not want to hear that all is well.
    pub(super) fn refuse_if_none_of(&self, resources: &[Resource]) -> Result<(), Trouble> {
        match resources.iter().any(|resource| self.covers(resource)) {
            true => Ok(()),
            false => self.refuse_to_select_nothing(),
        }
    }

    /// The same, where it is known that no resource is meant.
    pub(super) fn refuse_to_select_nothing(&self) -> Result<(), Trouble> {
        if self.is_all() {
            return Ok(());
        }
        let trouble = Trouble::said("no resource of the model is selected");
        let help = "`orrery compile --resources` shows them; --agent wants the exact name of an agent, --filter a part of an id";
        Err(trouble.help(help))
    }

    /// What is not meant.
    pub(super) fn others(&self, resources: &[Resource]) -> Filter {
        let others = resources.iter().filter(|resource| !self.covers(resource));
        Filter::ids(others.map(|resource| resource.id.clone()))
    }

    pub(super) fn selected(&self, resources: &[Resource]) -> Filter {
        if self.is_all() {
            return Filter::all();
        }
        let selected = resources.iter().filter(|resource| self.covers(resource));
        Filter::ids(selected.map(|resource| resource.id.clone()))
    }
}
