//! Native handlers on a machine without an agent: through a helper that is uploaded and started
//! over a transport, or through the machine's shell where no helper can run.
//!
//! Start from [`connect`]. [`HelperBinaries`] are the programs that this installation can upload,
//! [`HelperSession`] is the connection to a helper. The helper itself is `once`.

mod binaries;
mod connection;
mod launch;
mod session;
mod verified;

use std::fmt;
use std::sync::Arc;

use orrery_handlers::CancelToken;
use orrery_handlers::target::{ShellTarget, Transport, TransportError};

pub use binaries::{HelperBinaries, HelperBinary};
pub use session::HelperSession;

use crate::protocol::Drift;
use verified::VerifiedRuns;

use launch::{Launch, launch};

/// Receiver of drift that a helper reports. What it names is untrusted.
pub type DriftListener = Arc<dyn Fn(Drift) + Send + Sync>;

/// A machine that is reached over a transport.
#[derive(Clone)]
pub enum RemoteMachine {
    /// Handlers run in a helper on the machine.
    Helper(Arc<HelperSession>),
    /// Handlers run in this process and act through the machine's shell. The machine, or this
    /// installation, cannot run a helper for this reason.
    Shell { target: Arc<ShellTarget>, reason: String },
}

impl fmt::Debug for RemoteMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RemoteMachine::Helper(_) => "Helper",
            RemoteMachine::Shell { .. } => "Shell",
        })
    }
}

/// Connects to a machine, and starts a helper there if one of the binaries fits; uploads it at the
/// first time. Blocks until that is known. With a listener, the helper watches the files of its
/// resources and stays without further commands.
///
/// # Errors
/// If the machine is not reached, or the connection is lost. This says nothing about the helper.
pub fn connect(
    transport: Arc<dyn Transport>,
    binaries: &Arc<HelperBinaries>,
    drift: Option<DriftListener>,
    stop: &CancelToken,
) -> Result<RemoteMachine, TransportError> {
    let destination = transport.destination().to_owned();
    if binaries.is_empty() {
        let reason = "this installation has no helper binary".to_owned();
        tracing::info!(destination, reason, "no helper on this machine; using its shell");
        return Ok(RemoteMachine::Shell { target: Arc::new(ShellTarget::new(transport)), reason });
    }
    let verified = Arc::new(VerifiedRuns::default());
    let drift = drift.map(|listener| {
        let verified = Arc::clone(&verified);
        Arc::new(move |drift| {
            // What was read ahead is outdated.
            verified.invalidate();
            listener(drift);
        }) as DriftListener
    });
    match launch(&*transport, binaries, drift.as_ref(), stop)? {
        Launch::Started(process) => {
            tracing::debug!(destination, "helper started");
            let session =
                HelperSession::new(transport, Arc::clone(binaries), process, (drift, verified));
            Ok(RemoteMachine::Helper(Arc::new(session)))
        }
        Launch::Impossible(reason) => {
            tracing::info!(destination, reason, "no helper on this machine; using its shell");
            Ok(RemoteMachine::Shell { target: Arc::new(ShellTarget::new(transport)), reason })
        }
    }
}
