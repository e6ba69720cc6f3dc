//! Idempotent requests: marks the request's key in the transaction of its first effect.
//!
//! The caller runs the work of such a request with [`with_idempotency`]. The first change that it
//! commits marks the request's key in the same transaction. So an unmarked request had no effect
//! and can be executed again, and a marked one is never executed again, wherever the process was
//! killed. The work itself does not know about this.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orrery_model::Timestamp;

use crate::sql::Sql;
use crate::{Result, StoreError, values};

/// One attempt to execute a request that must be executed at most once.
#[derive(Debug)]
pub struct IdempotentRequest {
    pub(crate) actor: String,
    pub(crate) key: String,
    /// Start of the attempt; distinguishes it from an earlier attempt with the same key.
    pub(crate) at: Timestamp,
    is_marked: AtomicBool,
}

impl IdempotentRequest {
    /// An attempt of `actor` under the idempotency key `key`.
    pub fn new(actor: impl Into<String>, key: impl Into<String>, at: Timestamp) -> Self {
        let (actor, key) = (actor.into(), key.into());
        IdempotentRequest { actor, key, at, is_marked: AtomicBool::new(false) }
    }
}

thread_local! {
    static ATTEMPT: RefCell<Option<Arc<IdempotentRequest>>> = const { RefCell::new(None) };
}

/// Runs `work` on behalf of an idempotent request.
pub fn with_idempotency<T>(attempt: Option<Arc<IdempotentRequest>>, work: impl FnOnce() -> T) -> T {
    /// Restores the former value, also after a panic: the thread is reused.
    struct Restore(Option<Arc<IdempotentRequest>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ATTEMPT.set(self.0.take());
        }
    }
    let _restore = Restore(ATTEMPT.replace(attempt));
    work()
}

/// Runs a transaction, which must mark the request that it is given, if any.
pub(crate) fn with_current_request<T>(
    run: impl FnOnce(Option<&IdempotentRequest>) -> Result<T>,
) -> Result<T> {
    let attempt = ATTEMPT.with_borrow(Clone::clone);
    let attempt = attempt.filter(|attempt| !attempt.is_marked.load(Ordering::Relaxed));
    let done = run(attempt.as_deref());
    if let (Ok(_), Some(attempt)) = (&done, attempt) {
        attempt.is_marked.store(true, Ordering::Relaxed);
    }
    done
}

/// Marks the request as executed. Idempotent, since the outcome of an earlier commit may be
/// unknown.
pub(crate) fn mark_executed(sql: &mut dyn Sql, attempt: Option<&IdempotentRequest>) -> Result<()> {
    let Some(IdempotentRequest { actor, key, at, .. }) = attempt else { return Ok(()) };
    let update = "UPDATE idempotency SET acted = 1 WHERE actor = ?1 AND key = ?2 AND at = ?3";
    match sql.run(update, values![actor, key, *at])? {
        0 => Err(StoreError::Conflict(
            "the request took too long, and another attempt with the same Idempotency-Key replaced it"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}
