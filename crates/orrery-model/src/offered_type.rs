//! Resource types that a remote agent offers, in any language: their declaration, and the check of
//! a resource against it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Attributes, ResourceId};

/// Maximum number of attributes of an offered type.
const ATTRIBUTES_MAX: usize = 256;

/// Declaration of a resource type that a remote agent offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedType {
    /// Full name of the entity: `notes::Note`.
    pub entity: String,
    /// Path from the instance to the agent's name: `host.name`.
    pub agent: String,
    /// Attribute that identifies the resource on its agent: `title`.
    pub id_attribute: String,
    /// Types of the attributes, by name: `string`, `int`, `float`, `bool`, `dict`, `list`, `any`; with
    /// `[]` for lists, and a final `?` for attributes that may be null or absent.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// Reason why a declaration is invalid, or a resource does not fit it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    #[error("the offered type {entity:?}: {reason}")]
    Declaration { entity: String, reason: String },
    #[error("the agent identifies {entity} by {expected:?}, and the resource by {found:?}")]
    Identity { entity: String, expected: String, found: String },
    #[error("{entity} has no attribute {name:?}, which its agent declares as {declared}")]
    Missing { entity: String, name: String, declared: String },
    #[error("the attribute {name:?} of {entity} is {found}; its agent declares {declared}")]
    Type { entity: String, name: String, declared: String, found: &'static str },
}

/// Type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AttributeType<'a> {
    base: &'a str,
    is_list: bool,
    is_optional: bool,
}

impl<'a> AttributeType<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (text, is_optional) = text.strip_suffix('?').map_or((text, false), |base| (base, true));
        let (base, is_list) = text.strip_suffix("[]").map_or((text, false), |base| (base, true));
        let known = ["any", "bool", "dict", "float", "int", "list", "string"];
        known.contains(&base).then_some(AttributeType { base, is_list, is_optional })
    }

    fn fits(self, value: &Value) -> bool {
        match value {
            Value::Null => self.is_optional,
            Value::Array(items) if self.is_list => items.iter().all(|item| self.fits_base(item)),
            _ if self.is_list => false,
            value => self.fits_base(value),
        }
    }

    fn fits_base(self, value: &Value) -> bool {
        match self.base {
            "bool" => value.is_boolean(),
            "dict" => value.is_object(),
            "float" => value.is_number(),
            "int" => value.is_i64() || value.is_u64(),
            "list" => value.is_array(),
            "string" => value.is_string(),
            _ => true,
        }
    }
}

/// True for `a::B`: at least two names.
fn is_entity(name: &str) -> bool {
    let is_name = |part: &str| {
        part.starts_with(|one: char| one.is_ascii_alphabetic() || one == '_')
            && part.chars().all(|one| one.is_ascii_alphanumeric() || one == '_' || one == '-')
    };
    name.contains("::") && name.split("::").all(is_name)
}

impl OfferedType {
    /// Checks the declaration itself.
    ///
    /// # Errors
    /// If a name is malformed, or a type is unknown.
    pub fn check(&self) -> Result<(), OfferError> {
        let refuse =
            |reason: String| Err(OfferError::Declaration { entity: self.entity.clone(), reason });
        if !is_entity(&self.entity) {
            return refuse("expected the full name of an entity, such as notes::Note".to_owned());
        }
        if self.agent.is_empty() || self.id_attribute.is_empty() {
            return refuse("agent and id_attribute name an attribute".to_owned());
        }
        if self.attributes.len() > ATTRIBUTES_MAX {
            return refuse(format!("more than {ATTRIBUTES_MAX} attributes"));
        }
        for (name, declared) in &self.attributes {
            if AttributeType::parse(declared).is_none() {
                return refuse(format!(
                    "the attribute {name:?} has the unknown type {declared:?}; expected any, bool, \
                     dict, float, int, list or string, with [] for lists and ? for optional ones"
                ));
            }
        }
        Ok(())
    }

    /// Checks a resource of this type. Attributes that are late-bound, and those that the
    /// declaration does not name, are accepted.
    ///
    /// # Errors
    /// If it is identified by another attribute, or an attribute has another type.
    pub fn check_resource(
        &self,
        id: &ResourceId,
        attributes: &Attributes,
    ) -> Result<(), OfferError> {
        let entity = || self.entity.clone();
        if id.attribute() != self.id_attribute {
            let (expected, found) = (self.id_attribute.clone(), id.attribute().to_owned());
            return Err(OfferError::Identity { entity: entity(), expected, found });
        }
        let values: BTreeMap<String, Value> =
            serde_json::from_str(attributes.as_str()).unwrap_or_default();
        let is_empty = |name: &str| {
            values.get(name).is_none_or(|value| value.as_array().is_some_and(Vec::is_empty))
        };
        let is_late_bound = !is_empty("references");
        for (name, declared) in &self.attributes {
            let Some(expected) = AttributeType::parse(declared) else { continue };
            match values.get(name) {
                Some(Value::Null) if is_late_bound => {}
                Some(value) if expected.fits(value) => {}
                Some(value) => {
                    let (name, declared) = (name.clone(), declared.clone());
                    let found = kind_of(value);
                    return Err(OfferError::Type { entity: entity(), name, declared, found });
                }
                None if expected.is_optional => {}
                None => {
                    let (name, declared) = (name.clone(), declared.clone());
                    return Err(OfferError::Missing { entity: entity(), name, declared });
                }
            }
        }
        Ok(())
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a dictionary",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(attributes: &[(&str, &str)]) -> OfferedType {
        let pair = |&(name, declared): &(&str, &str)| (name.to_owned(), declared.to_owned());
        OfferedType {
            entity: "notes::Note".to_owned(),
            agent: "host.name".to_owned(),
            id_attribute: "title".to_owned(),
            attributes: attributes.iter().map(pair).collect(),
        }
    }

    fn check(offered: &OfferedType, id: &str, attributes: &str) -> Result<(), String> {
        let attributes = Attributes::parse(attributes).unwrap();
        let checked = offered.check_resource(&id.parse().unwrap(), &attributes);
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn resources_fit_their_declaration_or_the_reason_is_given() {
        let offered = note(&[("title", "string"), ("size", "int?"), ("tags", "string[]")]);
        offered.check().unwrap();
        let id = "notes::Note[a,title=x]";
        check(&offered, id, r#"{"title":"x","size":1,"tags":["a"],"more":{}}"#).unwrap();
        check(&offered, id, r#"{"title":"x","size":null,"tags":[]}"#).unwrap();
        check(&offered, id, r#"{"title":"x","tags":[]}"#).unwrap();
        check(&offered, id, r#"{"title":null,"tags":[],"references":[1]}"#).unwrap();
        for (id, attributes, reason) in [
            ("notes::Note[a,name=x]", "{}", "by \"title\""),
            (id, r#"{"title":"x"}"#, "no attribute \"tags\""),
            (id, r#"{"title":"x","tags":[1]}"#, "is a list; its agent declares string[]"),
            (id, r#"{"title":"x","tags":[],"size":"1"}"#, "is a string"),
            (id, r#"{"title":null,"tags":[],"references":[]}"#, "is null"),
        ] {
            let refused = check(&offered, id, attributes).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn malformed_declarations_are_refused() {
        assert!(note(&[("a", "strin")]).check().unwrap_err().to_string().contains("strin"));
        for entity in ["Note", "notes::", "notes::No te", "notes::\u{1b}"] {
            assert!(OfferedType { entity: entity.to_owned(), ..note(&[]) }.check().is_err());
        }
        assert!(OfferedType { id_attribute: String::new(), ..note(&[]) }.check().is_err());
    }
}
