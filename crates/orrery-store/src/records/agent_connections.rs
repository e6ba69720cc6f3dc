//! Connections to the machines of agents: their states and round trips, for people.
//!
//! Engines report those over SSH, gateways those of remote agents. A report is valid as long as its
//! author is: the lease of the engine, or the session at the gateway.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use orrery_model::{RemoteAgentId, Timestamp};

use crate::encoding::Code as _;
use crate::records::{Agents, Gateways, Transactions as _};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{ConnectionPhase, EnvironmentKey, Result, StoreError, values};

/// Bytes of one entry of `gateway.latencies`.
const ENTRY: usize = 20;

/// Connection of an engine to the machine of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConnectionRecord {
    pub phase: ConnectionPhase,
    /// Last measured round trip.
    pub latency: Option<Duration>,
    /// Time before which no attempt is made.
    pub retry_at: Option<Timestamp>,
    /// Reason for the last failure; empty if there was none.
    pub problem: String,
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl Agents<'_> {
    /// Records the connections of agents; `None` removes an entry. Needs a lease.
    ///
    /// # Errors
    /// Database errors; a lost lease.
    pub fn record_connections(
        &self,
        environment: EnvironmentKey,
        connections: &[(String, Option<AgentConnectionRecord>)],
    ) -> Result<()> {
        let Some(lease) = self.access().lease else {
            return Err(StoreError::Conflict("connections are recorded under a lease".to_owned()));
        };
        let epoch = i64::try_from(lease.epoch()).unwrap_or(i64::MAX);
        let insert = "INSERT INTO agent_connection \
             (environment, name, epoch, state, latency, retry_at, problem) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (environment, name) DO UPDATE SET \
             epoch = excluded.epoch, state = excluded.state, latency = excluded.latency, \
             retry_at = excluded.retry_at, problem = excluded.problem";
        let delete = "DELETE FROM agent_connection WHERE environment = ?1 AND name = ?2";
        self.transact(|sql| {
            for (name, connection) in connections {
                let Some(connection) = connection else {
                    sql.run(delete, values![environment.0, name])?;
                    continue;
                };
                let AgentConnectionRecord { phase, latency, retry_at, problem } = connection;
                let latency = latency.map(micros);
                sql.run(
                    insert,
                    values![environment.0, name, epoch, phase.code(), latency, *retry_at, problem],
                )?;
            }
            Ok(())
        })
    }

    /// Connections of agents, by name, as the current holder of the lease reported them.
    ///
    /// # Errors
    /// Database errors.
    pub fn connections(
        &self,
        environment: EnvironmentKey,
    ) -> Result<BTreeMap<String, AgentConnectionRecord>> {
        let select = "SELECT c.name, c.state, c.latency, c.retry_at, c.problem \
             FROM agent_connection c JOIN lease l ON l.environment = c.environment \
             AND l.held = 1 AND l.epoch = c.epoch WHERE c.environment = ?1";
        let found = self.query(|sql| {
            sql.all(select, values![environment.0], |row| {
                let latency = row.integer(2)?.and_then(|micros| u64::try_from(micros).ok());
                let record = AgentConnectionRecord {
                    phase: ConnectionPhase::from_code(row.int(1)?)?,
                    latency: latency.map(Duration::from_micros),
                    retry_at: row.maybe_time(3)?,
                    problem: row.string(4)?,
                };
                Ok((row.string(0)?, record))
            })
        })?;
        Ok(found.into_iter().collect())
    }
}

/// Encodes round trips for `gateway.latencies`.
pub(crate) fn encode_latencies(latencies: &[(RemoteAgentId, Duration)]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(latencies.len() * ENTRY);
    for (agent, latency) in latencies {
        encoded.extend_from_slice(agent.uuid().as_bytes());
        let micros = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
        encoded.extend_from_slice(&micros.to_be_bytes());
    }
    encoded
}

fn decode_latencies(encoded: &[u8], into: &mut HashMap<RemoteAgentId, Duration>) {
    for entry in encoded.chunks_exact(ENTRY) {
        if let Some((agent, micros)) = entry.split_first_chunk::<16>()
            && let Ok(micros) = <[u8; 4]>::try_from(micros)
        {
            let latency = Duration::from_micros(u32::from_be_bytes(micros).into());
            into.insert(RemoteAgentId::from_bytes(*agent), latency);
        }
    }
}

impl Gateways<'_> {
    /// Last round trips of the sessions of an environment's remote agents.
    ///
    /// # Errors
    /// Database errors.
    pub fn latencies(
        &self,
        environment: EnvironmentKey,
    ) -> Result<HashMap<RemoteAgentId, Duration>> {
        let select = "SELECT g.latencies FROM gateway g WHERE g.latencies IS NOT NULL \
             AND g.id IN (SELECT a.gateway FROM remote_agent a WHERE a.environment = ?1)";
        self.query(|sql| {
            let mut latencies = HashMap::new();
            sql.visit(select, values![environment.0], &mut |row| {
                decode_latencies(row.blob(0)?.unwrap_or_default(), &mut latencies);
                Ok(())
            })?;
            Ok(latencies)
        })
    }
}
