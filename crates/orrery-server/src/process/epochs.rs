//! Tells remote agents under which epoch their environment is worked on, as soon as the lease is taken: whoever worked on it
//! before is refused by them from then on, also if there is nothing to deploy.
//!
//! An agent learns of an epoch with a command, whatever that asks for. So it is asked for the facts of a resource that is nothing,
//! which agents of every version understand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orrery_executor::{Order, Place, Purpose, Remote, Targets, Task};
use orrery_handlers::{Permit, Stop};
use orrery_model::{Attributes, LogLevel, Resource, ResourceId, VersionNumber};
use orrery_store::Lease;

use super::places::AgentPlaces;

/// The entity of the resource that is nothing.
const NOTHING: &str = "std::testing::NullResource";
/// Agents that are told at once.
const AT_ONCE: usize = 16;
/// How long an agent may take to answer. One that does not learns it with the next command.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells these agents, on threads of its own.
pub(super) fn tell(
    places: &Arc<AgentPlaces>,
    agents: impl IntoIterator<Item = String>,
    lease: Lease,
    permit: &Permit,
) {
    let agents: Arc<Vec<String>> = Arc::new(agents.into_iter().collect());
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..agents.len().min(AT_ONCE) {
        let (places, agents, next) = (Arc::clone(places), Arc::clone(&agents), Arc::clone(&next));
        let permit = permit.clone();
        let work = move || {
            while let Some(agent) = agents.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Ok(Place::Remote(remote)) = places.place(agent) {
                    tell_one(&*remote, agent, lease, &permit);
                }
            }
        };
        let thread = std::thread::Builder::new().name("epochs".to_owned()).spawn(work);
        if let Err(error) = thread {
            tracing::warn!(%error, "remote agents learn of the epoch with the next command only");
            return;
        }
    }
}

fn tell_one(remote: &dyn Remote, agent: &str, lease: Lease, permit: &Permit) {
    let (Ok(id), Ok(attributes)) =
        (ResourceId::new(NOTHING, agent, "name", "epoch"), Attributes::parse("{}"))
    else {
        return;
    };
    let resource = Resource::new(id, attributes, Vec::new());
    let stop = Stop::at(Instant::now() + PATIENCE).under(permit);
    let order = Order {
        task: Task {
            purpose: Purpose::Facts,
            resource: &resource,
            version: VersionNumber(0),
            deployed_before: false,
            changed_dependencies: &[],
            reason: &"the environment has a new owner",
            stop: &stop,
            announce: None,
            effects: None,
        },
        epoch: Some(lease.epoch()),
        contents: Default::default(),
        secrets: Default::default(),
        log_level: LogLevel::Error,
    };
    if let Err(error) = remote.run(&order) {
        tracing::debug!(%error, agent, "a remote agent learns of the epoch with the next command");
    }
}
