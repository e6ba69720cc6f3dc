//! Export problems: each names the left-out resource, the location and the reason.

use std::fmt;
use std::sync::Arc;

use orrery_model::{InvalidId, ResourceId, Source};
use orrery_syntax::ast::Loc;

use crate::diagnostic::{Diagnostic, Severity, SourceLabel};

use super::code::ModuleCodeError;

/// A location in the model: for messages and records, and for showing the source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelLocation {
    pub source: Source,
    pub loc: Loc,
}

impl fmt::Display for ModelLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// A resource that cannot be exported, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub entity: Arc<str>,
    /// `None` if it could not be identified.
    pub id: Option<ResourceId>,
    /// Location of its constructor.
    pub location: ModelLocation,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            Some(id) => id.fmt(f),
            None => write!(f, "the {} at {}", self.entity, self.location),
        }
    }
}

/// One requirement of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    pub from: Subject,
    pub to: Subject,
    /// Location of the constructor, or of the statement that added it.
    pub location: ModelLocation,
}

/// Reason why a value cannot be serialized as JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unserializable {
    #[error("an instance of {0} is no value")]
    Instance(String),
    #[error("the relation has no value")]
    Empty,
    #[error("{0} is no number that JSON can hold")]
    NotFinite(String),
    #[error("a value of the type {0} has no form outside of the model")]
    Foreign(String),
    #[error("its code gave no value")]
    NotComputed,
    #[error("it is nested more than {max} levels deep", max = super::json::DEPTH_MAX)]
    TooDeep,
}

/// Reason why an agent's name cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentNotFound {
    #[error("{entity} has no attribute `{name}`")]
    NoAttribute { entity: String, name: String },
    #[error("`{name}` of the {entity} has no value")]
    NoValue { entity: String, name: String },
    #[error("`{name}` leads to {count} instances, not to one")]
    NotOne { name: String, count: usize },
    #[error("`{name}` is no instance, and has no attributes")]
    NotAnInstance { name: String },
    #[error("it leads to a value of the type {class}, not to a text")]
    NotAText { class: String },
}

/// Reason for leaving a resource out of the version. The rest is exported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportProblem {
    /// All instances with the same id are left out, because the intended one cannot be determined.
    #[error("{} instances are the resource {id}: {}", subjects.len(), locations(subjects))]
    DuplicateId { id: ResourceId, subjects: Vec<Subject> },
    /// All resources for one path of a machine are left out: they would undo each other's changes.
    #[error("{} resources manage {path} on one machine: {}", subjects.len(), ids_and_locations(subjects))]
    PathCollision {
        path: String,
        subjects: Vec<Subject>,
        /// Reasons why different agents are the same machine.
        reasons: Vec<String>,
    },
    #[error("resources require each other: {}{}", cycle_text(edges), others_text(others))]
    Cycle {
        /// A shortest cycle.
        edges: Vec<Edge>,
        /// Resources on other cycles through the same resources.
        others: Vec<Subject>,
    },
    #[error("`{path}` of {resource} cannot be exported: {cause}")]
    Field {
        resource: Subject,
        /// The field and the path in its value: `options.users[2]`.
        path: String,
        cause: Unserializable,
    },
    #[error("{}{resource} cannot be exported: {cause}", field_of(cause))]
    Code { resource: Subject, cause: ModuleCodeError },
    #[error("{resource} cannot be identified: {cause}")]
    InvalidId { resource: Subject, cause: InvalidId },
    #[error("{resource} cannot be identified: `{attribute}` is {found}, not a text or a number")]
    IdValue { resource: Subject, attribute: String, found: String },
    #[error("{resource} cannot be identified: {entity} has no attribute `{attribute}`", entity = resource.entity)]
    NoIdAttribute { resource: Subject, attribute: String },
    #[error("the agent of {resource} cannot be found along `{path}`: {cause}")]
    Agent { resource: Subject, path: String, cause: AgentNotFound },
    #[error("{resource} is part of several resource sets: {}", sets.join(", "))]
    SeveralSets { resource: Subject, sets: Vec<Arc<str>> },
    #[error(
        "{resource} is left out because it requires {requires}, which is left out{}",
        cause_text(requires, cause)
    )]
    RequiresLeftOut {
        resource: Subject,
        /// The direct requirement.
        requires: Arc<Subject>,
        /// The root cause: the direct requirement, or one of its transitive requirements.
        cause: Arc<Subject>,
    },
}

fn field_of(cause: &ModuleCodeError) -> String {
    cause.field.as_ref().map_or_else(String::new, |field| format!("`{field}` of "))
}

fn locations(subjects: &[Subject]) -> String {
    let locations: Vec<String> =
        subjects.iter().map(|subject| subject.location.to_string()).collect();
    locations.join(" and ")
}

fn ids_and_locations(subjects: &[Subject]) -> String {
    let locations: Vec<String> =
        subjects.iter().map(|subject| format!("{subject} at {}", subject.location)).collect();
    locations.join(" and ")
}

fn cycle_text(edges: &[Edge]) -> String {
    let edges: Vec<String> = edges
        .iter()
        .map(|edge| format!("{} requires {} ({})", edge.from, edge.to, edge.location))
        .collect();
    edges.join(", ")
}

fn others_text(others: &[Subject]) -> String {
    match others {
        [] => String::new(),
        [other] => format!("; {other} is part of such a circle too"),
        others => format!("; {} more are part of such circles", others.len()),
    }
}

fn cause_text(requires: &Subject, cause: &Subject) -> String {
    if requires == cause { String::new() } else { format!(" because of {cause}") }
}

impl ExportProblem {
    /// The resources left out because of it.
    pub fn resources(&self) -> Vec<&Subject> {
        match self {
            ExportProblem::DuplicateId { subjects, .. }
            | ExportProblem::PathCollision { subjects, .. } => subjects.iter().collect(),
            ExportProblem::Cycle { edges, others } => {
                edges.iter().map(|edge| &edge.from).chain(others).collect()
            }
            ExportProblem::Field { resource, .. }
            | ExportProblem::Code { resource, .. }
            | ExportProblem::InvalidId { resource, .. }
            | ExportProblem::IdValue { resource, .. }
            | ExportProblem::NoIdAttribute { resource, .. }
            | ExportProblem::Agent { resource, .. }
            | ExportProblem::SeveralSets { resource, .. }
            | ExportProblem::RequiresLeftOut { resource, .. } => vec![resource],
        }
    }

    /// The location to display.
    pub fn location(&self) -> &ModelLocation {
        match self {
            ExportProblem::Cycle { edges, .. } => &edges[0].location,
            ExportProblem::DuplicateId { subjects, .. }
            | ExportProblem::PathCollision { subjects, .. } => &subjects[0].location,
            ExportProblem::Field { resource, .. }
            | ExportProblem::Code { resource, .. }
            | ExportProblem::InvalidId { resource, .. }
            | ExportProblem::IdValue { resource, .. }
            | ExportProblem::NoIdAttribute { resource, .. }
            | ExportProblem::Agent { resource, .. }
            | ExportProblem::SeveralSets { resource, .. }
            | ExportProblem::RequiresLeftOut { resource, .. } => &resource.location,
        }
    }

    /// Diagnostic id; its page is `docs/diagnostics/ID.md`.
    pub fn diagnostic_id(&self) -> &'static str {
        match self {
            ExportProblem::DuplicateId { .. } => "duplicate-resource",
            ExportProblem::PathCollision { .. } => "path-collision",
            ExportProblem::Cycle { .. } => "requirement-cycle",
            ExportProblem::Field { .. } => "unserializable-field",
            ExportProblem::InvalidId { .. }
            | ExportProblem::IdValue { .. }
            | ExportProblem::NoIdAttribute { .. } => "invalid-resource-id",
            ExportProblem::Code { .. } => "code-failed",
            ExportProblem::Agent { .. } => "agent-not-found",
            ExportProblem::SeveralSets { .. } => "several-resource-sets",
            ExportProblem::RequiresLeftOut { .. } => "requirement-left-out",
        }
    }

    fn help(&self) -> Option<&'static str> {
        match self {
            ExportProblem::DuplicateId { .. } => Some(
                "give one of them another value for the identifying attribute, or make it one instance",
            ),
            ExportProblem::PathCollision { .. } => Some(
                "let one resource manage the path; if their hosts are different machines, let each have its own agent",
            ),
            ExportProblem::Cycle { .. } => Some("remove one of these requirements"),
            ExportProblem::SeveralSets { .. } => {
                Some("a resource belongs to one set, or to none: then all sets share it")
            }
            _ => None,
        }
    }
}

/// Converts a problem for display with source lines.
impl From<&ExportProblem> for Diagnostic {
    fn from(problem: &ExportProblem) -> Self {
        let mut message = problem.to_string();
        let mut label = String::new();
        let mut related = Vec::new();
        let mut details = Vec::new();
        match problem {
            ExportProblem::DuplicateId { id, subjects } => {
                message = format!("several instances are the resource {id}");
                label = "one of them".into();
                related.extend(
                    subjects[1..].iter().map(|other| other.location.with_label("another one")),
                );
            }
            ExportProblem::PathCollision { path, subjects, reasons } => {
                message = format!("several resources manage {path} on one machine");
                label = subjects[0].to_string();
                related.extend(
                    subjects[1..].iter().map(|other| other.location.with_label(other.to_string())),
                );
                details.clone_from(reasons);
            }
            ExportProblem::Cycle { edges, others } => {
                message = format!("resources require each other{}", others_text(others));
                let label_of = |edge: &Edge| format!("{} requires {}", edge.from, edge.to);
                label = label_of(&edges[0]);
                related
                    .extend(edges[1..].iter().map(|edge| edge.location.with_label(label_of(edge))));
            }
            ExportProblem::RequiresLeftOut { cause, .. } => {
                related.push(cause.location.with_label("this is what it fails for"));
            }
            _ => {}
        }
        Diagnostic {
            severity: Severity::Error,
            id: Some(problem.diagnostic_id()),
            message,
            details,
            notes: Vec::new(),
            primary: Some(problem.location().with_label(label)),
            related,
            causes: Vec::new(),
            help: problem.help().map(str::to_owned),
        }
    }
}

impl ModelLocation {
    fn with_label(&self, label: impl Into<String>) -> SourceLabel {
        SourceLabel { loc: self.loc, highlight: None, label: label.into() }
    }
}
