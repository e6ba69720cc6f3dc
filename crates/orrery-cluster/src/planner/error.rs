//! Planner errors.

use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    #[error("there is no service with the name {0}")]
    UnknownService(String),
    #[error("{service} requires {dependency}, which is not on the cluster")]
    MissingDependency { service: String, dependency: String },
    #[error("services wait for each other: {}", .0.join(" → "))]
    DependencyCycle(Vec<String>),
    #[error("max_unavailable of {0} is zero: nothing could ever be restarted")]
    NothingUnavailable(String),
}
