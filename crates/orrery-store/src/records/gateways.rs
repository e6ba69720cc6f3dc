//! Gateways: which processes remote agents are connected to.

use orrery_model::Timestamp;

use crate::records::Records;
use crate::sql::{Row, RowExt as _, SqlExt as _};
use crate::{Result, values};

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

const COLUMNS: &str = "SELECT id, address, peer_address, started, seen FROM gateway";

fn from_row(row: &dyn Row) -> Result<GatewayRecord> {
    Ok(GatewayRecord {
        uuid: row.id(0)?,
        address: row.string(1)?,
        peer_address: row.string(2)?,
        started: row.time(3)?,
        seen: row.time(4)?,
    })
}

impl Records<'_> {
    /// Notes that a gateway is alive, and with it all its sessions. Gateways that were not seen since `dead_before` are forgotten, and
    /// their sessions are over.
    ///
    /// # Errors
    /// Those of the database.
    pub fn gateway_is_alive(&self, gateway: &GatewayRecord, dead_before: Timestamp) -> Result<()> {
        let GatewayRecord { uuid, address, peer_address, started, seen } = gateway;
        self.change(|sql| {
            let insert = "INSERT INTO gateway (id, address, peer_address, started, seen) \
                 VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO UPDATE SET seen = excluded.seen";
            sql.run(insert, values![uuid, address, peer_address, *started, *seen])?;
            let sessions = "UPDATE remote_agent SET seen = ?2 WHERE gateway = ?1";
            sql.run(sessions, values![uuid, *seen])?;
            let dead = "SELECT id FROM gateway WHERE seen < ?1";
            for dead in sql.all(dead, values![dead_before], |row| row.id(0))? {
                let ended = "UPDATE remote_agent SET gateway = NULL WHERE gateway = ?1";
                sql.run(ended, values![&dead])?;
                sql.run("DELETE FROM gateway WHERE id = ?1", values![&dead])?;
            }
            Ok(())
        })
    }

    /// Notes that a gateway is gone, and with it all its sessions.
    ///
    /// # Errors
    /// Those of the database.
    pub fn gateway_is_gone(&self, uuid: &[u8; 16]) -> Result<()> {
        self.change(|sql| {
            let ended = "UPDATE remote_agent SET gateway = NULL WHERE gateway = ?1";
            sql.run(ended, values![uuid])?;
            sql.run("DELETE FROM gateway WHERE id = ?1", values![uuid]).map(drop)
        })
    }

    /// Gateways that were seen since, the latest first.
    ///
    /// # Errors
    /// Those of the database.
    pub fn gateways(&self, since: Timestamp) -> Result<Vec<GatewayRecord>> {
        let select = format!("{COLUMNS} WHERE seen >= ?1 ORDER BY seen DESC, id");
        self.look(|sql| sql.all(&select, values![since], from_row))
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
