//! Operations on services: add, remove, configure, start, stop, restart.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::error::IntentError;
use super::problem::{check_macros, known_services, layout};
use super::{ClusterIntent, IntentService};
use crate::document::{Catalog, DocumentKind, Service};
use crate::planner::{ServiceDefinitions, ServiceOrder};
use crate::solver::{NodeLayout, SearchLimits, add_services, lower};

impl ClusterIntent {
    /// Adds services to existing nodes.
    ///
    /// # Errors
    /// Unknown services, unmet requirements, or nodes without room for them.
    pub fn add_services(
        &self,
        catalog: &Catalog,
        names: &[String],
        limits: SearchLimits<'_>,
    ) -> Result<Self, IntentError> {
        let mut next = self.successor();
        let add: BTreeSet<String> = names.iter().cloned().collect();
        for name in &add {
            if self.services.contains_key(name) {
                return Err(IntentError::AlreadyOnCluster(name.clone()));
            }
            let Some(document) = catalog.services.get(name) else {
                let kind = DocumentKind::Service;
                return Err(IntentError::UnknownDocument { kind, name: name.clone() });
            };
            next.services.insert(name.clone(), document.body.clone());
        }
        // Copies of the cluster take precedence over newer documents.
        let problem = lower(&next.own_catalog(), &next.request(self.size()))?;
        let definitions = ServiceDefinitions::new(next.services.values());
        let all = next.services.keys().map(String::as_str).collect();
        ServiceOrder::new(&definitions, &all)?;
        let groups = add_services(&problem, &self.groups(), &add, limits)?;
        let mut places: BTreeMap<NodeLayout, Vec<String>> = BTreeMap::new();
        for (name, node) in self.nodes_by_number().into_iter().rev() {
            places.entry(layout(node)).or_default().push(name.clone());
        }
        for group in groups {
            let mut before = group.layout.clone();
            before.services.retain(|service| !add.contains(service));
            let added: Vec<&String> = group.layout.services.intersection(&add).collect();
            for _ in 0..group.count {
                let name = places.get_mut(&before).and_then(Vec::pop);
                if let Some(node) = name.and_then(|name| next.nodes.get_mut(&name)) {
                    let added = added.iter().map(|name| ((*name).clone(), Default::default()));
                    node.services.extend(added);
                }
            }
        }
        Ok(next)
    }

    /// Removes services from all nodes, and nodes that would have no services.
    ///
    /// # Errors
    /// A remaining service requires one of them, or the remaining nodes break a rule.
    pub fn remove_services(&self, names: &[String]) -> Result<Self, IntentError> {
        let removed: BTreeSet<&str> = match names {
            [] => BTreeSet::new(),
            names => known_services(self, names)?,
        };
        let mut next = self.successor();
        next.services.retain(|name, _| !removed.contains(name.as_str()));
        if next.services.is_empty() {
            return Err(IntentError::NoServices);
        }
        check_requirements(self, &next)?;
        for node in next.nodes.values_mut() {
            node.services.retain(|name, _| !removed.contains(name.as_str()));
        }
        next.nodes.retain(|_, node| !node.services.is_empty());
        next.check_layout()?;
        Ok(next)
    }

    /// Replaces the configuration as a whole.
    ///
    /// # Errors
    /// A macro is wrong.
    pub fn reconfigure(&self, config: Map<String, Value>) -> Result<Self, IntentError> {
        check_macros(&config)?;
        Ok(ClusterIntent { config, ..self.successor() })
    }

    /// Starts services and all their dependencies; all services if there are no names.
    ///
    /// # Errors
    /// Unknown names, or inconsistent services.
    pub fn start(&self, names: &[String]) -> Result<Self, IntentError> {
        self.change(names, Closure::Dependencies, |service| service.running = true)
    }

    /// Stops services and all their dependents; all services if there are no names.
    ///
    /// # Errors
    /// Unknown names, or inconsistent services.
    pub fn stop(&self, names: &[String]) -> Result<Self, IntentError> {
        self.change(names, Closure::Dependents, |service| service.running = false)
    }

    /// Restarts services and all their dependents; all services if there are no names.
    ///
    /// # Errors
    /// Unknown names, or inconsistent services.
    pub fn restart(&self, names: &[String]) -> Result<Self, IntentError> {
        self.change(names, Closure::Dependents, |service| {
            service.generation += 1;
            service.restart_pending = false;
        })
    }

    /// Changes all instances of services and of those that the change includes.
    fn change(
        &self,
        names: &[String],
        closure: Closure,
        change: impl Fn(&mut IntentService),
    ) -> Result<Self, IntentError> {
        let names = known_services(self, names)?;
        let definitions = ServiceDefinitions::new(self.services.values());
        let order = ServiceOrder::of_existing(&definitions, &self.placed_services())?;
        let names = match closure {
            Closure::Dependencies => order.with_dependencies(&names),
            Closure::Dependents => order.with_dependents(&names),
        };
        let mut next = self.successor();
        for node in next.nodes.values_mut() {
            for (name, service) in &mut node.services {
                if names.contains(name.as_str()) {
                    change(service);
                }
            }
        }
        Ok(next)
    }
}

#[derive(Clone, Copy)]
enum Closure {
    Dependencies,
    Dependents,
}

/// Checks that the remaining services have their requirements.
fn check_requirements(before: &ClusterIntent, after: &ClusterIntent) -> Result<(), IntentError> {
    let provides = |service: &Service, name: &str| {
        service.name() == name || service.dependencies.provides.iter().any(|alias| alias == name)
    };
    for dependent in after.services.values() {
        for required in dependent.required() {
            if after.services.values().any(|service| provides(service, required)) {
                continue;
            }
            let removed = before.services.values().find(|service| provides(service, required));
            if let Some(removed) = removed {
                let service = removed.name().to_owned();
                let dependent = dependent.name().to_owned();
                return Err(IntentError::Required { service, dependent });
            }
        }
    }
    Ok(())
}
