//! A few meanings that the language relies on most, readable without Python at hand.

use orrery_python::*;

fn int(value: i64) -> Number {
    Number::Int(Int::from(value))
}

#[test]
fn modulo_takes_the_sign_of_the_divisor() {
    for (a, b, expected) in [(10, -3, -2), (-7, 3, 2), (7, 3, 1), (i64::MIN, -1, 0)] {
        assert!(num_eq(&modulo(&int(a), &int(b)).unwrap(), &int(expected)), "{a} % {b}");
    }
}

#[test]
fn a_huge_power_is_refused_at_once() {
    let error = pow(&int(2), &int(10_000_000_000)).unwrap_err();
    assert_eq!(error.kind, "MemoryError");
}

#[test]
#[expect(clippy::unreadable_literal, reason = "as written in Python")]
fn numbers_and_strings_render_as_in_python() {
    assert_eq!(repr_float(1e16), "1e+16");
    assert_eq!(repr_float(1e-5), "1e-05");
    assert_eq!(repr_float(123456.0), "123456.0");
    assert_eq!(repr_str("it's\n\u{7f}é\u{200b}"), "\"it's\\n\\x7fé\\u200b\"");
    assert_eq!(Int::parse_decimal("-007"), Some(Int::from(-7)));
}

#[test]
#[expect(clippy::unreadable_literal, reason = "as written in Python")]
fn formatting_follows_the_mini_language() {
    let value = Int::from(-1_234_567);
    assert_eq!(format_value(FormatArg::Int(&value), "015,d").unwrap(), "-00,001,234,567");
    assert_eq!(format_value(FormatArg::Float(0.000123), "+.2e").unwrap(), "+1.23e-04");
    assert_eq!(format_value(FormatArg::Str("ab"), "*^5").unwrap(), "*ab**");
    let error = format_value(FormatArg::Str("ab"), "d").unwrap_err();
    assert_eq!(error.message, "Unknown format code 'd' for object of type 'str'");
}

#[test]
fn a_regex_matches_at_the_start_only() {
    let regex = PyRegex::new("[a-z]+$").unwrap();
    assert!(regex.is_match_at_start("abc\n").unwrap());
    assert!(!regex.fullmatch("abc\n").unwrap());
    assert!(!regex.is_match_at_start("1abc").unwrap());
    assert!(regex.search("1abc").unwrap());
    let error = PyRegex::new("a(b").unwrap_err();
    assert_eq!(error.message, "missing ), unterminated subpattern at position 1");
}
