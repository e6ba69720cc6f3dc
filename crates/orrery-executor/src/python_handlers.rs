//! Python handlers of modules: their host processes, and the callbacks of those processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, RwLock};

use orrery_base::lock::IgnorePoison;
use orrery_handler_host::{
    ContentSource, Discovered, HandlerHosts, HandlerParameter, HostedHandler, Parameters,
};
use orrery_handlers::target::{Algorithm, ContentDigest};
use orrery_handlers::{Contents, Handler, HandlerError, Registry};
use orrery_host::code_store::CodeSet;
use orrery_model::{CompileId, Timestamp, VersionNumber};
use orrery_store::{
    CompileRequest, ContentHash, EnvironmentKey, Lease, NewCompileRecord, NewDiscovered,
    NewParameter, OnParameterChanged, ParameterSource, Store,
};

use crate::deferred_handler::{BackgroundSetup, DeferredHandler};
use crate::host_config::{HostConfig, HostSetupError};

/// Handlers of one code set, beside the native ones.
#[derive(Debug)]
pub struct HostedHandlers {
    pub registry: Arc<Registry>,
    hosts: Hosts,
}

#[derive(Debug)]
enum Hosts {
    Ready(Arc<HandlerHosts>),
    Deferred(Arc<DeferredHandler>),
}

impl HostedHandlers {
    /// Ends all processes.
    pub fn close(&self) {
        match &self.hosts {
            Hosts::Ready(hosts) => hosts.close(),
            Hosts::Deferred(deferred) => deferred.close(),
        }
    }

    /// Switches to a newer version with the same code.
    pub fn begin_version(&self, version: VersionNumber) {
        match &self.hosts {
            Hosts::Ready(hosts) => hosts.begin_version(version.0),
            Hosts::Deferred(deferred) => deferred.begin_version(version),
        }
    }

    fn new(set: &CodeSet, handler: &Arc<dyn Handler>, hosts: Hosts) -> Self {
        let mut registry = Registry::native();
        for entity in &set.handlers {
            registry.register_hosted(entity.clone(), Arc::clone(handler));
        }
        set.machine_handlers.iter().for_each(|entity| registry.mark_machine_user(entity));
        HostedHandlers { registry: Arc::new(registry), hosts }
    }
}

impl HostConfig {
    /// Prepares the handlers of a code set; processes start on first use.
    ///
    /// # Errors
    /// If there is no Python that could run them.
    pub fn start(self, set: &CodeSet) -> Result<HostedHandlers, HostSetupError> {
        let code = self.portable_code(set);
        let hosts = Arc::new(self.build_hosts(set)?);
        let handler = HostedHandler::new(Arc::clone(&hosts)).with_code(code);
        let handler: Arc<dyn Handler> = Arc::new(handler);
        Ok(HostedHandlers::new(set, &handler, Hosts::Ready(hosts)))
    }

    /// Prepares the handlers on a thread: the resources of this code wait for it, or are
    /// unavailable until an installation succeeds. All others deploy meanwhile.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start_in_background(
        self,
        set: &CodeSet,
        setup: BackgroundSetup,
    ) -> Result<HostedHandlers, HostSetupError> {
        let deferred = Arc::new(DeferredHandler::start(self, set.clone(), setup)?);
        let handler = Arc::clone(&deferred) as Arc<dyn Handler>;
        Ok(HostedHandlers::new(set, &handler, Hosts::Deferred(deferred)))
    }
}

/// File contents in a store, for handler code: by SHA-1, and by the ids that a version assigns.
pub struct StoredFiles {
    store: Store,
    environment: EnvironmentKey,
    clock: fn() -> Timestamp,
    names: RwLock<BTreeMap<String, String>>,
}

impl StoredFiles {
    /// Contents that handlers store are recorded as used by the environment.
    pub fn new(store: Store, environment: EnvironmentKey, clock: fn() -> Timestamp) -> Self {
        StoredFiles { store, environment, clock, names: RwLock::default() }
    }

    /// Replaces the map from ids to SHA-1.
    pub fn set_names(&self, names: BTreeMap<String, String>) {
        *self.names.write().ignore_poison() = names;
    }
}

impl ContentSource for StoredFiles {
    fn sha1_of(&self, id: &str) -> Result<Option<String>, String> {
        let names = self.names.read().ignore_poison();
        let own = || ContentHash::from_hex(id).map(|_| id.to_ascii_lowercase());
        Ok(names.get(id).cloned().or_else(own))
    }

    fn content(&self, sha1: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(hash) = ContentHash::from_hex(sha1) else { return Ok(None) };
        let found = self.store.contents().of_environment(self.environment, &hash);
        found.map_err(|error| error.to_string())
    }

    fn store(&self, sha1: &str, content: &[u8]) -> Result<(), String> {
        let hash = ContentHash::from_hex(sha1).ok_or_else(|| format!("{sha1:?} is not a SHA-1"))?;
        let stored = self.store.contents().put(&[(hash, content)]).and_then(|()| {
            let used = BTreeSet::from([hash]);
            self.store.contents().record_use(self.environment, None, &used, (self.clock)())
        });
        stored.map_err(|error| error.to_string())
    }
}

/// File contents that an environment uses.
pub struct StoredContents {
    pub store: Store,
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
        let found = self.store.contents().of_environment(self.environment, &ContentHash(hash));
        let found = found.map_err(|error| HandlerError::failed(error.to_string()))?;
        Ok(found.map(Into::into))
    }
}

/// Consequences of parameters that handlers set.
pub trait ParameterHooks: Send + Sync {
    /// Compile to request, in the transaction that sets a value, if an earlier compile found the
    /// value unknown, or if it changed and the handler wants a compile.
    fn compile_for(&self, is_fact: bool) -> Option<(CompileId, CompileRequest)>;

    /// Called after the commit.
    fn on_committed(&self);
}

/// No hooks, where nothing compiles automatically.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoParameterHooks;

impl ParameterHooks for NoParameterHooks {
    fn compile_for(&self, _: bool) -> Option<(CompileId, CompileRequest)> {
        None
    }

    fn on_committed(&self) {}
}

/// Parameters, facts and discovered resources in a store, for handler code.
pub struct StoredParameters {
    pub store: Store,
    pub environment: EnvironmentKey,
    /// `None`: nothing may be set.
    pub lease: Option<Lease>,
    pub clock: fn() -> Timestamp,
    pub hooks: Arc<dyn ParameterHooks>,
}

impl StoredParameters {
    fn lease(&self) -> Result<&Lease, String> {
        self.lease.as_ref().ok_or_else(|| "a dry run stores nothing".to_owned())
    }
}

impl Parameters for StoredParameters {
    fn list(&self, resource: Option<&str>) -> Result<Vec<HandlerParameter>, String> {
        let found = match resource {
            Some(id) => self.store.parameters().facts(self.environment, id),
            None => self.store.parameters().all(self.environment),
        };
        let convert = |one: orrery_store::StoredParameter| HandlerParameter {
            resource: one.resource.map(|id| id.to_string()),
            name: one.name,
            value: one.value,
            source: source_name(one.source).to_owned(),
            expires: one.expires,
            metadata: one.metadata,
        };
        found.map(|all| all.into_iter().map(convert).collect()).map_err(|error| error.to_string())
    }

    fn set(&self, parameter: &HandlerParameter, recompile: bool) -> Result<(), String> {
        let (lease, now) = (self.lease()?, (self.clock)());
        let HandlerParameter { resource, name, value, source, expires, metadata } = parameter;
        let new = NewParameter {
            name,
            value,
            resource: resource.as_deref(),
            source: source_of(source),
            expires: *expires,
            metadata: Some(metadata),
        };
        let compile = self.hooks.compile_for(resource.is_some());
        let then = match &compile {
            Some((id, request)) => OnParameterChanged::EnqueueCompile {
                compile: NewCompileRecord { id: *id, request },
                if_changed: recompile,
            },
            None => OnParameterChanged::Nothing,
        };
        let stored = self.store.parameters().put_for_handler(lease, &new, now, then);
        stored.map_err(|error| error.to_string())?;
        self.hooks.on_committed();
        Ok(())
    }

    fn store_discovered(&self, found: &[Discovered]) -> Result<(), String> {
        let (lease, now) = (self.lease()?, (self.clock)());
        let found: Vec<NewDiscovered<'_>> = found
            .iter()
            .map(|one| NewDiscovered {
                name: one.id.as_str(),
                attributes: &one.values,
                discovery_resource: one.by.as_str(),
            })
            .collect();
        let stored = self.store.discovered().put_for_handler(lease, &found, now);
        stored.map_err(|error| error.to_string())?;
        self.hooks.on_committed();
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
