//! `format()`, format templates and the `%` operator.

use crate::records::{Differences, number, rows, text};
use orrery_python::*;
use serde_json::Value;

/// A value as the records write it, which owns what a `FormatArg` borrows.
enum Recorded {
    Str(String),
    Number(Number),
    Bool(bool),
    None,
    Other { type_name: String, text: String },
}

impl Recorded {
    fn read(value: &Value) -> Recorded {
        let (kind, rest) = text(value).split_once(':').unwrap();
        match kind {
            "s" => Recorded::Str(rest.to_string()),
            "b" => Recorded::Bool(rest == "True"),
            "n" => Recorded::None,
            "o" => {
                let (type_name, text) = rest.split_once(':').unwrap();
                Recorded::Other { type_name: type_name.to_string(), text: text.to_string() }
            }
            _ => Recorded::Number(number(value)),
        }
    }

    fn argument(&self) -> FormatArg<'_> {
        match self {
            Recorded::Str(text) => FormatArg::Str(text),
            Recorded::Number(Number::Int(value)) => FormatArg::Int(value),
            Recorded::Number(Number::Float(value)) => FormatArg::Float(*value),
            Recorded::Bool(value) => FormatArg::Bool(*value),
            Recorded::None => FormatArg::None,
            Recorded::Other { type_name, text } => FormatArg::Other { type_name, text },
        }
    }
}

#[test]
fn values_are_formatted_as_in_python() {
    let mut differences = Differences::default();
    for row in rows("format") {
        let value = Recorded::read(&row[0]);
        let actual = format_value(value.argument(), text(&row[1]));
        differences.compare(&row[..2], &row[2], actual);
    }
}

#[test]
fn templates_are_cut_as_in_python() {
    let mut differences = Differences::default();
    for row in rows("templates") {
        let actual = parse_format(text(&row[0])).map(|parts| {
            let shown: Vec<String> = parts.iter().map(show_part).collect();
            shown.join("\u{2}")
        });
        differences.compare(&row[0], &row[1], actual);
    }
}

fn show_part(part: &FormatPart) -> String {
    match &part.field {
        None => part.literal.clone(),
        Some(field) => format!(
            "{}\u{1}{}\u{1}{}\u{1}{}",
            part.literal,
            field.name,
            field.spec,
            field.conversion.map(String::from).unwrap_or_default()
        ),
    }
}

#[test]
fn the_percent_operator_formats_as_in_python() {
    let mut differences = Differences::default();
    for row in rows("percent") {
        let (template, kind, whole) = (text(&row[0]), text(&row[1]), text(&row[3]));
        let actual = match kind {
            "single" => {
                let value = Recorded::read(&row[2]);
                percent_format(template, &PercentArgs::Single(value.argument().into()))
            }
            "tuple" => {
                let values: Vec<Recorded> =
                    row[2].as_array().unwrap().iter().map(Recorded::read).collect();
                let arguments: Vec<PercentArg<'_>> =
                    values.iter().map(|value| value.argument().into()).collect();
                percent_format(template, &PercentArgs::Tuple(&arguments))
            }
            _ => {
                let values: Vec<(String, Recorded)> = row[2]
                    .as_object()
                    .unwrap()
                    .iter()
                    .map(|(key, value)| (key.clone(), Recorded::read(value)))
                    .collect();
                let get = |key: &str| {
                    let found = values.iter().find(|(known, _)| known == key)?;
                    Some(PercentArg::from(found.1.argument()))
                };
                let whole = FormatArg::Other { type_name: "dict", text: whole };
                percent_format(template, &PercentArgs::Mapping { get: &get, whole: whole.into() })
            }
        };
        differences.compare(&row[..3], &row[4], actual);
    }
}

#[test]
fn a_width_that_fills_the_memory_is_refused() {
    for spec in ["99999999999", "099999999999,", ".2000000000f"] {
        let error = format_value(FormatArg::Float(1.0), spec).unwrap_err();
        assert_eq!(error.kind, "MemoryError", "{spec}");
    }
    let single = PercentArgs::Single(FormatArg::Float(1.0).into());
    assert_eq!(percent_format("%99999999999f", &single).unwrap_err().kind, "MemoryError");
}
