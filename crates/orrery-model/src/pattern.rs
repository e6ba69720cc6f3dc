//! Patterns to select resources by their ids: one language for commands, API and store.
//!
//! A text without wildcards is looked for; a text with `*` (any text) or `?` (any one character)
//! must match as a whole. Names of hosts and groups always match as a whole. All other characters, brackets too, are literal: ids are full of them.
//! Upper and lower case are the same.

use crate::ResourceId;

/// A pattern for ids of resources, or for their values.
///
/// It is parsed once; the store, the server and the command line all ask the same parsed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    folded: Box<str>,
    has_wildcards: bool,
}

impl Pattern {
    pub fn new(text: impl Into<Box<str>>) -> Self {
        let text = text.into();
        let folded = text.chars().map(fold).collect::<String>().into();
        let has_wildcards = text.contains(['*', '?']);
        Pattern { text, folded, has_wildcards }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// True if the id contains the text; with wildcards, if the whole id or its whole value matches.
    pub fn matches(&self, id: &ResourceId) -> bool {
        // The value is a part of the id.
        self.matches_text(id.as_str()) || (self.has_wildcards && self.matches_value(id))
    }

    /// True if the value of the id contains the text; with wildcards, if the whole value matches.
    pub fn matches_value(&self, id: &ResourceId) -> bool {
        self.matches_text(id.value())
    }

    /// True if the whole name matches, with or without wildcards: for names that are few and known.
    pub fn matches_name(&self, name: &str) -> bool {
        wildcards_match(&self.folded, name, |pattern, other| pattern == fold(other))
    }

    /// True if the text contains that of the pattern; with wildcards, if the whole text matches.
    pub fn matches_text(&self, text: &str) -> bool {
        if self.has_wildcards {
            wildcards_match(&self.folded, text, |pattern, other| pattern == fold(other))
        } else {
            contains_folded(text, &self.folded)
        }
    }
}

/// Lower case of a character, unless that is several characters: `?` is one character of the text.
fn fold(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    let mut lower = c.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

/// True if the folded text contains a folded part.
fn contains_folded(text: &str, part: &str) -> bool {
    if part.is_empty() {
        return true;
    }
    if text.is_ascii() && part.is_ascii() {
        let windows = text.as_bytes().windows(part.len());
        return windows.into_iter().any(|window| window.eq_ignore_ascii_case(part.as_bytes()));
    }
    text.chars().map(fold).collect::<String>().contains(part)
}

/// Returns true if the whole text matches a pattern with wildcards, in its case.
pub fn matches_wildcards(pattern: &str, text: &str) -> bool {
    wildcards_match(pattern, text, |one, other| one == other)
}

fn wildcards_match(pattern: &str, text: &str, is_same: impl Fn(char, char) -> bool) -> bool {
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
            Some(one) if text.next().is_some_and(|other| one == '?' || is_same(one, other)) => {
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
    use proptest::prelude::*;

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
            ("a", "A"),
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
        for pattern in ["web2", "etc/*", "std::File[web?", "?"] {
            assert!(!Pattern::new(pattern).matches(&id), "{pattern}");
        }
        for pattern in ["motd", "*/motd", "/ETC/"] {
            assert!(Pattern::new(pattern).matches_value(&id), "{pattern}");
        }
        for pattern in ["File", "std::*", "*motd]"] {
            assert!(!Pattern::new(pattern).matches_value(&id), "{pattern}");
        }
    }

    #[test]
    fn a_name_fits_as_a_whole() {
        for pattern in ["web1", "WEB1", "web?", "*1"] {
            assert!(Pattern::new(pattern).matches_name("web1"), "{pattern}");
        }
        for pattern in ["web", "", "eb1", "web1?", "[web1]"] {
            assert!(!Pattern::new(pattern).matches_name("web1"), "{pattern}");
        }
    }

    #[test]
    fn upper_and_lower_case_are_the_same() {
        let id: ResourceId = "std::File[web1,path=/srv/Überblick]".parse().unwrap();
        for pattern in ["ÜBERBLICK", "überblick", "/SRV/*", "std::file[*", "*/?berBLICK"] {
            assert!(Pattern::new(pattern).matches(&id), "{pattern}");
        }
    }

    proptest! {
        /// The search without copies finds what the obvious one finds.
        #[test]
        fn parts_are_found_like_in_lower_case_copies(text in "[abAB=é\\[]{0,6}", part in "[abAB=É]{0,3}") {
            let id: ResourceId = format!("t::R[agent,name={text}x]").parse().unwrap();
            let copies = id.as_str().to_lowercase().contains(&part.to_lowercase());
            prop_assert_eq!(Pattern::new(part).matches(&id), copies);
        }

        /// A pattern matches a text in any case, and the text with wildcards around it is the text.
        #[test]
        fn wildcards_around_a_text_look_for_it(text in "[abAB=é]{0,6}", part in "[abAB=É]{1,3}") {
            let id: ResourceId = format!("t::R[agent,name={text}x]").parse().unwrap();
            let found = Pattern::new(part.clone()).matches_value(&id);
            prop_assert_eq!(Pattern::new(format!("*{part}*")).matches_value(&id), found);
        }
    }
}
