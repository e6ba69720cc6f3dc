//! Planner: what has to be done, in which order, to get from one layout to another.
//!
//! [`plan`] compares two [`ClusterState`]s and gives a [`Plan`]: resources to apply, verify or remove, with what each
//! requires. [`operations`] has the changes of a state that people ask for. [`Execution`] carries a plan out in
//! memory: it says which steps may start, under barriers, admission tokens and one step per node at a time.
//!
//! A plan leaves no choice to its execution: it is the same for the same states, services and policy.

mod build;
mod edges;
mod error;
mod execution;
pub mod operations;
mod order;
mod sort;
mod stages;
mod state;
mod step;

pub use build::plan;
pub use error::PlanError;
pub use execution::Execution;
pub use order::Services;
pub use state::{ClusterState, NodeState, ServiceState};
pub use step::{Effect, Gate, Plan, Policy, ResourceKind, Restart, Step};
