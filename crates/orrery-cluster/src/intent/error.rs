//! Errors of operations on clusters.

use thiserror::Error;

use crate::document::DocumentKind;
use crate::macros::MacroError;
use crate::planner::PlanError;
use crate::solver::{AddError, Invalid, ResizeError, SolveError};

/// Reasons why an operation on a cluster is refused.
#[derive(Debug, Error)]
pub enum IntentError {
    /// The request does not fit the documents, or there is no layout.
    #[error(transparent)]
    Solve(#[from] SolveError),
    #[error(transparent)]
    Resize(#[from] ResizeError),
    #[error(transparent)]
    Add(#[from] AddError),
    /// The services of the cluster lack requirements or wait for each other.
    #[error(transparent)]
    Order(#[from] PlanError),
    #[error("service {0} is not on the cluster")]
    NotOnCluster(String),
    #[error("service {0} is already on the cluster")]
    AlreadyOnCluster(String),
    #[error("{service} cannot be removed: {dependent} requires it; remove {dependent}, too")]
    Required { service: String, dependent: String },
    #[error("the cluster would have no services; delete it instead")]
    NoServices,
    #[error("there is no node with the name {0}")]
    UnknownNode(String),
    /// The nodes would break rules of the template.
    #[error("the nodes would not satisfy the rules: {}", .0.join("; "))]
    Layout(Vec<String>),
    #[error("the {} {name} does not exist", .kind.noun())]
    UnknownDocument { kind: DocumentKind, name: String },
    #[error("provider {provider} does not offer the {} {name}", .kind.noun())]
    NotOffered { kind: DocumentKind, name: String, provider: String },
    #[error("the change names no nodes and no services, or neither hardware nor image")]
    EmptyChange,
    /// A macro in the configuration is wrong. The path is a JSON pointer.
    #[error("configuration {path}: {error}")]
    Macro { path: String, error: MacroError },
    #[error("{0:?} cannot be the id of a cluster: expected lower-case letters and digits")]
    ClusterId(String),
    #[error("{0:?} cannot be a domain: expected labels of letters, digits and dashes")]
    DnsSuffix(String),
}

impl From<Vec<Invalid>> for IntentError {
    fn from(invalid: Vec<Invalid>) -> Self {
        IntentError::Solve(SolveError::Invalid(invalid))
    }
}
