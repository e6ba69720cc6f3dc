//! Unknowns: values that a compile could not resolve.

use std::collections::BTreeMap;

use orrery_model::VersionNumber;

use crate::records::{Transactions as _, Versions};
use crate::resource_loader::parse_id;
use crate::sql::ColumnType::Text;
use crate::sql::{RowExt as _, RowsStatement, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, UndefinedParameter, values};

const PUT: RowsStatement<'_> = RowsStatement {
    text: "INSERT INTO unknown (environment, version, resource, name, source, resolved) \
         SELECT ?1, ?2, new.resource, new.name, new.source, 0 FROM {rows}",
    columns: &[("resource", Text), ("name", Text), ("source", Text)],
};

/// Stores the unknowns of a version that is being stored, in the same transaction.
pub(crate) fn put_unknowns(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    number: VersionNumber,
    unknowns: &[UndefinedParameter],
) -> Result<()> {
    // The last source of a name counts.
    let mut newest: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for unknown in unknowns {
        let resource = unknown.resource.as_ref().map_or("", |id| id.as_str());
        newest.insert((resource, &unknown.name), &unknown.source);
    }
    let mut cells = Vec::with_capacity(newest.len() * PUT.columns.len());
    for ((resource, name), source) in newest {
        cells.extend_from_slice(values![resource, name, source]);
    }
    sql.run_rows(&PUT, values![environment.0, i64::from(number.0)], &cells).map(drop)
}

impl Versions<'_> {
    /// Undefined parameters of a version; true for those that are resolved now.
    ///
    /// # Errors
    /// Database errors.
    pub fn unknowns(
        &self,
        environment: EnvironmentKey,
        number: VersionNumber,
    ) -> Result<Vec<(UndefinedParameter, bool)>> {
        let select = "SELECT name, resource, source, resolved FROM unknown \
             WHERE environment = ?1 AND version = ?2 ORDER BY resource, name";
        let values = values![environment.0, i64::from(number.0)];
        self.query(|sql| {
            sql.all(select, values, |row| {
                let resource = match row.str(1)? {
                    "" => None,
                    id => Some(parse_id(id)?),
                };
                let unknown =
                    UndefinedParameter { name: row.string(0)?, resource, source: row.string(2)? };
                Ok((unknown, row.flag(3)?))
            })
        })
    }
}
