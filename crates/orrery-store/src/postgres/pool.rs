//! Connection pool: connections are opened on demand, returned after each use, and replaced when
//! they break.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use postgres::{Client, NoTls, Row};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::async_connection::AsyncConnection;
use super::connection::{Connection, explain_connect_error};
use crate::sql::SqlValue;
use crate::{Holder, PoolStatus, Result, StoreError};

/// Time to wait for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to wait for the server, if the URL does not set it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time until a dead peer is detected.
const TCP_TIMEOUT: Duration = Duration::from_secs(15);

/// Share of the connections that asynchronous reads may use: one of so many. Blocking work keeps
/// the others. A smaller pool has none for asynchronous reads.
const ASYNC_SHARE: usize = 4;

/// Settings of every connection. A process that is stopped in the middle of a transaction must not
/// block others for ever (a transaction under a lease ends sooner, see `check_lease`), and waits
/// for locks and statements are bounded. JIT compilation costs more than our statements take.
const SESSION_SETTINGS: &str = "SET idle_in_transaction_session_timeout = '60s'; SET lock_timeout = '300s'; \
     SET statement_timeout = '900s'; SET jit = off; SET client_min_messages = warning; \
     SET default_transaction_isolation = 'read committed'";

/// Purpose of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolPurpose {
    /// General work, without a time limit.
    Work,
    /// Renewals of leases: a late answer is worthless, and other work must not delay them.
    Renewals,
}

/// Renewals end within seconds, or fail.
const RENEWAL_TCP_TIMEOUT: Duration = Duration::from_secs(3);
const RENEWAL_SESSION_SETTINGS: &str = "SET statement_timeout = '3s'; SET lock_timeout = '3s'; \
     SET idle_in_transaction_session_timeout = '3s'";

pub(super) struct Pool {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    database: Arc<str>,
    size: usize,
    purpose: PoolPurpose,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    /// Idle connections for asynchronous reads.
    idle_async: Vec<AsyncConnection>,
    /// Connections that exist or are being opened, of both kinds.
    open: usize,
    /// Those of them for asynchronous reads.
    open_async: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Pool");
        shown.field("database", &self.database).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(
        url: &str,
        holder: &Holder,
        size: usize,
        purpose: PoolPurpose,
    ) -> Result<Self> {
        let bad = |reason: String| StoreError::BadUrl { reason };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(bad("the address does not begin with postgres://".to_owned()));
        }
        let url = &*with_supported_sslmode(url).map_err(bad)?;
        let mut config: Config = url.parse().map_err(|error: postgres::Error| {
            bad(std::error::Error::source(&error).unwrap_or(&error).to_string())
        })?;
        if config.get_hosts().is_empty() {
            return Err(bad("the URL has no host".to_owned()));
        }
        let (silence, connect_timeout) = match purpose {
            PoolPurpose::Work => (TCP_TIMEOUT, CONNECT_TIMEOUT),
            PoolPurpose::Renewals => (RENEWAL_TCP_TIMEOUT, RENEWAL_TCP_TIMEOUT),
        };
        if purpose == PoolPurpose::Renewals || config.get_connect_timeout().is_none() {
            config.connect_timeout(connect_timeout);
        }
        config
            .keepalives_idle(silence)
            .keepalives_interval(silence / 3)
            .keepalives_retries(3)
            .tcp_user_timeout(silence);
        if config.get_application_name().is_none() {
            config.application_name(format!(
                "{} ({} on {})",
                holder.command, holder.pid, holder.host
            ));
        }
        let is_here = config.get_hosts().iter().all(is_this_machine);
        if is_here && !url.contains("sslmode=") {
            config.ssl_mode(SslMode::Disable);
        }
        let database: Arc<str> = describe(&config).into();
        let is_socket = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let tls = if is_socket || config.get_ssl_mode() == SslMode::Disable {
            None
        } else {
            Some(tls(&database)?)
        };
        let (state, freed) = (Mutex::default(), Condvar::new());
        Ok(Pool { config, tls, database, size: size.max(1), purpose, state, freed })
    }

    pub(super) fn database(&self) -> &str {
        &self.database
    }

    pub(super) fn status(&self) -> PoolStatus {
        let state = self.lock();
        PoolStatus {
            open: state.open,
            idle: state.idle.len() + state.idle_async.len(),
            max: self.size,
        }
    }

    /// A connection on which `begin` has succeeded. A connection that was lost while idle is
    /// replaced: `begin` is the first to notice, and nothing was done before it.
    pub(super) fn acquire(
        &self,
        begin: &mut dyn FnMut(&mut Connection) -> Result<()>,
    ) -> Result<PooledConnection<'_>> {
        loop {
            let (mut connection, is_new) = self.acquire_any()?;
            match begin(&mut connection) {
                Ok(()) => return Ok(connection),
                Err(StoreError::ConnectionLost { .. }) if !is_new => drop(connection),
                Err(error) => return Err(error),
            }
        }
    }

    /// A connection, if one is idle or can be opened without waiting for other users.
    pub(super) fn try_acquire(&self) -> Option<PooledConnection<'_>> {
        let mut state = self.lock();
        if let Some(connection) = state.idle.pop() {
            return Some(PooledConnection { pool: self, connection: Some(connection) });
        }
        if state.open == self.size {
            return None;
        }
        state.open += 1;
        drop(state);
        let mut pooled = PooledConnection { pool: self, connection: None };
        pooled.connection = Some(self.connect().ok()?);
        Some(pooled)
    }

    /// A connection, and true if it was opened just now.
    fn acquire_any(&self) -> Result<(PooledConnection<'_>, bool)> {
        let began = monotonic();
        let timeout = match self.purpose {
            PoolPurpose::Work => ACQUIRE_TIMEOUT,
            PoolPurpose::Renewals => RENEWAL_TCP_TIMEOUT,
        };
        let mut state = self.lock();
        loop {
            if let Some(connection) = state.idle.pop() {
                return Ok((PooledConnection { pool: self, connection: Some(connection) }, false));
            }
            if state.open < self.size {
                state.open += 1;
                drop(state);
                // Until it is connected, this returns the slot in any case.
                let mut pooled = PooledConnection { pool: self, connection: None };
                pooled.connection = Some(self.connect()?);
                return Ok((pooled, true));
            }
            let Some(remaining) = timeout.checked_sub(began.elapsed()) else {
                return Err(StoreError::NoConnection {
                    database: self.database.to_string(),
                    size: self.size,
                    seconds: timeout.as_secs(),
                });
            };
            state = self
                .freed
                .wait_timeout(state, remaining)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }

    fn connect(&self) -> Result<Connection> {
        let config = postgres::Config::from(self.config.clone());
        let connected = match &self.tls {
            Some(tls) => config.connect(tls.clone()),
            None => config.connect(NoTls),
        };
        let client: Client =
            connected.map_err(|error| explain_connect_error(&error, &self.database))?;
        let mut connection = Connection::new(client, Arc::clone(&self.database));
        connection.batch(SESSION_SETTINGS)?;
        if self.purpose == PoolPurpose::Renewals {
            connection.batch(RENEWAL_SESSION_SETTINGS)?;
        }
        Ok(connection)
    }

    /// Rows of a single statement, read without blocking the thread; `None` if no connection is
    /// free for it. A connection that was lost while idle is replaced.
    pub(super) async fn read_async(
        &self,
        sql: &str,
        values: &[SqlValue<'_>],
    ) -> Result<Option<Vec<Row>>> {
        loop {
            let Some(mut reader) = self.claim_async() else { return Ok(None) };
            let is_new = reader.connection.is_none();
            let connection = match &mut reader.connection {
                Some(connection) => connection,
                missing => missing.insert(self.connect_async().await?),
            };
            match connection.query(sql, values).await {
                Ok(rows) => return Ok(Some(rows)),
                Err(StoreError::ConnectionLost { .. }) if !is_new => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A free connection for asynchronous reads, or the right to open one.
    fn claim_async(&self) -> Option<PooledReader<'_>> {
        let mut state = self.lock();
        if let Some(connection) = state.idle_async.pop() {
            return Some(PooledReader { pool: self, connection: Some(connection) });
        }
        if state.open_async >= self.size / ASYNC_SHARE {
            return None;
        }
        let replaced = if state.open < self.size {
            state.open += 1;
            None
        } else {
            Some(state.idle.pop()?)
        };
        state.open_async += 1;
        drop(state);
        close(replaced.into_iter().collect());
        Some(PooledReader { pool: self, connection: None })
    }

    async fn connect_async(&self) -> Result<AsyncConnection> {
        let database = Arc::clone(&self.database);
        let connected = match &self.tls {
            Some(tls) => AsyncConnection::open(&self.config, tls.clone(), database).await,
            None => AsyncConnection::open(&self.config, NoTls, database).await,
        };
        let mut connection = connected?;
        connection.batch(SESSION_SETTINGS).await?;
        Ok(connection)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }
}

/// Closes connections on another thread. Closing blocks, which the threads of an asynchronous
/// runtime must not.
fn close(connections: Vec<Connection>) -> Option<std::thread::JoinHandle<()>> {
    if connections.is_empty() {
        return None;
    }
    spawn_named("close", move || drop(connections)).ok()
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A thread of an asynchronous runtime may drop the store.
        let idle = std::mem::take(&mut self.lock().idle);
        let _ = close(idle).map(std::thread::JoinHandle::join);
    }
}

/// A connection in use. It returns to the pool when this is dropped, unless it is broken.
pub(super) struct PooledConnection<'a> {
    pool: &'a Pool,
    /// `None` only while it is being opened.
    connection: Option<Connection>,
}

impl Deref for PooledConnection<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("a connection that was taken")
    }
}

impl DerefMut for PooledConnection<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a connection that was taken")
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        let usable = self.connection.take().filter(Connection::is_usable);
        let mut state = self.pool.lock();
        match usable {
            Some(connection) => state.idle.push(connection),
            None => state.open = state.open.saturating_sub(1),
        }
        drop(state);
        self.pool.freed.notify_one();
    }
}

/// A connection in use by an asynchronous read. It returns to the pool when this is dropped, unless
/// its statement failed or was abandoned.
struct PooledReader<'a> {
    pool: &'a Pool,
    /// `None` until it is opened.
    connection: Option<AsyncConnection>,
}

impl Drop for PooledReader<'_> {
    fn drop(&mut self) {
        let usable = self.connection.take().filter(AsyncConnection::is_usable);
        let mut state = self.pool.lock();
        match usable {
            Some(connection) => {
                state.idle_async.push(connection);
                return;
            }
            None => {
                state.open = state.open.saturating_sub(1);
                state.open_async = state.open_async.saturating_sub(1);
            }
        }
        drop(state);
        self.pool.freed.notify_one();
    }
}

fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost"
                || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

/// Description of the database for people, never with its password.
fn describe(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(index, host)| {
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(directory) => format!("{}/.s.PGSQL.{port}", directory.display()),
            }
        })
        .collect();
    let hosts = hosts.join(" or ");
    match config.get_dbname() {
        Some(name) => format!("PostgreSQL at {hosts} (database {name})"),
        None => format!("PostgreSQL at {hosts}"),
    }
}

/// The URL with an `sslmode` that the library supports. Certificates and host names are always
/// verified, so the verifying modes equal `require`.
fn with_supported_sslmode(url: &str) -> std::result::Result<Cow<'_, str>, String> {
    let Some((before, options)) = url.split_once('?') else { return Ok(url.into()) };
    let mut supported = Vec::new();
    for option in options.split('&') {
        supported.push(match option.strip_prefix("sslmode=") {
            None | Some("disable" | "prefer" | "require") => option,
            Some("verify-ca" | "verify-full") => "sslmode=require",
            Some(other) => {
                return Err(format!(
                    "unknown sslmode={other}; expected disable, prefer, require, verify-ca or verify-full; \
                     encrypted connections always verify the certificate and the host name"
                ));
            }
        });
    }
    Ok(format!("{before}?{}", supported.join("&")).into())
}

/// TLS with certificates verified by the platform's trust store.
fn tls(database: &str) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_platform_verifier())
        .map(|builder| builder.with_no_client_auth());
    let config = config.map_err(|error| StoreError::Refused {
        database: database.to_owned(),
        reason: format!(
            "no certificates of authorities can be read on this machine ({error}); install them, \
             or do without encryption by sslmode=disable"
        ),
    })?;
    Ok(MakeRustlsConnect::new(config))
}
