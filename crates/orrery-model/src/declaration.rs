//! How instances of an entity become resources: declared next to the handler, read by the export.

use std::borrow::Cow;

/// One kind of resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceType {
    /// The entity, by its full name: `std::File`.
    pub entity: Cow<'static, str>,
    /// Where the agent's name is found from the instance, by attributes and relations: `host.name`.
    pub agent: Cow<'static, str>,
    /// The attribute that identifies it on its agent: `path`.
    pub id_attribute: Cow<'static, str>,
    /// The attributes that its handler needs, beside the identifying one.
    pub fields: Cow<'static, [Cow<'static, str>]>,
    /// Relations whose instances are part of the resource.
    pub parts: Cow<'static, [Part]>,
    pub reach: Reach,
    /// The identifying attribute is a path of which one resource of a machine decides.
    pub is_path: bool,
}

/// What the handler of a resource acts on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The machine of the resource's agent: it must run there.
    #[default]
    Machine,
    /// Something that it finds by itself, from wherever it runs: an address, or nothing at all. The agent is only a queue.
    Outward,
}

/// A relation whose instances belong to the resource: a field of that name, which is a list with an
/// object of these attributes for each of them, in the order of the relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub relation: Cow<'static, str>,
    pub attributes: Cow<'static, [Cow<'static, str>]>,
}

impl ResourceType {
    /// A declaration that is known when the program is built.
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

    /// Declares that the handler needs no machine of the agent's own.
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

    /// Adds a relation whose instances are part of the resource.
    pub fn with_part(mut self, relation: &'static str, attributes: &[&'static str]) -> Self {
        self.parts.to_mut().push(Part {
            relation: relation.into(),
            attributes: attributes.iter().map(|attribute| Cow::Borrowed(*attribute)).collect(),
        });
        self
    }
}
