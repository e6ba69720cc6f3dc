//! Late-bound values of native handlers: resolved just before a run, redacted in its outcome.
//!
//! A resource with late-bound values has null in their place, `references` that name their sources,
//! and `mutators` that name their destinations. Python handlers resolve them themselves.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use orrery_base::lock::IgnorePoison;
use orrery_model::{Attributes, Outcome, SecretText};
use serde_json::{Map, Value};

use crate::secrets::{SecretError, SecretSource, Secrets};

/// Replacement for a redacted value.
const MASK: &str = "***";

/// Shorter values are redacted only where they are the whole text: as substrings they occur
/// everywhere.
const PARTIAL_REDACTION_MIN: usize = 4;

const NESTING_MAX: usize = 16;

/// Reason why a late-bound value cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("{0}")]
    Secret(#[from] SecretError),
    #[error("late-bound values of type {0} need a Python handler; this resource has a native one")]
    Kind(String),
    #[error("the late-bound value is not an integer")]
    NotANumber,
    #[error("malformed late-bound value: {0}")]
    Malformed(&'static str),
}

/// A resource with its values in place, and their redactor.
#[derive(Debug)]
pub(crate) struct ResolvedResource {
    pub(crate) attributes: Attributes,
    pub(crate) redactor: Redactor,
}

/// Values to redact.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    values: Vec<SecretText>,
    /// Attributes without a secret part: their values may be shown.
    public_attributes: Vec<String>,
}

/// Secrets that a remote agent cannot resolve: those of the server's vault, by name.
#[derive(Debug)]
pub(crate) struct StoredSecrets {
    pub(crate) secrets: BTreeMap<String, SecretText>,
    /// Values to redact, as far as this process knows them.
    pub(crate) redactor: Redactor,
}

/// Returns the vault secrets that a resource refers to. The remote agent resolves all others.
pub(crate) fn stored_secrets(
    attributes: &Attributes,
    secrets: &dyn Secrets,
) -> Result<Option<StoredSecrets>, ResolveError> {
    let Some(ReferenceParts { object, references, mutators }) = split_references(attributes) else {
        return Ok(None);
    };
    let only_stored = StoredSecretsOnly { secrets, found: Mutex::default() };
    let mut resolver =
        Resolver { references: &references, secrets: &only_stored, redactor: Redactor::default() };
    resolver.redactor.public_attributes = object.keys().cloned().collect();
    for mutator in &mutators {
        let (_, steps) = parse_mutator(mutator)?;
        resolver.redactor.mark_secret(&steps);
    }
    for reference in &references {
        if reference["type"] == "std::Secret"
            && let Some(id) = reference["id"].as_str()
        {
            resolver.value(id, 0)?;
        }
    }
    let redactor = resolver.redactor;
    let secrets = only_stored.found.into_inner().ignore_poison();
    Ok(Some(StoredSecrets { secrets, redactor }))
}

/// Resolves vault secrets, records them, and rejects every other source.
struct StoredSecretsOnly<'a> {
    secrets: &'a dyn Secrets,
    found: Mutex<BTreeMap<String, SecretText>>,
}

impl Secrets for StoredSecretsOnly<'_> {
    fn resolve(&self, reference: &SecretSource) -> Result<SecretText, SecretError> {
        let what = match reference {
            SecretSource::Stored(name) => {
                let secret = self.secrets.resolve(reference)?;
                let mut found = self.found.lock().ignore_poison();
                found.insert(name.clone(), secret.clone());
                return Ok(secret);
            }
            SecretSource::Environment(name) => format!("the environment variable {name}"),
            SecretSource::File(path) => path.display().to_string(),
            SecretSource::Command(words) => {
                format!("the command {}", words.first().map_or("", String::as_str))
            }
        };
        Err(SecretError::Elsewhere { what })
    }
}

/// Parts of a resource with late-bound values.
struct ReferenceParts {
    /// The attributes proper.
    object: Map<String, Value>,
    references: Vec<Value>,
    /// Destinations of the values.
    mutators: Vec<Value>,
}

/// Returns `None` without late-bound values.
fn split_references(attributes: &Attributes) -> Option<ReferenceParts> {
    if !attributes.as_str().contains(r#""references":[{"#) {
        return None;
    }
    let mut object = attributes.to_object();
    match (object.shift_remove("references"), object.shift_remove("mutators")) {
        (Some(Value::Array(references)), Some(Value::Array(mutators))) => {
            Some(ReferenceParts { object, references, mutators })
        }
        _ => None,
    }
}

/// Returns the id of a late-bound value and the path of its destination.
fn parse_mutator(mutator: &Value) -> Result<(&str, Vec<Step>), ResolveError> {
    if mutator["type"] != "core::Replace" {
        return Err(ResolveError::Kind(mutator["type"].as_str().unwrap_or_default().to_owned()));
    }
    let id = argument(mutator, "value").and_then(|value| value["id"].as_str());
    let path = argument(mutator, "destination").and_then(|value| value["value"].as_str());
    let (Some(id), Some(path)) = (id, path) else {
        return Err(ResolveError::Malformed("mutator without a value or destination"));
    };
    Ok((id, parse_path(path).ok_or(ResolveError::Malformed("invalid destination path"))?))
}

/// Replaces late-bound values; returns `None` if there are none.
pub(crate) fn resolve(
    attributes: &Attributes,
    secrets: &dyn Secrets,
) -> Result<Option<ResolvedResource>, ResolveError> {
    let Some(ReferenceParts { mut object, references, mutators }) = split_references(attributes)
    else {
        return Ok(None);
    };
    let mut resolver = Resolver { references: &references, secrets, redactor: Redactor::default() };
    resolver.redactor.public_attributes = object.keys().cloned().collect();
    for mutator in &mutators {
        let (id, steps) = parse_mutator(mutator)?;
        let value = resolver.value(id, 0)?;
        resolver.redactor.mark_secret(&steps);
        *value_at_mut(&mut object, &steps)
            .ok_or(ResolveError::Malformed("destination not found"))? = value;
    }
    let redactor = resolver.redactor;
    Ok(Some(ResolvedResource { attributes: Attributes::from_object(object), redactor }))
}

fn argument<'a>(of: &'a Value, name: &str) -> Option<&'a Value> {
    of["args"].as_array()?.iter().find(|argument| argument["name"] == name)
}

struct Resolver<'a> {
    references: &'a [Value],
    secrets: &'a dyn Secrets,
    redactor: Redactor,
}

impl Resolver<'_> {
    fn value(&mut self, id: &str, depth: usize) -> Result<Value, ResolveError> {
        let found = self.references.iter().find(|reference| reference["id"] == id);
        let reference = found.ok_or(ResolveError::Malformed("unknown id"))?;
        if depth > NESTING_MAX {
            return Err(ResolveError::Malformed("circular dependency"));
        }
        let kind = reference["type"].as_str().unwrap_or_default();
        let from = match kind {
            "std::Environment" => SecretSource::Environment(self.text(reference, "name", depth)?),
            "std::Secret" => SecretSource::Stored(self.text(reference, "name", depth)?),
            "std::SecretFile" => {
                SecretSource::File(PathBuf::from(self.text(reference, "path", depth)?))
            }
            "std::SecretCommand" => {
                let words = argument(reference, "command").map(|argument| &argument["value"]);
                let words = words.and_then(Value::as_array).map(|words| {
                    words.iter().map(|word| word.as_str().map(str::to_owned)).collect()
                });
                SecretSource::Command(
                    words.flatten().ok_or(ResolveError::Malformed("invalid command argument"))?,
                )
            }
            "std::IntReference" => {
                let value = self.argument(reference, "value", depth)?;
                let number = match &value {
                    Value::String(text) => text.trim().parse::<i64>().ok(),
                    other => other.as_i64(),
                };
                return Ok(number.ok_or(ResolveError::NotANumber)?.into());
            }
            other => return Err(ResolveError::Kind(other.to_owned())),
        };
        let secret = self.secrets.resolve(&from)?;
        let value = Value::from(secret.expose());
        self.redactor.values.push(secret);
        Ok(value)
    }

    /// Returns an argument, resolved if it is a late-bound value itself.
    fn argument(&mut self, of: &Value, name: &str, depth: usize) -> Result<Value, ResolveError> {
        let argument = argument(of, name).ok_or(ResolveError::Malformed("missing argument"))?;
        match argument["id"].as_str() {
            Some(id) if argument["type"] == "reference" => self.value(id, depth + 1),
            _ => Ok(argument["value"].clone()),
        }
    }

    fn text(&mut self, of: &Value, name: &str, depth: usize) -> Result<String, ResolveError> {
        match self.argument(of, name, depth)? {
            Value::String(text) => Ok(text),
            _ => Err(ResolveError::Malformed("argument is not a string")),
        }
    }
}

/// One step of a path such as `field.'key'[3]`.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Position(usize),
}

fn parse_path(path: &str) -> Option<Vec<Step>> {
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

fn value_at_mut<'o>(object: &'o mut Map<String, Value>, path: &[Step]) -> Option<&'o mut Value> {
    let (Step::Key(field), rest) = path.split_first()? else { return None };
    rest.iter().try_fold(object.get_mut(field)?, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Position(at) => value.get_mut(at),
    })
}

impl Redactor {
    fn mark_secret(&mut self, path: &[Step]) {
        if let Some(Step::Key(field)) = path.first() {
            self.public_attributes.retain(|name| name != field);
        }
    }

    /// Redacts the values in an outcome.
    pub(crate) fn redact(&self, mut outcome: Outcome) -> Outcome {
        for change in &mut outcome.change.attributes {
            // The current value may be an older secret, and a digest reveals a short one.
            if !self.public_attributes.contains(&change.name) && change.name != "purged" {
                change.current = mask(&change.current);
                change.desired = mask(&change.desired);
            }
            self.redact_value(&mut change.current);
            self.redact_value(&mut change.desired);
        }
        for line in &mut outcome.log {
            line.message = self.redact_text(&line.message);
            line.values.values_mut().for_each(|value| self.redact_value(value));
        }
        for fact in &mut outcome.facts {
            fact.value = self.redact_text(&fact.value);
        }
        outcome
    }

    fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.redact_text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(entries) => {
                entries.values_mut().for_each(|item| self.redact_value(item));
            }
            Value::Number(number) => {
                let text = number.to_string();
                if self.values.iter().any(|redactor| redactor.expose() == text) {
                    *value = MASK.into();
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    pub(crate) fn redact_text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in &self.values {
            let value = value.expose();
            if text == value {
                return MASK.to_owned();
            }
            // Verbatim, as a quoted string, and line by line.
            let quoted = Value::from(value).to_string();
            let forms = [value, quoted[1..quoted.len() - 1].trim()];
            for form in forms.into_iter().chain(value.lines()) {
                if form.chars().count() >= PARTIAL_REDACTION_MIN {
                    text = text.replace(form, MASK);
                }
            }
        }
        text
    }
}

/// Masks a value; only its presence remains visible.
fn mask(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        _ => MASK.into(),
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::{AttributeDiff, Change, ChangeKind, LogLevel, LogLine, OutcomeStatus};
    use serde_json::json;

    use super::*;

    struct Fixed;

    impl Secrets for Fixed {
        fn resolve(&self, reference: &SecretSource) -> Result<SecretText, SecretError> {
            match reference {
                SecretSource::Stored(name) => Ok(SecretText::new(format!("value of {name}"))),
                SecretSource::Environment(name) if name == "PORT" => Ok(SecretText::new("8080")),
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
    fn values_replace_their_destinations() {
        let resolved = resolve(&attributes(), &Fixed).unwrap().unwrap();
        let expected = json!({
            "content": "value of db", "owner": "root", "port": 8080,
            "deep": {"it's": [1, "value of db"]},
        });
        assert_eq!(Value::Object(resolved.attributes.to_object()), expected);
        let public_attributes = Attributes::parse(r#"{"content":"x"}"#).unwrap();
        assert!(resolve(&public_attributes, &Fixed).unwrap().is_none());
    }

    #[test]
    fn outcomes_are_redacted() {
        let redactor = resolve(&attributes(), &Fixed).unwrap().unwrap().redactor;
        let change = |name: &str, current: &str, desired: &str| AttributeDiff {
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
        let redacted = redactor.redact(outcome);
        let changes: Vec<_> =
            redacted.change.attributes.iter().map(|change| &change.current).collect();
        assert_eq!(changes, ["***", "***", "nobody"]);
        assert_eq!(redacted.log[0].message, "wrote \"***\" to ***");
        assert_eq!(redacted.log[0].values["port"], "***");
    }

    #[test]
    fn a_remote_agent_gets_the_secrets_of_the_vault() {
        let stored = stored_secrets(&attributes(), &Fixed).unwrap().unwrap();
        let names: Vec<_> = stored.secrets.keys().collect();
        assert_eq!(names, ["db"]);
        assert_eq!(stored.secrets["db"].expose(), "value of db");
        assert_eq!(stored.redactor.public_attributes, ["owner"]);
        assert_eq!(stored.redactor.redact_text("it is value of db"), "it is ***");
        let public_attributes = Attributes::parse(r#"{"content":"x"}"#).unwrap();
        assert!(stored_secrets(&public_attributes, &Fixed).unwrap().is_none());
        // The name of the secret must be known without the remote machine.
        let nested = attributes().as_str().replace(
            r#"{"name":"name","type":"literal","value":"db"}"#,
            r#"{"id":"b","name":"name","type":"reference"}"#,
        );
        let refused = stored_secrets(&Attributes::parse(&nested).unwrap(), &Fixed).unwrap_err();
        assert!(refused.to_string().contains("PORT"), "{refused}");
    }

    #[test]
    fn errors_do_not_contain_values() {
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
