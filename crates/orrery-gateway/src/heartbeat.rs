//! Heartbeat of a gateway: keeps it and its sessions alive in the store, and ends sessions that the
//! store considers over.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use orrery_agent::protocol::{Refusal, RefusalCode};
use orrery_store::{AgentSession, ChangeRecord, GatewayHeartbeat, StoreError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;

use orrery_roles::services::ServiceError;

use super::admission::revoked;
use super::session_registry::superseded;
use super::{GatewayState, HEARTBEAT_MAX_AGE};

/// Heartbeat interval; one statement covers all sessions.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// Heartbeats per record of round trips, which are accurate within ten seconds that way.
const LATENCIES_EVERY: u32 = 2;
/// Maximum number of agents checked individually; beyond, all are checked.
const SINGLE_CHECKS_MAX: usize = 64;
/// Retry delay after a store error.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Kind of change that concerns sessions. Only sessions in the registry are checked: one that was
/// just opened in the store may not be registered yet, while a registered one is always in the
/// store.
const CHANGE: &str = "remote_agent";

/// Addresses of a gateway.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pub(super) agents: String,
    pub(super) peers: String,
}

/// Sends heartbeats until the gateway stops, and ends stale sessions as soon as a change reports
/// them.
pub(super) async fn run(state: GatewayState, addresses: Addresses) {
    let mut timer = tokio::time::interval(HEARTBEAT_INTERVAL);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changes = None;
    let mut beats = 0u32;
    loop {
        if changes.is_none() {
            match state.changes.subscribe(&state.services).await {
                Ok(listening) => changes = Some(listening),
                Err(error) => tracing::warn!(%error, "cannot subscribe to changes"),
            }
        }
        tokio::select! {
            () = state.stop.cancelled() => break,
            _ = timer.tick() => {
                beats = beats.wrapping_add(1);
                let with_latencies = beats.is_multiple_of(LATENCIES_EVERY);
                if let Err(error) = send(&state, &addresses, with_latencies).await {
                    tracing::warn!(%error, "heartbeat of the gateway failed");
                    timer.reset_at(Instant::now() + RETRY_AFTER);
                }
            }
            received = async {
                match &mut changes {
                    Some(changes) => changes.recv().await,
                    None => std::future::pending().await,
                }
            } => {
                let affected = match received {
                    Ok(note) if note.kind == CHANGE => collect_affected(&note, changes.as_mut()),
                    Ok(_) => AffectedAgents::Agents(BTreeSet::new()),
                    Err(RecvError::Lagged(_)) => AffectedAgents::All,
                    Err(RecvError::Closed) => {
                        changes = None;
                        tokio::time::sleep(RETRY_AFTER).await;
                        AffectedAgents::All
                    }
                };
                if let Err(error) = end_stale_of(&state, affected).await {
                    tracing::warn!(%error, "cannot check sessions against the store");
                    timer.reset_at(Instant::now() + RETRY_AFTER);
                }
            }
        }
    }
    let id = state.id.into();
    let gone = state.services.change(move |store| store.gateways().delete(id)).await;
    if let Err(error) = gone {
        tracing::warn!(%error, "gateway not unregistered; its entry expires");
    }
}

/// Agents whose sessions may be over.
enum AffectedAgents {
    All,
    Agents(BTreeSet<Uuid>),
}

/// Collects the agents of a change and of all pending ones: thousands of agents that connect at
/// once must not cause as many full checks.
fn collect_affected(
    first: &ChangeRecord,
    more: Option<&mut broadcast::Receiver<ChangeRecord>>,
) -> AffectedAgents {
    let mut agents = BTreeSet::new();
    agents.extend(first.subject.parse::<Uuid>());
    let Some(more) = more else { return AffectedAgents::Agents(agents) };
    loop {
        match more.try_recv() {
            Ok(note) if note.kind == CHANGE => agents.extend(note.subject.parse::<Uuid>()),
            Ok(_) => {}
            Err(TryRecvError::Lagged(_)) => return AffectedAgents::All,
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
        }
    }
    if agents.len() > SINGLE_CHECKS_MAX {
        AffectedAgents::All
    } else {
        AffectedAgents::Agents(agents)
    }
}

async fn end_stale_of(state: &GatewayState, affected: AffectedAgents) -> Result<(), ServiceError> {
    let AffectedAgents::Agents(agents) = affected else { return end_stale(state).await };
    for agent in agents {
        let Some(number) = state.registry.session(agent) else { continue };
        let found = state
            .services
            .with_store(move |store| match store.remote_agents().session(agent.into()) {
                Err(StoreError::NotFound { .. }) => Ok(None),
                found => found.map(Some),
            })
            .await?;
        let me = Some(state.id.into());
        let is_counted = |found: &AgentSession| found.gateway == me && found.number >= number;
        if !found.as_ref().is_some_and(is_counted) {
            end_session(state, agent, number).await?;
        }
    }
    Ok(())
}

async fn end_session(state: &GatewayState, agent: Uuid, number: i64) -> Result<(), ServiceError> {
    let refusal = end_reason(state, agent, number).await?;
    tracing::info!(%agent, session = number, reason = refusal.reason, "session ended");
    state.registry.end(agent, number, refusal);
    Ok(())
}

/// Sends one heartbeat, with the round trips of the sessions if asked, and ends stale sessions.
pub(super) async fn send(
    state: &GatewayState,
    addresses: &Addresses,
    with_latencies: bool,
) -> Result<(), ServiceError> {
    let (uuid, addresses) = (state.id.into(), addresses.clone());
    let latencies = with_latencies.then(|| {
        let measured = state.registry.latencies().into_iter();
        measured.map(|(agent, latency)| (agent.into(), latency)).collect::<Vec<_>>()
    });
    let ended = state.services.with_store(move |store| {
        let gateway = GatewayHeartbeat {
            uuid,
            address: &addresses.agents,
            peer_address: &addresses.peers,
            latencies: latencies.as_deref(),
        };
        let ended = store.gateways().record_heartbeat(&gateway, HEARTBEAT_MAX_AGE)?;
        let known = store.gateways().list(HEARTBEAT_MAX_AGE)?;
        Ok((ended, known.into_iter().map(|gateway| gateway.address).collect::<BTreeSet<_>>()))
    });
    let (ended, known) = ended.await?;
    if ended > 0 {
        state.services.wake_up();
    }
    state.addresses.send_if_modified(|addresses| {
        let known: Vec<String> = known.into_iter().collect();
        let is_new = *addresses != known;
        *addresses = known;
        is_new
    });
    end_stale(state).await
}

/// Ends sessions that the store does not assign to this gateway: the agent was revoked, or has a
/// newer session elsewhere.
async fn end_stale(state: &GatewayState) -> Result<(), ServiceError> {
    let here = state.registry.sessions();
    if here.is_empty() {
        return Ok(());
    }
    let id = state.id.into();
    let counted = state.services.with_store(move |store| store.gateways().sessions(id)).await?;
    let counted: HashMap<Uuid, i64> =
        counted.into_iter().map(|(agent, number)| (agent.uuid(), number)).collect();
    for (agent, number) in here {
        // A greater number belongs to a session that is about to start here.
        if counted.get(&agent).is_some_and(|counted| *counted >= number) {
            continue;
        }
        end_session(state, agent, number).await?;
    }
    Ok(())
}

async fn end_reason(
    state: &GatewayState,
    agent: Uuid,
    number: i64,
) -> Result<Refusal, ServiceError> {
    let found =
        state.services.with_store(move |store| store.remote_agents().session(agent.into())).await;
    match found {
        Ok(found) if found.revoked => Ok(revoked().1),
        Ok(found) if found.number > number => Ok(superseded()),
        Ok(_) => {
            // The store gave this gateway up for lack of heartbeats.
            let reason = "the gateway lost contact with the store; reconnect".to_owned();
            Ok(Refusal { code: RefusalCode::Unavailable, reason })
        }
        Err(ServiceError::Store(StoreError::NotFound { .. })) => Ok(revoked().1),
        Err(error) => Err(error),
    }
}
