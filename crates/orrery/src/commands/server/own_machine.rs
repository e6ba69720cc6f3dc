//! Deployments on the server's own machine: their sandbox and hidden paths.

use std::path::Path;
use std::sync::Arc;

use orrery_base::byte_size;
use orrery_handlers::ProtectedPaths;
use orrery_handlers::target::is_orrery_variable;
use orrery_sandbox::SandboxLimits;
use orrery_server::{Isolation, OwnMachineOptions, OwnMachinePolicy, TargetHostCommand};

use super::isolation::private_files;
use crate::cli::server::{OwnMachine, ServerOptions};
use crate::target_host;

/// Limit of threads and processes of a target host. Each running command takes two threads and its
/// own processes.
const PROCESSES: u64 = 8192;
const DESCRIPTORS: u64 = 16_384;

/// Policy for deployments on the server's own machine.
pub(super) fn policy(options: &ServerOptions, isolation: &Isolation) -> OwnMachinePolicy {
    match options.own_machine {
        // With a shared identity, a sandbox would add nothing.
        None | Some(OwnMachine::Auto) if matches!(isolation, Isolation::Shared) => {
            OwnMachinePolicy::Allow
        }
        None | Some(OwnMachine::Auto) => OwnMachinePolicy::Auto,
        Some(OwnMachine::Allow) => OwnMachinePolicy::Allow,
        Some(OwnMachine::Sandbox) => OwnMachinePolicy::Sandbox,
        Some(OwnMachine::Forbid) => OwnMachinePolicy::Forbid,
    }
}

/// Options for deployments on the server's own machine. `config` is the configuration file.
pub(super) fn options(
    options: &ServerOptions,
    isolation: &Isolation,
    program: &Path,
    data: &Path,
    config: &Path,
) -> OwnMachineOptions {
    let policy = policy(options, isolation);
    if policy == OwnMachinePolicy::Allow && !matches!(isolation, Isolation::Shared) {
        tracing::warn!(
            "--own-machine allow: resources of this machine are managed with the rights of the server, so that every account and token with the \
             role developer can become administrator of the installation"
        );
    }
    let mut own_files = private_files(options, config);
    own_files.push(data.to_owned());
    let (isolation, program) = (isolation.clone(), program.to_owned());
    let memory = byte_size::from_mib(options.host_memory.unwrap_or(super::HOST_MEMORY_MIB));
    let limits = SandboxLimits {
        memory: (memory > 0).then_some(memory),
        processes: PROCESSES,
        descriptors: DESCRIPTORS,
        ..SandboxLimits::default()
    };
    let host: TargetHostCommand = Arc::new(move |environment| {
        let confinement = isolation.confinement(environment).map_err(|error| {
            format!("{error}, or invite the machine as a remote agent (`orrery agent invite`)")
        })?;
        let Some(mut confinement) = confinement else {
            return Err("--unsafe-shared-identity excludes sandboxes".to_owned());
        };
        let policy = &mut confinement.policy;
        policy.environment.retain(|name, _| !is_orrery_variable(name.as_ref()));
        policy.limits = limits.clone();
        policy.manage_machine();
        let writes = match policy.manages_machine {
            true => target_host::MANAGING,
            false => target_host::READ_ONLY,
        };
        let covered = policy.covered();
        let mut command = confinement.command(&program);
        command.args([target_host::ARGUMENT, writes]).args(covered).current_dir("/");
        Ok(command)
    });
    OwnMachineOptions { policy, host, protected: ProtectedPaths::new(own_files) }
}
