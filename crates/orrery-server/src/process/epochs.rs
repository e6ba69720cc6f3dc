//! Announces a new epoch to remote agents as soon as the lease is acquired, so that they fence the
//! previous owner even if there is nothing to deploy.
//!
//! An agent learns an epoch from any command. The announcement is a fact request for a null
//! resource, which agents of every version support.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::thread::spawn_named;
use orrery_executor::{ExecutionSite, TargetResolver};
use orrery_handlers::run::{HandlerRun, Purpose, Remote, RemoteCommand};
use orrery_handlers::{CancelToken, Permit};
use orrery_model::{Attributes, LogLevel, Resource, ResourceId, VersionNumber};
use orrery_store::Lease;

use super::agent_routing::AgentRouter;

/// Entity of the null resource.
const NULL_ENTITY: &str = "std::testing::NullResource";
/// Concurrent announcements.
const CONCURRENCY: usize = 16;
/// Timeout of an announcement. On timeout, the agent learns the epoch from the next command.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Announces the epoch to `agents`, on background threads.
pub(super) fn announce(
    router: &Arc<AgentRouter>,
    agents: impl IntoIterator<Item = String>,
    lease: Lease,
    permit: &Permit,
) {
    let agents: Arc<Vec<String>> = Arc::new(agents.into_iter().collect());
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..agents.len().min(CONCURRENCY) {
        let (router, agents, next) = (Arc::clone(router), Arc::clone(&agents), Arc::clone(&next));
        let permit = permit.clone();
        let work = move || {
            while let Some(agent) = agents.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Ok(ExecutionSite::Remote(remote)) = router.resolve(agent) {
                    announce_to(&*remote, agent, lease, &permit);
                }
            }
        };
        let thread = spawn_named("epochs", work);
        if let Err(error) = thread {
            tracing::warn!(%error, "epoch not announced; remote agents learn it from the next command");
            return;
        }
    }
}

fn announce_to(remote: &dyn Remote, agent: &str, lease: Lease, permit: &Permit) {
    let (Ok(id), Ok(attributes)) =
        (ResourceId::new(NULL_ENTITY, agent, "name", "epoch"), Attributes::parse("{}"))
    else {
        return;
    };
    let resource = Resource::new(id, attributes, Vec::new());
    let stop = CancelToken::at(monotonic() + TIMEOUT).under(permit);
    let command = RemoteCommand {
        run: HandlerRun {
            purpose: Purpose::Facts,
            resource: &resource,
            version: VersionNumber(0),
            epoch: Some(lease.epoch()),
            deployed_before: false,
            changed_dependencies: &[],
            reason: &"the environment has a new owner",
            stop: &stop,
            before_change: None,
            effects: None,
        },
        contents: Default::default(),
        secrets: Default::default(),
        log_level: LogLevel::Error,
        code: None,
    };
    if let Err(error) = remote.run(&command) {
        tracing::debug!(%error, agent, "epoch not announced; the remote agent learns it from the next command");
    }
}
