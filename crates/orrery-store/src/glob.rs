//! Patterns for the values in resource ids.

/// Matches `text` against `pattern`, in which `*` is any text and `?` any one character. All other
/// characters, brackets too, are literal, because values often contain them.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut from) = (0, 0);
    // Backtracking position if the text after the last star does not match: the star consumes one
    // more character.
    let mut retry: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some('*') => {
                retry = Some((at + 1, from));
                at += 1;
            }
            Some(expected) if *expected == '?' || *expected == text[from] => {
                at += 1;
                from += 1;
            }
            _ => match retry {
                Some((after_star, consumed)) => {
                    retry = Some((after_star, consumed + 1));
                    (at, from) = (after_star, consumed + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

/// Matches `text` against a pattern, or else searches for the text in it, ignoring case.
pub(crate) fn matches_or_contains(pattern: &str, text: &str) -> bool {
    if pattern.contains(['*', '?']) {
        matches(pattern, text)
    } else {
        text.to_lowercase().contains(&pattern.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::{matches, matches_or_contains};

    #[test]
    fn a_text_without_stars_matches_a_part() {
        assert!(matches_or_contains("MOTD", "/etc/motd.d"));
        assert!(!matches_or_contains("*motd", "/etc/motd.d"));
    }

    #[test]
    fn stars_and_question_marks_stand_for_text() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "anything"),
            ("/etc/*", "/etc/motd"),
            ("*.conf", "/etc/a.conf.d/b.conf"),
            ("a?c", "aéc"),
            ("*a*b*", "xxaxxbxx"),
            ("[x]*", "[x],y=z"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "a"), ("?", ""), ("a", "b"), ("a*", "ba"), ("*.conf", "a.conf~"), ("[x]", "x")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
