//! Planner: the steps and their order to get from one layout to another.
//!
//! [`plan`] compares two [`ClusterState`]s and returns a [`Plan`]: resources to apply, verify or
//! remove, with their requirements. [`operations`] contains the state changes that users request.
//! [`Execution`] executes a plan in memory: it determines which steps may start, under barriers,
//! admission tokens and one step per node at a time.
//!
//! A plan leaves no choice to its execution: it is the same for the same states, services and
//! policy.

mod build;
mod edges;
mod error;
mod execution;
pub mod operations;
mod service_order;
mod sort;
mod stages;
mod state;
mod step;

pub use build::plan;
pub use error::PlanError;
pub use execution::Execution;
pub use service_order::ServiceDefinitions;
pub(crate) use service_order::{PhaseKind, ServiceOrder};
pub use state::{ClusterState, NodeState, ServiceState};
pub use step::{Effect, Gate, Plan, PlanPolicy, ResourceKind, Restart, Step};
