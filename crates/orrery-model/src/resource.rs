//! A resource: identity, attributes and requirements. The unit of desired state.

use std::fmt;
use std::sync::Arc;

use md5::{Digest, Md5};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::ResourceId;
use crate::canonical::CanonicalWriter;

/// Digest of a resource's intent: its id and all attributes. Equal hashes mean equal intents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttributeHash(pub [u8; 16]);

impl fmt::Display for AttributeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for AttributeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Attributes of a resource as canonical JSON text: keys sorted, no spaces, without `id`,
/// `requires`, `provides` and `version`. It is text because it is stored, hashed and sent as text;
/// a handler deserializes it into a type of its own.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Attributes(Arc<str>);

#[derive(Debug, thiserror::Error)]
pub enum InvalidAttributes {
    #[error("the attributes are not a JSON object")]
    NotAnObject,
    #[error("the attributes are not valid JSON")]
    Json(#[from] serde_json::Error),
}

/// Attributes that describe relations between resources, not the intent.
const NOT_INTENT: [&str; 4] = ["id", "provides", "requires", "version"];

impl Attributes {
    /// Converts a JSON object to the canonical form.
    pub fn from_object(object: serde_json::Map<String, serde_json::Value>) -> Self {
        let mut value = serde_json::Value::Object(object);
        if let Some(object) = value.as_object_mut() {
            object.retain(|name, _| !NOT_INTENT.contains(&name.as_str()));
        }
        value.sort_all_objects();
        // Writing JSON to memory cannot fail.
        Attributes(serde_json::to_string(&value).unwrap_or_default().into())
    }

    pub fn parse(text: &str) -> Result<Self, InvalidAttributes> {
        match serde_json::from_str(text)? {
            serde_json::Value::Object(object) => Ok(Self::from_object(object)),
            _ => Err(InvalidAttributes::NotAnObject),
        }
    }

    /// Wraps a text that is already canonical, such as the result of `as_str`.
    pub fn from_canonical(text: impl Into<Arc<str>>) -> Self {
        Attributes(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Deserializes the attributes into a handler's type.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// Returns the attributes as a map, for display and comparison.
    pub fn to_object(&self) -> serde_json::Map<String, serde_json::Value> {
        self.read().unwrap_or_default()
    }

    pub fn hash(&self, id: &ResourceId) -> AttributeHash {
        let mut digest = Md5::new();
        digest.update(id.as_str().as_bytes());
        digest.update(self.0.as_bytes());
        AttributeHash(digest.finalize().into())
    }
}

/// Deserializes an object directly into the canonical form.
impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with attributes")
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Vec<u8>, A::Error> {
                // Most objects fit; growing copies each several times.
                let mut out = Vec::with_capacity(256);
                CanonicalWriter { out: &mut out, without: &NOT_INTENT }.visit_map(entries)?;
                Ok(out)
            }
        }

        let text = String::from_utf8(deserializer.deserialize_map(Object)?);
        text.map(|text| Attributes(text.into())).map_err(serde::de::Error::custom)
    }
}

/// Serializes as an object, not as a text.
impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Flags of a resource's intent that the scheduler uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceFlags {
    /// An attribute is unknown: the resource cannot be deployed yet.
    pub undefined: bool,
    /// Each run of the resource triggers its dependents.
    pub send_event: bool,
    /// An event of a requirement triggers the resource.
    pub receive_events: bool,
    /// The handler reports differences and changes nothing.
    pub report_only: bool,
    /// The version contains it only to remove it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removal: bool,
}

impl Default for ResourceFlags {
    fn default() -> Self {
        ResourceFlags {
            undefined: false,
            send_event: false,
            receive_events: true,
            report_only: false,
            removal: false,
        }
    }
}

/// Source location of a resource in the model: `main.cf:12:3`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Name of a resource set; `None` is the shared set.
pub type SetName = Option<Arc<str>>;

/// One resource of a version.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    pub id: ResourceId,
    pub attributes: Attributes,
    pub hash: AttributeHash,
    /// Requirements, sorted and unique.
    pub requires: Vec<ResourceId>,
    pub flags: ResourceFlags,
    pub set: SetName,
    /// For display only: not part of the intent.
    pub source: Option<Source>,
}

impl Resource {
    pub fn new(id: ResourceId, attributes: Attributes, mut requires: Vec<ResourceId>) -> Self {
        requires.sort_unstable();
        requires.dedup();
        let hash = attributes.hash(&id);
        Resource {
            id,
            attributes,
            hash,
            requires,
            flags: ResourceFlags::default(),
            set: None,
            source: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_have_one_form_whatever_the_order() {
        let first = Attributes::parse(r#"{"b": [1, {"y": 1.0, "x": "é"}], "a": null}"#).unwrap();
        let second = Attributes::parse(
            r#"{"a":null,"b":[1,{"x":"\u00e9","y":1.0}],"version":3,"requires":[]}"#,
        );
        assert_eq!(first, second.unwrap());
        assert_eq!(first.as_str(), r#"{"a":null,"b":[1,{"x":"é","y":1.0}]}"#);
    }

    #[test]
    fn attributes_are_read_and_written_as_objects() {
        let text = r#"{"b":1,"a":{"z":[],"y":[{},-1,"\u0041\n"]},"id":2,"b":[1.50,1e3,null],"c":{"id":3}}"#;
        let read: Attributes = serde_json::from_str(text).unwrap();
        assert_eq!(
            read.as_str(),
            r#"{"a":{"y":[{},-1,"A\n"],"z":[]},"b":[1.5,1000.0,null],"c":{"id":3}}"#
        );
        assert_eq!(read, Attributes::parse(text).unwrap());
        let wrapped = serde_json::to_string(&[&read]).unwrap();
        assert_eq!(wrapped, format!("[{}]", read.as_str()));
        assert_eq!(serde_json::to_value(&read).unwrap()["c"]["id"], 3);
        for wrong in ["[]", "1", "{", r#"{"a":}"#, "null"] {
            assert!(serde_json::from_str::<Attributes>(wrong).is_err(), "{wrong}");
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            ".{0,6}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::vec(("[a-dé\"]{0,2}|id", inner), 0..6).prop_map(|entries| {
                    entries.into_iter().collect::<serde_json::Map<_, _>>().into()
                }),
            ]
        })
    }

    proptest! {
        /// Direct deserialization and sorting give the same text.
        #[test]
        fn reading_makes_the_same_text_as_sorting(
            object in prop::collection::vec(("[a-d]{0,2}|version", any_json()), 0..6),
            spaced: bool,
        ) {
            let object: serde_json::Map<_, _> = object.into_iter().collect();
            let text = if spaced {
                serde_json::to_string_pretty(&object).unwrap()
            } else {
                serde_json::to_string(&object).unwrap()
            };
            let read: Attributes = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read, Attributes::from_object(object));
        }
    }

    #[test]
    fn the_hash_tells_ids_and_attributes_apart() {
        let id: ResourceId = "a::B[c,d=e]".parse().unwrap();
        let other: ResourceId = "a::B[c,d=f]".parse().unwrap();
        let attributes = Attributes::parse(r#"{"a": 1}"#).unwrap();
        assert_eq!(attributes.hash(&id), attributes.hash(&id));
        assert_ne!(attributes.hash(&id), attributes.hash(&other));
        assert_ne!(attributes.hash(&id), Attributes::parse(r#"{"a": 2}"#).unwrap().hash(&id));
    }

    #[test]
    fn attributes_that_are_not_an_object_are_rejected() {
        assert!(matches!(Attributes::parse("[]"), Err(InvalidAttributes::NotAnObject)));
        assert!(matches!(Attributes::parse("{"), Err(InvalidAttributes::Json(_))));
    }
}
