//! How many resources there are, and how many of them stand before a place: counted by the database, without reading them.

use crate::records::Records;
use crate::records::released::{LEFT_BEHIND, is_ahead};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, Result, values};

/// Which ids are counted: those after the first text and before the second.
pub type IdRange<'a> = (&'a str, &'a str);

impl Records<'_> {
    /// The entities that resources of an environment have or had, in the order of their names.
    ///
    /// # Errors
    /// Those of the database.
    pub fn resource_entities(&self, environment: EnvironmentKey) -> Result<Vec<String>> {
        let select = "SELECT name FROM resource_type WHERE environment = ?1";
        let mut found =
            self.look(|sql| sql.all(select, values![environment.0], |row| row.string(0)))?;
        found.sort_unstable();
        Ok(found)
    }

    /// Counts the resources whose ids are in any of some ranges that do not overlap: all that a list has, or those of them
    /// that are no orphans.
    ///
    /// # Errors
    /// Those of the database.
    pub fn count_listed(
        &self,
        environment: EnvironmentKey,
        ranges: &[IdRange<'_>],
        with_orphans: bool,
    ) -> Result<u64> {
        // As `resource_list` has it: a resource without a state is there if a version wants it.
        let is_listed = match with_orphans {
            true => format!("resource.head IS NOT NULL OR {LEFT_BEHIND}"),
            false => format!(
                "CASE WHEN state.resource IS NULL OR {} = 1 THEN resource.head IS NOT NULL \
                 ELSE state.intent IS NOT NULL END",
                is_ahead("?1")
            ),
        };
        let select = format!(
            "SELECT count(*) FROM resource LEFT JOIN state ON state.resource = resource.id \
             WHERE resource.environment = ?1 AND resource.name > ?2 AND resource.name < ?3 \
             AND ({is_listed})"
        );
        self.look(|sql| {
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
