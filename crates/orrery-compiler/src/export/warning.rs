//! Export warnings: findings that do not prevent a deploy.

use std::fmt;
use std::sync::Arc;

use orrery_model::{ResourceId, Source};

/// A finding about exported or skipped resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportWarning {
    /// No declaration defines how instances of a resource entity become resources.
    NoHandler {
        entity: Arc<str>,
        /// Number of instances.
        count: usize,
        /// Location of the first one.
        source: Source,
    },
    /// The model declares a resource type for an entity that it does not have.
    UnknownDeclaredEntity { entity: Arc<str>, source: Source },
    /// The model's entity lacks an attribute that is declared for its resources.
    FieldAbsent { entity: Arc<str>, field: String },
    /// The id or agent is unknown, so it is not part of the version.
    Unidentified { entity: Arc<str>, source: Source },
    /// A requirement is not part of the version because of unknowns.
    RequiresUnidentified { resource: ResourceId, source: Option<Source> },
    /// None of its requirements is a resource: the intended order may be lost.
    RequirementsLost { resource: ResourceId, source: Option<Source> },
    /// A member of a resource set is not exported.
    SetMemberAbsent { set: Arc<str>, entity: Arc<str>, source: Source },
    /// The name of a resource set is unknown: its resources belong to no set.
    UnknownSet { source: Source },
}

impl ExportWarning {
    /// Location in the model.
    pub fn source(&self) -> Option<&Source> {
        match self {
            ExportWarning::NoHandler { source, .. }
            | ExportWarning::UnknownDeclaredEntity { source, .. }
            | ExportWarning::Unidentified { source, .. }
            | ExportWarning::SetMemberAbsent { source, .. }
            | ExportWarning::UnknownSet { source } => Some(source),
            ExportWarning::RequiresUnidentified { source, .. }
            | ExportWarning::RequirementsLost { source, .. } => source.as_ref(),
            ExportWarning::FieldAbsent { .. } => None,
        }
    }
}

impl fmt::Display for ExportWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportWarning::NoHandler { entity, count: 1, .. } => {
                write!(f, "no handler for entity {entity}: its instance is not deployed")
            }
            ExportWarning::NoHandler { entity, count, .. } => {
                write!(f, "no handler for entity {entity}: its {count} instances are not deployed")
            }
            ExportWarning::UnknownDeclaredEntity { entity, .. } => {
                write!(
                    f,
                    "agents::ResourceType names {entity}, which is not an entity of the model"
                )
            }
            ExportWarning::FieldAbsent { entity, field } => {
                write!(f, "{entity} has no attribute `{field}`, which its handler can use")
            }
            ExportWarning::Unidentified { entity, .. } => {
                write!(f, "a {entity} is not deployed: its id or agent is not known yet")
            }
            ExportWarning::RequiresUnidentified { resource, .. } => write!(
                f,
                "{resource} does not wait for something that it requires, because its id or agent is \
                 not known yet"
            ),
            ExportWarning::RequirementsLost { resource, .. } => {
                write!(f, "nothing of what {resource} requires is a resource: it waits for nothing")
            }
            ExportWarning::SetMemberAbsent { set, entity, .. } => {
                write!(f, "a {entity} is part of the resource set {set} and not exported")
            }
            ExportWarning::UnknownSet { .. } => {
                f.write_str("the name of a resource set is not known: its resources are in no set")
            }
        }
    }
}
