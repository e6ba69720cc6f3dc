//! Unmanaged resources: deployed once, may still exist, and can be removed by a version.

use orrery_model::{
    AttributeHash, Attributes, DeployedResource, OutcomeStatus, Resource, ResourceId, purged,
};
use rustc_hash::FxHashMap;

use crate::encoding::{
    Code as _, ORIGIN_ADOPTED, ORIGIN_CREATED, flags_from_code, hash_from, optional_hash_from,
    unpack_keys,
};
use crate::records::{Resources, Transactions as _};
use crate::resource_loader::parse_id;
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, ResourceKey, Result, values};

/// Resources to consider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalScope {
    /// Resources that the newest version does not have: unmanaged ones.
    Unmanaged,
    /// All resources.
    All,
}

/// Columns of a revision with those of its resource and state.
const COLUMNS: &str = "resource.id, resource.name, \
     CASE WHEN resource.head IS NULL THEN 0 ELSE 1 END, \
     state.last_outcome, state.last_deployed, \
     CASE WHEN state.last_success IS NULL THEN 0 ELSE 1 END, \
     revision.since, revision.hash, revision.flags, revision.resource_set, revision.attributes, \
     revision.requires, CASE WHEN state.intent IS NULL THEN 0 ELSE 1 END, state.origin";

/// One intent that a resource had.
struct Intent {
    since: i64,
    flags: i64,
    set: i64,
    attributes: Attributes,
    requires: Vec<ResourceKey>,
}

/// A resource while its revisions are being read.
struct Candidate {
    id: ResourceId,
    is_managed: bool,
    was_managed: bool,
    is_adopted: bool,
    /// A handler has deployed it, or has reported on it.
    is_touched: bool,
    /// Its last run failed.
    has_failed: bool,
    /// Its last run removed it and succeeded.
    is_gone: bool,
    /// The last intent that it exists, without unknowns.
    to_have: Option<Intent>,
    /// The last intent that it is absent.
    to_remove: Option<Intent>,
    /// The last intent with an unknown.
    undefined: Option<Intent>,
}

/// True if a handler ever deployed a resource. Its origin outlives the successes that an engine
/// knows of.
fn has_touched(outcome: Option<OutcomeStatus>, has_succeeded: bool, origin: Option<i64>) -> bool {
    has_succeeded
        || matches!(outcome, Some(OutcomeStatus::Deployed | OutcomeStatus::NonCompliant))
        || matches!(origin, Some(ORIGIN_ADOPTED | ORIGIN_CREATED))
}

/// Replaces an intent by a later one.
fn replace_if_later(latest: &mut Option<Intent>, intent: Intent) {
    if latest.as_ref().is_none_or(|latest| latest.since < intent.since) {
        *latest = Some(intent);
    }
}

impl Candidate {
    fn new(row: &dyn Row) -> Result<Self> {
        let outcome = row.integer(3)?.map(OutcomeStatus::from_code).transpose()?;
        let origin = row.integer(13)?;
        Ok(Candidate {
            id: parse_id(row.str(1)?)?,
            is_managed: row.flag(2)?,
            was_managed: row.flag(12)?,
            is_adopted: origin != Some(ORIGIN_CREATED),
            is_touched: has_touched(outcome, row.flag(5)?, origin),
            has_failed: outcome == Some(OutcomeStatus::Failed),
            is_gone: false,
            to_have: None,
            to_remove: None,
            undefined: None,
        })
    }

    fn add(&mut self, row: &dyn Row) -> Result<()> {
        let hash = hash_from(row.blob(7)?)?;
        let last_deployed: Option<AttributeHash> = optional_hash_from(row.blob(4)?)?;
        let deployed = Some(OutcomeStatus::Deployed.code());
        let is_last_run = last_deployed == Some(hash) && row.integer(3)? == deployed;
        let mut requires = Vec::new();
        unpack_keys(row.blob(11)?, &mut requires)?;
        let intent = Intent {
            since: row.int(6)?,
            flags: row.int(8)?,
            set: row.int(9)?,
            attributes: Attributes::from_canonical(row.str(10)?),
            requires,
        };
        if flags_from_code(intent.flags).undefined {
            replace_if_later(&mut self.undefined, intent);
        } else if purged(&intent.attributes) == Some(true) {
            self.is_gone |= is_last_run;
            replace_if_later(&mut self.to_remove, intent);
        } else {
            replace_if_later(&mut self.to_have, intent);
        }
        Ok(())
    }

    /// The intent to remove from, and true if it is itself a removal; `None` if there is nothing to
    /// remove.
    fn into_intent(self) -> Option<(Intent, bool)> {
        if self.is_gone {
            return None;
        }
        // A resource that returns in order to be removed is new to its engine: the outcomes of its
        // earlier runs are deleted by then. If only the removal is stored and it failed, the
        // resource still exists.
        let is_removal_due =
            self.to_remove.is_some() && (self.to_have.is_some() || self.has_failed);
        if !self.is_touched && !is_removal_due {
            return None;
        }
        match (self.to_have, self.to_remove, self.undefined) {
            (Some(intent), _, _) => Some((intent, false)),
            (None, Some(intent), _) => Some((intent, true)),
            (None, None, intent) => intent.map(|intent| (intent, false)),
        }
    }
}

/// Names by number, each looked up once.
#[derive(Default)]
struct Names {
    resources: FxHashMap<i64, Option<ResourceId>>,
    sets: FxHashMap<i64, Option<String>>,
}

impl Names {
    fn resource(&mut self, sql: &mut dyn Sql, key: ResourceKey) -> Result<Option<ResourceId>> {
        if let Some(cached) = self.resources.get(&key.0) {
            return Ok(cached.clone());
        }
        let select = "SELECT name FROM resource WHERE id = ?1";
        let name = sql.first(select, values![key.0], |row| row.string(0))?;
        let id = name.map(|name| parse_id(&name)).transpose()?;
        self.resources.insert(key.0, id.clone());
        Ok(id)
    }

    fn set(&mut self, sql: &mut dyn Sql, set: i64) -> Result<Option<String>> {
        if set == 0 {
            return Ok(None);
        }
        if let Some(cached) = self.sets.get(&set) {
            return Ok(cached.clone());
        }
        let select = "SELECT name FROM resource_set WHERE id = ?1";
        let name = sql.first(select, values![set], |row| row.string(0))?;
        self.sets.insert(set, name.clone());
        Ok(name)
    }
}

fn read(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    scope: RemovalScope,
) -> Result<FxHashMap<i64, Candidate>> {
    let past = format!(
        "SELECT {COLUMNS} FROM resource JOIN state ON state.resource = resource.id \
         JOIN ended ON ended.resource = resource.id \
         JOIN revision ON revision.id = ended.revision WHERE resource.environment = ?1"
    );
    let statements = match scope {
        // Mostly none: by their index, so that a put does not read all resources again.
        RemovalScope::Unmanaged => vec![format!(
            "{past} AND resource.id IN (SELECT id FROM {} AND environment = ?1)",
            sql.absent_resources()
        )],
        RemovalScope::All => {
            let current = format!(
                "SELECT {COLUMNS} FROM resource JOIN state ON state.resource = resource.id \
                 JOIN revision ON revision.id = resource.head WHERE resource.environment = ?1"
            );
            vec![current, past]
        }
    };
    let mut found: FxHashMap<i64, Candidate> = FxHashMap::default();
    for statement in statements {
        sql.visit(&statement, values![environment.0], &mut |row| match found.entry(row.int(0)?) {
            std::collections::hash_map::Entry::Occupied(mut entry) => entry.get_mut().add(row),
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(Candidate::new(row)?).add(row)
            }
        })?;
    }
    Ok(found)
}

impl Resources<'_> {
    /// Resources that were deployed and may still exist, in the order of their ids. Leaves out
    /// those that no handler ever deployed, and those whose versions are all deleted.
    ///
    /// # Errors
    /// Database errors.
    pub fn unmanaged(
        &self,
        environment: EnvironmentKey,
        scope: RemovalScope,
    ) -> Result<Vec<DeployedResource>> {
        self.query(|sql| {
            let found = read(sql, environment, scope)?;
            let mut names = Names::default();
            names.resources.extend(found.iter().map(|(key, one)| (*key, Some(one.id.clone()))));
            let mut all: Vec<Candidate> = found.into_values().collect();
            all.sort_unstable_by(|a, b| a.id.cmp(&b.id));
            let mut remnants = Vec::new();
            for one in all {
                let id = one.id.clone();
                let (is_managed, was_managed, is_adopted) =
                    (one.is_managed, one.was_managed, one.is_adopted);
                let Some((intent, is_removal)) = one.into_intent() else { continue };
                let mut requires = Vec::with_capacity(intent.requires.len());
                for key in &intent.requires {
                    requires.extend(names.resource(sql, *key)?);
                }
                let resource = Resource {
                    flags: flags_from_code(intent.flags),
                    set: names.set(sql, intent.set)?.map(Into::into),
                    ..Resource::new(id, intent.attributes, requires)
                };
                remnants.push(DeployedResource {
                    resource,
                    is_removal,
                    is_managed,
                    was_managed,
                    is_adopted,
                });
            }
            Ok(remnants)
        })
    }
}
