//! Where the resources of an agent live.

use std::fmt;
use std::sync::Arc;

use orrery_handlers::{LocalTarget, Target};

/// There is no way to an agent's target; the reason is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoTarget(pub String);

/// Finds the target of an agent.
pub trait Targets: Send + Sync {
    /// Asked once per agent and engine.
    fn target(&self, agent: &str) -> Result<Arc<dyn Target>, NoTarget>;

    /// Makes what was written to all targets survive a loss of power.
    fn sync(&self);
}

/// Every agent is this machine.
pub struct LocalTargets {
    target: Arc<LocalTarget>,
}

impl LocalTargets {
    pub fn new(target: LocalTarget) -> Self {
        LocalTargets { target: Arc::new(target) }
    }
}

impl fmt::Debug for LocalTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalTargets")
    }
}

impl Targets for LocalTargets {
    fn target(&self, _agent: &str) -> Result<Arc<dyn Target>, NoTarget> {
        Ok(Arc::clone(&self.target) as Arc<dyn Target>)
    }

    fn sync(&self) {
        if let Err(error) = self.target.sync() {
            tracing::warn!(%error, "what was written may not survive a loss of power");
        }
    }
}
