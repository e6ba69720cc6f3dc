//! YAML as the reference compiler reads it, for `project.yml` and `module.yml`: version 1.1, where
//! `yes` is a boolean and `1:20` the number 80. The events come from a parser for version 1.2;
//! plain scalars are interpreted here. All sizes are bounded, so that no file can stall a compile.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

const DEPTH_MAX: usize = 400;
/// Maximum number of nodes, including those repeated by aliases.
const NODES_MAX: usize = 100_000;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Yaml {
    Null,
    Bool(bool),
    /// The decimal digits, for any notation.
    Int(String),
    Float(f64),
    /// A date or a time; unused.
    Date(String),
    Text(String),
    List(Vec<Yaml>),
    /// In file order; the last of equal keys wins.
    Map(Vec<(Yaml, Yaml)>),
}

impl Yaml {
    /// The kind of value, for messages: "it is …".
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Yaml::Null => "empty",
            Yaml::Bool(_) => "a boolean",
            Yaml::Int(_) | Yaml::Float(_) => "a number",
            Yaml::Date(_) => "a date",
            Yaml::Text(_) => "a string",
            Yaml::List(_) => "a list",
            Yaml::Map(_) => "a mapping",
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Yaml> {
        let Yaml::Map(entries) = self else { return None };
        let is_key = |(k, _): &&(Yaml, Yaml)| matches!(k, Yaml::Text(text) if text == key);
        entries.iter().rev().find(is_key).map(|(_, value)| value)
    }
}

/// A YAML syntax error. Line and column count from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct YamlError {
    pub(crate) reason: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

fn problem(reason: impl Into<String>, at: &Marker) -> YamlError {
    YamlError { reason: reason.into(), line: at.line(), column: at.col() + 1 }
}

/// Parses the only document of a text; an empty text is null.
pub(crate) fn parse(text: &str) -> Result<Yaml, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| scan_problem(&error))?;
        builder.handle_event(event, &span.start)?;
    }
    Ok(builder.document.unwrap_or(Yaml::Null))
}

fn scan_problem(error: &ScanError) -> YamlError {
    problem(error.info(), error.marker())
}

/// An incomplete list or mapping.
struct OpenNode {
    anchor: usize,
    is_map: bool,
    /// Of a mapping: key, value, key, value.
    nodes: Vec<Yaml>,
}

#[derive(Default)]
struct Builder {
    open: Vec<OpenNode>,
    anchors: BTreeMap<usize, (Yaml, usize)>,
    nodes: usize,
    documents: usize,
    document: Option<Yaml>,
}

impl Builder {
    fn handle_event(&mut self, event: Event<'_>, at: &Marker) -> Result<(), YamlError> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(problem("a second document begins; there may be one only", at));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(text.into_owned(), style, tag.as_deref(), at)?;
                self.add(value, anchor, 1, at)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.begin(false, anchor, tag.as_deref(), at)?;
            }
            Event::MappingStart(_, anchor, tag) => self.begin(true, anchor, tag.as_deref(), at)?,
            Event::SequenceEnd | Event::MappingEnd => self.end(at)?,
            Event::Alias(anchor) => {
                let Some((value, size)) = self.anchors.get(&anchor).cloned() else {
                    return Err(problem("an alias stands inside of what it repeats", at));
                };
                self.add(value, 0, size, at)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(
        &mut self,
        is_map: bool,
        anchor: usize,
        tag: Option<&Tag>,
        at: &Marker,
    ) -> Result<(), YamlError> {
        let expected = if is_map { "map" } else { "seq" };
        if let Some(tag) = tag
            && tag.core_suffix() != Some(expected)
        {
            return Err(problem(format!("the tag {} is not supported here", tag.original()), at));
        }
        if self.open.len() == DEPTH_MAX {
            return Err(problem(format!("this is nested deeper than {DEPTH_MAX} levels"), at));
        }
        self.open.push(OpenNode { anchor, is_map, nodes: Vec::new() });
        Ok(())
    }

    fn end(&mut self, at: &Marker) -> Result<(), YamlError> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let value = if open.is_map { mapping(open.nodes, at)? } else { Yaml::List(open.nodes) };
        let size = node_count(&value);
        self.add(value, open.anchor, size, at)
    }

    fn add(
        &mut self,
        value: Yaml,
        anchor: usize,
        size: usize,
        at: &Marker,
    ) -> Result<(), YamlError> {
        self.nodes += size;
        if self.nodes > NODES_MAX {
            return Err(problem(format!("there are more than {NODES_MAX} values"), at));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, (value.clone(), size));
        }
        match self.open.last_mut() {
            Some(open) => open.nodes.push(value),
            None => self.document = Some(value),
        }
        Ok(())
    }
}

fn node_count(value: &Yaml) -> usize {
    match value {
        Yaml::List(items) => 1 + items.iter().map(node_count).sum::<usize>(),
        Yaml::Map(entries) => {
            1 + entries.iter().map(|(k, v)| node_count(k) + node_count(v)).sum::<usize>()
        }
        _ => 1,
    }
}

/// Pairs keys with values and applies merge keys (`<<: *defaults`), which have the lowest
/// precedence.
fn mapping(nodes: Vec<Yaml>, at: &Marker) -> Result<Yaml, YamlError> {
    let mut own = Vec::with_capacity(nodes.len() / 2);
    let mut merged = Vec::new();
    let mut nodes = nodes.into_iter();
    while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
        if matches!(key, Yaml::List(_) | Yaml::Map(_)) {
            return Err(problem(format!("a key of this mapping is {}", key.kind()), at));
        }
        if key != Yaml::Text("<<".into()) {
            own.push((key, value));
            continue;
        }
        match value {
            Yaml::Map(entries) => merged.extend(entries),
            Yaml::List(maps) if maps.iter().all(|item| matches!(item, Yaml::Map(_))) => {
                // The first of several takes precedence.
                for item in maps.into_iter().rev() {
                    if let Yaml::Map(entries) = item {
                        merged.extend(entries);
                    }
                }
            }
            other => {
                let reason = format!("`<<` needs a mapping or several, but it is {}", other.kind());
                return Err(problem(reason, at));
            }
        }
    }
    merged.extend(own);
    Ok(Yaml::Map(merged))
}

fn scalar(
    text: String,
    style: ScalarStyle,
    tag: Option<&Tag>,
    at: &Marker,
) -> Result<Yaml, YamlError> {
    let Some(tag) = tag else {
        return Ok(if style == ScalarStyle::Plain { resolve(text) } else { Yaml::Text(text) });
    };
    let refuse = |reason| Err(problem(format!("the tag {} {reason}", tag.original()), at));
    // `!` alone forces a text.
    if tag.original() == "!" {
        return Ok(Yaml::Text(text));
    }
    match tag.core_suffix() {
        Some("str") => Ok(Yaml::Text(text)),
        Some("null") => Ok(Yaml::Null),
        Some(wanted @ ("bool" | "int" | "float")) => {
            let value = resolve(text);
            let fits = matches!(
                (wanted, &value),
                ("bool", Yaml::Bool(_))
                    | ("int", Yaml::Int(_))
                    | ("float", Yaml::Int(_) | Yaml::Float(_))
            );
            if fits { Ok(value) } else { refuse("does not fit the value") }
        }
        _ => refuse("is not supported here"),
    }
}

/// Interprets plain scalars by YAML 1.1, with the deviations of the reference compiler's parser:
/// `y` and `n` are text, and a float needs a dot.
fn resolve(text: String) -> Yaml {
    static INT: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"^[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*(?::[0-5]?[0-9])+)$",
        )
    });
    static FLOAT: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|[-+]?\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*)$",
        )
    });
    static DATE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"^(?:\d{4}-\d{2}-\d{2}|\d{4}-\d{1,2}-\d{1,2}(?:[Tt]|[ \t]+)\d{1,2}:\d{2}:\d{2}(?:\.\d*)?(?:[ \t]*(?:Z|[-+]\d{1,2}(?::\d{2})?))?)$",
        )
    });
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" => return Yaml::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Yaml::Bool(true);
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Yaml::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Yaml::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Yaml::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Yaml::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
        return Yaml::Text(text);
    }
    if INT.is_match(&text)
        && let Some(digits) = decimal(&text)
    {
        return Yaml::Int(digits);
    }
    if FLOAT.is_match(&text)
        && let Some(value) = float(&text)
    {
        return Yaml::Float(value);
    }
    if DATE.is_match(&text) { Yaml::Date(text) } else { Yaml::Text(text) }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("invariant: the patterns of scalars are valid")
}

/// The value of an integer as decimal digits.
fn decimal(text: &str) -> Option<String> {
    let plain = text.replace('_', "");
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let (digits, radix) = if let Some(binary) = digits.strip_prefix("0b") {
        (binary, 2)
    } else if let Some(hexadecimal) = digits.strip_prefix("0x") {
        (hexadecimal, 16)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (&digits[1..], 8)
    } else {
        (digits, 10)
    };
    let mut value = num_bigint::BigUint::ZERO;
    for part in digits.split(':') {
        // Parts between colons are digits of base 60.
        value = value * 60u32 + num_bigint::BigUint::parse_bytes(part.as_bytes(), radix)?;
    }
    let value = value.to_string();
    Some(if value == "0" { value } else { format!("{sign}{value}") })
}

fn float(text: &str) -> Option<f64> {
    let plain = text.replace('_', "");
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => (-1.0, digits),
        None => (1.0, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let mut value = 0.0;
    for part in digits.split(':') {
        value = value * 60.0 + part.parse::<f64>().ok()?;
    }
    Some(sign * value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Yaml {
        Yaml::Text(text.into())
    }

    fn value(yaml: &str) -> Yaml {
        parse(&format!("key: {yaml}")).unwrap().get("key").unwrap().clone()
    }

    #[test]
    fn plain_scalars_are_read_as_in_version_1_1() {
        for (yaml, expected) in [
            ("yes", Yaml::Bool(true)),
            ("Off", Yaml::Bool(false)),
            ("\"yes\"", text("yes")),
            ("y", text("y")),
            ("oN", text("oN")),
            ("", Yaml::Null),
            ("~", Yaml::Null),
            ("012", Yaml::Int("10".into())),
            ("0o12", text("0o12")),
            ("0x1F", Yaml::Int("31".into())),
            ("1_000", Yaml::Int("1000".into())),
            ("1:20", Yaml::Int("80".into())),
            ("-5", Yaml::Int("-5".into())),
            ("123456789012345678901234567890", Yaml::Int("123456789012345678901234567890".into())),
            ("1.10", Yaml::Float(1.1)),
            ("1e3", text("1e3")),
            ("1.0.0", text("1.0.0")),
            ("08", text("08")),
            ("2020-01-01", Yaml::Date("2020-01-01".into())),
            ("!!str 5", text("5")),
            ("! 5", text("5")),
            ("- 5", Yaml::List(vec![Yaml::Int("5".into())])),
            ("|\n  a\n  b\n", text("a\nb\n")),
        ] {
            if let Some(item) = yaml.strip_prefix("- ") {
                assert_eq!(value(&format!("[{item}]")), expected, "{yaml}");
            } else {
                assert_eq!(value(yaml), expected, "{yaml}");
            }
        }
    }

    #[test]
    fn the_last_of_equal_keys_counts_and_merges_count_least() {
        let read = parse("a: 1\na: 2\n<<: {a: 3, b: 4}\n").unwrap();
        assert_eq!(read.get("a"), Some(&Yaml::Int("2".into())));
        assert_eq!(read.get("b"), Some(&Yaml::Int("4".into())));
    }

    #[test]
    fn problems_have_a_location() {
        for (yaml, line, column) in [
            ("name: [\n", 1, 7),
            ("a: 1\n\tb: 2\n", 1, 4),
            ("name: *nowhere\n", 1, 7),
            ("a: 1\n---\nb: 2\n", 2, 1),
            ("a: !foo 1\n", 1, 9),
            ("a: b: c\n", 1, 5),
        ] {
            let problem = parse(yaml).unwrap_err();
            assert_eq!((problem.line, problem.column), (line, column), "{yaml:?}: {problem:?}");
            assert!(!problem.reason.is_empty());
        }
    }

    #[test]
    fn growth_and_depth_are_bounded() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let repeated = format!("*a{},", level - 1).repeat(10);
            bomb += &format!("a{level}: &a{level} [{repeated}]\n");
        }
        assert!(parse(&bomb).unwrap_err().reason.contains("more than"));
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse("a: &a [*a]").unwrap_err().reason.contains("inside of what it repeats"));
    }

    #[test]
    fn an_empty_text_is_null() {
        assert_eq!(parse("").unwrap(), Yaml::Null);
        assert_eq!(parse("# nothing\n").unwrap(), Yaml::Null);
    }
}
