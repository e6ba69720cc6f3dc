//! Server-sent events of the change feed. A reconnecting client sends its last event id and
//! receives the events since.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use orrery_api::ChangeEvent;
use orrery_base::clock::monotonic;
use orrery_store::{ChangeRecord, ChangeSeq, EnvironmentKey, EnvironmentRecord, StoreError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use uuid::Uuid;

use crate::access::Right;
use crate::auth::{self, Caller};
use crate::error::ServerError;
use crate::extract::InEnvironment;
use crate::services::ServiceError;
use crate::state::ServerState;

use super::time;

const HEARTBEAT: Duration = Duration::from_secs(15);
const BATCH: usize = 500;
/// Interval for checking the caller's credential and right again.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Changes that may affect the caller's rights: they trigger an immediate check.
const CALLER_CHANGES: [&str; 2] = ["user", "token"];

/// Credentials of the request, for repeated checks during the stream.
pub(super) struct Credentials(Parts);

impl<S: Send + Sync> FromRequestParts<S> for Credentials {
    type Rejection = ServerError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ServerError> {
        Ok(Credentials(parts.clone()))
    }
}

/// Id of the last event that the client received.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastSeen(Option<i64>);

impl<S: Send + Sync> FromRequestParts<S> for LastSeen {
    type Rejection = ServerError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ServerError> {
        let Some(given) = parts.headers.get("last-event-id") else { return Ok(LastSeen(None)) };
        let text = given.to_str().unwrap_or_default();
        let number = text.parse::<i64>().ok().filter(|number| *number >= 0);
        let bad = || ServerError::BadRequest(format!("Last-Event-ID: {text:?} is not an event id"));
        number.map(|number| LastSeen(Some(number))).ok_or_else(bad)
    }
}

/// Visible changes.
enum View {
    /// Changes of one environment.
    One(EnvironmentKey, Uuid),
    /// Changes of all environments visible to the caller, with a cache of their ids.
    All(Box<Caller>, HashMap<EnvironmentKey, Option<Uuid>>),
}

impl View {
    async fn event(&mut self, app: &ServerState, note: &ChangeRecord) -> Option<ChangeEvent> {
        let environment = match (self, note.environment) {
            (View::One(key, uuid), Some(of)) if *key == of => Some(*uuid),
            (View::One(..), _) => return None,
            (View::All(caller, _), None) => {
                caller.need_everywhere(Right::View).ok()?;
                None
            }
            (View::All(caller, known), Some(of)) => {
                let visible = match known.get(&of) {
                    Some(visible) => *visible,
                    None => {
                        let find = app.with_store(move |store| store.environments().by_key(of));
                        let found = find.await.ok();
                        let seen =
                            found.filter(|found| caller.may_in_environment(Right::View, found));
                        let visible = seen.map(|found| found.uuid.uuid());
                        known.insert(of, visible);
                        visible
                    }
                };
                Some(visible?)
            }
        };
        // A kind that this program does not know was written by a newer one, for newer clients.
        let kind = note.kind.parse().ok()?;
        Some(ChangeEvent { environment, kind, subject: note.subject.clone(), at: time(note.at) })
    }

    fn environment(&self) -> Option<EnvironmentKey> {
        match self {
            View::One(key, _) => Some(*key),
            View::All(..) => None,
        }
    }
}

/// Event stream of one client.
struct Listener {
    app: ServerState,
    credentials: Credentials,
    checked: Instant,
    view: View,
    live: broadcast::Receiver<ChangeRecord>,
    last: ChangeSeq,
    /// Changes read from the store, oldest last.
    backlog: Vec<ChangeRecord>,
    /// True if the store may have more changes than the live feed delivered.
    behind: bool,
    /// True if the client missed changes that are not stored any more.
    reset: bool,
}

impl Listener {
    async fn next(&mut self) -> Option<Event> {
        if self.reset {
            self.reset = false;
            let event = Event::default().event("reset").id(self.last.0.to_string());
            return Some(event.data(r#"{"reason":"changes were missed: read everything again"}"#));
        }
        let stopping = self.app.stopping().clone();
        loop {
            if self.checked.elapsed() >= RECHECK_INTERVAL && !self.is_authorized().await {
                return None;
            }
            if let Some(note) = self.backlog.pop() {
                self.last = note.seq;
                if CALLER_CHANGES.contains(&&*note.kind) && !self.is_authorized().await {
                    return None;
                }
                if let Some(event) = self.view.event(&self.app, &note).await {
                    return Some(sse_event(&note, &event));
                }
                continue;
            }
            if self.behind {
                self.read_backlog().await?;
                continue;
            }
            let received = tokio::select! {
                () = stopping.cancelled() => return None,
                () = tokio::time::sleep(RECHECK_INTERVAL) => continue,
                received = self.live.recv() => received,
            };
            match received {
                Ok(note) if note.seq > self.last => self.backlog.push(note),
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => self.behind = true,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// True if the credential and the right of the client are still valid.
    async fn is_authorized(&mut self) -> bool {
        self.checked = monotonic();
        let caller = match auth::authenticate(self.app.auth(), &self.credentials.0, false).await {
            Ok(caller) => caller,
            Err(ServerError::Unauthenticated(_) | ServerError::Forbidden(_)) => return false,
            // Unknown until the store is available again.
            Err(_) => return true,
        };
        match &mut self.view {
            View::One(key, _) => {
                let key = *key;
                let find = self.app.with_store(move |store| store.environments().by_key(key));
                match find.await {
                    Ok(found) => caller.may_in_environment(Right::View, &found),
                    Err(ServiceError::Store(StoreError::NotFound { .. })) => false,
                    Err(_) => true,
                }
            }
            View::All(known, seen) => {
                **known = caller;
                seen.clear();
                true
            }
        }
    }

    async fn read_backlog(&mut self) -> Option<()> {
        let (after, environment) = (self.last, self.view.environment());
        let read =
            self.app.with_store(move |store| store.changes().list(after, environment, BATCH));
        let mut notes = read.await.ok()?;
        self.behind = notes.len() == BATCH;
        notes.reverse();
        self.backlog = notes;
        Some(())
    }
}

fn sse_event(note: &ChangeRecord, event: &ChangeEvent) -> Event {
    let data = serde_json::to_string(event).unwrap_or_default();
    Event::default().id(note.seq.0.to_string()).event(&note.kind).data(data)
}

async fn listen(
    app: ServerState,
    credentials: Credentials,
    view: View,
    seen: Option<i64>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ServerError> {
    // Subscribes before reading the position of the feed, so that no change is missed.
    let live = app.change_stream().subscribe(&app).await?;
    let (latest, oldest) =
        app.with_store(|store| Ok((store.changes().latest()?, store.changes().oldest()?))).await?;
    let last = seen.map_or(latest, ChangeSeq);
    // The change after the last seen one must be stored; an unknown position belongs to another
    // store.
    let reset = last > latest || last.0 + 1 < oldest.0;
    let last = if reset { latest } else { last };
    let listener = Listener {
        app,
        credentials,
        checked: monotonic(),
        view,
        live,
        last,
        backlog: Vec::new(),
        behind: true,
        reset,
    };
    let events = futures_util::stream::unfold(listener, async |mut listener| {
        let event = listener.next().await?;
        Some((Ok(event), listener))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT).text("heartbeat")))
}

/// Streams the changes of an environment as server-sent events. `Last-Event-ID` resumes a stream;
/// the event `reset` reports that changes were lost.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/events", tag = "events",
    params(("environment" = Uuid, Path), ("Last-Event-ID" = Option<u64>, Header, description = "Id of the last received event")),
    responses((status = 200, description = "Endless event stream; the data of each event is a `ChangeEvent`", body = String, content_type = "text/event-stream")))]
pub(super) async fn of_environment(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    credentials: Credentials,
    LastSeen(seen): LastSeen,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ServerError> {
    let EnvironmentRecord { key, uuid, .. } = environment;
    listen(app, credentials, View::One(key, uuid.uuid()), seen).await
}

/// Streams the changes of all environments visible to the caller as server-sent events.
#[utoipa::path(get, path = "/api/v1/events", tag = "events",
    params(("Last-Event-ID" = Option<u64>, Header, description = "Id of the last received event")),
    responses((status = 200, description = "Endless event stream; the data of each event is a `ChangeEvent`", body = String, content_type = "text/event-stream")))]
pub(super) async fn of_all(
    State(app): State<ServerState>,
    caller: Caller,
    credentials: Credentials,
    LastSeen(seen): LastSeen,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ServerError> {
    listen(app, credentials, View::All(Box::new(caller), HashMap::new()), seen).await
}
