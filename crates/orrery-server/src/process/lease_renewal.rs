//! Renews the leases of this process, on its own thread and connection, and revokes the permits of
//! leases that cannot be renewed.
//!
//! No renewal waits for the store longer than it is useful: each attempt runs on a thread that is
//! abandoned if it does not answer. Handlers check their permit, not this thread; a late thread can
//! only end a permit, never extend it.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_base::thread::spawn_named;
use orrery_handlers::{Moment, Permit};
use orrery_model::Timestamp;
use orrery_store::{Lease, RenewalOutcome, StoreError};

use crate::state::ServerState;

use super::Message;
use super::lease_cell::LeaseRegistry;
use super::supervisor::micros;

/// Renewals per lease duration.
const RENEWALS: u32 = 3;
/// Fraction of a lease, at its end, in which no work is done: time for cancelled handlers to end.
const MARGIN: u32 = 3;
/// Divisor of the renewal interval after a failure.
const RETRY_FACTOR: u32 = 5;

/// Returns the end of the permit for a lease requested at `requested_at` with duration `lasts`.
#[expect(clippy::unchecked_time_subtraction, reason = "a fraction is shorter")]
pub(super) fn permit_end(requested_at: Moment, lasts: Duration) -> Moment {
    requested_at.after(lasts - lasts / MARGIN)
}

/// Creates the permit of a newly acquired lease.
pub(super) fn permit(requested_at: Moment, lasts: Option<Duration>) -> Permit {
    lasts.map_or_else(Permit::unlimited, |lasts| Permit::until(permit_end(requested_at, lasts)))
}

/// The renewal thread.
#[derive(Debug)]
pub(super) struct Renewer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Renewer {
    pub(super) fn start(
        app: ServerState,
        lasts: Duration,
        leases: Arc<LeaseRegistry>,
        messages: Sender<Message>,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let renewal = RenewalLoop { app, lasts, leases, messages };
        let thread = spawn_named("renewal", move || renewal.run(&stopped))?;
        Ok(Renewer { stop: Some(stop), thread: Some(thread) })
    }

    /// Stops the thread; leases that are still held expire.
    pub(super) fn stop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that renews leases crashed");
        }
    }
}

struct RenewalLoop {
    app: ServerState,
    lasts: Duration,
    leases: Arc<LeaseRegistry>,
    messages: Sender<Message>,
}

impl RenewalLoop {
    fn run(&self, stopped: &Receiver<()>) {
        let usual = self.lasts / RENEWALS;
        let mut renew_at = Moment::now();
        loop {
            let ends = self.leases.held().into_iter().filter_map(|(_, end)| end).min();
            let pause =
                ends.map_or(renew_at.remaining(), |end| end.remaining().min(renew_at.remaining()));
            match stopped.recv_timeout(pause.max(Duration::from_millis(1))) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            self.end_overdue();
            if renew_at.remaining().is_zero() {
                let pause = if self.renew() { usual } else { usual / RETRY_FACTOR };
                renew_at = Moment::now().after(pause);
            }
        }
    }

    /// Revokes the permits of expired leases.
    fn end_overdue(&self) {
        for (lease, end) in self.leases.held() {
            if end.is_some_and(|end| end.remaining().is_zero()) {
                self.report_lost(lease, "lease not renewed in time; stopping the environment");
            }
        }
    }

    /// Renews all leases in one statement, including those of busy runners, whose steps may take
    /// longer than a lease. Returns true if all were renewed.
    fn renew(&self) -> bool {
        let leases: Vec<Lease> = self.leases.held().into_iter().map(|(lease, _)| lease).collect();
        if leases.is_empty() {
            return true;
        }
        // Before the request: the store grants the lease from a later moment.
        let requested_at = Moment::now();
        match self.renew_with_timeout(&leases) {
            Some(Ok(RenewalOutcome { lost, busy })) => {
                let until = permit_end(requested_at, self.lasts);
                for lease in &leases {
                    if lost.contains(lease) {
                        self.report_lost(*lease, "lease lost; stopping the environment");
                    } else if !busy.contains(lease)
                        && self
                            .leases
                            .get(lease.environment())
                            .is_some_and(|held| !held.extend(*lease, until))
                    {
                        self.report_lost(
                            *lease,
                            "lease renewed too late; stopping the environment",
                        );
                    }
                }
                busy.is_empty()
            }
            Some(Err(error)) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, count = leases.len(), "cannot renew leases");
                false
            }
            None => {
                tracing::warn!(count = leases.len(), "the renewal of leases timed out");
                false
            }
        }
    }

    /// Returns the store's result, unless it comes too late.
    fn renew_with_timeout(&self, leases: &[Lease]) -> Option<Result<RenewalOutcome, StoreError>> {
        let (sender, receiver) = mpsc::channel();
        let (app, leases) = (self.app.clone(), leases.to_vec());
        let expires = Timestamp(self.app.now().0.saturating_add(micros(self.lasts)));
        let renew = move || {
            // A late result is dropped.
            let _ = sender.send(app.store().leases().renew(&leases, expires));
        };
        if let Err(error) = spawn_named("renew", renew) {
            tracing::error!(%error, "no thread could be started to renew leases");
            return None;
        }
        receiver.recv_timeout(self.lasts / RENEWALS).ok()
    }

    fn report_lost(&self, lease: Lease, reason: &str) {
        let environment = lease.environment();
        if self.leases.get(environment).is_some_and(|held| held.mark_lost(lease)) {
            tracing::warn!(?environment, "{reason}");
            // Fails only if the supervisor has ended.
            let _ = self.messages.send(Message::Attention(environment));
        }
    }
}
