//! Unknown values that keep a resource from being deployed.

use orrery_model::{Attributes, VersionNumber};
use serde_json::{Map, Value};

use super::text;

/// Placeholder of an unknown value.
const UNKNOWN: &str = "<<undefined>>";

/// True if a value is or contains an unknown.
fn is_unknown(value: &Value) -> bool {
    match value {
        Value::String(text) => text == UNKNOWN,
        Value::Array(values) => values.iter().any(is_unknown),
        Value::Object(values) => values.values().any(is_unknown),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Names a parameter, or a fact of a resource, that was unknown during a compile.
pub(super) fn describe(name: &str, resource: Option<&str>) -> String {
    match resource {
        Some(resource) => format!("{name} of {resource}"),
        None => name.to_owned(),
    }
}

/// Lists the unknown attributes, and all lookups without a value in the compile of the version.
pub(super) fn explain(
    attributes: &Attributes,
    missing: &[String],
    version: VersionNumber,
) -> String {
    // Stored attributes are always an object.
    let attributes: Map<String, Value> = attributes.read().unwrap_or_default();
    let names = attributes.iter().filter(|(_, value)| is_unknown(value));
    let names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
    let mut text = "it is deployed once all its attributes are known".to_owned();
    if !names.is_empty() {
        text += &format!("; unknown: {}", text::some_of(&names));
    }
    if !missing.is_empty() {
        let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
        let missing = text::some_of(&missing);
        text += &format!("\nthe compile of version {version} had no value for {missing}");
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
        let missing = [describe("size", Some("std::File[a,path=/b]")), describe("season", None)];
        assert_eq!(
            explain(&attributes, &missing, VersionNumber(7)),
            "it is deployed once all its attributes are known; unknown: b, c\n\
             the compile of version 7 had no value for size of std::File[a,path=/b], season"
        );
    }
}
