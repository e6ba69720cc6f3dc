//! A bounded set of connections: made when they are needed, given back after each piece of work, replaced when they break.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postgres::config::{Host, SslMode};
use postgres::{Client, Config, NoTls};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::connection::{Connection, explain_connecting};
use crate::{Connections, Holder, Result, StoreError};

/// How long somebody waits for a connection that others use.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long somebody waits for the server, if the address does not say.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a dead machine may go unnoticed.
const SILENCE: Duration = Duration::from_secs(15);

/// What every connection is told. A process that was stopped in the middle of a transaction must not hold up the others for
/// ever (what holds a lease is ended sooner, see `check_lease`); and nobody waits for ever for a lock or a statement. Compiling
/// statements to machine code costs more than ours take.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '60s'; SET lock_timeout = '300s'; \
     SET statement_timeout = '900s'; SET jit = off; SET client_min_messages = warning; \
     SET default_transaction_isolation = 'read committed'";

/// What a pool is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Whatever there is to do, however long it takes.
    Work,
    /// Renewals of leases: an answer that comes late is worth nothing, and nothing else may hold them up.
    Renewals,
}

/// Everything about renewals is over within seconds, or fails.
const RENEWAL_SILENCE: Duration = Duration::from_secs(3);
const RENEWAL_SESSION: &str = "SET statement_timeout = '3s'; SET lock_timeout = '3s'; \
     SET idle_in_transaction_session_timeout = '3s'";

pub(super) struct Pool {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    place: Arc<str>,
    size: usize,
    purpose: Purpose,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    /// Connections that exist or are being made.
    open: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("place", &self.place).field("size", &self.size).finish()
    }
}

impl Pool {
    pub(super) fn new(url: &str, holder: &Holder, size: usize, purpose: Purpose) -> Result<Self> {
        let bad = |reason: String| StoreError::BadUrl { reason };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(bad("the address does not begin with postgres://".to_owned()));
        }
        let url = &*with_known_mode(url).map_err(bad)?;
        let mut config: Config = url.parse().map_err(|error: postgres::Error| {
            bad(std::error::Error::source(&error).unwrap_or(&error).to_string())
        })?;
        if config.get_hosts().is_empty() {
            return Err(bad("the address has no host".to_owned()));
        }
        let (silence, connect_timeout) = match purpose {
            Purpose::Work => (SILENCE, CONNECT_TIMEOUT),
            Purpose::Renewals => (RENEWAL_SILENCE, RENEWAL_SILENCE),
        };
        if purpose == Purpose::Renewals || config.get_connect_timeout().is_none() {
            config.connect_timeout(connect_timeout);
        }
        config
            .keepalives_idle(silence)
            .keepalives_interval(silence / 3)
            .keepalives_retries(3)
            .tcp_user_timeout(silence);
        if config.get_application_name().is_none() {
            config.application_name(&format!(
                "{} ({} on {})",
                holder.command, holder.pid, holder.host
            ));
        }
        let is_here = config.get_hosts().iter().all(is_this_machine);
        if is_here && !url.contains("sslmode=") {
            config.ssl_mode(SslMode::Disable);
        }
        let place: Arc<str> = describe(&config).into();
        let is_socket = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let tls = if is_socket || config.get_ssl_mode() == SslMode::Disable {
            None
        } else {
            Some(tls(&place)?)
        };
        let (state, freed) = (Mutex::default(), Condvar::new());
        Ok(Pool { config, tls, place, size: size.max(1), purpose, state, freed })
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn connections(&self) -> Connections {
        let state = self.lock();
        Connections { open: state.open, idle: state.idle.len(), max: self.size }
    }

    /// A connection on which `begin` has worked. One that was lost while nobody used it is replaced: `begin` is the first to
    /// notice, and nothing was done before it.
    pub(super) fn take(
        &self,
        begin: &mut dyn FnMut(&mut Connection) -> Result<()>,
    ) -> Result<Taken<'_>> {
        loop {
            let (mut taken, is_new) = self.take_any()?;
            match begin(&mut taken) {
                Ok(()) => return Ok(taken),
                Err(StoreError::ConnectionLost { .. }) if !is_new => drop(taken),
                Err(error) => return Err(error),
            }
        }
    }

    /// Some connection, and whether it was made just now.
    fn take_any(&self) -> Result<(Taken<'_>, bool)> {
        let began = Instant::now();
        let patience = match self.purpose {
            Purpose::Work => PATIENCE,
            Purpose::Renewals => RENEWAL_SILENCE,
        };
        let mut state = self.lock();
        loop {
            if let Some(connection) = state.idle.pop() {
                return Ok((Taken { pool: self, connection: Some(connection) }, false));
            }
            if state.open < self.size {
                state.open += 1;
                drop(state);
                // Until it is there, this gives the place back whatever happens.
                let mut taken = Taken { pool: self, connection: None };
                taken.connection = Some(self.connect()?);
                return Ok((taken, true));
            }
            let Some(left) = patience.checked_sub(began.elapsed()) else {
                return Err(StoreError::NoConnection {
                    place: self.place.to_string(),
                    size: self.size,
                    seconds: patience.as_secs(),
                });
            };
            state = self
                .freed
                .wait_timeout(state, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }

    fn connect(&self) -> Result<Connection> {
        let made = match &self.tls {
            Some(tls) => self.config.connect(tls.clone()),
            None => self.config.connect(NoTls),
        };
        let client: Client = made.map_err(|error| explain_connecting(&error, &self.place))?;
        let mut connection = Connection::new(client, Arc::clone(&self.place));
        connection.batch(SESSION)?;
        if self.purpose == Purpose::Renewals {
            connection.batch(RENEWAL_SESSION)?;
        }
        Ok(connection)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Ending a connection blocks, which the threads of an asynchronous runtime must not; and such a thread may be the one
        // that drops the store.
        let idle = std::mem::take(&mut self.lock().idle);
        if !idle.is_empty() {
            let _ = std::thread::spawn(move || drop(idle)).join();
        }
    }
}

/// A connection in use. It goes back when this is dropped, unless it is no longer fit for use.
pub(super) struct Taken<'a> {
    pool: &'a Pool,
    /// `None` only while it is being made.
    connection: Option<Connection>,
}

impl Deref for Taken<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("a connection that was taken")
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a connection that was taken")
    }
}

impl Drop for Taken<'_> {
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

fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost"
                || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

/// Which database it is, for people: never with its password.
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

/// The address with a mode of encryption that the library knows. Certificates and names of hosts are always checked, so that modes
/// that ask for it are no other than `require`.
fn with_known_mode(url: &str) -> std::result::Result<Cow<'_, str>, String> {
    let Some((before, options)) = url.split_once('?') else { return Ok(url.into()) };
    let mut known = Vec::new();
    for option in options.split('&') {
        known.push(match option.strip_prefix("sslmode=") {
            None | Some("disable" | "prefer" | "require") => option,
            Some("verify-ca" | "verify-full") => "sslmode=require",
            Some(other) => {
                return Err(format!(
                    "sslmode={other} is none that is known; known are disable, prefer, require, verify-ca and verify-full, and \
                     whenever a connection is encrypted, the certificate and the name of the host are checked"
                ));
            }
        });
    }
    Ok(format!("{before}?{}", known.join("&")).into())
}

/// Certificates are checked as the machine's other programs do.
fn tls(place: &str) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_platform_verifier())
        .map(|builder| builder.with_no_client_auth());
    let config = config.map_err(|error| StoreError::Refused {
        place: place.to_owned(),
        reason: format!(
            "no certificates of authorities can be read on this machine ({error}); install them, \
             or do without encryption by sslmode=disable"
        ),
    })?;
    Ok(MakeRustlsConnect::new(config))
}
