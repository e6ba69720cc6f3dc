//! The server's own machine as a target: with the server's rights, in a sandbox, or not at all.
//!
//! While every account that can deploy is an administrator, models have the server's rights on this
//! machine. Otherwise they act with the rights of their environment only.

use std::fmt;
use std::process::Command;
use std::sync::{Arc, RwLock};

use orrery_base::lock::IgnorePoison;
use orrery_executor::ExecutionSite;
use orrery_handler_host::target_host::{SandboxedTarget, TargetHost};
use orrery_handlers::drift::{DriftSink, FileWatch};
use orrery_handlers::target::Variables;
use orrery_handlers::{
    CancelToken, LocalTarget, OutwardTarget, Permit, ProtectedPaths, SecretError, SecretSource,
    Target, resolve_guarded, resolve_on_target,
};
use orrery_model::{SecretText, Timestamp};
use orrery_store::{EnvironmentKey, EnvironmentRecord, NewNotification, Store, StoreError};

use crate::state::ServerState;

/// Policy for access to the server's own machine.
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
    /// Name of the policy, as on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            OwnMachinePolicy::Auto => "auto",
            OwnMachinePolicy::Allow => "allow",
            OwnMachinePolicy::Sandbox => "sandbox",
            OwnMachinePolicy::Forbid => "forbid",
        }
    }
}

/// Builds the command that starts the target host of an environment, or returns why there is none.
pub type TargetHostCommand =
    Arc<dyn Fn(EnvironmentKey) -> Result<Command, String> + Send + Sync + 'static>;

/// Access of environments to the server's own machine.
#[derive(Clone)]
pub struct OwnMachineOptions {
    pub policy: OwnMachinePolicy,
    pub host: TargetHostCommand,
    /// Server files that no model may refer to.
    pub protected: ProtectedPaths,
}

impl OwnMachineOptions {
    /// Always with the server's rights: for installations in which all users are trusted.
    pub fn shared() -> Self {
        OwnMachineOptions {
            policy: OwnMachinePolicy::Allow,
            host: Arc::new(|_| Err("no sandbox available".to_owned())),
            protected: ProtectedPaths::default(),
        }
    }
}

impl fmt::Debug for OwnMachineOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnMachineOptions").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// Current rights of an environment on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    Server,
    Sandbox,
    None,
}

/// Meta key: an account without administrator rights existed.
const NON_ADMIN_SEEN: &str = "others-than-administrators";
const FORBIDDEN: &str = "no environment may act on the server's own machine (--own-machine forbid)";
const FORBIDDEN_HELP: &str =
    "invite the machine with `orrery agent invite`, so that a remote agent acts there";

/// Notifies that an environment acts on this machine in a sandbox from now on.
pub(super) fn notify_sandboxed(
    store: &Store,
    environment: EnvironmentKey,
    now: Timestamp,
) -> Result<(), StoreError> {
    let new = NewNotification {
        uuid: uuid::Uuid::new_v4().into(),
        title: "This environment acts on the server's own machine in a sandbox",
        message: "An account, token or issuer without administrator rights may deploy. From now on and \
            permanently, resources of the server's own machine are managed in a sandbox, without the \
            server's rights. Files that were deployed before keep their owner and may no longer be \
            changeable. To manage the machine with its rights, invite it as a remote agent (`orrery agent \
            invite`); --own-machine and --sandbox-writable of `orrery server` are the other choices.",
        severity: "warning",
        uri: "",
        compile: None,
    };
    store.notifications().add(environment, &new, now)
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
    /// Reads the current rights. Sandboxed actions run under `permit`. With a receiver of drift, the
    /// files of resources are watched while the environment has the server's rights.
    pub(super) fn read(
        app: &ServerState,
        store: &Store,
        options: &OwnMachineOptions,
        environment: &EnvironmentRecord,
        permit: Option<Permit>,
        drift: Option<DriftSink>,
    ) -> Result<Self, StoreError> {
        let rights = determine_rights(app, store, options.policy)?;
        let (key, host) = (environment.key, Arc::clone(&options.host));
        let host = TargetHost::new(format!("of {}", environment.name), Box::new(move || host(key)));
        let (reason, help) = (FORBIDDEN.to_owned(), FORBIDDEN_HELP.to_owned());
        let mut local = LocalTarget::default().with_variables(Variables::Standard);
        if let Some(drift) = drift {
            let watch = FileWatch::default();
            watch.set_sink(Some(drift));
            local = local.with_watch(Arc::new(watch));
        }
        Ok(OwnMachine {
            policy: options.policy,
            protected: options.protected.clone(),
            local: Arc::new(local),
            sandboxed: Arc::new(SandboxedTarget::new(host, permit)),
            outward: Arc::new(OutwardTarget::new(None, reason, help)),
            rights: RwLock::new(rights),
        })
    }

    pub(super) fn rights(&self) -> Rights {
        *self.rights.read().ignore_poison()
    }

    /// Updates the rights; returns true if they changed. Must run after a version was read and
    /// before it is deployed: its author existed before the version.
    pub(super) fn refresh(&self, app: &ServerState, store: &Store) -> Result<bool, StoreError> {
        let rights = determine_rights(app, store, self.policy)?;
        let mut current = self.rights.write().ignore_poison();
        let former = std::mem::replace(&mut *current, rights);
        if former != rights {
            tracing::info!(?former, now = ?rights, "rights on the server's own machine changed");
        }
        Ok(former != rights)
    }

    /// Execution site of agents that are this machine.
    pub(super) fn execution_site(&self) -> ExecutionSite {
        match self.rights() {
            Rights::Server => ExecutionSite::Local(Arc::clone(&self.local) as Arc<dyn Target>),
            Rights::Sandbox => ExecutionSite::Local(Arc::clone(&self.sandboxed) as Arc<dyn Target>),
            Rights::None => ExecutionSite::Outward(Arc::clone(&self.outward)),
        }
    }

    /// Resolves a late-bound value of this machine.
    pub(super) fn resolve(&self, reference: &SecretSource) -> Result<SecretText, SecretError> {
        match self.rights() {
            Rights::Server => resolve_guarded(reference, &self.protected),
            Rights::Sandbox => {
                resolve_on_target(reference, &*self.sandboxed, &CancelToken::never())
            }
            Rights::None => resolve_on_target(reference, &*self.outward, &CancelToken::never()),
        }
    }

    pub(super) fn sync(&self) {
        for target in [&*self.local as &dyn Target, &*self.sandboxed] {
            if let Err(error) = target.sync() {
                tracing::warn!(%error, "sync failed; recent writes may not survive a power loss");
            }
        }
    }

    /// Stops the sandboxed target host.
    pub(super) fn close(&self) {
        self.sandboxed.host().close();
    }
}

/// Determines the rights of environments on this machine.
pub(super) fn determine_rights(
    app: &ServerState,
    store: &Store,
    policy: OwnMachinePolicy,
) -> Result<Rights, StoreError> {
    Ok(match policy {
        OwnMachinePolicy::Allow => Rights::Server,
        OwnMachinePolicy::Sandbox => Rights::Sandbox,
        OwnMachinePolicy::Forbid => Rights::None,
        // Versions from that time stay deployed after the accounts are gone.
        OwnMachinePolicy::Auto if store.meta().get(NON_ADMIN_SEEN)?.is_some() => Rights::Sandbox,
        OwnMachinePolicy::Auto => {
            // Tokens of an issuer need no account on this server.
            let issuers = &app.settings().auth.issuers;
            let mut roles = issuers.iter().flat_map(|issuer| &issuer.roles);
            let by_issuers = roles.all(|mapping| {
                mapping.role == "admin"
                    && mapping.project.is_none()
                    && mapping.environment.is_none()
            });
            if by_issuers && store.accounts().has_only_administrators(app.now())? {
                Rights::Server
            } else {
                tracing::warn!(
                    "an account without administrator rights can deploy: from now on, environments act on \
                     this machine in a sandbox (--own-machine)"
                );
                store.meta().put(NON_ADMIN_SEEN, "yes")?;
                Rights::Sandbox
            }
        }
    })
}
