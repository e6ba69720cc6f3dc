//! Files of recorded facts. An environment variable can name another file of the same format.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub(crate) fn read(variable: &str, name: &str) -> Value {
    let path = match std::env::var_os(variable) {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name),
    };
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{} can be read: {error}", path.display()));
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{} is JSON: {error}", path.display()))
}
