//! Who did what: one writer appends entries in batches, so that a request waits for at most two of them.
//!
//! A request is answered when its entry is on disk: what was acknowledged is in the log, wherever the process is killed. All requests that
//! wait at the same time share one commit. Only those that are refused, and so changed nothing, do not wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use orrery_model::{Duration, Timestamp};
use orrery_store::{AuditEntry, Store};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::app::App;
use crate::auth::address::client_address;
use crate::problem::ServerError;

/// So many entries may wait to be written; then requests wait.
const QUEUE: usize = 4096;
const BATCH: usize = 256;

/// A request waits no longer than this for its entry.
const PATIENCE: Duration = Duration::from_secs(10);

/// Refused requests that are noted one by one: so many at once, and one more for each pause. The others are counted.
const STRANGERS: Pace = Pace { at_once: 20, pause: Duration::from_secs(10) };
const KNOWN: Pace = Pace { at_once: 200, pause: Duration::from_secs(1) };

/// Who made requests that were refused, and why. Each kind has a pace of its own, so that none keeps the others out of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Clients without a credential, or with none that is good.
    Stranger,
    /// Known callers who lack a right, or come too often.
    Forbidden,
    /// Known callers whose requests cannot be done: nothing is there, or they are not valid.
    Failed,
}

impl Refusal {
    const ALL: [Refusal; 3] = [Refusal::Stranger, Refusal::Forbidden, Refusal::Failed];

    /// The kind of a refusal; `None` for what was done, or may have been.
    fn of(status: StatusCode, is_known: bool) -> Option<Self> {
        match status.as_u16() {
            401 | 403 | 429 if is_known => Some(Refusal::Forbidden),
            401 | 403 | 429 => Some(Refusal::Stranger),
            400..=499 if is_known => Some(Refusal::Failed),
            _ => None,
        }
    }

    fn pace(self) -> Pace {
        match self {
            Refusal::Stranger => STRANGERS,
            Refusal::Forbidden | Refusal::Failed => KNOWN,
        }
    }

    /// Told of those that are counted.
    fn told(self, count: u64) -> String {
        match self {
            Refusal::Stranger | Refusal::Forbidden => format!("{count} refused requests"),
            Refusal::Failed => format!("{count} requests that could not be done"),
        }
    }
}
/// Entries that were only counted are told after this, if no other entry has told of them.
const TELL_AFTER: Duration = Duration::from_secs(60);

/// The actor of requests that show no credential, or none that is good.
const ANONYMOUS: &str = "anonymous";

const SUBJECT_MAX: usize = 512;
/// Characters of what a handler tells.
const DETAIL_MAX: usize = 1024;

/// What a handler knows better than its path: who acted, and on what. It is put into the response.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditNote {
    pub(crate) actor: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) detail: Option<String>,
}

/// A response with what was done, in words: names, roles and ids, never what may be secret.
pub(crate) struct Noted<R>(pub(crate) String, pub(crate) R);

impl<R: IntoResponse> IntoResponse for Noted<R> {
    fn into_response(self) -> Response {
        let Noted(detail, response) = self;
        let mut response = response.into_response();
        let detail = Some(detail.chars().take(DETAIL_MAX).collect());
        response.extensions_mut().insert(AuditNote { detail, ..AuditNote::default() });
        response
    }
}

struct Waiting {
    entry: AuditEntry,
    written: Option<oneshot::Sender<()>>,
}

/// The way to the audit log.
#[derive(Debug, Default)]
pub(crate) struct AuditLog {
    writer: Mutex<Writer>,
    /// By kind of refusal.
    refused: [Mutex<Refused>; Refusal::ALL.len()],
}

#[derive(Debug, Default)]
enum Writer {
    #[default]
    NotStarted,
    Running(mpsc::Sender<Waiting>, JoinHandle<()>),
    Closed,
}

/// How fast entries may come.
#[derive(Clone, Copy, Debug)]
struct Pace {
    at_once: u32,
    pause: Duration,
}

/// Refusals of one kind: what is left of those that may be noted, and how many were left out since the last entry.
#[derive(Debug, Default)]
struct Refused {
    /// When the last of those that were used up comes back, in microseconds. Before now, all are there.
    full_at: i64,
    left_out: u64,
    will_tell: bool,
}

impl Refused {
    /// Whether to note one more, and how many were left out before it.
    fn note(&mut self, pace: Pace, now: Timestamp) -> Option<u64> {
        let pause = i64::try_from(pace.pause.as_micros()).unwrap_or(i64::MAX);
        let full_at = self.full_at.max(now.0) + pause;
        if full_at - now.0 > pause.saturating_mul(pace.at_once.into()) {
            self.left_out += 1;
            return None;
        }
        self.full_at = full_at;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl AuditLog {
    fn sender(&self, store: &Arc<dyn Store>) -> Option<mpsc::Sender<Waiting>> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Writer::NotStarted = *writer {
            let (sender, receiver) = mpsc::channel(QUEUE);
            let task = tokio::spawn(write_all(Arc::clone(store), receiver));
            *writer = Writer::Running(sender, task);
        }
        match &*writer {
            Writer::Running(sender, _) => Some(sender.clone()),
            Writer::NotStarted | Writer::Closed => None,
        }
    }

    /// Adds an entry; with `wait`, answers when it is on disk. False if it is not, after a while.
    async fn append(&self, store: &Arc<dyn Store>, entry: AuditEntry, wait: bool) -> bool {
        let told = format!("{} {} {}", entry.actor, entry.action, entry.status);
        let Some(sender) = self.sender(store) else {
            tracing::error!(entry = told, "an audit entry after the log was closed");
            return false;
        };
        let (written, done) = oneshot::channel();
        let waiting = Waiting { entry, written: wait.then_some(written) };
        let kept = async { sender.send(waiting).await.is_ok() && (!wait || done.await.is_ok()) };
        let is_kept = tokio::time::timeout(PATIENCE, kept).await == Ok(true);
        if !is_kept {
            tracing::error!(entry = told, "an audit entry is not written yet");
        }
        is_kept
    }

    /// Writes what is still waiting. Nothing can be added afterwards.
    pub(crate) async fn close(&self, store: &Arc<dyn Store>, now: Timestamp) {
        for kind in Refusal::ALL {
            if let Some(entry) = self.left_out(kind, now) {
                self.append(store, entry, false).await;
            }
        }
        let writer = {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *writer, Writer::Closed)
        };
        if let Writer::Running(sender, task) = writer {
            drop(sender);
            if let Err(error) = task.await {
                tracing::error!(%error, "the writer of the audit log failed");
            }
        }
    }

    fn refused(&self, kind: Refusal) -> MutexGuard<'_, Refused> {
        self.refused[kind as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to note one more refusal, and how many were left out before it. The first that is left out sees to it that they are told.
    fn note_refusal(&self, app: &App, kind: Refusal, now: Timestamp) -> Option<u64> {
        let mut refused = self.refused(kind);
        let noted = refused.note(kind.pace(), now);
        if noted.is_none() && !std::mem::replace(&mut refused.will_tell, true) {
            let app = app.clone();
            tokio::spawn(async move {
                tokio::time::sleep(TELL_AFTER).await;
                let log = &app.auth().audit;
                if let Some(entry) = log.left_out(kind, app.now()) {
                    log.append(app.store(), entry, false).await;
                }
            });
        }
        noted
    }

    /// An entry that tells how many were left out.
    fn left_out(&self, kind: Refusal, now: Timestamp) -> Option<AuditEntry> {
        let mut refused = self.refused(kind);
        refused.will_tell = false;
        let left_out = std::mem::take(&mut refused.left_out);
        (left_out > 0).then(|| AuditEntry {
            at: now,
            actor: if kind == Refusal::Stranger { ANONYMOUS } else { "various" }.to_owned(),
            address: String::new(),
            action: "refused".to_owned(),
            subject: String::new(),
            environment: None,
            status: 0,
            detail: format!("{} are not noted one by one", kind.told(left_out)),
        })
    }
}

async fn write_all(store: Arc<dyn Store>, mut receiver: mpsc::Receiver<Waiting>) {
    let mut batch = Vec::with_capacity(BATCH);
    while receiver.recv_many(&mut batch, BATCH).await > 0 {
        let (entries, written): (Vec<_>, Vec<_>) =
            batch.drain(..).map(|waiting: Waiting| (waiting.entry, waiting.written)).unzip();
        if append_with_patience(&store, Arc::new(entries), &receiver).await {
            for written in written.into_iter().flatten() {
                // Nobody may be waiting any more.
                let _ = written.send(());
            }
        }
    }
}

/// Tries until it works; gives up only when the server is stopping.
async fn append_with_patience(
    store: &Arc<dyn Store>,
    entries: Arc<Vec<AuditEntry>>,
    receiver: &mpsc::Receiver<Waiting>,
) -> bool {
    let mut pause = Duration::from_millis(50);
    let mut last_tries = 10;
    loop {
        let (store, batch) = (Arc::clone(store), Arc::clone(&entries));
        let appended =
            tokio::task::spawn_blocking(move || store.records().append_audit(&batch)).await;
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

/// One request on its way through the server.
#[derive(Clone, Debug)]
pub(crate) struct Trail {
    entry: AuditEntry,
    is_open_to_strangers: bool,
}

impl Trail {
    pub(crate) fn begin(app: &App, parts: &Parts, route: &str) -> Self {
        let entry = AuditEntry {
            at: app.now(),
            actor: ANONYMOUS.to_owned(),
            address: client_address(&app.settings().auth, parts),
            action: format!("{} {route}", parts.method),
            subject: parts.uri.path().chars().take(SUBJECT_MAX).collect(),
            environment: None,
            status: 0,
            detail: String::new(),
        };
        Trail { entry, is_open_to_strangers: false }
    }

    pub(crate) fn by(&mut self, actor: &str) {
        self.entry.actor = actor.to_owned();
    }

    /// Whoever reaches the listener can make such requests: whatever is not done is a refusal, of which only some are noted.
    pub(crate) fn of_strangers(mut self) -> Self {
        self.is_open_to_strangers = true;
        self
    }

    pub(crate) fn within(&mut self, environment: [u8; 16]) {
        self.entry.environment = Some(environment);
    }

    pub(crate) fn address(&self) -> &str {
        &self.entry.address
    }

    /// Writes down how it ended. A success that cannot be written down is not told as one.
    pub(crate) async fn end(mut self, app: &App, response: &mut Response) {
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
        let log = &app.auth().audit;
        let is_known = self.entry.actor != ANONYMOUS && !self.is_open_to_strangers;
        let mut refusal = Refusal::of(status, is_known);
        if self.is_open_to_strangers && !status.is_success() {
            refusal = Some(Refusal::Stranger);
        }
        if let Some(kind) = refusal {
            match log.note_refusal(app, kind, self.entry.at) {
                None => return,
                Some(0) => {}
                Some(left_out) => {
                    self.entry.detail = format!("{} before are not noted", kind.told(left_out));
                }
            }
        }
        let is_kept = log.append(app.store(), self.entry, refusal.is_none()).await;
        if !is_kept && status.is_success() {
            // Not 503: clients take that for a sign that nothing was done, and repeat the request.
            *response = ServerError::Refused {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                code: "not-written-down",
                detail:
                    "it was done, and cannot be written to the audit log now; that is tried again"
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
    fn refusals_are_noted_at_a_pace_and_the_rest_is_counted() {
        let mut refused = Refused::default();
        let at = |seconds: i64| Timestamp(1_000_000_000_000 + seconds * 1_000_000);
        let noted = (0..100_000).filter(|_| refused.note(STRANGERS, at(0)).is_some()).count();
        assert_eq!(noted, 20);
        // A day at full speed.
        let day = 86_400;
        let noted =
            (1..=day).filter(|second| refused.note(STRANGERS, at(*second)).is_some()).count();
        assert_eq!(noted, 8640);
        assert!(refused.note(STRANGERS, at(day + 3600)).is_some());
        assert_eq!(refused.left_out, 0, "they were told with the one that was noted");
    }
}
