//! Properties of plans, on random clusters: a plan leads from the old state to the new one in any
//! order of its steps, and never through an invalid state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use orrery_cluster::document::Service;
use orrery_cluster::planner::{
    ClusterState, Execution, NodeState, Plan, PlanPolicy, ResourceKind, Restart,
    ServiceDefinitions, ServiceState, operations, plan,
};
use proptest::prelude::*;
use serde_json::json;

use crate::simulated_cluster::{Judge, SimulatedCluster};

pub(crate) const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Services that depend on earlier ones only; some by a provided name.
pub(crate) fn services() -> impl Strategy<Value = BTreeMap<String, Service>> {
    let one = (any::<[bool; 5]>(), prop::collection::vec(any::<u8>(), 5), any::<u8>());
    prop::collection::vec(one, NAMES.len()).prop_map(|choices| {
        let mut services = BTreeMap::new();
        for (at, (actions, kinds, alias)) in choices.into_iter().enumerate() {
            let mut lists: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for (other, kind) in kinds.iter().take(at).enumerate() {
                let key = match kind % 9 {
                    0 => "install requires",
                    1 => "install uses",
                    2 | 3 => "runtime requires",
                    4 => "runtime uses",
                    _ => continue,
                };
                lists.entry(key).or_default().push(NAMES[other]);
            }
            // "ab" may refer to both a and b.
            if at > 1 && alias % 4 == 0 {
                lists.entry("runtime requires").or_default().push("ab");
            }
            let provides: &[&str] = if at < 2 { &["ab"] } else { &[] };
            let [install, configure, initialize, start, remove] = actions;
            let mut defined = serde_json::Map::new();
            for (name, is_there) in [
                ("install", install),
                ("configure", configure),
                ("initialize", initialize),
                ("start", start),
                ("stop", start),
                ("remove", remove),
            ] {
                if is_there {
                    defined.insert(name.to_owned(), json!({"type": "shell"}));
                }
            }
            let list = |key: &str| lists.get(key).cloned().unwrap_or_default();
            let document = json!({
                "name": NAMES[at],
                "dependencies": {
                    "provides": provides,
                    "install": {"requires": list("install requires"), "uses": list("install uses")},
                    "runtime": {"requires": list("runtime requires"), "uses": list("runtime uses")},
                },
                "provisioner": {"actions": defined},
            });
            let service: Service = serde_json::from_value(document).expect("a service");
            services.insert(NAMES[at].to_owned(), service);
        }
        services
    })
}

/// Nodes with services; missing requirements are added to some node.
pub(crate) fn states() -> impl Strategy<Value = ClusterState> {
    let service = (0..3_u8, 0..2_u8, 0..2_u8, 0..2_u64, 0..8_u8);
    let node =
        (any::<bool>(), 0..2_u32, prop::collection::btree_map(0..NAMES.len(), service, 0..5));
    prop::collection::vec(node, 4).prop_map(|nodes| {
        let mut state = ClusterState::default();
        for (at, (is_there, incarnation, services)) in nodes.into_iter().enumerate() {
            if !is_there {
                continue;
            }
            let services =
                services.into_iter().map(|(name, (down, install, config, generation, epoch))| {
                    let service = ServiceState {
                        install: install.to_string(),
                        config: config.to_string(),
                        running: down != 0,
                        generation,
                        epoch: u32::from(epoch == 0),
                    };
                    (NAMES[name].to_owned(), service)
                });
            let node =
                NodeState { incarnation, services: services.collect(), ..NodeState::default() };
            state.nodes.insert(format!("n{at}"), node);
        }
        state
    })
}

/// Adds missing requirements.
pub(crate) fn complete(
    mut state: ClusterState,
    services: &BTreeMap<String, Service>,
) -> ClusterState {
    loop {
        let present: BTreeSet<String> = state.services().into_iter().map(str::to_owned).collect();
        let mut missing = BTreeSet::new();
        for name in &present {
            for required in services[name].required() {
                let is_provided = present.iter().any(|other| {
                    other == required
                        || services[other].dependencies.provides.iter().any(|n| n == required)
                });
                if !is_provided {
                    missing.insert(if required == "ab" { "a" } else { required }.to_owned());
                }
            }
        }
        let Some(node) = state.nodes.values_mut().next() else { return state };
        if missing.is_empty() {
            return state;
        }
        for name in missing {
            node.services.insert(name, ServiceState::default());
        }
    }
}

/// Runs a plan in a random order of ready steps, and checks every intermediate state.
fn run(
    judge: &Judge<'_>,
    plan: &Plan,
    cluster: &mut SimulatedCluster,
    mut choice: u64,
    limit: Option<u32>,
) -> Result<(), String> {
    let mut execution = Execution::new(plan);
    let mut started: Vec<usize> = Vec::new();
    loop {
        choice =
            choice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = |count: usize| (choice >> 33) as usize % count.max(1);
        let ready = execution.ready();
        // Some steps run at the same time.
        if !ready.is_empty() && (started.is_empty() || choice & 1 << 40 != 0) {
            let step = ready[pick(ready.len())];
            assert!(execution.start(step));
            started.push(step);
            continue;
        }
        if started.is_empty() {
            break;
        }
        let step = started.swap_remove(pick(started.len()));
        let of = &plan.steps[step];
        judge.apply(cluster, of).map_err(|error| format!("{of}: {error}"))?;
        execution.finish(step, true);
        if let Some(limit) = limit {
            for (service, down) in judge.unavailable(cluster) {
                if down > limit {
                    return Err(format!("{of}: {down} instances of {service} are down"));
                }
            }
        }
    }
    if !execution.is_finished() {
        let left: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
        return Err(format!("stuck: {left:?}"));
    }
    judge.check_end(cluster, plan)
}

/// Plans and runs the transition to a state; returns the state reached.
fn plan_and_run(
    services: &BTreeMap<String, Service>,
    old: &ClusterState,
    new: &ClusterState,
    policy: &PlanPolicy,
    choice: u64,
) -> Result<ClusterState, String> {
    let definitions = ServiceDefinitions::new(services.values());
    let plan = plan(&definitions, old, new, policy).map_err(|error| error.to_string())?;
    let limit = match &policy.restart {
        Restart::Together => None,
        Restart::Rolling { default, .. } => Some(*default),
    };
    let judge = Judge { services, old, target: &plan.target, is_strict: limit.is_none() };
    let mut cluster = judge.cluster_of(old);
    let told = |error: String| {
        let steps = plan.steps.iter().enumerate();
        let steps = steps.map(|(id, step)| {
            let before = plan.requirements(id).into_iter().map(|id| plan.steps[id].to_string());
            format!("  {step} {:?} after {:?}", step.effect, before.collect::<Vec<_>>())
        });
        format!("{error}\nplan:\n{}", steps.collect::<Vec<_>>().join("\n"))
    };
    run(&judge, &plan, &mut cluster, choice, limit).map_err(told)?;
    Ok(plan.target.clone())
}

fn without_latches(state: &ClusterState) -> ClusterState {
    let mut state = state.clone();
    state.nodes.values_mut().for_each(|node| node.latches.clear());
    state
}

fn policies() -> impl Strategy<Value = PlanPolicy> {
    (any::<bool>(), 0..3_u32).prop_map(|(is_staged, limit)| PlanPolicy {
        is_staged,
        restart: match limit {
            0 => Restart::Together,
            default => Restart::Rolling { max_unavailable: BTreeMap::new(), default },
        },
        is_compatible: false,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn plans_lead_to_the_new_state_through_legal_ones(
        services in services(), old in states(), new in states(), policy in policies(), choice in any::<u64>(),
    ) {
        let (old, new) = (complete(old, &services), complete(new, &services));
        let empty = ClusterState::default();
        let from = plan_and_run(&services, &empty, &old, &PlanPolicy::default(), choice);
        let from = from.map_err(TestCaseError::fail)?;
        let there = plan_and_run(&services, &from, &new, &policy, choice).map_err(TestCaseError::fail)?;
        // The reverse transition is a plan, too, and so is deleting everything.
        let back = plan_and_run(&services, &there, &from, &policy, choice).map_err(TestCaseError::fail)?;
        prop_assert_eq!(without_latches(&back), without_latches(&from));
        let gone = plan_and_run(&services, &back, &empty, &policy, choice).map_err(TestCaseError::fail)?;
        prop_assert_eq!(gone, empty);
    }

    #[test]
    fn a_cluster_in_its_desired_state_needs_no_plan(
        services in services(), state in states(), policy in policies(),
    ) {
        let state = complete(state, &services);
        let definitions = ServiceDefinitions::new(services.values());
        let first = plan(&definitions, &ClusterState::default(), &state, &policy);
        let reached = first.map_err(|error| TestCaseError::fail(error.to_string()))?.target;
        let again = plan(&definitions, &reached, &reached, &policy);
        let again = again.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(again.steps, Vec::new());
        prop_assert_eq!(again.target, reached);
    }
}

fn shell(name: &str, runtime: &[&str], actions: &[&str]) -> (String, Service) {
    let actions = actions.iter().map(|action| ((*action).to_owned(), json!({"type": "shell"})));
    let document = json!({
        "name": name,
        "dependencies": {"runtime": {"requires": runtime}},
        "provisioner": {"actions": actions.collect::<serde_json::Map<_, _>>()},
    });
    (name.to_owned(), serde_json::from_value(document).expect("a service"))
}

const ALL: [&str; 6] = ["install", "configure", "initialize", "start", "stop", "remove"];

fn keys(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().filter_map(|step| step.once.as_deref()).collect()
}

#[test]
fn a_service_is_initialized_once_per_machine() {
    let services = BTreeMap::from([shell("db", &[], &ALL)]);
    let definitions = ServiceDefinitions::new(services.values());
    let policy = PlanPolicy::default();
    let mut state = ClusterState::default();
    state.add_node("n1", ["db"]);
    let created = plan(&definitions, &ClusterState::default(), &state, &policy).expect("a plan");
    assert_eq!(keys(&created), ["n1#0/db@0"]);
    let state = created.target;
    // Neither a restart nor another configuration initializes again.
    let restarted =
        operations::restart(&definitions, &state, &BTreeSet::from(["db"])).expect("a state");
    let restarted = operations::configure(&restarted, |_, _| "other".to_owned());
    let restarted = plan(&definitions, &state, &restarted, &policy).expect("a plan");
    assert_eq!(keys(&restarted), [""; 0]);
    // Nor does a service that returns to the same machine.
    let mut without = restarted.target.clone();
    without.nodes.get_mut("n1").expect("n1").services.clear();
    let removed = plan(&definitions, &restarted.target, &without, &policy).expect("a plan");
    let again = plan(&definitions, &removed.target, &restarted.target, &policy).expect("a plan");
    assert_eq!(keys(&again), [""; 0]);
    assert!(again.steps.iter().any(|step| step.kind == ResourceKind::Installed));
    // Another machine of the same name does, and so does another epoch.
    let mut replaced = again.target.clone();
    replaced.nodes.get_mut("n1").expect("n1").incarnation = 1;
    let replaced = plan(&definitions, &again.target, &replaced, &policy).expect("a plan");
    assert_eq!(keys(&replaced), ["n1#1/db@0"]);
    let mut epoch = replaced.target.clone();
    epoch.nodes.get_mut("n1").expect("n1").services.get_mut("db").expect("db").epoch = 1;
    let epoch = plan(&definitions, &replaced.target, &epoch, &policy).expect("a plan");
    assert_eq!(keys(&epoch), ["n1#1/db@1"]);
}

#[test]
fn a_rolling_restart_takes_few_instances_at_a_time_and_stops_at_a_failure() {
    let services = BTreeMap::from([shell("app", &[], &ALL), shell("web", &["app"], &ALL)]);
    let definitions = ServiceDefinitions::new(services.values());
    let mut state = ClusterState::default();
    for node in 0..6 {
        state.add_node(&format!("n{node}"), if node < 4 { ["app"] } else { ["web"] });
    }
    let state = state.established();
    let new = operations::restart(&definitions, &state, &BTreeSet::from(["app"])).expect("a state");
    let restart =
        Restart::Rolling { max_unavailable: BTreeMap::from([("app".to_owned(), 2)]), default: 1 };
    let plan = plan(&definitions, &state, &new, &PlanPolicy { restart, ..PlanPolicy::default() })
        .expect("a plan");
    let mut execution = Execution::new(&plan);
    let names = |steps: &[usize]| -> Vec<String> {
        steps.iter().map(|step| plan.steps[*step].to_string()).collect()
    };
    let first = execution.ready();
    assert_eq!(names(&first), ["n0:STOP:app", "n1:STOP:app", "n2:STOP:app", "n3:STOP:app"]);
    assert!(execution.start(first[0]) && execution.start(first[1]));
    assert!(!execution.start(first[2]), "two instances are down");
    execution.finish(first[0], true);
    execution.finish(first[1], true);
    let second = execution.ready();
    assert_eq!(names(&second), ["n0:START:app", "n1:START:app"]);
    assert!(execution.start(second[0]) && execution.start(second[1]));
    execution.finish(second[0], false);
    execution.finish(second[1], true);
    // The failed instance keeps its permit: one at a time remains.
    let third = execution.ready();
    assert_eq!(names(&third), ["n2:STOP:app", "n3:STOP:app"]);
    assert!(execution.start(third[0]));
    assert!(execution.ready().is_empty());
}

#[test]
fn a_plan_grows_with_its_steps_and_not_with_their_square() {
    let services =
        BTreeMap::from([shell("a", &[], &ALL), shell("b", &["a"], &ALL), shell("c", &["b"], &ALL)]);
    let definitions = ServiceDefinitions::new(services.values());
    let mut state = ClusterState::default();
    for node in 0..10_000 {
        state.add_node(&format!("n{node:05}"), ["a", "b", "c"]);
    }
    let begin = Instant::now();
    let plan = plan(&definitions, &ClusterState::default(), &state, &PlanPolicy::default())
        .expect("a plan");
    let seconds = begin.elapsed().as_secs_f64();
    assert_eq!(plan.steps.len(), 10_000 * (3 + 3 * 4));
    let edges: usize = plan.steps.iter().map(|step| step.requires.len() + step.after.len()).sum();
    let grouped: usize = plan.groups.iter().map(Vec::len).sum();
    assert!(edges + grouped < 3 * plan.steps.len(), "{edges} edges and {grouped} in groups");
    assert_eq!(plan.stages().len(), 11);
    // Unoptimized, in parallel with other tests.
    assert!(seconds < 20.0, "{seconds} s");
}

#[test]
fn dependencies_behind_a_service_outside_the_plan_come_first_too() {
    let (name, mut middle) = shell("middle", &[], &ALL);
    middle.dependencies.runtime.uses.push("base".to_owned());
    let services = BTreeMap::from([
        shell("base", &[], &ALL),
        (name, middle),
        shell("top", &["middle", "base"], &ALL),
    ]);
    let definitions = ServiceDefinitions::new(services.values());
    let (mut old, mut new) = (ClusterState::default(), ClusterState::default());
    old.add_node("n1", ["middle"]);
    new.add_node("n1", ["base", "middle", "top"]);
    let old = old.established();
    let starts = |policy: &PlanPolicy| -> Vec<BTreeSet<String>> {
        let plan = plan(&definitions, &old, &new, policy).expect("a plan");
        let stages = plan.stages().into_iter().map(|stage| {
            let steps = stage.into_iter().map(|step| plan.steps[step].to_string());
            steps.filter(|step| step.contains("START")).collect::<BTreeSet<String>>()
        });
        stages.filter(|stage| !stage.is_empty()).collect()
    };
    let set = |names: &[&str]| names.iter().map(|name| format!("n1:START:{name}")).collect();
    let safe: [BTreeSet<String>; 3] = [set(&["middle"]), set(&["base"]), set(&["top"])];
    assert_eq!(starts(&PlanPolicy::default()), safe);
    let reference: [BTreeSet<String>; 2] = [set(&["middle"]), set(&["base", "top"])];
    assert_eq!(starts(&PlanPolicy { is_compatible: true, ..PlanPolicy::default() }), reference);
}
