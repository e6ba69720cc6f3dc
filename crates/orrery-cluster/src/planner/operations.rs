//! Changes of a cluster's state that people ask for. Each gives the state to plan for.

use std::collections::BTreeSet;

use super::error::PlanError;
use super::order::{Order, Services};
use super::state::{ClusterState, ServiceState};

/// Starts services, and everything that they depend on.
///
/// # Errors
/// The services of the cluster do not fit together.
pub fn start(
    services: &Services<'_>,
    state: &ClusterState,
    names: &BTreeSet<&str>,
) -> Result<ClusterState, PlanError> {
    let order = Order::new(services, &state.services())?;
    let names = order.with_dependencies(names);
    Ok(change(state, &names, |service| service.running = true))
}

/// Stops services, and everything that depends on them.
///
/// # Errors
/// The services of the cluster do not fit together.
pub fn stop(
    services: &Services<'_>,
    state: &ClusterState,
    names: &BTreeSet<&str>,
) -> Result<ClusterState, PlanError> {
    let order = Order::new(services, &state.services())?;
    let names = order.with_dependents(names);
    Ok(change(state, &names, |service| service.running = false))
}

/// Restarts services, and everything that depends on them.
///
/// # Errors
/// The services of the cluster do not fit together.
pub fn restart(
    services: &Services<'_>,
    state: &ClusterState,
    names: &BTreeSet<&str>,
) -> Result<ClusterState, PlanError> {
    let order = Order::new(services, &state.services())?;
    let names = order.with_dependents(names);
    Ok(change(state, &names, |service| service.generation += 1))
}

/// Gives services another configuration, by the digest of each.
pub fn configure(state: &ClusterState, digest: impl Fn(&str, &str) -> String) -> ClusterState {
    let mut state = state.clone();
    for (node, content) in &mut state.nodes {
        for (service, content) in &mut content.services {
            content.config = digest(node, service);
        }
    }
    state
}

fn change(
    state: &ClusterState,
    names: &BTreeSet<&str>,
    change: impl Fn(&mut ServiceState),
) -> ClusterState {
    let mut state = state.clone();
    for node in state.nodes.values_mut() {
        for (name, service) in &mut node.services {
            if names.contains(name.as_str()) {
                change(service);
            }
        }
    }
    state
}
