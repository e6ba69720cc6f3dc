//! Unknown facts of the current version: their resources are asked repeatedly until the facts are
//! known. A compile then resolves the resources that depend on them.

use std::collections::BTreeSet;
use std::time::Duration;

use orrery_executor::Engine;
use orrery_model::{ResourceId, Timestamp, VersionNumber};
use orrery_store::{EnvironmentKey, Store, StoreError};

use crate::app::parameters::{FACT_RENEWAL, FACTS_PAUSE};

/// Unknown facts of the current version.
#[derive(Debug, Default)]
pub(super) struct UnknownFacts {
    requested: BTreeSet<(ResourceId, String)>,
    /// Time of the next fact request; `None` if all facts are known.
    retry_at: Option<Timestamp>,
    /// Current backoff. Grows because a fact may never become available.
    backoff: Duration,
}

fn unresolved(
    store: &Store,
    environment: EnvironmentKey,
    version: VersionNumber,
) -> Result<Vec<(ResourceId, String)>, StoreError> {
    let all = store.versions().unknowns(environment, version)?;
    let open = all.into_iter().filter(|(_, resolved)| !resolved);
    Ok(open.filter_map(|(unresolved, _)| Some((unresolved.resource?, unresolved.name))).collect())
}

impl UnknownFacts {
    /// Requests the unknown facts of the engine's version, each when its resource is deployed.
    /// Facts that an earlier version lacked, too, keep their backoff, so that frequent versions do
    /// not repeat the requests.
    pub(super) fn track_version(
        &mut self,
        store: &Store,
        environment: EnvironmentKey,
        engine: &Engine,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let unresolved: BTreeSet<_> =
            unresolved(store, environment, engine.version())?.into_iter().collect();
        if unresolved.is_empty() {
            self.retry_at = None;
        } else if self.retry_at.is_none() || !unresolved.is_subset(&self.requested) {
            self.backoff = FACTS_PAUSE;
            self.retry_at = Some(now + self.backoff);
        }
        engine.watch_facts(unresolved.iter().cloned(), &self.requested);
        self.requested = unresolved;
        Ok(())
    }

    /// Time of the next `retry`.
    pub(super) fn retry_at(&self) -> Option<Timestamp> {
        self.retry_at
    }

    /// Requests facts that are still unknown, if the backoff has passed.
    pub(super) fn retry(
        &mut self,
        store: &Store,
        environment: EnvironmentKey,
        engine: &Engine,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if self.retry_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        let unresolved = unresolved(store, environment, engine.version())?;
        self.backoff = (self.backoff * 2).min(FACT_RENEWAL);
        self.retry_at = (!unresolved.is_empty()).then(|| now + self.backoff);
        engine.refresh_facts(unresolved.into_iter().map(|(id, _)| id));
        Ok(())
    }
}
