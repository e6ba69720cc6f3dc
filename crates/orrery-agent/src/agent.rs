//! The agent process: consecutive sessions, and renewal of the certificate.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use orrery_base::error_chain::error_chain;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::clock::now;
use orrery_handlers::drift::FileWatch;
use orrery_handlers::target::{CommandRecords, LeftBehindError, Variables};
use orrery_handlers::{LocalTarget, Registry};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::address::GatewayAddress;
use crate::agent_command::AgentCommand;
use crate::code_runner::CodeRunner;
use crate::enrolment::{EnrolmentError, renew};
use crate::journal::{Journal, JournalError, JournalLimits};
use crate::policy::Policy;
use crate::protocol::{Hello, Machine, PROTOCOL, Refusal, RefusalCode, Welcome};
use crate::runner::{CommandScope, Limits, Runner, RunnerSetup};
use crate::session::{self, SessionEnd};
use crate::state::{AgentIdentity, StateDirectory, StateError};
use crate::tls::{self, AgentTlsError};

/// Reason why an agent does not start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    #[error("no agent in {0}")]
    NotJoined(String),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Tls(#[from] AgentTlsError),
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    #[error("cannot create {}", path.display())]
    Commands { path: PathBuf, source: io::Error },
    #[error(transparent)]
    LeftBehind(#[from] LeftBehindError),
    #[error("the gateway revoked this agent: {}", .0.reason)]
    Revoked(Refusal),
}

/// Exit code of a process whose agent was revoked. Service managers do not start it again.
pub const REVOKED_EXIT_CODE: u8 = 3;

impl AgentError {
    /// Exit code of the process.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, AgentError::Revoked(_)) { REVOKED_EXIT_CODE } else { 1 }
    }

    /// Remedy, for people, with commands of the running program.
    pub fn help(&self, command: &AgentCommand) -> Option<String> {
        let help = match self {
            AgentError::NotJoined(_) => {
                return Some(format!("join with a token first: {}", command.line("join GATEWAY")));
            }
            AgentError::Revoked(_) => {
                return Some(format!(
                    "to rejoin, create a new invitation and run `{}`",
                    command.line("join GATEWAY --replace")
                ));
            }
            AgentError::LeftBehind(LeftBehindError::Alive { .. }) => {
                "end these processes, or restart the machine, then start the agent again: it repeats no command beside them"
            }
            AgentError::Commands { .. } => "free some space, or correct the permissions",
            _ => return None,
        };
        Some(help.to_owned())
    }
}

/// Backoff between reconnects.
#[derive(Clone, Copy, Debug)]
pub struct ReconnectBackoff {
    /// Maximum delay after a session; doubles with each failure.
    pub initial: Duration,
    pub max: Duration,
}

impl Default for ReconnectBackoff {
    fn default() -> Self {
        ReconnectBackoff { initial: Duration::from_millis(500), max: Duration::from_secs(60) }
    }
}

impl ReconnectBackoff {
    /// Random delay up to the current maximum, so agents that lost their gateway together do not
    /// return together.
    fn delay(&self, failures: u32) -> Duration {
        let most = self.initial.saturating_mul(1 << failures.min(20)).min(self.max);
        most.mul_f64(rand::random_range(0.0..=1.0))
    }
}

/// An agent that has joined.
pub struct AgentProcess {
    certificates: Arc<Certificates>,
    runner: Runner,
    code_runner: Option<Arc<dyn CodeRunner>>,
    /// Differs between processes.
    boot: Uuid,
    backoff: ReconnectBackoff,
}

impl fmt::Debug for AgentProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentProcess").field("boot", &self.boot).finish_non_exhaustive()
    }
}

impl AgentProcess {
    /// Starts an agent from its state directory. Without a policy, everything is allowed; without a
    /// `code_runner`, only native handlers run.
    ///
    /// # Errors
    /// If the agent has not joined, or its state is unusable.
    pub fn start(
        state: StateDirectory,
        limits: Limits,
        backoff: ReconnectBackoff,
        policy: Option<Policy>,
        code_runner: Option<Arc<dyn CodeRunner>>,
    ) -> Result<Self, AgentError> {
        let joined = state.identity()?;
        let identity =
            joined.ok_or_else(|| AgentError::NotJoined(state.path().display().to_string()))?;
        let journal = Journal::open(&state.journal(), JournalLimits::default())?;
        let watch = Arc::new(FileWatch::default());
        let directory = state.commands();
        let records = CommandRecords::open(directory.clone())
            .map_err(|source| AgentError::Commands { path: directory, source })?;
        // Before any command is repeated.
        for program in records.end_left_behind()? {
            tracing::warn!(
                program,
                "ended a command that the killed process of this agent had left running"
            );
        }
        let target =
            LocalTarget::default().with_variables(Variables::WithoutOwn).with_records(records);
        let runner = Runner::start(RunnerSetup {
            scope: CommandScope::Agents {
                environment: identity.environment,
                names: identity.names.clone(),
            },
            registry: Registry::native(),
            target: Arc::new(target.with_watch(Arc::clone(&watch) as _)),
            watch: Some(watch),
            policy: policy.map(Arc::new),
            journal: Some(journal),
            limits,
            code_runner: code_runner.clone(),
        });
        let runner = runner.map_err(AgentError::Thread)?;
        let certificates = Arc::new(Certificates { state, identity: Mutex::new(identity) });
        Ok(AgentProcess { certificates, runner, code_runner, boot: Uuid::new_v4(), backoff })
    }

    /// Current identity.
    pub fn identity(&self) -> AgentIdentity {
        self.certificates.identity().clone()
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// If the gateway revoked the agent.
    pub async fn run(self, stop: CancellationToken) -> Result<(), AgentError> {
        let renewing = tokio::spawn(Arc::clone(&self.certificates).renew_loop());
        let served = self.serve(&stop).await;
        renewing.abort();
        if let Some(code_runner) = self.code_runner.clone()
            && tokio::task::spawn_blocking(move || code_runner.close()).await.is_err()
        {
            tracing::error!("ending the processes of handlers failed");
        }
        served
    }

    /// Serves until SIGINT or SIGTERM, which wait for running handlers; a second one does not.
    /// `ready` is called once signals are handled.
    ///
    /// # Errors
    /// If the gateway revoked the agent, or signals cannot be handled.
    pub async fn run_until_signalled(
        self,
        ready: impl FnOnce(&AgentIdentity),
    ) -> Result<(), AgentError> {
        let stop = CancellationToken::new();
        let asked = stop.clone();
        let mut interrupted = signal(SignalKind::interrupt()).map_err(AgentError::Thread)?;
        let mut terminated = signal(SignalKind::terminate()).map_err(AgentError::Thread)?;
        let identity = self.identity();
        ready(&identity);
        tracing::info!(agent = %identity.agent, gateway = %identity.gateway, names = ?identity.names, "agent started");
        let running = self.run(stop);
        tokio::pin!(running);
        tokio::select! {
            ended = &mut running => return ended,
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
        asked.cancel();
        tokio::select! {
            ended = &mut running => ended,
            _ = interrupted.recv() => Ok(()),
            _ = terminated.recv() => Ok(()),
        }
    }

    async fn serve(&self, stop: &CancellationToken) -> Result<(), AgentError> {
        let mut failover = Failover::default();
        loop {
            let identity = self.identity();
            let key = self.certificates.state.key()?.serialize_pem();
            let config = tls::for_sessions(&identity, &key)?;
            let addresses = identity.addresses();
            let gateway = failover.next(&addresses);
            let on_welcome = |welcome: &Welcome| self.certificates.learn_gateways(welcome);
            let (hello, runner) = (self.hello(), &self.runner);
            let end = session::serve(gateway, config, hello, runner, on_welcome, stop).await;
            let pause = match end {
                SessionEnd::Stopped => return Ok(()),
                SessionEnd::Refused(refusal) if refusal.code == RefusalCode::Revoked => {
                    self.runner.cancel_all();
                    session::drain(self.runner.clone()).await;
                    return Err(AgentError::Revoked(refusal));
                }
                SessionEnd::Refused(refusal) => {
                    tracing::warn!(%gateway, code = ?refusal.code, reason = refusal.reason, "session refused by the gateway");
                    failover.failures += 1;
                    // Two processes with one identity must not evict each other in a loop.
                    if refusal.code == RefusalCode::Superseded {
                        self.backoff.max
                    } else {
                        self.backoff.delay(failover.failed_rounds(&addresses))
                    }
                }
                SessionEnd::Lost { error, welcomed } => {
                    failover.failures = if welcomed { 0 } else { failover.failures + 1 };
                    let pause = self.backoff.delay(failover.failed_rounds(&addresses));
                    let expired = identity.expires_at() <= now();
                    tracing::warn!(%gateway, error = error_chain(&error), again_in = ?pause, "no session");
                    if expired {
                        tracing::error!(
                            "the certificate of this agent has expired; create a new invitation, and join with --replace"
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
            running: self.runner.active_commands(),
            machine: Machine::current(),
            types: Vec::new(),
            python: self.code_runner.is_some(),
        }
    }
}

/// Choice of the gateway for the next session: each failure moves on to the next address.
#[derive(Debug, Default)]
struct Failover {
    last: Option<GatewayAddress>,
    /// Consecutive failures.
    failures: u32,
}

impl Failover {
    /// The address after the last one; the first one at the start, and after its removal.
    fn next<'a>(&mut self, addresses: &'a [GatewayAddress]) -> &'a GatewayAddress {
        let last = self.last.as_ref();
        let at = last.and_then(|last| addresses.iter().position(|address| address == last));
        let chosen = &addresses[at.map_or(0, |at| (at + 1) % addresses.len())];
        self.last = Some(chosen.clone());
        chosen
    }

    /// Number of rounds through all addresses that failed.
    fn failed_rounds(&self, addresses: &[GatewayAddress]) -> u32 {
        let len = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        self.failures / len
    }
}

/// Identity with its certificate, and the state directory.
#[derive(Debug)]
struct Certificates {
    state: StateDirectory,
    identity: Mutex<AgentIdentity>,
}

/// Maximum number of stored gateway addresses.
const GATEWAYS_MAX: usize = 64;

/// Interval of checks for a due renewal.
const RENEW_CHECK_MIN: Duration = Duration::from_secs(1);
const RENEW_CHECK_MAX: Duration = Duration::from_secs(3600);

impl Certificates {
    fn identity(&self) -> MutexGuard<'_, AgentIdentity> {
        self.identity.lock().ignore_poison()
    }

    /// Stores the addresses that the server reports, if they are new.
    fn learn_gateways(&self, welcome: &Welcome) {
        let parsed = welcome.gateways.iter().filter_map(|address| {
            let parsed = address.parse::<GatewayAddress>();
            parsed.inspect_err(|error| tracing::warn!(%error, "gateway ignored")).ok()
        });
        let gateways: Vec<_> = parsed.take(GATEWAYS_MAX).collect();
        let mut identity = self.identity();
        if gateways.is_empty() || gateways == identity.gateways {
            return;
        }
        let learnt = AgentIdentity { gateways, ..identity.clone() };
        match self.state.store_identity(&learnt) {
            Ok(()) => *identity = learnt,
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "addresses of gateways not stored");
            }
        }
    }

    /// Obtains the next certificate and stores it.
    async fn renew(&self, identity: &AgentIdentity) -> Result<AgentIdentity, EnrolmentError> {
        let renewed = renew(&self.state.key()?, identity).await?;
        let mut current = self.identity();
        // A session may have reported other gateways meanwhile.
        let renewed = AgentIdentity { gateways: current.gateways.clone(), ..renewed };
        self.state.store_identity(&renewed)?;
        *current = renewed.clone();
        Ok(renewed)
    }

    /// Renews the certificate when due, in a loop.
    async fn renew_loop(self: Arc<Self>) {
        loop {
            let identity = self.identity().clone();
            if identity.is_due(now()) {
                match self.renew(&identity).await {
                    Ok(renewed) => {
                        tracing::info!(expires = %renewed.expires_at(), "certificate renewed");
                    }
                    Err(EnrolmentError::Gateway(error)) => {
                        tracing::warn!(
                            error = error_chain(&error),
                            "cannot renew the certificate; retrying"
                        );
                    }
                    Err(error) => {
                        tracing::error!(
                            error = error_chain(&error),
                            "cannot renew the certificate"
                        );
                    }
                }
            }
            // The clock may be set: check often instead of computing the time.
            let valid = Duration::from_secs(identity.valid_seconds);
            let pause = (valid / 100).clamp(RENEW_CHECK_MIN, RENEW_CHECK_MAX);
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_moves_on_and_only_full_rounds_back_off() {
        let addresses: Vec<GatewayAddress> =
            ["a", "b", "c"].iter().map(|name| name.parse().unwrap()).collect();
        let mut failover = Failover::default();
        let mut rounds = Vec::new();
        let mut order = String::new();
        for _ in 0..4 {
            order.push_str(&failover.next(&addresses).to_string()[..1]);
            failover.failures += 1;
            rounds.push(failover.failed_rounds(&addresses));
        }
        assert_eq!((order.as_str(), rounds), ("abca", vec![0, 0, 1, 1]));
        assert_eq!(failover.next(&addresses[1..]), &addresses[1], "the last one is gone");
        assert_eq!(failover.next(&addresses[1..2]), &addresses[1], "there is no other");
    }

    #[test]
    fn delays_grow_and_are_random() {
        let backoff = ReconnectBackoff::default();
        let longest = |failures| (0..200).map(|_| backoff.delay(failures)).max().unwrap();
        let shortest = |failures| (0..200).map(|_| backoff.delay(failures)).min().unwrap();
        assert!(longest(0) <= backoff.initial);
        assert!(longest(3) > backoff.initial && longest(3) <= backoff.initial * 8);
        assert!(longest(40) > Duration::from_secs(30) && longest(40) <= backoff.max);
        assert!(shortest(40) < Duration::from_secs(30));
    }
}
