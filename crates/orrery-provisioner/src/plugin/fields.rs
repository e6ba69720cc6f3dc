//! Validation of field values against the manifest of a plug-in.

use serde_json::{Map, Value};

use super::manifest::{FieldFormat, FieldSchema, ParameterGroup, PluginManifest};
use crate::redacted::RedactedMap;

/// A problem with the fields of a plug-in. Never has a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldProblem {
    #[error("{plugin} has no field {field}{}", similar_suffix(.similar.as_deref()))]
    Unknown { plugin: String, field: String, similar: Option<String> },
    #[error("the field {field} of {plugin} is set by administrators only")]
    NotForUsers { plugin: String, field: String },
    #[error("the field {field} of {plugin} has to be {expected}")]
    Form { plugin: String, field: String, expected: String },
    #[error("{plugin} needs {}", alternatives(.missing))]
    Missing {
        plugin: String,
        /// The absent fields of each set that would suffice.
        missing: Vec<Vec<String>>,
    },
}

fn similar_suffix(similar: Option<&str>) -> String {
    similar.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

fn alternatives(missing: &[Vec<String>]) -> String {
    let sets: Vec<String> =
        missing.iter().map(|set| format!("the field {}", set.join(" and the field "))).collect();
    sets.join(", or ")
}

/// Joins problems to one message.
pub fn describe_problems(problems: &[FieldProblem]) -> String {
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// Checks the fields of a provider or of the action of a service, and adds defaults. `user` are
/// values from users of clusters, which count for their own fields and overridable ones.
///
/// # Errors
/// All problems.
pub fn check_fields(
    manifest: &PluginManifest,
    admin: &Map<String, Value>,
    user: &Map<String, Value>,
) -> Result<RedactedMap, Vec<FieldProblem>> {
    let (admin_group, user_group) = (&manifest.parameters.admin, &manifest.parameters.user);
    let mut problems = Vec::new();
    let mut fields = Map::new();
    for (name, value) in admin {
        let schema = admin_group.fields.get(name).or_else(|| user_group.fields.get(name));
        add_field(manifest, name, value, schema, &mut fields, &mut problems);
    }
    for (name, value) in user {
        let of_admin = admin_group.fields.get(name);
        let schema = user_group.fields.get(name).or(of_admin);
        if of_admin.is_some_and(|schema| !schema.is_overridable)
            && !user_group.fields.contains_key(name)
        {
            let (plugin, field) = (manifest.name.clone(), name.clone());
            problems.push(FieldProblem::NotForUsers { plugin, field });
            continue;
        }
        add_field(manifest, name, value, schema, &mut fields, &mut problems);
    }
    for group in [admin_group, user_group] {
        for (name, schema) in &group.fields {
            if let Some(default) = &schema.default
                && !fields.contains_key(name)
            {
                fields.insert(name.clone(), default.clone());
            }
        }
        problems.extend(missing_fields(manifest, group, &fields));
    }
    if problems.is_empty() { Ok(RedactedMap(fields)) } else { Err(problems) }
}

fn add_field(
    manifest: &PluginManifest,
    name: &str,
    value: &Value,
    schema: Option<&FieldSchema>,
    fields: &mut Map<String, Value>,
    problems: &mut Vec<FieldProblem>,
) {
    let plugin = || manifest.name.clone();
    let Some(schema) = schema else {
        let similar = similar_field(manifest, name);
        problems.push(FieldProblem::Unknown { plugin: plugin(), field: name.to_owned(), similar });
        return;
    };
    // An empty input of a form is an absent value.
    if value.is_null() || value == "" {
        return;
    }
    match mismatch(schema, value) {
        None => {
            fields.insert(name.to_owned(), value.clone());
        }
        Some(expected) => {
            problems.push(FieldProblem::Form {
                plugin: plugin(),
                field: name.to_owned(),
                expected,
            });
        }
    }
}

/// Form that the value should have, if it does not.
fn mismatch(schema: &FieldSchema, value: &Value) -> Option<String> {
    let fits = match schema.format {
        FieldFormat::Text | FieldFormat::Password => !value.is_array() && !value.is_object(),
        FieldFormat::Select => {
            let chosen = value.as_str();
            chosen.is_some_and(|chosen| schema.options.iter().any(|option| option == chosen))
        }
        FieldFormat::Checkbox => {
            value.is_boolean() || matches!(value.as_str(), Some("true" | "false"))
        }
        FieldFormat::Number => {
            let text = value.as_str().map(|text| text.trim().parse::<f64>());
            value.is_number() || matches!(text, Some(Ok(number)) if number.is_finite())
        }
        FieldFormat::Json => true,
    };
    (!fits).then(|| match schema.format {
        FieldFormat::Text | FieldFormat::Password | FieldFormat::Json => "a text".to_owned(),
        FieldFormat::Select => format!("one of {}", schema.options.join(", ")),
        FieldFormat::Checkbox => "true or false".to_owned(),
        FieldFormat::Number => "a number".to_owned(),
    })
}

fn missing_fields(
    manifest: &PluginManifest,
    group: &ParameterGroup,
    fields: &Map<String, Value>,
) -> Option<FieldProblem> {
    let absent = |set: &Vec<String>| -> Vec<String> {
        set.iter().filter(|name| !fields.contains_key(*name)).cloned().collect()
    };
    let missing: Vec<Vec<String>> = group.required.iter().map(absent).collect();
    let suffices = missing.is_empty() || missing.iter().any(Vec::is_empty);
    (!suffices).then(|| FieldProblem::Missing { plugin: manifest.name.clone(), missing })
}

/// Name of a field with one or two differing characters.
fn similar_field(manifest: &PluginManifest, name: &str) -> Option<String> {
    let groups = [&manifest.parameters.admin, &manifest.parameters.user];
    let names = groups.into_iter().flat_map(|group| group.fields.keys());
    names
        .map(|known| (edit_distance(known, name), known))
        .filter(|(distance, _)| *distance <= 2)
        .min()
        .map(|(_, known)| known.clone())
}

fn edit_distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugin::PluginKind;

    fn manifest() -> PluginManifest {
        let mut manifest = PluginManifest::new(PluginKind::Provider, "cloud", "Cloud", "A cloud.")
            .field("region", FieldSchema::new("Region", FieldFormat::Text, "").or("eu"))
            .field("size", FieldSchema::new("Size", FieldFormat::Select, "").one_of(&["s", "l"]))
            .field("retries", FieldSchema::new("Retries", FieldFormat::Number, "").overridable())
            .field("token", FieldSchema::new("Token", FieldFormat::Password, "").sensitive())
            .field("user", FieldSchema::new("User", FieldFormat::Text, ""))
            .field("password", FieldSchema::new("Password", FieldFormat::Password, "").sensitive())
            .requires(&["token"])
            .requires(&["user", "password"]);
        let note = FieldSchema::new("Note", FieldFormat::Text, "");
        manifest.parameters.user.fields.insert("note".to_owned(), note);
        manifest
    }

    fn check(admin: Value, user: Value) -> Result<Value, String> {
        let object = |value: Value| value.as_object().cloned().unwrap();
        check_fields(&manifest(), &object(admin), &object(user))
            .map(|fields| Value::Object(fields.0))
            .map_err(|problems| describe_problems(&problems))
    }

    #[test]
    fn defaults_are_added_and_users_override_what_they_may() {
        assert_eq!(
            check(json!({"token": "t", "retries": 1}), json!({"retries": "3", "note": "n"})),
            Ok(json!({"token": "t", "retries": "3", "note": "n", "region": "eu"}))
        );
        assert_eq!(
            check(json!({"token": "t"}), json!({"region": "us"})),
            Err("the field region of cloud is set by administrators only".to_owned())
        );
    }

    #[test]
    fn one_complete_set_of_fields_suffices() {
        assert!(check(json!({"user": "u", "password": "p"}), json!({})).is_ok());
        assert_eq!(
            check(json!({"user": "u", "token": ""}), json!({})),
            Err("cloud needs the field token, or the field password".to_owned())
        );
    }

    #[test]
    fn messages_name_the_field_and_never_the_value() {
        let error = check(
            json!({"tokn": "hunter2", "token": ["hunter2"], "size": "hunter2", "retries": "hunter2"}),
            json!({}),
        )
        .unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
        for part in ["did you mean token?", "one of s, l", "retries of cloud has to be a number"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_manifest_serializes_like_a_plug_in_descriptor() {
        let value = serde_json::to_value(manifest()).unwrap();
        let admin = &value["parameters"]["admin"];
        assert_eq!(admin["required"], json!([["token"], ["user", "password"]]));
        assert_eq!(admin["fields"]["token"]["sensitive"], true);
        assert_eq!(admin["fields"]["size"]["type"], "select");
        assert_eq!(manifest().sensitive_fields(), ["token", "password"]);
    }
}
