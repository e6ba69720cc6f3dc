//! Effects that must not be repeated. Each is recorded before it begins; its result deletes the
//! record. A record that remains when nothing runs is an unknown effect: it may or may not have
//! happened, and an operator decides.

use orrery_model::Timestamp;

use crate::encoding::version_number_from;
use crate::records::{Effects, Transactions as _, insert_request, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{
    EnvironmentKey, Lease, NewRequest, RequestRecord, RequestResult, ResourceKey, Result,
    StartedAction, StoreError, values,
};

/// Decision of an operator about an unknown effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectVerdict {
    /// The effect happened: the resource counts as deployed.
    Done,
    /// The effect did not happen, or may be repeated: it is run again.
    RunAgain,
}

impl EffectVerdict {
    fn code(self) -> i64 {
        match self {
            EffectVerdict::Done => 1,
            EffectVerdict::RunAgain => 2,
        }
    }

    fn from_code(code: i64) -> Result<Self> {
        match code {
            1 => Ok(EffectVerdict::Done),
            2 => Ok(EffectVerdict::RunAgain),
            other => Err(StoreError::Unreadable(format!("choice {other}"))),
        }
    }
}

/// Result of a decision about an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectResolution {
    /// The engine applies the decision when it reaches the resource.
    Recorded,
    /// Neither the newest version nor the engine has the resource any more: the effect is deleted.
    Deleted,
}

/// An effect that was begun and has no recorded end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunEffect {
    pub resource: ResourceKey,
    /// The id of the resource.
    pub name: String,
    pub version: orrery_model::VersionNumber,
    pub started: Timestamp,
    /// True if no run is in progress that could report the outcome.
    pub is_unknown: bool,
    pub choice: Option<EffectVerdict>,
}

const COLUMNS: &str = "SELECT begun.resource, resource.name, begun.version, begun.started, \
     begun.is_unknown, begun.choice FROM begun JOIN resource ON resource.id = begun.resource";

fn from_row(row: &dyn Row) -> Result<BegunEffect> {
    Ok(BegunEffect {
        resource: ResourceKey(row.int(0)?),
        name: row.string(1)?,
        version: version_number_from(row.int(2)?)?,
        started: row.time(3)?,
        is_unknown: row.int(4)? != 0,
        choice: row.integer(5)?.map(EffectVerdict::from_code).transpose()?,
    })
}

fn mark_unknown(sql: &mut dyn Sql, environment: EnvironmentKey) -> Result<u64> {
    let update = "UPDATE begun SET is_unknown = 1 WHERE environment = ?1 AND is_unknown = 0";
    sql.run(update, values![environment.0])
}

impl Effects<'_> {
    /// Records that effects begin which must not be repeated. They may begin when this has
    /// returned.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn begin(&self, lease: &Lease, effects: &[StartedAction]) -> Result<()> {
        self.transact(|sql| {
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

    /// Marks effects without a result as unknown when nothing runs. Returns their resources.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn recover(&self, lease: &Lease) -> Result<Vec<ResourceKey>> {
        let all = "SELECT resource FROM begun WHERE environment = ?1 ORDER BY resource";
        let values = values![lease.environment.0];
        let begun = self.query(|sql| sql.all(all, values, |row| Ok(ResourceKey(row.int(0)?))))?;
        if !begun.is_empty() {
            self.transact(|sql| {
                sql.check_lease(lease)?;
                mark_unknown(sql, lease.environment)
            })?;
        }
        Ok(begun)
    }

    /// Unknown effects of an environment, in the order of their resources' ids.
    ///
    /// # Errors
    /// Database errors.
    pub fn unknown(&self, environment: EnvironmentKey) -> Result<Vec<BegunEffect>> {
        let select = format!(
            "{COLUMNS} WHERE begun.environment = ?1 AND begun.is_unknown = 1 ORDER BY resource.name"
        );
        self.query(|sql| sql.all(&select, values![environment.0], from_row))
    }

    /// All effects of an environment without a recorded result: unknown ones, and those that may be
    /// in progress.
    ///
    /// # Errors
    /// Database errors.
    pub fn begun(&self, environment: EnvironmentKey) -> Result<Vec<BegunEffect>> {
        let select = format!("{COLUMNS} WHERE begun.environment = ?1 ORDER BY resource.name");
        self.query(|sql| sql.all(&select, values![environment.0], from_row))
    }

    /// The effect of a resource that was begun, if any.
    ///
    /// # Errors
    /// Database errors.
    pub fn of_resource(&self, resource: ResourceKey) -> Result<Option<BegunEffect>> {
        let select = format!("{COLUMNS} WHERE begun.resource = ?1");
        self.query(|sql| sql.first(&select, values![resource.0], from_row))
    }

    /// Records a decision about an unknown effect and adds a request to apply it. The effect of a
    /// resource that no version has any more is deleted.
    ///
    /// # Errors
    /// `NotFound` if there is no such effect.
    pub fn resolve(
        &self,
        environment: EnvironmentKey,
        name: &str,
        choice: EffectVerdict,
        request: &NewRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestRecord> {
        self.transact(|sql| {
            let decision = resolve(sql, environment, name, choice)?;
            record_change(sql, Some(environment), "resources", name, now)?;
            let mut record = insert_request(sql, environment, request, now)?;
            if decision == EffectResolution::Deleted {
                // An engine has nothing left to do.
                let result = RequestResult::Forgotten;
                let update = "UPDATE request SET finished = ?2, outcome = ?3 WHERE id = ?1";
                sql.run(update, values![record.key.0, now, &result.to_json().to_string()])?;
                (record.finished, record.result) = (Some(now), Some(result));
            }
            Ok(record)
        })
    }

    /// Records a decision where no engine runs: the next deploy applies it.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one; `NotFound` if there is no such effect.
    pub fn resolve_under_lease(
        &self,
        lease: &Lease,
        name: &str,
        choice: EffectVerdict,
    ) -> Result<EffectResolution> {
        self.transact(|sql| {
            sql.check_lease(lease)?;
            mark_unknown(sql, lease.environment)?;
            resolve(sql, lease.environment, name, choice)
        })
    }
}

fn resolve(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    name: &str,
    choice: EffectVerdict,
) -> Result<EffectResolution> {
    // The engine has the intents of the version that it processes, which may be older than the
    // newest.
    let delete = "DELETE FROM begun WHERE environment = ?1 AND is_unknown = 1 \
         AND resource IN (SELECT id FROM resource \
         WHERE environment = ?1 AND name = ?2 AND head IS NULL) \
         AND resource NOT IN (SELECT resource FROM state WHERE intent IS NOT NULL \
         AND resource IN (SELECT id FROM resource WHERE environment = ?1 AND name = ?2))";
    if sql.run(delete, values![environment.0, name])? > 0 {
        return Ok(EffectResolution::Deleted);
    }
    let update = "UPDATE begun SET choice = ?3 WHERE environment = ?1 AND is_unknown = 1 \
         AND resource IN (SELECT id FROM resource WHERE environment = ?1 AND name = ?2)";
    match sql.run(update, values![environment.0, name, choice.code()])? {
        0 => Err(StoreError::not_found("effect with an unknown outcome of", name)),
        _ => Ok(EffectResolution::Recorded),
    }
}
