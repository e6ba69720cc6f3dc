//! Values that may have secrets: readable by code, never in debug output or logs.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A JSON object whose values do not appear in debug output.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RedactedMap(pub Map<String, Value>);

impl RedactedMap {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Text of a field; numbers and booleans as JSON. `None` for a missing or empty one.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::Null => None,
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    /// Number in a field, also one that is written as text.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.0.get(name)? {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// Truth value of a checkbox, also one that is written as text.
    pub fn flag(&self, name: &str) -> bool {
        match self.0.get(name) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) => text == "true",
            _ => false,
        }
    }
}

impl fmt::Debug for RedactedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|name| (name, "…"))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_has_names_and_no_values() {
        let value = serde_json::json!({"secret_key": "hunter2", "region": "eu"});
        let map: RedactedMap = serde_json::from_value(value).unwrap();
        let shown = format!("{map:?}");
        assert!(shown.contains("secret_key") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn fields_are_read_as_forms_write_them() {
        let value = serde_json::json!({"n": "12.5", "on": "true", "empty": "", "port": 22});
        let map: RedactedMap = serde_json::from_value(value).unwrap();
        assert_eq!((map.number("n"), map.flag("on"), map.text("empty")), (Some(12.5), true, None));
        assert_eq!(map.text("port").as_deref(), Some("22"));
    }
}
