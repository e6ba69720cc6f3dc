//! Facts of machines for a compile on this machine. Without a server, machines that the model asks
//! for, and whose facts are unknown or old, are asked before the deploy, which stores the facts
//! itself. A server asks them during the deploy, and another compile follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use orrery_api::client::{ClientError, query};
use orrery_api::{Parameter, VersionUpload};
use orrery_compiler::plugins::Facts;
use orrery_executor::{LocalTargets, collect_facts, declared_addresses};
use orrery_handlers::target::host_name;
use orrery_handlers::{LocalTarget, Registry};
use orrery_model::{Inventory, MACHINE_FACTS_ENTITY, MACHINE_FACTS_PROBE, Resource};
use orrery_project::CompiledProject;

use crate::remote::RemoteEnvironment;
use crate::ssh::UserMachines;
use crate::state::StoredFacts;

/// Time limit of all machines together. Those that are slower are asked again by the deploy.
const TIME: Duration = Duration::from_secs(30);

/// Facts of one resource, by name.
type Values = BTreeMap<String, String>;

/// Facts of the state, under those that were just collected.
#[derive(Debug)]
struct CollectedFacts {
    stored: Arc<StoredFacts>,
    /// By resource id.
    collected: BTreeMap<String, Values>,
}

impl Facts for CollectedFacts {
    fn fact(&self, id: &str, name: &str) -> Option<String> {
        let collected = self.collected.get(id).and_then(|values| values.get(name)).cloned();
        collected.or_else(|| self.stored.fact(id, name))
    }

    fn facts_with(&self, id: &str, probe: &str) -> Option<Values> {
        match self.collected.get(id) {
            Some(values) => values.contains_key(probe).then(|| values.clone()),
            None => self.stored.facts_with(id, probe),
        }
    }
}

/// Compiles in a row. Facts of one machine may decide which other machines a model asks for.
const ROUNDS_MAX: usize = 8;

/// Facts that compiles of one command collect.
pub(super) struct FactCollection {
    stored: Arc<StoredFacts>,
    collected: BTreeMap<String, Values>,
    /// Resources that were asked, successfully or not.
    asked: BTreeSet<String>,
    rounds: usize,
}

impl FactCollection {
    pub(super) fn new(stored: Arc<StoredFacts>) -> Self {
        let (collected, asked) = (BTreeMap::new(), BTreeSet::new());
        FactCollection { stored, collected, asked, rounds: 1 }
    }

    /// Facts for the next compile.
    pub(super) fn facts(&self) -> Arc<dyn Facts> {
        let stored = Arc::clone(&self.stored);
        Arc::new(CollectedFacts { stored, collected: self.collected.clone() })
    }

    /// Asks the machines whose facts the model reads. Returns true if there are new facts, for
    /// another compile.
    pub(super) fn collect(&mut self, compiled: &CompiledProject) -> bool {
        let Some(exported) = compiled.exported.as_ref().filter(|_| self.rounds < ROUNDS_MAX) else {
            return false;
        };
        let is_due = |resource: &&Resource| {
            let id = resource.id.as_str();
            resource.id.entity() == MACHINE_FACTS_ENTITY
                && !self.asked.contains(id)
                && !self.stored.are_fresh(id)
        };
        let due: Vec<Resource> = exported.resources.iter().filter(is_due).cloned().collect();
        if due.is_empty() {
            return false;
        }
        self.rounds += 1;
        self.asked.extend(due.iter().map(|resource| resource.id.to_string()));
        let hosts = compiled.inventory.as_ref().map(|found| Arc::clone(&found.hosts));
        let inventory = Inventory {
            addresses: declared_addresses(&exported.resources),
            project_patterns: compiled.local_agents.clone(),
            hosts: hosts.unwrap_or_default(),
            ..Inventory::default()
        };
        let targets = LocalTargets::new(LocalTarget::default(), inventory.on_host(&host_name()))
            .with_machines(Arc::new(UserMachines));
        let mut has_news = false;
        for (id, facts) in collect_facts(&targets, &Registry::native(), &due, TIME) {
            let values = facts.into_iter().map(|fact| (fact.name, fact.value)).collect();
            has_news |= self.stored.values(id.as_str()) != values;
            self.collected.insert(id.as_str().to_owned(), values);
        }
        has_news
    }
}

/// Resources with facts of machines that a compile for a server lacked.
pub(super) fn missing(upload: &VersionUpload) -> BTreeSet<String> {
    let is_machine =
        |id: &&String| id.split_once('[').is_some_and(|(entity, _)| entity == MACHINE_FACTS_ENTITY);
    let ids = upload.unknowns.iter().filter_map(|unknown| unknown.resource.as_ref());
    ids.filter(is_machine).cloned().collect()
}

/// True if a server that does not compile itself has learned some of these facts.
///
/// # Errors
/// Errors of the connection.
pub(super) fn has_learned(
    of: &RemoteEnvironment,
    missing: &BTreeSet<String>,
) -> Result<bool, ClientError> {
    let at = query(&of.path(&["facts"]), &[("name", Some(MACHINE_FACTS_PROBE))]);
    for fact in of.client.list::<Parameter>(&at).large() {
        if fact?.resource.is_some_and(|id| missing.contains(&id)) {
            return Ok(true);
        }
    }
    Ok(false)
}
