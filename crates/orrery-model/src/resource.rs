//! A resource: identity, attributes and what it requires. The unit of desired state.

use std::fmt;
use std::sync::Arc;

use md5::{Digest, Md5};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::canonical::Append;
use crate::{ResourceId, SetName};

/// Digest of a resource's intent: its id and all attributes. Two equal hashes mean that nothing has to be done.
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

/// The attributes of a resource as the text of a JSON object: keys sorted, no spaces, without `id`,
/// `requires`, `provides` and `version`. It is kept as text because that is how it is stored, hashed and
/// sent; a handler reads it straight into a type of its own.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Attributes(Arc<str>);

#[derive(Debug, thiserror::Error)]
pub enum InvalidAttributes {
    #[error("the attributes are not a JSON object")]
    NotAnObject,
    #[error("the attributes are not valid JSON")]
    Json(#[from] serde_json::Error),
}

/// Attributes that say where a resource stands among others, not what it should be.
const NOT_INTENT: [&str; 4] = ["id", "provides", "requires", "version"];

impl Attributes {
    /// Brings a JSON object into the canonical form.
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

    /// Takes a text that is known to be in the canonical form: what `as_str` gave before.
    pub fn from_canonical(text: impl Into<Arc<str>>) -> Self {
        Attributes(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads them into a type of a handler.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// The attributes as a map, for displays and comparisons.
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

/// Brings an object into the canonical form as it is read.
impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with attributes")
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Vec<u8>, A::Error> {
                // Most fit, and growing would copy each several times.
                let mut out = Vec::with_capacity(256);
                Append { out: &mut out, without: &NOT_INTENT }.visit_map(entries)?;
                Ok(out)
            }
        }

        let text = String::from_utf8(deserializer.deserialize_map(Object)?);
        text.map(|text| Attributes(text.into())).map_err(serde::de::Error::custom)
    }
}

/// As the object that it is, not as a text.
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

/// What of a resource's intent the scheduler has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceFlags {
    /// An attribute is unknown: nothing can be done until it is known.
    pub undefined: bool,
    /// Its dependents are deployed again whenever it was.
    pub send_event: bool,
    /// It is deployed again when something that it requires sent an event.
    pub receive_events: bool,
    /// Nothing is changed; what differs is reported.
    pub report_only: bool,
    /// The version has it only to remove it.
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

/// Where in the model a resource comes from: `main.cf:12:3`.
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

/// One resource of a version.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    pub id: ResourceId,
    pub attributes: Attributes,
    pub hash: AttributeHash,
    /// What must be handled before it, sorted, each once.
    pub requires: Vec<ResourceId>,
    pub flags: ResourceFlags,
    pub set: SetName,
    /// For people only: no part of the intent.
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
        /// The short way and the long way lead to the same text.
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
    fn attributes_that_are_no_object_are_refused() {
        assert!(matches!(Attributes::parse("[]"), Err(InvalidAttributes::NotAnObject)));
        assert!(matches!(Attributes::parse("{"), Err(InvalidAttributes::Json(_))));
    }
}
