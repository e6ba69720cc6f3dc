//! Pending releases: the desired state from the moment of a release, before an engine has processed
//! it. After a release, a client must not read that all of it is deployed.

use orrery_model::{AttributeHash, ResourceState, Status, VersionNumber};

use crate::encoding::{REMOVAL, version_number_from};
use crate::records::{Transactions as _, Versions};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, REMOVAL_COUNT, Result, values};

/// The newest version, and the version that the engine has processed. While neither changes, the
/// meaning of statuses does not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReleaseState {
    pub newest: Option<VersionNumber>,
    pub is_released: bool,
    pub processed: Option<VersionNumber>,
}

impl Versions<'_> {
    /// Release state of an environment.
    ///
    /// # Errors
    /// Database errors.
    pub fn release_state(&self, environment: EnvironmentKey) -> Result<ReleaseState> {
        let select = "SELECT newest.number, newest.released, \
             (SELECT scheduler.processed_version FROM scheduler WHERE scheduler.environment = ?1) \
             FROM version AS newest WHERE newest.environment = ?1 \
             ORDER BY newest.environment DESC, newest.step DESC LIMIT 1";
        let found = self.query(|sql| {
            sql.first(select, values![environment.0], |row| {
                Ok(ReleaseState {
                    newest: Some(version_number_from(row.int(0)?)?),
                    is_released: row.flag(1)?,
                    processed: row.integer(2)?.map(version_number_from).transpose()?,
                })
            })
        })?;
        Ok(found.unwrap_or_default())
    }
}

/// SQL condition: a resource that is not in the newest version may still exist, because a handler
/// deployed it and did not remove it.
pub(crate) const MAY_EXIST_SQL: &str =
    "(state.resource IS NOT NULL AND coalesce(state.origin, 1) <> 0)";

/// SQL expression: 1 if the newest version is released and removes resources, or else 0.
/// `environment` is an SQL expression.
pub(crate) fn is_removing_sql(environment: &str) -> String {
    format!(
        "coalesce((SELECT CASE WHEN newest.released = 1 AND newest.info LIKE '%\"{REMOVAL_COUNT}\"%' \
         THEN 1 ELSE 0 END FROM version AS newest WHERE newest.environment = {environment} \
         ORDER BY newest.environment DESC, newest.step DESC LIMIT 1), 0)"
    )
}

/// SQL expression for the stage of a removal: 1 if the newest version removes the resource, 2 if it
/// was removed and no version has it any more, or else 0. If the resource has a head, `revision` is
/// that revision. Few revisions are removals, so the version is seldom looked up.
pub(crate) fn removal_code_sql(environment: &str) -> String {
    let is_removing = is_removing_sql(environment);
    format!(
        "CASE WHEN resource.head IS NULL THEN CASE WHEN {MAY_EXIST_SQL} THEN 0 ELSE 2 END \
         WHEN (revision.flags & {REMOVAL}) <> 0 THEN {is_removing} ELSE 0 END"
    )
}

/// Stage of the removal of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalStage {
    /// The newest version removes it, and the removal has not succeeded yet.
    Pending,
    /// Removed.
    Done,
}

impl RemovalStage {
    /// The stage for a value of [`removal_code_sql`] and the status of the resource.
    pub(crate) fn new(code: i64, status: Status) -> Option<Self> {
        match (code, status) {
            (1, Status::Deployed) | (2, _) => Some(RemovalStage::Done),
            (1, _) => Some(RemovalStage::Pending),
            _ => None,
        }
    }
}

/// SQL expression: 1 if the newest version is released and no engine has processed it, or else 0.
/// `environment` is an SQL expression. Heads belong to the newest version, so a release of an older
/// one becomes visible when it is processed.
pub(crate) fn has_pending_release_sql(environment: &str) -> String {
    format!(
        "coalesce((SELECT CASE WHEN newest.released = 1 AND newest.number > coalesce(\
         (SELECT scheduler.processed_version FROM scheduler \
         WHERE scheduler.environment = newest.environment), 0) THEN 1 ELSE 0 END \
         FROM version AS newest WHERE newest.environment = {environment} \
         ORDER BY newest.environment DESC, newest.step DESC LIMIT 1), 0)"
    )
}

/// State of a resource whose intent differs from the one that its engine knows; `None` if it has no
/// intent any more.
pub(crate) fn with_pending_intent(
    state: ResourceState,
    pending: Option<(AttributeHash, bool)>,
) -> ResourceState {
    let intent = pending.map(|(hash, _)| hash);
    let undefined = pending.map_or(state.undefined, |(_, undefined)| undefined);
    ResourceState { intent, undefined, ..state }
}
