//! Machines behind addresses, as execution sites of agents.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use orrery_agent::helper::{self, DriftListener, HelperBinaries, HelperSession, RemoteMachine};
use orrery_agent::protocol::Drift;
use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_executor::{ConnectedMachine, Machines, NoTarget, ReachableMachine};
use orrery_handlers::run::Remote;
use orrery_handlers::target::{ShellTarget, Transport, TransportError};
use orrery_handlers::{CancelToken, Target};
use orrery_model::SshAddress;

use crate::breaker::Circuit;
use crate::client::SshClient;
use crate::limits::ConnectionLimits;
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
    /// Other helpers than those of this installation.
    helpers: Option<Arc<HelperBinaries>>,
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
        SshMachines { client, helpers: None, used: Mutex::default(), drift: None }
    }

    /// Uses these helpers instead of those of this installation.
    #[must_use]
    pub fn with_helpers(self, helpers: Arc<HelperBinaries>) -> Self {
        SshMachines { helpers: Some(helpers), ..self }
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

    /// Tries to reach a machine again, in the background: for those whose state says that an attempt
    /// is due. Returns false if too many such attempts are under way.
    pub fn probe(&self, address: &SshAddress) -> bool {
        self.client.transport(address).is_ok_and(|transport| transport.probe())
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
            helpers: self.helpers.clone(),
            limits: self.client.limits().clone(),
            access: Mutex::default(),
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
    helpers: Option<Arc<HelperBinaries>>,
    limits: ConnectionLimits,
    /// Known way to run handlers. The lock is held while it is found out.
    access: Mutex<Option<Access>>,
    drift: Option<DriftListener>,
    /// A lost helper is being started again.
    restoring: AtomicBool,
}

/// Way to run handlers on a machine.
enum Access {
    Helper(Arc<HelperSession>),
    Shell(ShellAccess),
}

/// A machine that cannot run a helper, for now.
struct ShellAccess {
    target: Arc<ShellTarget>,
    reason: Arc<str>,
    /// Time and connection of the decision.
    decided: Instant,
    generation: u64,
}

impl ShellAccess {
    /// Returns true if the machine may run a helper now.
    fn is_outdated(&self, limits: &ConnectionLimits, now: Instant, generation: u64) -> bool {
        let limit = match generation == self.generation {
            true => limits.helper_retry,
            false => limits.helper_retry_reconnected,
        };
        now.saturating_duration_since(self.decided) >= limit
    }

    fn connected(&self) -> ConnectedMachine {
        ConnectedMachine::Target {
            target: Arc::clone(&self.target) as Arc<dyn Target>,
            no_helper: Arc::clone(&self.reason),
        }
    }
}

fn connected_helper(helper: &Arc<HelperSession>) -> ConnectedMachine {
    ConnectedMachine::Helper(Arc::clone(helper) as Arc<dyn Remote>)
}

impl SshMachine {
    /// Starts a helper again that watched files and is gone, in the background.
    fn restore_watches(self: &Arc<Self>) {
        // While the way to the machine is found out, nothing is lost.
        let helper = match self.access.try_lock().as_deref() {
            Ok(Some(Access::Helper(helper))) if helper.has_lost_watches() => Arc::clone(helper),
            _ => return,
        };
        if self.restoring.swap(true, Ordering::AcqRel) {
            return;
        }
        let machine = Arc::clone(self);
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

impl SshMachine {
    /// Finds out how handlers run on the connected machine.
    fn find_access(&self, stop: &CancelToken) -> Result<Access, TransportError> {
        let installed = || HELPERS.get_or_init(|| Arc::new(HelperBinaries::installed()));
        let helpers = self.helpers.as_ref().unwrap_or_else(installed);
        let transport = Arc::clone(&self.transport) as Arc<dyn Transport>;
        Ok(match helper::connect(transport, helpers, self.drift.clone(), stop)? {
            RemoteMachine::Helper(helper) => Access::Helper(helper),
            RemoteMachine::Shell { target, reason } => self.shell(target, reason),
        })
    }

    fn shell(&self, target: Arc<ShellTarget>, reason: String) -> Access {
        let (decided, generation) = (monotonic(), self.transport.generation());
        Access::Shell(ShellAccess { target, reason: reason.into(), decided, generation })
    }
}

impl ReachableMachine for SshMachine {
    fn connect(&self, stop: &CancelToken) -> Result<ConnectedMachine, TransportError> {
        // First, so that a machine that is not reached is reported as such, whatever is read there.
        self.transport.connect(stop)?;
        let mut access = self.access.lock().ignore_poison();
        let found = match &*access {
            None => self.find_access(stop)?,
            Some(Access::Helper(helper)) => match helper.refusal() {
                None => return Ok(connected_helper(helper)),
                Some(reason) => {
                    let transport = Arc::clone(&self.transport) as Arc<dyn Transport>;
                    self.shell(Arc::new(ShellTarget::new(transport)), reason)
                }
            },
            Some(Access::Shell(known)) => {
                if !known.is_outdated(&self.limits, monotonic(), self.transport.generation()) {
                    return Ok(known.connected());
                }
                match self.find_access(stop)? {
                    // What the shell left on the machine is in the hands of its target.
                    Access::Shell(shell) => {
                        Access::Shell(ShellAccess { target: Arc::clone(&known.target), ..shell })
                    }
                    helper @ Access::Helper(_) => match known.target.end_commands() {
                        Ok(()) => helper,
                        Err(error) => self.shell(Arc::clone(&known.target), error.to_string()),
                    },
                }
            }
        };
        let connected = match &found {
            Access::Helper(helper) => connected_helper(helper),
            Access::Shell(shell) => shell.connected(),
        };
        *access = Some(found);
        Ok(connected)
    }
}

#[cfg(test)]
mod tests {
    use orrery_handlers::target::LocalShell;

    use super::*;

    #[test]
    fn a_machine_without_a_helper_is_asked_again_later_and_earlier_on_a_new_connection() {
        let decided = Instant::now();
        let target = Arc::new(ShellTarget::new(Arc::new(LocalShell::default())));
        let shell = ShellAccess { target, reason: "none".into(), decided, generation: 1 };
        for (minutes, generation, outdated) in
            [(0, 1, false), (9, 1, false), (10, 1, true), (0, 2, false), (1, 2, true)]
        {
            let now = decided + Duration::from_mins(minutes);
            let limits = ConnectionLimits::default();
            assert_eq!(
                shell.is_outdated(&limits, now, generation),
                outdated,
                "{minutes} {generation}"
            );
        }
    }
}
