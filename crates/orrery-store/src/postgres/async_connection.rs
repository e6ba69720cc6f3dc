//! One connection for reads that do not block a thread.
//!
//! The read that uses a connection also drives it: its task sends the statement, waits for the
//! socket and decodes the rows, so that no other task or thread has to be woken. Nothing drives an
//! idle connection. The next read detects that it was lost, and the pool replaces it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use postgres::{Error, Row, Statement};
use rustc_hash::FxHashMap;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, Socket};

use super::connection::{
    Parameter, STATEMENTS, breaks_connection, explain_connect_error, explain_error,
    postgres_dialect,
};
use crate::Result;
use crate::sql::SqlValue;

/// Relays messages between a client and its socket until the connection ends.
type Driver = Pin<Box<dyn Future<Output = std::result::Result<(), Error>> + Send>>;

pub(super) struct AsyncConnection {
    client: Client,
    /// `None` after its end.
    driver: Option<Driver>,
    statements: FxHashMap<Box<str>, Statement>,
    /// Description of the database, for people.
    database: Arc<str>,
    /// Nothing is in progress. A read that is dropped before its end leaves this false.
    is_usable: bool,
}

impl AsyncConnection {
    /// Connects. Must be called in the context of an asynchronous runtime.
    pub(super) async fn open<T>(config: &Config, tls: T, database: Arc<str>) -> Result<Self>
    where
        T: MakeTlsConnect<Socket>,
        T::TlsConnect: Send,
        T::Stream: Send + 'static,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let connected = config.connect(tls).await;
        let (client, connection) =
            connected.map_err(|error| explain_connect_error(&error, &database))?;
        let driver: Driver = Box::pin(connection);
        let statements = FxHashMap::default();
        Ok(AsyncConnection { client, driver: Some(driver), statements, database, is_usable: true })
    }

    pub(super) fn is_usable(&self) -> bool {
        self.is_usable && self.driver.is_some() && !self.client.is_closed()
    }

    /// Runs statements without parameters or results.
    pub(super) async fn batch(&mut self, sql: &str) -> Result<()> {
        self.is_usable = false;
        let done = drive(&mut self.driver, self.client.batch_execute(sql)).await;
        self.finish(done)
    }

    /// Rows of a statement of the shared dialect.
    pub(super) async fn query(&mut self, sql: &str, values: &[SqlValue<'_>]) -> Result<Vec<Row>> {
        self.is_usable = false;
        let found = self.try_query(sql, values).await;
        self.finish(found)
    }

    async fn try_query(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
    ) -> std::result::Result<Vec<Row>, Error> {
        let statement = match self.statements.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let text = postgres_dialect(sql);
                let statement = drive(&mut self.driver, self.client.prepare(&text)).await?;
                if self.statements.len() >= STATEMENTS {
                    self.statements.clear();
                }
                self.statements.insert(sql.into(), statement.clone());
                statement
            }
        };
        let parameters: Vec<Parameter<'_>> = values.iter().map(|value| value as _).collect();
        drive(&mut self.driver, self.client.query(&statement, &parameters)).await
    }

    fn finish<T>(&mut self, done: std::result::Result<T, Error>) -> Result<T> {
        let done = done.map_err(|error| explain_error(error, &self.database));
        self.is_usable = !done.as_ref().is_err_and(breaks_connection);
        done
    }
}

/// Runs the work of a client, and relays its messages meanwhile.
async fn drive<T>(
    driver: &mut Option<Driver>,
    work: impl Future<Output = std::result::Result<T, Error>>,
) -> std::result::Result<T, Error> {
    let mut work = pin!(work);
    poll_fn(|context| {
        // The work comes first, since it may have something to send.
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        if let Some(running) = driver
            && let Poll::Ready(ended) = running.as_mut().poll(context)
        {
            *driver = None;
            if let Err(error) = ended {
                return Poll::Ready(Err(error));
            }
        }
        work.as_mut().poll(context)
    })
    .await
}
