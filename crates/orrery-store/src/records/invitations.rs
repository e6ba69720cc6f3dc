//! Invitations: how a machine becomes a remote agent, once. Only hashes of their tokens are kept.

use orrery_model::Timestamp;

use crate::records::remote_agents::{RemoteAgentRecord, agent_with_id};
use crate::records::requests::insert_request;
use crate::records::tokens::is_in_force;
use crate::records::{Records, note};
use crate::sql::{RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, StoreError, uuid_text, values};

/// An invitation to be made.
#[derive(Clone, Debug)]
pub struct NewInvitation {
    pub uuid: [u8; 16],
    /// Of the text that the operator gets to see.
    pub hash: [u8; 32],
    /// The agents that whoever joins may serve.
    pub names: Vec<String>,
    pub created: Timestamp,
    pub expires: Timestamp,
    /// The token that it is made with, which it ends with.
    pub token: Option<[u8; 16]>,
}

/// A machine that wants to join.
#[derive(Clone, Debug)]
pub struct Joining {
    /// The id that it gets if it is new.
    pub uuid: [u8; 16],
    /// SHA-256 of its public key.
    pub key: [u8; 32],
    /// The agents that it wants to serve; empty for all that the invitation is for.
    pub names: Vec<String>,
    /// What it tells of itself, as a JSON object.
    pub facts: serde_json::Value,
    pub version: String,
}

/// What becomes of who wants to join.
#[derive(Clone, Debug, PartialEq)]
pub enum Join {
    /// It is a remote agent now, or was one since it joined with the same token and key before.
    Joined(Box<RemoteAgentRecord>),
    /// There is no such invitation.
    Unknown,
    Expired,
    /// Somebody else joined with it.
    Used,
    /// The agent that joined with it was revoked since.
    Revoked,
    /// The invitation is not for this agent.
    NotInvited(String),
    /// Another remote agent serves this agent.
    Taken {
        name: String,
        by: [u8; 16],
    },
}

/// Who serves a name and is not revoked.
fn taken(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    names: &[String],
) -> Result<Option<(String, [u8; 16])>> {
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

impl Records<'_> {
    /// Keeps an invitation.
    ///
    /// # Errors
    /// `NotNow` if a remote agent serves one of the names; those of the database.
    pub fn create_invitation(
        &self,
        environment: EnvironmentKey,
        new: &NewInvitation,
    ) -> Result<()> {
        let names = serde_json::to_string(&new.names).map_err(|error| unreadable(&error))?;
        self.change(|sql| {
            if let Some((name, by)) = taken(sql, environment, &new.names)? {
                let by = uuid_text(&by);
                return Err(StoreError::NotNow(format!(
                    "{name:?} is served by the remote agent {by}; revoke it first"
                )));
            }
            // Whoever comes too late learns nothing from an old row.
            sql.run("DELETE FROM invitation WHERE expires < ?1", values![new.created])?;
            let insert = "INSERT INTO invitation (id, environment, hash, names, created, expires, \
                 token) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            let NewInvitation { uuid, hash, created, expires, token, .. } = new;
            let token = token.as_ref().map(<[u8; 16]>::as_slice);
            sql.run(insert, values![uuid, environment.0, hash, &names, *created, *expires, token])?;
            note(sql, Some(environment), "invitation", &uuid_text(uuid), *created)
        })
    }

    /// Makes a remote agent of who shows the token of an invitation, and asks for a repair of what it serves. Who shows it again with the same key is the same agent.
    ///
    /// # Errors
    /// Those of the database; refusals are answers.
    pub fn join(&self, hash: &[u8; 32], joining: &Joining, now: Timestamp) -> Result<Join> {
        let facts = joining.facts.to_string();
        // Anybody may come with any token: who was not invited must not keep writers waiting.
        let known = "SELECT id FROM invitation WHERE hash = ?1";
        if self.look(|sql| sql.first(known, values![hash], |row| row.id(0)))?.is_none() {
            return Ok(Join::Unknown);
        }
        self.change(|sql| {
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
                    row.id(4)?,
                    row.maybe_id(5)?,
                ))
            })?;
            let Some((environment, invited, expires, used_by, invitation, token)) = found else {
                return Ok(Join::Unknown);
            };
            if expires <= now {
                return Ok(Join::Expired);
            }
            if let (None, Some(token)) = (used_by, token)
                && !is_in_force(sql, &token, now)?
            {
                return Ok(Join::Expired);
            }
            if let Some(agent) = used_by {
                return Ok(match agent_with_id(sql, &agent)? {
                    Some(agent) if agent.key != joining.key => Join::Used,
                    Some(agent) if agent.revoked.is_some() => Join::Revoked,
                    Some(agent) => Join::Joined(Box::new(agent)),
                    None => Join::Used,
                });
            }
            if let Some(other) = joining.names.iter().find(|name| !invited.contains(name)) {
                return Ok(Join::NotInvited(other.clone()));
            }
            let names = if joining.names.is_empty() { &invited } else { &joining.names };
            if let Some((name, by)) = taken(sql, environment, names)? {
                return Ok(Join::Taken { name, by });
            }
            let insert = "INSERT INTO remote_agent (id, environment, key, facts, version, joined) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let Joining { uuid, key, version, .. } = joining;
            sql.run(insert, values![uuid, environment.0, key, &facts, version, now])?;
            for name in names {
                let insert = "INSERT INTO remote_agent_name (environment, name, agent) \
                     VALUES (?1, ?2, ?3) ON CONFLICT (environment, name) DO UPDATE \
                     SET agent = excluded.agent";
                sql.run(insert, values![environment.0, name, uuid])?;
            }
            let update = "UPDATE invitation SET used_by = ?2 WHERE id = ?1";
            sql.run(update, values![&invitation, uuid])?;
            note(sql, Some(environment), "remote_agent", &uuid_text(uuid), now)?;
            // What was as wanted where the agent was before is not on this machine.
            let moved = serde_json::json!({ "agents": names });
            insert_request(sql, environment, uuid, "repair", &moved, now)?;
            let made = agent_with_id(sql, uuid)?;
            let made = made.ok_or_else(|| StoreError::not_found("remote agent", uuid_text(uuid)));
            Ok(Join::Joined(Box::new(made?)))
        })
    }
}
