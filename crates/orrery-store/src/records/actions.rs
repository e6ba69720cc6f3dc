//! What was done in an environment, whatever the resource.

use crate::records::Records;
use crate::rows::{ACTION_COLUMNS, action_from};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{Action, ActionKey, EnvironmentKey, Result, values};

impl Records<'_> {
    /// The latest actions with the ids of their resources, latest first, before one.
    ///
    /// # Errors
    /// Those of the database.
    pub fn recent_actions(
        &self,
        environment: EnvironmentKey,
        before: Option<ActionKey>,
        limit: usize,
    ) -> Result<Vec<(String, Action)>> {
        let select = format!(
            "SELECT {ACTION_COLUMNS}, resource.name FROM action \
             JOIN resource ON resource.id = action.resource \
             WHERE action.environment = ?1 AND action.id < ?2 ORDER BY action.id DESC LIMIT ?3"
        );
        let before = before.map_or(i64::MAX, |key| key.0);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.look(|sql| {
            sql.all(&select, values![environment.0, before, limit], |row| {
                Ok((row.string(9)?, action_from(row)?))
            })
        })
    }
}
