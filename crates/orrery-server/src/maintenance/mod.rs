//! Maintenance: periodic tasks of a server. Samples metrics, requests fact refreshes, applies
//! retention and erases environments. Each task can be interrupted and repeated.

mod fact_refresh;
mod retention;
mod samples;

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_model::Timestamp;
use orrery_store::{ChangeSeq, EnvironmentRecord, Store, StoreError};

use crate::app::parameters::FACT_RENEWAL;
use crate::settings::EnvironmentSettings;
use crate::state::ServerState;

pub(crate) use retention::erase_environment;
pub(crate) use samples::{
    COMPILE_TIME, GAUGE_VALIDITY, GAUGES, METRIC_NAMES, RESOURCE_COUNT, SAMPLE_INTERVAL,
};

use fact_refresh::request_fact_refresh;
use retention::{apply_retention, apply_server_retention};
use samples::sample_metrics;

/// Retention interval. All environments are sampled then, too.
const RETENTION_INTERVAL: Duration = Duration::from_secs(3600);

/// The maintenance thread.
#[derive(Debug)]
pub(crate) struct MaintenanceThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MaintenanceThread {
    pub(crate) fn start(app: ServerState) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread =
            std::thread::Builder::new().name("maintenance".to_owned()).spawn(move || {
                let mut seen = ChangeSeq::default();
                while stopped.recv_timeout(until_next_run(app.now()))
                    == Err(RecvTimeoutError::Timeout)
                {
                    if let Err(error) = run_due_tasks(&app, &mut seen) {
                        let error: &dyn std::error::Error = &error;
                        tracing::warn!(error, "maintenance failed");
                    }
                }
            })?;
        Ok(MaintenanceThread { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for MaintenanceThread {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the maintenance thread crashed");
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Time until the next full minute: all servers wake up at the same times.
fn until_next_run(now: Timestamp) -> Duration {
    let past = now.0.rem_euclid(micros(SAMPLE_INTERVAL));
    Duration::from_micros(u64::try_from(micros(SAMPLE_INTERVAL) - past).unwrap_or(0))
}

/// Runs the tasks that are due, unless another server of this installation has claimed them.
/// Environments without a change since position `seen` of the change feed are sampled only together
/// with retention.
fn run_due_tasks(app: &ServerState, seen: &mut ChangeSeq) -> Result<(), StoreError> {
    let (store, now) = (&**app.store(), app.now());
    let turn = |every: Duration| Timestamp(now.0.div_euclid(micros(every)) * micros(every));
    let sampling = store.records().claim_turn("sample", turn(SAMPLE_INTERVAL))?;
    let retaining = store.records().claim_turn("tidy up", turn(RETENTION_INTERVAL))?;
    if store.records().claim_turn("renew facts", turn(FACT_RENEWAL))?
        && request_fact_refresh(store, now)? > 0
    {
        app.wake_up();
    }
    if retaining {
        apply_server_retention(store, app.settings().audit_retention, now)?;
    }
    if retaining {
        let collected =
            store.records().collect_contents(now - app.settings().contents.grace, now)?;
        if collected.deleted > 0 {
            let (deleted, bytes) = (collected.deleted, collected.bytes);
            tracing::info!(deleted, bytes, "unreferenced contents deleted");
        }
    }
    if !sampling && !retaining {
        return Ok(());
    }
    let latest = store.records().latest_change()?;
    let changed = store.records().changed_environments(*seen)?;
    *seen = latest;
    for environment in store.records().list_environments(None)? {
        if !retaining && !changed.contains(&environment.key) {
            continue;
        }
        let done =
            maintain_environment(store, &environment, (sampling, retaining), turn(SAMPLE_INTERVAL));
        if let Err(error) = done {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(
                error,
                environment = environment.name,
                "maintenance of the environment failed"
            );
        }
    }
    Ok(())
}

fn maintain_environment(
    store: &dyn Store,
    environment: &EnvironmentRecord,
    (sampling, retaining): (bool, bool),
    now: Timestamp,
) -> Result<(), StoreError> {
    if environment.deleting {
        return Ok(());
    }
    if sampling {
        sample_metrics(store, environment, now - SAMPLE_INTERVAL, now)?;
    }
    if retaining {
        let settings =
            EnvironmentSettings::from_records(&store.records().settings(environment.key)?);
        apply_retention(store, environment, &settings, now)?;
    }
    Ok(())
}
