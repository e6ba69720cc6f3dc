//! Commands that run handlers: deploy, plan, repair, watch, destroy. This module has their shared
//! steps: compiling a project and starting an engine.

pub(super) mod declared_agents;
mod destroy;
mod edits;
pub(super) mod follow_operation;
mod handlers;
mod local_run;
mod machine_facts;
pub(super) mod new_attributes;
pub(super) mod on_server;
mod plan;
pub(super) mod plan_order;
pub(super) mod plan_report;
mod progress;
pub(super) mod progress_bar;
mod prune;
pub(super) mod reconnect;
mod removal;
mod repair;
mod results;
mod server_report;
pub(super) mod unmanaged;
pub(super) mod unplaced;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orrery_base::error_chain::error_chain;
use orrery_compiler::error::CompileError;
use orrery_compiler::export::ExcludedResources;
use orrery_executor::{
    DesiredState, EngineSetup, LocalTargets, StoreHandle, StoredContents, StoredStates,
    WorkerLimits,
};
use orrery_handlers::clock::now;
use orrery_handlers::{Contents, LocalTarget, Permit};
use orrery_host::code_store::CodeSet;
use orrery_model::{DriftPolicies, Inventory, LogLevel, Resource, ResourceId};
use orrery_project::{
    CompiledProject, DeployingMachine, ExportMode, FactSource, FoundProject, ProjectRequest,
    UnknownValue,
};
use orrery_scheduler::{Filter, Interval, Settings};
use orrery_store::{
    EnvironmentKey, Lease, LeaseRequest, NewVersion, ProjectBinding, PutScope, REMOVAL_COUNT,
    Store, StoreError, UndefinedParameter,
};

pub(super) use destroy::run as destroy;
pub(super) use local_run::run as deploy;
pub(super) use plan::run as plan;
pub(super) use repair::run as repair;
pub(super) use watch::run as watch;

use crate::cli::ProjectOptions;
use crate::cli::deploy::{LimitOptions, RunOptions, Selection, Takeover};
use crate::commands::project_output::{ProjectPrinter, warn_if_no_resources};
use crate::error::{CliError, finish};
use crate::ssh::UserMachines;
use crate::state::StateOptions;
use crate::{Exit, output, style};

use declared_agents::DeclaredAgents;
use handlers::{Handlers, LocalPaths};
use machine_facts::FactCollection;

/// Reports an error with all its causes.
pub(super) fn failed(error: &dyn std::error::Error) -> Exit {
    let text = error_chain(error);
    output::print_status(&format!("{}: {}", style::error("error"), style::sanitize(&text)));
    Exit::Error
}

/// A compiled project that can be deployed.
pub(super) struct DeployableProject {
    pub(super) project: PathBuf,
    /// Name that the state is bound to.
    pub(super) name: String,
    pub(super) resources: Vec<Resource>,
    pub(super) unknowns: Vec<UndefinedParameter>,
    /// Number of resources that could not be exported or have no handler.
    pub(super) problems: usize,
    /// Resources of the model that are not in the version. They must not be pruned.
    pub(super) left_out: ExcludedResources,
    /// Module code with handlers, if any.
    pub(super) code: Option<CodeSet>,
    pub(super) declared_agents: DeclaredAgents,
}

impl DeployableProject {
    /// Warns if there is nothing to deploy.
    fn warn_if_empty(&self, quiet: bool) {
        if !quiet {
            warn_if_no_resources(self.resources.len(), self.problems);
        }
    }
}

/// Finds, compiles and exports the project, and shows its errors.
pub(super) fn prepare(
    given: &ProjectOptions,
    limits: &LimitOptions,
    quiet: bool,
    state: &StateOptions,
) -> Result<DeployableProject, Exit> {
    prepare_found(given.find(), &|| given.request(limits), quiet, state)
}

/// Compiles and exports the project, and shows its errors.
fn prepare_found(
    found: Result<FoundProject, Box<CompileError>>,
    request: &dyn Fn() -> ProjectRequest,
    quiet: bool,
    state: &StateOptions,
) -> Result<DeployableProject, Exit> {
    let mut compiled = match found {
        Ok(project) => compile_with_facts(&project, request, state),
        Err(error) => CompiledProject::not_found(error),
    };
    let printer = ProjectPrinter::new(&compiled, false);
    if !quiet && !printer.model_output() {
        return Err(Exit::Error);
    }
    printer.warnings();
    printer.errors();
    if let Some(error) = &compiled.export_error {
        return Err(failed(error));
    }
    if compiled.exported.is_none() {
        output::print_status(&format!("{}: the model does not compile", style::error("error")));
        return Err(Exit::Error);
    }
    printer.export_problems();
    let unknown = |UnknownValue { name, fact_of }: UnknownValue| UndefinedParameter {
        name,
        source: if fact_of.is_some() { "fact" } else { "plugin" }.to_owned(),
        resource: fact_of,
    };
    let (problems, left_out) = (compiled.undeployable(), compiled.left_out_resources());
    let unknowns = compiled.unknowns().into_iter().map(unknown).collect();
    let deployable = DeployableProject {
        project: compiled.directory.clone(),
        name: compiled.name.clone(),
        resources: compiled.exported.take().map(|exported| exported.resources).unwrap_or_default(),
        unknowns,
        problems,
        left_out,
        code: compiled.take_code(),
        declared_agents: DeclaredAgents::of_project(
            std::mem::take(&mut compiled.local_agents),
            compiled.inventory.take(),
        ),
    };
    compiled.finish();
    Ok(deployable)
}

/// Compiles a project; again if it needs facts that machines first have to tell.
fn compile_with_facts(
    project: &FoundProject,
    request: &dyn Fn() -> ProjectRequest,
    state: &StateOptions,
) -> CompiledProject {
    let mut collection = FactCollection::new(state.facts(&project.directory));
    loop {
        let facts = FactSource::Deployed(collection.facts());
        let export = ExportMode::Resources(DeployingMachine::This);
        let request = ProjectRequest { facts, export, ..request() };
        let compiled = orrery_project::compile(project.clone(), request);
        if !collection.collect(&compiled) {
            return compiled;
        }
    }
}

/// The open local store, its only environment, and the lease.
pub(super) struct LocalStore {
    pub(super) store: Store,
    pub(super) environment: EnvironmentKey,
    pub(super) lease: Lease,
}

pub(super) fn open(
    state: &StateOptions,
    project: &std::path::Path,
    command: &str,
) -> Result<LocalStore, orrery_store::StoreError> {
    let store = state.open(project, command)?;
    let environment = store.environments().ensure_default()?;
    let holder = orrery_store::Holder::this_process(format!("orrery {command}"), now());
    let request = LeaseRequest { holder, now: now(), expires: None };
    let lease = store.leases().acquire(environment, &request)?;
    let interrupted = orrery_executor::record_interrupted(&store, &lease, now())?;
    tracing::debug!(interrupted, "the state is open");
    Ok(LocalStore { store, environment, lease })
}

/// Rejects a project that the state is not bound to.
fn check_project(opened: &LocalStore, project: &str, takeover: Takeover) -> Result<(), StoreError> {
    compare_projects(&opened.store, opened.environment, project, takeover)
}

/// Checks the binding without the right to write.
fn compare_projects(
    store: &Store,
    environment: EnvironmentKey,
    project: &str,
    takeover: Takeover,
) -> Result<(), StoreError> {
    let bound = store.environments().by_key(environment)?.model_project;
    match bound.is_empty() || bound == project || takeover.rebind {
        true => Ok(()),
        false => Err(StoreError::OtherProject { bound, declared: project.to_owned() }),
    }
}

/// Store that was opened during the compile, with the states of its resources.
pub(super) type PreopenedStore =
    Option<Result<(LocalStore, StoredStates), orrery_store::StoreError>>;

/// Compiles the project and meanwhile opens its store, if it exists. Errors of the model are shown
/// first; those of the store are returned.
pub(super) fn prepare_and_open(
    given: &ProjectOptions,
    limits: &LimitOptions,
    quiet: bool,
    state: &StateOptions,
    command: &str,
) -> Result<(DeployableProject, PreopenedStore), Exit> {
    let found = given.find();
    let project = found.as_ref().ok().map(|project| project.directory.clone());
    let existing = project.filter(|project| state.file(project).exists());
    std::thread::scope(|scope| {
        let opening = existing.and_then(|project| {
            let read = move || {
                let opened = open(state, &project, command)?;
                let states = StoredStates::read(&opened.store, opened.environment)?;
                Ok((opened, states))
            };
            // Without a thread, the store is opened later.
            std::thread::Builder::new().name("opener".to_owned()).spawn_scoped(scope, read).ok()
        });
        let prepared = prepare_found(found, &|| given.request(limits), quiet, state);
        let opened = opening.and_then(|thread| thread.join().ok());
        Ok((prepared?, opened))
    })
}

/// Message and removals of a version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose<'a> {
    /// Message for users.
    pub(super) message: &'a str,
    /// Number of resources that the version removes.
    pub(super) removes: usize,
}

impl<'a> Purpose<'a> {
    /// Purpose of a version that removes nothing.
    pub(super) fn deploy(message: &'a str) -> Self {
        Purpose { message, removes: 0 }
    }
}

impl LocalStore {
    /// Stores the resources as a version, unless the newest version is equal.
    pub(super) fn put(
        &self,
        resources: Vec<Resource>,
        unknowns: &[UndefinedParameter],
        code: Option<&str>,
        declared_agents: &DeclaredAgents,
        purpose: Purpose<'_>,
        project: Option<ProjectBinding<'_>>,
    ) -> Result<(DesiredState, bool), orrery_store::StoreError> {
        let mut info = serde_json::json!({ "message": purpose.message });
        if purpose.removes > 0 {
            info[REMOVAL_COUNT] = purpose.removes.into();
        }
        declared_agents.record(&self.store, &mut info)?;
        // Placement and removals are part of the desired state.
        let newest = self.store.versions().list(self.environment)?.pop();
        let only_if_changed = newest.is_none_or(|newest| {
            declared_agents.are_those_of(&newest.info)
                && (orrery_store::removal_count(&newest.info) > 0) == (purpose.removes > 0)
        });
        if let Some(code) = code {
            info["code"] = code.into();
        }
        let put = self.store.versions().put(
            self.environment,
            &NewVersion {
                number: None,
                made_at: now(),
                info: &info,
                scope: PutScope::All,
                base: None,
                resources: &resources,
                unknowns,
                released: true,
                only_if_changed,
                lease: Some(&self.lease),
                project,
            },
        )?;
        Ok((DesiredState { version: put.number, resources, keys: put.keys }, put.created))
    }

    pub(super) fn store_handle(&self) -> StoreHandle {
        // The file lock is the lease here: no other process can take over while this one lives.
        let permit = Permit::unlimited();
        StoreHandle { store: self.store.clone(), lease: self.lease, permit }
    }
}

/// Engine setup for the agents on this machine.
fn setup(
    handlers: &Handlers,
    run: &RunOptions,
    opened: Option<&LocalStore>,
    inventory: Inventory,
) -> EngineSetup {
    let contents: Arc<dyn Contents> = match opened {
        Some(opened) => Arc::new(StoredContents {
            store: opened.store.clone(),
            environment: opened.environment,
        }),
        None => Arc::new(orrery_handlers::NoContents),
    };
    EngineSetup {
        registry: Arc::clone(&handlers.registry),
        targets: Arc::new(
            LocalTargets::new(LocalTarget::default(), inventory)
                .with_machines(Arc::new(UserMachines)),
        ),
        contents,
        secrets: Arc::new(orrery_handlers::LocalSecrets),
        settings: settings(run),
        drift_policies: DriftPolicies::default(),
        workers: WorkerLimits::from_setting(run.jobs, handlers.workers()),
        log_level: LogLevel::Debug,
        store_handle: opened.map(LocalStore::store_handle),
        listener: None,
    }
}

/// Settings of a single run: no retries.
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

    /// True if the resource is selected.
    pub(super) fn covers(&self, resource: &Resource) -> bool {
        self.covers_id(&resource.id)
    }

    pub(super) fn covers_id(&self, id: &ResourceId) -> bool {
        let agent = self.agents.is_empty() || self.agents.iter().any(|agent| agent == id.agent());
        agent && self.filter.as_ref().is_none_or(|pattern| pattern.matches(id))
    }

    /// Rejects a selection without a match, which would otherwise report success.
    pub(super) fn check_selects_some(&self, resources: &[Resource]) -> Result<(), CliError> {
        match resources.iter().any(|resource| self.covers(resource)) {
            true => Ok(()),
            false => self.nothing_selected(),
        }
    }

    /// Rejects a selection that is known to match nothing.
    pub(super) fn nothing_selected(&self) -> Result<(), CliError> {
        if self.is_all() {
            return Ok(());
        }
        let error = CliError::new("no resource selected");
        let help = "`orrery compile --resources` lists them; --agent takes an exact agent name, --filter a part of an id";
        Err(error.help(help))
    }

    /// Filter of the resources that are not selected.
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
