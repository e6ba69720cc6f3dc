//! Effects that must not be repeated. Each is noted before it begins; its result takes the note back. What is left when nothing
//! runs is unknown: it may have happened or not, and a person decides what it counts as.

use orrery_model::Timestamp;
use serde_json::json;

use crate::codes::number_from;
use crate::records::{NewRequest, Records, RequestRecord, insert_request, note};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Lease, ResourceKey, Result, Started, StoreError, values};

/// What a person decides about an effect of which nobody knows whether it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectChoice {
    /// It happened: the resource counts as deployed.
    Done,
    /// It did not happen, or may happen again: it is run again.
    RunAgain,
}

impl EffectChoice {
    fn code(self) -> i64 {
        match self {
            EffectChoice::Done => 1,
            EffectChoice::RunAgain => 2,
        }
    }

    fn from_code(code: i64) -> Result<Self> {
        match code {
            1 => Ok(EffectChoice::Done),
            2 => Ok(EffectChoice::RunAgain),
            other => Err(StoreError::Unreadable(format!("choice {other}"))),
        }
    }
}

/// What became of an effect that a person has decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectDecision {
    /// The engine acts on the choice when it comes to the resource.
    Kept,
    /// Neither the newest version nor the engine has the resource any more: the effect is forgotten.
    Forgotten,
}

/// An effect that was begun, and whose end is not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunEffect {
    pub resource: ResourceKey,
    /// The id of the resource.
    pub name: String,
    pub version: orrery_model::VersionNumber,
    pub started: Timestamp,
    /// Nothing is under way that could still tell how it ended.
    pub is_unknown: bool,
    pub choice: Option<EffectChoice>,
}

const COLUMNS: &str = "SELECT begun.resource, resource.name, begun.version, begun.started, \
     begun.is_unknown, begun.choice FROM begun JOIN resource ON resource.id = begun.resource";

fn from_row(row: &dyn Row) -> Result<BegunEffect> {
    Ok(BegunEffect {
        resource: ResourceKey(row.int(0)?),
        name: row.string(1)?,
        version: number_from(row.int(2)?)?,
        started: row.time(3)?,
        is_unknown: row.int(4)? != 0,
        choice: row.integer(5)?.map(EffectChoice::from_code).transpose()?,
    })
}

fn mark_unknown(sql: &mut dyn Sql, environment: EnvironmentKey) -> Result<u64> {
    let update = "UPDATE begun SET is_unknown = 1 WHERE environment = ?1 AND is_unknown = 0";
    sql.run(update, values![environment.0])
}

impl Records<'_> {
    /// Notes that effects begin which must not be repeated. They may begin when this has answered.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn begin_effects(&self, lease: &Lease, effects: &[Started]) -> Result<()> {
        self.change(|sql| {
            sql.check_lease(lease)?;
            for effect in effects {
                let insert = "INSERT INTO begun \
                     (resource, environment, version, started, is_unknown, choice) \
                     VALUES (?1, ?2, ?3, ?4, 0, NULL) ON CONFLICT (resource) DO UPDATE SET \
                     environment = excluded.environment, version = excluded.version, \
                     started = excluded.started, is_unknown = 0, choice = NULL";
                let (environment, version) = (lease.environment.0, i64::from(effect.version.0));
                let values = values![effect.resource.0, environment, version, effect.at];
                sql.run(insert, values)?;
            }
            Ok(())
        })
    }

    /// Nothing is under way: what was begun before, and has no result, is unknown. Answers which resources that concerns.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn recover_effects(&self, lease: &Lease) -> Result<Vec<ResourceKey>> {
        let all = "SELECT resource FROM begun WHERE environment = ?1 ORDER BY resource";
        let values = values![lease.environment.0];
        let begun = self.look(|sql| sql.all(all, values, |row| Ok(ResourceKey(row.int(0)?))))?;
        if !begun.is_empty() {
            self.change(|sql| {
                sql.check_lease(lease)?;
                mark_unknown(sql, lease.environment)
            })?;
        }
        Ok(begun)
    }

    /// The effects of an environment of which nobody knows whether they happened, in the order of their resources' ids.
    ///
    /// # Errors
    /// Those of the database.
    pub fn unknown_effects(&self, environment: EnvironmentKey) -> Result<Vec<BegunEffect>> {
        let select = format!(
            "{COLUMNS} WHERE begun.environment = ?1 AND begun.is_unknown = 1 ORDER BY resource.name"
        );
        self.look(|sql| sql.all(&select, values![environment.0], from_row))
    }

    /// All effects of an environment whose results are not recorded: unknown ones, and those that may be under way.
    ///
    /// # Errors
    /// Those of the database.
    pub fn begun_effects(&self, environment: EnvironmentKey) -> Result<Vec<BegunEffect>> {
        let select = format!("{COLUMNS} WHERE begun.environment = ?1 ORDER BY resource.name");
        self.look(|sql| sql.all(&select, values![environment.0], from_row))
    }

    /// The effect of a resource that was begun, if there is one.
    ///
    /// # Errors
    /// Those of the database.
    pub fn begun_effect(&self, resource: ResourceKey) -> Result<Option<BegunEffect>> {
        let select = format!("{COLUMNS} WHERE begun.resource = ?1");
        self.look(|sql| sql.first(&select, values![resource.0], from_row))
    }

    /// Decides about an effect of which nobody knows whether it happened, and asks the engine to act on that. That of a resource
    /// which no version has any more is forgotten.
    ///
    /// # Errors
    /// `NotFound` if there is no such effect.
    pub fn choose_effect(
        &self,
        environment: EnvironmentKey,
        name: &str,
        choice: EffectChoice,
        request: &NewRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestRecord> {
        self.change(|sql| {
            let decision = choose(sql, environment, name, choice)?;
            note(sql, Some(environment), "resources", name, now)?;
            let (kind, payload) = (request.kind, request.payload);
            let mut made = insert_request(sql, environment, &request.uuid, kind, payload, now)?;
            if decision == EffectDecision::Forgotten {
                // Nothing is left that an engine could do.
                let outcome = json!({"done": true, "matched": 0, "forgotten": true});
                let update = "UPDATE request SET finished = ?2, outcome = ?3 WHERE id = ?1";
                sql.run(update, values![made.key.0, now, &outcome.to_string()])?;
                (made.finished, made.outcome) = (Some(now), Some(outcome));
            }
            Ok(made)
        })
    }

    /// The same where no engine runs: the next deploy acts on it.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one; `NotFound` if there is no such effect.
    pub fn choose_effect_under(
        &self,
        lease: &Lease,
        name: &str,
        choice: EffectChoice,
    ) -> Result<EffectDecision> {
        self.change(|sql| {
            sql.check_lease(lease)?;
            mark_unknown(sql, lease.environment)?;
            choose(sql, lease.environment, name, choice)
        })
    }
}

fn choose(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    name: &str,
    choice: EffectChoice,
) -> Result<EffectDecision> {
    // The engine knows intents of the version that it works on, which may be older than the newest.
    let forget = "DELETE FROM begun WHERE environment = ?1 AND is_unknown = 1 \
         AND resource IN (SELECT id FROM resource \
         WHERE environment = ?1 AND name = ?2 AND head IS NULL) \
         AND resource NOT IN (SELECT resource FROM state WHERE intent IS NOT NULL \
         AND resource IN (SELECT id FROM resource WHERE environment = ?1 AND name = ?2))";
    if sql.run(forget, values![environment.0, name])? > 0 {
        return Ok(EffectDecision::Forgotten);
    }
    let update = "UPDATE begun SET choice = ?3 WHERE environment = ?1 AND is_unknown = 1 \
         AND resource IN (SELECT id FROM resource WHERE environment = ?1 AND name = ?2)";
    match sql.run(update, values![environment.0, name, choice.code()])? {
        0 => Err(StoreError::not_found("effect with an unknown outcome of", name)),
        _ => Ok(EffectDecision::Kept),
    }
}
