//! Machines behind addresses, as execution sites of agents.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use orrery_agent::helper::{self, HelperBinaries, RemoteMachine};
use orrery_base::lock::IgnorePoison;
use orrery_executor::{ConnectedMachine, Machines, NoTarget, ReachableMachine};
use orrery_handlers::CancelToken;
use orrery_handlers::target::{Transport, TransportError};
use orrery_model::SshAddress;

use crate::client::SshClient;
use crate::transport::SshTransport;

/// Helper binaries of this installation, read with the first connection.
static HELPERS: OnceLock<Arc<HelperBinaries>> = OnceLock::new();

/// Machines that a client reaches.
pub struct SshMachines {
    client: Arc<SshClient>,
    /// Machines in use, by address: their users share the helper.
    used: Mutex<BTreeMap<String, Weak<SshMachine>>>,
}

impl fmt::Debug for SshMachines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SshMachines")
    }
}

impl SshMachines {
    pub fn new(client: Arc<SshClient>) -> Self {
        SshMachines { client, used: Mutex::default() }
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
        let machine = Arc::new(SshMachine { transport, connected: Mutex::default() });
        used.insert(key, Arc::downgrade(&machine));
        Ok(machine)
    }
}

/// One machine; it is connected at the first run.
struct SshMachine {
    transport: Arc<SshTransport>,
    connected: Mutex<Option<ConnectedMachine>>,
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
        let machine = match helper::connect(transport, helpers, stop)? {
            RemoteMachine::Helper(helper) => ConnectedMachine::Helper(helper),
            RemoteMachine::Shell(target) => ConnectedMachine::Target(target),
        };
        *connected = Some(machine.clone());
        Ok(machine)
    }
}
