//! What a change restarts, and its plan for display.

use std::collections::{BTreeMap, BTreeSet};

use super::digest::Digests;
use super::rendering::{RenderError, RenderPolicy, RestartPolicy};
use super::transition::Side;
use super::view::{Completeness, View};
use crate::document::Service;
use crate::intent::ClusterIntent;
use crate::planner::{
    self, ClusterState, NodeState, Plan, PlanPolicy, Restart, ServiceDefinitions, ServiceState,
};

/// The new intent with the restarts that the change needs: new generations of services that were
/// installed again, and of those with a changed configuration if the policy says so. Others are
/// marked as pending. The result is the intent to store and to render.
///
/// # Errors
/// Services lack requirements or wait for each other.
pub fn with_restarts(
    old: Option<&ClusterIntent>,
    new: &ClusterIntent,
    policy: &RestartPolicy,
) -> Result<ClusterIntent, RenderError> {
    let Some(old) = old else { return Ok(new.clone()) };
    let (old_view, new_view) =
        (View::new(old, Completeness::Any)?, View::new(new, Completeness::Required)?);
    let (old_digests, new_digests) = (Digests::new(&old_view), Digests::new(&new_view));
    let change = Change {
        old: Side { view: &old_view, digests: &old_digests },
        new: Side { view: &new_view, digests: &new_digests },
    };
    let mut next = new.clone();
    let mut restarted: BTreeSet<&str> = BTreeSet::new();
    for pair in change.pairs() {
        if !pair.is_up {
            pair.state(&mut next, |state| state.restart_pending = false);
            continue;
        }
        let is_explicit = pair.is_restarted;
        let is_needed =
            pair.is_reinstalled || (pair.is_reconfigured && *policy != RestartPolicy::None);
        if is_explicit || is_needed {
            restarted.insert(pair.service);
        }
        pair.state(&mut next, |state| {
            if is_needed && !is_explicit {
                state.generation += 1;
            }
            state.restart_pending &= !is_needed && !is_explicit;
            state.restart_pending |= pair.is_reconfigured && !is_needed && !is_explicit;
        });
    }
    // Without a policy, what restarts anyway does so with its dependents, as in the plan.
    let is_together = match policy {
        RestartPolicy::None => !restarted.is_empty(),
        RestartPolicy::Together => true,
        RestartPolicy::Rolling { .. } => false,
    };
    if is_together {
        restarted.extend(change.replaced_or_removed());
        let restarted = change.with_dependents(&restarted);
        for pair in change.pairs().filter(|pair| pair.is_up && restarted.contains(pair.service)) {
            let generation = pair.generation;
            pair.state(&mut next, |state| {
                if state.generation == generation {
                    state.generation += 1;
                }
                state.restart_pending = false;
            });
        }
    }
    Ok(next)
}

/// The steps of a change, for display. The requirements of the rendered resources agree with them.
///
/// # Errors
/// Services lack requirements or wait for each other.
pub fn plan(
    old: Option<&ClusterIntent>,
    new: &ClusterIntent,
    policy: &RenderPolicy,
) -> Result<Plan, RenderError> {
    let new_view = View::new(new, Completeness::Required)?;
    let new_state = state(&new_view);
    let old_view = old.map(|old| View::new(old, Completeness::Any)).transpose()?;
    let old_state = old_view.as_ref().map(state).unwrap_or_default().established();
    let mut services: BTreeMap<&str, &Service> = BTreeMap::new();
    for intent in old.into_iter().chain([new]) {
        services.extend(intent.services.iter().map(|(name, service)| (name.as_str(), service)));
    }
    let is_restarted = |(name, node): (&String, &NodeState)| {
        let old = old_state.nodes.get(name).filter(|old| old.incarnation == node.incarnation);
        node.services.iter().any(|(service, state)| {
            let before = old.and_then(|old| old.services.get(service));
            before.is_some_and(|before| {
                before.running && state.running && before.generation != state.generation
            })
        })
    };
    let restart = match &policy.restart {
        RestartPolicy::Rolling { max_unavailable, default } => {
            Restart::Rolling { max_unavailable: max_unavailable.clone(), default: *default }
        }
        RestartPolicy::Together => Restart::Together,
        RestartPolicy::None if new_state.nodes.iter().any(is_restarted) => Restart::Together,
        // Dependents of what is replaced keep running.
        RestartPolicy::None => {
            Restart::Rolling { max_unavailable: BTreeMap::new(), default: u32::MAX }
        }
    };
    let policy = PlanPolicy { restart, ..PlanPolicy::default() };
    let definitions = ServiceDefinitions::new(services.into_values());
    Ok(planner::plan(&definitions, &old_state, &new_state, &policy)?)
}

fn state(view: &View<'_>) -> ClusterState {
    let digests = Digests::new(view);
    let mut state = ClusterState::default();
    for (number, node) in view.nodes.iter().enumerate() {
        let services = node.services.iter().map(|(service, wanted)| {
            let state = ServiceState {
                install: digests.services[*service].installed.clone(),
                config: digests.configured(number, *service),
                running: view.is_up(*service, wanted),
                generation: wanted.generation,
                epoch: wanted.epoch,
            };
            (view.services[*service].name.to_owned(), state)
        });
        let content = NodeState {
            incarnation: node.node.incarnation,
            hardware: node.node.hardwaretype.clone(),
            image: node.node.imagetype.clone(),
            services: services.collect(),
            ..NodeState::default()
        };
        state.nodes.insert(node.name.to_owned(), content);
    }
    state
}

/// A service on a machine that both intents have.
struct Pair<'i> {
    node: &'i str,
    service: &'i str,
    /// Runs before and after.
    is_up: bool,
    /// Of the old intent.
    generation: u64,
    is_restarted: bool,
    is_reinstalled: bool,
    is_reconfigured: bool,
}

impl Pair<'_> {
    fn state(
        &self,
        intent: &mut ClusterIntent,
        change: impl FnOnce(&mut crate::intent::IntentService),
    ) {
        let node = intent.nodes.get_mut(self.node);
        if let Some(state) = node.and_then(|node| node.services.get_mut(self.service)) {
            change(state);
        }
    }
}

struct Change<'v, 'i> {
    old: Side<'v, 'i>,
    new: Side<'v, 'i>,
}

impl<'i> Change<'_, 'i> {
    fn pairs(&self) -> impl Iterator<Item = Pair<'i>> {
        let (old, new) = (self.old, self.new);
        let nodes = new.view.nodes.iter().enumerate().filter_map(move |(number, node)| {
            let before = *old.view.node_numbers.get(node.name)?;
            let same = old.view.nodes[before].node.is_same_machine(node.node);
            same.then_some((number, node, before))
        });
        nodes.flat_map(move |(number, node, before)| {
            node.services.iter().filter_map(move |(service, state)| {
                let name = new.view.services[*service].name;
                let old_service = *old.view.numbers.get(name)?;
                let was = old.view.nodes[before].state(old_service)?;
                let (digests, known) =
                    (&new.digests.services[*service], &old.digests.services[old_service]);
                Some(Pair {
                    node: node.name,
                    service: name,
                    is_up: old.view.is_up(old_service, was) && new.view.is_up(*service, state),
                    generation: was.generation,
                    is_restarted: was.generation != state.generation,
                    is_reinstalled: known.installed != digests.installed
                        || was.epoch != state.epoch,
                    is_reconfigured: known.running != digests.running
                        || old.digests.configured(before, old_service)
                            != new.digests.configured(number, *service),
                })
            })
        })
    }

    /// Services that ran on a machine that is replaced, and those that leave the cluster.
    fn replaced_or_removed(&self) -> BTreeSet<&'i str> {
        let (old, new) = (self.old.view, self.new.view);
        let mut found = BTreeSet::new();
        for node in &old.nodes {
            let after = new.node_numbers.get(node.name).map(|number| &new.nodes[*number]);
            let is_replaced = after.is_some_and(|after| !after.node.is_same_machine(node.node));
            for (service, state) in &node.services {
                let name = old.services[*service].name;
                if old.is_up(*service, state) && (is_replaced || !new.numbers.contains_key(name)) {
                    found.insert(name);
                }
            }
        }
        found
    }

    fn with_dependents(&self, services: &BTreeSet<&'i str>) -> BTreeSet<&'i str> {
        let mut all = BTreeSet::new();
        for view in [self.old.view, self.new.view] {
            let numbers =
                services.iter().filter_map(|name| view.numbers.get(name)).copied().collect();
            let found = view.with_dependents(&numbers);
            all.extend(found.into_iter().map(|service| view.services[service].name));
        }
        all
    }
}
