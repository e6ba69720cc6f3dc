//! State changes of a cluster that users request. Each returns the state to plan for.

use std::collections::BTreeSet;

use super::error::PlanError;
use super::service_order::{ServiceDefinitions, ServiceOrder};
use super::state::{ClusterState, ServiceState};

/// Starts services and all their dependencies.
///
/// # Errors
/// The services of the cluster are inconsistent.
pub fn start(
    services: &ServiceDefinitions<'_>,
    state: &ClusterState,
    names: &BTreeSet<&str>,
) -> Result<ClusterState, PlanError> {
    let order = ServiceOrder::new(services, &state.services())?;
    let names = order.with_dependencies(names);
    Ok(change(state, &names, |service| service.running = true))
}

/// Stops services and all their dependents.
///
/// # Errors
/// The services of the cluster are inconsistent.
pub fn stop(
    services: &ServiceDefinitions<'_>,
    state: &ClusterState,
    names: &BTreeSet<&str>,
) -> Result<ClusterState, PlanError> {
    let order = ServiceOrder::new(services, &state.services())?;
    let names = order.with_dependents(names);
    Ok(change(state, &names, |service| service.running = false))
}

/// Restarts services and all their dependents.
///
/// # Errors
/// The services of the cluster are inconsistent.
pub fn restart(
    services: &ServiceDefinitions<'_>,
    state: &ClusterState,
    names: &BTreeSet<&str>,
) -> Result<ClusterState, PlanError> {
    let order = ServiceOrder::new(services, &state.services())?;
    let names = order.with_dependents(names);
    Ok(change(state, &names, |service| service.generation += 1))
}

/// Sets the configuration digest of each service.
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
