//! Rehearsal of a put, so that the first version is stored as fast as later ones.
//!
//! A new connection is slow at first: each statement is prepared, and the database reads its
//! catalogue for each table and index. A rehearsal stores small versions in an environment of its
//! own and rolls them back, on as many connections as a large put uses. Nothing of it is ever
//! visible; numbers that it takes stay unused, as after any put that fails.

use orrery_model::{Attributes, EnvironmentId, Resource, Timestamp};
use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::PostgresStore;
use super::pool::{Pool, PooledConnection};
use super::put::put_version;
use super::revisions::rehearse_claim;
use super::transaction::Tx;
use crate::records::create_environment;
use crate::version_delta::SortedInput;
use crate::{EnvironmentKey, NewVersion, PutScope, Result, StoreError};

/// Connections of a large put.
const CONNECTIONS: usize = 2;

impl PostgresStore {
    /// Rehearses a put. Connections that are not free are left alone.
    pub(super) fn rehearse_put(&self) -> Result<()> {
        let pool = self.pool();
        // All are taken before the first one is used, or they would be one and the same.
        let connections: Vec<_> = (0..CONNECTIONS).map_while(|_| pool.try_acquire()).collect();
        connections.into_iter().try_for_each(|connection| rehearse_on(connection, pool))
    }
}

fn rehearse_on(mut connection: PooledConnection<'_>, pool: &Pool) -> Result<()> {
    connection.batch("BEGIN ISOLATION LEVEL READ COMMITTED")?;
    connection.in_transaction = true;
    let locks = Default::default();
    let mut tx = Tx::new(&mut connection, &locks);
    let done = put_twice(&mut tx, pool);
    // Otherwise the connection is closed, which also ends the transaction.
    if connection.batch("ROLLBACK").is_ok() {
        connection.in_transaction = false;
    }
    done
}

/// Stores a version and a changed one.
fn put_twice(tx: &mut Tx<'_>, pool: &Pool) -> Result<()> {
    let (name, uuid) = (Uuid::new_v4().to_string(), EnvironmentId::new(Uuid::new_v4()));
    create_environment(tx, &name, &name, uuid)?;
    let find = "SELECT id FROM environment WHERE uuid = $1";
    let environment = EnvironmentKey(tx.query_one(find, &[&&uuid.into_bytes()[..]])?.get(0));
    for attributes in ["{\"a\":1}", "{\"a\":2}"] {
        let id = "std::testing::NullResource[rehearsal,name=rehearsal]";
        let id = id.parse().map_err(|error| StoreError::Unreadable(format!("{id}: {error}")))?;
        let resources = [Resource::new(id, Attributes::from_canonical(attributes), Vec::new())];
        let version = NewVersion {
            number: None,
            made_at: Timestamp(0),
            info: &serde_json::Value::Null,
            scope: PutScope::All,
            base: None,
            resources: &resources,
            unknowns: &[],
            released: false,
            only_if_changed: false,
            lease: None,
            project: None,
        };
        let (given, files) = (SortedInput::new(&resources)?, FxHashMap::default());
        put_version(tx, pool, environment, &version, &given, &files)?;
    }
    rehearse_claim(tx, environment)?;
    tx.write_changes()
}
