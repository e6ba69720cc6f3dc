//! An intent with numbered services and nodes, and the order of its services.

use std::collections::{BTreeMap, BTreeSet};

use crate::document::{Service, ServiceAction};
use crate::intent::{ClusterIntent, IntentNode, IntentService};
use crate::planner::{PhaseKind, PlanError, ServiceDefinitions, ServiceOrder};

/// A service, with the numbers of those before it.
pub(super) struct ServiceView<'i> {
    pub(super) name: &'i str,
    pub(super) document: &'i Service,
    /// Direct and indirect dependencies that have the action.
    pub(super) installs_before: Vec<usize>,
    pub(super) starts_before: Vec<usize>,
    pub(super) stops_before: Vec<usize>,
    pub(super) removes_before: Vec<usize>,
    /// Direct runtime dependencies.
    pub(super) direct: Vec<usize>,
    /// True if no instance can run, because a dependency has no running instance.
    pub(super) is_held: bool,
}

impl ServiceView<'_> {
    pub(super) fn has(&self, action: ServiceAction) -> bool {
        self.document.action(action).is_some()
    }
}

pub(super) struct NodeView<'i> {
    pub(super) name: &'i str,
    pub(super) node: &'i IntentNode,
    /// Numbers of the services, with their states, ascending.
    pub(super) services: Vec<(usize, &'i IntentService)>,
}

impl<'i> NodeView<'i> {
    pub(super) fn state(&self, service: usize) -> Option<&'i IntentService> {
        let found = self.services.binary_search_by_key(&service, |(number, _)| *number);
        found.ok().map(|at| self.services[at].1)
    }
}

pub(super) struct View<'i> {
    pub(super) intent: &'i ClusterIntent,
    /// Services on nodes, by name.
    pub(super) services: Vec<ServiceView<'i>>,
    pub(super) numbers: BTreeMap<&'i str, usize>,
    /// In the order of their numbers.
    pub(super) nodes: Vec<NodeView<'i>>,
    pub(super) node_numbers: BTreeMap<&'i str, usize>,
}

/// Whether services must have all their requirements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Completeness {
    Required,
    /// Of a cluster that exists anyway.
    Any,
}

impl<'i> View<'i> {
    pub(super) fn new(
        intent: &'i ClusterIntent,
        completeness: Completeness,
    ) -> Result<Self, PlanError> {
        let definitions = ServiceDefinitions::new(intent.services.values());
        let placed = intent.placed_services();
        let order = match completeness {
            Completeness::Required => ServiceOrder::new(&definitions, &placed)?,
            Completeness::Any => ServiceOrder::of_existing(&definitions, &placed)?,
        };
        let numbers: BTreeMap<&'i str, usize> =
            placed.iter().enumerate().map(|(number, name)| (*name, number)).collect();
        let mut services = Vec::with_capacity(placed.len());
        for name in &placed {
            let Some(document) = intent.services.get(*name) else {
                return Err(PlanError::UnknownService((*name).to_owned()));
            };
            let before = |phase: PhaseKind, action: ServiceAction| -> Vec<usize> {
                let all = order.all_before(phase, name).iter();
                let all = all.filter(|other| definitions.has_action(other, action));
                all.map(|other| numbers[other]).collect()
            };
            services.push(ServiceView {
                name,
                document,
                installs_before: before(PhaseKind::Install, ServiceAction::Install),
                starts_before: before(PhaseKind::Runtime, ServiceAction::Start),
                stops_before: before(PhaseKind::Runtime, ServiceAction::Stop),
                removes_before: before(PhaseKind::Install, ServiceAction::Remove),
                direct: order.direct(name).map(|other| numbers[other]).collect(),
                is_held: false,
            });
        }
        let mut nodes = Vec::with_capacity(intent.nodes.len());
        let mut node_numbers = BTreeMap::new();
        for (name, node) in intent.nodes_by_number() {
            node_numbers.insert(name.as_str(), nodes.len());
            let states = node.services.iter();
            let states = states.map(|(name, state)| (numbers[name.as_str()], state));
            nodes.push(NodeView { name, node, services: states.collect() });
        }
        let mut wanted = vec![false; services.len()];
        for (service, state) in nodes.iter().flat_map(|node: &NodeView<'_>| &node.services) {
            wanted[*service] |= state.running;
        }
        for name in order.sorted() {
            let service = numbers[name];
            let direct = &services[service].direct;
            services[service].is_held =
                direct.iter().any(|other| !wanted[*other] || services[*other].is_held);
        }
        Ok(View { intent, services, numbers, nodes, node_numbers })
    }

    /// True if an instance runs, given its dependencies.
    pub(super) fn is_up(&self, service: usize, state: &IntentService) -> bool {
        state.running && !self.services[service].is_held
    }

    /// The services and all their direct and indirect runtime dependents.
    pub(super) fn with_dependents(&self, services: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut all = services.clone();
        let mut last = 0;
        while all.len() > last {
            last = all.len();
            for (number, service) in self.services.iter().enumerate() {
                if service.direct.iter().any(|other| all.contains(other)) {
                    all.insert(number);
                }
            }
        }
        all
    }
}
