//! All handlers of a deploy: those of this program, and those in the code of modules, which run in hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orrery_handlers::{Handler, Registry};
use orrery_host::code::{CodeSet, CodeStore};
use orrery_host::environments::Environments;
use orrery_host::handling::{
    HandlerHosts, HostedHandler, Limits, NoParameters, Parameter, Parameters, Services,
};
use orrery_host::python::{self, Interpreter};
use orrery_host::session::{Init, Role};
use orrery_model::{Fact, Resource};
use orrery_store::{EnvironmentKey, Lease, ParameterSource, ResultRecord, SqliteStore, Store};

use crate::cli_deploy::RunOptions;
use crate::code::{absolute, environment_id};
use crate::state::{self, StateOptions, now};

use super::Opened;

/// Code that no version needs is kept so long.
const CODE_KEPT: Duration = Duration::from_secs(7 * 86_400);
/// The same for environments, which take longer to make.
const ENVIRONMENTS_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// Handlers in hosts mostly wait: this many may do so at once.
const WORKERS_HOSTED: u16 = 64;
const WORKERS_NATIVE: u16 = 16;

/// What can go wrong before a handler runs.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandlersError {
    #[error(transparent)]
    Code(#[from] orrery_host::code::CodeError),
    #[error(transparent)]
    Python(#[from] orrery_host::python::PythonError),
    #[error(transparent)]
    Environment(#[from] orrery_host::environments::EnvironmentError),
}

/// The handlers of one command.
pub(super) struct Handlers {
    pub(super) registry: Arc<Registry>,
    /// The name under which the code of the hosts is kept.
    pub(super) code: Option<String>,
    hosts: Option<Arc<HandlerHosts>>,
}

/// Where a command works.
pub(super) struct Place<'a> {
    pub(super) project: &'a Path,
    pub(super) state: &'a StateOptions,
    pub(super) run: &'a RunOptions,
    /// `None` for commands that keep nothing.
    pub(super) opened: Option<&'a Opened>,
}

impl Handlers {
    /// Those for resources that were exported with this code. It is kept, so that it can be used without the project.
    pub(super) fn of(
        code: Option<CodeSet>,
        resources: &[Resource],
        place: &Place<'_>,
    ) -> Result<Self, HandlersError> {
        let kept = place.code_store();
        let Some(set) = code else {
            if place.opened.is_some() {
                kept.set_current(None)?;
            }
            return Ok(Handlers::native());
        };
        if place.opened.is_none() {
            return place.host(None, &set, resources);
        }
        let (hash, set) = kept.put(&set)?;
        kept.set_current(Some(&hash))?;
        place.host(Some(hash), &set, resources)
    }

    /// Those of the last deploy.
    pub(super) fn kept(resources: &[Resource], place: &Place<'_>) -> Result<Self, HandlersError> {
        let kept = place.code_store();
        match kept.current()? {
            None => Ok(Handlers::native()),
            Some(hash) => {
                let set = kept.open(&hash)?;
                place.host(Some(hash), &set, resources)
            }
        }
    }

    fn native() -> Self {
        Handlers { registry: Arc::new(Registry::native()), code: None, hosts: None }
    }

    /// How many may run at once, if nobody says.
    pub(super) fn workers(&self) -> u16 {
        if self.hosts.is_some() { WORKERS_HOSTED } else { WORKERS_NATIVE }
    }

    /// Ends all processes.
    pub(super) fn close(&self) {
        if let Some(hosts) = &self.hosts {
            hosts.close();
        }
    }
}

impl Place<'_> {
    fn code_store(&self) -> CodeStore {
        CodeStore::new(self.state.directory(self.project).join("code"))
    }

    fn environments(&self) -> Environments {
        Environments::new(self.state.directory(self.project).join("environments"), Vec::new())
    }

    fn host(
        &self,
        code: Option<String>,
        set: &CodeSet,
        resources: &[Resource],
    ) -> Result<Handlers, HandlersError> {
        let program = if set.program.exists() {
            set.program.clone()
        } else {
            // The environment of the project is gone: one with the same requirements does as well.
            let base = Interpreter::find(None)?;
            self.environments().interpreter(&base, &set.requirements)?.program
        };
        let project = absolute(self.project);
        let environment = Some(environment_id(&project));
        let files = project.join(state::DIRECTORY).join("files");
        let parameters: Arc<dyn Parameters> = match self.opened {
            Some(opened) => Arc::new(StoredParameters::of(opened)),
            None => Arc::new(NoParameters),
        };
        let services =
            Services { files: files.clone(), environment: environment.clone(), parameters };
        let init = Init {
            role: Role::Handlers,
            data: project.join("data"),
            project,
            environment,
            files,
            tests: false,
            path: set.path.clone(),
            config: serde_json::Map::new(),
            modules: set.modules.clone(),
        };
        let memory = self.run.host_memory.saturating_mul(1 << 20);
        let memory_max = (memory > 0).then_some(memory);
        let limits = Limits { memory_max, ..Limits::default() };
        let command = python::host_command(&program, "python")?;
        let hosts = HandlerHosts::new(command, init, services, limits).with_uris(uris(resources));
        let hosts = Arc::new(hosts);
        let handler: Arc<dyn Handler> = Arc::new(HostedHandler::new(Arc::clone(&hosts)));
        let mut registry = Registry::native();
        for entity in &set.handlers {
            registry.serve(entity.clone(), Arc::clone(&handler));
        }
        Ok(Handlers { registry: Arc::new(registry), code, hosts: Some(hosts) })
    }

    /// Removes code and environments that nobody needs any more. What cannot be removed stays.
    pub(super) fn tidy_up(&self, current: Option<&str>) {
        let Some(opened) = self.opened else { return };
        let Ok(versions) = opened.store.versions(opened.environment) else { return };
        let named = versions.iter().filter_map(|version| version.info.get("code")?.as_str());
        let needed: BTreeSet<String> = named.chain(current).map(str::to_owned).collect();
        let now = state::system_now();
        let code = self.code_store().clean(&needed, CODE_KEPT, now);
        let environments = self.environments().clean(ENVIRONMENTS_KEPT, now);
        tracing::debug!(?code, ?environments, "what nobody needs any more was removed");
    }
}

/// How agents are reached, as the model says.
fn uris(resources: &[Resource]) -> BTreeMap<String, String> {
    let configurations = resources.iter().filter(|one| one.id.entity() == "std::AgentConfig");
    configurations
        .filter_map(|resource| {
            let attributes = resource.attributes.to_object();
            let text = |name: &str| Some(attributes.get(name)?.as_str()?.to_owned());
            Some((text("agentname")?, text("uri")?))
        })
        .collect()
}

/// Parameters and facts in the store of a deploy.
struct StoredParameters {
    store: Arc<SqliteStore>,
    environment: EnvironmentKey,
    lease: Lease,
}

impl StoredParameters {
    fn of(opened: &Opened) -> Self {
        let Opened { store, environment, lease } = opened;
        StoredParameters { store: Arc::clone(store), environment: *environment, lease: *lease }
    }
}

impl Parameters for StoredParameters {
    fn list(&self, resource: Option<&str>) -> Result<Vec<Parameter>, String> {
        let found = match resource {
            Some(id) => self.store.facts(self.environment, id),
            None => self.store.parameters(self.environment),
        };
        let shown = |one: orrery_store::Parameter| Parameter {
            resource: one.resource.map(|id| id.to_string()),
            name: one.name,
            value: one.value,
            source: source_name(one.source).to_owned(),
            expires: one.expires,
        };
        found.map(|all| all.into_iter().map(shown).collect()).map_err(|error| error.to_string())
    }

    fn set(&self, parameter: Parameter) -> Result<(), String> {
        let Parameter { resource, name, value, source, expires } = parameter;
        let text = |error: orrery_store::StoreError| error.to_string();
        let Some(id) = resource else {
            let source = source_of(&source);
            let kept = self.store.set_parameter(self.environment, &name, &value, source, now());
            return kept.map(drop).map_err(text);
        };
        let found = self.store.find_resource(self.environment, &id).map_err(text)?;
        let found = found.ok_or_else(|| format!("there is no resource {id}"))?;
        let facts = [Fact { name, value, expires }];
        let record = ResultRecord { resource: found.key, state: None, action: None, facts: &facts };
        self.store.record_results(&self.lease, &[record]).map(drop).map_err(text)
    }
}

fn source_name(source: ParameterSource) -> &'static str {
    match source {
        ParameterSource::Fact => "fact",
        ParameterSource::Plugin => "plugin",
        ParameterSource::User => "user",
        ParameterSource::Report => "report",
    }
}

fn source_of(name: &str) -> ParameterSource {
    match name {
        "plugin" => ParameterSource::Plugin,
        "user" => ParameterSource::User,
        "report" => ParameterSource::Report,
        _ => ParameterSource::Fact,
    }
}
