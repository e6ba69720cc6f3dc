//! Order of services: direct and indirect dependencies, including provided names.

use std::collections::{BTreeMap, BTreeSet};

use crate::document::{Service, ServiceAction};

use super::error::PlanError;

/// Definitions of services, by name.
#[derive(Clone, Debug, Default)]
pub struct ServiceDefinitions<'s>(BTreeMap<&'s str, &'s Service>);

impl<'s> ServiceDefinitions<'s> {
    pub fn new(services: impl IntoIterator<Item = &'s Service>) -> Self {
        ServiceDefinitions(services.into_iter().map(|service| (service.name(), service)).collect())
    }

    /// Runtime dependencies between the named services, with provided names resolved.
    ///
    /// # Errors
    /// Services without a definition, or that wait for each other.
    pub fn runtime_dependencies(
        &self,
        names: &BTreeSet<&str>,
    ) -> Result<BTreeMap<String, BTreeSet<String>>, PlanError> {
        let order = ServiceOrder::of_existing(self, names)?;
        let direct = |name: &&str| {
            let dependencies = order.direct(name).map(str::to_owned).collect();
            ((*name).to_owned(), dependencies)
        };
        Ok(names.iter().map(direct).collect())
    }

    pub(crate) fn has_action(&self, service: &str, action: ServiceAction) -> bool {
        self.0.get(service).is_some_and(|service| service.action(action).is_some())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhaseKind {
    Install,
    Runtime,
}

/// Direct and transitive dependencies in one phase.
#[derive(Default)]
struct Graph<'s> {
    direct: BTreeMap<&'s str, BTreeSet<&'s str>>,
    all: BTreeMap<&'s str, BTreeSet<&'s str>>,
    /// Each service after its dependencies.
    sorted: Vec<&'s str>,
}

/// The dependencies between the services of one cluster.
pub(crate) struct ServiceOrder<'s> {
    services: &'s ServiceDefinitions<'s>,
    install: Graph<'s>,
    runtime: Graph<'s>,
}

impl<'s> ServiceOrder<'s> {
    /// The order of the named services, which must include all their requirements.
    pub(crate) fn new(
        services: &'s ServiceDefinitions<'s>,
        names: &BTreeSet<&str>,
    ) -> Result<Self, PlanError> {
        Self::build(services, names, true)
    }

    /// The same for existing services, complete or not.
    pub(crate) fn of_existing(
        services: &'s ServiceDefinitions<'s>,
        names: &BTreeSet<&str>,
    ) -> Result<Self, PlanError> {
        Self::build(services, names, false)
    }

    fn build(
        services: &'s ServiceDefinitions<'s>,
        names: &BTreeSet<&str>,
        is_complete: bool,
    ) -> Result<Self, PlanError> {
        let mut present: BTreeMap<&'s str, &'s Service> = BTreeMap::new();
        for name in names {
            let Some((name, service)) = services.0.get_key_value(*name) else {
                return Err(PlanError::UnknownService((*name).to_owned()));
            };
            present.insert(name, service);
        }
        let mut providers: BTreeMap<&str, Vec<&'s str>> = BTreeMap::new();
        for (name, service) in &present {
            for alias in &service.dependencies.provides {
                providers.entry(alias).or_default().push(name);
            }
        }
        // Providers of a name replace the service that has it.
        let meant = |name: &str| -> Vec<&'s str> {
            match (providers.get(name), present.get_key_value(name)) {
                (Some(providers), _) => providers.clone(),
                (None, Some((name, _))) => vec![*name],
                (None, None) => Vec::new(),
            }
        };
        for (name, service) in &present {
            for dependency in service.required() {
                if is_complete && meant(dependency).is_empty() {
                    let (service, dependency) = ((*name).to_owned(), dependency.to_owned());
                    return Err(PlanError::MissingDependency { service, dependency });
                }
            }
        }
        let graph = |kind: PhaseKind| {
            let direct = present.iter().map(|(name, service)| {
                let phase = match kind {
                    PhaseKind::Install => &service.dependencies.install,
                    PhaseKind::Runtime => &service.dependencies.runtime,
                };
                let names = phase.names().flat_map(meant).filter(|other| other != name);
                (*name, names.collect())
            });
            Graph::new(direct.collect())
        };
        let (install, runtime) = (graph(PhaseKind::Install)?, graph(PhaseKind::Runtime)?);
        Ok(ServiceOrder { services, install, runtime })
    }

    fn graph(&self, phase: PhaseKind) -> &Graph<'s> {
        match phase {
            PhaseKind::Install => &self.install,
            PhaseKind::Runtime => &self.runtime,
        }
    }

    /// Services directly before one, among those that have an action: dependencies without it are
    /// replaced by their own, and indirect ones are omitted.
    pub(crate) fn before(
        &self,
        phase: PhaseKind,
        service: &str,
        action: ServiceAction,
    ) -> BTreeSet<&'s str> {
        let graph = self.graph(phase);
        let mut found = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut queue: Vec<&'s str> = graph.reduced(service).into_iter().collect();
        while let Some(name) = queue.pop() {
            if !seen.insert(name) {
                continue;
            }
            if self.services.has_action(name, action) {
                found.insert(name);
            } else {
                queue.extend(graph.reduced(name));
            }
        }
        graph.without_indirect(found)
    }

    /// The services and their direct and indirect runtime dependents.
    pub(crate) fn with_dependents(&self, services: &BTreeSet<&str>) -> BTreeSet<&'s str> {
        let depends = |name: &&'s str| {
            let all = self.runtime.all.get(name);
            services.contains(name) || all.is_some_and(|all| !all.is_disjoint(services))
        };
        self.runtime.sorted.iter().copied().filter(depends).collect()
    }

    /// The services and their direct and indirect runtime dependencies.
    pub(crate) fn with_dependencies(&self, services: &BTreeSet<&str>) -> BTreeSet<&'s str> {
        let mut all = BTreeSet::new();
        for (name, dependencies) in &self.runtime.all {
            if services.contains(name) {
                all.insert(*name);
                all.extend(dependencies);
            }
        }
        all
    }

    /// All services before one, directly or indirectly.
    pub(crate) fn all_before(&self, phase: PhaseKind, service: &str) -> &BTreeSet<&'s str> {
        static NONE: BTreeSet<&str> = BTreeSet::new();
        self.graph(phase).all.get(service).unwrap_or(&NONE)
    }

    /// Direct runtime dependencies, with or without actions.
    pub(crate) fn direct(&self, service: &str) -> impl Iterator<Item = &'s str> {
        self.runtime.direct.get(service).into_iter().flatten().copied()
    }

    /// All services, each after its runtime dependencies.
    pub(crate) fn sorted(&self) -> &[&'s str] {
        &self.runtime.sorted
    }
}

impl<'s> Graph<'s> {
    fn new(direct: BTreeMap<&'s str, BTreeSet<&'s str>>) -> Result<Self, PlanError> {
        let mut graph = Graph { direct, ..Graph::default() };
        let names: Vec<&'s str> = graph.direct.keys().copied().collect();
        for name in names {
            graph.visit(name, &mut Vec::new())?;
        }
        Ok(graph)
    }

    fn visit(&mut self, name: &'s str, path: &mut Vec<&'s str>) -> Result<(), PlanError> {
        if self.all.contains_key(name) {
            return Ok(());
        }
        if let Some(start) = path.iter().position(|one| *one == name) {
            let cycle = path[start..].iter().chain([&name]).map(|one| (*one).to_owned());
            return Err(PlanError::DependencyCycle(cycle.collect()));
        }
        path.push(name);
        let mut all = BTreeSet::new();
        for dependency in self.direct.get(name).cloned().unwrap_or_default() {
            self.visit(dependency, path)?;
            all.insert(dependency);
            all.extend(&self.all[dependency]);
        }
        path.pop();
        self.all.insert(name, all);
        self.sorted.push(name);
        Ok(())
    }

    fn reduced(&self, name: &str) -> BTreeSet<&'s str> {
        self.without_indirect(self.direct.get(name).cloned().unwrap_or_default())
    }

    /// Removes services that others of the set depend on.
    fn without_indirect(&self, names: BTreeSet<&'s str>) -> BTreeSet<&'s str> {
        let is_indirect =
            |name: &&&'s str| names.iter().any(|other| self.all[other].contains(**name));
        names.iter().filter(|name| !is_indirect(name)).copied().collect()
    }
}
