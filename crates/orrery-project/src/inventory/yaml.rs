//! YAML of the inventory with source locations. Plain scalars follow the core schema of YAML 1.2.

use std::collections::BTreeSet;
use std::ops::Range;

use orrery_model::PathStep;
use serde_json::Value;
use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

use super::LocatedProblem;

const DEPTH_MAX: usize = 32;
const NODES_MAX: usize = 1_000_000;

/// A value with its location.
#[derive(Clone, Debug)]
pub(super) struct Node {
    span: Range<usize>,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Scalar(Value),
    List(Vec<Node>),
    /// Key, location of the key, value.
    Map(Vec<(String, Range<usize>, Node)>),
}

impl Node {
    pub(super) fn to_value(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => items.iter().map(Node::to_value).collect(),
            Content::Map(entries) => {
                entries.iter().map(|(key, _, value)| (key.clone(), value.to_value())).collect()
            }
        }
    }

    /// Location of the value at a path, or of the nearest value around it.
    pub(super) fn span_of(&self, path: &[PathStep], is_key: bool) -> Range<usize> {
        let mut node = self;
        let mut span = self.span.clone();
        for (at, step) in path.iter().enumerate() {
            let next = match (step, &node.content) {
                (PathStep::Key(key), Content::Map(entries)) => entries
                    .iter()
                    .find(|(name, ..)| name == key)
                    .map(|(_, key, value)| (key, value)),
                (PathStep::Index(index), Content::List(items)) => {
                    items.get(*index).map(|item| (&item.span, item))
                }
                _ => None,
            };
            let Some((key, value)) = next else { return span };
            let is_last = at + 1 == path.len();
            // Where nothing follows a key, the key is what can be shown.
            let is_shown = is_last && is_key || value.span.is_empty();
            span = if is_shown { key.clone() } else { value.span.clone() };
            node = value;
        }
        span
    }
}

/// Parses the only document of a text; an empty text is null.
pub(super) fn parse(text: &str) -> Result<Node, LocatedProblem> {
    let yaml = text.strip_prefix('\u{feff}').unwrap_or(text);
    let base = text.len() - yaml.len();
    let mut builder = Builder { text: yaml, base, ..Builder::default() };
    for event in Parser::new_from_str(yaml) {
        let (event, span) = event.map_err(|error| {
            let at = builder.offset(error.marker());
            problem(error.info().clone(), at..at)
        })?;
        builder.handle_event(event, &span)?;
    }
    Ok(builder.document.unwrap_or(Node { span: 0..0, content: Content::Scalar(Value::Null) }))
}

fn problem(message: impl Into<String>, span: Range<usize>) -> LocatedProblem {
    LocatedProblem { message: message.into(), help: None, span }
}

/// An incomplete list or mapping.
struct Open {
    start: usize,
    is_map: bool,
    /// Of a mapping: key, value, key, value.
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Builder<'t> {
    text: &'t str,
    /// Bytes before the text.
    base: usize,
    open: Vec<Open>,
    nodes: usize,
    documents: usize,
    document: Option<Node>,
}

impl Builder<'_> {
    fn offset(&self, marker: &Marker) -> usize {
        let by_column = || {
            let before = marker.line().saturating_sub(1);
            let start: usize = self.text.split_inclusive('\n').take(before).map(str::len).sum();
            let rest = self.text[start..].char_indices().nth(marker.col());
            rest.map_or(self.text.len(), |(bytes, _)| start + bytes)
        };
        self.base + marker.byte_offset().unwrap_or_else(by_column).min(self.text.len())
    }

    fn handle_event(&mut self, event: Event<'_>, span: &Span) -> Result<(), LocatedProblem> {
        let range = self.offset(&span.start)..self.offset(&span.end);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(problem("a second document begins", range));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                refuse_extras(tag.as_deref(), anchor, &range)?;
                let value = match style {
                    ScalarStyle::Plain => plain_scalar(&text),
                    _ => Value::String(text.into_owned()),
                };
                self.add(Node { span: range, content: Content::Scalar(value) })?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                refuse_extras(tag.as_deref(), anchor, &range)?;
                self.begin(false, &range)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                refuse_extras(tag.as_deref(), anchor, &range)?;
                self.begin(true, &range)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(range.end)?,
            Event::Alias(_) => {
                return Err(problem("aliases are not supported: use a group", range));
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, is_map: bool, range: &Range<usize>) -> Result<(), LocatedProblem> {
        if self.open.len() >= DEPTH_MAX {
            let text = format!("this is nested deeper than {DEPTH_MAX} levels");
            return Err(problem(text, range.clone()));
        }
        self.open.push(Open { start: range.start, is_map, nodes: Vec::new() });
        Ok(())
    }

    fn end(&mut self, end: usize) -> Result<(), LocatedProblem> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let first = open.nodes.first().map_or(open.start, |node| node.span.start);
        let last = open.nodes.last().map_or(open.start, |node| node.span.end);
        // Only in brackets: block style ends where the next element begins.
        let rest = self.text.get(open.start - self.base..).unwrap_or_default();
        let last = if rest.starts_with(['[', '{']) { last.max(end) } else { last };
        let span = open.start.min(first)..last.max(open.start);
        let content = match open.is_map {
            true => Content::Map(entries(open.nodes)?),
            false => Content::List(open.nodes),
        };
        self.add(Node { span, content })
    }

    fn add(&mut self, node: Node) -> Result<(), LocatedProblem> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(problem(format!("there are more than {NODES_MAX} values"), node.span));
        }
        match self.open.last_mut() {
            Some(open) => open.nodes.push(node),
            None => self.document = Some(node),
        }
        Ok(())
    }
}

fn refuse_extras(
    tag: Option<&Tag>,
    anchor: usize,
    range: &Range<usize>,
) -> Result<(), LocatedProblem> {
    match (tag, anchor) {
        (Some(tag), _) => {
            Err(problem(format!("the tag {} is not supported", tag.original()), range.clone()))
        }
        (None, 0) => Ok(()),
        (None, _) => Err(problem("anchors are not supported: use a group", range.clone())),
    }
}

fn entries(nodes: Vec<Node>) -> Result<Vec<(String, Range<usize>, Node)>, LocatedProblem> {
    let mut entries = Vec::with_capacity(nodes.len() / 2);
    let mut seen = BTreeSet::new();
    let mut nodes = nodes.into_iter();
    while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
        let text = match key.content {
            Content::Scalar(Value::String(text)) => text,
            Content::Scalar(Value::Number(number)) => number.to_string(),
            Content::Scalar(Value::Bool(flag)) => flag.to_string(),
            _ => return Err(problem("a key has to be a text", key.span)),
        };
        if !seen.insert(text.clone()) {
            return Err(problem(format!("the key {text} occurs twice"), key.span));
        }
        entries.push((text, key.span, value));
    }
    Ok(entries)
}

/// Meaning of a plain scalar. Numbers with a sign, a fraction or leading zeros are texts here.
fn plain_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => {
            let is_number = text == "0"
                || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
            let number = is_number.then(|| text.parse::<u64>().ok()).flatten();
            number.map_or_else(|| Value::String(text.to_owned()), Value::from)
        }
    }
}
