//! Characters by their Unicode name, for `\N{…}`.
//!
//! A name is looked up by a hash of 43 bits in a sorted table of 34 000 rows; that two real names do
//! not collide is checked when the table is made, and that a misspelt one hits by chance is a matter of one
//! in 10^8. The names themselves, ten times the size, are needed nowhere.

use crate::tables::in_ranges;
use crate::tables::names::CJK_UNIFIED;

/// Rows of eight bytes, little-endian: the upper 43 bits of the hash, then the code point.
static NAMES: &[u8] = include_bytes!("tables/names.bin");

const CODE_BITS: u32 = 21;

/// The character that Python's `\N{name}` stands for: names and formal aliases in any case, but the
/// names that follow a rule in upper case only.
pub fn character_by_name(name: &str) -> Option<char> {
    if let Some(syllable) = name.strip_prefix("HANGUL SYLLABLE ") {
        return hangul_syllable(syllable);
    }
    if let Some(hex) = name.strip_prefix("CJK UNIFIED IDEOGRAPH-") {
        return cjk_ideograph(hex);
    }
    let wanted = fnv1a(name.to_ascii_uppercase().as_bytes()) >> CODE_BITS;
    let rows = NAMES.as_chunks::<8>().0;
    let row =
        rows.binary_search_by_key(&wanted, |row| u64::from_le_bytes(*row) >> CODE_BITS).ok()?;
    char::from_u32(u64::from_le_bytes(rows[row]) as u32 & ((1 << CODE_BITS) - 1))
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn cjk_ideograph(hex: &str) -> Option<char> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
    let well_formed = matches!(hex.len(), 4 | 5) && hex.bytes().all(is_digit);
    let code = u32::from_str_radix(hex, 16).ok().filter(|_| well_formed)?;
    if in_ranges(CJK_UNIFIED, code) { char::from_u32(code) } else { None }
}

const LEADS: [&str; 19] = [
    "G", "GG", "N", "D", "DD", "R", "M", "B", "BB", "S", "SS", "", "J", "JJ", "C", "K", "T", "P",
    "H",
];
const VOWELS: [&str; 21] = [
    "A", "AE", "YA", "YAE", "EO", "E", "YEO", "YE", "O", "WA", "WAE", "OE", "YO", "U", "WEO", "WE",
    "WI", "YU", "EU", "YI", "I",
];
const TAILS: [&str; 28] = [
    "", "G", "GG", "GS", "N", "NJ", "NH", "D", "L", "LG", "LM", "LB", "LS", "LT", "LP", "LH", "M",
    "B", "BS", "S", "SS", "NG", "J", "C", "K", "T", "P", "H",
];

/// The parts of a syllable's name are unambiguous when each is taken as long as possible.
fn hangul_syllable(name: &str) -> Option<char> {
    let (lead, rest) = longest_prefix(&LEADS, name)?;
    let (vowel, rest) = longest_prefix(&VOWELS, rest)?;
    let tail = TAILS.iter().position(|tail| *tail == rest)?;
    char::from_u32(0xac00 + ((lead * 21 + vowel) * 28 + tail) as u32)
}

fn longest_prefix<'n>(parts: &[&str], name: &'n str) -> Option<(usize, &'n str)> {
    let starts = parts.iter().enumerate().filter(|(_, part)| name.starts_with(**part));
    let (index, part) = starts.max_by_key(|(_, part)| part.len())?;
    Some((index, &name[part.len()..]))
}
