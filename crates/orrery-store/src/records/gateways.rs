//! Gateways: which processes remote agents are connected to.
//!
//! Whether one is alive is told by one clock: the database's, where several machines use it.

use std::time::Duration;

use orrery_model::Timestamp;

use crate::records::{Records, note};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, uuid_text, values};

/// A process that remote agents dial in to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayRecord {
    pub uuid: [u8; 16],
    /// Where agents reach it, as `host:port`: behind a balancer, several have the same.
    pub address: String,
    /// Where other servers reach just this one.
    pub peer_address: String,
    pub started: Timestamp,
    pub seen: Timestamp,
}

/// A gateway that says that it is alive.
#[derive(Clone, Copy, Debug)]
pub struct LiveGateway<'a> {
    pub uuid: [u8; 16],
    pub address: &'a str,
    pub peer_address: &'a str,
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

/// The time by which it is decided who is alive.
fn clock(sql: &mut dyn Sql) -> Result<Timestamp> {
    let select = format!("SELECT {}", sql.clock());
    Ok(sql.first(&select, &[], |row| row.time(0))?.unwrap_or_default())
}

/// Forgets a gateway. Its agents were last seen when it was.
fn forget(sql: &mut dyn Sql, uuid: &[u8; 16], seen: Timestamp, now: Timestamp) -> Result<usize> {
    let ended = "UPDATE remote_agent SET gateway = NULL, seen = ?2 WHERE gateway = ?1 \
         RETURNING id, environment";
    let ended = sql.all(ended, values![uuid, seen], |row| Ok((row.id(0)?, row.int(1)?)))?;
    for (agent, environment) in &ended {
        note(sql, Some(EnvironmentKey(*environment)), "remote_agent", &uuid_text(agent), now)?;
    }
    sql.run("DELETE FROM gateway WHERE id = ?1", values![uuid])?;
    Ok(ended.len())
}

impl Records<'_> {
    /// Notes that a gateway is alive, and with it all its sessions. Gateways that were not seen for longer than `alive_for` are forgotten, and
    /// their sessions are over: the answer is how many.
    ///
    /// # Errors
    /// Those of the database.
    pub fn gateway_is_alive(
        &self,
        gateway: &LiveGateway<'_>,
        alive_for: Duration,
    ) -> Result<usize> {
        let LiveGateway { uuid, address, peer_address } = gateway;
        self.change(|sql| {
            let now = clock(sql)?;
            let insert = "INSERT INTO gateway (id, address, peer_address, started, seen) \
                 VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT (id) DO UPDATE SET seen = excluded.seen";
            sql.run(insert, values![uuid, *address, *peer_address, now])?;
            let dead = "SELECT id, seen FROM gateway WHERE seen < ?1";
            let before = Timestamp(now.0.saturating_sub(micros(alive_for)));
            let dead = sql.all(dead, values![before], |row| Ok((row.id(0)?, row.time(1)?)))?;
            let mut ended = 0;
            for (uuid, seen) in dead {
                ended += forget(sql, &uuid, seen, now)?;
            }
            Ok(ended)
        })
    }

    /// Notes that a gateway is gone, and with it all its sessions.
    ///
    /// # Errors
    /// Those of the database.
    pub fn gateway_is_gone(&self, uuid: &[u8; 16]) -> Result<()> {
        self.change(|sql| {
            let now = clock(sql)?;
            forget(sql, uuid, now, now).map(drop)
        })
    }

    /// Gateways that are alive, which are those that were seen within this time; the latest first.
    ///
    /// # Errors
    /// Those of the database.
    pub fn gateways(&self, alive_for: Duration) -> Result<Vec<GatewayRecord>> {
        self.look(|sql| {
            let clock = sql.clock();
            let select =
                format!("{COLUMNS} WHERE g.seen >= {clock} - ?1 ORDER BY g.seen DESC, g.id");
            sql.all(&select, values![micros(alive_for)], from_row)
        })
    }

    /// The gateway that has the session of a remote agent, if it is alive.
    ///
    /// # Errors
    /// Those of the database.
    pub fn gateway_of_agent(
        &self,
        agent: &[u8; 16],
        alive_for: Duration,
    ) -> Result<Option<GatewayRecord>> {
        self.look(|sql| {
            let clock = sql.clock();
            let select = format!(
                "{COLUMNS} JOIN remote_agent a ON a.gateway = g.id \
                 WHERE a.id = ?1 AND g.seen >= {clock} - ?2"
            );
            sql.first(&select, values![agent, micros(alive_for)], from_row)
        })
    }

    /// The sessions that the store counts as a gateway's: remote agents and the numbers of their sessions.
    ///
    /// # Errors
    /// Those of the database.
    pub fn sessions_of_gateway(&self, uuid: &[u8; 16]) -> Result<Vec<([u8; 16], i64)>> {
        let select = "SELECT id, session FROM remote_agent WHERE gateway = ?1 ORDER BY id";
        self.look(|sql| sql.all(select, values![uuid], |row| Ok((row.id(0)?, row.int(1)?))))
    }
}
