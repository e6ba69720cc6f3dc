//! Counts of resources, which cost as much as there are resources: they are kept for a while that grows with what they cost, so
//! that small environments are always counted anew, and large ones seldom.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_store::{EnvironmentKey, StatusCount};

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
            return Ok(Arc::clone(counted));
        }
        let begun = Instant::now();
        let at = app.now();
        let counts =
            app.with_store(move |store| store.records().count_resources(environment)).await?;
        let cost = begun.elapsed();
        let pause =
            if cost < CHEAP { Duration::ZERO } else { (cost * PAUSE_FACTOR).min(PAUSE_MAX) };
        let counted = Arc::new(Counted { at, counts, until: Instant::now() + pause });
        *kept = Some(Arc::clone(&counted));
        Ok(counted)
    }
}
