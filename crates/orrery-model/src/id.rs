//! Identity of a resource: `module::Type[agent,attribute=value]`, and the form with a version number.
//!
//! The text is the identity. It is parsed without escapes: the type ends at the first `[`, the
//! agent at the first `,`, the attribute at the first `=`, and the value at the *last* `]`, so a
//! value may contain any of these characters. The last character distinguishes a version: a plain
//! id always ends with `]`, a versioned one with a digit.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::VersionNumber;

/// Identity of a resource. Cheap to clone.
#[derive(Clone)]
pub struct ResourceId {
    text: Arc<str>,
    agent_at: u32,
    attribute_at: u32,
    value_at: u32,
}

/// Error of a text or its parts that are not a resource id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    #[error("{0:?} is not a resource id: expected `module::Type[agent,attribute=value]`")]
    Form(String),
    #[error(
        "{0:?} is not a versioned resource id: expected `module::Type[agent,attribute=value],v=1`"
    )]
    VersionedForm(String),
    #[error("{0:?} is not a resource type: expected two or more names joined by `::`")]
    Type(String),
    #[error(
        "{0:?} cannot be the name of an agent: it must have at least one character and no comma"
    )]
    Agent(String),
    #[error(
        "{0:?} cannot be the name of an identifying attribute: it must have at least one character and no `=`"
    )]
    Attribute(String),
    #[error("the identifying attribute `{0}` is empty")]
    Value(String),
    #[error("a resource id of {0} bytes is too long: {max} are allowed", max = ResourceId::LENGTH_MAX)]
    Length(usize),
}

impl ResourceId {
    /// Maximum length: ids are keys of indexes, names in logs and lines on a screen.
    pub const LENGTH_MAX: usize = 64 * 1024;

    pub fn new(entity: &str, agent: &str, attribute: &str, value: &str) -> Result<Self, InvalidId> {
        if !is_type(entity) {
            return Err(InvalidId::Type(entity.to_owned()));
        }
        if agent.is_empty() || agent.contains(',') {
            return Err(InvalidId::Agent(agent.to_owned()));
        }
        if attribute.is_empty() || attribute.contains('=') {
            return Err(InvalidId::Attribute(attribute.to_owned()));
        }
        if value.is_empty() {
            return Err(InvalidId::Value(attribute.to_owned()));
        }
        let length = entity.len() + agent.len() + attribute.len() + value.len() + 4;
        if length > Self::LENGTH_MAX {
            return Err(InvalidId::Length(length));
        }
        let mut text = String::with_capacity(length);
        for part in [entity, "[", agent, ",", attribute, "=", value, "]"] {
            text.push_str(part);
        }
        let agent_at = entity.len() + 1;
        let attribute_at = agent_at + agent.len() + 1;
        let value_at = attribute_at + attribute.len() + 1;
        let at = |offset: usize| u32::try_from(offset).expect("invariant: ids are short");
        Ok(ResourceId {
            text: text.into(),
            agent_at: at(agent_at),
            attribute_at: at(attribute_at),
            value_at: at(value_at),
        })
    }

    /// The whole text: `std::File[web1,path=/etc/motd]`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The entity: `std::File`.
    pub fn entity(&self) -> &str {
        &self.text[..self.agent_at as usize - 1]
    }

    pub fn agent(&self) -> &str {
        &self.text[self.agent_at as usize..self.attribute_at as usize - 1]
    }

    /// Name of the identifying attribute: `path`.
    pub fn attribute(&self) -> &str {
        &self.text[self.attribute_at as usize..self.value_at as usize - 1]
    }

    /// Value of the identifying attribute: `/etc/motd`.
    pub fn value(&self) -> &str {
        &self.text[self.value_at as usize..self.text.len() - 1]
    }
}

/// Two or more names of word characters and dashes, joined by `::`.
fn is_type(text: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
    };
    // Every second part is the empty text between the two colons. Searching for single characters
    // is much cheaper, and this runs for every resource.
    let mut parts = 0;
    let matches_wildcards = text.split(':').all(|part| {
        parts += 1;
        if parts % 2 == 0 { part.is_empty() } else { is_name(part) }
    });
    matches_wildcards && parts >= 3 && parts % 2 == 1
}

impl FromStr for ResourceId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let parts = || {
            let (entity, rest) = text.strip_suffix(']')?.split_once('[')?;
            let (agent, rest) = rest.split_once(',')?;
            let (attribute, value) = rest.split_once('=')?;
            Some((entity, agent, attribute, value))
        };
        let (entity, agent, attribute, value) =
            parts().ok_or_else(|| InvalidId::Form(text.to_owned()))?;
        ResourceId::new(entity, agent, attribute, value)
    }
}

impl PartialEq for ResourceId {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ResourceId {}

impl Hash for ResourceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialOrd for ResourceId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// Allows lookups of a plain text in sets and maps of ids.
impl std::borrow::Borrow<str> for ResourceId {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for ResourceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for ResourceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Id of a resource in one version: `std::File[web1,path=/etc/motd],v=3`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionedId {
    pub id: ResourceId,
    pub version: VersionNumber,
}

impl fmt::Display for VersionedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},v={}", self.id, self.version)
    }
}

impl FromStr for VersionedId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId::VersionedForm(text.to_owned());
        let (id, version) = text.rsplit_once(",v=").ok_or_else(invalid)?;
        // `parse` alone accepts a sign.
        if !version.bytes().all(|b| b.is_ascii_digit()) {
            return Err(invalid());
        }
        let version = version.parse().map_err(|_| invalid())?;
        Ok(VersionedId { id: id.parse()?, version: VersionNumber(version) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_has_four_parts() {
        let id: ResourceId = "std::File[web1,path=/etc/motd]".parse().unwrap();
        assert_eq!(
            (id.entity(), id.agent(), id.attribute(), id.value()),
            ("std::File", "web1", "path", "/etc/motd")
        );
    }

    #[test]
    fn brackets_commas_and_equal_signs_belong_to_the_value() {
        let id: ResourceId = "a::B[web,key=x],v=3]=[,y]".parse().unwrap();
        assert_eq!(id.value(), "x],v=3]=[,y");
        let versioned: VersionedId = "a::B[web,key=x],v=3],v=4".parse().unwrap();
        assert_eq!((versioned.id.value(), versioned.version), ("x],v=3", VersionNumber(4)));
    }

    #[test]
    fn invalid_ids_are_rejected_with_the_reason() {
        for (text, reason) in [
            ("", "expected `module::Type"),
            ("std::File", "expected `module::Type"),
            ("std::File[a,b=c", "expected `module::Type"),
            ("File[a,b=c]", "not a resource type"),
            ("std::[a,b=c]", "not a resource type"),
            ("::File[a,b=c]", "not a resource type"),
            ("std:File[a,b=c]", "not a resource type"),
            ("std:::File[a,b=c]", "not a resource type"),
            ("std::::File[a,b=c]", "not a resource type"),
            ("std::File:[a,b=c]", "not a resource type"),
            ("std::x:File[a,b=c]", "not a resource type"),
            ("std::a b[a,b=c]", "not a resource type"),
            ("std::File[,b=c]", "name of an agent"),
            ("std::File[a,=c]", "identifying attribute"),
            ("std::File[a,b=]", "`b` is empty"),
        ] {
            let error = text.parse::<ResourceId>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!("a::B[c,d=e]".parse::<VersionedId>().is_err());
        assert!("a::B[c,d=e],v=+1".parse::<VersionedId>().is_err());
        assert!("a::B[c,d=e],v=".parse::<VersionedId>().is_err());
    }

    proptest! {
        #[test]
        fn printing_and_parsing_round_trip(
            entity in "[a-z_][a-z0-9_-]{0,8}(::[A-Z][A-Za-z0-9_-]{0,8}){1,3}",
            agent in "[^,]{1,12}",
            attribute in "[a-z_]{1,12}",
            value in r"(?s).{0,12}[\],=\[]?.{1,12}",
            version in any::<u32>(),
        ) {
            let id = ResourceId::new(&entity, &agent, &attribute, &value).unwrap();
            let again: ResourceId = id.to_string().parse().unwrap();
            // An agent may contain `[` only because the type cannot.
            prop_assert_eq!(again.agent(), agent.as_str());
            prop_assert_eq!(again.value(), value.as_str());
            prop_assert_eq!(&again, &id);
            let versioned = VersionedId { id, version: VersionNumber(version) };
            prop_assert_eq!(versioned.to_string().parse::<VersionedId>().unwrap(), versioned);
        }
    }
}
