//! Facts that a compile needs, collected before anything is deployed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison as _;
use orrery_handlers::clock::now;
use orrery_handlers::run::{HandlerRun, Purpose, RunContext, sanitize_outcome};
use orrery_handlers::{CancelToken, LocalSecrets, NoContents, Registry, TargetCache};
use orrery_model::{Fact, LogLevel, Outcome, OutcomeStatus, Resource, ResourceId, VersionNumber};

use crate::placement::{ConnectedMachine, ExecutionSite, TargetResolver};

/// Machines that are asked at once.
const PARALLEL_MAX: usize = 64;

/// Epoch below that of any lease: a later deploy always counts as newer.
const EPOCH: u64 = 0;

/// Reads the facts of resources, without a store. Resources of machines that are not reached within
/// the limit are left out.
pub fn collect_facts(
    targets: &dyn TargetResolver,
    registry: &Registry,
    resources: &[Resource],
    limit: Duration,
) -> Vec<(ResourceId, Vec<Fact>)> {
    let stop = CancelToken::at(monotonic() + limit);
    let (next, collected) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(resource) = resources.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(mut outcome) = read(targets, registry, resource, &stop) else { continue };
            sanitize_outcome(&mut outcome);
            if outcome.status == OutcomeStatus::Deployed {
                collected.lock().ignore_poison().push((resource.id.clone(), outcome.facts));
            } else {
                let reason = outcome.log.last().map_or("", |line| &line.message);
                tracing::debug!(resource = %resource.id, reason, "facts not collected");
            }
        }
    };
    std::thread::scope(|scope| {
        // This thread is one of them.
        for _ in 1..resources.len().min(PARALLEL_MAX) {
            let started = Builder::new().name("facts".to_owned()).spawn_scoped(scope, work);
            if let Err(error) = started {
                tracing::debug!(%error, "fewer machines are asked at once");
                break;
            }
        }
        work();
    });
    collected.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Reads the facts of one resource; `None` if its agent has no machine, or it is not reached.
fn read(
    targets: &dyn TargetResolver,
    registry: &Registry,
    resource: &Resource,
    stop: &CancelToken,
) -> Option<Outcome> {
    let handler = registry.handler(resource.id.entity())?;
    let run = HandlerRun {
        purpose: Purpose::Facts,
        resource,
        version: VersionNumber(0),
        epoch: Some(EPOCH),
        deployed_before: false,
        changed_dependencies: &[],
        reason: &"a compile needs its facts",
        stop,
        before_change: None,
        effects: None,
    };
    let context = RunContext {
        cache: &TargetCache::new(),
        contents: &NoContents,
        secrets: &LocalSecrets,
        clock: &now,
        log_level: LogLevel::Warning,
        server: None,
    };
    let outcome = match targets.resolve(resource.id.agent()) {
        Ok(ExecutionSite::Local(target)) => run.run(&**handler, &*target, &context),
        Ok(ExecutionSite::Remote(remote)) => run.run_remotely(registry, &*remote, &context),
        Ok(ExecutionSite::Machine { machine, .. }) => match machine.connect(stop) {
            Ok(ConnectedMachine::Target { target, .. }) => run.run(&**handler, &*target, &context),
            Ok(ConnectedMachine::Helper(helper)) => run.run_remotely(registry, &*helper, &context),
            Err(error) => {
                tracing::debug!(resource = %resource.id, %error, "facts not collected");
                return None;
            }
        },
        // The deploy reports the reason.
        Ok(ExecutionSite::Outward(_)) | Err(_) => return None,
    };
    Some(outcome.outcome)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use orrery_handlers::target::{Output, TransportError, TransportErrorKind};
    use orrery_handlers::{MemoryTarget, OutwardTarget};

    use super::*;
    use crate::placement::{NoTarget, ReachableMachine};

    struct Dead;

    impl ReachableMachine for Dead {
        fn connect(&self, _: &CancelToken) -> Result<ConnectedMachine, TransportError> {
            let kind = TransportErrorKind::Refused;
            Err(TransportError::new(kind, "dead".to_owned(), "no route".to_owned()))
        }
    }

    struct Sites(BTreeMap<&'static str, ExecutionSite>);

    impl TargetResolver for Sites {
        fn resolve(&self, agent: &str) -> Result<ExecutionSite, NoTarget> {
            self.0.get(agent).cloned().ok_or_else(|| NoTarget(agent.to_owned()))
        }

        fn sync(&self) {}
    }

    #[test]
    fn machines_that_are_not_reached_are_left_out() {
        let here = MemoryTarget::new();
        here.on("/bin/sh", |_| Output::new(0, "kernel Linux\nos debian\n", ""));
        let outward = || Arc::new(OutwardTarget::new(None, String::new(), String::new()));
        let dead = ExecutionSite::Machine { machine: Arc::new(Dead), outward: outward() };
        let sites = Sites(BTreeMap::from([
            ("here", ExecutionSite::Local(Arc::new(here))),
            ("dead", dead),
            ("nowhere", ExecutionSite::Outward(outward())),
        ]));
        let resources: Vec<Resource> = ["dead", "here", "nowhere", "unknown"]
            .into_iter()
            .map(|agent| Resource::machine_facts(agent).unwrap())
            .collect();
        let limit = Duration::from_secs(60);
        let collected = collect_facts(&sites, &Registry::native(), &resources, limit);
        let [(id, facts)] = &*collected else { panic!("{collected:?}") };
        assert_eq!(id.agent(), "here");
        assert!(facts.iter().any(|fact| fact.name == "os" && fact.value == "debian"));
    }
}
