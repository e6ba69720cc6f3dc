//! Machines behind addresses, as execution sites of agents.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use orrery_agent::helper::{self, DriftListener, HelperBinaries, HelperSession, RemoteMachine};
use orrery_agent::protocol::Drift;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_executor::{ConnectedMachine, Machines, NoTarget, ReachableMachine};
use orrery_handlers::CancelToken;
use orrery_handlers::target::{Transport, TransportError};
use orrery_model::SshAddress;

use crate::breaker::Circuit;
use crate::client::SshClient;
use crate::session::ConnectionState;
use crate::transport::SshTransport;

/// Helper binaries of this installation, read with the first connection.
static HELPERS: OnceLock<Arc<HelperBinaries>> = OnceLock::new();

/// Maximum number of machines of a client whose helpers stay to watch files. Each takes two threads
/// and a connection.
const WATCHED_MAX: usize = 512;
/// Time for a helper to be started again.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(60);

/// Receiver of drift on a machine, with its address. What a machine reports is untrusted.
pub type MachineDrift = Arc<dyn Fn(&SshAddress, Drift) + Send + Sync>;

/// Machines that a client reaches.
pub struct SshMachines {
    client: Arc<SshClient>,
    /// Machines in use, by address: their users share the helper.
    used: Mutex<BTreeMap<String, Weak<SshMachine>>>,
    drift: Option<MachineDrift>,
}

impl fmt::Debug for SshMachines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SshMachines")
    }
}

impl SshMachines {
    pub fn new(client: Arc<SshClient>) -> Self {
        SshMachines { client, used: Mutex::default(), drift: None }
    }

    /// Watches the files of resources on the machines, and reports changes.
    #[must_use]
    pub fn with_drift(self, drift: MachineDrift) -> Self {
        SshMachines { drift: Some(drift), ..self }
    }

    /// State of the connection to a machine; measures its round trip anew, with this limit, in the
    /// background. Does not connect. `None` for an address that cannot be resolved.
    pub fn observe(&self, address: &SshAddress, limit: Duration) -> Option<ConnectionState> {
        let transport = self.client.transport(address).ok()?;
        transport.refresh_latency(limit);
        let state = transport.state();
        let used = self.used.lock().ignore_poison().get(&address.to_string()).cloned();
        if let Some(machine) = used.and_then(|machine| machine.upgrade())
            && !matches!(state.circuit, Circuit::Open { .. })
        {
            machine.restore_watches();
        }
        Some(state)
    }
}

impl Machines for SshMachines {
    fn machine(&self, address: &SshAddress) -> Result<Arc<dyn ReachableMachine>, NoTarget> {
        let transport = self.client.transport(address);
        let transport = transport.map_err(|error| NoTarget(error.to_string()))?;
        let mut used = self.used.lock().ignore_poison();
        used.retain(|_, machine| machine.strong_count() > 0);
        let key = address.to_string();
        if let Some(machine) = used.get(&key).and_then(Weak::upgrade) {
            return Ok(machine);
        }
        let transport = Arc::new(transport);
        let drift = self.drift.as_ref().filter(|_| used.len() < WATCHED_MAX).map(|drift| {
            let (drift, address) = (Arc::clone(drift), address.clone());
            Arc::new(move |report| drift(&address, report)) as DriftListener
        });
        let machine = Arc::new(SshMachine {
            transport,
            connected: Mutex::default(),
            helper: OnceLock::new(),
            drift,
            restoring: AtomicBool::new(false),
        });
        used.insert(key, Arc::downgrade(&machine));
        Ok(machine)
    }
}

/// One machine; it is connected at the first run.
struct SshMachine {
    transport: Arc<SshTransport>,
    connected: Mutex<Option<ConnectedMachine>>,
    /// The helper of this machine, if it runs one.
    helper: OnceLock<Arc<HelperSession>>,
    drift: Option<DriftListener>,
    /// A lost helper is being started again.
    restoring: AtomicBool,
}

impl SshMachine {
    /// Starts a helper again that watched files and is gone, in the background.
    fn restore_watches(self: &Arc<Self>) {
        let Some(helper) = self.helper.get().filter(|helper| helper.has_lost_watches()) else {
            return;
        };
        if self.restoring.swap(true, Ordering::AcqRel) {
            return;
        }
        let (machine, helper) = (Arc::clone(self), Arc::clone(helper));
        let restore = move || {
            let stop = CancelToken::never().within(RESTORE_TIMEOUT);
            let destination = machine.transport.destination();
            match helper.restore(&stop) {
                Ok(()) => tracing::info!(destination, "watching files again"),
                Err(error) => tracing::debug!(destination, ?error, "files not watched yet"),
            }
            machine.restoring.store(false, Ordering::Release);
        };
        if let Err(error) = spawn_named("restore-watches", restore) {
            self.restoring.store(false, Ordering::Release);
            tracing::warn!(%error, "files of a machine are not watched");
        }
    }
}

impl ReachableMachine for SshMachine {
    fn connect(&self, stop: &CancelToken) -> Result<ConnectedMachine, TransportError> {
        // First, so that a machine that is not reached is reported as such, whatever is read there.
        self.transport.connect(stop)?;
        let mut connected = self.connected.lock().ignore_poison();
        if let Some(connected) = &*connected {
            return Ok(connected.clone());
        }
        let helpers = HELPERS.get_or_init(|| Arc::new(HelperBinaries::installed()));
        let transport = Arc::clone(&self.transport) as Arc<dyn Transport>;
        let machine = match helper::connect(transport, helpers, self.drift.clone(), stop)? {
            RemoteMachine::Helper(helper) => {
                // Only one connect at a time reaches this.
                let _ = self.helper.set(Arc::clone(&helper));
                ConnectedMachine::Helper(helper)
            }
            RemoteMachine::Shell(target) => ConnectedMachine::Target(target),
        };
        *connected = Some(machine.clone());
        Ok(machine)
    }
}
