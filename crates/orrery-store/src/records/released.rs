//! What is wanted of resources from the moment that a version is released, also before an engine has taken it in: whoever was told
//! that it is released must not read that all of it is deployed.

use orrery_model::{AttributeHash, ResourceState, Status, VersionNumber};

use crate::codes::{REMOVAL, number_from};
use crate::records::Records;
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, REMOVES, Result, values};

/// Which version is wanted, and which one an engine has taken in. If neither has changed, what statuses mean has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub newest: Option<VersionNumber>,
    pub is_released: bool,
    pub processed: Option<VersionNumber>,
}

impl Records<'_> {
    /// What is wanted of an environment, and what its engine knows of that.
    ///
    /// # Errors
    /// Those of the database.
    pub fn wanted(&self, environment: EnvironmentKey) -> Result<Wanted> {
        let select = "SELECT newest.number, newest.released, \
             (SELECT scheduler.processed_version FROM scheduler WHERE scheduler.environment = ?1) \
             FROM version AS newest WHERE newest.environment = ?1 \
             ORDER BY newest.environment DESC, newest.step DESC LIMIT 1";
        let found = self.look(|sql| {
            sql.first(select, values![environment.0], |row| {
                Ok(Wanted {
                    newest: Some(number_from(row.int(0)?)?),
                    is_released: row.flag(1)?,
                    processed: row.integer(2)?.map(number_from).transpose()?,
                })
            })
        })?;
        Ok(found.unwrap_or_default())
    }
}

/// Whether a resource that the newest version does not have may still exist: a handler knew it, and did not remove it.
pub(crate) const LEFT_BEHIND: &str =
    "(state.resource IS NOT NULL AND coalesce(state.origin, 1) <> 0)";

/// Whether the newest version is released and removes resources: 1 or 0. `environment` is an expression of SQL.
pub(crate) fn is_removing(environment: &str) -> String {
    format!(
        "coalesce((SELECT CASE WHEN newest.released = 1 AND newest.info LIKE '%\"{REMOVES}\"%' \
         THEN 1 ELSE 0 END FROM version AS newest WHERE newest.environment = {environment} \
         ORDER BY newest.environment DESC, newest.step DESC LIMIT 1), 0)"
    )
}

/// Stage of the removal of a resource: 1 if the newest version removes it, 2 if it was removed and no version has it any more, or
/// else 0.
pub(crate) fn removal_code(environment: &str) -> String {
    let is_removing = is_removing(environment);
    format!(
        "CASE WHEN resource.head IS NULL THEN CASE WHEN {LEFT_BEHIND} THEN 0 ELSE 2 END \
         WHEN {is_removing} = 1 THEN coalesce((SELECT CASE WHEN (leaving.flags & {REMOVAL}) <> 0 \
         THEN 1 ELSE 0 END FROM revision AS leaving WHERE leaving.id = resource.head), 0) \
         ELSE 0 END"
    )
}

/// Stage of the removal of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalStage {
    /// The newest version removes it, which has not succeeded yet.
    Pending,
    /// It was removed.
    Done,
}

impl RemovalStage {
    /// The stage for a value of [`removal_code`] and the status that goes with it.
    pub(crate) fn new(code: i64, status: Status) -> Option<Self> {
        match (code, status) {
            (1, Status::Deployed) | (2, _) => Some(RemovalStage::Done),
            (1, _) => Some(RemovalStage::Pending),
            _ => None,
        }
    }
}

/// Whether no engine has taken in the newest version although it is released: 1 or 0. `environment` is an expression of SQL.
/// Heads belong to the newest version, so that a release of an older one is seen when it is taken in.
pub(crate) fn is_ahead(environment: &str) -> String {
    format!(
        "coalesce((SELECT CASE WHEN newest.released = 1 AND newest.number > coalesce(\
         (SELECT scheduler.processed_version FROM scheduler \
         WHERE scheduler.environment = newest.environment), 0) THEN 1 ELSE 0 END \
         FROM version AS newest WHERE newest.environment = {environment} \
         ORDER BY newest.environment DESC, newest.step DESC LIMIT 1), 0)"
    )
}

/// The state of a resource whose intent is another one than its engine knows of; `None` if it is not wanted any more.
pub(crate) fn with_intent(
    state: ResourceState,
    wanted: Option<(AttributeHash, bool)>,
) -> ResourceState {
    let intent = wanted.map(|(hash, _)| hash);
    let undefined = wanted.map_or(state.undefined, |(_, undefined)| undefined);
    ResourceState { intent, undefined, ..state }
}
