//! What happens to an environment as a whole: it is measured and tidied up, emptied, deleted.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::Timestamp;
use orrery_store::{
    EnvironmentKey, EnvironmentRecord, RequestRecord, Store, StoreError, uuid_text,
};

use crate::upkeep;

use super::runner::{Next, Runner, RunnerError};
use super::supervisor::micros;

/// An environment in which something happens is measured so often, and tidied up so often.
const SAMPLE_EVERY: Duration = Duration::from_secs(60);
const TIDY_EVERY: Duration = Duration::from_secs(3600);

/// When what is done from time to time was last done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Upkeep {
    sampled: Timestamp,
    tidied: Timestamp,
}

impl Runner {
    /// Measures and forgets, if the time for it has come. An environment in which nothing happens is left alone: it says
    /// when it wants to be measured once more, and not again before something happened.
    pub(super) fn keep_up(&mut self) -> Result<Option<Timestamp>, RunnerError> {
        let Some(lease) = self.lease() else { return Ok(None) };
        let (store, now) = (Arc::clone(self.app.store()), self.app.now());
        let Upkeep { sampled, tidied } = self.upkeep;
        let due = Timestamp(sampled.0.saturating_add(micros(SAMPLE_EVERY)));
        if due > now {
            return Ok(Some(due));
        }
        let record = store.records().environment_of(self.key)?;
        let since = if sampled == Timestamp::default() { now } else { sampled };
        upkeep::sample(&*store, &record, since, now)?;
        self.upkeep.sampled = now;
        if now.since(tidied) >= TIDY_EVERY {
            upkeep::tidy_up(&*store, &lease, &record, &self.settings, now)?;
            self.upkeep.tidied = now;
        }
        Ok(None)
    }

    /// Removes an environment that is not wanted any more. What is interrupted goes on at the next look.
    pub(super) fn delete(
        &mut self,
        store: &dyn Store,
        record: &EnvironmentRecord,
    ) -> Result<Next, RunnerError> {
        self.halt();
        // First: the store knows of it until nothing is left here.
        let own = self.options.data.join("environments").join(uuid_text(&record.uuid));
        match std::fs::remove_dir_all(&own) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %own.display(), "files of an environment stay behind");
            }
            _ => {}
        }
        upkeep::erase(store, record, self.app.now())?;
        self.app.nudge();
        tracing::info!(environment = %record.name, "environment deleted");
        Ok(Next::Gone)
    }

    /// Empties an environment, and lets it go on if it was not halted before.
    pub(super) fn clear(
        &mut self,
        store: &dyn Store,
        record: &EnvironmentRecord,
        request: &RequestRecord,
    ) -> Result<(), RunnerError> {
        self.halt();
        let now = self.app.now();
        // Another process may be at work here: it clears the environment then.
        let lease = self.acquire(store)?;
        store.records().take_request(request.key, now)?;
        upkeep::erase(store, record, now)?;
        store.release_lease(&lease)?;
        if request.payload["resume"] == true && record.halted {
            store.records().set_halted(&record.uuid, false, now)?;
        }
        // Erasing takes requests along, but for this one if it came meanwhile.
        store.records().finish_request(request, &serde_json::json!({"done": true}), now)?;
        self.app.nudge();
        tracing::info!(environment = %record.name, "environment cleared");
        Ok(())
    }
}

/// The request to empty the environment, if there is one.
pub(super) fn clearing(
    store: &dyn Store,
    environment: EnvironmentKey,
) -> Result<Option<RequestRecord>, StoreError> {
    let open = store.records().open_requests(environment)?;
    Ok(open.into_iter().find(|request| request.kind == "clear"))
}
