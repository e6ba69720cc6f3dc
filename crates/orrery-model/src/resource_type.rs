//! Mapping from an entity to resources: declared next to the handler, read by the export.

use std::borrow::Cow;

/// Declaration of a resource type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceType {
    /// Full name of the entity: `std::File`.
    pub entity: Cow<'static, str>,
    /// Path from the instance to the agent's name: `host.name`.
    pub agent: Cow<'static, str>,
    /// Attribute that identifies the resource on its agent: `path`.
    pub id_attribute: Cow<'static, str>,
    /// Attributes that the handler needs, beside the identifying one.
    pub fields: Cow<'static, [Cow<'static, str>]>,
    /// Relations to instances that are part of the resource.
    pub parts: Cow<'static, [Part]>,
    pub reach: Reach,
    /// True if the identifying attribute is a path that only one resource of a machine may manage.
    pub is_path: bool,
}

/// Scope of a handler's effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The machine of the resource's agent, where the handler must run.
    #[default]
    Machine,
    /// Something reachable from any machine, such as a URL, or nothing. The agent is only a queue.
    Outward,
}

/// A relation to instances that belong to the resource. It becomes a field: a list with one object
/// of these attributes for each instance, in the order of the relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub relation: Cow<'static, str>,
    pub attributes: Cow<'static, [Cow<'static, str>]>,
}

impl ResourceType {
    /// Creates a declaration from constants.
    pub fn new(
        entity: &'static str,
        agent: &'static str,
        id_attribute: &'static str,
        fields: &[&'static str],
    ) -> Self {
        ResourceType {
            entity: entity.into(),
            agent: agent.into(),
            id_attribute: id_attribute.into(),
            fields: fields.iter().map(|field| Cow::Borrowed(*field)).collect(),
            parts: Cow::Borrowed(&[]),
            reach: Reach::Machine,
            is_path: false,
        }
    }

    /// Declares that the handler does not need the agent's machine.
    #[must_use]
    pub fn outward(mut self) -> Self {
        self.reach = Reach::Outward;
        self
    }

    /// Declares that the identifying attribute is a path, so that two resources for one path collide.
    #[must_use]
    pub fn identified_by_path(mut self) -> Self {
        self.is_path = true;
        self
    }

    /// Adds a relation to instances that are part of the resource.
    #[must_use]
    pub fn with_part(mut self, relation: &'static str, attributes: &[&'static str]) -> Self {
        self.parts.to_mut().push(Part {
            relation: relation.into(),
            attributes: attributes.iter().map(|attribute| Cow::Borrowed(*attribute)).collect(),
        });
        self
    }
}
