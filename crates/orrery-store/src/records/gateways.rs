//! Gateways: the processes that remote agents connect to.
//!
//! Heartbeats are compared by one clock: the database's, where several machines use it.

use std::time::Duration;

use orrery_model::{GatewayId, RemoteAgentId, Timestamp};

use crate::records::{Gateways, Transactions as _, encode_latencies, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, values};

/// A process that remote agents connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayRecord {
    pub uuid: GatewayId,
    /// Address for agents, as `host:port`: several gateways behind a load balancer have the same.
    pub address: String,
    /// Address of this gateway for other servers.
    pub peer_address: String,
    pub started: Timestamp,
    pub seen: Timestamp,
}

/// Heartbeat of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct GatewayHeartbeat<'a> {
    pub uuid: GatewayId,
    pub address: &'a str,
    pub peer_address: &'a str,
    /// Last round trips of its sessions; `None` if they are as before.
    pub latencies: Option<&'a [(RemoteAgentId, Duration)]>,
}

const COLUMNS: &str = "SELECT g.id, g.address, g.peer_address, g.started, g.seen FROM gateway g";

fn from_row(row: &dyn Row) -> Result<GatewayRecord> {
    Ok(GatewayRecord {
        uuid: row.id(0)?,
        address: row.string(1)?,
        peer_address: row.string(2)?,
        started: row.time(3)?,
        seen: row.time(4)?,
    })
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Current time for heartbeats.
fn clock(sql: &mut dyn Sql) -> Result<Timestamp> {
    let select = format!("SELECT {}", sql.now_expression());
    Ok(sql.first(&select, &[], |row| row.time(0))?.unwrap_or_default())
}

/// Deletes a gateway. Its agents get its last heartbeat as theirs.
fn delete(sql: &mut dyn Sql, uuid: GatewayId, seen: Timestamp, now: Timestamp) -> Result<usize> {
    let ended = "UPDATE remote_agent SET gateway = NULL, seen = ?2 WHERE gateway = ?1 \
         RETURNING id, environment";
    let ended: Vec<(RemoteAgentId, i64)> =
        sql.all(ended, values![uuid, seen], |row| Ok((row.id(0)?, row.int(1)?)))?;
    for (agent, environment) in &ended {
        record_change(
            sql,
            Some(EnvironmentKey(*environment)),
            "remote_agent",
            &agent.to_string(),
            now,
        )?;
    }
    sql.run("DELETE FROM gateway WHERE id = ?1", values![uuid])?;
    Ok(ended.len())
}

impl Gateways<'_> {
    /// Records the heartbeat of a gateway and all its sessions. Deletes gateways without a
    /// heartbeat for longer than `alive_for`, and ends their sessions: returns the number of those.
    ///
    /// # Errors
    /// Database errors.
    pub fn record_heartbeat(
        &self,
        gateway: &GatewayHeartbeat<'_>,
        alive_for: Duration,
    ) -> Result<usize> {
        let GatewayHeartbeat { uuid, address, peer_address, latencies } = gateway;
        let latencies = latencies.map(encode_latencies);
        self.transact(|sql| {
            let now = clock(sql)?;
            let insert = "INSERT INTO gateway (id, address, peer_address, started, seen) \
                 VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT (id) DO UPDATE SET seen = excluded.seen";
            sql.run(insert, values![uuid, *address, *peer_address, now])?;
            if let Some(latencies) = &latencies {
                let update = "UPDATE gateway SET latencies = ?2 WHERE id = ?1";
                sql.run(update, values![uuid, latencies.as_slice()])?;
            }
            let dead = "SELECT id, seen FROM gateway WHERE seen < ?1";
            let before = Timestamp(now.0.saturating_sub(micros(alive_for)));
            let dead = sql.all(dead, values![before], |row| Ok((row.id(0)?, row.time(1)?)))?;
            let mut ended = 0;
            for (uuid, seen) in dead {
                ended += delete(sql, uuid, seen, now)?;
            }
            Ok(ended)
        })
    }

    /// Deletes a gateway and ends all its sessions.
    ///
    /// # Errors
    /// Database errors.
    pub fn delete(&self, uuid: GatewayId) -> Result<()> {
        self.transact(|sql| {
            let now = clock(sql)?;
            delete(sql, uuid, now, now).map(drop)
        })
    }

    /// Gateways with a heartbeat within this time, latest first.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(&self, alive_for: Duration) -> Result<Vec<GatewayRecord>> {
        self.query(|sql| {
            let clock = sql.now_expression();
            let select =
                format!("{COLUMNS} WHERE g.seen >= {clock} - ?1 ORDER BY g.seen DESC, g.id");
            sql.all(&select, values![micros(alive_for)], from_row)
        })
    }

    /// The live gateway that has the session of a remote agent, if any.
    ///
    /// # Errors
    /// Database errors.
    pub fn of_agent(
        &self,
        agent: RemoteAgentId,
        alive_for: Duration,
    ) -> Result<Option<GatewayRecord>> {
        self.query(|sql| {
            let clock = sql.now_expression();
            let select = format!(
                "{COLUMNS} JOIN remote_agent a ON a.gateway = g.id \
                 WHERE a.id = ?1 AND g.seen >= {clock} - ?2"
            );
            sql.first(&select, values![agent, micros(alive_for)], from_row)
        })
    }

    /// Sessions that the store assigns to a gateway: remote agents and the numbers of their
    /// sessions.
    ///
    /// # Errors
    /// Database errors.
    pub fn sessions(&self, uuid: GatewayId) -> Result<Vec<(RemoteAgentId, i64)>> {
        let select = "SELECT id, session FROM remote_agent WHERE gateway = ?1 ORDER BY id";
        self.query(|sql| sql.all(select, values![uuid], |row| Ok((row.id(0)?, row.int(1)?))))
    }
}
