//! For whom the transactions of a thread are: a request that is to be carried out once is marked in the transaction of its effect.
//!
//! Whoever carries out such a request runs its work with [`on_behalf_of`]. The first change that it commits marks the request's key in
//! the same transaction. So what is not marked had no effect and can be carried out again, and what is marked never is,
//! wherever the process was killed. The work itself knows nothing of this.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orrery_model::Timestamp;

use crate::sql::Sql;
use crate::{Result, StoreError, values};

/// One attempt to carry out a request that is to be carried out once.
#[derive(Debug)]
pub struct Attempt {
    pub(crate) actor: String,
    pub(crate) key: String,
    /// When it began; tells it from an earlier attempt with the same key.
    pub(crate) at: Timestamp,
    is_marked: AtomicBool,
}

impl Attempt {
    /// An attempt of `actor`, who calls the request `key`.
    pub fn new(actor: impl Into<String>, key: impl Into<String>, at: Timestamp) -> Self {
        let (actor, key) = (actor.into(), key.into());
        Attempt { actor, key, at, is_marked: AtomicBool::new(false) }
    }
}

thread_local! {
    static ATTEMPT: RefCell<Option<Arc<Attempt>>> = const { RefCell::new(None) };
}

/// Runs `work`, whose changes are those of the attempt.
pub fn on_behalf_of<T>(attempt: Option<Arc<Attempt>>, work: impl FnOnce() -> T) -> T {
    /// Puts back what was there, also after a panic: the thread is used again.
    struct Before(Option<Arc<Attempt>>);
    impl Drop for Before {
        fn drop(&mut self) {
            ATTEMPT.set(self.0.take());
        }
    }
    let _before = Before(ATTEMPT.replace(attempt));
    work()
}

/// Runs a transaction, which has to mark the attempt that it is given, if it is.
pub(crate) fn transact<T>(run: impl FnOnce(Option<&Attempt>) -> Result<T>) -> Result<T> {
    let attempt = ATTEMPT.with_borrow(Clone::clone);
    let attempt = attempt.filter(|attempt| !attempt.is_marked.load(Ordering::Relaxed));
    let done = run(attempt.as_deref());
    if let (Ok(_), Some(attempt)) = (&done, attempt) {
        attempt.is_marked.store(true, Ordering::Relaxed);
    }
    done
}

/// Marks the request as carried out. Doing so again changes nothing, as when the outcome of a commit was not known.
pub(crate) fn mark(sql: &mut dyn Sql, attempt: Option<&Attempt>) -> Result<()> {
    let Some(Attempt { actor, key, at, .. }) = attempt else { return Ok(()) };
    let update = "UPDATE idempotency SET acted = 1 WHERE actor = ?1 AND key = ?2 AND at = ?3";
    match sql.run(update, values![actor, key, *at])? {
        0 => Err(StoreError::NotNow(
            "this took so long that another attempt with the same Idempotency-Key has taken its place".to_owned(),
        )),
        _ => Ok(()),
    }
}
