//! Character tables of Python 3.13, where the standard library lacks them or follows another
//! version of Unicode. The files here are written by `tools/generate_tables.py`.

pub(crate) mod cases;
pub(crate) mod digits;
pub(crate) mod names;
#[expect(clippy::unreadable_literal, reason = "generated code points")]
pub(crate) mod printable;
pub(crate) mod titles;

use std::cmp::Ordering;

/// Returns true if sorted inclusive ranges contain a code point.
pub(crate) fn in_ranges(ranges: &[(u32, u32)], code: u32) -> bool {
    ranges
        .binary_search_by(|&(first, last)| {
            if last < code {
                Ordering::Less
            } else if first > code {
                Ordering::Greater
            } else {
                Ordering::Equal
            }
        })
        .is_ok()
}
