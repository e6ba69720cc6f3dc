//! JSON with source locations: the parser returns slices of the text, and a slice has a known
//! offset.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::tree::{self, Content, DEPTH_MAX, Entry, Node, SyntaxError};

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let json = text.strip_prefix('\u{feff}').unwrap_or(text);
    let base = text.len() - json.len();
    let wrong = |error: serde_json::Error| SyntaxError {
        message: sentence(&error),
        offset: base + tree::offset(json, error.line(), error.column()),
    };
    if json.trim().is_empty() {
        return Ok(Node { span: 0..0, content: Content::Null });
    }
    // The only pass that can fail on the grammar: positions of errors count from the beginning.
    serde_json::from_str::<IgnoredAny>(json).map_err(wrong)?;
    let raw: &RawValue = serde_json::from_str(json).map_err(wrong)?;
    Text(text).node(raw.get(), 0)
}

/// The message without the position, which is shown separately.
fn sentence(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    text[..end].to_owned()
}

struct Text<'t>(&'t str);

impl<'t> Text<'t> {
    /// The byte range of a slice of the text.
    fn span(&self, slice: &str) -> Range<usize> {
        let start = (slice.as_ptr() as usize).wrapping_sub(self.0.as_ptr() as usize);
        if start <= self.0.len() { start..start + slice.len() } else { 0..0 }
    }

    fn node(&self, raw: &'t str, depth: usize) -> Result<Node, SyntaxError> {
        let span = self.span(raw);
        let at = span.start;
        if depth > DEPTH_MAX {
            let message = format!("this is nested deeper than {DEPTH_MAX} levels");
            return Err(SyntaxError { message, offset: at });
        }
        let wrong =
            |error: serde_json::Error| SyntaxError { message: sentence(&error), offset: at };
        let content = match raw.as_bytes().first() {
            Some(b'{') => {
                let Entries(raw_entries) = serde_json::from_str(raw).map_err(wrong)?;
                let mut entries = Vec::with_capacity(raw_entries.len());
                for (key, value) in raw_entries {
                    let value = self.node(value.get(), depth + 1)?;
                    let key_span = match key.slice {
                        // With the quotes.
                        Some(slice) => {
                            let inner = self.span(slice);
                            inner.start.saturating_sub(1)..inner.end + 1
                        }
                        None => value.span.clone(),
                    };
                    entries.push(Entry { key: key.text, key_span, value });
                }
                Content::Map(entries)
            }
            Some(b'[') => {
                let Items(items) = serde_json::from_str(raw).map_err(wrong)?;
                let items = items.into_iter().map(|item| self.node(item.get(), depth + 1));
                Content::List(items.collect::<Result<_, _>>()?)
            }
            Some(b'"') => Content::Text(serde_json::from_str(raw).map_err(wrong)?),
            Some(b't' | b'f') => Content::Flag(serde_json::from_str(raw).map_err(wrong)?),
            Some(b'n') => Content::Null,
            _ => Content::Number(serde_json::from_str(raw).map_err(wrong)?),
        };
        Ok(Node { span, content })
    }
}

/// A key, and its location unless it has escapes.
struct Key<'t> {
    text: String,
    slice: Option<&'t str>,
}

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key { text: text.to_owned(), slice: Some(text) })
            }
            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key { text: text.to_owned(), slice: None })
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct Entries<'t>(Vec<(Key<'t>, &'t RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor;
        impl<'de> Visitor<'de> for MapVisitor {
            type Value = Entries<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(MapVisitor)
    }
}

struct Items<'t>(Vec<&'t RawValue>);

impl<'de> Deserialize<'de> for Items<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;
        impl<'de> Visitor<'de> for ListVisitor {
            type Value = Items<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Items(items))
            }
        }
        deserializer.deserialize_seq(ListVisitor)
    }
}
