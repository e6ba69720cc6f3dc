//! References in resources of native handlers: their values are put in place just before a handler runs, and hidden in all that it says.
//!
//! A resource with references has null at their places, `references` that say where the values come from, and `mutators` that say where they
//! go. Handlers in the code of modules do this by themselves.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use orrery_handlers::{Reference, SecretError, Secrets};
use orrery_model::{Attributes, Outcome, SecretText};
use serde_json::{Map, Value};

/// What stands in the place of a value.
const HIDDEN: &str = "***";

/// Values with fewer characters are hidden only where they are the whole text: they occur everywhere.
const SHORT: usize = 4;

const NESTING_MAX: usize = 16;

/// Why a resource cannot be given to its handler.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unresolved {
    #[error("{0}")]
    Secret(#[from] SecretError),
    #[error(
        "references of the type {0} are resolved by the code of a module; this resource's handler is not in code"
    )]
    Kind(String),
    #[error("the value of a reference is no whole number")]
    NotANumber,
    #[error("what the resource says about its references cannot be read: {0}")]
    Damaged(&'static str),
}

/// A resource with all values in place, and what to hide.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) attributes: Attributes,
    pub(crate) hidden: Hidden,
}

/// What must not be told.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    values: Vec<SecretText>,
    /// Attributes whose values may be told: all but those that a secret is a part of.
    plain: Vec<String>,
}

/// What a machine elsewhere cannot know of a resource's references: the secrets of the server's store, by name.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) secrets: BTreeMap<String, SecretText>,
    /// All that must not be told, as far as it is known here.
    pub(crate) hidden: Hidden,
}

/// The secrets of the store that a resource refers to. What else it refers to is resolved where it is handled.
pub(crate) fn stored_secrets(
    attributes: &Attributes,
    secrets: &dyn Secrets,
) -> Result<Option<Stored>, Unresolved> {
    let Some(Parts { object, references, mutators }) = parts(attributes) else { return Ok(None) };
    let only_stored = OnlyStored { secrets, found: Mutex::default() };
    let mut resolver =
        Resolver { references: &references, secrets: &only_stored, hidden: Hidden::default() };
    resolver.hidden.plain = object.keys().cloned().collect();
    for mutator in &mutators {
        let (_, steps) = replacement(mutator)?;
        resolver.hidden.is_no_longer_plain(&steps);
    }
    for reference in &references {
        if reference["type"] == "std::Secret"
            && let Some(id) = reference["id"].as_str()
        {
            resolver.value(id, 0)?;
        }
    }
    let hidden = resolver.hidden;
    let secrets = only_stored.found.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Some(Stored { secrets, hidden }))
}

/// Finds what the server keeps, remembers it, and refuses everything else.
struct OnlyStored<'a> {
    secrets: &'a dyn Secrets,
    found: Mutex<BTreeMap<String, SecretText>>,
}

impl Secrets for OnlyStored<'_> {
    fn resolve(&self, reference: &Reference) -> Result<SecretText, SecretError> {
        let what = match reference {
            Reference::Stored(name) => {
                let secret = self.secrets.resolve(reference)?;
                let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
                found.insert(name.clone(), secret.clone());
                return Ok(secret);
            }
            Reference::Environment(name) => format!("the environment variable {name}"),
            Reference::File(path) => path.display().to_string(),
            Reference::Command(words) => {
                format!("the command {}", words.first().map_or("", String::as_str))
            }
        };
        Err(SecretError::Elsewhere { what })
    }
}

/// A resource that has references.
struct Parts {
    /// The attributes proper.
    object: Map<String, Value>,
    references: Vec<Value>,
    /// What says where the values go.
    mutators: Vec<Value>,
}

/// `None` if there are no references.
fn parts(attributes: &Attributes) -> Option<Parts> {
    if !attributes.as_str().contains(r#""references":[{"#) {
        return None;
    }
    let mut object = attributes.to_object();
    match (object.shift_remove("references"), object.shift_remove("mutators")) {
        (Some(Value::Array(references)), Some(Value::Array(mutators))) => {
            Some(Parts { object, references, mutators })
        }
        _ => None,
    }
}

/// The id of a reference, and the place where its value goes.
fn replacement(mutator: &Value) -> Result<(&str, Vec<Step>), Unresolved> {
    if mutator["type"] != "core::Replace" {
        return Err(Unresolved::Kind(mutator["type"].as_str().unwrap_or_default().to_owned()));
    }
    let id = argument(mutator, "value").and_then(|value| value["id"].as_str());
    let path = argument(mutator, "destination").and_then(|value| value["value"].as_str());
    let (Some(id), Some(path)) = (id, path) else {
        return Err(Unresolved::Damaged("a mutator without a reference or a place"));
    };
    Ok((id, steps(path).ok_or(Unresolved::Damaged("a place"))?))
}

/// Puts values in the places of references; `None` if there are none.
pub(crate) fn resolve(
    attributes: &Attributes,
    secrets: &dyn Secrets,
) -> Result<Option<Resolved>, Unresolved> {
    let Some(Parts { mut object, references, mutators }) = parts(attributes) else {
        return Ok(None);
    };
    let mut resolver = Resolver { references: &references, secrets, hidden: Hidden::default() };
    resolver.hidden.plain = object.keys().cloned().collect();
    for mutator in &mutators {
        let (id, steps) = replacement(mutator)?;
        let value = resolver.value(id, 0)?;
        resolver.hidden.is_no_longer_plain(&steps);
        *place(&mut object, &steps).ok_or(Unresolved::Damaged("a place that is not there"))? =
            value;
    }
    let hidden = resolver.hidden;
    Ok(Some(Resolved { attributes: Attributes::from_object(object), hidden }))
}

fn argument<'a>(of: &'a Value, name: &str) -> Option<&'a Value> {
    of["args"].as_array()?.iter().find(|argument| argument["name"] == name)
}

struct Resolver<'a> {
    references: &'a [Value],
    secrets: &'a dyn Secrets,
    hidden: Hidden,
}

impl Resolver<'_> {
    fn value(&mut self, id: &str, depth: usize) -> Result<Value, Unresolved> {
        let found = self.references.iter().find(|reference| reference["id"] == id);
        let reference = found.ok_or(Unresolved::Damaged("a reference that is not there"))?;
        if depth > NESTING_MAX {
            return Err(Unresolved::Damaged("references that need each other"));
        }
        let kind = reference["type"].as_str().unwrap_or_default();
        let from = match kind {
            "std::Environment" => Reference::Environment(self.text(reference, "name", depth)?),
            "std::Secret" => Reference::Stored(self.text(reference, "name", depth)?),
            "std::SecretFile" => {
                Reference::File(PathBuf::from(self.text(reference, "path", depth)?))
            }
            "std::SecretCommand" => {
                let words = argument(reference, "command").map(|argument| &argument["value"]);
                let words = words.and_then(Value::as_array).map(|words| {
                    words.iter().map(|word| word.as_str().map(str::to_owned)).collect()
                });
                Reference::Command(words.flatten().ok_or(Unresolved::Damaged("a command"))?)
            }
            "std::IntReference" => {
                let value = self.argument(reference, "value", depth)?;
                let number = match &value {
                    Value::String(text) => text.trim().parse::<i64>().ok(),
                    other => other.as_i64(),
                };
                return Ok(number.ok_or(Unresolved::NotANumber)?.into());
            }
            other => return Err(Unresolved::Kind(other.to_owned())),
        };
        let secret = self.secrets.resolve(&from)?;
        let value = Value::from(secret.expose());
        self.hidden.values.push(secret);
        Ok(value)
    }

    /// An argument, or the value of the reference that it is.
    fn argument(&mut self, of: &Value, name: &str, depth: usize) -> Result<Value, Unresolved> {
        let argument = argument(of, name).ok_or(Unresolved::Damaged("an argument"))?;
        match argument["id"].as_str() {
            Some(id) if argument["type"] == "reference" => self.value(id, depth + 1),
            _ => Ok(argument["value"].clone()),
        }
    }

    fn text(&mut self, of: &Value, name: &str, depth: usize) -> Result<String, Unresolved> {
        match self.argument(of, name, depth)? {
            Value::String(text) => Ok(text),
            _ => Err(Unresolved::Damaged("an argument that is no text")),
        }
    }
}

/// One step of a path such as `field.'key'[3]`.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Position(usize),
}

fn steps(path: &str) -> Option<Vec<Step>> {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (field, mut rest) = path.split_at(end);
    let mut steps = vec![Step::Key(field.to_owned())];
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (digits, after) = inner.split_once(']')?;
            steps.push(Step::Position(digits.parse().ok()?));
            rest = after;
            continue;
        }
        let inner = rest.strip_prefix(".'")?;
        let mut key = String::new();
        let mut characters = inner.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '\'') => break at,
                (_, '\\') => key.push(characters.next()?.1),
                (_, character) => key.push(character),
            }
        };
        steps.push(Step::Key(key));
        rest = &inner[end + 1..];
    }
    Some(steps)
}

fn place<'o>(object: &'o mut Map<String, Value>, path: &[Step]) -> Option<&'o mut Value> {
    let (Step::Key(field), rest) = path.split_first()? else { return None };
    rest.iter().try_fold(object.get_mut(field)?, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Position(at) => value.get_mut(at),
    })
}

impl Hidden {
    fn is_no_longer_plain(&mut self, path: &[Step]) {
        if let Some(Step::Key(field)) = path.first() {
            self.plain.retain(|name| name != field);
        }
    }

    /// Takes the values out of what a handler said.
    pub(crate) fn hide(&self, mut outcome: Outcome) -> Outcome {
        for change in &mut outcome.change.attributes {
            // What was there before may be an older secret, and a digest of a short one tells it.
            if !self.plain.contains(&change.name) && change.name != "purged" {
                change.current = concealed(&change.current);
                change.desired = concealed(&change.desired);
            }
            self.hide_value(&mut change.current);
            self.hide_value(&mut change.desired);
        }
        for line in &mut outcome.log {
            line.message = self.hide_text(&line.message);
            line.values.values_mut().for_each(|value| self.hide_value(value));
        }
        for fact in &mut outcome.facts {
            fact.value = self.hide_text(&fact.value);
        }
        outcome
    }

    fn hide_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.hide_text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_value(item)),
            Value::Object(entries) => {
                entries.values_mut().for_each(|item| self.hide_value(item));
            }
            Value::Number(number) => {
                let text = number.to_string();
                if self.values.iter().any(|hidden| hidden.expose() == text) {
                    *value = HIDDEN.into();
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    pub(crate) fn hide_text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in &self.values {
            let value = value.expose();
            if text == value {
                return HIDDEN.to_owned();
            }
            // As it is, as it is quoted, and line by line.
            let quoted = Value::from(value).to_string();
            let forms = [value, quoted[1..quoted.len() - 1].trim()];
            for form in forms.into_iter().chain(value.lines()) {
                if form.chars().count() >= SHORT {
                    text = text.replace(form, HIDDEN);
                }
            }
        }
        text
    }
}

/// That there is a value, and nothing more.
fn concealed(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        _ => HIDDEN.into(),
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::{AttributeChange, Change, ChangeKind, LogLevel, LogLine, OutcomeStatus};
    use serde_json::json;

    use super::*;

    struct Fixed;

    impl Secrets for Fixed {
        fn resolve(&self, reference: &Reference) -> Result<SecretText, SecretError> {
            match reference {
                Reference::Stored(name) => Ok(SecretText::new(format!("value of {name}"))),
                Reference::Environment(name) if name == "PORT" => Ok(SecretText::new("8080")),
                other => Err(SecretError::NotText { what: format!("{other:?}") }),
            }
        }
    }

    fn reference(id: &str, kind: &str, argument: Value) -> Value {
        json!({"args": [argument], "id": id, "type": kind})
    }

    fn replace(id: &str, destination: &str) -> Value {
        json!({"args": [
            {"id": "r", "name": "resource", "type": "resource"},
            {"id": id, "name": "value", "type": "reference"},
            {"name": "destination", "type": "literal", "value": destination},
        ], "type": "core::Replace"})
    }

    fn attributes() -> Attributes {
        let object = json!({
            "content": null, "owner": "root", "port": null, "deep": {"it's": [1, null]},
            "references": [
                reference("a", "std::Secret", json!({"name": "name", "type": "literal", "value": "db"})),
                reference("b", "std::Environment", json!({"name": "name", "type": "literal", "value": "PORT"})),
                reference("c", "std::IntReference", json!({"id": "b", "name": "value", "type": "reference"})),
            ],
            "mutators": [replace("a", "content"), replace("c", "port"), replace("a", "deep.'it\\'s'[1]")],
        });
        Attributes::from_object(object.as_object().unwrap().clone())
    }

    #[test]
    fn values_are_put_where_they_belong() {
        let resolved = resolve(&attributes(), &Fixed).unwrap().unwrap();
        let expected = json!({
            "content": "value of db", "owner": "root", "port": 8080,
            "deep": {"it's": [1, "value of db"]},
        });
        assert_eq!(Value::Object(resolved.attributes.to_object()), expected);
        let plain = Attributes::parse(r#"{"content":"x"}"#).unwrap();
        assert!(resolve(&plain, &Fixed).unwrap().is_none());
    }

    #[test]
    fn what_a_handler_says_is_cleaned() {
        let hidden = resolve(&attributes(), &Fixed).unwrap().unwrap().hidden;
        let change = |name: &str, current: &str, desired: &str| AttributeChange {
            name: name.to_owned(),
            current: current.into(),
            desired: desired.into(),
        };
        let outcome = Outcome {
            status: OutcomeStatus::Deployed,
            change: Change {
                kind: ChangeKind::Updated,
                attributes: vec![
                    change("content", "an older secret", "value of db"),
                    change("hash", "1234", "5678"),
                    change("owner", "nobody", "root"),
                ],
            },
            facts: Vec::new(),
            log: vec![LogLine {
                at: orrery_model::Timestamp(0),
                level: LogLevel::Info,
                message: "wrote \"value of db\" to 8080".to_owned(),
                values: json!({"port": 8080}).as_object().unwrap().clone(),
            }],
        };
        let told = hidden.hide(outcome);
        let changes: Vec<_> = told.change.attributes.iter().map(|change| &change.current).collect();
        assert_eq!(changes, ["***", "***", "nobody"]);
        assert_eq!(told.log[0].message, "wrote \"***\" to ***");
        assert_eq!(told.log[0].values["port"], "***");
    }

    #[test]
    fn a_machine_elsewhere_is_given_what_only_the_server_knows() {
        let stored = stored_secrets(&attributes(), &Fixed).unwrap().unwrap();
        let names: Vec<_> = stored.secrets.keys().collect();
        assert_eq!(names, ["db"]);
        assert_eq!(stored.secrets["db"].expose(), "value of db");
        assert_eq!(stored.hidden.plain, ["owner"]);
        assert_eq!(stored.hidden.hide_text("it is value of db"), "it is ***");
        let plain = Attributes::parse(r#"{"content":"x"}"#).unwrap();
        assert!(stored_secrets(&plain, &Fixed).unwrap().is_none());
        // Which secret it is must be known without asking that machine.
        let nested = attributes().as_str().replace(
            r#"{"name":"name","type":"literal","value":"db"}"#,
            r#"{"id":"b","name":"name","type":"reference"}"#,
        );
        let refused = stored_secrets(&Attributes::parse(&nested).unwrap(), &Fixed).unwrap_err();
        assert!(refused.to_string().contains("PORT"), "{refused}");
    }

    #[test]
    fn failures_are_told_without_values() {
        let with = |kind: &str| {
            let text = attributes().as_str().replace("std::Secret", kind);
            resolve(&Attributes::parse(&text).unwrap(), &Fixed).unwrap_err().to_string()
        };
        assert!(with("corp::Vault").contains("corp::Vault"));
        assert!(with("std::IntReference").contains("argument"));
        for path in ["", "content[0]", "nothing", "deep.'x'", "deep.it", "deep.'it"] {
            let text = attributes()
                .as_str()
                .replace(r#""value":"content""#, &format!(r#""value":"{path}""#));
            assert!(resolve(&Attributes::parse(&text).unwrap(), &Fixed).is_err(), "{path}");
        }
    }
}
