//! Patterns of host names with `*`, `?` and negation, as in OpenSSH.

/// A pattern of a list; a negated one excludes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    negated: bool,
    text: String,
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Self {
        match text.strip_prefix('!') {
            Some(text) => Pattern { negated: true, text: text.to_owned() },
            None => Pattern { negated: false, text: text.to_owned() },
        }
    }
}

/// Returns true if a pattern matches and no negated one does.
pub(crate) fn matches_list(patterns: &[Pattern], name: &str) -> bool {
    let mut found = false;
    for pattern in patterns {
        if matches(pattern.text.as_bytes(), name.as_bytes()) {
            if pattern.negated {
                return false;
            }
            found = true;
        }
    }
    found
}

/// Matches in time proportional to the product of the lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    // Position after the last star, and the name's position when it was met.
    let mut star: Option<(usize, usize)> = None;
    while position < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, position));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[position] => {
                at += 1;
                position += 1;
            }
            _ => {
                let Some((after, began)) = star else { return false };
                star = Some((after, began + 1));
                at = after;
                position = began + 1;
            }
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_like_those_of_openssh() {
        for (patterns, name, expected) in [
            ("*", "anything", true),
            ("*", "", true),
            ("web?", "web1", true),
            ("web?", "web12", false),
            ("web*.example.org", "web1.example.org", true),
            ("web*.example.org", "web1.example.com", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "ab-ba", false),
            ("* !db*", "web1", true),
            ("* !db*", "db1", false),
            ("!db*", "web1", false),
            ("Web", "web", false),
            ("", "x", false),
        ] {
            let list: Vec<Pattern> = patterns.split(' ').map(Pattern::parse).collect();
            assert_eq!(matches_list(&list, name), expected, "{patterns} {name}");
        }
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let list = [Pattern::parse(&"*a".repeat(40))];
        assert!(!matches_list(&list, &"a".repeat(39)));
        assert!(!matches_list(&list, &format!("{}b", "a".repeat(5000))));
    }
}
