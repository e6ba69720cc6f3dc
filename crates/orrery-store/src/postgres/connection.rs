//! One connection to PostgreSQL: statements are prepared once, and errors get their meaning.

use std::error::Error as _;
use std::sync::Arc;

use postgres::error::SqlState;
use postgres::types::{ToSql, Type};
use postgres::{Client, Row, Statement};
use rustc_hash::FxHashMap;

use super::copy::{CopyRows, NotCopied};
use crate::{Result, StoreError};

/// A parameter of a statement.
pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// Statements that a connection remembers. The fixed ones are fewer; texts that are put together may be many.
const STATEMENTS: usize = 256;

pub(super) struct Connection {
    client: Client,
    statements: FxHashMap<Box<str>, Statement>,
    /// Which database it is, for people.
    place: Arc<str>,
    /// A transaction is open. Who gives the connection back in the middle of one does so because of a panic.
    pub(super) in_transaction: bool,
    /// Nothing more can be done with it.
    pub(super) is_broken: bool,
    /// A statement of the transaction failed, so that the database would turn a commit into its opposite.
    pub(super) has_failed: bool,
}

impl Connection {
    pub(super) fn new(client: Client, place: Arc<str>) -> Self {
        Connection {
            client,
            statements: FxHashMap::default(),
            place,
            in_transaction: false,
            is_broken: false,
            has_failed: false,
        }
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.is_broken && !self.in_transaction && !self.client.is_closed()
    }

    /// Runs statements that have neither parameters nor answers.
    pub(super) fn batch(&mut self, sql: &str) -> Result<()> {
        let done = self.client.batch_execute(sql);
        done.map_err(|error| self.failed(error))
    }

    pub(super) fn execute(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64> {
        let statement = self.prepare(sql)?;
        let done = self.client.execute(&statement, parameters);
        done.map_err(|error| self.failed(error))
    }

    pub(super) fn query(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        let statement = self.prepare(sql)?;
        let rows = self.client.query(&statement, parameters);
        rows.map_err(|error| self.failed(error))
    }

    /// The one row of an answer that always has one.
    pub(super) fn one(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Row> {
        let row = self.query(sql, parameters)?.pop();
        row.ok_or_else(|| StoreError::Unreadable("an answer has no row".to_owned()))
    }

    /// Streams rows into a table, which takes them in while the next are made. `into` names the table and its columns.
    pub(super) fn copy(
        &mut self,
        into: &str,
        types: &[Type],
        rows: impl FnOnce(&mut CopyRows<'_>) -> std::result::Result<(), NotCopied>,
    ) -> Result<()> {
        let statement = self.prepare(&format!("COPY {into} FROM STDIN BINARY"))?;
        let copied = match self.client.copy_in(&statement) {
            Ok(writer) => {
                let mut copy = CopyRows::new(writer, types);
                rows(&mut copy).and_then(|()| copy.finish())
            }
            Err(error) => Err(NotCopied::Database(error)),
        };
        copied.map_err(|error| match error {
            NotCopied::Database(error) => self.failed(error),
            NotCopied::Value(source) => {
                self.has_failed = true;
                StoreError::Database { source }
            }
        })
    }

    /// In the dialect that both databases share, parameters are `?1`; here they are `$1`.
    fn prepare(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let prepared = self.client.prepare(&sql.replace('?', "$"));
        let statement = prepared.map_err(|error| self.failed(error))?;
        if self.statements.len() >= STATEMENTS {
            self.statements.clear();
        }
        self.statements.insert(sql.into(), statement.clone());
        Ok(statement)
    }

    fn failed(&mut self, error: postgres::Error) -> StoreError {
        self.has_failed = true;
        let error = explain(error, &self.place);
        // Who was told to stop in the middle may have kept a lock of the session.
        let was_stopped =
            matches!(&error, StoreError::Database { source } if is_cancelled(source.as_ref()));
        if was_stopped || matches!(error, StoreError::ConnectionLost { .. }) {
            self.is_broken = true;
        }
        error
    }
}

/// Whether the database ended a statement, because it took too long or was asked to.
pub(crate) fn is_cancelled(error: &(dyn std::error::Error + 'static)) -> bool {
    state_of(error).is_some_and(|state| *state == SqlState::QUERY_CANCELED)
}

/// What the database says went wrong, if it was the database.
pub(super) fn state_of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a SqlState> {
    error.downcast_ref::<postgres::Error>().and_then(postgres::Error::code)
}

/// An error of a connection that was made.
fn explain(error: postgres::Error, place: &str) -> StoreError {
    let place = place.to_owned();
    let Some(refusal) = error.as_db_error() else {
        let is_io = error.source().is_some_and(|source| source.is::<std::io::Error>());
        if error.is_closed() || is_io {
            return StoreError::ConnectionLost { place, reason: chain(&error) };
        }
        return StoreError::Database { source: Box::new(error) };
    };
    let reason = refusal.message().to_owned();
    match refusal.code() {
        state if is_end_of_connection(state) => StoreError::ConnectionLost { place, reason },
        &SqlState::DISK_FULL => StoreError::Full { path: place.into() },
        &SqlState::OUT_OF_MEMORY | &SqlState::INSUFFICIENT_PRIVILEGE => {
            StoreError::Refused { place, reason }
        }
        &SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::ReadOnly { path: place.into() },
        &SqlState::LOCK_NOT_AVAILABLE => StoreError::Contended { place, attempts: 1 },
        &SqlState::CHARACTER_NOT_IN_REPERTOIRE | &SqlState::PROGRAM_LIMIT_EXCEEDED => {
            StoreError::Unstorable { place, reason }
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

/// An error on the way to a connection.
pub(super) fn explain_connecting(error: &postgres::Error, place: &str) -> StoreError {
    let place = place.to_owned();
    match error.as_db_error() {
        Some(refusal) if is_end_of_connection(refusal.code()) => {
            StoreError::Unreachable { place, reason: refusal.message().to_owned() }
        }
        Some(refusal) => StoreError::Refused { place, reason: refusal.message().to_owned() },
        None => {
            let reason = chain(error);
            if reason.contains("TLS") {
                let reason = format!(
                    "{reason}; its certificate must be signed by an authority that this machine trusts \
                     (SSL_CERT_FILE can name a file with more), or sslmode=disable does without encryption"
                );
                return StoreError::Refused { place, reason };
            }
            StoreError::Unreachable { place, reason }
        }
    }
}

/// An error and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
