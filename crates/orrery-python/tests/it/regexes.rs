//! Patterns: which are accepted, what is said of the others, and what they match.

use crate::records::{Differences, rows, text};
use orrery_python::{PyError, PyRegex};
use serde_json::Value;

/// One digit a subject: 1 for match, 2 for fullmatch, 4 for search.
fn answers(pattern: &str, subjects: &[Value]) -> Result<String, PyError> {
    let regex = PyRegex::new(pattern)?;
    let mut digits = String::new();
    for subject in subjects {
        let subject = text(subject);
        let found = u8::from(regex.is_match_at_start(subject)?)
            + 2 * u8::from(regex.fullmatch(subject)?)
            + 4 * u8::from(regex.search(subject)?);
        digits.push(char::from(b'0' + found));
    }
    Ok(digits)
}

#[test]
fn chosen_patterns_mean_what_they_mean_in_python() {
    let recorded = rows("regex");
    let subjects = recorded[0][1].as_array().unwrap();
    let mut differences = Differences::default();
    for row in &recorded[1..] {
        differences.compare(&row[0], &row[1], answers(text(&row[0]), subjects));
    }
}

#[test]
fn random_patterns_mean_what_they_mean_in_python() {
    let mut differences = Differences::default();
    for row in rows("regex_random") {
        let actual = answers(text(&row[0]), row[1].as_array().unwrap());
        differences.compare(&row[..2], &row[2], actual);
    }
}

#[test]
fn case_is_ignored_for_the_same_characters_as_in_python() {
    for row in rows("regex_cases") {
        let group = text(&row[0]);
        let (first, last) = (group.chars().next().unwrap(), group.chars().last().unwrap());
        let in_set = PyRegex::new(&format!("(?i)[{first}]")).unwrap();
        let alone = PyRegex::new(&format!("(?i){last}")).unwrap();
        for subject in group.chars() {
            let subject = subject.to_string();
            assert_eq!(in_set.fullmatch(&subject), Ok(true), "{first:?} and {subject:?}");
            assert_eq!(alone.fullmatch(&subject), Ok(true), "{last:?} and {subject:?}");
        }
    }
}

#[test]
fn endless_backtracking_ends_in_an_error() {
    let regex = PyRegex::new(r"(?:(a|aa|aaa)+\1?)+b(?!c)").unwrap();
    assert_eq!(regex.search(&"a".repeat(200)).unwrap_err().kind, "RuntimeError");
}

#[test]
fn a_pattern_too_large_to_compile_is_an_error_when_it_is_used() {
    let regex = PyRegex::new("a{4294967294,}").unwrap();
    assert_eq!(regex.search("a").unwrap_err().kind, "RuntimeError");
}

#[test]
fn a_pattern_may_be_shared_between_threads() {
    let regex = PyRegex::new(r"\w+").unwrap();
    std::thread::scope(|scope| {
        for text in ["abc", "é", "a\n", ""] {
            let regex = &regex;
            scope.spawn(move || assert_eq!(regex.search(text), Ok(!text.is_empty())));
        }
    });
}
