//! Compares the report of a compile with the recorded outcome and describes the differences.
//! Normalizes details that vary between runs and installations (addresses, the path of `std`);
//! everything else must be equal.

use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;
use similar::TextDiff;

use crate::models::{RelationOrder, canonical};

/// Warnings that only the reference compiler has: about the storage of modules (Orrery supports the
/// module path and needs no version control), and about exports, which have other texts here.
const WARNINGS_OF_THE_REFERENCE_ONLY: [&str; 6] = [
    "is not version controlled, we recommend you do this",
    "The use of V1 modules is deprecated.",
    "The environment for this model should be set for export to server!",
    "Compilation of model failed.",
    "Empty deployment model.",
    "had requirements before flattening, but not after flattening.",
];

/// Replaces what may differ between two runs of one model.
pub(crate) fn normalise(text: &str) -> String {
    static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        [
            // std's model files have another path and other line numbers.
            (r"[^\s()',]*\bstd/(?:model/)?(\w+)\.cf(?::\d+){0,2}", "<std>/$1.cf"),
            (r"\b0x[0-9a-fA-F]{4,16}\b", "0xADDR"),
            // An instance prints as its type and its address.
            (r"((?:\w+::)+[A-Z]\w*) (?:[0-9a-f]{6,16}|ADDR)\b", "$1 ADDR"),
            (r"\b[5-7][0-9a-f]{11}\b", "ADDR"),
        ]
        .map(|(pattern, replacement)| {
            (Regex::new(pattern).expect("invariant: the rules are valid"), replacement)
        })
        .into()
    });
    RULES.iter().fold(text.to_owned(), |text, (pattern, replacement)| {
        pattern.replace_all(&text, *replacement).into_owned()
    })
}

/// Describes all differences; empty when the reports agree.
pub(crate) fn differences(expected: &Value, actual: &Value) -> String {
    let mut found = String::new();
    let status = |report: &Value| report["status"].as_str().unwrap_or("(none)").to_owned();
    if status(expected) != status(actual) {
        let _ = writeln!(
            found,
            "status: expected {}, got {}{}{}",
            status(expected),
            status(actual),
            describe_error("\n  expected error: ", expected),
            describe_error("\n  got error: ", actual),
        );
    } else if status(expected) == "error" {
        compare_errors(&expected["error"], &actual["error"], &mut found);
    }
    let stdout = |report: &Value| normalise(report["stdout"].as_str().unwrap_or(""));
    compare_texts("stdout", &stdout(expected), &stdout(actual), &mut found);
    compare_texts("warnings", &warnings(expected), &warnings(actual), &mut found);
    if status(expected) == "ok" && status(actual) == "ok" {
        compare_models(&expected["model"], &actual["model"], &mut found);
        if expected["resources"].is_array() {
            compare_resources(&expected["resources"], &actual["resources"], &mut found);
        }
    }
    found
}

fn compare_resources(expected: &Value, actual: &Value, found: &mut String) {
    // A resource as the reference sees it: without its set, which is stored elsewhere, and without
    // the version.
    let plain = |resource: &Value| {
        let mut resource = resource.as_object().cloned().unwrap_or_default();
        resource.remove("set");
        let id = resource.get("id").and_then(Value::as_str).unwrap_or_default();
        let id = id.strip_suffix(",v=0").unwrap_or(id).to_owned();
        resource.insert("id".to_owned(), id.into());
        if let Some(Value::Array(requires)) = resource.get_mut("requires") {
            requires.sort_by_key(ToString::to_string);
        }
        let mut resource = Value::Object(resource);
        resource.sort_all_objects();
        format!("{resource:#}\n")
    };
    let all = |resources: &Value| {
        let mut texts: Vec<String> =
            resources.as_array().into_iter().flatten().map(plain).collect();
        texts.sort();
        texts.concat()
    };
    compare_texts("resources", &all(expected), &all(actual), found);
}

fn describe_error(label: &str, report: &Value) -> String {
    let message = report["error"]["message"].as_str();
    message.map_or_else(String::new, |text| format!("{label}{}", text.replace('\n', "\n    ")))
}

fn compare_errors(expected: &Value, actual: &Value, found: &mut String) {
    let text = |error: &Value, name: &str| {
        let text = error[name].as_str().map(normalise).unwrap_or_default();
        sort_tied_errors(text.trim_end())
    };
    compare_texts("error.message", &text(expected, "message"), &text(actual, "message"), found);
    if expected["class"].is_null() {
        // A project that cannot be loaded: the reference has only a text.
        return;
    }
    if text(expected, "text") != text(actual, "text") {
        compare_texts("error.text", &text(expected, "text"), &text(actual, "text"), found);
    }
    for name in ["class", "file", "line", "column"] {
        let (expected, actual) = (normalised_text(&expected[name]), normalised_text(&actual[name]));
        if expected != actual {
            let _ = writeln!(found, "error.{name}: expected {expected}, got {actual}");
        }
    }
}

fn normalised_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), normalise)
}

/// Sorts errors with equal or no locations by text: the reference lists them by memory address.
fn sort_tied_errors(message: &str) -> String {
    static PLACE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\(([^\s()]+:\d+)(?::\d+)?\)+$").expect("invariant: the pattern is valid")
    });
    static HEADING: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?m)^error \d+:\n").expect("invariant: the pattern is valid")
    });
    let mut blocks = HEADING.split(message);
    let Some(head) = blocks.next() else { return message.to_owned() };
    let mut blocks: Vec<(Option<&str>, &str)> = blocks
        .map(|block| {
            let first = block.lines().next().unwrap_or("");
            let place = PLACE.captures(first).and_then(|found| found.get(1));
            (place.map(|place| place.as_str()), block.trim_end())
        })
        .collect();
    if blocks.is_empty() {
        return message.to_owned();
    }
    for tied in blocks.chunk_by_mut(|one, other| one.0 == other.0) {
        tied.sort_unstable();
    }
    let mut text = head.to_owned();
    for (number, (_, block)) in blocks.iter().enumerate() {
        let _ = write!(text, "error {number}:\n{block}\n");
    }
    text
}

/// Warnings as a sorted list: their order depends on file loading.
fn warnings(report: &Value) -> String {
    let mut texts: Vec<String> = report["warnings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|warning| warning["message"].as_str())
        .filter(|text| !WARNINGS_OF_THE_REFERENCE_ONLY.iter().any(|part| text.contains(part)))
        .map(normalise)
        .collect();
    texts.sort();
    texts.iter().fold(String::new(), |text, warning| text + warning + "\n")
}

fn compare_models(expected: &Value, actual: &Value, found: &mut String) {
    let both = |order| (canonical(expected, order), canonical(actual, order));
    let (expected, actual) = match both(RelationOrder::Kept) {
        (Ok(expected), Ok(actual)) => (expected, actual),
        (expected, actual) => {
            for (side, problem) in [("expected", expected.err()), ("got", actual.err())] {
                if let Some(problem) = problem {
                    let _ = writeln!(found, "model: the one {side} is not valid: {problem}");
                }
            }
            return;
        }
    };
    if expected != actual {
        let (sorted_expected, sorted_actual) = both(RelationOrder::Ignored);
        let order_only = sorted_expected.is_ok() && sorted_expected == sorted_actual;
        let label = if order_only { "model (order of relations only)" } else { "model" };
        compare_texts(label, &expected, &actual, found);
    }
}

fn compare_texts(label: &str, expected: &str, actual: &str, found: &mut String) {
    if expected == actual {
        return;
    }
    let diff = TextDiff::from_lines(expected, actual);
    let _ = writeln!(found, "{label}: (- expected, + got)");
    for hunk in diff.unified_diff().context_radius(2).iter_hunks() {
        for line in hunk.to_string().lines().filter(|line| !line.starts_with('\\')) {
            let _ = writeln!(found, "  {line}");
        }
    }
}
