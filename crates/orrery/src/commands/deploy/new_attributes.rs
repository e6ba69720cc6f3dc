//! Attributes of a resource that is to be created, folded where they are long.

use serde_json::{Map, Value};

use crate::commands::inspect::text;
use crate::style;

/// Maximum number of lines of a text without `--all`.
const LINES_MAX: usize = 5;

/// Attributes that control the handler instead of describing the created object.
const HANDLING: [&str; 11] = [
    "content_seperator",
    "managed",
    "mutators",
    "provides",
    "purge_on_delete",
    "receive_events",
    "references",
    "report_only",
    "requires",
    "send_event",
    "version",
];

/// Note on a command that runs at every deploy.
pub(in crate::commands) const RUNS_ALWAYS: &str =
    "runs at every deploy: it has no `creates`, `unless`, `onlyif` or `once`";

/// Attributes with late-bound values.
fn referenced(attributes: &Map<String, Value>) -> Vec<&str> {
    let mutators = attributes.get("mutators").and_then(Value::as_array);
    let arguments = mutators.into_iter().flatten().filter_map(|mutator| mutator["args"].as_array());
    let destinations = arguments.flatten().filter(|argument| argument["name"] == "destination");
    let paths = destinations.filter_map(|argument| argument["value"].as_str());
    paths.map(|path| path.split(['.', '[']).next().unwrap_or(path)).collect()
}

/// Lines of all attributes with a value. `identity` is the attribute in the id.
pub(super) fn lines(attributes: &Map<String, Value>, identity: &str, all: bool) -> Vec<String> {
    let referenced = referenced(attributes);
    let is_shown = |(name, value): &(&String, &Value)| {
        let is_default = match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty(),
            Value::Bool(is_set) => *name == "purged" && !is_set,
            // Empty values are left to the machine, such as an owner; an empty file is shown.
            Value::String(text) => text.is_empty() && *name != "content",
            Value::Number(_) => false,
        };
        let is_secret = referenced.contains(&name.as_str());
        (!is_default || is_secret) && *name != identity && !HANDLING.contains(&name.as_str())
    };
    let mut lines = Vec::new();
    for (name, value) in attributes.iter().filter(is_shown) {
        let is_secret = referenced.contains(&name.as_str());
        let name = style::sanitize(name);
        if is_secret {
            lines.push(format!("{name}: ***"));
            continue;
        }
        match value.as_str() {
            Some(text) if text.trim_end_matches('\n').contains('\n') => {
                lines.push(format!("{name}:"));
                lines.extend(text_lines(text, all));
            }
            _ if all => {
                lines.push(format!("{name}: {}", style::sanitize(&value.to_string())));
            }
            _ => lines.push(format!("{name}: {}", text::value(value))),
        }
    }
    lines
}

fn text_lines(text: &str, all: bool) -> Vec<String> {
    let count = text.lines().count();
    // Folding a single line saves nothing.
    let shown = if all || count <= LINES_MAX + 1 { count } else { LINES_MAX };
    let line = |line: &str| style::added(&format!("  + {}", style::sanitize(&text::short(line))));
    let mut lines: Vec<String> = text.lines().take(shown).map(line).collect();
    if count > shown {
        lines.push(format!("  … {}", style::count(count - shown, "more line")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(attributes: Value, all: bool) -> Vec<String> {
        let Value::Object(attributes) = attributes else { return Vec::new() };
        let strip = |line: String| anstream::adapter::strip_str(&line).to_string();
        lines(&attributes, "path", all).into_iter().map(strip).collect()
    }

    #[test]
    fn short_attributes_stand_in_a_line_and_long_ones_are_folded() {
        let long = "x".repeat(2_000);
        let text: String = (1..=45).map(|number| format!("line {number}\n")).collect();
        let given = json!({
            "content": text, "mode": 644, "owner": "ada", "path": "/etc/motd", "purged": false,
            "send_event": true, "group": null, "note": long, "prefix_content": [],
        });
        let shown = plain(given.clone(), false);
        assert_eq!(
            shown[..7],
            [
                "content:",
                "  + line 1",
                "  + line 2",
                "  + line 3",
                "  + line 4",
                "  + line 5",
                "  … 40 more lines",
            ]
        );
        assert_eq!(shown[7], "mode: 644");
        assert_eq!(shown[8], "owner: \"ada\"");
        assert!(shown[9].ends_with("x… (2,002 characters)"), "{}", shown[9]);
        assert_eq!(shown.len(), 10);
        assert_eq!(plain(given, true).len(), 1 + 45 + 3);
    }

    #[test]
    fn late_bound_values_are_redacted() {
        let given = json!({
            "content": null,
            "mutators": [{"type": "core::Replace", "args": [
                {"name": "value", "type": "reference", "id": "1"},
                {"name": "destination", "type": "literal", "value": "content"},
            ]}],
            "references": [{"id": "1", "type": "std::Secret"}],
        });
        assert_eq!(plain(given, false), ["content: ***"]);
    }
}
