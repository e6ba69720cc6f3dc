//! Invitations: single-use tokens with which a machine becomes a remote agent. Only token hashes
//! are stored.

use orrery_model::{InvitationId, RemoteAgentId, RequestId, Timestamp, TokenId, id_kind};

use crate::records::remote_agents::{RemoteAgentRecord, agent_with_id};
use crate::records::requests::insert_request;
use crate::records::tokens::is_active;
use crate::records::{Invitations, Transactions as _, record_change};
use crate::sql::{RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, NewRequest, RequestKind, Result, Selection, StoreError, values};

/// An invitation to be created.
#[derive(Clone, Debug)]
pub struct NewInvitationRecord {
    pub uuid: InvitationId,
    /// Hash of the text that the operator gets to see.
    pub hash: [u8; 32],
    /// The agents that the joining machine may serve.
    pub names: Vec<String>,
    pub created: Timestamp,
    pub expires: Timestamp,
    /// The API token that created it; the invitation ends with that token.
    pub token: Option<TokenId>,
}

/// An invitation that no machine has used and that has not expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInvitation {
    pub uuid: InvitationId,
    pub names: Vec<String>,
    pub created: Timestamp,
    pub expires: Timestamp,
}

/// A machine that requests to join.
#[derive(Clone, Debug)]
pub struct JoiningAgent {
    /// The id that it gets if it is new.
    pub uuid: RemoteAgentId,
    /// SHA-256 of its public key.
    pub key: [u8; 32],
    /// The agents that it requests to serve; empty for all of the invitation.
    pub names: Vec<String>,
    /// Facts about its machine, as a JSON object.
    pub facts: serde_json::Value,
    pub version: String,
}

/// Outcome of a request to join.
#[derive(Clone, Debug, PartialEq)]
pub enum JoinOutcome {
    /// Joined now, or joined before with the same token and key.
    Joined(Box<RemoteAgentRecord>),
    /// There is no such invitation.
    Unknown,
    Expired,
    /// Another machine joined with it.
    Used,
    /// The agent that joined with it was revoked since.
    Revoked,
    /// The invitation is not for this agent.
    NotInvited(String),
    /// Another remote agent serves this agent.
    Taken {
        name: String,
        by: RemoteAgentId,
    },
}

/// The first name that an unrevoked remote agent serves, with that agent.
fn find_serving_agent(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    names: &[String],
) -> Result<Option<(String, RemoteAgentId)>> {
    let select = "SELECT n.agent FROM remote_agent_name n JOIN remote_agent a ON a.id = n.agent \
         WHERE n.environment = ?1 AND n.name = ?2 AND a.revoked IS NULL";
    for name in names {
        let found = sql.first(select, values![environment.0, name], |row| row.id(0))?;
        if let Some(by) = found {
            return Ok(Some((name.clone(), by)));
        }
    }
    Ok(None)
}

fn unreadable(error: &serde_json::Error) -> StoreError {
    StoreError::Unreadable(format!("the names of an invitation: {error}"))
}

impl Invitations<'_> {
    /// Stores an invitation.
    ///
    /// # Errors
    /// `Conflict` if a remote agent serves one of the names; database errors.
    pub fn create(&self, environment: EnvironmentKey, new: &NewInvitationRecord) -> Result<()> {
        let names = serde_json::to_string(&new.names).map_err(|error| unreadable(&error))?;
        self.transact(|sql| {
            if let Some((name, by)) = find_serving_agent(sql, environment, &new.names)? {
                let by = by.to_string();
                return Err(StoreError::Conflict(format!(
                    "{name:?} is served by the remote agent {by}; revoke it first"
                )));
            }
            // An expired invitation is deleted, so that its token reveals nothing.
            sql.run("DELETE FROM invitation WHERE expires < ?1", values![new.created])?;
            let insert = "INSERT INTO invitation (id, environment, hash, names, created, expires, \
                 token) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            let NewInvitationRecord { uuid, hash, created, expires, token, .. } = new;
            sql.run(
                insert,
                values![uuid, environment.0, hash, &names, *created, *expires, *token],
            )?;
            record_change(sql, Some(environment), "invitation", &uuid.to_string(), *created)
        })
    }

    /// Open invitations, oldest first.
    ///
    /// # Errors
    /// Database errors.
    pub fn open(&self, environment: EnvironmentKey, now: Timestamp) -> Result<Vec<OpenInvitation>> {
        let select = "SELECT id, names, created, expires FROM invitation \
             WHERE environment = ?1 AND expires > ?2 AND used_by IS NULL ORDER BY created, id";
        self.query(|sql| {
            sql.all(select, values![environment.0, now], |row| {
                let names =
                    serde_json::from_str(row.str(1)?).map_err(|error| unreadable(&error))?;
                let (created, expires) = (row.time(2)?, row.time(3)?);
                Ok(OpenInvitation { uuid: row.id(0)?, names, created, expires })
            })
        })
    }

    /// Withdraws an open invitation: its token is refused from now on.
    ///
    /// # Errors
    /// `NotFound` if it does not exist, or a machine has used it.
    pub fn withdraw(
        &self,
        environment: EnvironmentKey,
        uuid: InvitationId,
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| {
            let delete = "DELETE FROM invitation \
                 WHERE id = ?1 AND environment = ?2 AND used_by IS NULL";
            if sql.run(delete, values![uuid, environment.0])? == 0 {
                return Err(StoreError::not_found("open invitation", uuid.to_string()));
            }
            record_change(sql, Some(environment), "invitation", &uuid.to_string(), now)
        })
    }

    /// Creates a remote agent for the token of an invitation, and requests a repair of the agents
    /// that it serves. A repetition with the same key returns the same agent.
    ///
    /// # Errors
    /// Database errors; a refusal is an outcome.
    pub fn join(
        &self,
        hash: &[u8; 32],
        joining: &JoiningAgent,
        now: Timestamp,
    ) -> Result<JoinOutcome> {
        let facts = joining.facts.to_string();
        // Unauthenticated: a request with an unknown token must not block writers.
        let known = "SELECT 1 FROM invitation WHERE hash = ?1";
        if self.query(|sql| sql.first(known, values![hash], |row| row.int(0)))?.is_none() {
            return Ok(JoinOutcome::Unknown);
        }
        self.transact(|sql| {
            let select = "SELECT environment, names, expires, used_by, id, token FROM invitation \
                 WHERE hash = ?1";
            let found = sql.first(select, values![hash], |row| {
                let names: Vec<String> =
                    serde_json::from_str(row.str(1)?).map_err(|error| unreadable(&error))?;
                let environment = EnvironmentKey(row.int(0)?);
                Ok((
                    environment,
                    names,
                    row.time(2)?,
                    row.maybe_id(3)?,
                    row.id::<id_kind::Invitation>(4)?,
                    row.maybe_id(5)?,
                ))
            })?;
            let Some((environment, invited, expires, used_by, invitation, token)) = found else {
                return Ok(JoinOutcome::Unknown);
            };
            if expires <= now {
                return Ok(JoinOutcome::Expired);
            }
            if let (None, Some(token)) = (used_by, token)
                && !is_active(sql, token, now)?
            {
                return Ok(JoinOutcome::Expired);
            }
            if let Some(agent) = used_by {
                return Ok(match agent_with_id(sql, agent)? {
                    Some(agent) if agent.key != joining.key => JoinOutcome::Used,
                    Some(agent) if agent.revoked.is_some() => JoinOutcome::Revoked,
                    Some(agent) => JoinOutcome::Joined(Box::new(agent)),
                    None => JoinOutcome::Used,
                });
            }
            if let Some(other) = joining.names.iter().find(|name| !invited.contains(name)) {
                return Ok(JoinOutcome::NotInvited(other.clone()));
            }
            let names = if joining.names.is_empty() { &invited } else { &joining.names };
            if let Some((name, by)) = find_serving_agent(sql, environment, names)? {
                return Ok(JoinOutcome::Taken { name, by });
            }
            let insert = "INSERT INTO remote_agent (id, environment, key, facts, version, joined) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let JoiningAgent { uuid, key, version, .. } = joining;
            sql.run(insert, values![uuid, environment.0, key, &facts, version, now])?;
            for name in names {
                let insert = "INSERT INTO remote_agent_name (environment, name, agent) \
                     VALUES (?1, ?2, ?3) ON CONFLICT (environment, name) DO UPDATE \
                     SET agent = excluded.agent";
                sql.run(insert, values![environment.0, name, uuid])?;
            }
            let update = "UPDATE invitation SET used_by = ?2 WHERE id = ?1";
            sql.run(update, values![invitation, uuid])?;
            record_change(sql, Some(environment), "remote_agent", &uuid.to_string(), now)?;
            // The state recorded for the agent's former machine says nothing about this one.
            // An agent joins once: the request takes over its id.
            let request = NewRequest {
                uuid: RequestId::new(uuid.uuid()),
                kind: &RequestKind::Repair(Selection::of_agents(names.iter().cloned())),
            };
            insert_request(sql, environment, &request, now)?;
            let agent = agent_with_id(sql, *uuid)?;
            let agent =
                agent.ok_or_else(|| StoreError::not_found("remote agent", uuid.to_string()));
            Ok(JoinOutcome::Joined(Box::new(agent?)))
        })
    }
}
