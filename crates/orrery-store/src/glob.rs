//! Patterns for the values in resource ids.

/// Whether `text` matches `pattern`, in which `*` is any text and `?` any one character. Everything else,
/// brackets too, means itself: values are full of them.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut from) = (0, 0);
    // Where to go on if what follows the last star does not fit: the star takes one character more.
    let mut retry: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some('*') => {
                retry = Some((at + 1, from));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == text[from] => {
                at += 1;
                from += 1;
            }
            _ => match retry {
                Some((after_star, taken)) => {
                    retry = Some((after_star, taken + 1));
                    (at, from) = (after_star, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

/// Whether `text` matches `wanted` if that is a pattern, and otherwise has it in it, in any case of letters.
pub(crate) fn matches_or_contains(wanted: &str, text: &str) -> bool {
    if wanted.contains(['*', '?']) {
        matches(wanted, text)
    } else {
        text.to_lowercase().contains(&wanted.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::{matches, matches_or_contains};

    #[test]
    fn without_stars_a_part_is_enough() {
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
