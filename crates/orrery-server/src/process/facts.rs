//! Facts that a compile did not know: their resources are asked until they tell, and the compile that follows from that makes
//! defined what depends on them.

use std::collections::BTreeSet;
use std::time::Duration;

use orrery_executor::Engine;
use orrery_model::{ResourceId, Timestamp, VersionNumber};
use orrery_store::{EnvironmentKey, Store, StoreError};

use crate::routes::parameters::{FACT_RENEWAL, FACTS_PAUSE};

/// Those of the version that is wanted at present.
#[derive(Debug, Default)]
pub(super) struct UnknownFacts {
    asked: BTreeSet<(ResourceId, String)>,
    /// When the resources are asked again; `None` if all is known.
    again_at: Option<Timestamp>,
    /// What passes until then. It grows, since who has not told yet may never do.
    pause: Duration,
}

fn unknown(
    store: &dyn Store,
    environment: EnvironmentKey,
    version: VersionNumber,
) -> Result<Vec<(ResourceId, String)>, StoreError> {
    let all = store.unknowns(environment, version)?;
    let open = all.into_iter().filter(|(_, resolved)| !resolved);
    Ok(open.filter_map(|(unknown, _)| Some((unknown.resource?, unknown.name))).collect())
}

impl UnknownFacts {
    /// Asks for what the version of an engine does not know: each resource when it is deployed. What an earlier version did not
    /// know either waits for its time, so that versions that come fast do not ask each time.
    pub(super) fn follow(
        &mut self,
        store: &dyn Store,
        environment: EnvironmentKey,
        engine: &Engine,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let unknown: BTreeSet<_> =
            unknown(store, environment, engine.version())?.into_iter().collect();
        if unknown.is_empty() {
            self.again_at = None;
        } else if self.again_at.is_none() || !unknown.is_subset(&self.asked) {
            self.pause = FACTS_PAUSE;
            self.again_at = Some(now + self.pause);
        }
        engine.await_facts(unknown.iter().cloned(), &self.asked);
        self.asked = unknown;
        Ok(())
    }

    /// When `ask_again` has something to do.
    pub(super) fn again_at(&self) -> Option<Timestamp> {
        self.again_at
    }

    /// Asks again for what is still unknown, if it is time.
    pub(super) fn ask_again(
        &mut self,
        store: &dyn Store,
        environment: EnvironmentKey,
        engine: &Engine,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if self.again_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        let unknown = unknown(store, environment, engine.version())?;
        self.pause = (self.pause * 2).min(FACT_RENEWAL);
        self.again_at = (!unknown.is_empty()).then(|| now + self.pause);
        engine.ask_for_facts(unknown.into_iter().map(|(id, _)| id));
        Ok(())
    }
}
