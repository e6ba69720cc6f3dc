//! Machines that an environment reaches over SSH, with nothing but its own secrets.
//!
//! Keys and passwords are secrets of the environment: a model cannot use a key of the server, its
//! SSH agent or its SSH configuration. Host keys are in the data directory: those that the operator
//! put there for all environments, and those that the environment accepted itself.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use orrery_executor::{Machines, NoTarget, ReachableMachine};
use orrery_handlers::Secrets;
use orrery_model::SshAddress;
use orrery_ssh::{
    ConnectionLimits, ConnectionState, MachineDrift, RouteSource, SshClient, SshMachines,
    SshRuntime, local_user,
};
use uuid::Uuid;

/// Threads and limits of all environments; started with the first machine.
static RUNTIME: OnceLock<Result<SshRuntime, String>> = OnceLock::new();

/// Machines of one environment.
pub(super) struct EnvironmentMachines {
    /// The environment's file, to which new keys are added, and that of all environments.
    known_hosts: Vec<PathBuf>,
    secrets: Arc<dyn Secrets>,
    drift: Option<MachineDrift>,
    machines: OnceLock<Result<SshMachines, String>>,
}

impl fmt::Debug for EnvironmentMachines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvironmentMachines")
    }
}

impl EnvironmentMachines {
    /// Machines of an environment; `data` is the data directory of the server. With a receiver of
    /// drift, files there are watched.
    pub(super) fn new(
        data: &Path,
        environment: Uuid,
        secrets: Arc<dyn Secrets>,
        drift: Option<MachineDrift>,
    ) -> Self {
        let directory = data.join("ssh");
        let own = directory.join(environment.to_string()).join("known_hosts");
        EnvironmentMachines {
            known_hosts: vec![own, directory.join("known_hosts")],
            secrets,
            drift,
            machines: OnceLock::new(),
        }
    }

    /// State of the connection to a machine, without connecting. `None` before the first use of any
    /// machine.
    pub(super) fn observe(&self, address: &SshAddress, limit: Duration) -> Option<ConnectionState> {
        self.machines.get()?.as_ref().ok()?.observe(address, limit)
    }

    /// Tries to reach a machine again, in the background. Returns false if too many such attempts are
    /// under way.
    pub(super) fn probe(&self, address: &SshAddress) -> bool {
        let machines = self.machines.get().and_then(|machines| machines.as_ref().ok());
        machines.is_some_and(|machines| machines.probe(address))
    }

    fn machines(&self) -> &Result<SshMachines, String> {
        self.machines.get_or_init(|| {
            let runtime = RUNTIME.get_or_init(|| {
                SshRuntime::new(ConnectionLimits::default())
                    .map_err(|error| format!("cannot start the SSH client: {error}"))
            });
            let routes = RouteSource::isolated(local_user(), self.known_hosts.clone());
            let client = SshClient::new(runtime.clone()?, routes, Arc::clone(&self.secrets));
            let machines = SshMachines::new(Arc::new(client));
            Ok(match &self.drift {
                Some(drift) => machines.with_drift(Arc::clone(drift)),
                None => machines,
            })
        })
    }
}

impl Machines for EnvironmentMachines {
    fn machine(&self, address: &SshAddress) -> Result<Arc<dyn ReachableMachine>, NoTarget> {
        match self.machines() {
            Ok(machines) => machines.machine(address),
            Err(reason) => Err(NoTarget(reason.clone())),
        }
    }
}
