//! Facts of resources in a batch of results.

use std::collections::BTreeMap;

use orrery_model::{Fact, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::encoding::Code as _;
use crate::sql::ColumnType::{Integer, Text};
use crate::sql::{RowExt as _, RowsStatement, Sql, SqlValue};
use crate::{EnvironmentKey, ParameterEffect, ParameterSource, ResourceKey, Result, values};

/// Collects the changes of facts by a batch of results, in the order of the results, and writes
/// them together.
#[derive(Default)]
pub(super) struct FactWriter<'a> {
    steps: Vec<(ResourceKey, Step<'a>)>,
}

enum Step<'a> {
    Set(&'a [Fact], Timestamp),
    Delete,
}

const SET: RowsStatement<'_> = RowsStatement {
    text: "INSERT INTO parameter (environment, resource, name, value, source, updated, expires) \
         SELECT ?1, new.resource, new.name, new.value, ?2, new.updated, new.expires FROM {rows} \
         WHERE true ON CONFLICT (environment, resource, name) DO UPDATE SET \
         value = excluded.value, source = excluded.source, updated = excluded.updated, \
         expires = excluded.expires, metadata = excluded.metadata",
    columns: &[
        ("resource", Integer),
        ("name", Text),
        ("value", Text),
        ("updated", Integer),
        ("expires", Integer),
    ],
};

const RESOLVE: RowsStatement<'_> = RowsStatement {
    text: "UPDATE unknown SET resolved = 1 \
         FROM {rows} JOIN resource ON resource.id = new.resource \
         WHERE unknown.environment = ?1 AND unknown.resource = resource.name \
         AND unknown.name = new.name AND unknown.resolved = 0",
    columns: &[("resource", Integer), ("name", Text)],
};

impl<'a> FactWriter<'a> {
    pub(super) fn set(&mut self, key: ResourceKey, facts: &'a [Fact], now: Timestamp) {
        self.steps.push((key, Step::Set(facts, now)));
    }

    pub(super) fn delete(&mut self, key: ResourceKey) {
        self.steps.push((key, Step::Delete));
    }

    pub(super) fn write(
        self,
        sql: &mut dyn Sql,
        environment: EnvironmentKey,
    ) -> Result<ParameterEffect> {
        let mut effect = ParameterEffect::default();
        if self.steps.is_empty() {
            return Ok(effect);
        }
        let keys: Vec<i64> = self.steps.iter().map(|(key, _)| key.0).collect();
        let mut current = current_values(sql, environment, &keys)?;
        // The last value of each fact counts, and so do deletions in between. In the order of keys,
        // so that two writers cannot deadlock.
        let mut newest: BTreeMap<(i64, &str), (&Fact, Timestamp)> = BTreeMap::new();
        let mut deleted: FxHashSet<i64> = FxHashSet::default();
        let mut set = Vec::new();
        for (key, step) in &self.steps {
            let current = current.entry(key.0).or_default();
            match step {
                Step::Delete => {
                    current.clear();
                    newest.retain(|(of, _), _| *of != key.0);
                    deleted.insert(key.0);
                }
                Step::Set(facts, now) => {
                    for fact in *facts {
                        let before = current.insert(fact.name.clone(), fact.value.clone());
                        effect.changed += usize::from(before.as_deref() != Some(&fact.value));
                        newest.insert((key.0, &fact.name), (fact, *now));
                        set.extend_from_slice(values![key.0, &fact.name]);
                    }
                }
            }
        }
        if !deleted.is_empty() {
            let deleted: Vec<i64> = deleted.into_iter().collect();
            let is_deleted = sql.in_integers("?2");
            let delete =
                format!("DELETE FROM parameter WHERE environment = ?1 AND resource {is_deleted}");
            sql.run(&delete, &[environment.0.into(), SqlValue::Integers(&deleted)])?;
        }
        let mut cells = Vec::with_capacity(newest.len() * SET.columns.len());
        for ((key, name), (fact, now)) in newest {
            cells.extend_from_slice(values![key, name, &fact.value, now, fact.expires]);
        }
        sql.run_rows(&SET, values![environment.0, ParameterSource::Fact.code()], &cells)?;
        let resolved = sql.run_rows(&RESOLVE, values![environment.0], &set)?;
        effect.resolved = usize::try_from(resolved).unwrap_or(usize::MAX);
        Ok(effect)
    }
}

/// Stored values of facts, by resource and name.
fn current_values(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    keys: &[i64],
) -> Result<FxHashMap<i64, FxHashMap<String, String>>> {
    let select = format!(
        "SELECT resource, name, value FROM parameter WHERE environment = ?1 AND resource {}",
        sql.in_integers("?2")
    );
    let mut found: FxHashMap<i64, FxHashMap<String, String>> = FxHashMap::default();
    sql.visit(&select, &[environment.0.into(), SqlValue::Integers(keys)], &mut |row| {
        found.entry(row.int(0)?).or_default().insert(row.string(1)?, row.string(2)?);
        Ok(())
    })?;
    Ok(found)
}
