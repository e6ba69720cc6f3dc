//! Server-sent events: what changes, as it changes. A client that was away says the last event it saw and gets those since.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use orrery_api::ChangeEvent;
use orrery_store::{ChangeNote, ChangeSeq, EnvironmentKey, EnvironmentRecord, StoreError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use uuid::Uuid;

use crate::access::Right;
use crate::app::App;
use crate::auth::{self, Caller};
use crate::extract::InEnvironment;
use crate::problem::ServerError;

use super::time;

const HEARTBEAT: Duration = Duration::from_secs(15);
const BATCH: usize = 500;
/// After so long, whoever listens has to be who they were still.
const TRUST_FOR: Duration = Duration::from_secs(5);
/// Changes that may concern whoever listens: they are asked at once.
const OF_CALLERS: [&str; 2] = ["user", "token"];

/// What a request shows of its caller, to be looked at again while it is answered.
pub(super) struct Credentials(Parts);

impl<S: Send + Sync> FromRequestParts<S> for Credentials {
    type Rejection = ServerError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ServerError> {
        Ok(Credentials(parts.clone()))
    }
}

/// The last event that a client saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastSeen(Option<i64>);

impl<S: Send + Sync> FromRequestParts<S> for LastSeen {
    type Rejection = ServerError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ServerError> {
        let Some(given) = parts.headers.get("last-event-id") else { return Ok(LastSeen(None)) };
        let text = given.to_str().unwrap_or_default();
        let number = text.parse::<i64>().ok().filter(|number| *number >= 0);
        let bad = || ServerError::BadRequest(format!("Last-Event-ID: {text:?} is no event"));
        number.map(|number| LastSeen(Some(number))).ok_or_else(bad)
    }
}

/// Whose changes somebody may see.
enum View {
    /// Those of one environment.
    One(EnvironmentKey, Uuid),
    /// Those of all that the caller may see; environments are looked up once.
    All(Box<Caller>, HashMap<EnvironmentKey, Option<Uuid>>),
}

impl View {
    async fn event(&mut self, app: &App, note: &ChangeNote) -> Option<ChangeEvent> {
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
                        let find = app.with_store(move |store| store.records().environment_of(of));
                        let found = find.await.ok();
                        let seen =
                            found.filter(|found| caller.may_in_environment(Right::View, found));
                        let visible = seen.map(|found| Uuid::from_bytes(found.uuid));
                        known.insert(of, visible);
                        visible
                    }
                };
                Some(visible?)
            }
        };
        Some(ChangeEvent {
            environment,
            kind: note.kind.clone(),
            subject: note.subject.clone(),
            at: time(note.at),
        })
    }

    fn environment(&self) -> Option<EnvironmentKey> {
        match self {
            View::One(key, _) => Some(*key),
            View::All(..) => None,
        }
    }
}

/// One client that listens.
struct Listener {
    app: App,
    credentials: Credentials,
    checked: Instant,
    view: View,
    live: broadcast::Receiver<ChangeNote>,
    last: ChangeSeq,
    /// Read from the store, oldest last.
    backlog: Vec<ChangeNote>,
    /// Whether there may be more in the store than came live.
    behind: bool,
    /// The client missed something that is not kept any more.
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
            if self.checked.elapsed() >= TRUST_FOR && !self.is_trusted().await {
                return None;
            }
            if let Some(note) = self.backlog.pop() {
                self.last = note.seq;
                if OF_CALLERS.contains(&&*note.kind) && !self.is_trusted().await {
                    return None;
                }
                if let Some(event) = self.view.event(&self.app, &note).await {
                    return Some(sent(&note, &event));
                }
                continue;
            }
            if self.behind {
                self.read_backlog().await?;
                continue;
            }
            let received = tokio::select! {
                () = stopping.cancelled() => return None,
                () = tokio::time::sleep(TRUST_FOR) => continue,
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

    /// Whether the client may still hear what it hears: its credential may be revoked, or its right taken away.
    async fn is_trusted(&mut self) -> bool {
        self.checked = Instant::now();
        let caller = match auth::authenticate(&self.app, &self.credentials.0, false).await {
            Ok(caller) => caller,
            Err(ServerError::Unauthenticated(_) | ServerError::Forbidden(_)) => return false,
            // Whether it is, the store will say when it answers again.
            Err(_) => return true,
        };
        match &mut self.view {
            View::One(key, _) => {
                let key = *key;
                let find = self.app.with_store(move |store| store.records().environment_of(key));
                match find.await {
                    Ok(found) => caller.may_in_environment(Right::View, &found),
                    Err(ServerError::Store(StoreError::NotFound { .. })) => false,
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
            self.app.with_store(move |store| store.records().changes(after, environment, BATCH));
        let mut notes = read.await.ok()?;
        self.behind = notes.len() == BATCH;
        notes.reverse();
        self.backlog = notes;
        Some(())
    }
}

fn sent(note: &ChangeNote, event: &ChangeEvent) -> Event {
    let data = serde_json::to_string(event).unwrap_or_default();
    Event::default().id(note.seq.0.to_string()).event(&note.kind).data(data)
}

async fn listen(
    app: App,
    credentials: Credentials,
    view: View,
    seen: Option<i64>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ServerError> {
    // First listen, then look where the feed is: nothing can fall between.
    let live = app.tail().listen(&app).await?;
    let (latest, oldest) = app
        .with_store(|store| {
            let records = store.records();
            Ok((records.latest_change()?, records.oldest_change()?))
        })
        .await?;
    let last = seen.map_or(latest, ChangeSeq);
    // What follows the last seen must still be there; a place that never was belongs to another store.
    let reset = last > latest || last.0 + 1 < oldest.0;
    let last = if reset { latest } else { last };
    let listener = Listener {
        app,
        credentials,
        checked: Instant::now(),
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

/// What changes in an environment, as server-sent events. `Last-Event-ID` continues where a connection ended; the event `reset` says that
/// too much was missed.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/events", tag = "events",
    params(("environment" = Uuid, Path), ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was seen")),
    responses((status = 200, description = "Events without end; the data of each is a `ChangeEvent`", body = String, content_type = "text/event-stream")))]
pub(super) async fn of_environment(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    credentials: Credentials,
    LastSeen(seen): LastSeen,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ServerError> {
    let EnvironmentRecord { key, uuid, .. } = environment;
    listen(app, credentials, View::One(key, Uuid::from_bytes(uuid)), seen).await
}

/// What changes in all environments that the caller may see, as server-sent events.
#[utoipa::path(get, path = "/api/v1/events", tag = "events",
    params(("Last-Event-ID" = Option<u64>, Header, description = "The last event that was seen")),
    responses((status = 200, description = "Events without end; the data of each is a `ChangeEvent`", body = String, content_type = "text/event-stream")))]
pub(super) async fn of_all(
    State(app): State<App>,
    caller: Caller,
    credentials: Credentials,
    LastSeen(seen): LastSeen,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ServerError> {
    listen(app, credentials, View::All(Box::new(caller), HashMap::new()), seen).await
}
