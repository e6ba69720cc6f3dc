//! Renders changed attributes: short values in one line, multi-line texts as a unified diff. Shared
//! by plans, logs and version comparisons.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use orrery_base::line_diff::hunks;
use orrery_model::{AttributeDiff, Resource};
use serde_json::{Map, Value};

use super::text;
use crate::style::{self, diff_line};

/// Maximum combined length of two values on one line.
const LINE_MAX: usize = 80;

/// Time after which a diff becomes approximate.
const COMPARE_TIME_MAX: Duration = Duration::from_secs(2);

/// A changed attribute. `None`: the attribute is absent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    pub(crate) name: String,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

/// Differences between two revisions of a resource: attributes, then requirements.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Differences {
    pub(crate) attributes: Vec<Difference>,
    pub(crate) requires_added: Vec<String>,
    pub(crate) requires_removed: Vec<String>,
}

impl Differences {
    /// At least one side must be present; an absent side has no attributes.
    pub(crate) fn between(before: Option<&Resource>, after: Option<&Resource>) -> Self {
        let (old, new) = (attributes(before), attributes(after));
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let mut found: Vec<Difference> = names
            .into_iter()
            .filter(|name| old.get(*name) != new.get(*name))
            .map(|name| Difference {
                name: name.clone(),
                before: old.get(name).cloned(),
                after: new.get(name).cloned(),
            })
            .collect();
        // Properties of a resource that are not attributes.
        let set =
            |side: Option<&Resource>| side.and_then(|side| side.set.as_deref().map(Value::from));
        let undefined = |side: Option<&Resource>| {
            side.filter(|side| side.flags.undefined).map(|_| Value::Bool(true))
        };
        for (name, before, after) in [
            ("(resource set)", set(before), set(after)),
            ("(undefined)", undefined(before), undefined(after)),
        ] {
            if before != after {
                found.push(Difference { name: name.to_owned(), before, after });
            }
        }
        let requires = |side: Option<&Resource>| -> BTreeSet<String> {
            side.into_iter().flat_map(|side| &side.requires).map(ToString::to_string).collect()
        };
        let (old, new) = (requires(before), requires(after));
        Differences {
            attributes: found,
            requires_added: new.difference(&old).cloned().collect(),
            requires_removed: old.difference(&new).cloned().collect(),
        }
    }

    /// Writes styled lines with an indent.
    pub(crate) fn write(&self, out: &mut String, indent: usize) {
        for difference in &self.attributes {
            difference.write(out, indent);
        }
        let added = self.requires_added.iter().map(|id| (id, true));
        let all = added.chain(self.requires_removed.iter().map(|id| (id, false)));
        for (id, is_added) in all {
            let id = style::sanitize(id);
            let line = if is_added {
                style::added(&format!("+ requires {id}"))
            } else {
                style::removed(&format!("- requires {id}"))
            };
            let _ = writeln!(out, "{:indent$}{line}", "");
        }
    }
}

fn attributes(side: Option<&Resource>) -> Map<String, Value> {
    // Stored attributes are always an object.
    side.and_then(|side| side.attributes.read().ok()).unwrap_or_default()
}

impl From<&AttributeDiff> for Difference {
    fn from(change: &AttributeDiff) -> Self {
        let AttributeDiff { name, current, desired } = change;
        // In a change, null stands for an absent value.
        let before = Some(current.clone()).filter(|value| !value.is_null() || desired.is_null());
        Difference { name: name.clone(), before, after: Some(desired.clone()) }
    }
}

/// Text for a change that is not an attribute of the model but an action of the handler.
fn in_words(change: &AttributeDiff) -> Option<String> {
    let desired = &change.desired;
    match &*change.name {
        "reload" => {
            let causes: Vec<&str> = desired.as_array()?.iter().filter_map(Value::as_str).collect();
            match &causes[..] {
                [] => Some("reload".to_owned()),
                causes => Some(format!("reload, because of {}", text::some_of(causes))),
            }
        }
        "executed" if *desired == true => Some("run the command".to_owned()),
        "purged" if *desired == true => Some("it exists, and should not".to_owned()),
        "purged" if *desired == false => Some("it does not exist".to_owned()),
        _ => None,
    }
}

/// Writes an actual or planned change.
pub(crate) fn write_change(change: &AttributeDiff, out: &mut String, indent: usize) {
    match in_words(change) {
        Some(words) => {
            let _ = writeln!(out, "{:indent$}{}", "", style::sanitize(&words));
        }
        None => Difference::from(change).write(out, indent),
    }
}

impl Difference {
    pub(crate) fn write(&self, out: &mut String, indent: usize) {
        let name = style::sanitize(&self.name);
        let pad = " ".repeat(indent);
        if let Some((before, after)) = self.as_texts() {
            let _ = writeln!(out, "{pad}{name}:");
            write_text_diff(out, indent + 2, before, after);
            return;
        }
        let (before, after) =
            (self.before.as_ref().map(text::value), self.after.as_ref().map(text::value));
        let line = match (before, after) {
            (None, None) => return,
            (None, Some(after)) => style::added(&format!("+ {name}: {after}")),
            (Some(before), None) => style::removed(&format!("- {name}: {before}")),
            (Some(before), Some(after))
                if before.chars().count() + after.chars().count() > LINE_MAX =>
            {
                let before = style::removed(&format!("- {before}"));
                let after = style::added(&format!("+ {after}"));
                format!("{name}:\n{pad}  {before}\n{pad}  {after}")
            }
            (Some(before), Some(after)) => {
                format!("{name}: {} → {}", style::removed(&before), style::added(&after))
            }
        };
        let _ = writeln!(out, "{pad}{line}");
    }

    /// Both sides as texts, if one has several lines. Absent and null sides are empty.
    fn as_texts(&self) -> Option<(&str, &str)> {
        fn side(value: Option<&Value>) -> Option<&str> {
            match value {
                None | Some(Value::Null) => Some(""),
                Some(value) => value.as_str(),
            }
        }
        let (before, after) = (side(self.before.as_ref())?, side(self.after.as_ref())?);
        let has_lines = |text: &str| text.trim_end_matches('\n').contains('\n');
        let differ_in_end = before.trim_end_matches('\n') == after.trim_end_matches('\n');
        let both = !before.is_empty() && !after.is_empty();
        (has_lines(before) || has_lines(after) || both && differ_in_end).then_some((before, after))
    }
}

fn write_text_diff(out: &mut String, indent: usize, before: &str, after: &str) {
    let pad = " ".repeat(indent);
    for hunk in hunks(before, after, Some(COMPARE_TIME_MAX)) {
        let _ = writeln!(out, "{pad}{}", hunk.header);
        for line in &hunk.lines {
            let _ = writeln!(out, "{pad}{}", diff_line(line));
            if line.is_unterminated() {
                let _ = writeln!(out, "{pad}\\ No newline at end of text");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::{Attributes, ResourceId};
    use serde_json::json;

    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn rendered(before: Option<Value>, after: Option<Value>) -> String {
        let mut out = String::new();
        Difference { name: "content".to_owned(), before, after }.write(&mut out, 2);
        plain(&out)
    }

    #[test]
    fn short_values_stand_in_one_line() {
        assert_eq!(rendered(Some(json!(1)), Some(json!("x"))), "  content: 1 → \"x\"\n");
        assert_eq!(rendered(None, Some(json!(null))), "  + content: null\n");
        assert_eq!(rendered(Some(json!([1])), None), "  - content: [1]\n");
        let long = "a".repeat(70);
        let text = rendered(Some(json!(long)), Some(json!("something else")));
        assert_eq!(text, format!("  content:\n    - \"{long}\"\n    + \"something else\"\n"));
    }

    #[test]
    fn texts_of_several_lines_are_compared_by_line() {
        let text = rendered(Some(json!("a\nb\nc\n")), Some(json!("a\nB\nc\n")));
        assert_eq!(text, "  content:\n    @@ -1,3 +1,3 @@\n     a\n    -b\n    +B\n     c\n");
        let text = rendered(Some(Value::Null), Some(json!("a\nb")));
        let lines = ["  content:", "    @@ -0,0 +1,2 @@", "    +a", "    +b"];
        assert_eq!(text, lines.join("\n") + "\n    \\ No newline at end of text\n");
        // Only the final newline differs.
        let text = rendered(Some(json!("a\n")), Some(json!("a")));
        assert!(text.contains("-a\n"), "{text}");
    }

    #[test]
    fn handler_actions_are_described() {
        let words = |name: &str, current: Value, desired: Value| {
            let change = AttributeDiff { name: name.to_owned(), current, desired };
            let mut out = String::new();
            write_change(&change, &mut out, 0);
            plain(&out)
        };
        let causes = json!(["a::B[c,d=e]"]);
        assert_eq!(words("reload", json!(null), causes), "reload, because of a::B[c,d=e]\n");
        assert_eq!(words("executed", json!(false), json!(true)), "run the command\n");
        assert_eq!(words("purged", json!(true), json!(false)), "it does not exist\n");
        assert_eq!(words("purged", json!(false), json!(true)), "it exists, and should not\n");
        assert_eq!(words("owner", json!(null), json!("ada")), "+ owner: \"ada\"\n");
        assert_eq!(words("mode", json!(420), json!(384)), "mode: 420 → 384\n");
    }

    #[test]
    fn control_characters_of_texts_are_shown() {
        let text = rendered(Some(json!("a\n\x1b[2J\n")), Some(json!("b\n\x1b[2J\n")));
        assert!(text.contains("\u{241b}[2J"), "{text}");
    }

    #[test]
    fn all_parts_of_a_resource_are_compared() {
        let id: ResourceId = "a::B[c,d=e]".parse().unwrap();
        let other: ResourceId = "a::B[c,d=f]".parse().unwrap();
        let resource = |attributes: &str, requires: Vec<ResourceId>| {
            Resource::new(id.clone(), Attributes::parse(attributes).unwrap(), requires)
        };
        let before = resource(r#"{"same": 1, "gone": 2, "other": 3}"#, vec![]);
        let mut after = resource(r#"{"same": 1, "new": 2, "other": 4}"#, vec![other]);
        after.set = Some("web".into());
        let found = Differences::between(Some(&before), Some(&after));
        let names: Vec<&str> = found.attributes.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["gone", "new", "other", "(resource set)"]);
        assert_eq!(found.requires_added, ["a::B[c,d=f]"]);
        assert!(found.requires_removed.is_empty());
        let mut out = String::new();
        found.write(&mut out, 0);
        assert!(plain(&out).ends_with("+ (resource set): \"web\"\n+ requires a::B[c,d=f]\n"));
        assert_eq!(Differences::between(Some(&before), Some(&before)), Differences::default());
    }
}
