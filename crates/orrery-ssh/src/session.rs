//! The connection to one destination: made when required, shared, and made again after a loss.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use russh::client::Msg;
use russh::{Channel, ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::admission::Admission;
use crate::breaker::{Breaker, Circuit};
use crate::error::ConnectError;
use crate::link::{ConnectContext, Link, connect};
use crate::route::Hop;

/// Attempts after a server dropped a connection at once, as one with too many unauthenticated
/// connections does.
const BRIEF_ATTEMPTS: u32 = 4;

/// State of the connection to a machine, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionState {
    /// `user@host:port`.
    pub destination: String,
    pub circuit: Circuit,
    /// Age of the connection, if there is one.
    pub connected_for: Option<Duration>,
    /// Last measured round trip.
    pub latency: Option<Duration>,
    /// Reason for the last failure, until a connection succeeds.
    pub problem: Option<String>,
    /// Commands that run now.
    pub commands: usize,
    /// True if the connection exists and the machine did not answer in time.
    pub unresponsive: bool,
    /// Connections that were made after a loss or a failed attempt.
    pub recoveries: u64,
    /// The connection was lost, and not closed by this side; no attempt has succeeded since.
    pub lost: bool,
    /// The machine was lost or not reached, and an attempt to connect is due since this time.
    pub attempt_due: Option<Duration>,
}

#[derive(Debug, Default)]
struct Health {
    breaker: Breaker,
    problem: Option<Problem>,
    /// The last connection was lost, and not closed by this side.
    lost: bool,
    recoveries: u64,
    latency: Option<Duration>,
    connected_at: Option<Instant>,
    last_used: Option<Instant>,
    /// The machine did not answer the last ping in time.
    unresponsive: bool,
}

/// Failure of the last attempt to connect.
#[derive(Clone, Debug, Default)]
struct Problem {
    reason: String,
    help: Option<String>,
    /// The machine was not reached, rather than refused.
    is_unreached: bool,
}

/// Shared connection to one destination.
pub(crate) struct Session {
    hop: Hop,
    via: Option<Arc<Session>>,
    context: ConnectContext,
    admission: Arc<Admission>,
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
    /// Sessions that the server allows at once.
    channels: Arc<Semaphore>,
    channels_max: AtomicU64,
    generation: AtomicU64,
    health: Mutex<Health>,
}

/// Failure to start a command.
#[derive(Debug)]
pub(crate) enum StartError {
    Connect(ConnectError),
    /// The machine refused it; nothing was started.
    Refused(String),
    /// The connection was lost while the command was being started.
    Lost(String),
}

/// An open channel, which counts against the limit of its connection.
pub(crate) struct CommandChannel {
    pub(crate) read: ChannelReadHalf,
    pub(crate) write: ChannelWriteHalf<Msg>,
    pub(crate) link: Arc<Link>,
    _permit: OwnedSemaphorePermit,
}

impl Session {
    pub(crate) fn new(
        hop: Hop,
        via: Option<Arc<Session>>,
        context: ConnectContext,
        admission: Arc<Admission>,
    ) -> Self {
        let sessions = context.limits.sessions;
        Session {
            hop,
            via,
            admission,
            link: tokio::sync::Mutex::default(),
            channels: Arc::new(Semaphore::new(sessions)),
            channels_max: AtomicU64::new(sessions as u64),
            generation: AtomicU64::new(0),
            health: Mutex::default(),
            context,
        }
    }

    pub(crate) fn address(&self) -> String {
        self.hop.destination.address()
    }

    pub(crate) fn context(&self) -> &ConnectContext {
        &self.context
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self) -> ConnectionState {
        let now = monotonic();
        // A closed connection is noticed at its next use.
        let (is_closed, is_lost, is_connecting) = match self.link.try_lock() {
            Ok(slot) => {
                let is_lost = slot.as_ref().is_some_and(|link| link.is_closed());
                (slot.is_none() || is_lost, is_lost, false)
            }
            Err(_) => (false, false, true),
        };
        let health = self.health.lock().ignore_poison();
        let connected_at = health.connected_at.filter(|_| !is_closed);
        let is_missed = match &health.problem {
            Some(problem) => problem.is_unreached,
            None => is_lost || health.lost,
        };
        let is_due = is_closed && is_missed && !is_connecting;
        let is_due = is_due && health.breaker.delay(now).is_none();
        ConnectionState {
            destination: self.address(),
            circuit: health.breaker.circuit(now),
            connected_for: connected_at.map(|at| now.saturating_duration_since(at)),
            latency: health.latency,
            problem: health.problem.as_ref().map(|problem| problem.reason.clone()),
            recoveries: health.recoveries,
            lost: is_lost || health.lost,
            attempt_due: is_due.then(|| health.breaker.overdue(now)),
            commands: self.commands(),
            unresponsive: connected_at.is_some() && health.unresponsive,
        }
    }

    fn commands(&self) -> usize {
        let max = self.channels_max.load(Ordering::Relaxed) as usize;
        max.saturating_sub(self.channels.available_permits())
    }

    /// Allows an attempt to connect at once, whatever failed before.
    pub(crate) fn allow_attempt(&self) {
        self.health.lock().ignore_poison().breaker.allow();
        if let Some(via) = &self.via {
            via.allow_attempt();
        }
    }

    /// Returns the connection; makes it if there is none. Concurrent callers wait for the attempt
    /// in progress, and fail with it.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, ConnectError> {
        let mut slot = self.link.lock().await;
        if let Some(link) = &*slot {
            if !link.is_closed() {
                self.health.lock().ignore_poison().last_used = Some(monotonic());
                return Ok(Arc::clone(link));
            }
            *slot = None;
            self.health.lock().ignore_poison().lose();
        }
        self.check_breaker()?;
        let result = self.connect_with_retries().await;
        let mut health = self.health.lock().ignore_poison();
        match result {
            Ok(link) => {
                let link = Arc::new(link);
                health.breaker.succeed();
                let was_lost = std::mem::take(&mut health.lost);
                if health.problem.take().is_some() || was_lost {
                    health.recoveries += 1;
                }
                health.connected_at = Some(link.connected_at);
                health.unresponsive = false;
                health.last_used = Some(link.connected_at);
                *slot = Some(Arc::clone(&link));
                Ok(link)
            }
            Err(error) => {
                if !error.is_local() {
                    health.breaker.fail(monotonic(), rand::random_range(0.0..=1.0));
                }
                let problem = Problem {
                    reason: error.to_string(),
                    help: error.help(),
                    is_unreached: error.is_unreached(),
                };
                let former = health.problem.replace(problem);
                drop(health);
                let destination = self.address();
                // A machine that stays away is tried every minute.
                if former.is_some_and(|former| former.reason == error.to_string()) {
                    tracing::debug!(%destination, %error, "still no SSH connection");
                } else {
                    tracing::warn!(%destination, %error, "no SSH connection");
                }
                Err(error)
            }
        }
    }

    fn check_breaker(&self) -> Result<(), ConnectError> {
        let mut health = self.health.lock().ignore_poison();
        if let Some(retry_in) = health.breaker.delay(monotonic()) {
            let Problem { reason: last, help, .. } = health.problem.clone().unwrap_or_default();
            return Err(ConnectError::Waiting { last, help, retry_in });
        }
        health.breaker.begin();
        Ok(())
    }

    async fn connect_with_retries(&self) -> Result<Link, ConnectError> {
        let mut attempt = 1;
        loop {
            let error = match self.connect_once().await {
                Ok(link) => return Ok(link),
                Err(error) => error,
            };
            if attempt == BRIEF_ATTEMPTS || !error.is_brief() {
                return Err(error);
            }
            let chance: f64 = rand::random_range(0.0..=1.0);
            let pause = Duration::from_millis(100 << attempt).mul_f64(0.5 + chance);
            attempt += 1;
            tokio::time::sleep(pause).await;
        }
    }

    async fn connect_once(&self) -> Result<Link, ConnectError> {
        let via = match &self.via {
            Some(jump) => {
                let link = Box::pin(jump.link()).await.map_err(|source| ConnectError::Jump {
                    host: jump.address(),
                    source: Box::new(source),
                })?;
                Some((link, jump.address()))
            }
            None => None,
        };
        let bottleneck = match &self.via {
            Some(jump) => jump.address(),
            None => format!("{}:{}", self.hop.destination.host, self.hop.destination.port),
        };
        let _admitted = self.admission.admit(&bottleneck).await;
        let generation = self.generation.load(Ordering::Acquire) + 1;
        let link = connect(&self.hop, via, &self.context, generation).await?;
        self.generation.store(generation, Ordering::Release);
        Ok(link)
    }

    /// Opens a channel. Waits while the machine allows no more of them.
    pub(crate) async fn open(&self) -> Result<CommandChannel, StartError> {
        let mut reconnected = false;
        loop {
            let permit = Arc::clone(&self.channels).acquire_owned().await;
            let permit = permit.map_err(|_| StartError::Connect(ConnectError::Closed))?;
            let link = self.link().await.map_err(StartError::Connect)?;
            let limit = self.context.limits.channel;
            match timeout(limit, link.handle.channel_open_session()).await {
                Ok(Ok(channel)) => return Ok(CommandChannel::new(channel, link, permit)),
                Ok(Err(russh::Error::ChannelOpenFailure(reason))) => {
                    // It allows fewer sessions than assumed: one of this connection must end first.
                    if self.commands() <= 1 {
                        let reason = format!("the machine refuses a session: {reason:?}");
                        return Err(StartError::Refused(reason));
                    }
                    permit.forget();
                    self.channels_max.fetch_sub(1, Ordering::Relaxed);
                }
                Ok(Err(error)) => {
                    // The connection ended since its last use; nothing was started on it.
                    if reconnected {
                        let reason = format!("{error}; {}", link.end_reason());
                        return Err(StartError::Refused(reason));
                    }
                    reconnected = true;
                    self.discard(&link).await;
                }
                Err(_) => {
                    self.discard(&link).await;
                    return Err(StartError::Refused(format!(
                        "no answer within {} s while a session was opened",
                        limit.as_secs()
                    )));
                }
            }
        }
    }

    /// Measures the time of a round trip.
    pub(crate) async fn measure_latency(&self) -> Result<Duration, StartError> {
        let link = self.link().await.map_err(StartError::Connect)?;
        let limit = self.context.limits.channel;
        let mut latency = Duration::MAX;
        // The first answer after the authentication may wait for a delayed acknowledgement.
        for _ in 0..2 {
            let began = monotonic();
            match timeout(limit, link.handle.send_ping()).await {
                Ok(Ok(())) if !link.is_closed() => latency = latency.min(began.elapsed()),
                _ => return Err(StartError::Lost(link.end_reason())),
            }
        }
        self.health.lock().ignore_poison().latency = Some(latency);
        Ok(latency)
    }

    /// Measures the round trip of an existing connection. Neither connects nor counts as a use.
    pub(crate) async fn refresh_latency(&self, limit: Duration) {
        let link = match self.link.try_lock() {
            Ok(slot) => slot.as_ref().filter(|link| !link.is_closed()).map(Arc::clone),
            Err(_) => None,
        };
        let Some(link) = link else { return };
        let began = monotonic();
        let answered = matches!(timeout(limit, link.handle.send_ping()).await, Ok(Ok(())));
        let mut health = self.health.lock().ignore_poison();
        health.unresponsive = !answered;
        if answered {
            health.latency = Some(began.elapsed());
        }
    }

    /// Drops a connection that no longer works, unless another one has replaced it.
    pub(crate) async fn discard(&self, link: &Arc<Link>) {
        let mut slot = self.link.lock().await;
        if slot.as_ref().is_some_and(|current| current.generation == link.generation) {
            *slot = None;
            self.health.lock().ignore_poison().lose();
        }
        drop(slot);
        link.close().await;
    }

    /// Closes the connection if it was not used for the time.
    pub(crate) async fn close_if_idle(&self, idle: Duration) -> bool {
        let now = monotonic();
        let last_used = self.health.lock().ignore_poison().last_used;
        let is_idle = last_used.is_none_or(|at| now.saturating_duration_since(at) >= idle);
        if self.commands() > 0 || !is_idle {
            return false;
        }
        let Ok(mut slot) = self.link.try_lock() else { return false };
        // Connections through this one hold it.
        if slot.as_ref().is_some_and(|link| Arc::strong_count(link) > 1) {
            return false;
        }
        if let Some(link) = slot.take() {
            link.close().await;
            self.health.lock().ignore_poison().connected_at = None;
        }
        true
    }

    pub(crate) fn touch(&self) {
        self.health.lock().ignore_poison().last_used = Some(monotonic());
    }
}

impl Health {
    fn lose(&mut self) {
        self.connected_at = None;
        self.lost = true;
    }
}

impl CommandChannel {
    fn new(channel: Channel<Msg>, link: Arc<Link>, permit: OwnedSemaphorePermit) -> Self {
        let (read, write) = channel.split();
        CommandChannel { read, write, link, _permit: permit }
    }
}
