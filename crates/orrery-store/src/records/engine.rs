//! State of the engine of an environment: its writes carry its lease.

use orrery_model::{ChangeKind, VersionNumber};

use crate::encoding::{
    Code as _, STATE_COLUMN_COUNT, STATE_COLUMNS, state_from, version_number_from,
};
use crate::records::release::find_version;
use crate::records::results::{INSERT_ACTIONS, record_batch, record_resource_change, write_states};
use crate::records::version_read::{PAGE, for_each_page};
use crate::records::{Engine, Transactions as _, resources_subject};
use crate::sql::ColumnType::Integer;
use crate::sql::{RowExt as _, RowsStatement, Sql, SqlExt as _};
use crate::{
    ActionKind, EnvironmentKey, Lease, ParameterEffect, ResourceKey, Result, ResultBatch,
    ResultRecord, StartedAction, StateRecord, StateRow, values,
};

const BEGIN_ACTIONS: RowsStatement<'_> = RowsStatement {
    text: "INSERT INTO running (resource, environment, kind, version, started) \
         SELECT new.resource, ?1, new.kind, new.version, new.started FROM {rows} WHERE true \
         ON CONFLICT (resource) DO UPDATE SET environment = excluded.environment, \
         kind = excluded.kind, version = excluded.version, started = excluded.started",
    columns: &[
        ("resource", Integer),
        ("kind", Integer),
        ("version", Integer),
        ("started", Integer),
    ],
};

/// Records the last of the given actions of each resource, in the order of keys.
fn begin_actions(sql: &mut dyn Sql, lease: &Lease, actions: &[StartedAction]) -> Result<()> {
    sql.check_lease(lease)?;
    let mut actions: Vec<&StartedAction> = actions.iter().collect();
    actions.sort_by_key(|action| action.resource);
    let mut cells = Vec::with_capacity(actions.len() * BEGIN_ACTIONS.columns.len());
    for (index, action) in actions.iter().enumerate() {
        if actions.get(index + 1).is_some_and(|next| next.resource == action.resource) {
            continue;
        }
        let version = i64::from(action.version.0);
        let kind = action.kind.code();
        cells.extend_from_slice(values![action.resource.0, kind, version, action.at]);
    }
    sql.run_rows(&BEGIN_ACTIONS, values![lease.environment.0], &cells).map(drop)
}

/// Turns running actions into log entries of interrupted ones.
fn recover_actions(sql: &mut dyn Sql, lease: &Lease) -> Result<Vec<StartedAction>> {
    sql.check_lease(lease)?;
    let environment = lease.environment;
    let interrupted = running_actions(sql, environment)?;
    if interrupted.is_empty() {
        return Ok(interrupted);
    }
    let first = sql.allocate_numbers("action", interrupted.len())?;
    let mut cells = Vec::with_capacity(interrupted.len() * INSERT_ACTIONS.columns.len());
    for (id, action) in (first..).zip(&interrupted) {
        cells.extend_from_slice(values![
            id,
            action.resource.0,
            action.kind.code(),
            i64::from(action.version.0),
            action.at,
            None::<i64>,
            None::<i64>,
            ChangeKind::NoChange.code(),
            None::<&str>,
            None::<&str>,
        ]);
    }
    sql.run_rows(&INSERT_ACTIONS, values![environment.0], &cells)?;
    sql.run("DELETE FROM running WHERE environment = ?1", values![environment.0])?;
    Ok(interrupted)
}

fn running_actions(sql: &mut dyn Sql, environment: EnvironmentKey) -> Result<Vec<StartedAction>> {
    let select = "SELECT resource, kind, version, started FROM running WHERE environment = ?1 \
         ORDER BY started, resource";
    sql.all(select, values![environment.0], |row| {
        Ok(StartedAction {
            resource: ResourceKey(row.int(0)?),
            kind: ActionKind::from_code(row.int(1)?)?,
            version: version_number_from(row.int(2)?)?,
            at: row.time(3)?,
        })
    })
}

pub(super) fn processed_version(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
) -> Result<Option<VersionNumber>> {
    let select = "SELECT processed_version FROM scheduler WHERE environment = ?1";
    sql.first(select, values![environment.0], |row| version_number_from(row.int(0)?))
}

fn process_version(
    sql: &mut dyn Sql,
    lease: &Lease,
    number: VersionNumber,
    states: &[StateRecord<'_>],
) -> Result<()> {
    sql.check_lease(lease)?;
    let environment = lease.environment;
    find_version(sql, environment, number)?;
    write_states(sql, states)?;
    let update = "INSERT INTO scheduler (environment, processed_version) VALUES (?1, ?2) \
         ON CONFLICT (environment) DO UPDATE SET processed_version = excluded.processed_version";
    sql.run(update, values![environment.0, i64::from(number.0)])?;
    let subject = resources_subject(states.iter().map(|state| state.resource));
    record_resource_change(sql, environment, &subject)
}

fn read_states(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    visit: &mut dyn FnMut(StateRow<'_>),
) -> Result<()> {
    const NAME: usize = STATE_COLUMN_COUNT + 2;
    sql.prefer_index_scans()?;
    let select = format!(
        "SELECT {STATE_COLUMNS}, CASE WHEN running.resource IS NULL THEN 0 ELSE 1 END, \
         resource.id, resource.name, state.resource FROM resource \
         LEFT JOIN state ON state.resource = resource.id \
         LEFT JOIN running ON running.resource = resource.id \
         WHERE resource.environment = ?1 AND resource.name > ?2 \
         ORDER BY resource.environment, resource.name LIMIT ?3"
    );
    for_each_page(sql, &select, values![environment.0, "", PAGE], NAME, &mut |row| {
        if row.integer(NAME + 1)?.is_some() {
            let state = state_from(row, 0, row.flag(STATE_COLUMN_COUNT)?)?;
            let key = ResourceKey(row.int(STATE_COLUMN_COUNT + 1)?);
            visit(StateRow { key, id: row.str(NAME)?, state: &state });
        }
        Ok(())
    })
}

impl Engine<'_> {
    /// Returns actions that began and never ended, and adds an entry for each to its resource's
    /// log. Until this is called, their resources are read as `deploying`.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn recover_actions(&self, lease: &Lease) -> Result<Vec<StartedAction>> {
        self.transact_locked(|sql| recover_actions(sql, lease))
    }

    /// Records that actions begin, before they have any effect. `recover_actions` finds only these.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn begin_actions(&self, lease: &Lease, actions: &[StartedAction]) -> Result<()> {
        self.transact_locked(|sql| begin_actions(sql, lease, actions))
    }

    /// Stores a batch of results. Deletes facts of resources that were purged.
    ///
    /// # Errors
    /// As `record_batch`.
    pub fn record_results(
        &self,
        lease: &Lease,
        results: &[ResultRecord<'_>],
    ) -> Result<ParameterEffect> {
        self.record_batch(lease, &ResultBatch { results, ..ResultBatch::default() })
    }

    /// Stores a batch of results, with their consequences for effects that must not be repeated.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn record_batch(&self, lease: &Lease, batch: &ResultBatch<'_>) -> Result<ParameterEffect> {
        self.transact_locked(|sql| record_batch(sql, lease, batch))
    }

    /// Records that a version was processed, with all states that this changed.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one; `NoVersion`.
    pub fn process_version(
        &self,
        lease: &Lease,
        number: VersionNumber,
        states: &[StateRecord<'_>],
    ) -> Result<()> {
        self.transact_locked(|sql| process_version(sql, lease, number, states))
    }

    /// Actions that have begun and have no recorded end.
    ///
    /// # Errors
    /// Database errors.
    pub fn running_actions(&self, environment: EnvironmentKey) -> Result<Vec<StartedAction>> {
        self.query(|sql| running_actions(sql, environment))
    }

    /// Version from which the engine continues after a restart.
    ///
    /// # Errors
    /// Database errors.
    pub fn processed_version(&self, environment: EnvironmentKey) -> Result<Option<VersionNumber>> {
        self.query(|sql| processed_version(sql, environment))
    }

    /// Visits the stored states in the order of ids. A resource without one is new:
    /// `ResourceState::new`. The visitor must not call the store.
    ///
    /// # Errors
    /// Database errors.
    pub fn read_states(
        &self,
        environment: EnvironmentKey,
        visit: &mut dyn FnMut(StateRow<'_>),
    ) -> Result<()> {
        self.scan(|sql| read_states(sql, environment, visit))
    }
}
