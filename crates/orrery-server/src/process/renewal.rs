//! Renews the leases of this process, on a thread and over a connection of its own, and ends the right to act under those that
//! cannot be renewed.
//!
//! Nothing here waits for the store longer than a renewal is worth: each attempt is made on a thread that is left alone if it does
//! not answer. What acts looks at its permit, not at this thread; that the thread is late can only end a right, never lengthen it.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_handlers::{Moment, Permit};
use orrery_model::Timestamp;
use orrery_store::{Lease, Renewal, StoreError};

use crate::app::App;

use super::Message;
use super::held::HeldLeases;
use super::supervisor::micros;

/// Leases are renewed three times before they run out.
const RENEWALS: u32 = 3;
/// The part of a lease at its end in which nothing is done any more: so long may cancelled handlers take to end.
const MARGIN: u32 = 3;
/// How much sooner than usual a renewal that did not work is tried again.
const HURRY: u32 = 5;

/// How long somebody may act under a lease that was asked for at `asked`, and lasts for `lasts` from when the store grants it.
pub(super) fn permitted(asked: Moment, lasts: Duration) -> Moment {
    asked.after(lasts - lasts / MARGIN)
}

/// The permit for a lease that was just acquired.
pub(super) fn permit(asked: Moment, lasts: Option<Duration>) -> Permit {
    lasts.map_or_else(Permit::unlimited, |lasts| Permit::until(permitted(asked, lasts)))
}

/// The thread that renews.
#[derive(Debug)]
pub(super) struct Renewer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Renewer {
    pub(super) fn start(
        app: App,
        lasts: Duration,
        held: Arc<HeldLeases>,
        messages: Sender<Message>,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let rounds = Rounds { app, lasts, held, messages };
        let thread = std::thread::Builder::new().name("renewal".to_owned());
        let thread = thread.spawn(move || rounds.run(&stopped))?;
        Ok(Renewer { stop: Some(stop), thread: Some(thread) })
    }

    /// Ends it: what is still held runs out.
    pub(super) fn stop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that renews leases crashed");
        }
    }
}

struct Rounds {
    app: App,
    lasts: Duration,
    held: Arc<HeldLeases>,
    messages: Sender<Message>,
}

impl Rounds {
    fn run(&self, stopped: &Receiver<()>) {
        let usual = self.lasts / RENEWALS;
        let mut renew_at = Moment::now();
        loop {
            let ends = self.held.held().into_iter().filter_map(|(_, end)| end).min();
            let pause = ends.map_or(renew_at.left(), |end| end.left().min(renew_at.left()));
            match stopped.recv_timeout(pause.max(Duration::from_millis(1))) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            self.end_overdue();
            if renew_at.left().is_zero() {
                let pause = if self.renew() { usual } else { usual / HURRY };
                renew_at = Moment::now().after(pause);
            }
        }
    }

    /// Ends the right to act under leases whose time is up.
    fn end_overdue(&self) {
        for (lease, end) in self.held.held() {
            if end.is_some_and(|end| end.left().is_zero()) {
                self.lose(
                    lease,
                    "the lease of an environment could not be renewed in time; its work is stopped",
                );
            }
        }
    }

    /// One step for all of them, also for those that are being attended to, which may take longer than a lease lasts. Whether all
    /// were renewed.
    fn renew(&self) -> bool {
        let leases: Vec<Lease> = self.held.held().into_iter().map(|(lease, _)| lease).collect();
        if leases.is_empty() {
            return true;
        }
        // Before the request: the store counts from some moment after it.
        let asked = Moment::now();
        match self.attempt(&leases) {
            Some(Ok(Renewal { lost, busy })) => {
                let until = permitted(asked, self.lasts);
                for lease in &leases {
                    if lost.contains(lease) {
                        self.lose(*lease, "the lease of an environment is lost");
                    } else if !busy.contains(lease)
                        && self
                            .held
                            .get(lease.environment())
                            .is_some_and(|held| !held.extend(*lease, until))
                    {
                        self.lose(
                            *lease,
                            "the lease of an environment was renewed too late; its work is stopped",
                        );
                    }
                }
                busy.is_empty()
            }
            Some(Err(error)) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, count = leases.len(), "leases cannot be renewed now");
                false
            }
            None => {
                tracing::warn!(
                    count = leases.len(),
                    "the database does not answer a renewal of leases"
                );
                false
            }
        }
    }

    /// What the store says, if it says something in time.
    fn attempt(&self, leases: &[Lease]) -> Option<Result<Renewal, StoreError>> {
        let (tell, told) = mpsc::channel();
        let (app, leases) = (self.app.clone(), leases.to_vec());
        let expires = Timestamp(self.app.now().0.saturating_add(micros(self.lasts)));
        let thread = std::thread::Builder::new().name("renew".to_owned());
        let renew = move || {
            // An answer that comes too late is not heard.
            let _ = tell.send(app.store().renew_leases(&leases, expires));
        };
        if let Err(error) = thread.spawn(renew) {
            tracing::error!(%error, "no thread could be started to renew leases");
            return None;
        }
        told.recv_timeout(self.lasts / RENEWALS).ok()
    }

    fn lose(&self, lease: Lease, reason: &str) {
        let environment = lease.environment();
        if self.held.get(environment).is_some_and(|held| held.lose(lease)) {
            tracing::warn!(?environment, "{reason}");
            // A supervisor that is gone has let go of it.
            let _ = self.messages.send(Message::Attention(environment));
        }
    }
}
