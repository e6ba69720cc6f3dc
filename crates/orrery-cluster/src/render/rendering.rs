//! Input and output of rendering.

use std::collections::BTreeMap;

use orrery_model::Resource;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::planner::PlanError;

/// Options of a transition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderPolicy {
    #[serde(default)]
    pub restart: RestartPolicy,
}

/// Restarts of services whose configuration changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Running services keep their old configuration until their next restart.
    #[default]
    None,
    /// All instances at once, with all their dependents.
    Together,
    /// A few instances at a time. Their dependents keep running.
    Rolling {
        /// Maximum number of instances of a service that may be down at the same time.
        #[serde(default)]
        max_unavailable: BTreeMap<String, u32>,
        /// The same for all other services.
        #[serde(default = "one")]
        default: u32,
    },
}

fn one() -> u32 {
    1
}

impl RestartPolicy {
    /// Maximum number of instances that may be down at the same time, if there is one.
    pub fn limit(&self, service: &str) -> Option<u32> {
        match self {
            RestartPolicy::None | RestartPolicy::Together => None,
            RestartPolicy::Rolling { max_unavailable, default } => {
                Some(max_unavailable.get(service).copied().unwrap_or(*default))
            }
        }
    }
}

/// Resources of one version of a cluster's environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rendering {
    /// By name of the resource set: the name of a node, or [`super::BARRIERS`].
    pub sets: BTreeMap<String, Vec<Resource>>,
    /// True if the sets are those of [`super::settled`]: no other version has to follow.
    pub is_settled: bool,
}

/// Rendering errors.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RenderError {
    /// The services of the cluster lack requirements or wait for each other.
    #[error(transparent)]
    Order(#[from] PlanError),
    /// A name cannot be part of a resource id.
    #[error("{name:?} cannot be part of a resource: {reason}")]
    Name { name: String, reason: String },
    #[error(
        "the transition has steps that wait for each other: {}; make the changes one after the other",
        .0.join(" → ")
    )]
    Cycle(Vec<String>),
}
