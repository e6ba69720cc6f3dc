//! Patterns to select resources by parts of their ids.

use crate::ResourceId;

/// A substring of an id; or, with `*` (any text) and `?` (any one character), a pattern for a whole
/// id or its value. All other characters, brackets too, are literal: ids are full of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    has_wildcards: bool,
}

impl Pattern {
    pub fn new(text: impl Into<Box<str>>) -> Self {
        let text = text.into();
        let has_wildcards = text.contains(['*', '?']);
        Pattern { text, has_wildcards }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn matches(&self, id: &ResourceId) -> bool {
        if self.has_wildcards {
            return matches_wildcards(&self.text, id.as_str())
                || matches_wildcards(&self.text, id.value());
        }
        id.as_str().contains(&*self.text)
    }
}

/// Returns true if the whole text matches a pattern with wildcards.
pub(crate) fn matches_wildcards(pattern: &str, text: &str) -> bool {
    let (mut wanted, mut given) = (pattern, text);
    // Resumption point if the rest after the last star does not match: the star takes one more
    // character.
    let mut retry: Option<(&str, &str)> = None;
    loop {
        let (mut pattern, mut text) = (wanted.chars(), given.chars());
        match pattern.next() {
            Some('*') => {
                wanted = pattern.as_str();
                retry = Some((wanted, given));
                continue;
            }
            Some(one) if text.next().is_some_and(|other| one == '?' || one == other) => {
                (wanted, given) = (pattern.as_str(), text.as_str());
                continue;
            }
            None if given.is_empty() => return true,
            _ => {}
        }
        let Some((after_star, taken)) = retry else { return false };
        let mut rest = taken.chars();
        if rest.next().is_none() {
            return false;
        }
        (wanted, given) = (after_star, rest.as_str());
        retry = Some((wanted, given));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("*aab", "aaab"),
            ("[x]*", "[x],y=z"),
        ] {
            assert!(matches_wildcards(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("?", ""),
            ("a", "b"),
            ("a*", "ba"),
            ("*a?", "a"),
            ("*.conf", "a.conf~"),
            ("[x]", "x"),
        ] {
            assert!(!matches_wildcards(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_text_is_looked_for_and_a_pattern_fits_as_a_whole() {
        let id: ResourceId = "std::File[web1,path=/etc/motd]".parse().unwrap();
        for pattern in ["motd", "File[web1", "/etc/*", "std::File[web?,*", "*motd]"] {
            assert!(Pattern::new(pattern).matches(&id), "{pattern}");
        }
        for pattern in ["Motd", "web2", "etc/*", "std::File[web?", "?"] {
            assert!(!Pattern::new(pattern).matches(&id), "{pattern}");
        }
    }
}
