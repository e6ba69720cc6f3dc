//! Starting the engine of an environment, and applying newer versions and requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_base::clock::monotonic;
use orrery_executor::{
    Engine, EngineSetup, Notice, StoreHandle, StoredContents, Update, declared_address,
    declared_addresses, record_interrupted, recover,
};
use orrery_handlers::Permit;
use orrery_model::{LogLevel, VersionNumber};
use orrery_scheduler::{Event, Filter, Settings};
use orrery_store::{
    EnvironmentRecord, Lease, RequestRecord, Store, StoreError, VersionInfo, local_agents,
};

use super::snapshot::read_desired;
use super::{Runner, RunnerError};
use crate::host_inventory::read_hosts;
use crate::placement::DeclaredAgents;
use crate::process::Message;
use crate::process::active_environment::{
    ActiveEnvironment, NewRequests, claim_requests, pending_requests,
};
use crate::process::agent_routing::AgentRouter;
use crate::process::drift::DriftInbox;
use crate::process::epochs;
use crate::process::facts::UnknownFacts;
use crate::process::handlers::{HandlerInputs, Handlers, PATIENCE};
use crate::process::notifications::notify_missed;
use crate::process::own_machine::{OwnMachine, Rights};
use crate::process::secrets::EnvironmentSecrets;

impl Runner {
    /// Acquires the lease and starts the engine. `open` was read before the routing of agents: a
    /// machine that joins requests a repair, which must not run on the former machine.
    pub(super) fn take_over(
        &mut self,
        store: &Store,
        record: &EnvironmentRecord,
        newest: &VersionInfo,
        settings: Settings,
        paused: BTreeSet<String>,
        open: Vec<RequestRecord>,
    ) -> Result<(), RunnerError> {
        let lease = self.acquire(store)?;
        let started = self.start_engine(store, record, newest, (settings, paused), open, lease);
        if started.is_err() {
            self.release(store, &lease);
        }
        started
    }

    fn start_engine(
        &mut self,
        store: &Store,
        record: &EnvironmentRecord,
        newest: &VersionInfo,
        (settings, paused): (Settings, BTreeSet<String>),
        open: Vec<RequestRecord>,
        lease: Lease,
    ) -> Result<(), RunnerError> {
        let began = monotonic();
        record_interrupted(store, &lease, self.app.now())?;
        let desired = read_desired(store, self.key, newest.number)?;
        let count = desired.resources.len();
        let addresses = declared_addresses(&desired.resources);
        let declared = DeclaredAgents::of_version(store, addresses, &newest.info)?;
        // After a lost lease, the permit is revoked and nothing starts.
        let permit = self.lease_cell.permit().unwrap_or_else(|| {
            let over = Permit::unlimited();
            over.revoke();
            over
        });
        let own = &self.options.own_machine;
        let drift = DriftInbox::new(self.key, self.messages.clone());
        let (permitted, sink) = (Some(permit.clone()), Some(drift.own_machine()));
        let own = OwnMachine::read(&self.app, store, own, record, permitted, sink)?;
        let own = Arc::new(own);
        let machine = Arc::clone(&own);
        let (settings_now, places) =
            (&self.settings, (&*self.options.data, Some(drift.machines())));
        let router =
            AgentRouter::read(&self.app, store, record, settings_now, declared, own, places)?;
        let router = Arc::new(router);
        // Without a limited lease there is no other process to fence.
        if let Some(permit) = self.lease_cell.permit().filter(|permit| permit.end().is_some()) {
            epochs::announce(&router, router.connected_agents(), lease, &permit);
        }
        let handlers = self.load_handlers(record, newest, lease, machine.rights())?;
        let mut start = recover(store, self.key, desired)?;
        start.recovery.reset = self.settings.reset_deploy_progress_on_start;
        let states = start.recovery.resources.iter().map(|one| (&one.intent.id, &one.state));
        notify_missed(&store.under_lease(&lease), self.key, states, self.app.now())?;
        let (messages, app, key) = (self.messages.clone(), self.app.clone(), self.key);
        let listener = move |notice| match notice {
            // Fails only if the supervisor has ended.
            Notice::Attention => drop(messages.send(Message::Attention(key))),
            Notice::Written => app.wake_up(),
            Notice::Ran { outcome, took } => app.metrics().record_handler_run(outcome, took),
        };
        let setup = EngineSetup {
            registry: handlers.registry(),
            targets: Arc::clone(&router) as _,
            contents: Arc::new(StoredContents {
                store: self.app.store().clone(),
                environment: self.key,
            }),
            secrets: Arc::new(EnvironmentSecrets::new(&self.app, self.key, machine)),
            settings: settings.clone(),
            drift_policies: self.settings.drift_policies.clone(),
            workers: self.options.workers,
            log_level: LogLevel::Debug,
            store_handle: Some(StoreHandle {
                store: self.app.store().clone(),
                lease,
                permit: permit.clone(),
            }),
            listener: Some(Arc::new(listener)),
        };
        // Requests from before the start are merged with the initial deploy.
        let NewRequests { events, requests } =
            claim_requests(&self.app, &lease, open, (&[], None))?;
        let (engine, request_ids) = Engine::start_with_requests(setup, start, events)?;
        let requests = pending_requests(requests, request_ids).collect();
        // Files may have changed while nothing watched them; their runs begin to watch them.
        let agents = store.agents().states(self.key)?.into_iter().map(|agent| agent.name);
        let watched = router.watched_here(agents);
        engine.submit(Event::Drift(Filter { agents: Some(watched), ids: None }));
        // A killed process may have stored a fact without requesting the compile for it.
        if store.versions().unknowns(self.key, newest.number)?.iter().any(|(_, resolved)| *resolved)
        {
            self.request_compile_for_facts(&lease)?;
        }
        let mut unknown_facts = UnknownFacts::default();
        unknown_facts.track_version(store, self.key, &engine, self.app.now())?;
        tracing::info!(
            environment = %record.name,
            version = newest.number.0,
            resources = count,
            took_ms = began.elapsed().as_millis(),
            "environment taken over"
        );
        self.app.metrics().environments.inc();
        self.reports.add(lease, &router, engine.handle());
        self.active = Some(ActiveEnvironment {
            engine,
            lease,
            permit,
            handlers,
            router,
            settings,
            paused,
            unknown_facts,
            requests,
            ended: Vec::new(),
            parked: Vec::new(),
            unknown: Vec::new(),
            has_resolved: false,
            drift,
            drifted: Vec::new(),
        });
        Ok(())
    }

    /// Applies newer versions and requests to the engine.
    pub(super) fn apply_versions(
        &mut self,
        store: &Store,
        record: &EnvironmentRecord,
        released: &[VersionInfo],
        open: Vec<RequestRecord>,
    ) -> Result<(), RunnerError> {
        let Some(active) = &mut self.active else { return Ok(()) };
        let current = active.engine.version();
        let newer: Vec<&VersionInfo> =
            released.iter().filter(|version| version.number > current).collect();
        let Some(newest) = newer.last() else {
            let NewRequests { events, requests } =
                claim_requests(&self.app, &active.lease, open, active.accepted())?;
            let request_ids = events.into_iter().map(|event| active.engine.submit(event)).collect();
            active.requests.extend(pending_requests(requests, request_ids));
            return Ok(());
        };
        let steps: Vec<VersionNumber> = newer.iter().map(|version| version.number).collect();
        let update = match Update::read(store, self.key, current, &steps) {
            Ok(update) => update,
            Err(StoreError::NoVersion(_)) => {
                // Retention deleted the engine's version: reload everything.
                let (settings, paused) = (active.settings.clone(), active.paused.clone());
                self.stop();
                return self.take_over(store, record, newest, settings, paused, open);
            }
            Err(error) => return Err(error.into()),
        };
        if active.handlers.are_for(newest, active.router.own_machine().rights()) {
            active.handlers.begin_version(newest);
        } else {
            self.replace_handlers(record, newest)?;
        }
        let Some(active) = &mut self.active else { return Ok(()) };
        let changes = update.len();
        let hosts = Arc::new(read_hosts(store, &newest.info)?);
        let agents = store.agents().states(self.key)?.into_iter().map(|agent| agent.name);
        // First: resources of the version are applied at the sites that it declares.
        active.update_declared_agents(agents, |known| {
            known.project_patterns = local_agents(&newest.info);
            known.hosts = hosts;
            for (before, after) in update.changed_resources() {
                if let Some((agent, _)) = before.and_then(declared_address) {
                    known.addresses.remove(&agent);
                }
                known.addresses.extend(after.and_then(declared_address));
            }
        });
        let NewRequests { events, requests } =
            claim_requests(&self.app, &active.lease, open, active.accepted())?;
        let request_ids = active.engine.update_with_requests(update, events);
        active.requests.extend(pending_requests(requests, request_ids));
        active.unknown_facts.track_version(store, self.key, &active.engine, self.app.now())?;
        self.app.metrics().versions.inc_by(steps.len() as u64);
        tracing::info!(environment = %record.name, version = newest.number.0, changes, "version applied");
        Ok(())
    }

    /// Switches to the handlers of a version, with the current rights of the environment.
    pub(super) fn replace_handlers(
        &mut self,
        record: &EnvironmentRecord,
        version: &VersionInfo,
    ) -> Result<(), RunnerError> {
        let Some(active) = &self.active else { return Ok(()) };
        let rights = active.router.own_machine().rights();
        let handlers = self.load_handlers(record, version, active.lease, rights)?;
        let Some(active) = &mut self.active else { return Ok(()) };
        active.engine.replace_handlers(handlers.registry());
        // Current runs finish with the former handlers.
        let former = std::mem::replace(&mut active.handlers, handlers);
        former.close_when_idle();
        Ok(())
    }

    fn load_handlers(
        &self,
        record: &EnvironmentRecord,
        version: &VersionInfo,
        lease: Lease,
        rights: Rights,
    ) -> Result<Handlers, RunnerError> {
        let (messages, key) = (self.messages.clone(), self.key);
        // Fails only if the supervisor has ended.
        let attention = move || drop(messages.send(Message::Attention(key)));
        let inputs = HandlerInputs {
            app: &self.app,
            options: &self.options,
            environment: record,
            lease: Some(lease),
            rights,
            patience: PATIENCE,
            on_change: Arc::new(attention),
            clusters: &self.cluster_runtime,
        };
        Handlers::load(&inputs, version)
            .map_err(|source| RunnerError::Handlers { version: version.number, source })
    }
}
