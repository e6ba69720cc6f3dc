//! Where the resources of an agent live.

use std::fmt;
use std::sync::Arc;

use orrery_handlers::{LocalTarget, Target};

use crate::remote::Remote;

/// There is no way to an agent's target; the reason is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoTarget(pub String);

/// Where handlers run for an agent.
#[derive(Clone)]
pub enum Place {
    /// In this process.
    Here(Arc<dyn Target>),
    /// Elsewhere, by somebody who is told what to do.
    Remote(Arc<dyn Remote>),
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Here(_) => "Here",
            Place::Remote(_) => "Remote",
        })
    }
}

/// Finds the place of an agent.
pub trait Targets: Send + Sync {
    /// Asked once per agent and engine, and again after [`Engine::forget_places`](crate::Engine::forget_places). It must not wait: the engine
    /// stands still meanwhile.
    ///
    /// # Errors
    /// If there is no way to it.
    fn place(&self, agent: &str) -> Result<Place, NoTarget>;

    /// Makes what was written to all targets here survive a loss of power. Who runs handlers elsewhere does this before answering.
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
    fn place(&self, _agent: &str) -> Result<Place, NoTarget> {
        Ok(Place::Here(Arc::clone(&self.target) as Arc<dyn Target>))
    }

    fn sync(&self) {
        if let Err(error) = self.target.sync() {
            tracing::warn!(%error, "what was written may not survive a loss of power");
        }
    }
}
