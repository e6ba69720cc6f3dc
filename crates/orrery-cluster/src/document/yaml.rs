//! YAML with source locations. Plain scalars follow the core schema of YAML 1.2, so that a document
//! means the same in both notations.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Number;
use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

use super::tree::{self, Content, DEPTH_MAX, Entry, Node, SyntaxError};

/// Maximum number of nodes, including those repeated by aliases.
const NODES_MAX: usize = 100_000;

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let yaml = text.strip_prefix('\u{feff}').unwrap_or(text);
    let base = text.len() - yaml.len();
    let mut builder = Builder { text: yaml, base, ..Builder::default() };
    for event in Parser::new_from_str(yaml) {
        let (event, span) = event
            .map_err(|error| builder.wrong(error.info().clone(), builder.at(error.marker())))?;
        builder.handle_event(event, &span)?;
    }
    Ok(builder.document.unwrap_or(Node { span: 0..0, content: Content::Null }))
}

/// An incomplete list or mapping.
struct Open {
    start: usize,
    anchor: usize,
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
    anchors: BTreeMap<usize, (Node, usize)>,
    nodes: usize,
    documents: usize,
    document: Option<Node>,
}

impl Builder<'_> {
    fn at(&self, marker: &Marker) -> usize {
        let line_start = tree::offset(self.text, marker.line(), 1);
        let by_column = || {
            let rest = self.text[line_start..].char_indices().nth(marker.col());
            rest.map_or(self.text.len(), |(bytes, _)| line_start + bytes)
        };
        self.base + marker.byte_offset().unwrap_or_else(by_column).min(self.text.len())
    }

    fn wrong(&self, message: impl Into<String>, offset: usize) -> SyntaxError {
        SyntaxError { message: message.into(), offset }
    }

    fn handle_event(&mut self, event: Event<'_>, span: &Span) -> Result<(), SyntaxError> {
        let range = self.at(&span.start)..self.at(&span.end);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let text = "a second document begins: use one file per document";
                    return Err(self.wrong(text, range.start));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let content = if style == ScalarStyle::Plain && tag.is_none() {
                    resolve(&text)
                } else {
                    Content::Text(text.into_owned())
                };
                self.refuse_tag(tag.as_deref(), "str", range.start)?;
                self.add(Node { span: range, content }, anchor, 1)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), "seq", range.start)?;
                self.begin(false, anchor, range.start)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), "map", range.start)?;
                self.begin(true, anchor, range.start)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(range.end)?,
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor).cloned() else {
                    return Err(
                        self.wrong("an alias is inside the value that it repeats", range.start)
                    );
                };
                self.add(Node { span: range, ..node }, 0, size)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn refuse_tag(
        &self,
        tag: Option<&Tag>,
        allowed: &str,
        offset: usize,
    ) -> Result<(), SyntaxError> {
        match tag {
            Some(tag) if tag.original() != "!" && tag.core_suffix() != Some(allowed) => {
                Err(self.wrong(format!("the tag {} is not supported", tag.original()), offset))
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, is_map: bool, anchor: usize, start: usize) -> Result<(), SyntaxError> {
        if self.open.len() >= DEPTH_MAX {
            return Err(self.wrong(format!("this is nested deeper than {DEPTH_MAX} levels"), start));
        }
        self.open.push(Open { start, anchor, is_map, nodes: Vec::new() });
        Ok(())
    }

    fn end(&mut self, end: usize) -> Result<(), SyntaxError> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let first = open.nodes.first().map_or(open.start, |node| node.span.start);
        let last = open.nodes.last().map_or(open.start, |node| node.span.end);
        // Only in brackets: block style ends where the next element begins.
        let rest = self.text.get(open.start - self.base..).unwrap_or_default();
        let last = if rest.starts_with(['[', '{']) { last.max(end) } else { last };
        let span: Range<usize> = open.start.min(first)..last.max(open.start);
        let content = if open.is_map {
            Content::Map(self.entries(open.nodes)?)
        } else {
            Content::List(open.nodes)
        };
        let node = Node { span, content };
        let size = count(&node);
        self.add(node, open.anchor, size)
    }

    fn entries(&self, nodes: Vec<Node>) -> Result<Vec<Entry>, SyntaxError> {
        let mut entries = Vec::with_capacity(nodes.len() / 2);
        let mut nodes = nodes.into_iter();
        while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
            let text = match key.content {
                Content::Text(text) => text,
                Content::Number(number) => number.to_string(),
                Content::Flag(flag) => flag.to_string(),
                _ => return Err(self.wrong("a key has to be a text", key.span.start)),
            };
            entries.push(Entry { key: text, key_span: key.span, value });
        }
        Ok(entries)
    }

    fn add(&mut self, node: Node, anchor: usize, size: usize) -> Result<(), SyntaxError> {
        self.nodes += size;
        if self.nodes > NODES_MAX {
            let text = format!("there are more than {NODES_MAX} values");
            return Err(self.wrong(text, node.span.start));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        match self.open.last_mut() {
            Some(open) => open.nodes.push(node),
            None => self.document = Some(node),
        }
        Ok(())
    }
}

fn count(node: &Node) -> usize {
    match &node.content {
        Content::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Content::Map(entries) => 1 + entries.iter().map(|e| 1 + count(&e.value)).sum::<usize>(),
        _ => 1,
    }
}

/// Meaning of a plain scalar.
fn resolve(text: &str) -> Content {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Content::Null,
        "true" | "True" | "TRUE" => return Content::Flag(true),
        "false" | "False" | "FALSE" => return Content::Flag(false),
        _ => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.contains(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    if is_number {
        let plain = text.strip_prefix('+').unwrap_or(text);
        if let Ok(value) = plain.parse::<u64>() {
            return Content::Number(value.into());
        }
        if let Ok(value) = plain.parse::<i64>() {
            return Content::Number(value.into());
        }
        if let Some(number) = plain.parse::<f64>().ok().and_then(Number::from_f64) {
            return Content::Number(number);
        }
    }
    Content::Text(text.to_owned())
}
