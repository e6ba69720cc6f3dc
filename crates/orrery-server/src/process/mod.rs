//! The process role: owns environments by lease, and keeps each as its released version wants it.
//!
//! ```text
//!   change feed ─┐
//!   nudges ──────┼──► supervisor ──► pool ──► runner of one environment ──► engine
//!   timers ──────┘        ▲                                                   │
//!                         └──────────────── attention ◄───────────────────────┘
//! ```
//!
//! One thread, the supervisor, reads the change feed for all environments together and knows when each has something due. What
//! there is to do for one is done by its `Runner` on a thread of a small pool. An environment at rest has no thread and asks
//! nothing: thousands of them cost memory only.

mod dry_run;
mod epochs;
mod facts;
mod handlers;
mod held;
mod life;
mod own_machine;
mod parked;
mod places;
mod renewal;
mod requests;
mod runner;
mod secrets;
mod supervisor;
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_executor::Workers;
use orrery_store::EnvironmentKey;

use crate::app::App;
use crate::isolation::Isolation;
use crate::upkeep::Upkeep;

pub use own_machine::{HostCommand, OwnMachineOptions, OwnMachinePolicy};

/// How the process role works.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// Where code, virtual environments and files of environments are kept. All of it can be made again.
    pub data: PathBuf,
    /// How many handlers may run at once in one environment.
    pub workers: Workers,
    /// How long a lease lasts without being renewed; `None` where this is the only process.
    pub lease: Option<Duration>,
    /// How much memory a process with handlers of modules may have, in bytes.
    pub host_memory: Option<u64>,
    /// Where code of environments runs.
    pub isolation: Isolation,
    /// How environments act on the server's own machine.
    pub own_machine: OwnMachineOptions,
}

/// What the supervisor is told.
#[derive(Debug)]
enum Message {
    /// The store is worth reading.
    Nudge,
    /// The engine of an environment came to rest, wants to be woken at another time, or failed.
    Attention(EnvironmentKey),
    /// Somebody of the pool is done with an environment.
    Attended(EnvironmentKey, runner::Next),
    Stop,
}

/// A running process role.
#[derive(Debug)]
pub struct ProcessRole {
    messages: Sender<Message>,
    supervisor: Option<JoinHandle<()>>,
    renewer: Option<renewal::Renewer>,
    _upkeep: Upkeep,
}

impl ProcessRole {
    /// Starts it. Where a runtime of tokio is at hand, remote agents are also reached through the gateways of other processes.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(app: App, options: ProcessOptions) -> std::io::Result<Self> {
        let (messages, inbox) = mpsc::channel();
        let nudged = messages.clone();
        app.on_nudge(move || nudged.send(Message::Nudge).is_ok());
        let upkeep = Upkeep::start(app.clone())?;
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            app.links().run_on(runtime);
        }
        // Who asks before it has looked once must not hear that all is well.
        app.pulse().beat(supervisor::PULSE, Some("it is starting"));
        let held = Arc::new(held::HeldLeases::default());
        let (own, renewing) = (messages.clone(), messages.clone());
        let renewer = options
            .lease
            .map(|lasts| renewal::Renewer::start(app.clone(), lasts, Arc::clone(&held), renewing))
            .transpose()?;
        let supervisor = std::thread::Builder::new()
            .name("supervisor".to_owned())
            .spawn(move || supervisor::Supervisor::new(app, options, own, held).run(&inbox))?;
        Ok(ProcessRole { messages, supervisor: Some(supervisor), renewer, _upkeep: upkeep })
    }

    /// Gives all environments back and ends. What handlers have come to is kept; those that still run are cancelled.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // A supervisor that is gone has nothing to end.
        let _ = self.messages.send(Message::Stop);
        if let Some(supervisor) = self.supervisor.take()
            && supervisor.join().is_err()
        {
            tracing::error!("the supervisor crashed");
        }
        // Last: what is given back in order is held until then.
        if let Some(mut renewer) = self.renewer.take() {
            renewer.stop();
        }
    }
}

impl Drop for ProcessRole {
    fn drop(&mut self) {
        self.end();
    }
}
