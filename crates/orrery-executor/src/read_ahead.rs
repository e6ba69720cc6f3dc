//! Reads ahead on machines with slow access: the resources that their agent runs next are verified
//! with the current one, in one round trip.

use orrery_handlers::run::{HandlerRun, Purpose, Remote};
use orrery_handlers::target::ReadAhead;
use orrery_handlers::{Registry, Target};
use orrery_model::Resource;

use crate::pending_run::{PendingRun, RunKind};
use crate::shared::Shared;

/// Limit of the attributes in one exchange, in bytes.
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// Reads the states that this run and the next ones begin with, if the target asks for it.
pub(crate) fn prefetch(
    run: &PendingRun,
    target: &dyn Target,
    registry: &Registry,
    shared: &Shared,
) {
    // Asked first: most targets read ahead nothing.
    let limit = target.prefetch_max(run.resource.id.value());
    if limit == 0 || !is_verified(run) {
        return;
    }
    let Some(own) = first_read(&run.resource, registry) else { return };
    let upcoming = upcoming(run, limit - 1, shared);
    let reads = upcoming.iter().filter_map(|resource| first_read(resource, registry));
    target.prefetch(&[own].into_iter().chain(reads).collect::<Vec<_>>());
}

/// Verifies this resource and the next ones, if the remote asks for it.
pub(crate) fn verify(run: &PendingRun, remote: &dyn Remote, registry: &Registry, shared: &Shared) {
    let limit = remote.verify_max(&run.resource.id);
    if limit < 2 || !is_verified(run) || first_read(&run.resource, registry).is_none() {
        return;
    }
    let upcoming = upcoming(run, limit - 1, shared);
    let resources = upcoming.iter().filter(|resource| first_read(resource, registry).is_some());
    let mut bytes = 0;
    let runs: Vec<HandlerRun<'_>> = [&run.resource]
        .into_iter()
        .chain(resources)
        .take_while(|resource| {
            bytes += resource.attributes.as_str().len();
            bytes <= BYTES_MAX
        })
        .map(|resource| HandlerRun {
            purpose: Purpose::DryRun,
            resource,
            version: run.version,
            epoch: None,
            deployed_before: false,
            changed_dependencies: &[],
            reason: &"verified ahead of its run",
            stop: &run.stop,
            before_change: None,
            effects: None,
        })
        .collect();
    // For a single resource, the run itself is as cheap.
    if runs.len() > 1 {
        remote.verify(&runs, shared.log_level);
    }
}

/// Returns true if the run begins with a read.
fn is_verified(run: &PendingRun) -> bool {
    run.skip.is_none() && !matches!(run.kind, RunKind::Facts)
}

fn first_read<'r>(resource: &'r Resource, registry: &Registry) -> Option<ReadAhead<'r>> {
    let handler = registry.handler(resource.id.entity())?;
    handler.read_ahead(&resource.id, &resource.attributes)
}

fn upcoming(run: &PendingRun, limit: usize, shared: &Shared) -> Vec<Resource> {
    if limit == 0 { Vec::new() } else { shared.lock().upcoming(run.agent, limit) }
}
