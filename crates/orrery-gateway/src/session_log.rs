//! Begin and end of sessions in the store.
//!
//! Everything that accumulates during a transaction is recorded by the next one: thousands of agents
//! that reconnect at once wait for some commits instead of thousands.

use std::sync::Arc;

use orrery_model::{BootId, GatewayId, OfferedType, RemoteAgentId};
use orrery_roles::services::{ServiceError, Services};
use orrery_store::{NewAgentSession, OpenedSession, SessionChange};
use tokio::sync::{mpsc, oneshot};

/// Maximum number of changes in one transaction.
const BATCH_MAX: usize = 256;
/// Number of changes that wait; beyond, sessions wait before they are queued.
const QUEUE_MAX: usize = 1024;

/// Recorder of sessions. Clones share it; its task ends with the last one.
#[derive(Clone)]
pub(crate) struct SessionLog {
    entries: mpsc::Sender<Entry>,
}

/// A change of a session, with its own data.
pub(crate) enum SessionEntry {
    Open(Box<NewSession>),
    Close { agent: RemoteAgentId, number: i64 },
}

/// Data with which an agent opens a session.
pub(crate) struct NewSession {
    pub(crate) agent: RemoteAgentId,
    pub(crate) gateway: GatewayId,
    pub(crate) boot: BootId,
    pub(crate) version: String,
    pub(crate) facts: serde_json::Value,
    pub(crate) offered: Vec<OfferedType>,
}

/// The opened session, if one was to be opened and the agent may have it.
type Recorded = Result<Option<OpenedSession>, Arc<ServiceError>>;

struct Entry {
    change: SessionEntry,
    reply: oneshot::Sender<Recorded>,
}

impl SessionEntry {
    fn as_change(&self) -> SessionChange<'_> {
        match self {
            SessionEntry::Open(new) => SessionChange::Open {
                agent: new.agent,
                session: NewAgentSession {
                    gateway: new.gateway,
                    boot: new.boot,
                    version: &new.version,
                    facts: &new.facts,
                    offered: &new.offered,
                },
            },
            SessionEntry::Close { agent, number } => {
                SessionChange::Close { agent: *agent, number: *number }
            }
        }
    }
}

impl SessionLog {
    /// Starts the task that records.
    pub(crate) fn start(services: Services) -> Self {
        let (entries, queue) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(record_all(services, queue));
        SessionLog { entries }
    }

    /// Records a change; returns once it is committed.
    pub(crate) async fn record(&self, change: SessionEntry) -> Recorded {
        let (reply, replied) = oneshot::channel();
        if self.entries.send(Entry { change, reply }).await.is_err() {
            return Err(Arc::new(ServiceError::Stopping));
        }
        replied.await.unwrap_or_else(|_| Err(Arc::new(ServiceError::Stopping)))
    }
}

async fn record_all(services: Services, mut queue: mpsc::Receiver<Entry>) {
    let mut entries = Vec::new();
    while queue.recv_many(&mut entries, BATCH_MAX).await > 0 {
        let (changes, replies): (Vec<_>, Vec<_>) =
            entries.drain(..).map(|entry| (entry.change, entry.reply)).unzip();
        let changes = Arc::new(changes);
        match record_batch(&services, &changes, 0..changes.len()).await {
            Ok(opened) => {
                for (reply, opened) in replies.into_iter().zip(opened) {
                    // Fails only if the session has ended.
                    let _ = reply.send(Ok(opened));
                }
            }
            // A change that cannot be recorded must not affect others.
            Err(_) if replies.len() > 1 => {
                for (at, reply) in replies.into_iter().enumerate() {
                    let recorded = record_batch(&services, &changes, at..at + 1).await;
                    let _ = reply.send(recorded.map(|mut opened| opened.pop().flatten()));
                }
            }
            Err(error) => {
                for reply in replies {
                    let _ = reply.send(Err(Arc::clone(&error)));
                }
            }
        }
    }
}

async fn record_batch(
    services: &Services,
    changes: &Arc<Vec<SessionEntry>>,
    range: std::ops::Range<usize>,
) -> Result<Vec<Option<OpenedSession>>, Arc<ServiceError>> {
    let (changes, now) = (Arc::clone(changes), services.now());
    let recorded = services.change(move |store| {
        let changes: Vec<_> = changes
            .iter()
            .skip(range.start)
            .take(range.len())
            .map(SessionEntry::as_change)
            .collect();
        store.remote_agents().record_sessions(&changes, now)
    });
    recorded.await.map_err(Arc::new)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use orrery_model::{Id, Timestamp};
    use orrery_store::{GatewayHeartbeat, JoinOutcome, JoiningAgent, NewInvitationRecord, Store};

    use super::*;
    use crate::HEARTBEAT_MAX_AGE;

    const AGENTS: u8 = 100;
    const GATEWAY: [u8; 16] = [200; 16];

    /// A store with enrolled agents and one gateway.
    fn store() -> Store {
        let store = Store::in_memory().unwrap();
        let (environment, now) = (store.environments().ensure_default().unwrap(), Timestamp(1_000));
        for number in 0..AGENTS {
            let invitation = NewInvitationRecord {
                uuid: Id::from_bytes([number; 16]),
                hash: [number; 32],
                names: vec![format!("web{number}")],
                created: now,
                expires: Timestamp(2_000),
                token: None,
            };
            store.invitations().create(environment, &invitation).unwrap();
            let joining = JoiningAgent {
                uuid: Id::from_bytes([number; 16]),
                key: [number; 32],
                names: Vec::new(),
                facts: serde_json::json!({}),
                version: String::new(),
            };
            let joined = store.invitations().join(&[number; 32], &joining, now).unwrap();
            assert!(matches!(joined, JoinOutcome::Joined(_)), "{joined:?}");
        }
        let gateway = GatewayHeartbeat {
            uuid: Id::from_bytes(GATEWAY),
            address: "127.0.0.1:1",
            peer_address: "127.0.0.1:1",
            latencies: None,
        };
        store.gateways().record_heartbeat(&gateway, HEARTBEAT_MAX_AGE).unwrap();
        store
    }

    fn begin(agent: u8, gateway: [u8; 16]) -> SessionEntry {
        SessionEntry::Open(Box::new(NewSession {
            agent: Id::from_bytes([agent; 16]),
            gateway: Id::from_bytes(gateway),
            boot: Id::from_bytes([1; 16]),
            version: String::new(),
            facts: serde_json::json!({}),
            offered: Vec::new(),
        }))
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    /// Each transaction sends one wake-up.
    #[test]
    fn sessions_that_begin_at_once_share_a_transaction() {
        let services = Services::new(store());
        let transactions = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&transactions);
        services.on_wake_up(move || counter.fetch_add(1, Ordering::Relaxed) < usize::MAX);
        run(async {
            let log = SessionLog::start(services.clone());
            let opened = join_all((0..AGENTS).map(|at| log.record(begin(at, GATEWAY)))).await;
            assert!(opened.iter().all(|one| matches!(one, Ok(Some(one)) if one.number == 1)));
        });
        assert!(transactions.load(Ordering::Relaxed) <= 2, "{transactions:?}");
    }

    #[test]
    fn a_session_that_cannot_begin_affects_no_other() {
        let services = Services::new(store());
        run(async {
            let log = SessionLog::start(services.clone());
            let changes = [begin(0, GATEWAY), begin(1, [9; 16]), begin(2, GATEWAY)];
            let opened = join_all(changes.map(|change| log.record(change))).await;
            let numbers: Vec<_> =
                opened.into_iter().map(|one| one.ok().flatten().map(|one| one.number)).collect();
            assert_eq!(numbers, [Some(1), None, Some(1)]);
            let agent = Id::from_bytes([2; 16]);
            let ended = log.record(SessionEntry::Close { agent, number: 1 }).await;
            assert!(matches!(ended, Ok(None)), "{ended:?}");
        });
        let left = services.store().gateways().sessions(Id::from_bytes(GATEWAY)).unwrap();
        assert_eq!(left, [(Id::from_bytes([0; 16]), 1)]);
    }
}
