//! Signs of life: the store learns that a gateway and its sessions are alive, and the gateway which of its sessions are over.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use orrery_agent::protocol::{Refusal, RefusalCode};
use orrery_store::{AgentSession, ChangeNote, LiveGateway, StoreError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;

use crate::problem::ServerError;

use super::admission::revoked;
use super::hub::superseded;
use super::{ALIVE_WITHIN, GatewayState};

/// One statement, which counts for all sessions, so often.
const EVERY: Duration = Duration::from_secs(10);
/// So many agents are looked at one by one; beyond, all are.
const ONE_BY_ONE: usize = 64;
/// After the store did not answer.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A session that was opened in the store a moment ago may not be with the hub yet, and one that is with the hub is in the store: so only
/// the hub's are looked at. The kind of change that concerns them:
const CHANGE: &str = "remote_agent";

/// Where a gateway is reached.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pub(super) agents: String,
    pub(super) peers: String,
}

/// Tells the store that this gateway is alive, until it stops; ends sessions that are over as soon as the store says so.
pub(super) async fn live(state: GatewayState, addresses: Addresses) {
    let mut timer = tokio::time::interval(EVERY);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changes = None;
    loop {
        if changes.is_none() {
            match state.app.tail().listen(&state.app).await {
                Ok(listening) => changes = Some(listening),
                Err(error) => tracing::warn!(%error, "the gateway cannot follow changes now"),
            }
        }
        tokio::select! {
            () = state.stop.cancelled() => break,
            _ = timer.tick() => {
                if let Err(error) = beat(&state, &addresses).await {
                    tracing::warn!(%error, "the gateway cannot say that it is alive");
                    timer.reset_at(Instant::now() + TRY_AGAIN_AFTER);
                }
            }
            heard = async {
                match &mut changes {
                    Some(changes) => changes.recv().await,
                    None => std::future::pending().await,
                }
            } => {
                let concerned = match heard {
                    Ok(note) if note.kind == CHANGE => gather(&note, changes.as_mut()),
                    Ok(_) => Concerned::Agents(BTreeSet::new()),
                    Err(RecvError::Lagged(_)) => Concerned::All,
                    Err(RecvError::Closed) => {
                        changes = None;
                        tokio::time::sleep(TRY_AGAIN_AFTER).await;
                        Concerned::All
                    }
                };
                if let Err(error) = end_those_of(&state, concerned).await {
                    tracing::warn!(%error, "sessions cannot be compared with the store");
                    timer.reset_at(Instant::now() + TRY_AGAIN_AFTER);
                }
            }
        }
    }
    let id = state.id.into_bytes();
    let gone = state.app.change(move |store| store.records().gateway_is_gone(&id)).await;
    if let Err(error) = gone {
        tracing::warn!(%error, "the end of the gateway is not noted; it is forgotten by and by");
    }
}

/// Whose sessions may be over.
enum Concerned {
    All,
    Agents(BTreeSet<Uuid>),
}

/// Those of a change and of all that has come since: when thousands of agents come at once, each of them is no reason to look at all.
fn gather(first: &ChangeNote, more: Option<&mut broadcast::Receiver<ChangeNote>>) -> Concerned {
    let mut agents = BTreeSet::new();
    agents.extend(first.subject.parse::<Uuid>());
    let Some(more) = more else { return Concerned::Agents(agents) };
    loop {
        match more.try_recv() {
            Ok(note) if note.kind == CHANGE => agents.extend(note.subject.parse::<Uuid>()),
            Ok(_) => {}
            Err(TryRecvError::Lagged(_)) => return Concerned::All,
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
        }
    }
    if agents.len() > ONE_BY_ONE { Concerned::All } else { Concerned::Agents(agents) }
}

async fn end_those_of(state: &GatewayState, concerned: Concerned) -> Result<(), ServerError> {
    let Concerned::Agents(agents) = concerned else { return end_what_is_over(state).await };
    for agent in agents {
        let Some(number) = state.app.hub().session(agent) else { continue };
        let found = state
            .app
            .with_store(move |store| match store.records().agent_session(agent.as_bytes()) {
                Err(StoreError::NotFound { .. }) => Ok(None),
                found => found.map(Some),
            })
            .await?;
        let me = Some(state.id.into_bytes());
        let is_counted = |found: &AgentSession| found.gateway == me && found.number >= number;
        if !found.as_ref().is_some_and(is_counted) {
            end(state, agent, number).await?;
        }
    }
    Ok(())
}

async fn end(state: &GatewayState, agent: Uuid, number: i64) -> Result<(), ServerError> {
    let refusal = why(state, agent, number).await?;
    tracing::info!(%agent, session = number, reason = refusal.reason, "a session is over");
    state.app.hub().end(agent, number, refusal);
    Ok(())
}

/// Tells the store that this gateway is alive, and ends what is over.
pub(super) async fn beat(state: &GatewayState, addresses: &Addresses) -> Result<(), ServerError> {
    let (uuid, addresses) = (state.id.into_bytes(), addresses.clone());
    let ended = state.app.with_store(move |store| {
        let gateway =
            LiveGateway { uuid, address: &addresses.agents, peer_address: &addresses.peers };
        store.records().gateway_is_alive(&gateway, ALIVE_WITHIN)
    });
    if ended.await? > 0 {
        state.app.nudge();
    }
    end_what_is_over(state).await
}

/// Ends sessions that the store does not count as this gateway's: the agent was revoked, or has a newer session elsewhere.
async fn end_what_is_over(state: &GatewayState) -> Result<(), ServerError> {
    let here = state.app.hub().sessions();
    if here.is_empty() {
        return Ok(());
    }
    let id = state.id.into_bytes();
    let counted =
        state.app.with_store(move |store| store.records().sessions_of_gateway(&id)).await?;
    let counted: HashMap<Uuid, i64> =
        counted.into_iter().map(|(agent, number)| (Uuid::from_bytes(agent), number)).collect();
    for (agent, number) in here {
        // A greater number is of a session that is about to begin here.
        if counted.get(&agent).is_some_and(|counted| *counted >= number) {
            continue;
        }
        end(state, agent, number).await?;
    }
    Ok(())
}

async fn why(state: &GatewayState, agent: Uuid, number: i64) -> Result<Refusal, ServerError> {
    let found =
        state.app.with_store(move |store| store.records().agent_session(agent.as_bytes())).await;
    match found {
        Ok(found) if found.revoked => Ok(revoked().1),
        Ok(found) if found.number > number => Ok(superseded()),
        Ok(_) => {
            // Nothing was heard of this gateway for so long that it was given up.
            let reason = "the gateway was cut off from the others; come again".to_owned();
            Ok(Refusal { code: RefusalCode::Unavailable, reason })
        }
        Err(ServerError::Store(StoreError::NotFound { .. })) => Ok(revoked().1),
        Err(error) => Err(error),
    }
}
