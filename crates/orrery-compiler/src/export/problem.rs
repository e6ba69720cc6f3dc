//! What keeps a resource out of the version: each problem says which resource, where and why.

use std::fmt;
use std::sync::Arc;

use orrery_model::{InvalidId, ResourceId, Source};
use orrery_syntax::ast::Loc;

use crate::diagnostic::{Diagnostic, Place, Severity};

use super::code::CodeError;

/// A place in the model: for people and records, and for showing the line itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub source: Source,
    pub loc: Loc,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// A resource that cannot be exported, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub entity: Arc<str>,
    /// `None` if it could not even be identified.
    pub id: Option<ResourceId>,
    /// Where it is constructed.
    pub site: Site,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            Some(id) => id.fmt(f),
            None => write!(f, "the {} at {}", self.entity, self.site),
        }
    }
}

/// One requirement of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    pub from: Subject,
    pub to: Subject,
    /// What made it: a constructor, or the statement that added it.
    pub site: Site,
}

/// Why a value cannot be written as JSON.
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

/// Why an agent's name cannot be found.
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

/// Why a resource is left out of the version. What else there is, is exported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// All instances with the same id are left out: nobody can tell which one is meant.
    #[error("{} instances are the resource {id}: {}", subjects.len(), places(subjects))]
    DuplicateId { id: ResourceId, subjects: Vec<Subject> },
    /// All resources for one path of a machine are left out: each would undo what the others did.
    #[error("{} resources manage {path} on one machine: {}", subjects.len(), ids_and_places(subjects))]
    PathCollision {
        path: String,
        subjects: Vec<Subject>,
        /// Why their agents are one machine, if they have different ones.
        reasons: Vec<String>,
    },
    #[error("resources require each other: {}{}", chain(edges), more(others))]
    Cycle {
        /// A shortest cycle.
        edges: Vec<Edge>,
        /// What is on other cycles through the same resources.
        others: Vec<Subject>,
    },
    #[error("`{path}` of {resource} cannot be exported: {cause}")]
    Field {
        resource: Subject,
        /// The field and the place in its value: `options.users[2]`.
        path: String,
        cause: Unserializable,
    },
    #[error("{}{resource} cannot be exported: {cause}", field_of(cause))]
    Code { resource: Subject, cause: CodeError },
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
        through(requires, cause)
    )]
    RequiresLeftOut {
        resource: Subject,
        /// What it requires itself.
        requires: Arc<Subject>,
        /// What is wrong in the end: the same, or something that it requires near or far.
        cause: Arc<Subject>,
    },
}

fn field_of(cause: &CodeError) -> String {
    cause.field.as_ref().map_or_else(String::new, |field| format!("`{field}` of "))
}

fn places(subjects: &[Subject]) -> String {
    let places: Vec<String> = subjects.iter().map(|subject| subject.site.to_string()).collect();
    places.join(" and ")
}

fn ids_and_places(subjects: &[Subject]) -> String {
    let places: Vec<String> =
        subjects.iter().map(|subject| format!("{subject} at {}", subject.site)).collect();
    places.join(" and ")
}

fn chain(edges: &[Edge]) -> String {
    let edges: Vec<String> = edges
        .iter()
        .map(|edge| format!("{} requires {} ({})", edge.from, edge.to, edge.site))
        .collect();
    edges.join(", ")
}

fn more(others: &[Subject]) -> String {
    match others {
        [] => String::new(),
        [other] => format!("; {other} is part of such a circle too"),
        others => format!("; {} more are part of such circles", others.len()),
    }
}

fn through(requires: &Subject, cause: &Subject) -> String {
    if requires == cause { String::new() } else { format!(" because of {cause}") }
}

impl Problem {
    /// The resources that are left out because of it.
    pub fn resources(&self) -> Vec<&Subject> {
        match self {
            Problem::DuplicateId { subjects, .. } | Problem::PathCollision { subjects, .. } => {
                subjects.iter().collect()
            }
            Problem::Cycle { edges, others } => {
                edges.iter().map(|edge| &edge.from).chain(others).collect()
            }
            Problem::Field { resource, .. }
            | Problem::Code { resource, .. }
            | Problem::InvalidId { resource, .. }
            | Problem::IdValue { resource, .. }
            | Problem::NoIdAttribute { resource, .. }
            | Problem::Agent { resource, .. }
            | Problem::SeveralSets { resource, .. }
            | Problem::RequiresLeftOut { resource, .. } => vec![resource],
        }
    }

    /// Where it is shown.
    pub fn site(&self) -> &Site {
        match self {
            Problem::Cycle { edges, .. } => &edges[0].site,
            Problem::DuplicateId { subjects, .. } | Problem::PathCollision { subjects, .. } => {
                &subjects[0].site
            }
            Problem::Field { resource, .. }
            | Problem::Code { resource, .. }
            | Problem::InvalidId { resource, .. }
            | Problem::IdValue { resource, .. }
            | Problem::NoIdAttribute { resource, .. }
            | Problem::Agent { resource, .. }
            | Problem::SeveralSets { resource, .. }
            | Problem::RequiresLeftOut { resource, .. } => &resource.site,
        }
    }

    /// Its page is `docs/diagnostics/ID.md`.
    pub fn diagnostic_id(&self) -> &'static str {
        match self {
            Problem::DuplicateId { .. } => "duplicate-resource",
            Problem::PathCollision { .. } => "path-collision",
            Problem::Cycle { .. } => "requirement-cycle",
            Problem::Field { .. } => "unserializable-field",
            Problem::InvalidId { .. } | Problem::IdValue { .. } | Problem::NoIdAttribute { .. } => {
                "invalid-resource-id"
            }
            Problem::Code { .. } => "code-failed",
            Problem::Agent { .. } => "agent-not-found",
            Problem::SeveralSets { .. } => "several-resource-sets",
            Problem::RequiresLeftOut { .. } => "requirement-left-out",
        }
    }

    fn help(&self) -> Option<&'static str> {
        match self {
            Problem::DuplicateId { .. } => Some(
                "give one of them another value for the identifying attribute, or make it one instance",
            ),
            Problem::PathCollision { .. } => Some(
                "let one resource manage the path; if their hosts are different machines, let each have its own agent",
            ),
            Problem::Cycle { .. } => Some("take one of these requirements away"),
            Problem::SeveralSets { .. } => {
                Some("a resource belongs to one set, or to none: then all sets share it")
            }
            _ => None,
        }
    }
}

/// Ready to be shown with the source lines.
impl From<&Problem> for Diagnostic {
    fn from(problem: &Problem) -> Self {
        let mut message = problem.to_string();
        let mut label = String::new();
        let mut related = Vec::new();
        let mut details = Vec::new();
        match problem {
            Problem::DuplicateId { id, subjects } => {
                message = format!("several instances are the resource {id}");
                label = "one of them".into();
                related.extend(subjects[1..].iter().map(|other| other.site.place("another one")));
            }
            Problem::PathCollision { path, subjects, reasons } => {
                message = format!("several resources manage {path} on one machine");
                label = subjects[0].to_string();
                related
                    .extend(subjects[1..].iter().map(|other| other.site.place(other.to_string())));
                details.clone_from(reasons);
            }
            Problem::Cycle { edges, others } => {
                message = format!("resources require each other{}", more(others));
                let label_of = |edge: &Edge| format!("{} requires {}", edge.from, edge.to);
                label = label_of(&edges[0]);
                related.extend(edges[1..].iter().map(|edge| edge.site.place(label_of(edge))));
            }
            Problem::RequiresLeftOut { cause, .. } => {
                related.push(cause.site.place("this is what it fails for"));
            }
            _ => {}
        }
        Diagnostic {
            severity: Severity::Error,
            id: Some(problem.diagnostic_id()),
            message,
            details,
            notes: Vec::new(),
            primary: Some(problem.site().place(label)),
            related,
            causes: Vec::new(),
            help: problem.help().map(str::to_owned),
        }
    }
}

impl Site {
    fn place(&self, label: impl Into<String>) -> Place {
        Place { loc: self.loc, highlight: None, label: label.into() }
    }
}
