//! Handlers in the code of modules, for an engine: the processes that run them, and what those processes ask back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::late::LateHandler;
use orrery_handlers::target::{Algorithm, ContentDigest};
use orrery_handlers::{Contents, Handler, HandlerError, Registry};
use orrery_host::code::CodeSet;
use orrery_host::environments::{Environments, Needs, installed_code};
use orrery_host::handling::{
    ContentSource, Discovered, FileContents, HandlerHosts, HostedHandler, Limits, Parameter,
    Parameters, Services,
};
use orrery_host::python::{self, Interpreter};
use orrery_host::session::{Init, Role};
use orrery_model::{Timestamp, VersionNumber};
use orrery_sandbox::Confinement;
use orrery_store::sql::Sql;
use orrery_store::{
    ContentHash, EnvironmentKey, Lease, NewDiscovered, NewParameter, ParameterEffect,
    ParameterSource, Store, StoreError,
};

/// What can go wrong before a handler runs.
#[derive(Debug, thiserror::Error)]
pub enum HostingError {
    #[error(transparent)]
    Code(#[from] orrery_host::code::CodeError),
    #[error(transparent)]
    Python(#[from] orrery_host::python::PythonError),
    #[error(transparent)]
    Environment(#[from] orrery_host::environments::EnvironmentError),
    /// The code must not be run here.
    #[error("{0}")]
    Refused(String),
}

/// Where the hosts of one environment work.
#[derive(Clone)]
pub struct Hosting {
    pub project: PathBuf,
    /// A UUID.
    pub environment: String,
    pub files: FileContents,
    /// Where virtual environments are made if the interpreter of the code is not there.
    pub environments: Environments,
    /// In bytes, for each process.
    pub memory_max: Option<u64>,
    /// Keeps the code away from what is not its environment's; `None` for the user's own code.
    pub confinement: Option<Confinement>,
    /// Why the code must not be run here at all.
    pub refused: Option<String>,
    pub parameters: Arc<dyn Parameters>,
}

impl fmt::Debug for Hosting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosting").field("project", &self.project).finish_non_exhaustive()
    }
}

/// The handlers of one set of code, beside those of this program.
#[derive(Debug)]
pub struct Hosted {
    pub registry: Arc<Registry>,
    hosts: Hosts,
}

#[derive(Debug)]
enum Hosts {
    Ready(Arc<HandlerHosts>),
    Late(Arc<LateHandler>),
}

impl Hosted {
    /// Ends all processes.
    pub fn close(&self) {
        match &self.hosts {
            Hosts::Ready(hosts) => hosts.close(),
            Hosts::Late(late) => late.close(),
        }
    }

    /// A newer version is deployed from now on, with the same code.
    pub fn begin_version(&self, version: VersionNumber) {
        match &self.hosts {
            Hosts::Ready(hosts) => hosts.begin_version(version.0),
            Hosts::Late(late) => late.begin_version(version),
        }
    }

    fn new(set: &CodeSet, handler: &Arc<dyn Handler>, hosts: Hosts) -> Self {
        let mut registry = Registry::native();
        for entity in &set.handlers {
            registry.serve(entity.clone(), Arc::clone(handler));
        }
        Hosted { registry: Arc::new(registry), hosts }
    }
}

impl Hosting {
    /// Gets ready to run the handlers of this code; processes are started when they are needed.
    ///
    /// # Errors
    /// If there is no Python that could run them.
    pub fn of(self, set: &CodeSet) -> Result<Hosted, HostingError> {
        let hosts = Arc::new(self.hosts(set)?);
        let handler: Arc<dyn Handler> = Arc::new(HostedHandler::new(Arc::clone(&hosts)));
        Ok(Hosted::new(set, &handler, Hosts::Ready(hosts)))
    }

    /// The same where nobody waits for an answer: what cannot be installed makes the resources of this code unavailable, is tried
    /// again later, and keeps nobody else from being deployed.
    ///
    /// # Errors
    /// If there is no Python that could run them.
    pub fn now_or_later(self, set: &CodeSet) -> Result<Hosted, HostingError> {
        match self.clone().of(set) {
            Err(error @ (HostingError::Environment(_) | HostingError::Refused(_))) => {
                let late = LateHandler::new(self, set.clone(), error.to_string());
                let late = Arc::new(late);
                let handler = Arc::clone(&late) as Arc<dyn Handler>;
                Ok(Hosted::new(set, &handler, Hosts::Late(late)))
            }
            other => other,
        }
    }

    pub(crate) fn hosts(self, set: &CodeSet) -> Result<HandlerHosts, HostingError> {
        let Hosting {
            project,
            environment,
            files,
            environments,
            memory_max,
            confinement,
            refused,
            parameters,
        } = self;
        if let Some(reason) = refused {
            return Err(HostingError::Refused(reason));
        }
        let mut modules = set.modules.clone();
        // Code that is confined does not choose what runs it.
        let program = if confinement.is_none() && set.program.exists() {
            set.program.clone()
        } else {
            // The environment of the project is gone, or elsewhere: one with the same requirements does as well.
            let base = Interpreter::find_for(set.python.as_deref())?;
            let environments = environments.confined(confinement.clone());
            let interpreter = environments.interpreter(&base, &Needs::from(set))?;
            modules.extend(installed_code(&interpreter, &set.installed));
            interpreter.program
        };
        let environment = Some(environment);
        let services =
            Services { files: files.clone(), environment: environment.clone(), parameters };
        let init = Init {
            role: Role::Handlers,
            data: project.join("data"),
            project,
            environment,
            files: files.directory().to_owned(),
            fetch: files.is_cache(),
            tests: false,
            path: set.path.clone(),
            config: serde_json::Map::new(),
            modules,
        };
        let limits = Limits { memory_max, ..Limits::default() };
        let mut command = python::host_command(&program, "python")?;
        command.confinement = confinement.map(|confinement| shown(confinement, &init, &program));
        Ok(HandlerHosts::new(command, init, services, limits))
    }
}

/// What code sees of its environment besides itself: the packages it needs and contents of files. It writes to its project only. What
/// code says of its own paths does not count.
fn shown(confinement: Confinement, init: &Init, program: &Path) -> Confinement {
    // An environment that was made for it lies two levels above its interpreter; other interpreters are seen anyway.
    let packages = program.parent().and_then(Path::parent).unwrap_or(program);
    confinement.readable(packages).readable(&init.files).writable(&init.project)
}

/// Contents of files in a store, for the code of handlers: by their SHA-1, and by the ids that a version has for some of them.
pub struct StoredFiles {
    store: Arc<dyn Store>,
    environment: EnvironmentKey,
    clock: fn() -> Timestamp,
    names: RwLock<BTreeMap<String, String>>,
}

impl StoredFiles {
    /// Contents that the handlers of an environment keep are noted as used by it.
    pub fn new(
        store: Arc<dyn Store>,
        environment: EnvironmentKey,
        clock: fn() -> Timestamp,
    ) -> Self {
        StoredFiles { store, environment, clock, names: RwLock::default() }
    }

    /// Says which ids stand for which SHA-1 from now on.
    pub fn set_names(&self, names: BTreeMap<String, String>) {
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = names;
    }
}

impl ContentSource for StoredFiles {
    fn sha1_of(&self, id: &str) -> Result<Option<String>, String> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let own = || ContentHash::from_hex(id).map(|_| id.to_ascii_lowercase());
        Ok(names.get(id).cloned().or_else(own))
    }

    fn content(&self, sha1: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(hash) = ContentHash::from_hex(sha1) else { return Ok(None) };
        let found = self.store.records().content_in(self.environment, &hash);
        found.map_err(|error| error.to_string())
    }

    fn keep(&self, sha1: &str, content: &[u8]) -> Result<(), String> {
        let hash = ContentHash::from_hex(sha1).ok_or_else(|| format!("{sha1:?} is no SHA-1"))?;
        let kept = self.store.put_files(&[(hash, content)]).and_then(|()| {
            let used = BTreeSet::from([hash]);
            self.store.records().use_contents(self.environment, None, &used, (self.clock)())
        });
        kept.map_err(|error| error.to_string())
    }
}

/// The contents of files that an environment uses.
pub struct StoredContents {
    pub store: Arc<dyn Store>,
    pub environment: EnvironmentKey,
}

impl fmt::Debug for StoredContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredContents")
    }
}

impl Contents for StoredContents {
    fn content(&self, digest: &ContentDigest) -> Result<Option<Arc<[u8]>>, HandlerError> {
        if digest.algorithm != Algorithm::Sha1 {
            return Ok(None);
        }
        let Ok(hash) = digest.as_bytes().try_into() else { return Ok(None) };
        let found = self.store.records().content_in(self.environment, &ContentHash(hash));
        let found = found.map_err(|error| HandlerError::failed(error.to_string()))?;
        Ok(found.map(Into::into))
    }
}

/// What follows from what handlers tell.
pub trait Consequences: Send + Sync {
    /// A value is set, in this transaction. `wanted` says whether whoever sets it wants a compile if it is another one.
    ///
    /// # Errors
    /// Then nothing is kept.
    fn of_value(
        &self,
        sql: &mut dyn Sql,
        is_fact: bool,
        effect: ParameterEffect,
        wanted: bool,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// Something is kept, for everybody to see.
    fn kept(&self);
}

/// Nothing follows, where nobody compiles by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConsequences;

impl Consequences for NoConsequences {
    fn of_value(
        &self,
        _: &mut dyn Sql,
        _: bool,
        _: ParameterEffect,
        _: bool,
        _: Timestamp,
    ) -> Result<(), StoreError> {
        Ok(())
    }

    fn kept(&self) {}
}

/// Parameters, facts and discovered resources in a store, for the code of handlers.
pub struct StoredParameters {
    pub store: Arc<dyn Store>,
    pub environment: EnvironmentKey,
    /// `None`: nothing may be set.
    pub lease: Option<Lease>,
    pub clock: fn() -> Timestamp,
    pub consequences: Arc<dyn Consequences>,
}

impl StoredParameters {
    fn lease(&self) -> Result<&Lease, String> {
        self.lease.as_ref().ok_or_else(|| "a dry run keeps nothing".to_owned())
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
            metadata: one.metadata,
        };
        found.map(|all| all.into_iter().map(shown).collect()).map_err(|error| error.to_string())
    }

    fn set(&self, parameter: &Parameter, recompile: bool) -> Result<(), String> {
        let (lease, now) = (self.lease()?, (self.clock)());
        let Parameter { resource, name, value, source, expires, metadata } = parameter;
        let new = NewParameter {
            name,
            value,
            resource: resource.as_deref(),
            source: source_of(source),
            expires: *expires,
            metadata: Some(metadata),
        };
        let is_fact = resource.is_some();
        let kept =
            self.store.records().put_parameter_of_handler(lease, &new, now, &|sql, effect| {
                self.consequences.of_value(sql, is_fact, effect, recompile, now)
            });
        kept.map_err(|error| error.to_string())?;
        self.consequences.kept();
        Ok(())
    }

    fn discovered(&self, found: &[Discovered]) -> Result<(), String> {
        let (lease, now) = (self.lease()?, (self.clock)());
        let found: Vec<NewDiscovered<'_>> = found
            .iter()
            .map(|one| NewDiscovered {
                name: one.id.as_str(),
                attributes: &one.values,
                discovery_resource: one.by.as_str(),
            })
            .collect();
        let kept = self.store.records().put_discovered_of_handler(lease, &found, now);
        kept.map_err(|error| error.to_string())?;
        self.consequences.kept();
        Ok(())
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
