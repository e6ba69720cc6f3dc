//! What an export has to say that keeps nothing from being deployed.

use std::fmt;
use std::sync::Arc;

use orrery_model::{ResourceId, Source};

/// Something worth knowing about what was exported, or was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Nothing says how instances of a resource's entity become resources.
    NoHandler {
        entity: Arc<str>,
        /// How many instances there are.
        count: usize,
        /// The first of them.
        source: Source,
    },
    /// The entity of the model lacks an attribute that is declared for its resources.
    FieldAbsent { entity: Arc<str>, field: String },
    /// Its id or agent is not known yet, so that it is no part of the version.
    Unidentified { entity: Arc<str>, source: Source },
    /// It requires something that is not known well enough to be part of the version.
    RequiresUnidentified { resource: ResourceId, source: Option<Source> },
    /// Nothing of what it requires is a resource: the order that the model wants may be lost.
    RequirementsLost { resource: ResourceId, source: Option<Source> },
    /// It is named by a resource set and not exported.
    SetMemberAbsent { set: Arc<str>, entity: Arc<str>, source: Source },
    /// The name of a resource set is not known: its resources are in no set.
    UnknownSet { source: Source },
}

impl Note {
    /// Where in the model it is about.
    pub fn source(&self) -> Option<&Source> {
        match self {
            Note::NoHandler { source, .. }
            | Note::Unidentified { source, .. }
            | Note::SetMemberAbsent { source, .. }
            | Note::UnknownSet { source } => Some(source),
            Note::RequiresUnidentified { source, .. } | Note::RequirementsLost { source, .. } => {
                source.as_ref()
            }
            Note::FieldAbsent { .. } => None,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::NoHandler { entity, count: 1, .. } => {
                write!(f, "no handler for entity {entity}: its instance is not deployed")
            }
            Note::NoHandler { entity, count, .. } => {
                write!(f, "no handler for entity {entity}: its {count} instances are not deployed")
            }
            Note::FieldAbsent { entity, field } => {
                write!(f, "{entity} has no attribute `{field}`, which its handler can use")
            }
            Note::Unidentified { entity, .. } => {
                write!(f, "a {entity} is not deployed: its id or agent is not known yet")
            }
            Note::RequiresUnidentified { resource, .. } => write!(
                f,
                "{resource} does not wait for something that it requires, because its id or agent is \
                 not known yet"
            ),
            Note::RequirementsLost { resource, .. } => {
                write!(f, "nothing of what {resource} requires is a resource: it waits for nothing")
            }
            Note::SetMemberAbsent { set, entity, .. } => {
                write!(f, "a {entity} is part of the resource set {set} and not exported")
            }
            Note::UnknownSet { .. } => {
                f.write_str("the name of a resource set is not known: its resources are in no set")
            }
        }
    }
}
