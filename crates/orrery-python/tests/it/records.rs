//! Reads the records in `tests/data` (see `tools/record.py`) and compares outcomes.

use orrery_python::{Int, Number, PyError};
use serde_json::Value;
use std::path::PathBuf;

/// The rows of one record. `ORRERY_PYTHON_RECORDS` may name another directory, for a wider search.
pub(crate) fn rows(name: &str) -> Vec<Vec<Value>> {
    let directory = match std::env::var_os("ORRERY_PYTHON_RECORDS") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data"),
    };
    let path = directory.join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap();
    let rows: Vec<Vec<Value>> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!rows.is_empty(), "{} is empty", path.display());
    rows
}

/// Collects differences, so that one run shows them all.
#[derive(Default)]
pub(crate) struct Differences {
    found: Vec<String>,
}

impl Differences {
    /// `expected` is the outcome of a record: `{"ok": text}` or `{"error": [class, message]}`.
    pub(crate) fn compare(
        &mut self,
        question: impl std::fmt::Debug,
        expected: &Value,
        actual: Result<String, PyError>,
    ) {
        let actual = match actual {
            Ok(text) => serde_json::json!({ "ok": text }),
            Err(error) => serde_json::json!({ "error": [error.kind, error.message] }),
        };
        if actual != *expected {
            self.found.push(format!("{question:?}\n  python: {expected}\n  here:   {actual}"));
        }
    }
}

impl Drop for Differences {
    fn drop(&mut self) {
        if !self.found.is_empty() && !std::thread::panicking() {
            let shown = self.found.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
            panic!("{} differences:\n{shown}", self.found.len());
        }
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// A number as the records write it: `i:12` or `f:3ff0000000000000`.
pub(crate) fn number(value: &Value) -> Number {
    let (kind, digits) = text(value).split_once(':').unwrap();
    match kind {
        "i" => Number::Int(Int::parse_decimal(digits).unwrap()),
        "f" => Number::Float(f64::from_bits(u64::from_str_radix(digits, 16).unwrap())),
        other => panic!("no such kind of number: {other}"),
    }
}

pub(crate) fn show_number(number: &Number) -> String {
    match number {
        Number::Int(value) => format!("i:{value}"),
        // All nans are one to Python.
        Number::Float(value) if value.is_nan() => "f:nan".to_string(),
        Number::Float(value) => format!("f:{:016x}", value.to_bits()),
    }
}
