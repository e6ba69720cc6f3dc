//! Maintenance: a list of named periodic tasks, run by one thread of the process role.
//!
//! Servers of an installation claim the turns of a task in the store, so that one of them runs it.
//! Each task can be interrupted and repeated. `/health` and metrics have its period, latest run and
//! result.

mod cluster_leases;
mod content_collection;
mod erasure;
mod fact_refresh;
mod metric_samples;
mod retention;
mod server_retention;

use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::thread::spawn_named;
use orrery_model::Timestamp;
use orrery_store::{EnvironmentRecord, Store, StoreError};

use crate::services::Services;
use crate::state::ServerState;
use crate::task_status::TaskStatuses;

pub(crate) use erasure::erase_environment;

/// Interval between checks for due tasks; all periods are multiples of it.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Period of tasks that delete old data.
const RETENTION_INTERVAL: Duration = Duration::from_secs(3600);

/// One turn of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Nominal time: the latest multiple of the period.
    at: Timestamp,
    now: Timestamp,
}

/// A periodic task.
pub(crate) trait MaintenanceTask: Send {
    /// Name in `/health` and in metrics.
    fn name(&self) -> &'static str;

    fn period(&self) -> Duration;

    /// Key in the store under which servers claim a turn.
    fn claim_key(&self) -> &'static str {
        self.name()
    }

    /// Runs the task once.
    fn run(&mut self, services: &Services, turn: Turn) -> Result<(), StoreError>;
}

/// All tasks of a server, in the order in which they run.
fn all_tasks(state: &ServerState) -> Vec<Box<dyn MaintenanceTask>> {
    let settings = state.settings();
    vec![
        Box::new(cluster_leases::ClusterLeases),
        Box::new(fact_refresh::FactRefresh),
        Box::new(server_retention::ServerRetention { audit: settings.audit_retention }),
        Box::new(content_collection::ContentCollection { grace: settings.contents.grace }),
        Box::new(metric_samples::MetricSamples::default()),
        Box::new(retention::Retention),
    ]
}

/// The maintenance thread.
#[derive(Debug)]
pub(crate) struct MaintenanceThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MaintenanceThread {
    pub(crate) fn start(state: &ServerState) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let mut schedule = Schedule::new(all_tasks(state), state.tasks());
        let state = state.clone();
        let thread = spawn_named("maintenance", move || {
            while stopped.recv_timeout(until_next_check(state.now()))
                == Err(RecvTimeoutError::Timeout)
            {
                schedule.run_due(&state, state.tasks(), state.now());
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
fn until_next_check(now: Timestamp) -> Duration {
    let past = now.0.rem_euclid(micros(CHECK_INTERVAL));
    Duration::from_micros(u64::try_from(micros(CHECK_INTERVAL) - past).unwrap_or(0))
}

/// The latest multiple of a period.
fn turn_at(period: Duration, now: Timestamp) -> Timestamp {
    Timestamp(now.0.div_euclid(micros(period)) * micros(period))
}

/// Tasks with their latest turns.
struct Schedule(Vec<(Box<dyn MaintenanceTask>, Option<Timestamp>)>);

impl Schedule {
    fn new(tasks: Vec<Box<dyn MaintenanceTask>>, statuses: &TaskStatuses) -> Self {
        for task in &tasks {
            debug_assert_eq!(task.period().as_secs() % CHECK_INTERVAL.as_secs(), 0);
            statuses.add(task.name(), task.period());
        }
        Schedule(tasks.into_iter().map(|task| (task, None)).collect())
    }

    /// Runs the tasks that are due, unless another server of the installation has the turn. A failure
    /// does not affect other tasks.
    fn run_due(&mut self, services: &Services, statuses: &TaskStatuses, now: Timestamp) {
        for (task, last_turn) in &mut self.0 {
            let at = turn_at(task.period(), now);
            if last_turn.is_some_and(|last| at <= last) {
                continue;
            }
            let (name, begun) = (task.name(), monotonic());
            let result = match services.store().meta().claim_turn(task.claim_key(), at) {
                Ok(true) => {
                    *last_turn = Some(at);
                    run_guarded(&mut **task, services, Turn { at, now })
                }
                Ok(false) => {
                    *last_turn = Some(at);
                    statuses.record_elsewhere(name);
                    continue;
                }
                Err(error) => Err(Some(error)),
            };
            if let Err(Some(error)) = &result {
                let error: &dyn std::error::Error = error;
                tracing::warn!(error, task = name, "a maintenance task failed");
            }
            statuses.record_run(name, now, begun.elapsed(), result.is_ok());
        }
    }
}

/// Runs a task; a panic is a failure of this task alone.
fn run_guarded(
    task: &mut dyn MaintenanceTask,
    services: &Services,
    turn: Turn,
) -> Result<(), Option<StoreError>> {
    let name = task.name();
    let run = AssertUnwindSafe(|| task.run(services, turn));
    match std::panic::catch_unwind(run) {
        Ok(result) => result.map_err(Some),
        Err(_) => {
            tracing::error!(task = name, "a maintenance task panicked");
            Err(None)
        }
    }
}

/// Runs `work` for each environment that is not being deleted. Returns the last failure, after all
/// environments.
fn for_each_environment(
    store: &Store,
    name: &'static str,
    mut work: impl FnMut(&EnvironmentRecord) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut failure = Ok(());
    for environment in store.environments().list(None)? {
        if environment.deleting {
            continue;
        }
        if let Err(cause) = work(&environment) {
            let error: &dyn std::error::Error = &cause;
            let environment = environment.name;
            tracing::warn!(
                error,
                task = name,
                environment,
                "maintenance of the environment failed"
            );
            failure = Err(cause);
        }
    }
    failure
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use orrery_store::Store;

    use super::*;
    use crate::task_status::{TaskResult, TaskStatus};

    struct Counting {
        name: &'static str,
        runs: Arc<AtomicU32>,
        outcome: fn() -> Result<(), StoreError>,
    }

    impl MaintenanceTask for Counting {
        fn name(&self) -> &'static str {
            self.name
        }

        fn period(&self) -> Duration {
            2 * CHECK_INTERVAL
        }

        fn run(&mut self, _: &Services, _: Turn) -> Result<(), StoreError> {
            self.runs.fetch_add(1, Ordering::Relaxed);
            (self.outcome)()
        }
    }

    fn minute(number: i64) -> Timestamp {
        Timestamp(number * micros(CHECK_INTERVAL) + 1)
    }

    fn status(statuses: &TaskStatuses, name: &str) -> TaskStatus {
        statuses.all().into_iter().find(|status| status.name == name).unwrap()
    }

    #[test]
    fn tasks_report_their_runs_and_failures() {
        let services = Services::new(Store::in_memory().unwrap());
        let (good, bad) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let tasks: Vec<Box<dyn MaintenanceTask>> = vec![
            Box::new(Counting {
                name: "bad",
                runs: Arc::clone(&bad),
                outcome: || Err(StoreError::Conflict("no".to_owned())),
            }),
            Box::new(Counting { name: "crashing", runs: Arc::default(), outcome: || panic!("oh") }),
            Box::new(Counting { name: "good", runs: Arc::clone(&good), outcome: || Ok(()) }),
        ];
        let statuses = TaskStatuses::default();
        let mut schedule = Schedule::new(tasks, &statuses);
        assert_eq!(status(&statuses, "good").result, TaskResult::Pending);
        // Two turns of two minutes each.
        for number in 0..4 {
            schedule.run_due(&services, &statuses, minute(number));
        }
        let good_status = status(&statuses, "good");
        assert_eq!((good_status.result, good_status.runs), (TaskResult::Succeeded, 2));
        assert_eq!(good_status.last_success, Some(minute(2)));
        for name in ["bad", "crashing"] {
            let failed = status(&statuses, name);
            assert_eq!((failed.result, failed.runs, failed.failures), (TaskResult::Failed, 2, 2));
            assert_eq!((failed.last_success, failed.last_run.unwrap().0), (None, minute(2)));
        }
        assert_eq!((good.load(Ordering::Relaxed), bad.load(Ordering::Relaxed)), (2, 2));
    }

    #[test]
    fn one_server_of_an_installation_runs_a_turn() {
        let store: Store = Store::in_memory().unwrap();
        let runs: Arc<AtomicU32> = Arc::default();
        let server = || {
            let (services, statuses) = (Services::new(store.clone()), TaskStatuses::default());
            let task = Counting { name: "task", runs: Arc::clone(&runs), outcome: || Ok(()) };
            let schedule = Schedule::new(vec![Box::new(task)], &statuses);
            (services, statuses, schedule)
        };
        let (mut one, mut other) = (server(), server());
        one.2.run_due(&one.0, &one.1, minute(0));
        other.2.run_due(&other.0, &other.1, minute(0));
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        assert_eq!(status(&one.1, "task").result, TaskResult::Succeeded);
        assert_eq!(status(&other.1, "task").result, TaskResult::Elsewhere);
    }
}
