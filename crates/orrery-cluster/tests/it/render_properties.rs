//! Properties of renderings, on random transitions of random clusters.

use std::collections::{BTreeMap, BTreeSet};

use orrery_cluster::document::Service;
use orrery_cluster::intent::ClusterIntent;
use orrery_cluster::planner::{ClusterState, Effect, ResourceKind};
use orrery_cluster::render::{
    RenderPolicy, Rendering, RestartPolicy, entity, plan, render, settled, with_restarts,
};
use orrery_model::ResourceId;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::intents;
use crate::planner_properties::{NAMES, complete, services, states};
use crate::rendered_graph::RenderedGraph;

/// A section for each service: a number, and perhaps a macro that reads a service.
fn configs() -> impl Strategy<Value = Map<String, Value>> {
    let one = (0..2_u8, 0..12_usize);
    prop::collection::vec(one, NAMES.len()).prop_map(|sections| {
        let section = |(at, (number, target)): (usize, (u8, usize))| {
            let text = NAMES.get(target).map_or("none".to_owned(), |service| {
                format!("%ip.service.{service}%, %num.service.{service}%")
            });
            (NAMES[at].to_owned(), json!({"number": number, "macro": text}))
        };
        sections.into_iter().enumerate().map(section).collect()
    })
}

fn policies() -> impl Strategy<Value = RenderPolicy> {
    (0..5_u32).prop_map(|choice| RenderPolicy {
        restart: match choice {
            0 => RestartPolicy::None,
            1 => RestartPolicy::Together,
            default => {
                RestartPolicy::Rolling { max_unavailable: BTreeMap::new(), default: default - 1 }
            }
        },
    })
}

/// The intent of a state of the planner.
fn intent(
    services: &BTreeMap<String, Service>,
    state: ClusterState,
    config: &Map<String, Value>,
) -> ClusterIntent {
    let state = complete(state, services);
    let mut intent = intents::empty(services.clone());
    intent.config = config.clone();
    for (name, node) in state.nodes {
        let number: u64 = name[1..].parse().expect("a number");
        let mut own = intents::node(1000 + number);
        own.incarnation = node.incarnation + 1;
        for (service, state) in node.services {
            let one = own.services.entry(service).or_default();
            (one.running, one.generation, one.epoch) =
                (state.running, state.generation, state.epoch);
        }
        intent.nodes.insert(name, own);
    }
    intent
}

struct Case {
    old: ClusterIntent,
    new: ClusterIntent,
    policy: RenderPolicy,
    rendering: Rendering,
    graph: RenderedGraph,
    before: RenderedGraph,
    after: Rendering,
}

impl Case {
    fn new(old: ClusterIntent, new: &ClusterIntent, policy: RenderPolicy) -> Result<Self, String> {
        let text = |error: orrery_cluster::render::RenderError| error.to_string();
        let new = with_restarts(Some(&old), new, &policy.restart).map_err(text)?;
        let rendering = render(Some(&old), &new, &policy).map_err(text)?;
        let graph = RenderedGraph::new(&rendering);
        graph.sorted();
        let before = RenderedGraph::new(&settled(&old).map_err(text)?);
        let after = settled(&new).map_err(text)?;
        Ok(Case { old, new, policy, rendering, graph, before, after })
    }

    /// A transition contains the settled version, and apart from it only what is removed.
    fn check_settling(&self) -> Result<(), String> {
        let after = RenderedGraph::new(&self.after);
        for (id, resource) in &after.resources {
            let is_barrier = id.entity() == entity::BARRIER;
            match self.graph.resources.get(id) {
                Some(found) if found.hash == resource.hash || is_barrier => {}
                Some(_) => return Err(format!("{} changes again", id.as_str())),
                None if is_barrier => {}
                None => return Err(format!("{} comes later", id.as_str())),
            }
        }
        for id in self.graph.resources.keys().filter(|id| !after.resources.contains_key(*id)) {
            if self.graph.attribute(id, "purged") != json!(true) {
                return Err(format!("{} disappears without being removed", id.as_str()));
            }
        }
        for id in self.before.resources.keys() {
            if !self.graph.resources.contains_key(id) {
                return Err(format!("{} is forgotten", id.as_str()));
            }
        }
        if self.rendering.is_settled && self.rendering.sets != self.after.sets {
            return Err("a settled rendering differs from the settled version".to_owned());
        }
        let again = render(Some(&self.new), &self.new, &self.policy);
        if again.as_ref() != Ok(&self.after) {
            return Err("an unchanged intent has another rendering".to_owned());
        }
        let twice = render(Some(&self.old), &self.new, &self.policy);
        if twice.as_ref() != Ok(&self.rendering) {
            return Err("a rendering depends on more than its input".to_owned());
        }
        Ok(())
    }

    /// Every requirement of the plan holds between the resources that differ.
    fn check_plan(&self) -> Result<(), String> {
        let plan = plan(Some(&self.old), &self.new, &self.policy);
        let plan = plan.map_err(|error| error.to_string())?;
        let changed = self.graph.changed(Some(&self.before));
        let closure = self.graph.closure(&changed);
        let resource = |step: usize| -> Option<ResourceId> {
            let step = &plan.steps[step];
            if step.effect == Effect::Verify {
                return None;
            }
            let found = self.graph.of_action(&step.node, step.action(), step.service.as_deref());
            let found = found.filter(|id| changed.contains(id))?;
            let is_purged = self.graph.attribute(&found, "purged") == json!(true);
            let removes =
                matches!(step.kind, ResourceKind::Removed) || step.effect == Effect::Remove;
            // The steps that remove the services of a replaced machine have no resource.
            let is_gone = !self.new.nodes.contains_key(&step.node)
                || step.service.as_ref().is_some_and(|service| {
                    !self.new.nodes[&step.node].services.contains_key(service)
                });
            let stops = matches!(step.kind, ResourceKind::Stopped);
            let ends = self.old.nodes.get(&step.node).zip(self.new.nodes.get(&step.node));
            let is_replaced = ends.is_some_and(|(old, new)| !old.is_same_machine(new));
            if is_replaced && (stops || removes) {
                return None;
            }
            (is_purged == is_gone && (!removes || is_purged) && (!stops || self.stops(&found)))
                .then_some(found)
        };
        let stops_anyway = self.goes_down();
        for step in 0..plan.steps.len() {
            let Some(id) = resource(step) else { continue };
            // With a service that stops for good, its removed instances wait for nothing.
            let is_removed = self.graph.attribute(&id, "purged") == json!(true);
            if stops_anyway && is_removed {
                continue;
            }
            for before in plan.requirements(step) {
                if let Some(required) = resource(before).filter(|required| *required != id)
                    && !closure[&id].contains(&required)
                {
                    return Err(format!(
                        "{} does not wait for {}",
                        plan.steps[step], plan.steps[before]
                    ));
                }
            }
        }
        Ok(())
    }

    /// True if a service stops on a node that stays, or everywhere.
    fn goes_down(&self) -> bool {
        let runs_somewhere = |intent: &ClusterIntent, service: &str| {
            let states = intent.nodes.values().filter_map(|node| node.services.get(service));
            states.into_iter().any(|state| state.running)
        };
        let everywhere = self.new.placed_services().into_iter().any(|service| {
            runs_somewhere(&self.old, service) && !runs_somewhere(&self.new, service)
        });
        everywhere
            || self.old.nodes.iter().any(|(name, old)| {
                old.services.iter().filter(|(_, state)| state.running).any(|(service, _)| {
                    let new = self.new.nodes.get(name).and_then(|new| new.services.get(service));
                    new.is_some_and(|new| !new.running)
                })
            })
    }

    fn stops(&self, id: &ResourceId) -> bool {
        self.graph.attribute(id, "running") == json!(false)
    }

    /// Instances of each service that can be down at the same time.
    fn most_unavailable(&self) -> BTreeMap<String, usize> {
        let changed = self.graph.changed(Some(&self.before));
        let closure = self.graph.closure(&changed);
        let mut downs: BTreeMap<String, Vec<(ResourceId, ResourceId)>> = BTreeMap::new();
        for (name, node) in &self.new.nodes {
            let Some(old) = self.old.nodes.get(name) else { continue };
            for (service, state) in &node.services {
                let Some(before) = old.services.get(service) else { continue };
                let running = self.graph.id(entity::RUNNING, name, Some(service));
                if !self.graph.resources.contains_key(&running)
                    || !before.running
                    || self.graph.attribute(&running, "running") != json!(true)
                {
                    continue;
                }
                let was = self.before.resources.get(&running);
                if !was.is_some_and(|was| was.attributes.to_object()["running"] == json!(true)) {
                    continue;
                }
                let start = if old.incarnation != node.incarnation {
                    self.graph.id(entity::MACHINE, name, None)
                } else if before.generation != state.generation {
                    let quiesced = self.graph.id(entity::QUIESCED, name, Some(service));
                    if self.graph.resources.contains_key(&quiesced) {
                        quiesced
                    } else {
                        running.clone()
                    }
                } else {
                    continue;
                };
                downs.entry(service.clone()).or_default().push((start, running));
            }
        }
        let most = downs.into_iter().map(|(service, downs)| {
            let together = |set: u32| {
                let chosen = downs.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
                let chosen: Vec<&(ResourceId, ResourceId)> = chosen.map(|(_, one)| one).collect();
                let overlap = |one: &(ResourceId, ResourceId), other: &(ResourceId, ResourceId)| {
                    !closure[&one.0].contains(&other.1) && !closure[&other.0].contains(&one.1)
                };
                let all = chosen
                    .iter()
                    .enumerate()
                    .all(|(at, one)| chosen[at + 1..].iter().all(|other| overlap(one, other)));
                all.then_some(chosen.len())
            };
            let most = (0..1_u32 << downs.len()).filter_map(together).max().unwrap_or(0);
            (service, most)
        });
        most.collect()
    }
}

/// Intents before and after a change.
#[derive(Clone)]
struct Input {
    old: ClusterIntent,
    new: ClusterIntent,
    policy: RenderPolicy,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:?}", self.policy)?;
        for service in self.old.services.values() {
            let actions: Vec<_> = service.provisioner.actions.keys().collect();
            writeln!(f, "{}: {actions:?} {:?}", service.name(), service.dependencies)?;
        }
        for intent in [&self.old, &self.new] {
            writeln!(f, "{:?}", intent.config)?;
            for (name, node) in &intent.nodes {
                writeln!(f, "  {name} #{}", node.incarnation)?;
                for (service, state) in &node.services {
                    writeln!(f, "    {service} {state:?}")?;
                }
            }
        }
        Ok(())
    }
}

fn case() -> impl Strategy<Value = Input> {
    (services(), states(), states(), configs(), configs(), policies(), any::<u8>()).prop_map(
        |(services, old, new, config, other, policy, same)| {
            let new_config = if same % 3 == 0 { &config } else { &other };
            let next = intent(&services, new, new_config);
            Input { old: intent(&services, old, &config), new: next, policy }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn transitions_settle(Input { old, new, policy } in case()) {
        let case = Case::new(old, &new, policy).map_err(TestCaseError::fail)?;
        case.check_settling().map_err(TestCaseError::fail)?;
    }

    #[test]
    fn rendered_requirements_include_those_of_the_plan(Input { old, new, policy } in case()) {
        prop_assume!(!matches!(policy.restart, RestartPolicy::Rolling { .. }));
        let case = Case::new(old, &new, policy).map_err(TestCaseError::fail)?;
        case.check_plan().map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_rolling_restart_stops_few_instances_at_a_time(Input { old, new, policy } in case()) {
        let RestartPolicy::Rolling { default, .. } = policy.restart else { return Ok(()) };
        let restarted = old.restart(&[]).map_err(|error| TestCaseError::fail(error.to_string()))?;
        for new in [&new, &restarted] {
            let case = Case::new(old.clone(), new, policy.clone()).map_err(TestCaseError::fail)?;
            for (service, down) in case.most_unavailable() {
                prop_assert!(down <= default as usize, "{} of {} are down", down, service);
            }
        }
    }

    #[test]
    fn a_deleted_cluster_leaves_nothing(Input { old, policy, .. } in case()) {
        let new = old.delete();
        let case = Case::new(old, &new, policy).map_err(TestCaseError::fail)?;
        prop_assert_eq!(&case.after.sets, &BTreeMap::new());
        let all: BTreeSet<ResourceId> = case.graph.resources.keys().cloned().collect();
        let closure = case.graph.closure(&all);
        for id in &all {
            prop_assert_eq!(case.graph.attribute(id, "purged"), json!(true));
            // The machine goes after everything on it.
            let machine = case.graph.id(entity::MACHINE, id.agent(), None);
            if id.entity() != entity::BARRIER && *id != machine {
                prop_assert!(closure[&machine].contains(id), "{}", id.as_str());
            }
        }
    }
}
