//! Counts of resources, which cost as much as there are resources: they are kept for a while that grows with what they cost, so
//! that small environments are always counted anew, and large ones seldom. What was counted before something was released is not
//! answered after it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_store::{EnvironmentKey, StatusCount, Store, Wanted};

use crate::app::App;
use crate::problem::ServerError;

/// For so many times as long as counting took, its answer is good enough.
const PAUSE_FACTOR: u32 = 4;
/// What takes less is counted each time.
const CHEAP: Duration = Duration::from_millis(20);
/// No answer is older than this, however long counting takes.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What was counted in one environment.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) at: Timestamp,
    pub(crate) counts: Vec<StatusCount>,
    wanted: Wanted,
    until: Instant,
}

/// What was last counted in one environment. Whoever counts holds it.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Counted>>>>;

#[derive(Debug, Default)]
pub(crate) struct Counts {
    slots: Mutex<HashMap<EnvironmentKey, Slot>>,
}

impl Counts {
    /// Counts, or answers what was counted a short while ago. Who asks meanwhile waits for the same answer.
    pub(crate) async fn get(
        &self,
        app: &App,
        environment: EnvironmentKey,
    ) -> Result<Arc<Counted>, ServerError> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(environment).or_default())
        };
        let mut kept = slot.lock().await;
        if let Some(counted) = kept.as_ref().filter(|counted| counted.until > Instant::now()) {
            let wanted = app.with_store(move |store| store.records().wanted(environment)).await?;
            if wanted == counted.wanted {
                return Ok(Arc::clone(counted));
            }
        }
        let begun = Instant::now();
        let at = app.now();
        let count = move |store: &dyn Store| {
            let records = store.records();
            // First: what changes meanwhile makes the answer one that is not used again.
            Ok((records.wanted(environment)?, records.count_resources(environment)?))
        };
        let (wanted, counts) = app.with_store(count).await?;
        let cost = begun.elapsed();
        let pause =
            if cost < CHEAP { Duration::ZERO } else { (cost * PAUSE_FACTOR).min(PAUSE_MAX) };
        let counted = Arc::new(Counted { at, counts, wanted, until: Instant::now() + pause });
        *kept = Some(Arc::clone(&counted));
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::{Resource, Status};
    use orrery_store::{NewVersion, Scope, SqliteStore};

    use super::*;
    use crate::AppSettings;

    fn put(app: &App, environment: EnvironmentKey, names: &[&str]) {
        let resource = |name: &&str| {
            let id = format!("t::R[a,name={name}]").parse().unwrap();
            Resource::new(id, orrery_model::Attributes::parse("{}").unwrap(), Vec::new())
        };
        let resources: Vec<Resource> = names.iter().map(resource).collect();
        let version = NewVersion {
            number: None,
            base: None,
            made_at: app.now(),
            info: &serde_json::Value::Null,
            scope: Scope::All,
            resources: &resources,
            unknowns: &[],
            released: true,
            only_if_changed: false,
            lease: None,
            project: None,
        };
        app.store().put_version(environment, &version).unwrap();
    }

    #[tokio::test]
    async fn what_was_counted_before_a_release_is_not_answered_after_it() {
        let app = App::new(Arc::new(SqliteStore::in_memory().unwrap()), AppSettings::default());
        let environment = app.store().default_environment().unwrap();
        let available = async || -> u64 {
            let counted = app.counts().get(&app, environment).await.unwrap();
            counted
                .counts
                .iter()
                .filter(|one| one.status == Status::Available)
                .map(|one| one.count)
                .sum()
        };
        put(&app, environment, &["a"]);
        assert_eq!(available().await, 1);
        // As if counting had taken long.
        let slot = Arc::clone(&app.counts().slots.lock().unwrap()[&environment]);
        let wanted = app.store().records().wanted(environment).unwrap();
        let counts = vec![StatusCount {
            agent: "a".into(),
            status: Status::Available,
            count: 7,
            parked: 0,
            removals: 0,
            oldest_run: None,
        }];
        let until = Instant::now() + Duration::from_secs(3600);
        *slot.lock().await = Some(Arc::new(Counted { at: app.now(), counts, wanted, until }));
        assert_eq!(available().await, 7, "counted a short while ago");
        put(&app, environment, &["a", "b"]);
        assert_eq!(available().await, 2, "counted anew");
    }
}
