//! Case equivalence of characters under `re.IGNORECASE`.

use crate::tables::cases::CASE_EQUIVALENCES;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Groups of at least two characters that match each other.
static GROUPS: LazyLock<Vec<Vec<char>>> = LazyLock::new(|| {
    let mut by_lower: BTreeMap<char, Vec<char>> = BTreeMap::new();
    // No character beyond this plane has a case.
    for character in '\0'..='\u{1ffff}' {
        let lower = simple_lower(character);
        if lower != character {
            by_lower.entry(lower).or_insert_with(|| vec![lower]).push(character);
        }
    }
    for equivalent in CASE_EQUIVALENCES {
        let mut merged = Vec::new();
        for lower in equivalent.chars() {
            merged.extend(by_lower.remove(&lower).unwrap_or_else(|| vec![lower]));
        }
        if let Some(first) = equivalent.chars().next() {
            by_lower.insert(first, merged);
        }
    }
    by_lower.into_values().collect()
});

/// The single character that lowering starts with; only U+0130 lowers to more than one.
fn simple_lower(character: char) -> char {
    character.to_lowercase().next().unwrap_or(character)
}

/// All groups, for character sets.
pub(super) fn groups() -> &'static [Vec<char>] {
    &GROUPS
}

/// The ASCII characters that match `character` when case is ignored: all that matters for a text of
/// ASCII, and cheap.
pub(super) fn ascii_equivalents(character: char) -> Vec<char> {
    let letter = match character {
        '\u{130}' | '\u{131}' => 'i',
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other,
    };
    if letter.is_ascii_alphabetic() {
        return vec![letter.to_ascii_lowercase(), letter.to_ascii_uppercase()];
    }
    vec![letter]
}

/// All characters that match `character` when case is ignored.
pub(super) fn equivalents(character: char) -> Vec<char> {
    match GROUPS.iter().find(|group| group.contains(&character)) {
        Some(group) => group.clone(),
        None => vec![character],
    }
}
