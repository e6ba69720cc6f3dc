//! Python's semantics of scalars: unbounded integers, float and string rendering, number equality
//! and arithmetic, `str.format`, `%`, and the `re` dialect, as of Python 3.13.
//!
//! It knows nothing of models, instances or lists; the compiler builds those on top. Start from
//! `Int`, `Number`, `format_value` and `PyRegex`. A Python exception is a `PyError`.
//!
//! The tests in `tests/` replay recorded results of Python (`tools/record.py`).

mod error;
mod escapes;
mod float;
mod format;
mod int;
mod names;
mod number;
mod parse;
mod percent;
mod regex;
mod tables;
mod text;

pub use error::PyError;
pub use escapes::decode_escapes;
pub use float::repr_float;
pub use format::{FormatArg, FormatField, FormatPart, format_value, parse_format};
pub use int::{INT_BITS_MAX, Int, STR_DIGITS_MAX};
pub use names::character_by_name;
pub use number::{
    Number, PowResult, add, div, modulo, mul, num_cmp, num_eq, pow, repr_complex, sub,
};
pub use parse::{parse_float, parse_int};
pub use percent::{PercentArg, PercentArgs, percent_format};
pub use regex::PyRegex;
pub use text::{
    ascii_of_repr, ascii_str, decimal_digit, is_printable, is_space, repr_str, str_capitalize,
    str_lower, str_split, str_split_blanks, str_strip, str_upper, write_json_str, write_repr_str,
};
