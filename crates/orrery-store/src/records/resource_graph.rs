//! All resources of an environment with their statuses and requirements, in one pass.

use std::sync::Arc;

use orrery_model::Status;
use rustc_hash::FxHashMap;

use crate::encoding::{STATE_COLUMN_COUNT, STATE_COLUMNS, unpack_keys};
use crate::records::resource_list::{JOINS, OWN_COLUMN_COUNT, listed_line, own_columns};
use crate::records::resource_query::ResourceQuery;
use crate::records::version_read::{PAGE, for_each_page};
use crate::records::{Resources, Transactions as _};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, ResourceKey, Result, values};

/// A resource in the dependency graph of its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphResource<K = ResourceKey> {
    pub key: K,
    /// Text of the id.
    pub name: String,
    pub status: Status,
    /// Named set; `None` for the shared one.
    pub set: Option<Arc<str>>,
    /// Requirements; those of an older program may be missing among the resources.
    pub requires: Vec<K>,
}

impl Resources<'_> {
    /// Visits the resources of an environment in the order of their ids, without orphans. Reads all
    /// of them: expensive.
    ///
    /// # Errors
    /// Database errors.
    pub fn visit_graph(
        &self,
        environment: EnvironmentKey,
        visit: &mut dyn FnMut(GraphResource),
    ) -> Result<()> {
        let every = ResourceQuery::default();
        let at = OWN_COLUMN_COUNT + STATE_COLUMN_COUNT;
        let own = own_columns("?1");
        let statement = format!(
            "SELECT {own}, {STATE_COLUMNS}, revision.requires FROM \
             (SELECT * FROM resource WHERE environment = ?1 AND name > ?2 \
             ORDER BY environment, name LIMIT ?3) AS resource {JOINS} ORDER BY resource.name"
        );
        self.query(|sql| {
            let named = "SELECT id, name FROM resource_set WHERE environment = ?1";
            let sets: FxHashMap<i64, Arc<str>> = sql
                .all(named, values![environment.0], |row| Ok((row.int(0)?, row.string(1)?.into())))?
                .into_iter()
                .collect();
            let page = values![environment.0, "", PAGE];
            for_each_page(sql, &statement, page, 0, &mut |row| {
                let Some(line) = listed_line(row, &every, None)? else { return Ok(()) };
                let mut requires = Vec::new();
                unpack_keys(row.blob(at)?, &mut requires)?;
                visit(GraphResource {
                    key: ResourceKey(line.key),
                    status: line.state.status(),
                    set: sets.get(&line.set).cloned(),
                    name: line.name,
                    requires,
                });
                Ok(())
            })
        })
    }
}
