//! Isolation of tenant code from the server.
//!
//! Any author of a model can supply plugins, packages and handlers. That code must not run
//! with the identity, the environment variables or the files of the server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use orrery_sandbox::{Confinement, Sandbox, SandboxLimits, SandboxPolicy, Unavailable};
use orrery_store::{EnvironmentKey, Store, StoreError};

/// Default first user id for environments; used only if the server runs as root. Few systems assign
/// ids this high.
pub const UID_BASE: u32 = 1_879_048_192;
/// Number of user ids per installation, and number of disjoint id ranges to choose from.
const UIDS: u32 = 1 << 16;
const INSTALLATIONS: u32 = 1 << 12;
/// Meta key of the first user id.
const UID_BASE_NAME: &str = "sandbox-uid-base";
/// Variables that tenant code inherits, besides all that begin with `LC_`.
const INHERITED: [&str; 16] = [
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "PYENV_ROOT",
];
/// Variables with a path that tenant code must be able to read.
const PATHS: [&str; 3] = ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"];
/// Home directory of tenant code: a temporary directory of the sandbox.
const HOME: &str = "/tmp";

/// Isolation mode of tenant code.
#[derive(Clone, Debug)]
pub enum Isolation {
    /// Runs in a sandbox.
    Sandboxed(Box<SandboxSettings>),
    /// Runs with the server's identity: any author of a model is in effect an administrator of the
    /// installation.
    Shared,
    /// Does not run.
    Refused(Unavailable),
}

/// Sandbox settings common to all environments.
#[derive(Clone, Debug)]
pub struct SandboxSettings {
    sandbox: Sandbox,
    /// `None` if the server cannot change user ids.
    uid_base: Option<u32>,
    hidden: Vec<PathBuf>,
    readable: Vec<PathBuf>,
    /// Paths that handlers may write to.
    shared: Vec<PathBuf>,
    variables: BTreeMap<String, OsString>,
}

/// Reason why tenant code is not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsolationError {
    #[error(
        "tenant code does not run without a sandbox: {}; either {}, or start the server with \
         --unsafe-shared-identity, with which any author of a model can become administrator of the \
         installation",
        .0.reason,
        .0.remedies.join(", or ")
    )]
    Unavailable(Unavailable),
    #[error("no user id left for environment {0}: choose a lower --sandbox-uid-base")]
    NoUserId(i64),
}

/// Returns the first user id of this installation, and chooses it at random on the first call. Two
/// installations on one machine must have different ids; all servers of one installation must
/// agree.
///
/// # Errors
/// Store errors, and an unreadable stored number.
pub fn load_uid_base(store: &Store) -> Result<u32, StoreError> {
    let chosen = UID_BASE + UIDS * (rand::random::<u32>() % INSTALLATIONS);
    let base = store.meta().put_if_absent(UID_BASE_NAME, &chosen.to_string())?;
    base.parse()
        .map_err(|_| StoreError::Unreadable(format!("the first user id of sandboxes: {base}")))
}

impl Isolation {
    /// Detects the sandbox support of this machine. `program` is the running executable, `data` the
    /// server's data directory.
    pub fn detect(program: &Path, data: &Path) -> Self {
        match Sandbox::detect(program.to_owned()) {
            Ok(sandbox) => {
                Isolation::Sandboxed(Box::new(SandboxSettings::new(sandbox, program, data)))
            }
            Err(unavailable) => Isolation::Refused(unavailable),
        }
    }

    /// Returns the confinement of an environment's code; `None` in shared mode.
    ///
    /// # Errors
    /// If tenant code may not run.
    pub fn confinement(
        &self,
        environment: EnvironmentKey,
    ) -> Result<Option<Confinement>, IsolationError> {
        match self {
            Isolation::Sandboxed(sandboxing) => sandboxing.confinement(environment).map(Some),
            Isolation::Shared => Ok(None),
            Isolation::Refused(unavailable) => {
                Err(IsolationError::Unavailable(unavailable.clone()))
            }
        }
    }

    /// Like `confinement`, for handlers: adds the writable shared paths.
    ///
    /// # Errors
    /// If tenant code may not run.
    pub fn handler_confinement(
        &self,
        environment: EnvironmentKey,
    ) -> Result<Option<Confinement>, IsolationError> {
        let mut confinement = self.confinement(environment)?;
        if let (Some(confinement), Isolation::Sandboxed(sandboxing)) = (&mut confinement, self) {
            confinement.policy.shared.clone_from(&sandboxing.shared);
        }
        Ok(confinement)
    }

    /// Name of the mode, for health and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Isolation::Sandboxed(_) => "sandboxed",
            Isolation::Shared => "shared",
            Isolation::Refused(_) => "refused",
        }
    }
}

impl SandboxSettings {
    fn new(sandbox: Sandbox, program: &Path, data: &Path) -> Self {
        let variables = inherited_variables();
        let mut readable = orrery_pyenv::installations();
        readable.push(program.to_owned());
        readable.extend(PATHS.iter().filter_map(|name| variables.get(*name)).map(PathBuf::from));
        let uid_base = rustix::process::geteuid().is_root().then_some(UID_BASE);
        let hidden = vec![absolute(data.to_owned())];
        SandboxSettings { sandbox, uid_base, hidden, readable, shared: Vec::new(), variables }
    }

    /// Hides further paths besides the data directory: keys, configuration, databases.
    #[must_use]
    pub fn hide_paths(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.hidden.extend(paths.into_iter().map(absolute));
        self
    }

    /// Makes further paths readable for all environments.
    #[must_use]
    pub fn allow_read(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.readable.extend(paths.into_iter().map(absolute));
        self
    }

    /// Makes paths writable for handlers of all environments, subject to file permissions.
    #[must_use]
    pub fn allow_write(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.shared.extend(paths.into_iter().map(absolute));
        self
    }

    /// Sets the first user id. No effect without root, where all code has one user id.
    #[must_use]
    pub fn uid_base(mut self, base: u32) -> Self {
        self.uid_base = self.uid_base.map(|_| base);
        self
    }

    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn confinement(&self, environment: EnvironmentKey) -> Result<Confinement, IsolationError> {
        let number = environment.number();
        let uid = match self.uid_base {
            None => None,
            Some(base) => {
                let uid = u32::try_from(number).ok().and_then(|number| base.checked_add(number));
                Some(uid.filter(|uid| *uid < u32::MAX).ok_or(IsolationError::NoUserId(number))?)
            }
        };
        let mut readable = self.readable.clone();
        // The server unpacks the SDK once; a copy inside a sandbox would be lost.
        let sdk = orrery_host::sdk::directory().ok();
        readable.extend(sdk.clone());
        let mut policy = SandboxPolicy {
            uid,
            hidden: self.hidden.clone(),
            readable,
            writable: Vec::new(),
            shared: Vec::new(),
            environment: self.variables.clone(),
            limits: SandboxLimits::default(),
            nice: 0,
            manages_machine: false,
        };
        policy.set("HOME", HOME);
        policy.set("USER", "orrery");
        policy.set("LOGNAME", "orrery");
        if let Some(sdk) = sdk {
            policy.set(orrery_host::sdk::OVERRIDE, sdk);
        }
        Ok(Confinement { sandbox: self.sandbox.clone(), policy })
    }
}

/// Makes a path absolute, because the launcher has another working directory.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn inherited_variables() -> BTreeMap<String, OsString> {
    let kept = |name: &str| INHERITED.contains(&name) || name.starts_with("LC_");
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let mut kept: BTreeMap<String, OsString> = all.filter(|(name, _)| kept(name)).collect();
    // pyenv is not found once `HOME` is replaced.
    let home = std::env::var_os("HOME").map(PathBuf::from);
    if let Some(root) = home.map(|home| home.join(".pyenv")).filter(|root| root.is_dir()) {
        kept.entry("PYENV_ROOT".to_owned()).or_insert_with(|| root.into());
    }
    kept
}
