//! Validates JSON against a JSON Schema (2020-12), for the keywords that the project's schemas use.
//!
//! An unknown keyword is an error, so a schema cannot demand what this validator ignores. The
//! *exact* validation also rejects members that the schema does not describe, and notes those that
//! it saw: a test can demand that its examples use every member.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

/// Keywords without effect on the result.
const ANNOTATIONS: [&str; 6] =
    ["$schema", "$id", "title", "description", "default", "contentEncoding"];
/// Keywords that are evaluated.
const KEYWORDS: [&str; 16] = [
    "$defs",
    "$ref",
    "additionalProperties",
    "const",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minLength",
    "minimum",
    "oneOf",
    "properties",
    "required",
];

/// A schema document with named definitions.
#[derive(Debug)]
pub struct JsonSchema {
    root: Value,
}

/// Reason why a value or a schema is invalid, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// JSON pointer into the value, or into the schema.
    pub place: String,
    pub reason: String,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.place.is_empty() { "/" } else { &self.place };
        write!(f, "at {place}: {}", self.reason)
    }
}

impl std::error::Error for SchemaError {}

fn error(place: &str, reason: impl Into<String>) -> Result<(), SchemaError> {
    Err(SchemaError { place: place.to_owned(), reason: reason.into() })
}

impl JsonSchema {
    /// Parses a schema and checks that this validator understands all of it.
    ///
    /// # Errors
    /// If it is malformed, has an unknown keyword, or refers to an unknown definition.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        let root = serde_json::from_str(text)
            .map_err(|error| SchemaError { place: String::new(), reason: error.to_string() })?;
        let schema = JsonSchema { root };
        schema.check_schema(&schema.root, "")?;
        Ok(schema)
    }

    /// Names of the definitions.
    pub fn definitions(&self) -> impl Iterator<Item = &str> {
        let defined = self.root["$defs"].as_object();
        defined.into_iter().flat_map(Map::keys).map(String::as_str)
    }

    /// Validates a value against a definition. Undescribed members are valid.
    ///
    /// # Errors
    /// If the value does not fit.
    pub fn validate(&self, definition: &str, value: &Value) -> Result<(), SchemaError> {
        Validation { schema: self, is_exact: false, seen: BTreeSet::new() }
            .definition(definition, value)
    }

    /// Validates a value in which every member must be described, and adds the members that it uses
    /// to `seen`.
    ///
    /// # Errors
    /// If the value does not fit.
    pub fn validate_exactly(
        &self,
        definition: &str,
        value: &Value,
        seen: &mut BTreeSet<String>,
    ) -> Result<(), SchemaError> {
        let mut validation = Validation { schema: self, is_exact: true, seen: BTreeSet::new() };
        validation.definition(definition, value)?;
        seen.append(&mut validation.seen);
        Ok(())
    }

    /// All described members, as `validate_exactly` notes them.
    pub fn members(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        collect_members(&self.root, "", &mut found);
        found
    }

    fn check_schema(&self, schema: &Value, place: &str) -> Result<(), SchemaError> {
        let Some(keywords) = schema.as_object() else {
            return if schema.is_boolean() { Ok(()) } else { error(place, "not a schema") };
        };
        for (keyword, value) in keywords {
            let inner = format!("{place}/{keyword}");
            match keyword.as_str() {
                "$ref" => drop(self.resolve(value, &inner)?),
                "$defs" | "properties" => {
                    for (name, schema) in value.as_object().into_iter().flatten() {
                        self.check_schema(schema, &format!("{inner}/{name}"))?;
                    }
                }
                "additionalProperties" | "items" => self.check_schema(value, &inner)?,
                "oneOf" => {
                    for (at, schema) in value.as_array().into_iter().flatten().enumerate() {
                        self.check_schema(schema, &format!("{inner}/{at}"))?;
                    }
                }
                "format" if value != "uuid" => return error(&inner, "unknown format"),
                "type" => {}
                known if KEYWORDS.contains(&known) || ANNOTATIONS.contains(&known) => {}
                _ => return error(&inner, "unknown keyword"),
            }
        }
        Ok(())
    }

    fn resolve(&self, reference: &Value, place: &str) -> Result<(&Value, String), SchemaError> {
        let name = reference.as_str().and_then(|text| text.strip_prefix("#/$defs/"));
        let found = name.and_then(|name| Some((self.root["$defs"].get(name)?, name)));
        found.map(|(schema, name)| (schema, format!("/$defs/{name}"))).ok_or_else(|| SchemaError {
            place: place.to_owned(),
            reason: format!("unknown definition {reference}"),
        })
    }
}

fn collect_members(schema: &Value, place: &str, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(keywords) => {
            for (keyword, inner) in keywords {
                let inner_place = format!("{place}/{keyword}");
                if keyword == "properties" {
                    let names = inner.as_object().into_iter().flat_map(Map::keys);
                    found.extend(names.map(|name| format!("{inner_place}/{name}")));
                }
                collect_members(inner, &inner_place, found);
            }
        }
        Value::Array(schemas) => {
            for (at, inner) in schemas.iter().enumerate() {
                collect_members(inner, &format!("{place}/{at}"), found);
            }
        }
        _ => {}
    }
}

struct Validation<'a> {
    schema: &'a JsonSchema,
    is_exact: bool,
    seen: BTreeSet<String>,
}

impl Validation<'_> {
    fn definition(&mut self, name: &str, value: &Value) -> Result<(), SchemaError> {
        let schema = self.schema;
        let Some(definition) = schema.root["$defs"].get(name) else {
            return error("", format!("the schema does not define {name:?}"));
        };
        self.check(definition, &format!("/$defs/{name}"), value, "")
    }

    /// Checks a value against a schema; `origin` is the schema's place, `place` that of the value.
    fn check(
        &mut self,
        schema: &Value,
        origin: &str,
        value: &Value,
        place: &str,
    ) -> Result<(), SchemaError> {
        let Some(keywords) = schema.as_object() else {
            return if schema == &Value::Bool(false) {
                error(place, "not allowed")
            } else {
                Ok(())
            };
        };
        if let Some(reference) = keywords.get("$ref") {
            let (inner, origin) = self.schema.resolve(reference, origin)?;
            // The borrow of the schema outlives this validation step.
            let inner = inner.clone();
            self.check(&inner, &origin, value, place)?;
        }
        if let Some(types) = keywords.get("type")
            && !has_type(value, types)
        {
            return error(place, format!("expected {types}, found {value}"));
        }
        if let Some(expected) = keywords.get("const")
            && expected != value
        {
            return error(place, format!("expected {expected}, found {value}"));
        }
        if let Some(Value::Array(allowed)) = keywords.get("enum")
            && !allowed.contains(value)
        {
            return error(place, format!("expected one of {allowed:?}, found {value}"));
        }
        check_bounds(keywords, value, place)?;
        if keywords.get("format").is_some() && !value.as_str().is_some_and(is_uuid) {
            return error(place, format!("expected a UUID, found {value}"));
        }
        if let (Some(schemas), Value::Array(items)) = (keywords.get("items"), value) {
            for (at, item) in items.iter().enumerate() {
                self.check(schemas, &format!("{origin}/items"), item, &format!("{place}/{at}"))?;
            }
        }
        if let Value::Object(members) = value {
            self.check_members(keywords, origin, members, place)?;
        }
        match keywords.get("oneOf") {
            Some(Value::Array(branches)) => self.check_branches(branches, origin, value, place),
            _ => Ok(()),
        }
    }

    fn check_members(
        &mut self,
        keywords: &Map<String, Value>,
        origin: &str,
        members: &Map<String, Value>,
        place: &str,
    ) -> Result<(), SchemaError> {
        for name in keywords.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !name.as_str().is_some_and(|name| members.contains_key(name)) {
                return error(place, format!("the member {name} is missing"));
            }
        }
        let described = keywords.get("properties").and_then(Value::as_object);
        let others = keywords.get("additionalProperties");
        for (name, value) in members {
            let inner = format!("{place}/{name}");
            if let Some(schema) = described.and_then(|described| described.get(name)) {
                let origin = format!("{origin}/properties/{name}");
                self.check(schema, &origin, value, &inner)?;
                self.seen.insert(origin);
            } else if let Some(schema) = others {
                self.check(schema, &format!("{origin}/additionalProperties"), value, &inner)?;
            } else if self.is_exact && described.is_some() {
                return error(&inner, "the schema does not describe this member");
            }
        }
        Ok(())
    }

    fn check_branches(
        &mut self,
        branches: &[Value],
        origin: &str,
        value: &Value,
        place: &str,
    ) -> Result<(), SchemaError> {
        let mut reasons = Vec::new();
        let mut fits = 0;
        for (at, branch) in branches.iter().enumerate() {
            let mut inner =
                Validation { schema: self.schema, is_exact: self.is_exact, seen: BTreeSet::new() };
            match inner.check(branch, &format!("{origin}/oneOf/{at}"), value, place) {
                Ok(()) => {
                    fits += 1;
                    self.seen.append(&mut inner.seen);
                }
                Err(error) => reasons.push(error.to_string()),
            }
        }
        match fits {
            1 => Ok(()),
            0 => error(place, format!("fits no alternative: {}", reasons.join("; "))),
            _ => error(place, format!("fits {fits} alternatives")),
        }
    }
}

fn check_bounds(
    keywords: &Map<String, Value>,
    value: &Value,
    place: &str,
) -> Result<(), SchemaError> {
    let (length, count) = (value.as_str().map(|text| text.chars().count()), value.as_array());
    let sizes = [
        ("minLength", length, true),
        ("maxLength", length, false),
        ("maxItems", count.map(Vec::len), false),
        ("maxProperties", value.as_object().map(Map::len), false),
    ];
    for (keyword, size, is_minimum) in sizes {
        let limit = keywords.get(keyword).and_then(Value::as_u64);
        if let (Some(limit), Some(size)) = (limit, size) {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            if if is_minimum { size < limit } else { size > limit } {
                return error(place, format!("{keyword} is {limit}, found {size}"));
            }
        }
    }
    if let Some(number) = value.as_i64() {
        let limit = |keyword: &str| keywords.get(keyword).and_then(Value::as_i64);
        if limit("minimum").is_some_and(|least| number < least)
            || limit("maximum").is_some_and(|most| number > most)
        {
            return error(place, format!("{number} is out of range"));
        }
    }
    Ok(())
}

fn has_type(value: &Value, types: &Value) -> bool {
    let fits = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    };
    match types {
        Value::Array(types) => types.iter().any(fits),
        one => fits(one),
    }
}

fn is_uuid(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> JsonSchema {
        let text = json!({"$defs": {
            "id": {"type": "string", "format": "uuid"},
            "note": {"type": "object", "required": ["id"], "properties": {
                "id": {"$ref": "#/$defs/id"},
                "size": {"type": ["integer", "null"], "minimum": 0},
                "labels": {"type": "object", "additionalProperties": {"enum": ["a", "b"]}},
                "lines": {"type": "array", "items": {"type": "string", "maxLength": 3}},
            }},
            "either": {"oneOf": [{"const": "ping"}, {"$ref": "#/$defs/note"}]},
        }});
        JsonSchema::parse(&text.to_string()).unwrap()
    }

    #[test]
    fn values_are_accepted_or_refused_with_their_place() {
        let id = "00000000-0000-0000-0000-000000000007";
        let schema = schema();
        schema.validate("either", &json!("ping")).unwrap();
        let whole = json!({"id": id, "size": null, "labels": {"x": "a"}, "lines": ["abc"]});
        schema.validate("either", &whole).unwrap();
        schema.validate("note", &json!({"id": id, "more": 1})).unwrap();
        let refused = [
            (json!({"size": 1}), "/", "is missing"),
            (json!({"id": "c1"}), "/id", "UUID"),
            (json!({"id": id, "size": "1"}), "/size", "expected"),
            (json!({"id": id, "size": -1}), "/size", "out of range"),
            (json!({"id": id, "labels": {"x": "c"}}), "/labels/x", "expected one of"),
            (json!({"id": id, "lines": ["abcd"]}), "/lines/0", "maxLength"),
        ];
        for (value, place, reason) in refused {
            let error = schema.validate("note", &value).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("at {place}:")) && error.contains(reason),
                "{error}"
            );
        }
        assert!(schema.validate("either", &json!("pong")).is_err());
    }

    #[test]
    fn exact_validation_demands_a_description_of_every_member_and_notes_it() {
        let schema = schema();
        let id = "00000000-0000-0000-0000-000000000007";
        let mut seen = BTreeSet::new();
        let error = schema.validate_exactly("note", &json!({"id": id, "more": 1}), &mut seen);
        assert!(error.unwrap_err().to_string().contains("does not describe"));
        schema.validate_exactly("either", &json!({"id": id, "lines": []}), &mut seen).unwrap();
        let missing: Vec<String> = schema.members().difference(&seen).cloned().collect();
        assert_eq!(missing, ["/$defs/note/properties/labels", "/$defs/note/properties/size"]);
    }

    #[test]
    fn what_the_validator_does_not_know_is_an_error() {
        let unknown = JsonSchema::parse(r#"{"$defs": {"a": {"pattern": "x"}}}"#).unwrap_err();
        assert_eq!(unknown.to_string(), "at /$defs/a/pattern: unknown keyword");
        assert!(JsonSchema::parse(r##"{"$defs": {"a": {"$ref": "#/$defs/b"}}}"##).is_err());
    }
}
