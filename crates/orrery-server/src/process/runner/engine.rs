//! The engine of an environment: how it is begun, and how it follows newer versions and requests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use orrery_executor::{
    Engine, Keeper, Notice, Setup, StoredContents, Update, declared_address, declared_addresses,
    note_interrupted, recovery,
};
use orrery_handlers::Permit;
use orrery_model::{LogLevel, VersionNumber};
use orrery_scheduler::Settings;
use orrery_store::{
    EnvironmentRecord, Lease, RequestRecord, Store, StoreError, VersionInfo, local_agents,
};

use super::intent::read_desired;
use super::{Runner, RunnerError};
use crate::placement::Declared;
use crate::process::Message;
use crate::process::epochs;
use crate::process::facts::UnknownFacts;
use crate::process::handlers::{Handlers, Place};
use crate::process::own_machine::{OwnMachine, Rights};
use crate::process::parked::announce_missed;
use crate::process::places::AgentPlaces;
use crate::process::secrets::EnvironmentSecrets;
use crate::process::work::{Taken, Work, opened, take_requests};

impl Runner {
    /// Takes the environment over and starts its engine. The answer is what was asked for, read before where the agents are: who joins asks
    /// for a repair, which must not be carried out where the agent was before.
    pub(super) fn load(
        &mut self,
        store: &dyn Store,
        record: &EnvironmentRecord,
        newest: &VersionInfo,
        settings: Settings,
        paused: BTreeSet<String>,
        open: Vec<RequestRecord>,
    ) -> Result<(), RunnerError> {
        let lease = self.acquire(store)?;
        let started = self.start(store, record, newest, (settings, paused), open, lease);
        if started.is_err() {
            self.release(store, &lease);
        }
        started
    }

    fn start(
        &mut self,
        store: &dyn Store,
        record: &EnvironmentRecord,
        newest: &VersionInfo,
        (settings, paused): (Settings, BTreeSet<String>),
        open: Vec<RequestRecord>,
        lease: Lease,
    ) -> Result<(), RunnerError> {
        let began = Instant::now();
        note_interrupted(store, &lease, self.app.now())?;
        let desired = read_desired(store, self.key, newest.number)?;
        let count = desired.resources.len();
        let declared = Declared {
            addresses: declared_addresses(&desired.resources),
            patterns: local_agents(&newest.info),
        };
        // One that was lost meanwhile starts nothing.
        let permit = self.held.permit().unwrap_or_else(|| {
            let over = Permit::unlimited();
            over.revoke();
            over
        });
        let own = &self.options.own_machine;
        let own = OwnMachine::read(&self.app, store, own, record, Some(permit.clone()))?;
        let own = Arc::new(own);
        let machine = Arc::clone(&own);
        let places = AgentPlaces::read(&self.app, store, record, &self.settings, declared, own)?;
        let places = Arc::new(places);
        // Where others cannot take over, nobody has to be refused.
        if let Some(permit) = self.held.permit().filter(|permit| permit.end().is_some()) {
            epochs::tell(&places, places.connected(), lease, &permit);
        }
        let handlers = self.handlers(record, newest, lease, machine.rights())?;
        let mut start = recovery(store, self.key, desired)?;
        start.recovery.reset = self.settings.reset_deploy_progress_on_start;
        let states = start.recovery.resources.iter().map(|one| (&one.intent.id, &one.state));
        announce_missed(store.records().under(&lease), self.key, states, self.app.now())?;
        let (messages, app, key) = (self.messages.clone(), self.app.clone(), self.key);
        let listener = move |notice| match notice {
            // A supervisor that is gone wants to know nothing.
            Notice::Attention => drop(messages.send(Message::Attention(key))),
            Notice::Written => app.nudge(),
            Notice::Ran { outcome, took } => app.metrics().handler_ran(outcome, took),
        };
        let setup = Setup {
            registry: handlers.registry(),
            targets: Arc::clone(&places) as _,
            contents: Arc::new(StoredContents {
                store: Arc::clone(self.app.store()),
                environment: self.key,
            }),
            secrets: Arc::new(EnvironmentSecrets::new(&self.app, self.key, machine)),
            settings: settings.clone(),
            workers: self.options.workers,
            log_level: LogLevel::Debug,
            keeper: Some(Keeper {
                store: Arc::clone(self.app.store()),
                lease,
                permit: permit.clone(),
            }),
            listener: Some(Arc::new(listener)),
        };
        // What was asked for before the start is one with what is due anyway.
        let Taken { events, requests } = take_requests(&self.app, &lease, open, &[])?;
        let (engine, tickets) = Engine::start_asked(setup, start, events)?;
        let requests = opened(requests, tickets).collect();
        // A process that was killed may have kept a fact without asking for the compile that it is a reason for.
        if store.unknowns(self.key, newest.number)?.iter().any(|(_, resolved)| *resolved) {
            self.unknowns_became_known(&lease)?;
        }
        let mut unknown_facts = UnknownFacts::default();
        unknown_facts.follow(store, self.key, &engine, self.app.now())?;
        tracing::info!(
            environment = %record.name,
            version = newest.number.0,
            resources = count,
            took_ms = began.elapsed().as_millis(),
            "environment taken over"
        );
        self.app.metrics().environments.inc();
        self.work = Some(Work {
            engine,
            lease,
            permit,
            handlers,
            places,
            settings,
            paused,
            unknown_facts,
            requests,
            ended: Vec::new(),
            parked: Vec::new(),
            unknown: Vec::new(),
            has_resolved: false,
        });
        Ok(())
    }

    /// Takes newer versions in.
    pub(super) fn follow(
        &mut self,
        store: &dyn Store,
        record: &EnvironmentRecord,
        released: &[VersionInfo],
        open: Vec<RequestRecord>,
    ) -> Result<(), RunnerError> {
        let Some(work) = &mut self.work else { return Ok(()) };
        let current = work.engine.version();
        let newer: Vec<&VersionInfo> =
            released.iter().filter(|version| version.number > current).collect();
        let Some(newest) = newer.last() else {
            let Taken { events, requests } =
                take_requests(&self.app, &work.lease, open, &work.requests)?;
            let tickets = events.into_iter().map(|event| work.engine.ask(event)).collect();
            work.requests.extend(opened(requests, tickets));
            return Ok(());
        };
        let steps: Vec<VersionNumber> = newer.iter().map(|version| version.number).collect();
        let update = match Update::read(store, self.key, current, &steps) {
            Ok(update) => update,
            Err(StoreError::NoVersion(_)) => {
                // The version it knows was cleaned away: everything is read anew.
                let (settings, paused) = (work.settings.clone(), work.paused.clone());
                self.stop();
                return self.load(store, record, newest, settings, paused, open);
            }
            Err(error) => return Err(error.into()),
        };
        if work.handlers.are_for(newest, work.places.own_machine().rights()) {
            work.handlers.follow(newest);
        } else {
            self.exchange_handlers(record, newest)?;
        }
        let Some(work) = &mut self.work else { return Ok(()) };
        let changes = update.len();
        let agents = store.agents(self.key)?.into_iter().map(|agent| agent.name);
        // First: what the version brings is applied where the version says.
        work.declare_agents(agents, |known| {
            known.project_patterns = local_agents(&newest.info);
            for (before, after) in update.declarations() {
                if let Some((agent, _)) = before.and_then(declared_address) {
                    known.addresses.remove(&agent);
                }
                known.addresses.extend(after.and_then(declared_address));
            }
        });
        let Taken { events, requests } =
            take_requests(&self.app, &work.lease, open, &work.requests)?;
        let tickets = work.engine.update_and(update, events);
        work.requests.extend(opened(requests, tickets));
        work.unknown_facts.follow(store, self.key, &work.engine, self.app.now())?;
        self.app.metrics().versions.inc_by(steps.len() as u64);
        tracing::info!(environment = %record.name, version = newest.number.0, changes, "version taken in");
        Ok(())
    }

    /// Goes on with the handlers of a version, and with the rights that the environment has now.
    pub(super) fn exchange_handlers(
        &mut self,
        record: &EnvironmentRecord,
        version: &VersionInfo,
    ) -> Result<(), RunnerError> {
        let Some(work) = &self.work else { return Ok(()) };
        let rights = work.places.own_machine().rights();
        let handlers = self.handlers(record, version, work.lease, rights)?;
        let Some(work) = &mut self.work else { return Ok(()) };
        work.engine.exchange_handlers(handlers.registry());
        // What runs goes on with the former ones, and is waited for.
        let former = std::mem::replace(&mut work.handlers, handlers);
        former.close_when_idle();
        Ok(())
    }

    fn handlers(
        &self,
        record: &EnvironmentRecord,
        version: &VersionInfo,
        lease: Lease,
        rights: Rights,
    ) -> Result<Handlers, RunnerError> {
        let place = Place {
            app: &self.app,
            options: &self.options,
            environment: record,
            lease: Some(lease),
            rights,
        };
        Handlers::of(&place, version)
            .map_err(|source| RunnerError::Handlers { version: version.number, source })
    }
}
