//! The SSH client of a command: configuration, keys and SSH agent of its user.

use std::sync::{Arc, OnceLock};

use orrery_executor::{Machines, NoTarget, ReachableMachine};
use orrery_handlers::LocalSecrets;
use orrery_model::SshAddress;
use orrery_ssh::{ConnectionLimits, SshClient, SshMachines, SshRuntime, user_routes};

use crate::error::CliError;

/// Client of this process: plan and deploy of one command share its connections.
static CLIENT: OnceLock<Result<Arc<SshClient>, String>> = OnceLock::new();

/// Returns the client of the user. It connects only when it is used.
pub(crate) fn user_client() -> Result<Arc<SshClient>, CliError> {
    let client = CLIENT.get_or_init(|| {
        let routes = user_routes()
            .map_err(|error| format!("the SSH configuration cannot be used: {error}"))?;
        let runtime = SshRuntime::new(ConnectionLimits::default())
            .map_err(|error| format!("cannot start the SSH client: {error}"))?;
        Ok(Arc::new(SshClient::new(runtime, routes, Arc::new(LocalSecrets))))
    });
    client.clone().map_err(CliError::new)
}

/// Machines that the user reaches. Files of the user are read with the first one.
#[derive(Debug)]
pub(crate) struct UserMachines;

impl Machines for UserMachines {
    fn machine(&self, address: &SshAddress) -> Result<Arc<dyn ReachableMachine>, NoTarget> {
        let client = user_client().map_err(|error| NoTarget(error.to_string()))?;
        SshMachines::new(client).machine(address)
    }
}
