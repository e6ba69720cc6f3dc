//! Counts of resources, in total and before a position, computed by the database without reading
//! them.

use crate::records::pending_release::{MAY_EXIST_SQL, has_pending_release_sql};
use crate::records::{Resources, Transactions as _};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, Result, values};

/// Range of ids: after the first text and before the second.
pub type IdRange<'a> = (&'a str, &'a str);

impl Resources<'_> {
    /// Entities that resources of an environment have or had, by name.
    ///
    /// # Errors
    /// Database errors.
    pub fn entities(&self, environment: EnvironmentKey) -> Result<Vec<String>> {
        let select = "SELECT name FROM resource_type WHERE environment = ?1";
        let mut found =
            self.query(|sql| sql.all(select, values![environment.0], |row| row.string(0)))?;
        found.sort_unstable();
        Ok(found)
    }

    /// Counts the resources with ids in disjoint ranges: all listed ones, or those that are
    /// not orphans.
    ///
    /// # Errors
    /// Database errors.
    pub fn count_listed(
        &self,
        environment: EnvironmentKey,
        ranges: &[IdRange<'_>],
        with_orphans: bool,
    ) -> Result<u64> {
        // As in `resource_list`: a resource without a state is listed if a version has it.
        let is_listed = match with_orphans {
            true => format!("resource.head IS NOT NULL OR {MAY_EXIST_SQL}"),
            false => format!(
                "CASE WHEN state.resource IS NULL OR {} = 1 THEN resource.head IS NOT NULL \
                 ELSE state.intent IS NOT NULL END",
                has_pending_release_sql("?1")
            ),
        };
        let select = format!(
            "SELECT count(*) FROM resource LEFT JOIN state ON state.resource = resource.id \
             WHERE resource.environment = ?1 AND resource.name > ?2 AND resource.name < ?3 \
             AND ({is_listed})"
        );
        self.query(|sql| {
            let mut count = 0;
            for (low, high) in ranges {
                let found = sql.first(&select, values![environment.0, *low, *high], |row| {
                    Ok(u64::try_from(row.int(0)?).unwrap_or(0))
                })?;
                count += found.unwrap_or(0);
            }
            Ok(count)
        })
    }
}
