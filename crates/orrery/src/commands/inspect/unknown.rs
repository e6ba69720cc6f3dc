//! What a resource waits for of which something is not known yet.

use orrery_model::{Attributes, VersionNumber};
use serde_json::{Map, Value};

use super::text;

/// What stands for a value that is not known.
const UNKNOWN: &str = "<<undefined>>";

/// Whether a value is not known, or something within it.
fn is_unknown(value: &Value) -> bool {
    match value {
        Value::String(text) => text == UNKNOWN,
        Value::Array(values) => values.iter().any(is_unknown),
        Value::Object(values) => values.values().any(is_unknown),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// What a compile could not know: a parameter, or a fact of a resource.
pub(super) fn called(name: &str, resource: Option<&str>) -> String {
    match resource {
        Some(resource) => format!("{name} of {resource}"),
        None => name.to_owned(),
    }
}

/// Its attributes that are not known, and all that the compile of the version asked for in vain.
pub(super) fn told(attributes: &Attributes, missing: &[String], version: VersionNumber) -> String {
    // The store keeps what was an object when it came.
    let attributes: Map<String, Value> = attributes.read().unwrap_or_default();
    let names = attributes.iter().filter(|(_, value)| is_unknown(value));
    let names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
    let mut text = "it is deployed when all of its attributes are known".to_owned();
    if !names.is_empty() {
        text += &format!("; not known yet: {}", text::some_of(&names));
    }
    if !missing.is_empty() {
        let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
        let missing = text::some_of(&missing);
        text += &format!("\nthe compile of version {version} could not know {missing}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_found_at_any_depth() {
        let attributes = r#"{"a": 1, "b": "<<undefined>>", "c": [{"d": ["<<undefined>>"]}]}"#;
        let attributes = Attributes::parse(attributes).unwrap();
        let missing = [called("size", Some("std::File[a,path=/b]")), called("season", None)];
        assert_eq!(
            told(&attributes, &missing, VersionNumber(7)),
            "it is deployed when all of its attributes are known; not known yet: b, c\n\
             the compile of version 7 could not know size of std::File[a,path=/b], season"
        );
    }
}
