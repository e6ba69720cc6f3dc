//! Configuration of the processes that run Python handlers.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orrery_handler_host::{
    FileContents, HandlerCallbacks, HandlerHosts, HostLimits, Parameters, SetCode,
};
use orrery_handlers::PortableCode;
use orrery_host::code_store::CodeSet;
use orrery_host::handshake::{HostRole, Init};
use orrery_host::{host_command, sdk::SdkError};
use orrery_pyenv::{VirtualEnvError, VirtualEnvs};
use orrery_sandbox::Confinement;

/// Error while preparing the handler hosts of a code set.
#[derive(Debug, thiserror::Error)]
pub enum HostSetupError {
    #[error(transparent)]
    Code(#[from] orrery_host::code_store::CodeStoreError),
    #[error(transparent)]
    Sdk(#[from] SdkError),
    #[error(transparent)]
    Environment(#[from] VirtualEnvError),
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// The code must not run in this process.
    #[error("{0}")]
    Refused(String),
}

/// Configuration of the handler hosts of one environment.
#[derive(Clone)]
pub struct HostConfig {
    pub project: PathBuf,
    /// A UUID.
    pub environment: String,
    pub files: FileContents,
    /// Virtualenvs for code without an existing interpreter.
    pub environments: VirtualEnvs,
    /// Memory limit of each process, in bytes.
    pub memory_max: Option<u64>,
    /// Sandbox that isolates the code from other environments; `None` for the user's own code.
    pub confinement: Option<Confinement>,
    /// Reason why the code must not run here at all.
    pub refused: Option<String>,
    pub parameters: Arc<dyn Parameters>,
}

impl fmt::Debug for HostConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostConfig").field("project", &self.project).finish_non_exhaustive()
    }
}

impl HostConfig {
    /// Returns the code of a set for other machines.
    pub(crate) fn portable_code(&self, set: &CodeSet) -> Arc<dyn PortableCode> {
        let callbacks = HandlerCallbacks {
            files: self.files.clone(),
            environment: Some(self.environment.clone()),
            parameters: Arc::clone(&self.parameters),
        };
        Arc::new(SetCode::new(set.clone(), self.environment.clone(), callbacks))
    }

    /// Prepares the processes of a code set; they start on first use.
    pub(crate) fn build_hosts(self, set: &CodeSet) -> Result<HandlerHosts, HostSetupError> {
        let HostConfig {
            project,
            environment,
            files,
            environments,
            memory_max,
            confinement,
            refused,
            parameters,
        } = self;
        if let Some(reason) = refused {
            return Err(HostSetupError::Refused(reason));
        }
        let mut modules = set.modules.clone();
        // Confined code does not choose its interpreter.
        let program = if confinement.is_none() && set.program.exists() {
            set.program.clone()
        } else {
            // The project's virtualenv is gone or elsewhere: one with the same requirements serves
            // as well.
            let environments = environments.confined(confinement.clone());
            let prepared = set.prepare_interpreter(&environments)?;
            modules = prepared.modules;
            prepared.program
        };
        let environment = Some(environment);
        let services =
            HandlerCallbacks { files: files.clone(), environment: environment.clone(), parameters };
        let init = Init {
            role: HostRole::Handlers,
            data: project.join("data"),
            project,
            environment,
            files: files.directory().to_owned(),
            fetch: files.is_cache(),
            tests: false,
            path: set.path.clone(),
            config: serde_json::Map::new(),
            modules,
        };
        let limits = HostLimits { memory_max, ..HostLimits::default() };
        let mut command = host_command(&program, "python")?;
        command.confinement =
            confinement.map(|confinement| allow_paths(confinement, &init, &program));
        Ok(HandlerHosts::new(command, init, services, limits))
    }
}

/// Adds the paths that the code may access: its packages and file contents to read, its project to
/// write. Paths that the code itself declares are ignored.
fn allow_paths(confinement: Confinement, init: &Init, program: &Path) -> Confinement {
    // A virtualenv lies two levels above its interpreter; other interpreters are visible anyway.
    let packages = program.parent().and_then(Path::parent).unwrap_or(program);
    confinement.readable(packages).readable(&init.files).writable(&init.project)
}
