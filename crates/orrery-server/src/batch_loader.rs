//! Batches concurrent reads of single resources.
//!
//! A request on an idle loader runs at once, together with those that the runtime has ready. Requests
//! that arrive while a query is running are queued, and the next statement serves all of them. Under
//! load that costs the database and the connection a fraction of single statements.
//!
//! On a database server, a loader is an asynchronous task: with few requests, waking up a blocking
//! thread would cost more than the query. It uses a blocking thread only if no connection is free
//! for asynchronous reads.

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
            if store.connections().is_some() {
                tokio::spawn(loaders.run(store));
            } else {
                tokio::task::spawn_blocking(move || loaders.run_blocking(&store));
            }
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
    async fn run(mut self, store: Store) {
        // Clients that get their responses together send their next requests together. Those that
        // have arrived join the first batch.
        tokio::task::yield_now().await;
        while let Some(requests) = self.next_batch() {
            let loaded = load_batch(&store, &requests).await;
            let Some(loaded) = loaded.transpose() else {
                let store = store.clone();
                let work = tokio::task::spawn_blocking(move || load_and_answer(&store, requests));
                // A cancelled or panicking thread drops the requests, which fails them.
                let _ = work.await;
                continue;
            };
            for request in answer_all(requests, loaded) {
                match load_batch(&store, std::slice::from_ref(&request)).await.transpose() {
                    Some(loaded) => answer_one(request, loaded),
                    None => {
                        let store = store.clone();
                        let load = move || load_and_answer(&store, vec![request]);
                        let _ = tokio::task::spawn_blocking(load).await;
                    }
                }
            }
        }
    }

    /// As `run`, on a thread that may block.
    fn run_blocking(mut self, store: &Store) {
        while let Some(requests) = self.next_batch() {
            load_and_answer(store, requests);
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

type LoadedBatch = Vec<Option<LoadedResource>>;

/// Loads and answers requests on a thread that may block.
fn load_and_answer(store: &Store, requests: Vec<LoadRequest>) {
    let loaded = load_batch_blocking(store, &requests);
    for request in answer_all(requests, loaded) {
        let loaded = load_batch_blocking(store, std::slice::from_ref(&request));
        answer_one(request, loaded);
    }
}

/// Answers requests. Returns those to be loaded one by one: an unreadable resource must not fail
/// the others.
fn answer_all(
    requests: Vec<LoadRequest>,
    loaded: Result<LoadedBatch, StoreError>,
) -> Vec<LoadRequest> {
    match loaded {
        Ok(answers) => {
            for (request, known) in requests.into_iter().zip(answers) {
                // The requester may have gone away.
                let _ = request.answer.send(Ok(known));
            }
        }
        Err(StoreError::Unreadable(_)) if requests.len() > 1 => return requests,
        Err(error) => {
            let error = Arc::new(error);
            for request in requests {
                let _ = request.answer.send(Err(Arc::clone(&error)));
            }
        }
    }
    Vec::new()
}

fn answer_one(request: LoadRequest, loaded: Result<LoadedBatch, StoreError>) {
    let answer = loaded.map(|mut known| known.pop().flatten());
    let _ = request.answer.send(answer.map_err(Arc::new));
}

/// Loads a batch; `None` if it needs a thread that may block.
async fn load_batch(
    store: &Store,
    requests: &[LoadRequest],
) -> Result<Option<LoadedBatch>, StoreError> {
    let names = names_of(requests);
    let Some(mut found) = store.resources().details_async(&names).await? else { return Ok(None) };
    let required = required_by(&mut found);
    let Some(statuses) = store.resources().statuses_async(&required).await? else {
        return Ok(None);
    };
    let mut last_actions = FxHashMap::default();
    if found.iter().flatten().any(has_failed) {
        let failed = names.iter().zip(&found).enumerate().filter_map(|(at, (name, details))| {
            details.as_ref().filter(|details| has_failed(details))?;
            Some((at, name.0, name.1.to_owned()))
        });
        let (store, failed): (_, Vec<_>) = (store.clone(), failed.collect());
        let read = tokio::task::spawn_blocking(move || {
            let read = |(at, environment, id): (usize, EnvironmentKey, String)| {
                Ok((at, last_action(&store, environment, &id)?))
            };
            failed.into_iter().map(read).collect::<Result<FxHashMap<_, _>, StoreError>>()
        });
        last_actions = match read.await {
            Ok(read) => read?,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The server stops, and the requests end with it.
            Err(_) => return Ok(None),
        };
    }
    let known = found.into_iter().enumerate().map(|(at, details)| {
        let details = details?;
        let requires = related(&details.requires, &statuses);
        Some(LoadedResource { details, requires, last: last_actions.remove(&at).flatten() })
    });
    Ok(Some(known.collect()))
}

/// Loads a batch on a thread that may block.
fn load_batch_blocking(store: &Store, requests: &[LoadRequest]) -> Result<LoadedBatch, StoreError> {
    let names = names_of(requests);
    let mut found = store.resources().details(&names)?;
    let statuses = store.resources().statuses(&required_by(&mut found))?;
    let known = names.iter().zip(found).map(|((environment, id), details)| {
        let Some(details) = details else { return Ok(None) };
        let last = match has_failed(&details) {
            true => last_action(store, *environment, id)?,
            false => None,
        };
        let requires = related(&details.requires, &statuses);
        Ok(Some(LoadedResource { details, requires, last }))
    });
    known.collect()
}

fn names_of(requests: &[LoadRequest]) -> Vec<(EnvironmentKey, &str)> {
    requests.iter().map(|request| (request.environment, &*request.id)).collect()
}

/// Requirements of resources, of each within the maximum.
fn required_by(found: &mut [Option<ResourceDetailsRecord>]) -> Vec<ResourceKey> {
    let mut required: Vec<ResourceKey> = Vec::new();
    for details in found.iter_mut().flatten() {
        details.requires.truncate(RELATED_MAX);
        required.extend(&details.requires);
    }
    required.sort_unstable();
    required.dedup();
    required
}

/// True if the latest action tells why the resource has its status.
fn has_failed(details: &ResourceDetailsRecord) -> bool {
    matches!(details.line.summary.status, Status::Failed | Status::Unavailable)
}

fn last_action(
    store: &Store,
    environment: EnvironmentKey,
    id: &str,
) -> Result<Option<Action>, StoreError> {
    Ok(store.actions().of_resource(environment, id, None, 1)?.pop())
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
