//! What the threads of an engine share: its state under the lock, and the services of runs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use orrery_base::lock::IgnorePoison;
use orrery_handlers::{Contents, Secrets, WorkerPool};
use orrery_model::LogLevel;

use crate::effects::EffectLog;
use crate::placement::TargetResolver;
use crate::setup::{Listener, Notice, StoreHandle};
use crate::state::EngineState;

/// State that all threads share.
pub(crate) struct Shared {
    pub(crate) state: Mutex<EngineState>,
    pub(crate) contents: Arc<dyn Contents>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) log_level: LogLevel,
    /// `None` for dry runs.
    pub(crate) store_handle: Option<StoreHandle>,
    pub(crate) effect_log: EffectLog,
    pub(crate) pool: WorkerPool,
    /// Writes are queued.
    pub(crate) writes_queued: Condvar,
    /// The write queue has space again.
    pub(crate) queue_space: Condvar,
    /// The progress changed.
    pub(crate) progress_changed: Condvar,
    /// Wakes the run monitor: the worker limit holds up tasks, or the engine closes.
    pub(crate) monitor_wakeup: Condvar,
    pub(crate) targets: Arc<dyn TargetResolver>,
    pub(crate) listener: Option<Listener>,
    pub(crate) writer: Mutex<Option<JoinHandle<()>>>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, EngineState> {
        // A panic under the lock is a defect of this crate; the state stays readable.
        self.state.lock().ignore_poison()
    }

    pub(crate) fn notify(&self, notice: Notice) {
        if let Some(listener) = &self.listener {
            listener(notice);
        }
    }

    pub(crate) fn notify_all_threads(&self) {
        self.pool.wake_all();
        self.writes_queued.notify_all();
        self.queue_space.notify_all();
        self.progress_changed.notify_all();
        self.monitor_wakeup.notify_all();
    }
}
