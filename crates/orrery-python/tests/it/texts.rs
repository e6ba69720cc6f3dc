//! Strings: repr, case, numbers in them, escapes.

use crate::records::{Differences, rows, show_number, text};
use orrery_python::*;

#[test]
fn strings_render_and_change_case_as_in_python() {
    let mut differences = Differences::default();
    for row in rows("text") {
        let subject = text(&row[1]);
        let actual = match text(&row[0]) {
            "repr" => repr_str(subject),
            "ascii" => ascii_str(subject),
            "upper" => str_upper(subject),
            "lower" => str_lower(subject),
            "capitalize" => str_capitalize(subject),
            "strip" => str_strip(subject).to_string(),
            "split" => {
                let parts: Vec<String> =
                    str_split_blanks(subject).into_iter().map(repr_str).collect();
                format!("[{}]", parts.join(", "))
            }
            other => panic!("no such method: {other}"),
        };
        differences.compare(&row[..2], &row[2], Ok(actual));
    }
}

#[test]
fn every_character_is_classed_as_in_python() {
    let recorded = rows("characters");
    for name in ["isprintable", "isspace", "isdecimal"] {
        let class = |c| match name {
            "isprintable" => is_printable(c),
            "isspace" => is_space(c),
            _ => decimal_digit(c).is_some(),
        };
        let ranges: Vec<(u32, u32)> = recorded
            .iter()
            .filter(|row| row[0] == name)
            .map(|row| (row[1].as_u64().unwrap() as u32, row[2].as_u64().unwrap() as u32))
            .collect();
        assert!(!ranges.is_empty());
        for c in '\0'..=char::MAX {
            let code = u32::from(c);
            let following = ranges.partition_point(|range| range.0 <= code);
            let expected = following > 0 && code <= ranges[following - 1].1;
            assert_eq!(class(c), expected, "{name} of U+{code:04X}");
        }
    }
}

#[test]
fn numbers_are_read_from_text_as_in_python() {
    let mut differences = Differences::default();
    for row in rows("parsing") {
        let subject = text(&row[1]);
        let actual = match text(&row[0]) {
            "int" => parse_int(subject).map(|value| format!("i:{value}")),
            _ => parse_float(subject).map(|value| match value {
                // Python's records keep the sign of nan, which nothing can tell.
                value if value.is_nan() => format!("f:{:016x}", value.to_bits()),
                value => show_number(&Number::Float(value)),
            }),
        };
        differences.compare(&row[..2], &row[2], actual);
    }
}

#[test]
fn escapes_decode_as_in_python() {
    let mut differences = Differences::default();
    for row in rows("escapes") {
        let actual = decode_escapes(text(&row[0]))
            .map(|(text, invalid)| if invalid { text + "\tinvalid" } else { text });
        differences.compare(&row[0], &row[1], actual);
    }
}

#[test]
fn characters_have_the_names_that_python_knows() {
    let mut differences = Differences::default();
    for row in rows("names") {
        let actual = decode_escapes(&format!("\\N{{{}}}", text(&row[0]))).map(|(text, _)| text);
        differences.compare(&row[0], &row[1], actual);
    }
}

#[test]
fn a_lone_surrogate_is_refused() {
    let error = decode_escapes(r"é\ud83d\ude00").unwrap_err();
    assert_eq!(error.kind, "UnicodeEncodeError");
    assert_eq!(
        error.message,
        "'utf-8' codec can't encode character '\\ud83d' in position 1: surrogates not allowed"
    );
}

#[test]
fn splitting_at_nothing_is_an_error() {
    assert_eq!(str_split("a,b,,", ",").unwrap(), ["a", "b", "", ""]);
    assert_eq!(str_split("a", "").unwrap_err().message, "empty separator");
}
