//! A document as a tree of values with source locations, from JSON or YAML.

use std::ops::Range;

use serde_json::{Number, Value};

/// Maximum nesting depth of a document.
pub(super) const DEPTH_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) span: Range<usize>,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Null,
    Flag(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    /// In source order, with repeated keys.
    Map(Vec<Entry>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_span: Range<usize>,
    pub(super) value: Node,
}

impl Node {
    /// The kind of value, for messages: "it is …".
    pub(super) fn noun(&self) -> &'static str {
        match &self.content {
            Content::Null => "empty",
            Content::Flag(_) => "a boolean",
            Content::Number(_) => "a number",
            Content::Text(_) => "a text",
            Content::List(_) => "a list",
            Content::Map(_) => "a mapping",
        }
    }

    /// The value as JSON, with keys in source order, which explanations follow. Of repeated keys,
    /// the last one wins.
    pub(super) fn to_value(&self) -> Value {
        match &self.content {
            Content::Null => Value::Null,
            Content::Flag(flag) => Value::Bool(*flag),
            Content::Number(number) => Value::Number(number.clone()),
            Content::Text(text) => Value::String(text.clone()),
            Content::List(items) => items.iter().map(Node::to_value).collect(),
            Content::Map(entries) => {
                entries.iter().map(|one| (one.key.clone(), one.value.to_value())).collect()
            }
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        let Content::Map(entries) = &self.content else { return None };
        entries.iter().rev().find(|entry| entry.key == key).map(|entry| &entry.value)
    }
}

/// A JSON or YAML syntax error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) message: String,
    pub(super) offset: usize,
}

/// Parses YAML if the file name ends like it, otherwise JSON.
pub(super) fn parse(file_name: &str, text: &str) -> Result<Node, SyntaxError> {
    let extension = file_name.rsplit('.').next().unwrap_or_default();
    if extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml") {
        super::yaml::parse(text)
    } else {
        super::json::parse(text)
    }
}

/// The byte offset of a line and column, both from 1, columns in bytes.
pub(super) fn offset(text: &str, line: usize, column: usize) -> usize {
    let before = line.saturating_sub(1);
    let start: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    (start + column.saturating_sub(1)).min(text.len())
}
