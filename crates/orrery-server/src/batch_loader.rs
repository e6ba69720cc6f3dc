//! Batches concurrent reads of single resources.
//!
//! A request on an idle loader runs at once. Requests that arrive while a query is running are
//! queued, and the next statement serves all of them. Under load that costs the database and the
//! connection a fraction of single statements.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_model::Status;
use orrery_store::{Action, EnvironmentKey, ResourceDetailsRecord, ResourceKey, Store, StoreError};
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::error::ServerError;
use crate::services::Services;

/// Maximum batch size.
const BATCH_MAX: usize = 64;
/// Query time after which queued requests get a further loader task.
const SLOW_AFTER: Duration = Duration::from_millis(5);
/// Maximum number of concurrent loader tasks.
const LOADERS_MAX: usize = 4;
/// Maximum number of relations per resource.
const RELATED_MAX: usize = 1000;

/// Details of one resource.
#[derive(Debug)]
pub(crate) struct LoadedResource {
    pub(crate) details: ResourceDetailsRecord,
    /// Ids and statuses of its requirements, ordered by id.
    pub(crate) requires: Vec<(String, Status)>,
    /// Latest action, if the resource failed or is unavailable.
    pub(crate) last: Option<Action>,
}

type LoadResult = Result<Option<LoadedResource>, Arc<StoreError>>;

struct LoadRequest {
    environment: EnvironmentKey,
    id: String,
    answer: oneshot::Sender<LoadResult>,
}

/// Loads resources in batches.
#[derive(Default)]
pub(crate) struct BatchLoader {
    state: Arc<Mutex<QueueState>>,
}

#[derive(Default)]
struct QueueState {
    queue: Vec<LoadRequest>,
    loaders: usize,
    /// Start of the latest query.
    query_started: Option<Instant>,
}

impl std::fmt::Debug for BatchLoader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock().ignore_poison();
        f.debug_struct("BatchLoader").field("loaders", &state.loaders).finish_non_exhaustive()
    }
}

impl BatchLoader {
    /// Loads the details of a resource.
    ///
    /// # Errors
    /// `NoResource` if it does not exist; store errors.
    pub(crate) async fn resource(
        &self,
        services: &Services,
        environment: EnvironmentKey,
        id: String,
    ) -> Result<LoadedResource, ServerError> {
        let (answer, response) = oneshot::channel();
        let name = id.clone();
        if self.add(LoadRequest { environment, id, answer }) {
            let loaders = LoaderTask { state: Arc::clone(&self.state), is_counted: true };
            let store = services.store().clone();
            tokio::task::spawn_blocking(move || loaders.run(&store));
        }
        match response.await {
            Ok(Ok(Some(known))) => Ok(known),
            Ok(Ok(None)) => Err(StoreError::NoResource(name).into()),
            Ok(Err(error)) => Err(ServerError::SharedStore(error)),
            Err(_) if services.stopping().is_cancelled() => Err(ServerError::Stopping),
            Err(_) => Err(ServerError::Internal("a loader task ended without a result".to_owned())),
        }
    }

    /// Queues a request; returns true if the caller must start a loader task.
    fn add(&self, request: LoadRequest) -> bool {
        let mut state = self.state.lock().ignore_poison();
        state.queue.push(request);
        let is_slow =
            state.query_started.is_some_and(|query_started| query_started.elapsed() > SLOW_AFTER);
        let is_needed = state.loaders == 0 || (is_slow && state.loaders < LOADERS_MAX);
        if is_needed {
            state.loaders += 1;
            state.query_started = Some(monotonic());
        }
        is_needed
    }
}

/// One loader task.
struct LoaderTask {
    state: Arc<Mutex<QueueState>>,
    /// True while the task counts against `LOADERS_MAX`.
    is_counted: bool,
}

impl LoaderTask {
    /// Loads batches until the queue is empty.
    fn run(mut self, store: &Store) {
        while let Some(requests) = self.next_batch() {
            match load_batch(store, &requests) {
                Ok(answers) => {
                    for (request, known) in requests.into_iter().zip(answers) {
                        // The requester may have gone away.
                        let _ = request.answer.send(Ok(known));
                    }
                }
                // One unreadable resource must not fail the others.
                Err(StoreError::Unreadable(_)) if requests.len() > 1 => {
                    for request in requests {
                        let answer = load_batch(store, std::slice::from_ref(&request));
                        let answer = answer.map(|mut known| known.pop().flatten());
                        let _ = request.answer.send(answer.map_err(Arc::new));
                    }
                }
                Err(error) => {
                    let error = Arc::new(error);
                    for request in requests {
                        let _ = request.answer.send(Err(Arc::clone(&error)));
                    }
                }
            }
        }
    }

    /// Takes the next batch from the queue; `None` ends the task.
    fn next_batch(&mut self) -> Option<Vec<LoadRequest>> {
        let mut state = self.state.lock().ignore_poison();
        if state.queue.is_empty() {
            state.loaders -= 1;
            self.is_counted = false;
            return None;
        }
        state.query_started = Some(monotonic());
        let count = state.queue.len().min(BATCH_MAX);
        Some(state.queue.drain(..count).collect())
    }
}

impl Drop for LoaderTask {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        // The task panicked or never started: fail queued requests instead of blocking them for
        // ever.
        let mut state = self.state.lock().ignore_poison();
        state.loaders -= 1;
        if state.loaders == 0 {
            state.queue.clear();
        }
    }
}

fn load_batch(
    store: &Store,
    requests: &[LoadRequest],
) -> Result<Vec<Option<LoadedResource>>, StoreError> {
    let names: Vec<(EnvironmentKey, &str)> =
        requests.iter().map(|request| (request.environment, &*request.id)).collect();
    let mut found = store.resources().details(&names)?;
    let mut required: Vec<ResourceKey> = Vec::new();
    for details in found.iter_mut().flatten() {
        details.requires.truncate(RELATED_MAX);
        required.extend(&details.requires);
    }
    required.sort_unstable();
    required.dedup();
    let statuses = store.resources().statuses(&required)?;
    let known = names.iter().zip(found).map(|((environment, id), details)| {
        let Some(details) = details else { return Ok(None) };
        let status = details.line.summary.status;
        let last = match status {
            Status::Failed | Status::Unavailable => {
                store.actions().of_resource(*environment, id, None, 1)?.pop()
            }
            _ => None,
        };
        let requires = related(&details.requires, &statuses);
        Ok(Some(LoadedResource { details, requires, last }))
    });
    known.collect()
}

/// Returns ids and statuses of some resources, ordered by id.
pub(crate) fn related(
    keys: &[ResourceKey],
    statuses: &FxHashMap<ResourceKey, (String, Status)>,
) -> Vec<(String, Status)> {
    let mut found: Vec<_> = keys.iter().filter_map(|key| statuses.get(key).cloned()).collect();
    found.sort_unstable();
    found
}
