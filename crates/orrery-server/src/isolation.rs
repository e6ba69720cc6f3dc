//! Where code of tenants runs: plugins, packages and handlers are written by whoever may change a model, and must not have the
//! identity, the environment or the files of the server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use orrery_sandbox::{Confinement, Limits, Policy, Sandbox, Unavailable};
use orrery_store::{EnvironmentKey, Store, StoreError};

/// The first of the users that environments have, if the server is root. Few systems give numbers as high.
pub const UID_BASE: u32 = 1_879_048_192;
/// Users of one installation, and installations whose users differ.
const UIDS: u32 = 1 << 16;
const INSTALLATIONS: u32 = 1 << 12;
/// The first user of an installation is remembered under this name.
const UID_BASE_NAME: &str = "sandbox-uid-base";
/// Variables of the server that tenants' code gets, besides all that begin with `LC_`.
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
/// Variables that name a path which has to be readable.
const PATHS: [&str; 3] = ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"];
/// The home of tenants' code: temporary files of the sandbox.
const HOME: &str = "/tmp";

/// How code of tenants is kept away from the server.
#[derive(Clone, Debug)]
pub enum Isolation {
    /// In a sandbox.
    Sandboxed(Box<Sandboxing>),
    /// Not at all: it has the server's identity, and whoever can change a model is administrator of the installation.
    Shared,
    /// It is not run.
    Refused(Unavailable),
}

/// What sandboxes of all environments have in common.
#[derive(Clone, Debug)]
pub struct Sandboxing {
    sandbox: Sandbox,
    /// `None` where the server cannot change identities.
    uid_base: Option<u32>,
    hidden: Vec<PathBuf>,
    readable: Vec<PathBuf>,
    /// What handlers may write.
    shared: Vec<PathBuf>,
    variables: BTreeMap<String, OsString>,
}

/// Why code of an environment is not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsolationError {
    #[error(
        "the code of environments is not run without a sandbox: {}; either {}, or start the server with --unsafe-shared-identity, \
         with which everybody who can change a model can become administrator of the installation",
        .0.reason,
        .0.remedies.join(", or ")
    )]
    Unavailable(Unavailable),
    #[error(
        "the environment has the number {0}, for which there is no user: choose a lower --sandbox-uid-base"
    )]
    NoUser(i64),
}

/// The first user of an installation's environments. It is chosen at random, once: the environments of two installations on one machine
/// must not have the same users, and those of two servers of one installation must.
///
/// # Errors
/// Those of the database, and a number that is none.
pub fn uid_base_of(store: &dyn Store) -> Result<u32, StoreError> {
    let chosen = UID_BASE + UIDS * (rand::random::<u32>() % INSTALLATIONS);
    let base = store.records().remember_first(UID_BASE_NAME, &chosen.to_string())?;
    base.parse().map_err(|_| StoreError::Unreadable(format!("the first user of sandboxes: {base}")))
}

impl Isolation {
    /// Finds out what this machine offers. `program` is this one, and `data` the directory of the server.
    pub fn detect(program: &Path, data: &Path) -> Self {
        match Sandbox::detect(program.to_owned()) {
            Ok(sandbox) => Isolation::Sandboxed(Box::new(Sandboxing::new(sandbox, program, data))),
            Err(unavailable) => Isolation::Refused(unavailable),
        }
    }

    /// What confines code of an environment; `None` if nothing does.
    ///
    /// # Errors
    /// If code of tenants is not to be run.
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

    /// The same for handlers, which may be allowed to write to paths of this machine.
    ///
    /// # Errors
    /// If code of tenants is not to be run.
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

    /// One word, for health and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Isolation::Sandboxed(_) => "sandboxed",
            Isolation::Shared => "shared",
            Isolation::Refused(_) => "refused",
        }
    }
}

impl Sandboxing {
    fn new(sandbox: Sandbox, program: &Path, data: &Path) -> Self {
        let variables = inherited();
        let mut readable = orrery_host::python::installations();
        readable.push(program.to_owned());
        readable.extend(PATHS.iter().filter_map(|name| variables.get(*name)).map(PathBuf::from));
        let uid_base = rustix::process::geteuid().is_root().then_some(UID_BASE);
        let hidden = vec![absolute(data.to_owned())];
        Sandboxing { sandbox, uid_base, hidden, readable, shared: Vec::new(), variables }
    }

    /// Hides files besides the data directory: keys, configuration, databases.
    #[must_use]
    pub fn hide(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.hidden.extend(paths.into_iter().map(absolute));
        self
    }

    /// Shows what else code of all environments may read.
    #[must_use]
    pub fn show(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.readable.extend(paths.into_iter().map(absolute));
        self
    }

    /// Lets handlers of all environments write to paths of this machine, as far as their users may.
    #[must_use]
    pub fn share(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.shared.extend(paths.into_iter().map(absolute));
        self
    }

    /// The first user of environments. Without root there is but one user.
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
                Some(uid.filter(|uid| *uid < u32::MAX).ok_or(IsolationError::NoUser(number))?)
            }
        };
        let mut readable = self.readable.clone();
        // Unpacked once, by the server; a sandbox could not keep it.
        let sdk = orrery_host::sdk::directory().ok();
        readable.extend(sdk.clone());
        let mut policy = Policy {
            uid,
            hidden: self.hidden.clone(),
            readable,
            writable: Vec::new(),
            shared: Vec::new(),
            environment: self.variables.clone(),
            limits: Limits::default(),
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

/// The launcher has another working directory.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn inherited() -> BTreeMap<String, OsString> {
    let kept = |name: &str| INHERITED.contains(&name) || name.starts_with("LC_");
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let mut kept: BTreeMap<String, OsString> = all.filter(|(name, _)| kept(name)).collect();
    // Without the home directory, it is not found any more.
    let home = std::env::var_os("HOME").map(PathBuf::from);
    if let Some(root) = home.map(|home| home.join(".pyenv")).filter(|root| root.is_dir()) {
        kept.entry("PYENV_ROOT".to_owned()).or_insert_with(|| root.into());
    }
    kept
}
