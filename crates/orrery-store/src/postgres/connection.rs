//! One connection to PostgreSQL: caches prepared statements and translates errors.

use std::error::Error as _;
use std::sync::Arc;

use orrery_base::error_chain::error_chain;
use postgres::error::SqlState;
use postgres::types::{ToSql, Type};
use postgres::{Client, Row, Statement};
use rustc_hash::FxHashMap;

use super::copy::{CopyError, CopyRows};
use crate::error::is_cancelled;
use crate::{Result, StoreError};

/// A parameter of a statement.
pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// Capacity of the statement cache. Fixed statements are fewer; generated ones may be many.
pub(super) const STATEMENTS: usize = 256;

pub(super) struct Connection {
    client: Client,
    statements: FxHashMap<Box<str>, Statement>,
    /// Description of the database, for people.
    database: Arc<str>,
    /// A transaction is open. A connection that is returned in this state was dropped by a panic.
    pub(super) in_transaction: bool,
    /// The connection is unusable.
    pub(super) is_broken: bool,
    /// A statement of the transaction failed, so the database would turn a commit into a rollback.
    pub(super) has_failed: bool,
}

impl Connection {
    pub(super) fn new(client: Client, database: Arc<str>) -> Self {
        Connection {
            client,
            statements: FxHashMap::default(),
            database,
            in_transaction: false,
            is_broken: false,
            has_failed: false,
        }
    }

    pub(super) fn database(&self) -> &str {
        &self.database
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.is_broken && !self.in_transaction && !self.client.is_closed()
    }

    /// Runs statements without parameters or results.
    pub(super) fn batch(&mut self, sql: &str) -> Result<()> {
        let done = self.client.batch_execute(sql);
        done.map_err(|error| self.handle_error(error))
    }

    pub(super) fn execute(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64> {
        let statement = self.prepare(sql)?;
        let done = self.client.execute(&statement, parameters);
        done.map_err(|error| self.handle_error(error))
    }

    pub(super) fn query(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        let statement = self.prepare(sql)?;
        let rows = self.client.query(&statement, parameters);
        rows.map_err(|error| self.handle_error(error))
    }

    /// The only row of a result that always has one.
    pub(super) fn query_one(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Row> {
        let row = self.query(sql, parameters)?.pop();
        row.ok_or_else(|| StoreError::Unreadable("a result has no row".to_owned()))
    }

    /// Streams rows into a table, which stores them while the next are being encoded. `into` names
    /// the table and its columns.
    pub(super) fn copy(
        &mut self,
        into: &str,
        types: &[Type],
        rows: impl FnOnce(&mut CopyRows<'_>) -> std::result::Result<(), CopyError>,
    ) -> Result<()> {
        let statement = self.prepare(&format!("COPY {into} FROM STDIN BINARY"))?;
        let copied = match self.client.copy_in(&statement) {
            Ok(writer) => {
                let mut copy = CopyRows::new(writer, types);
                rows(&mut copy).and_then(|()| copy.finish())
            }
            Err(error) => Err(CopyError::Database(error)),
        };
        copied.map_err(|error| match error {
            CopyError::Database(error) => self.handle_error(error),
            CopyError::Value(source) => {
                self.has_failed = true;
                StoreError::Database { source }
            }
        })
    }

    /// Prepares a statement of the shared dialect: parameters `?1` become `$1`.
    fn prepare(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let prepared = self.client.prepare(&postgres_dialect(sql));
        let statement = prepared.map_err(|error| self.handle_error(error))?;
        if self.statements.len() >= STATEMENTS {
            self.statements.clear();
        }
        self.statements.insert(sql.into(), statement.clone());
        Ok(statement)
    }

    fn handle_error(&mut self, error: postgres::Error) -> StoreError {
        self.has_failed = true;
        let error = explain_error(error, &self.database);
        self.is_broken |= breaks_connection(&error);
        error
    }
}

/// Translates a statement of the shared dialect.
pub(super) fn postgres_dialect(sql: &str) -> String {
    sql.replace('?', "$")
}

/// True if a connection is unusable after an error. A statement that was cancelled may have left a
/// session lock behind.
pub(super) fn breaks_connection(error: &StoreError) -> bool {
    match error {
        StoreError::ConnectionLost { .. } => true,
        StoreError::Database { source } => is_cancelled(source.as_ref()),
        _ => false,
    }
}

/// Translates an error of an established connection.
pub(super) fn explain_error(error: postgres::Error, database: &str) -> StoreError {
    let database = database.to_owned();
    let Some(refusal) = error.as_db_error() else {
        let is_io = error.source().is_some_and(|source| source.is::<std::io::Error>());
        if error.is_closed() || is_io {
            return StoreError::ConnectionLost { database, reason: error_chain(&error) };
        }
        return StoreError::Database { source: Box::new(error) };
    };
    let reason = refusal.message().to_owned();
    match refusal.code() {
        state if is_end_of_connection(state) => StoreError::ConnectionLost { database, reason },
        &SqlState::DISK_FULL => StoreError::Full { path: database.into() },
        &SqlState::OUT_OF_MEMORY | &SqlState::INSUFFICIENT_PRIVILEGE => {
            StoreError::Refused { database, reason }
        }
        &SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::ReadOnly { path: database.into() },
        &SqlState::LOCK_NOT_AVAILABLE => StoreError::Contended { database, attempts: 1 },
        &SqlState::CHARACTER_NOT_IN_REPERTOIRE | &SqlState::PROGRAM_LIMIT_EXCEEDED => {
            StoreError::Unstorable { database, reason }
        }
        _ => StoreError::Database { source: Box::new(error) },
    }
}

fn is_end_of_connection(state: &SqlState) -> bool {
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ]
    .contains(state)
        || state.code().starts_with("08")
}

/// Translates an error of connecting.
pub(super) fn explain_connect_error(error: &postgres::Error, database: &str) -> StoreError {
    let database = database.to_owned();
    match error.as_db_error() {
        Some(refusal) if is_end_of_connection(refusal.code()) => {
            StoreError::Unreachable { database, reason: refusal.message().to_owned() }
        }
        Some(refusal) => StoreError::Refused { database, reason: refusal.message().to_owned() },
        None => {
            let reason = error_chain(error);
            if reason.contains("TLS") {
                let reason = format!(
                    "{reason}; its certificate must be signed by an authority that this machine trusts \
                     (SSL_CERT_FILE can name a file with more), or sslmode=disable does without encryption"
                );
                return StoreError::Refused { database, reason };
            }
            StoreError::Unreachable { database, reason }
        }
    }
}
