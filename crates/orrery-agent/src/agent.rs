//! The life of an agent: sessions, one after the other, and certificates in time.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orrery_handlers::target::Variables;
use orrery_handlers::{LocalTarget, Registry};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::now;
use crate::enrolment::{EnrolmentError, renew};
use crate::errors::chain;
use crate::journal::{Bounds, Journal, JournalError};
use crate::protocol::{Hello, Machine, PROTOCOL, Refusal, RefusalCode};
use crate::running::{Limits, Runner, Setup};
use crate::session::{self, End};
use crate::state::{Identity, StateDirectory, StateError};
use crate::tls::{self, TlsError};

/// Why an agent does not begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    #[error("there is no agent in {0}; join with a token first: orrery agent join GATEWAY")]
    NotJoined(String),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("no thread could be started")]
    Thread(#[source] io::Error),
    #[error("the gateway has nothing more to do with this agent: {}", .0.reason)]
    Revoked(Refusal),
}

/// How soon an agent comes again after it lost its session.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// At most this long after a session, and twice as long after each failure.
    pub first: Duration,
    pub most: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { first: Duration::from_millis(500), most: Duration::from_secs(60) }
    }
}

impl Pace {
    /// Anything from nothing to the longest: agents that lost their gateway at once do not come back at once.
    fn pause(&self, failures: u32) -> Duration {
        let most = self.first.saturating_mul(1 << failures.min(20)).min(self.most);
        most.mul_f64(rand::random_range(0.0..=1.0))
    }
}

/// An agent that has joined.
#[derive(Debug)]
pub struct Agent {
    certificates: Arc<Certificates>,
    runner: Runner,
    /// Differs from one process to the next.
    boot: Uuid,
    pace: Pace,
}

impl Agent {
    /// Takes up what a directory holds.
    ///
    /// # Errors
    /// If the agent has not joined, or what is there cannot be used.
    pub fn start(state: StateDirectory, limits: Limits, pace: Pace) -> Result<Self, AgentError> {
        let joined = state.identity()?;
        let identity =
            joined.ok_or_else(|| AgentError::NotJoined(state.path().display().to_string()))?;
        let journal = Journal::open(&state.journal(), Bounds::default())?;
        let runner = Runner::start(Setup {
            environment: identity.environment,
            names: identity.names.clone(),
            registry: Registry::native(),
            target: Arc::new(LocalTarget::default().with_variables(Variables::WithoutOwn)),
            journal,
            limits,
        });
        let runner = runner.map_err(AgentError::Thread)?;
        let certificates = Arc::new(Certificates { state, identity: Mutex::new(identity) });
        Ok(Agent { certificates, runner, boot: Uuid::new_v4(), pace })
    }

    /// Who it is at present.
    pub fn identity(&self) -> Identity {
        self.certificates.identity().clone()
    }

    /// Serves until it is asked to stop.
    ///
    /// # Errors
    /// If the gateway refuses it for good.
    pub async fn run(self, stop: CancellationToken) -> Result<(), AgentError> {
        let renewing = tokio::spawn(Arc::clone(&self.certificates).keep_fresh());
        let served = self.serve(&stop).await;
        renewing.abort();
        served
    }

    async fn serve(&self, stop: &CancellationToken) -> Result<(), AgentError> {
        let mut failures = 0;
        loop {
            let identity = self.identity();
            let key = self.certificates.state.key()?.serialize_pem();
            let config = tls::for_sessions(&identity, &key)?;
            let end =
                session::serve(&identity.gateway, config, self.hello(), &self.runner, stop).await;
            let pause = match end {
                End::Stopped => return Ok(()),
                End::Refused(refusal) if refusal.code == RefusalCode::Revoked => {
                    self.runner.cancel_all();
                    session::drain(self.runner.clone()).await;
                    return Err(AgentError::Revoked(refusal));
                }
                End::Refused(refusal) => {
                    tracing::warn!(code = ?refusal.code, reason = refusal.reason, "the gateway refuses the session");
                    failures += 1;
                    // Two processes with one identity must not drive each other away without end.
                    if refusal.code == RefusalCode::Superseded {
                        self.pace.most
                    } else {
                        self.pace.pause(failures)
                    }
                }
                End::Lost { error, welcomed } => {
                    failures = if welcomed { 0 } else { failures + 1 };
                    let pause = self.pace.pause(failures);
                    let expired = identity.expires_at() <= now();
                    tracing::warn!(error = chain(&error), again_in = ?pause, "no session");
                    if expired {
                        tracing::error!(
                            "the certificate of this agent has expired; make a new invitation, and join with --replace"
                        );
                    }
                    pause
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => {
                    session::drain(self.runner.clone()).await;
                    return Ok(());
                }
            }
        }
    }

    fn hello(&self) -> Hello {
        Hello {
            protocol: PROTOCOL,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            boot: self.boot,
            running: self.runner.underway(),
            machine: Machine::this(),
        }
    }
}

/// What shows who the agent is.
#[derive(Debug)]
struct Certificates {
    state: StateDirectory,
    identity: Mutex<Identity>,
}

/// Between two looks at whether a certificate is due.
const LOOK_AT_LEAST: Duration = Duration::from_secs(1);
const LOOK_AT_MOST: Duration = Duration::from_secs(3600);

impl Certificates {
    fn identity(&self) -> MutexGuard<'_, Identity> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gets the next certificate in time, for ever.
    async fn keep_fresh(self: Arc<Self>) {
        loop {
            let identity = self.identity().clone();
            if identity.is_due(now()) {
                match renew(&self.state, &identity).await {
                    Ok(renewed) => {
                        tracing::info!(expires = %renewed.expires_at(), "the certificate is renewed");
                        *self.identity() = renewed;
                    }
                    Err(EnrolmentError::Ask(error)) => {
                        tracing::warn!(
                            error = chain(&error),
                            "the certificate cannot be renewed now"
                        );
                    }
                    Err(error) => {
                        tracing::error!(error = chain(&error), "the certificate cannot be renewed");
                    }
                }
            }
            // A clock may be set: it is looked at often, not calculated with.
            let valid = Duration::from_secs(identity.valid_seconds);
            let pause = (valid / 100).clamp(LOOK_AT_LEAST, LOOK_AT_MOST);
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_differ() {
        let pace = Pace::default();
        let longest = |failures| (0..200).map(|_| pace.pause(failures)).max().unwrap();
        let shortest = |failures| (0..200).map(|_| pace.pause(failures)).min().unwrap();
        assert!(longest(0) <= pace.first);
        assert!(longest(3) > pace.first && longest(3) <= pace.first * 8);
        assert!(longest(40) > Duration::from_secs(30) && longest(40) <= pace.most);
        assert!(shortest(40) < Duration::from_secs(30));
    }
}
