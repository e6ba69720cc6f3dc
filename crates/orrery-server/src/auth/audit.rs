//! Audit log: one writer appends entries in batches, so a request waits for at most two batches.
//!
//! A request is answered after its entry is on disk: an acknowledged change is in the log even if
//! the process is killed. Concurrent requests share one commit. Only refused requests, which
//! changed nothing, do not wait.

use std::sync::{Arc, Mutex, MutexGuard};

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use orrery_base::lock::IgnorePoison;
use orrery_model::{Duration, EnvironmentId, Timestamp};
use orrery_store::{AuditRecord, Store};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::auth::Auth;
use crate::auth::client_ip::client_address;
use crate::error::ServerError;
use crate::services::Services;

/// Capacity of the queue of entries. Requests wait when it is full.
const QUEUE: usize = 4096;
const BATCH: usize = 256;

/// Maximum time that a request waits for its entry.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Rate limits of entries for refused requests: a burst, and one more after each pause. The rest is
/// counted.
const ANONYMOUS_RATE: RateLimit = RateLimit { burst: 20, pause: Duration::from_secs(10) };
const AUTHENTICATED_RATE: RateLimit = RateLimit { burst: 200, pause: Duration::from_secs(1) };

/// Kinds of refusals. Each has its own rate limit, so that none displaces the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Missing or invalid credentials.
    Unauthenticated,
    /// An authenticated caller without the right, or over a rate limit.
    Forbidden,
    /// An authenticated caller with an invalid request or a missing object.
    Failed,
}

impl Refusal {
    const ALL: [Refusal; 3] = [Refusal::Unauthenticated, Refusal::Forbidden, Refusal::Failed];

    /// Returns the kind of a refusal; `None` if the request had or may have had an effect.
    fn classify(status: StatusCode, is_known: bool) -> Option<Self> {
        match status.as_u16() {
            401 | 403 | 429 if is_known => Some(Refusal::Forbidden),
            401 | 403 | 429 => Some(Refusal::Unauthenticated),
            400..=499 if is_known => Some(Refusal::Failed),
            _ => None,
        }
    }

    fn rate(self) -> RateLimit {
        match self {
            Refusal::Unauthenticated => ANONYMOUS_RATE,
            Refusal::Forbidden | Refusal::Failed => AUTHENTICATED_RATE,
        }
    }

    /// Text of the entry for omitted refusals.
    fn summary(self, count: u64) -> String {
        match self {
            Refusal::Unauthenticated | Refusal::Forbidden => format!("{count} refused requests"),
            Refusal::Failed => format!("{count} failed requests"),
        }
    }
}
/// Delay after which omitted refusals are written as a count, unless another entry has reported
/// them.
const SUMMARY_DELAY: Duration = Duration::from_secs(60);

/// Actor of requests without valid credentials.
const ANONYMOUS: &str = "anonymous";

const SUBJECT_MAX: usize = 512;
/// Maximum length of a detail in characters.
const DETAIL_MAX: usize = 1024;

/// Audit details that only the handler knows: actor and subject. Passed in the response extensions.
#[derive(Clone, Debug, Default)]
pub struct AuditNote {
    pub actor: Option<String>,
    pub subject: Option<String>,
    pub detail: Option<String>,
}

/// A response with an audit detail: names, roles and ids, never secrets.
pub(crate) struct WithAuditDetail<R>(pub(crate) String, pub(crate) R);

impl<R: IntoResponse> IntoResponse for WithAuditDetail<R> {
    fn into_response(self) -> Response {
        let WithAuditDetail(detail, response) = self;
        let mut response = response.into_response();
        let detail = Some(detail.chars().take(DETAIL_MAX).collect());
        response.extensions_mut().insert(AuditNote { detail, ..AuditNote::default() });
        response
    }
}

struct QueuedEntry {
    entry: AuditRecord,
    written: Option<oneshot::Sender<()>>,
}

/// Client of the audit log writer.
#[derive(Debug, Default)]
pub(crate) struct AuditLog {
    writer: Mutex<Writer>,
    /// Indexed by kind of refusal.
    refused: [Mutex<RefusalBucket>; Refusal::ALL.len()],
}

#[derive(Debug, Default)]
enum Writer {
    #[default]
    NotStarted,
    Running(mpsc::Sender<QueuedEntry>, JoinHandle<()>),
    Closed,
}

/// Rate limit of entries.
#[derive(Clone, Copy, Debug)]
struct RateLimit {
    burst: u32,
    pause: Duration,
}

/// Token bucket of one kind of refusal, with the number of omitted entries.
#[derive(Debug, Default)]
struct RefusalBucket {
    /// Time at which the bucket is full again, in microseconds.
    full_at: i64,
    omitted: u64,
    summary_scheduled: bool,
}

impl RefusalBucket {
    /// Takes a token from the bucket. Returns the number of entries omitted before, or `None` to
    /// omit this one.
    fn take(&mut self, rate: RateLimit, now: Timestamp) -> Option<u64> {
        let pause = i64::try_from(rate.pause.as_micros()).unwrap_or(i64::MAX);
        let full_at = self.full_at.max(now.0) + pause;
        if full_at - now.0 > pause.saturating_mul(rate.burst.into()) {
            self.omitted += 1;
            return None;
        }
        self.full_at = full_at;
        Some(std::mem::take(&mut self.omitted))
    }
}

impl AuditLog {
    fn sender(&self, store: &Store) -> Option<mpsc::Sender<QueuedEntry>> {
        let mut writer = self.writer.lock().ignore_poison();
        if let Writer::NotStarted = *writer {
            let (sender, receiver) = mpsc::channel(QUEUE);
            let task = tokio::spawn(write_all(store.clone(), receiver));
            *writer = Writer::Running(sender, task);
        }
        match &*writer {
            Writer::Running(sender, _) => Some(sender.clone()),
            Writer::NotStarted | Writer::Closed => None,
        }
    }

    /// Appends an entry. With `wait`, waits until it is on disk; false after a timeout.
    async fn append(&self, store: &Store, entry: AuditRecord, wait: bool) -> bool {
        let label = format!("{} {} {}", entry.actor, entry.action, entry.status);
        let Some(sender) = self.sender(store) else {
            tracing::error!(entry = label, "audit entry after the log was closed");
            return false;
        };
        let (written, done) = oneshot::channel();
        let waiting = QueuedEntry { entry, written: wait.then_some(written) };
        let kept = async { sender.send(waiting).await.is_ok() && (!wait || done.await.is_ok()) };
        let is_kept = tokio::time::timeout(WRITE_TIMEOUT, kept).await == Ok(true);
        if !is_kept {
            tracing::error!(entry = label, "an audit entry is not written yet");
        }
        is_kept
    }

    /// Writes the pending entries and closes the log.
    pub(crate) async fn close(&self, store: &Store, now: Timestamp) {
        for kind in Refusal::ALL {
            if let Some(entry) = self.omitted_entry(kind, now) {
                self.append(store, entry, false).await;
            }
        }
        let writer = {
            let mut writer = self.writer.lock().ignore_poison();
            std::mem::replace(&mut *writer, Writer::Closed)
        };
        if let Writer::Running(sender, task) = writer {
            drop(sender);
            if let Err(error) = task.await {
                tracing::error!(%error, "the writer of the audit log failed");
            }
        }
    }

    fn refused(&self, kind: Refusal) -> MutexGuard<'_, RefusalBucket> {
        self.refused[kind as usize].lock().ignore_poison()
    }

    /// Decides if a refusal gets an entry. Returns the number of entries omitted before. The first
    /// omitted one schedules an entry with the count.
    fn admit_refusal(
        self: &Arc<Self>,
        services: &Services,
        kind: Refusal,
        now: Timestamp,
    ) -> Option<u64> {
        let mut refused = self.refused(kind);
        let noted = refused.take(kind.rate(), now);
        if noted.is_none() && !std::mem::replace(&mut refused.summary_scheduled, true) {
            let (log, services) = (Arc::clone(self), services.clone());
            tokio::spawn(async move {
                tokio::time::sleep(SUMMARY_DELAY).await;
                if let Some(entry) = log.omitted_entry(kind, services.now()) {
                    log.append(services.store(), entry, false).await;
                }
            });
        }
        noted
    }

    /// Returns an entry with the number of omitted refusals.
    fn omitted_entry(&self, kind: Refusal, now: Timestamp) -> Option<AuditRecord> {
        let mut refused = self.refused(kind);
        refused.summary_scheduled = false;
        let omitted = std::mem::take(&mut refused.omitted);
        (omitted > 0).then(|| AuditRecord {
            at: now,
            actor: if kind == Refusal::Unauthenticated { ANONYMOUS } else { "various" }.to_owned(),
            address: String::new(),
            action: "refused".to_owned(),
            subject: String::new(),
            environment: None,
            status: 0,
            detail: format!("{} omitted", kind.summary(omitted)),
        })
    }
}

async fn write_all(store: Store, mut receiver: mpsc::Receiver<QueuedEntry>) {
    let mut batch = Vec::with_capacity(BATCH);
    while receiver.recv_many(&mut batch, BATCH).await > 0 {
        let (entries, written): (Vec<_>, Vec<_>) =
            batch.drain(..).map(|waiting: QueuedEntry| (waiting.entry, waiting.written)).unzip();
        if append_with_retries(&store, Arc::new(entries), &receiver).await {
            for written in written.into_iter().flatten() {
                // The waiter may have timed out.
                let _ = written.send(());
            }
        }
    }
}

/// Retries until the write succeeds, or the server stops.
async fn append_with_retries(
    store: &Store,
    entries: Arc<Vec<AuditRecord>>,
    receiver: &mpsc::Receiver<QueuedEntry>,
) -> bool {
    let mut pause = Duration::from_millis(50);
    let mut last_tries = 10;
    loop {
        let (store, batch) = (store.clone(), Arc::clone(&entries));
        let appended = tokio::task::spawn_blocking(move || store.audit().append(&batch)).await;
        let reason = match appended {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::error!(reason, entries = entries.len(), "the audit log cannot be written");
        if receiver.is_closed() {
            last_tries -= 1;
        }
        if last_tries == 0 {
            for entry in entries.iter() {
                tracing::error!(?entry, "an audit entry is lost");
            }
            return false;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

/// Audit record of one request.
#[derive(Clone, Debug)]
pub(crate) struct RequestAudit {
    entry: AuditRecord,
    is_public: bool,
}

impl RequestAudit {
    pub(crate) fn begin(auth: &Auth, parts: &Parts, route: &str) -> Self {
        let entry = AuditRecord {
            at: auth.services.now(),
            actor: ANONYMOUS.to_owned(),
            address: client_address(&auth.settings, parts),
            action: format!("{} {route}", parts.method),
            subject: parts.uri.path().chars().take(SUBJECT_MAX).collect(),
            environment: None,
            status: 0,
            detail: String::new(),
        };
        RequestAudit { entry, is_public: false }
    }

    pub(crate) fn set_actor(&mut self, actor: &str) {
        self.entry.actor = actor.to_owned();
    }

    /// Marks a public route: everything without an effect is a refusal and subject to its rate
    /// limit.
    pub(crate) fn for_public_route(mut self) -> Self {
        self.is_public = true;
        self
    }

    pub(crate) fn set_environment(&mut self, environment: EnvironmentId) {
        self.entry.environment = Some(environment);
    }

    pub(crate) fn address(&self) -> &str {
        &self.entry.address
    }

    /// Appends the entry. A change without an entry is not answered as a success.
    pub(crate) async fn finish(mut self, auth: &Auth, response: &mut Response) {
        let status = response.status();
        self.entry.status = status.as_u16().into();
        if let Some(note) = response.extensions_mut().remove::<AuditNote>() {
            self.entry.actor = note.actor.unwrap_or(self.entry.actor);
            self.entry.subject = note.subject.unwrap_or(self.entry.subject);
            self.entry.detail = note.detail.unwrap_or(self.entry.detail);
            if let Some((end, _)) = self.entry.detail.char_indices().nth(DETAIL_MAX) {
                self.entry.detail.truncate(end);
            }
        }
        let (log, services) = (&auth.audit, &auth.services);
        let is_known = self.entry.actor != ANONYMOUS && !self.is_public;
        let mut refusal = Refusal::classify(status, is_known);
        if self.is_public && !status.is_success() {
            refusal = Some(Refusal::Unauthenticated);
        }
        if let Some(kind) = refusal {
            match log.admit_refusal(services, kind, self.entry.at) {
                None => return,
                Some(0) => {}
                Some(omitted) => {
                    self.entry.detail = format!("{} before were omitted", kind.summary(omitted));
                }
            }
        }
        let is_kept = log.append(services.store(), self.entry, refusal.is_none()).await;
        if !is_kept && status.is_success() {
            // Not 503: clients retry that, because it means that nothing was executed.
            *response = ServerError::Refused {
                code: "not-written-down",
                detail: "executed, but the audit log cannot be written now; the write is retried"
                    .to_owned(),
            }
            .into_response();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_rate_limited_and_the_rest_is_counted() {
        let mut refused = RefusalBucket::default();
        let at = |seconds: i64| Timestamp(1_000_000_000_000 + seconds * 1_000_000);
        let noted = (0..100_000).filter(|_| refused.take(ANONYMOUS_RATE, at(0)).is_some()).count();
        assert_eq!(noted, 20);
        // A day at the full rate.
        let day = 86_400;
        let noted =
            (1..=day).filter(|second| refused.take(ANONYMOUS_RATE, at(*second)).is_some()).count();
        assert_eq!(noted, 8640);
        assert!(refused.take(ANONYMOUS_RATE, at(day + 3600)).is_some());
        assert_eq!(refused.omitted, 0, "reported with the written entry");
    }
}
