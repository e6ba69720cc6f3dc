//! Properties that hold for any input.

use num_bigint::BigInt;
use orrery_python::*;
use proptest::prelude::*;
use std::cmp::Ordering;

fn any_int() -> impl Strategy<Value = Int> {
    prop_oneof![
        any::<i64>().prop_map(Int::from),
        any::<i128>().prop_map(|value| Int::from(BigInt::from(value))),
        (any::<i64>(), 0u32..1100)
            .prop_map(|(value, shift)| Int::from(BigInt::from(value) << shift)),
        (-(1i64 << 54)..(1 << 54)).prop_map(Int::from),
    ]
}

/// The float as a fraction over a power of two: value = numerator / 2^1074.
fn scaled(value: f64) -> BigInt {
    let bits = value.to_bits();
    let exponent = (bits >> 52) & 0x7ff;
    let mantissa = bits & ((1 << 52) - 1);
    let magnitude = match exponent {
        0 => BigInt::from(mantissa),
        _ => BigInt::from(mantissa | (1 << 52)) << (exponent - 1),
    };
    if value.is_sign_negative() { -magnitude } else { magnitude }
}

proptest! {
    #[test]
    #[expect(clippy::float_cmp, reason = "the exact value comes back")]
    fn the_repr_of_a_float_reads_back(bits: u64) {
        let value = f64::from_bits(bits);
        let back = parse_float(&repr_float(value)).unwrap();
        prop_assert!(back == value || (back.is_nan() && value.is_nan()));
    }

    #[test]
    fn the_text_of_an_integer_reads_back(value in any_int()) {
        let text = value.to_string();
        prop_assert_eq!(Int::parse_decimal(&text), Some(value.clone()));
        prop_assert_eq!(parse_int(&text), Ok(value));
    }

    #[test]
    fn comparison_with_a_float_is_exact(int in any_int(), bits: u64) {
        let float = f64::from_bits(bits);
        let expected = if float.is_nan() {
            None
        } else if float.is_infinite() {
            Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater })
        } else {
            Some((int.to_big().into_owned() << 1074u32).cmp(&scaled(float)))
        };
        let (int, float) = (Number::Int(int), Number::Float(float));
        prop_assert_eq!(num_cmp(&int, &float), expected);
        prop_assert_eq!(num_cmp(&float, &int), expected.map(Ordering::reverse));
    }

    #[test]
    fn comparison_with_the_nearest_float_is_exact(int in any_int(), offset in -1i64..=1) {
        if let Ok(float) = int.to_f64() {
            let int = int.add(&Int::from(offset));
            let expected = (int.to_big().into_owned() << 1074u32).cmp(&scaled(float));
            prop_assert_eq!(num_cmp(&Number::Int(int), &Number::Float(float)), Some(expected));
        }
    }

    #[test]
    fn small_arithmetic_agrees_with_big(a: i64, b: i64) {
        let (x, y) = (Int::from(a), Int::from(b));
        let (big_a, big_b) = (BigInt::from(a), BigInt::from(b));
        prop_assert_eq!(x.add(&y), Int::from(&big_a + &big_b));
        prop_assert_eq!(x.sub(&y), Int::from(&big_a - &big_b));
        prop_assert_eq!(x.mul(&y).unwrap(), Int::from(&big_a * &big_b));
        prop_assert_eq!(x.neg(), Int::from(-big_a));
    }

    #[test]
    fn formatting_never_panics(spec in "[<>=^+\\- z#0-9,_.a-zA-Z%é]{0,8}", bits: u64, int in any_int(), text: String) {
        let arguments = [
            FormatArg::Str(&text),
            FormatArg::Int(&int),
            FormatArg::Float(f64::from_bits(bits)),
            FormatArg::Bool(true),
            FormatArg::None,
        ];
        for argument in arguments {
            let _ = format_value(argument, &spec);
        }
    }

    #[test]
    fn any_text_is_taken_by_every_parser(text: String) {
        let _ = format_value(FormatArg::Float(1.5), &text);
        let _ = parse_format(&text);
        let _ = parse_int(&text);
        let _ = parse_float(&text);
        let _ = decode_escapes(&text);
        let _ = percent_format(&text, &PercentArgs::Single(FormatArg::Str("x").into()));
        let _ = character_by_name(&text);
    }

    #[test]
    fn templates_with_braces_never_panic(text in "[{}%()a-c:!\\[\\].*0-9sdfxré]{0,12}") {
        let _ = parse_format(&text);
        let five = Int::from(5);
        let _ = percent_format(&text, &PercentArgs::Single(FormatArg::Int(&five).into()));
    }

    #[test]
    fn escapes_never_panic(text in "[\\\\xuUN{}0-9a-f\\né]{0,12}") {
        let _ = decode_escapes(&text);
    }

    #[test]
    fn the_repr_of_a_string_decodes_to_it(text: String) {
        let repr = repr_str(&text);
        let inner = &repr[1..repr.len() - 1];
        prop_assert_eq!(decode_escapes(inner), Ok((text, false)));
    }

    #[test]
    fn any_pattern_compiles_or_is_refused(pattern in "[ab()\\[\\]{}*+?|\\\\^$.\\-=!<>:P0-9,dwxszié#\\n]{0,14}", subject in "[abé1 \\n]{0,10}") {
        if let Ok(regex) = PyRegex::new(&pattern) {
            let _ = regex.search(&subject);
            // What matches as a whole also matches at the start, and that is found by a search.
            if regex.fullmatch(&subject) == Ok(true) {
                prop_assert_eq!(regex.is_match_at_start(&subject), Ok(true));
            }
            if regex.is_match_at_start(&subject) == Ok(true) {
                prop_assert_eq!(regex.search(&subject), Ok(true));
            }
        }
    }
}
