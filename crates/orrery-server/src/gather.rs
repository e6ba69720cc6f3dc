//! Questions about single resources, asked together.
//!
//! Whoever asks while nobody else does is served at once. Those who come while the database is busy with a question wait for
//! each other, and the next statement is for all of them: under load that costs the database, and the way to it, a fraction of
//! what as many single statements would.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orrery_model::Status;
use orrery_store::{Action, EnvironmentKey, ResourceDetails, ResourceKey, Store, StoreError};
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::app::App;
use crate::problem::ServerError;

/// So many are asked at once.
const TOGETHER: usize = 64;
/// If an answer takes longer than this, those who wait are not left to wait for it.
const SLOW: Duration = Duration::from_millis(5);
/// So many threads ask at the same time.
const ASKING_MAX: usize = 4;
/// Relations that one answer shows.
const RELATED_MAX: usize = 1000;

/// All that is known of one resource.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) details: ResourceDetails,
    /// Ids and statuses of what it requires, in the order of ids.
    pub(crate) requires: Vec<(String, Status)>,
    /// What was last done with it, if that did not go well.
    pub(crate) last: Option<Action>,
}

type Answer = Result<Option<Known>, Arc<StoreError>>;

struct Question {
    environment: EnvironmentKey,
    id: String,
    answer: oneshot::Sender<Answer>,
}

/// Who waits, and who asks.
#[derive(Default)]
pub(crate) struct Gather {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Question>,
    asking: usize,
    /// When somebody last began to ask.
    began: Option<Instant>,
}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Gather").field("asking", &state.asking).finish_non_exhaustive()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gather {
    /// All that is known of a resource.
    ///
    /// # Errors
    /// `NoResource` if there is none; those of the store.
    pub(crate) async fn resource(
        &self,
        app: &App,
        environment: EnvironmentKey,
        id: String,
    ) -> Result<Known, ServerError> {
        let (answer, answered) = oneshot::channel();
        let name = id.clone();
        if self.add(Question { environment, id, answer }) {
            let asking = Asking { state: Arc::clone(&self.state), counts: true };
            let store = Arc::clone(app.store());
            tokio::task::spawn_blocking(move || asking.ask_all(&*store));
        }
        match answered.await {
            Ok(Ok(Some(known))) => Ok(known),
            Ok(Ok(None)) => Err(StoreError::NoResource(name).into()),
            Ok(Err(error)) => Err(ServerError::SharedStore(error)),
            Err(_) if app.stopping().is_cancelled() => Err(ServerError::Stopping),
            Err(_) => Err(ServerError::Internal("nobody answered a question".to_owned())),
        }
    }

    /// Adds a question, and says whether one more has to ask.
    fn add(&self, question: Question) -> bool {
        let mut state = lock(&self.state);
        state.waiting.push(question);
        let is_slow = state.began.is_some_and(|began| began.elapsed() > SLOW);
        let one_more = state.asking == 0 || (is_slow && state.asking < ASKING_MAX);
        if one_more {
            state.asking += 1;
            state.began = Some(Instant::now());
        }
        one_more
    }
}

/// One who asks.
struct Asking {
    state: Arc<Mutex<State>>,
    /// It is one of those that others count on.
    counts: bool,
}

impl Asking {
    /// Asks until nobody waits.
    fn ask_all(mut self, store: &dyn Store) {
        while let Some(questions) = self.take() {
            match ask(store, &questions) {
                Ok(answers) => {
                    for (question, known) in questions.into_iter().zip(answers) {
                        // Whoever asked may have gone.
                        let _ = question.answer.send(Ok(known));
                    }
                }
                // What cannot be read of one resource is no reason to tell nothing of the others.
                Err(StoreError::Unreadable(_)) if questions.len() > 1 => {
                    for question in questions {
                        let answer = ask(store, std::slice::from_ref(&question));
                        let answer = answer.map(|mut known| known.pop().flatten());
                        let _ = question.answer.send(answer.map_err(Arc::new));
                    }
                }
                Err(error) => {
                    let error = Arc::new(error);
                    for question in questions {
                        let _ = question.answer.send(Err(Arc::clone(&error)));
                    }
                }
            }
        }
    }

    /// Who waits; `None` if this one is not needed any more.
    fn take(&mut self) -> Option<Vec<Question>> {
        let mut state = lock(&self.state);
        if state.waiting.is_empty() {
            state.asking -= 1;
            self.counts = false;
            return None;
        }
        state.began = Some(Instant::now());
        let count = state.waiting.len().min(TOGETHER);
        Some(state.waiting.drain(..count).collect())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.counts {
            return;
        }
        // It panicked, or never began: who waits for it must not do so for ever.
        let mut state = lock(&self.state);
        state.asking -= 1;
        if state.asking == 0 {
            state.waiting.clear();
        }
    }
}

fn ask(store: &dyn Store, questions: &[Question]) -> Result<Vec<Option<Known>>, StoreError> {
    let names: Vec<(EnvironmentKey, &str)> =
        questions.iter().map(|question| (question.environment, &*question.id)).collect();
    let mut found = store.records().resource_details(&names)?;
    let mut required: Vec<ResourceKey> = Vec::new();
    for details in found.iter_mut().flatten() {
        details.requires.truncate(RELATED_MAX);
        required.extend(&details.requires);
    }
    required.sort_unstable();
    required.dedup();
    let statuses = store.records().statuses_of(&required)?;
    let known = names.iter().zip(found).map(|((environment, id), details)| {
        let Some(details) = details else { return Ok(None) };
        let status = details.line.summary.status;
        let last = match status {
            Status::Failed | Status::Unavailable => store.actions(*environment, id, None, 1)?.pop(),
            _ => None,
        };
        let requires = related(&details.requires, &statuses);
        Ok(Some(Known { details, requires, last }))
    });
    known.collect()
}

/// Ids and statuses of some resources, in the order of ids.
pub(crate) fn related(
    keys: &[ResourceKey],
    statuses: &FxHashMap<ResourceKey, (String, Status)>,
) -> Vec<(String, Status)> {
    let mut found: Vec<_> = keys.iter().filter_map(|key| statuses.get(key).cloned()).collect();
    found.sort_unstable();
    found
}
