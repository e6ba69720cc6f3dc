//! Worker threads that take jobs from a queue under the lock of its owner.
//!
//! The pool grows with waiting jobs up to a limit, and its threads exit after an idle period. A
//! worker ends a job and takes the next one in one critical section of its owner, so no thread is
//! woken between two jobs. Engines and remote agents run their handlers on such pools.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;

const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Owner of a queue of jobs.
pub trait JobSource: Send + Sync + 'static {
    /// State under the owner's lock; the queue is a part of it.
    type State;
    type Job;

    fn pool(&self) -> &WorkerPool;

    fn lock(&self) -> MutexGuard<'_, Self::State>;

    /// Takes the next job.
    fn next_job(&self, state: &mut Self::State) -> NextJob<Self::Job>;

    /// Runs a job with the lock released, and returns with the lock held.
    fn run_job<'s>(
        self: &'s Arc<Self>,
        state: MutexGuard<'s, Self::State>,
        job: Self::Job,
    ) -> MutexGuard<'s, Self::State>;
}

/// Answer of a queue to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextJob<J> {
    Run(J),
    /// The queue is empty: the worker exits after the idle timeout.
    Empty,
    /// Jobs are queued that cannot start yet: the worker waits.
    Blocked,
    /// The worker exits.
    Closed,
}

/// Threads of one owner.
pub struct WorkerPool {
    idle_timeout: Duration,
    threads: Mutex<Threads>,
    jobs_queued: Condvar,
}

/// Numbers of worker threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    pub workers: usize,
    /// Workers without a job, including new ones and those that are about to wake up.
    pub idle: usize,
    /// Workers in a handler.
    pub busy: usize,
}

#[derive(Default)]
struct Threads {
    counts: WorkerCounts,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    fn add(&mut self, thread: JoinHandle<()>) {
        self.handles.retain(|handle| !handle.is_finished());
        self.handles.push(thread);
    }

    fn check(&self) {
        let WorkerCounts { workers, idle, busy } = self.counts;
        debug_assert!(idle + busy <= workers, "{idle} idle and {busy} busy of {workers} workers");
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl WorkerPool {
    /// A pool without threads. A worker exits that got no job for `idle_timeout`.
    pub fn new(idle_timeout: Duration) -> Self {
        WorkerPool { idle_timeout, threads: Mutex::default(), jobs_queued: Condvar::new() }
    }

    pub fn counts(&self) -> WorkerCounts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().ignore_poison()
    }

    /// Wakes idle workers for `waiting` jobs and adds those that are missing, up to `limit`. The
    /// jobs are queued before this is called.
    pub fn grow<S: JobSource>(source: &Arc<S>, waiting: usize, limit: usize) {
        if waiting == 0 {
            return;
        }
        let pool = source.pool();
        let mut threads = pool.lock();
        for _ in 0..waiting.min(threads.counts.idle) {
            pool.jobs_queued.notify_one();
        }
        let mut missing = waiting.saturating_sub(threads.counts.idle);
        while missing > 0 && threads.counts.workers < limit {
            let source = Arc::clone(source);
            match spawn_named("worker", move || worker_thread(&source)) {
                Ok(thread) => {
                    // Idle until it has the lock: it takes one of the waiting jobs.
                    threads.counts.workers += 1;
                    threads.counts.idle += 1;
                    threads.add(thread);
                }
                // Existing workers continue; the next job retries.
                Err(error) => {
                    tracing::warn!(%error, "cannot start another worker");
                    return;
                }
            }
            missing -= 1;
        }
        threads.check();
    }

    /// Wakes all idle workers: jobs may start that were blocked, or the owner closes.
    pub fn wake_all(&self) {
        self.jobs_queued.notify_all();
    }

    /// Counts the calling worker as busy until the guard is dropped.
    pub fn busy(&self) -> Busy<'_> {
        let mut threads = self.lock();
        threads.counts.busy += 1;
        threads.check();
        Busy(self)
    }

    /// Adds another thread of the owner, for which `wait_for_exit` waits.
    pub fn adopt(&self, thread: JoinHandle<()>) {
        self.lock().add(thread);
    }

    /// Waits until only busy workers are left, no longer than `limit`. A remaining thread holds
    /// what its owner holds.
    pub fn wait_for_exit(&self, limit: Duration) {
        let until = monotonic() + limit;
        loop {
            {
                let mut threads = self.lock();
                threads.handles.retain(|handle| !handle.is_finished());
                let is_own =
                    |handle: &&JoinHandle<()>| handle.thread().id() == std::thread::current().id();
                let own = threads.handles.iter().filter(is_own).count();
                if threads.handles.len() <= threads.counts.busy + own {
                    return;
                }
            }
            if monotonic() >= until {
                return;
            }
            std::thread::sleep(EXIT_POLL_INTERVAL);
        }
    }
}

/// Mark of a worker in a handler.
#[derive(Debug)]
pub struct Busy<'p>(&'p WorkerPool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut threads = self.0.lock();
        debug_assert!(threads.counts.busy > 0, "a worker is not busy twice");
        threads.counts.busy -= 1;
    }
}

/// Main function of a worker. A panic of a job ends the job, not the worker.
fn worker_thread<S: JobSource>(source: &Arc<S>) {
    let mut is_new = true;
    while catch_unwind(AssertUnwindSafe(|| worker_loop(source, is_new))).is_err() {
        tracing::error!("a worker crashed; it continues with the next job");
        is_new = false;
    }
}

fn worker_loop<S: JobSource>(source: &Arc<S>, is_new: bool) {
    let pool = source.pool();
    let mut state = source.lock();
    if is_new {
        pool.lock().counts.idle -= 1;
    }
    let mut timed_out = false;
    loop {
        match source.next_job(&mut state) {
            NextJob::Run(job) => state = source.run_job(state, job),
            NextJob::Closed => break,
            NextJob::Empty if timed_out => break,
            NextJob::Empty | NextJob::Blocked => {
                pool.lock().counts.idle += 1;
                let waited = pool.jobs_queued.wait_timeout(state, pool.idle_timeout);
                let (lock, timeout) = waited.ignore_poison();
                (state, timed_out) = (lock, timeout.timed_out());
                pool.lock().counts.idle -= 1;
                continue;
            }
        }
        timed_out = false;
    }
    // Under the owner's lock: a later job must see that there is one worker less.
    pool.lock().counts.workers -= 1;
    drop(state);
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Order {
        /// Waits until the gate opens.
        Wait,
        Panic,
        Finish,
    }

    #[derive(Default)]
    struct Queue {
        jobs: VecDeque<Order>,
        is_open: bool,
        is_blocked: bool,
        is_closed: bool,
        done: usize,
    }

    struct Owner {
        pool: WorkerPool,
        queue: Mutex<Queue>,
        changed: Condvar,
    }

    impl Owner {
        fn new(idle_timeout: Duration) -> Arc<Self> {
            let pool = WorkerPool::new(idle_timeout);
            Arc::new(Owner { pool, queue: Mutex::default(), changed: Condvar::new() })
        }

        fn add(self: &Arc<Self>, job: Order, limit: usize) {
            self.lock().jobs.push_back(job);
            let waiting = self.lock().jobs.len();
            WorkerPool::grow(self, waiting, limit);
        }

        fn open(&self) {
            self.lock().is_open = true;
            self.changed.notify_all();
        }

        fn wait_for(&self, condition: impl Fn(&Queue, WorkerCounts) -> bool) {
            let until = monotonic() + SOON;
            while !condition(&self.lock(), self.pool.counts()) {
                assert!(monotonic() < until, "{:?}", self.pool.counts());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    impl JobSource for Owner {
        type State = Queue;
        type Job = Order;

        fn pool(&self) -> &WorkerPool {
            &self.pool
        }

        fn lock(&self) -> MutexGuard<'_, Queue> {
            self.queue.lock().ignore_poison()
        }

        fn next_job(&self, queue: &mut Queue) -> NextJob<Order> {
            match queue.jobs.front() {
                _ if queue.is_closed => NextJob::Closed,
                None => NextJob::Empty,
                Some(_) if queue.is_blocked => NextJob::Blocked,
                Some(_) => queue.jobs.pop_front().map_or(NextJob::Empty, NextJob::Run),
            }
        }

        fn run_job<'s>(
            self: &'s Arc<Self>,
            queue: MutexGuard<'s, Queue>,
            job: Order,
        ) -> MutexGuard<'s, Queue> {
            drop(queue);
            let busy = self.pool.busy();
            assert_ne!(job, Order::Panic, "as ordered");
            let mut queue = self.lock();
            while job == Order::Wait && !queue.is_open {
                queue = self.changed.wait(queue).ignore_poison();
            }
            drop(busy);
            queue.done += 1;
            queue
        }
    }

    #[test]
    fn a_pool_grows_with_waiting_jobs_up_to_its_limit() {
        let owner = Owner::new(SOON);
        assert_eq!(owner.pool.counts(), WorkerCounts::default());
        for _ in 0..5 {
            owner.add(Order::Wait, 3);
        }
        owner.wait_for(|queue, counts| queue.jobs.len() == 2 && counts.busy == 3);
        assert_eq!(owner.pool.counts().workers, 3);
        owner.open();
        owner.wait_for(|queue, counts| queue.done == 5 && counts.idle == 3);
        // Idle workers take further jobs.
        owner.add(Order::Finish, 3);
        owner.wait_for(|queue, counts| queue.done == 6 && counts.idle == 3);
        assert_eq!(owner.pool.counts(), WorkerCounts { workers: 3, idle: 3, busy: 0 });
    }

    #[test]
    fn a_new_worker_is_not_added_twice_for_one_job() {
        let owner = Owner::new(SOON);
        {
            // No worker can take a job while the lock is held.
            let mut queue = owner.lock();
            queue.jobs.push_back(Order::Finish);
            WorkerPool::grow(&owner, 1, 8);
            WorkerPool::grow(&owner, 1, 8);
            assert_eq!(owner.pool.counts(), WorkerCounts { workers: 1, idle: 1, busy: 0 });
        }
        owner.wait_for(|queue, _| queue.done == 1);
    }

    #[test]
    fn idle_workers_exit_and_blocked_ones_stay() {
        let owner = Owner::new(Duration::from_millis(20));
        owner.add(Order::Finish, 4);
        owner.wait_for(|queue, counts| queue.done == 1 && counts.workers == 0);
        owner.lock().is_blocked = true;
        owner.add(Order::Finish, 4);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(owner.pool.counts().workers, 1);
        owner.lock().is_blocked = false;
        owner.pool.wake_all();
        owner.wait_for(|queue, counts| queue.done == 2 && counts.workers == 0);
    }

    #[test]
    fn a_pool_survives_a_panic_of_a_job() {
        let owner = Owner::new(SOON);
        owner.add(Order::Panic, 1);
        owner.add(Order::Finish, 1);
        owner.wait_for(|queue, counts| queue.done == 1 && counts.idle == 1);
        assert_eq!(owner.pool.counts(), WorkerCounts { workers: 1, idle: 1, busy: 0 });
    }

    #[test]
    fn an_owner_waits_for_threads_without_a_handler_only() {
        let owner = Owner::new(SOON);
        owner.add(Order::Wait, 2);
        owner.wait_for(|_, counts| counts.busy == 1);
        owner.add(Order::Finish, 2);
        owner.wait_for(|queue, counts| queue.done == 1 && counts.idle == 1);
        owner.lock().is_closed = true;
        owner.pool.wake_all();
        owner.pool.wait_for_exit(SOON);
        assert_eq!(owner.pool.counts(), WorkerCounts { workers: 1, idle: 0, busy: 1 });
        owner.open();
        owner.wait_for(|_, counts| counts.workers == 0);
    }
}
