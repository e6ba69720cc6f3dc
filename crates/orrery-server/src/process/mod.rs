//! The process role: owns environments by lease, and keeps each in the state of its released
//! version.
//!
//! ```text
//!   change feed ─┐
//!   wake-ups ────┼──► supervisor ──► pool ──► runner of one environment ──► engine
//!   timers ──────┘        ▲                                                   │
//!                         └──────────────── attention ◄───────────────────────┘
//! ```
//!
//! The supervisor thread reads the change feed for all environments and knows when each is due. The
//! `Runner` of an environment does the work on a thread of a small pool. An idle environment has no
//! thread and runs no queries: thousands of them cost only memory.

mod active_environment;
mod agent_routing;
mod clusters;
mod connection_reports;
mod drift;
mod dry_run;
mod environment_lifecycle;
mod epochs;
mod facts;
mod handlers;
mod lease_cell;
mod lease_renewal;
mod notifications;
mod own_machine;
mod requests;
mod returned_machines;
mod runner;
mod secrets;
mod ssh_machines;
mod supervisor;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_base::thread::spawn_named;
use orrery_executor::WorkerLimits;
use orrery_store::EnvironmentKey;

use crate::cluster::{ClusterRuntime, SLOTS};
use crate::isolation::Isolation;
use crate::maintenance::MaintenanceThread;
use crate::state::ServerState;

pub use own_machine::{OwnMachineOptions, OwnMachinePolicy, TargetHostCommand};

/// Options of the process role.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// Directory for code, virtualenvs and files of environments. All of it can be recreated.
    pub data: PathBuf,
    /// Concurrent handlers per environment.
    pub workers: WorkerLimits,
    /// Duration of a lease; `None` if this is the only process.
    pub lease: Option<Duration>,
    /// Memory limit of a handler host, in bytes.
    pub host_memory: Option<u64>,
    /// Isolation of tenant code.
    pub isolation: Isolation,
    /// Access of environments to the server's own machine.
    pub own_machine: OwnMachineOptions,
}

/// Messages to the supervisor.
#[derive(Debug)]
enum Message {
    /// The store may have changed.
    WakeUp,
    /// The engine of an environment became idle, changed its wake-up time, or failed.
    Attention(EnvironmentKey),
    /// A pool thread has finished a step of an environment.
    StepFinished(EnvironmentKey, runner::Next),
    Stop,
}

/// The running process role.
#[derive(Debug)]
pub struct ProcessRole {
    messages: Sender<Message>,
    supervisor: Option<JoinHandle<()>>,
    renewer: Option<lease_renewal::Renewer>,
    _reporter: connection_reports::ConnectionReporter,
    _maintenance: MaintenanceThread,
}

impl ProcessRole {
    /// Starts the role. With a tokio runtime at hand, remote agents are also reached through the
    /// gateways of other processes.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(app: ServerState, options: ProcessOptions) -> std::io::Result<Self> {
        let (messages, inbox) = mpsc::channel();
        let wake_ups = messages.clone();
        app.on_wake_up(move || wake_ups.send(Message::WakeUp).is_ok());
        let maintenance = MaintenanceThread::start(&app)?;
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            app.peers().set_runtime(runtime);
        }
        // Health checks before the first poll must not report success.
        app.heartbeats().record(supervisor::ROLE, Some("starting"));
        let leases = Arc::new(lease_cell::LeaseRegistry::default());
        let (own, renewing) = (messages.clone(), messages.clone());
        let renewer = options
            .lease
            .map(|lasts| {
                lease_renewal::Renewer::start(app.clone(), lasts, Arc::clone(&leases), renewing)
            })
            .transpose()?;
        let reports = Arc::new(connection_reports::ConnectionReports::default());
        let reporter =
            connection_reports::ConnectionReporter::start(app.clone(), Arc::clone(&reports))?;
        let slots = app.open_cluster_slots(SLOTS);
        let clusters = options.data.join("clusters");
        let clusters = Arc::new(ClusterRuntime::new(app.store(), &clusters, slots)?);
        let supervisor = spawn_named("supervisor", move || {
            clusters.publish(app.store());
            supervisor::Supervisor::new(app, options, own, leases, reports, clusters).run(&inbox);
        })?;
        Ok(ProcessRole {
            messages,
            supervisor: Some(supervisor),
            renewer,
            _reporter: reporter,
            _maintenance: maintenance,
        })
    }

    /// Releases all environments and stops. Results of handlers are persisted; running handlers are
    /// cancelled.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Fails only if the supervisor has ended.
        let _ = self.messages.send(Message::Stop);
        if let Some(supervisor) = self.supervisor.take()
            && supervisor.join().is_err()
        {
            tracing::error!("the supervisor crashed");
        }
        // Last: leases are held until the supervisor has released them.
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
