//! Remote agents: identities, the agents that they serve, and their sessions.

use std::collections::BTreeMap;

use orrery_model::{BootId, GatewayId, OfferedType, RemoteAgentId, RequestId, Timestamp, id_kind};

use crate::records::requests::insert_request;
use crate::records::{RemoteAgents, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, NewRequest, RequestKind, Result, Selection, StoreError, values};

#[derive(Clone, Debug, PartialEq)]
pub struct RemoteAgentRecord {
    pub uuid: RemoteAgentId,
    pub environment: EnvironmentKey,
    /// The agents that it serves, in the order of their names.
    pub names: Vec<String>,
    /// SHA-256 of the public key with which it joined.
    pub key: [u8; 32],
    /// Facts about its machine, as a JSON object.
    pub facts: serde_json::Value,
    /// Version of its program.
    pub version: String,
    /// Resource types of its own.
    pub offered: Vec<OfferedType>,
    pub joined: Timestamp,
    pub revoked: Option<Timestamp>,
    /// Number of its newest session; it grows with each.
    pub session: i64,
    /// The gateway that has the session; `None` without a session.
    pub gateway: Option<GatewayId>,
    /// Start of the newest session.
    pub connected: Option<Timestamp>,
    /// Coarse: during a session, the last heartbeat of its gateway.
    pub seen: Option<Timestamp>,
}

/// Connection of a remote agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSession {
    pub revoked: bool,
    /// Number of its newest session.
    pub number: i64,
    /// The gateway that has the session; `None` without a session.
    pub gateway: Option<GatewayId>,
    pub seen: Option<Timestamp>,
}

/// Data with which an agent opens a session.
#[derive(Clone, Debug)]
pub struct NewAgentSession<'a> {
    pub gateway: GatewayId,
    /// The process of the agent.
    pub boot: BootId,
    pub version: &'a str,
    pub facts: &'a serde_json::Value,
    /// Resource types of its own.
    pub offered: &'a [OfferedType],
}

/// Begin or end of a session.
#[derive(Clone, Debug)]
pub enum SessionChange<'a> {
    /// Replaces the session before.
    Open { agent: RemoteAgentId, session: NewAgentSession<'a> },
    /// Does not affect a newer session.
    Close { agent: RemoteAgentId, number: i64 },
}

impl SessionChange<'_> {
    fn agent(&self) -> RemoteAgentId {
        match self {
            SessionChange::Open { agent, .. } | SessionChange::Close { agent, .. } => *agent,
        }
    }
}

/// A session that was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenedSession {
    /// Number, greater than those of all earlier sessions.
    pub number: i64,
    /// True if it replaces a session that seemed alive, of another process of the agent.
    pub from_another_process: bool,
}

/// One agent that a remote agent serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedName {
    pub name: String,
    pub agent: RemoteAgentId,
    pub revoked: bool,
    pub session: i64,
    pub gateway: Option<GatewayId>,
    pub seen: Option<Timestamp>,
    /// Resource types of its own, in its newest session.
    pub offered: Vec<OfferedType>,
}

/// Only a session at a known gateway counts.
const COLUMNS: &str = "SELECT a.id, a.environment, a.key, a.facts, a.version, a.joined, a.revoked, \
     a.session, g.id, a.connected, coalesce(g.seen, a.seen), a.offered \
     FROM remote_agent a LEFT JOIN gateway g ON g.id = a.gateway";

fn from_row(row: &dyn Row) -> Result<RemoteAgentRecord> {
    let key = row.blob(2)?.unwrap_or_default().try_into();
    Ok(RemoteAgentRecord {
        uuid: row.id(0)?,
        environment: EnvironmentKey(row.int(1)?),
        names: Vec::new(),
        key: key.map_err(|_| StoreError::Unreadable("the key of a remote agent".to_owned()))?,
        facts: row.json(3)?,
        version: row.string(4)?,
        joined: row.time(5)?,
        revoked: row.maybe_time(6)?,
        session: row.int(7)?,
        gateway: row.maybe_id(8)?,
        connected: row.maybe_time(9)?,
        seen: row.maybe_time(10)?,
        offered: offered_types(row, 11)?,
    })
}

fn offered_types(row: &dyn Row, column: usize) -> Result<Vec<OfferedType>> {
    let read = serde_json::from_str(&row.string(column)?);
    read.map_err(|_| StoreError::Unreadable("the types of a remote agent".to_owned()))
}

pub(crate) fn agent_with_id(
    sql: &mut dyn Sql,
    uuid: RemoteAgentId,
) -> Result<Option<RemoteAgentRecord>> {
    let select = format!("{COLUMNS} WHERE a.id = ?1");
    let Some(mut found) = sql.first(&select, values![uuid], from_row)? else { return Ok(None) };
    let names = "SELECT name FROM remote_agent_name WHERE agent = ?1 ORDER BY name";
    found.names = sql.all(names, values![uuid], |row| row.string(0))?;
    Ok(Some(found))
}

fn unknown_agent(uuid: RemoteAgentId) -> StoreError {
    StoreError::not_found("remote agent", uuid.to_string())
}

impl RemoteAgents<'_> {
    /// Remote agents of an environment in the order in which they joined, after a position in that
    /// order.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
        &self,
        environment: EnvironmentKey,
        after: Option<(Timestamp, RemoteAgentId)>,
        limit: usize,
    ) -> Result<Vec<RemoteAgentRecord>> {
        let (joined, id) =
            after.unwrap_or((Timestamp(i64::MIN), RemoteAgentId::from_bytes([0; 16])));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let select = format!(
            "{COLUMNS} WHERE a.environment = ?1 AND (a.joined, a.id) > (?2, ?3) \
             ORDER BY a.joined, a.id LIMIT ?4"
        );
        let names = "SELECT n.agent, n.name FROM remote_agent_name n WHERE n.agent IN \
             (SELECT a.id FROM remote_agent a WHERE a.environment = ?1 \
             AND (a.joined, a.id) > (?2, ?3) ORDER BY a.joined, a.id LIMIT ?4) ORDER BY n.name";
        self.query(|sql| {
            let page = values![environment.0, joined, id, limit];
            let mut found = sql.all(&select, page, from_row)?;
            let mut served: BTreeMap<RemoteAgentId, Vec<String>> = BTreeMap::new();
            sql.visit(names, page, &mut |row| {
                served.entry(row.id(0)?).or_default().push(row.string(1)?);
                Ok(())
            })?;
            for agent in &mut found {
                agent.names = served.remove(&agent.uuid).unwrap_or_default();
            }
            Ok(found)
        })
    }

    /// The remote agent that serves an agent, also if it was revoked.
    ///
    /// # Errors
    /// Database errors.
    pub fn serving(
        &self,
        environment: EnvironmentKey,
        name: &str,
    ) -> Result<Option<RemoteAgentRecord>> {
        let select = "SELECT agent FROM remote_agent_name WHERE environment = ?1 AND name = ?2";
        self.query(|sql| {
            match sql.first(select, values![environment.0, name], |row| row.id(0))? {
                Some(agent) => agent_with_id(sql, agent),
                None => Ok(None),
            }
        })
    }

    /// The remote agent with an id.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn get(&self, uuid: RemoteAgentId) -> Result<RemoteAgentRecord> {
        self.query(|sql| agent_with_id(sql, uuid))?.ok_or_else(|| unknown_agent(uuid))
    }

    /// Connection of a remote agent.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn session(&self, uuid: RemoteAgentId) -> Result<AgentSession> {
        let select = "SELECT a.revoked, a.session, g.id, coalesce(g.seen, a.seen) \
             FROM remote_agent a LEFT JOIN gateway g ON g.id = a.gateway WHERE a.id = ?1";
        let found = self.query(|sql| {
            sql.first(select, values![uuid], |row| {
                Ok(AgentSession {
                    revoked: row.integer(0)?.is_some(),
                    number: row.int(1)?,
                    gateway: row.maybe_id(2)?,
                    seen: row.maybe_time(3)?,
                })
            })
        });
        found?.ok_or_else(|| unknown_agent(uuid))
    }

    /// Agents of an environment that remote agents serve, by name; revoked remote agents included.
    ///
    /// # Errors
    /// Database errors.
    pub fn served_names(&self, environment: EnvironmentKey) -> Result<Vec<ServedName>> {
        let select = "SELECT n.name, n.agent, a.revoked, a.session, g.id, \
             coalesce(g.seen, a.seen), a.offered FROM remote_agent_name n \
             JOIN remote_agent a ON a.id = n.agent LEFT JOIN gateway g ON g.id = a.gateway \
             WHERE n.environment = ?1 ORDER BY n.name";
        self.query(|sql| {
            sql.all(select, values![environment.0], |row| {
                Ok(ServedName {
                    name: row.string(0)?,
                    agent: row.id(1)?,
                    revoked: row.integer(2)?.is_some(),
                    session: row.int(3)?,
                    gateway: row.maybe_id(4)?,
                    seen: row.maybe_time(5)?,
                    offered: offered_types(row, 6)?,
                })
            })
        })
    }

    /// Revokes a remote agent; its session ends. With `release`, the id of the request for a
    /// repair, its agents are served by the deploying process again; otherwise they wait for
    /// another remote agent. Idempotent.
    ///
    /// # Errors
    /// `NotFound` if the environment has none with this id.
    pub fn revoke(
        &self,
        environment: EnvironmentKey,
        uuid: RemoteAgentId,
        release: Option<RequestId>,
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| {
            let update = "UPDATE remote_agent SET revoked = coalesce(revoked, ?3), gateway = NULL \
                 WHERE environment = ?1 AND id = ?2";
            if sql.run(update, values![environment.0, uuid, now])? == 0 {
                return Err(unknown_agent(uuid));
            }
            if let Some(request) = release {
                let names = "DELETE FROM remote_agent_name WHERE agent = ?1 RETURNING name";
                let names = sql.all(names, values![uuid], |row| row.string(0))?;
                if !names.is_empty() {
                    let kind = &RequestKind::Repair(Selection::of_agents(names));
                    insert_request(sql, environment, &NewRequest { uuid: request, kind }, now)?;
                }
            }
            record_change(sql, Some(environment), "remote_agent", &uuid.to_string(), now)
        })
    }

    /// Deletes remote agents of an environment that were revoked before a time. A remote agent
    /// whose agents wait for another one stays: without it, they would be taken for agents of the
    /// machine that runs the server's handlers. Returns the number of deleted ones.
    ///
    /// # Errors
    /// Database errors.
    pub fn delete_revoked(&self, environment: EnvironmentKey, before: Timestamp) -> Result<u64> {
        let delete = "DELETE FROM remote_agent WHERE environment = ?1 AND revoked < ?2 AND NOT EXISTS \
             (SELECT 1 FROM remote_agent_name n WHERE n.agent = remote_agent.id)";
        self.transact(|sql| sql.run(delete, values![environment.0, before]))
    }

    /// Opens a session, which replaces the one before. `None` if the agent may not have one.
    ///
    /// # Errors
    /// As `record_sessions`.
    pub fn open_session(
        &self,
        agent: RemoteAgentId,
        new: &NewAgentSession<'_>,
        now: Timestamp,
    ) -> Result<Option<OpenedSession>> {
        let change = SessionChange::Open { agent, session: new.clone() };
        Ok(self.record_sessions(&[change], now)?.pop().flatten())
    }

    /// Records the end of a session. A newer one is not affected.
    ///
    /// # Errors
    /// Database errors.
    pub fn close_session(&self, agent: RemoteAgentId, number: i64, now: Timestamp) -> Result<()> {
        self.record_sessions(&[SessionChange::Close { agent, number }], now).map(drop)
    }

    /// Records sessions in one transaction, those of one agent in the given order. Returns for each
    /// change the session that it opened; `None` if the agent may not have one.
    ///
    /// # Errors
    /// `Conflict` if a gateway is not registered, because no process would end its sessions;
    /// database errors.
    pub fn record_sessions(
        &self,
        changes: &[SessionChange<'_>],
        now: Timestamp,
    ) -> Result<Vec<Option<OpenedSession>>> {
        // Two gateways lock the rows of their agents in the same order.
        let mut order: Vec<usize> = (0..changes.len()).collect();
        order.sort_by_key(|at| changes[*at].agent());
        self.transact(|sql| {
            let mut opened = vec![None; changes.len()];
            for at in &order {
                match &changes[*at] {
                    SessionChange::Open { agent, session } => {
                        opened[*at] = open(sql, *agent, session, now)?;
                    }
                    SessionChange::Close { agent, number } => close(sql, *agent, *number, now)?,
                }
            }
            Ok(opened)
        })
    }
}

fn open(
    sql: &mut dyn Sql,
    agent: RemoteAgentId,
    new: &NewAgentSession<'_>,
    now: Timestamp,
) -> Result<Option<OpenedSession>> {
    let gateway = "SELECT 1 FROM gateway WHERE id = ?1";
    if sql.first(gateway, values![new.gateway], |row| row.int(0))?.is_none() {
        let reason = "the gateway is not registered as alive".to_owned();
        return Err(StoreError::Conflict(reason));
    }
    let before = "SELECT a.environment, g.id, a.boot FROM remote_agent a \
         LEFT JOIN gateway g ON g.id = a.gateway WHERE a.id = ?1 AND a.revoked IS NULL";
    let before = sql.first(before, values![agent], |row| {
        Ok((EnvironmentKey(row.int(0)?), row.maybe_id::<id_kind::Gateway>(1)?, row.maybe_id(2)?))
    })?;
    let Some((environment, gateway, boot)) = before else { return Ok(None) };
    let facts = new.facts.to_string();
    let offered = serde_json::json!(new.offered).to_string();
    let update = "UPDATE remote_agent SET session = session + 1, gateway = ?2, boot = ?3, \
         version = ?4, facts = ?5, connected = ?6, seen = ?6, offered = ?7 \
         WHERE id = ?1 RETURNING session";
    let values = values![agent, new.gateway, new.boot, new.version, &facts, now, &offered];
    let number = sql.first(update, values, |row| row.int(0))?;
    let number = number.ok_or_else(|| unknown_agent(agent))?;
    record_change(sql, Some(environment), "remote_agent", &agent.to_string(), now)?;
    let from_another_process = gateway.is_some() && boot != Some(new.boot);
    Ok(Some(OpenedSession { number, from_another_process }))
}

fn close(sql: &mut dyn Sql, agent: RemoteAgentId, number: i64, now: Timestamp) -> Result<()> {
    let update = "UPDATE remote_agent SET gateway = NULL, seen = ?3 \
         WHERE id = ?1 AND session = ?2 AND gateway IS NOT NULL RETURNING environment";
    let found = sql.first(update, values![agent, number, now], |row| row.int(0))?;
    let Some(environment) = found.map(EnvironmentKey) else { return Ok(()) };
    record_change(sql, Some(environment), "remote_agent", &agent.to_string(), now)
}
