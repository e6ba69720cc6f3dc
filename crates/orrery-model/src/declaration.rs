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
        }
    }
}
