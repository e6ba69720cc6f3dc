//! The server's own machine as a target: with the server's rights, in a sandbox, or not at all.
//!
//! As long as all who can say what is deployed are administrators, they may do here what the server may. Models of anybody else act with
//! the rights of their environment only.

use std::fmt;
use std::process::Command;
use std::sync::{Arc, PoisonError, RwLock};

use orrery_executor::Place;
use orrery_handlers::target::Variables;
use orrery_handlers::{
    LocalTarget, OutwardTarget, Permit, ProtectedPaths, Reference, SecretError, Stop, Target,
    resolve_guarded, resolve_on,
};
use orrery_host::target_host::{SandboxedTarget, TargetHost};
use orrery_model::{SecretText, Timestamp};
use orrery_store::{
    EnvironmentKey, EnvironmentRecord, NewNotification, Records, Store, StoreError,
};

use crate::app::App;

/// Who may act on the server's own machine, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnMachinePolicy {
    /// With the server's rights while every account is an administrator, in a sandbox otherwise.
    #[default]
    Auto,
    /// Always with the server's rights.
    Allow,
    /// Always in a sandbox.
    Sandbox,
    /// Not at all.
    Forbid,
}

impl OwnMachinePolicy {
    /// One word, as options have it.
    pub fn as_str(self) -> &'static str {
        match self {
            OwnMachinePolicy::Auto => "auto",
            OwnMachinePolicy::Allow => "allow",
            OwnMachinePolicy::Sandbox => "sandbox",
            OwnMachinePolicy::Forbid => "forbid",
        }
    }
}

/// Gives the command that becomes the target host of an environment, or says why there can be none.
pub type HostCommand =
    Arc<dyn Fn(EnvironmentKey) -> Result<Command, String> + Send + Sync + 'static>;

/// How environments act on the server's own machine.
#[derive(Clone)]
pub struct OwnMachineOptions {
    pub policy: OwnMachinePolicy,
    pub host: HostCommand,
    /// Files of the server that no model may refer to.
    pub protected: ProtectedPaths,
}

impl OwnMachineOptions {
    /// With the server's rights, whoever says what is deployed: for installations in which all trust each other.
    pub fn shared() -> Self {
        OwnMachineOptions {
            policy: OwnMachinePolicy::Allow,
            host: Arc::new(|_| Err("there are no sandboxes".to_owned())),
            protected: ProtectedPaths::default(),
        }
    }
}

impl fmt::Debug for OwnMachineOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnMachineOptions").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// With which rights an environment acts on this machine at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    Server,
    Sandbox,
    None,
}

/// Remembered in the store: there was somebody else than administrators.
const OTHERS_SEEN: &str = "others-than-administrators";
const FORBIDDEN: &str = "no environment may act on the server's own machine (--own-machine forbid)";
const FORBIDDEN_HELP: &str =
    "invite the machine with `orrery agent invite`, so that a remote agent acts there";

/// Tells that an environment acts on this machine in a sandbox from now on.
pub(super) fn announce_sandbox(
    records: Records<'_>,
    environment: EnvironmentKey,
    now: Timestamp,
) -> Result<(), StoreError> {
    let new = NewNotification {
        uuid: uuid::Uuid::new_v4().into_bytes(),
        title: "This environment acts on the server's own machine in a sandbox",
        message: "An account, token or issuer that is no administrator's may deploy. From now on, and for good, resources of the server's own \
            machine are managed in a sandbox, without the server's rights. What was deployed before keeps its owner and may not be changed any more. \
            Invite the machine as a remote agent (`orrery agent invite`) if it is to be managed with its rights; \
            --own-machine and --sandbox-writable of `orrery server` are the other choices.",
        severity: "warning",
        uri: "",
        compile: None,
    };
    records.add_notification(environment, &new, now)
}

/// This machine, for one environment.
pub(super) struct OwnMachine {
    policy: OwnMachinePolicy,
    protected: ProtectedPaths,
    local: Arc<LocalTarget>,
    sandboxed: Arc<SandboxedTarget>,
    outward: Arc<OutwardTarget>,
    rights: RwLock<Rights>,
}

impl fmt::Debug for OwnMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnMachine").field("rights", &self.rights()).finish_non_exhaustive()
    }
}

impl OwnMachine {
    /// What is done through it in a sandbox is done under the permit.
    pub(super) fn read(
        app: &App,
        store: &dyn Store,
        options: &OwnMachineOptions,
        environment: &EnvironmentRecord,
        permit: Option<Permit>,
    ) -> Result<Self, StoreError> {
        let rights = find_rights(app, store, options.policy)?;
        let (key, host) = (environment.key, Arc::clone(&options.host));
        let host = TargetHost::new(format!("of {}", environment.name), Box::new(move || host(key)));
        let (reason, help) = (FORBIDDEN.to_owned(), FORBIDDEN_HELP.to_owned());
        Ok(OwnMachine {
            policy: options.policy,
            protected: options.protected.clone(),
            local: Arc::new(LocalTarget::default().with_variables(Variables::Usual)),
            sandboxed: Arc::new(SandboxedTarget::new(host, permit)),
            outward: Arc::new(OutwardTarget::new(None, reason, help)),
            rights: RwLock::new(rights),
        })
    }

    pub(super) fn rights(&self) -> Rights {
        *self.rights.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in who there is now; whether agents of this machine have another place from now on. Has to be called after a version was
    /// read and before it is deployed: whoever pushed it was there before it.
    pub(super) fn refresh(&self, app: &App, store: &dyn Store) -> Result<bool, StoreError> {
        let rights = find_rights(app, store, self.policy)?;
        let mut known = self.rights.write().unwrap_or_else(PoisonError::into_inner);
        let former = std::mem::replace(&mut *known, rights);
        if former != rights {
            tracing::info!(?former, now = ?rights, "rights on the server's own machine changed");
        }
        Ok(former != rights)
    }

    /// The place of agents that are this machine.
    pub(super) fn place(&self) -> Place {
        match self.rights() {
            Rights::Server => Place::Here(Arc::clone(&self.local) as Arc<dyn Target>),
            Rights::Sandbox => Place::Here(Arc::clone(&self.sandboxed) as Arc<dyn Target>),
            Rights::None => Place::Outward(Arc::clone(&self.outward)),
        }
    }

    /// The value of a reference to something on this machine.
    pub(super) fn resolve(&self, reference: &Reference) -> Result<SecretText, SecretError> {
        match self.rights() {
            Rights::Server => resolve_guarded(reference, &self.protected),
            Rights::Sandbox => resolve_on(reference, &*self.sandboxed, &Stop::never()),
            Rights::None => resolve_on(reference, &*self.outward, &Stop::never()),
        }
    }

    pub(super) fn sync(&self) {
        for target in [&*self.local as &dyn Target, &*self.sandboxed] {
            if let Err(error) = target.sync() {
                tracing::warn!(%error, "what was written may not survive a loss of power");
            }
        }
    }

    /// Ends what runs in the sandbox.
    pub(super) fn close(&self) {
        self.sandboxed.host().close();
    }
}

/// Finds out with which rights environments act on this machine.
pub(super) fn find_rights(
    app: &App,
    store: &dyn Store,
    policy: OwnMachinePolicy,
) -> Result<Rights, StoreError> {
    Ok(match policy {
        OwnMachinePolicy::Allow => Rights::Server,
        OwnMachinePolicy::Sandbox => Rights::Sandbox,
        OwnMachinePolicy::Forbid => Rights::None,
        // What was pushed while there were others is still deployed when they are gone.
        OwnMachinePolicy::Auto if store.records().remembered(OTHERS_SEEN)?.is_some() => {
            Rights::Sandbox
        }
        OwnMachinePolicy::Auto => {
            // Tokens of an issuer need no account here.
            let issuers = &app.settings().auth.issuers;
            let mut roles = issuers.iter().flat_map(|issuer| &issuer.roles);
            let by_issuers = roles.all(|mapping| {
                mapping.role == "admin"
                    && mapping.project.is_none()
                    && mapping.environment.is_none()
            });
            if by_issuers && store.records().has_only_administrators(app.now())? {
                Rights::Server
            } else {
                tracing::warn!(
                    "not everyone who decides what is deployed is an administrator: from now on, environments act on this \
                     machine with rights of their own (--own-machine)"
                );
                store.records().remember(OTHERS_SEEN, "yes")?;
                Rights::Sandbox
            }
        }
    })
}
