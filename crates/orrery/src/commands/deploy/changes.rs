//! Changes of attributes as people read them: short values side by side, long texts as a diff.

use orrery_model::AttributeChange;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::style;

/// Longer diffs are cut; the JSON form has all of it.
const DIFF_LINES_MAX: usize = 40;
const CONTEXT_LINES: usize = 2;
/// Values that together fit on a line are shown on one.
const SHORT_MAX: usize = 80;

/// The lines that show one changed attribute.
pub(in crate::commands) fn lines(change: &AttributeChange) -> Vec<String> {
    let AttributeChange { name, current, desired } = change;
    if let (Value::String(current), Value::String(desired)) = (current, desired)
        && (current.contains('\n')
            || desired.contains('\n')
            || current.len() + desired.len() > SHORT_MAX)
    {
        let mut lines = vec![format!("{name}:")];
        lines.extend(diff(current, desired).into_iter().map(|line| format!("  {line}")));
        return lines;
    }
    let (current, desired) = (shown(current), shown(desired));
    vec![format!("{name}: {} → {}", style::removed(&current), style::added(&desired))]
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => style::harmless(&format!("{text:?}")),
        other => style::harmless(&other.to_string()),
    }
}

/// The lines that differ, with some around them.
fn diff(current: &str, desired: &str) -> Vec<String> {
    let diff = TextDiff::from_lines(current, desired);
    let mut lines = Vec::new();
    for (at, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if at > 0 {
            lines.push("…".to_owned());
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let text = style::harmless(change.value().trim_end_matches('\n'));
            lines.push(match change.tag() {
                ChangeTag::Equal => format!("  {text}"),
                ChangeTag::Delete => style::removed(&format!("- {text}")),
                ChangeTag::Insert => style::added(&format!("+ {text}")),
            });
        }
    }
    if lines.len() > DIFF_LINES_MAX {
        let more = style::count(lines.len() - DIFF_LINES_MAX, "more line");
        lines.truncate(DIFF_LINES_MAX);
        lines.push(format!("… and {more}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(name: &str, current: Value, desired: Value) -> Vec<String> {
        let change = AttributeChange { name: name.to_owned(), current, desired };
        let strip = |line: String| anstream::adapter::strip_str(&line).to_string();
        lines(&change).into_iter().map(strip).collect()
    }

    #[test]
    fn short_values_stand_side_by_side() {
        assert_eq!(plain("mode", json!(420), json!(384)), ["mode: 420 → 384"]);
        assert_eq!(plain("owner", json!("a"), json!(null)), ["owner: \"a\" → null"]);
    }

    #[test]
    fn long_texts_are_compared_by_line() {
        let (before, after) = ("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nD\ne\nf\n");
        assert_eq!(
            plain("content", json!(before), json!(after)),
            ["content:", "    b", "    c", "  - d", "  + D", "    e", "    f"]
        );
    }
}
