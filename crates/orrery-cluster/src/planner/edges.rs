//! The order between services: starts and initializations follow the starts of dependencies,
//! installations their installations, and stops and removals use the reverse order.
//!
//! Steps wait for all instances of a service as a group, so that a plan grows with the number of
//! steps and not with its square. The graph has no cycles:
//!
//! - Starts wait for starts and installations, along the dependencies.
//! - Stops wait for stops, against the dependencies; within a chain, starts follow stops.
//! - A permanently removed instance also waits for the new instances of its service, and for
//!   changed dependents, unless the service is disrupted anyway. Nothing waits for a permanently
//!   removed instance, apart from other such instances.
//! - In a rolling restart, a step behind a gate waits for steps of its own node only, so that a
//!   permit holder never waits for a step that needs a permit.

use std::collections::BTreeSet;

use crate::document::ServiceAction;

use super::build::{Builder, Instance, Instances, Role};
use super::service_order::PhaseKind;
use super::step::{Effect, ResourceKind};

pub(super) fn add(builder: &mut Builder<'_>) {
    installs(builder);
    starts(builder);
    stops(builder);
    removes(builder);
    departures(builder);
    if builder.is_rolling() {
        roll(builder);
    }
}

/// Makes steps wait for others as a group.
fn wait(builder: &mut Builder<'_>, steps: impl IntoIterator<Item = usize>, group: Vec<usize>) {
    if group.is_empty() {
        return;
    }
    let steps: Vec<usize> = steps.into_iter().collect();
    if let ([before], true) = (group.as_slice(), steps.len() <= 1) {
        for step in steps {
            builder.steps[step].requires.push(*before);
        }
        return;
    }
    if steps.is_empty() {
        return;
    }
    let number = builder.groups.len();
    builder.groups.push(group);
    for step in steps {
        builder.steps[step].after.push(number);
    }
}

fn instances_of<'i, 'a>(instances: &'i Instances<'a>, service: &str) -> &'i [Instance<'a>] {
    instances.get(service).map_or(&[], Vec::as_slice)
}

/// True for steps that hold a permit: they wait for steps of their own node only.
fn is_gated(builder: &Builder<'_>, step: &Instance<'_>) -> bool {
    builder.is_rolling() && step.role != Role::Lasting
}

/// Makes the steps without a permit wait for `before`.
fn follow(builder: &mut Builder<'_>, steps: &[Instance<'_>], before: &[Instance<'_>]) {
    let free = steps.iter().filter(|step| !is_gated(builder, step));
    let free: Vec<usize> = free.map(|step| step.step).collect();
    wait(builder, free, before.iter().map(|before| before.step).collect());
}

/// Makes steps wait for an indirect dependency: the service in between may be outside the plan.
/// Permit holders wait for steps of the same node and role only.
fn follow_far(builder: &mut Builder<'_>, steps: &[Instance<'_>], before: &[Instance<'_>]) {
    if !builder.policy.is_compatible {
        follow(builder, steps, before);
    }
    for step in steps.iter().filter(|step| is_gated(builder, step)).copied().collect::<Vec<_>>() {
        let is_near = |before: &&Instance<'_>| (before.node, before.role) == (step.node, step.role);
        let near: Vec<usize> = before.iter().filter(is_near).map(|before| before.step).collect();
        builder.steps[step.step].requires.extend(near);
    }
}

fn installs(builder: &mut Builder<'_>) {
    for service in builder.installs.keys().copied().collect::<Vec<_>>() {
        let order = builder.new_order;
        for other in order.before(PhaseKind::Install, service, ServiceAction::Install) {
            let steps = instances_of(&builder.installs, service).to_vec();
            let before = instances_of(&builder.installs, other).to_vec();
            follow(builder, &steps, &before);
        }
        for other in order.all_before(PhaseKind::Install, service) {
            let steps = instances_of(&builder.installs, service).to_vec();
            let before = instances_of(&builder.installs, other).to_vec();
            follow_far(builder, &steps, &before);
        }
    }
}

/// Orders starts. Running dependencies are verified first.
fn starts(builder: &mut Builder<'_>) {
    let names: BTreeSet<&str> =
        builder.starts.keys().chain(builder.initializes.keys()).copied().collect();
    let needed: BTreeSet<&str> = names
        .iter()
        .flat_map(|name| builder.new_order.before(PhaseKind::Runtime, name, ServiceAction::Start))
        .collect();
    let mut verified = Instances::new();
    for other in needed {
        let known: BTreeSet<&str> =
            instances_of(&builder.starts, other).iter().map(|start| start.node).collect();
        let target = builder.target;
        for (node, state) in &target.nodes {
            let runs = state.services.get(other).is_some_and(|service| service.running);
            if runs && !known.contains(node.as_str()) {
                let (kind, effect) = (ResourceKind::Running, Effect::Verify);
                let step = builder.push(node, kind, Some(other), effect, None);
                let instance = Instance { step, node, role: Role::Lasting };
                verified.entry(other).or_default().push(instance);
            }
        }
    }
    for service in names {
        for other in builder.new_order.before(PhaseKind::Runtime, service, ServiceAction::Start) {
            let mut steps = instances_of(&builder.starts, service).to_vec();
            steps.extend(instances_of(&builder.initializes, service));
            let mut before = instances_of(&builder.starts, other).to_vec();
            before.extend(instances_of(&verified, other));
            follow(builder, &steps, &before);
        }
        for other in builder.new_order.all_before(PhaseKind::Runtime, service) {
            let mut steps = instances_of(&builder.starts, service).to_vec();
            steps.extend(instances_of(&builder.initializes, service));
            let before = instances_of(&builder.starts, other).to_vec();
            follow_far(builder, &steps, &before);
        }
    }
}

fn stops(builder: &mut Builder<'_>) {
    for service in builder.stops.keys().copied().collect::<Vec<_>>() {
        let order = builder.old_order;
        for other in order.before(PhaseKind::Runtime, service, ServiceAction::Stop) {
            let first = instances_of(&builder.stops, service).to_vec();
            let then = instances_of(&builder.stops, other).to_vec();
            reverse(builder, &first, &then);
        }
    }
}

fn removes(builder: &mut Builder<'_>) {
    for service in builder.removes.keys().copied().collect::<Vec<_>>() {
        let order = builder.old_order;
        for other in order.before(PhaseKind::Install, service, ServiceAction::Remove) {
            let first = instances_of(&builder.removes, service).to_vec();
            let then = instances_of(&builder.removes, other).to_vec();
            reverse_within_roles(builder, &first, &then);
        }
    }
}

/// Makes all of `then` wait for all of `first`; in a rolling restart as far as possible.
fn reverse(builder: &mut Builder<'_>, first: &[Instance<'_>], then: &[Instance<'_>]) {
    if builder.is_rolling() {
        reverse_within_roles(builder, first, then);
        return;
    }
    let group = first.iter().map(|one| one.step).collect();
    wait(builder, then.iter().map(|one| one.step), group);
}

/// Orders permanent removals after each other; on a replaced machine, each service waits for its
/// neighbours.
fn reverse_within_roles(builder: &mut Builder<'_>, first: &[Instance<'_>], then: &[Instance<'_>]) {
    let lasting = |one: &&Instance<'_>| one.role == Role::Lasting;
    let group = first.iter().filter(lasting).map(|one| one.step).collect();
    let steps: Vec<usize> = then.iter().filter(lasting).map(|one| one.step).collect();
    wait(builder, steps, group);
    for step in then.iter().filter(|one| one.role == Role::Replace) {
        let near = first.iter().filter(|one| one.role == Role::Replace && one.node == step.node);
        let near: Vec<usize> = near.map(|one| one.step).collect();
        builder.steps[step.step].requires.extend(near);
    }
}

/// A removed instance waits until the other instances of its service run and its dependents are
/// updated.
fn departures(builder: &mut Builder<'_>) {
    let stays = |service: &str, stop: &Instance<'_>| {
        let node = builder.target.nodes.get(stop.node);
        node.is_some_and(|node| node.services.contains_key(service))
    };
    // An instance that stops and is installed again waits for its dependents to stop: these cannot
    // wait for instances that are installed later.
    let stopped = builder.stops.iter().filter(|(service, stops)| {
        stops.iter().any(|stop| stop.role == Role::Lasting && stays(service, stop))
    });
    let stopped: BTreeSet<&str> = stopped.map(|(service, _)| *service).collect();
    let mut held = builder.old_order.with_dependents(&stopped);
    held.extend(builder.new_order.with_dependents(&stopped));
    for service in builder.stops.keys().copied().collect::<Vec<_>>() {
        if builder.disrupted.contains(service) || held.contains(service) {
            continue;
        }
        let leaves = |stop: &&Instance<'_>| stop.role == Role::Lasting && !stays(service, stop);
        let leaving: Vec<usize> = instances_of(&builder.stops, service)
            .iter()
            .filter(leaves)
            .map(|stop| stop.step)
            .collect();
        let mut before: Vec<usize> =
            instances_of(&builder.starts, service).iter().map(|start| start.step).collect();
        for dependent in builder.new_order.sorted() {
            if builder.new_order.direct(dependent).any(|other| other == service) {
                before.extend(instances_of(&builder.starts, dependent).iter().map(|one| one.step));
                before.extend(
                    instances_of(&builder.configures, dependent).iter().map(|one| one.step),
                );
            }
        }
        wait(builder, leaving, before);
    }
}

/// A service restarts when its dependencies are in their new state everywhere.
fn roll(builder: &mut Builder<'_>) {
    for service in builder.cycles.keys().copied().collect::<Vec<_>>() {
        let order = builder.new_order;
        let mut before: Vec<usize> = Vec::new();
        for other in order.before(PhaseKind::Runtime, service, ServiceAction::Start) {
            before.extend(instances_of(&builder.starts, other).iter().map(|start| start.step));
        }
        for other in order.before(PhaseKind::Install, service, ServiceAction::Install) {
            before
                .extend(instances_of(&builder.installs, other).iter().map(|install| install.step));
        }
        let steps: Vec<usize> =
            instances_of(&builder.cycles, service).iter().map(|one| one.step).collect();
        wait(builder, steps, before);
    }
}
