//! Sanitizes outcomes from untrusted handlers (size limits, NUL bytes), so one bad result cannot
//! fail a batch.

use crate::clock::now;
use orrery_model::{Fact, LogLevel, LogLine, Outcome, Timestamp};
use serde_json::Value;

/// Maximum number of facts of one run.
const FACTS_MAX: usize = 1000;
/// Maximum bytes of a fact's name, which is part of a key.
const NAME_MAX: usize = 512;
/// Maximum bytes of a fact's value.
const VALUE_MAX: usize = 1024 * 1024;
/// Maximum bytes of a run's log and changes together, and of its facts together.
const OUTCOME_MAX: usize = 16 * 1024 * 1024;

/// Last time that every reader can show: the end of the year 9999.
const TIME_MAX: Timestamp = Timestamp(253_402_300_799_999_999);

/// Removes parts that cannot be stored, with a warning in the log.
pub fn sanitize_outcome(outcome: &mut Outcome) {
    let size = size_of_log(outcome).saturating_add(size_of_change(outcome));
    if size > OUTCOME_MAX {
        outcome.log.clear();
        outcome.change.attributes.clear();
        let text =
            format!("dropped the log and changes: {size} bytes exceed the limit of {OUTCOME_MAX}");
        warn(outcome, text);
    }
    for line in &mut outcome.log {
        line.at = line.at.clamp(Timestamp(0), TIME_MAX);
    }
    let original = outcome.facts.len();
    let mut budget = OUTCOME_MAX;
    outcome.facts.retain_mut(|fact| {
        let size = fact.name.len().saturating_add(fact.value.len());
        let fits = fact.name.len() <= NAME_MAX && fact.value.len() <= VALUE_MAX && size <= budget;
        if fits {
            budget -= size;
            replace_nul(fact);
        }
        fits
    });
    outcome.facts.truncate(FACTS_MAX);
    let dropped = original - outcome.facts.len();
    if dropped > 0 {
        let text = format!(
            "dropped {dropped} of {original} facts: at most {FACTS_MAX} per run, names up to {NAME_MAX} and values up to {VALUE_MAX} bytes"
        );
        warn(outcome, text);
    }
}

fn warn(outcome: &mut Outcome, message: String) {
    let values = serde_json::Map::new();
    outcome.log.push(LogLine { at: now(), level: LogLevel::Warning, message, values });
}

/// Replaces NUL characters, which databases reject in text.
fn replace_nul(fact: &mut Fact) {
    for text in [&mut fact.name, &mut fact.value] {
        if text.contains('\0') {
            *text = text.replace('\0', "\u{fffd}");
        }
    }
}

fn size_of_log(outcome: &Outcome) -> usize {
    let sizes = outcome.log.iter().map(|line| {
        let values = line.values.iter().map(|(name, value)| name.len() + size_of(value));
        LINE_OVERHEAD + line.message.len() + values.sum::<usize>()
    });
    sizes.sum()
}

fn size_of_change(outcome: &Outcome) -> usize {
    let changes = outcome.change.attributes.iter();
    changes
        .map(|one| LINE_OVERHEAD + one.name.len() + size_of(&one.current) + size_of(&one.desired))
        .sum()
}

/// Approximate overhead of a log line, in bytes.
const LINE_OVERHEAD: usize = 64;

/// Approximate size of a value as JSON, in bytes. Serializing it to measure would dominate the
/// cost.
fn size_of(value: &Value) -> usize {
    4 + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(size_of).sum(),
        Value::Object(entries) => entries.iter().map(|(name, of)| name.len() + size_of(of)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::{AttributeDiff, Change, OutcomeStatus};

    use super::*;

    fn outcome() -> Outcome {
        let (status, change) = (OutcomeStatus::Deployed, Change::default());
        Outcome { status, change, facts: Vec::new(), log: Vec::new() }
    }

    fn fact(name: impl Into<String>, value: impl Into<String>) -> Fact {
        Fact { name: name.into(), value: value.into(), expires: true }
    }

    #[test]
    fn an_outcome_within_limits_is_unchanged() {
        let mut original = outcome();
        original.facts = vec![fact("a", "1"), fact("n".repeat(NAME_MAX), "v".repeat(VALUE_MAX))];
        warn(&mut original, "with \0 in it, which is stored as JSON".to_owned());
        let mut sanitized = original.clone();
        sanitize_outcome(&mut sanitized);
        assert_eq!(sanitized, original);
    }

    #[test]
    fn times_that_no_reader_can_show_are_limited() {
        let mut outcome = outcome();
        for _ in 0..3 {
            warn(&mut outcome, "x".to_owned());
        }
        (outcome.log[0].at, outcome.log[1].at) = (Timestamp(i64::MAX), Timestamp(-1));
        let kept = outcome.log[2].at;
        sanitize_outcome(&mut outcome);
        let times: Vec<Timestamp> = outcome.log.iter().map(|line| line.at).collect();
        assert_eq!(times, [TIME_MAX, Timestamp(0), kept]);
    }

    #[test]
    fn invalid_facts_are_sanitized_or_dropped() {
        let mut outcome = outcome();
        let too_long = fact("n".repeat(NAME_MAX + 1), "");
        let too_large = fact("large", "v".repeat(VALUE_MAX + 1));
        outcome.facts = vec![fact("a\0b", "\0"), too_long, too_large];
        sanitize_outcome(&mut outcome);
        assert_eq!(outcome.facts, [fact("a\u{fffd}b", "\u{fffd}")]);
        assert!(outcome.log[0].message.starts_with("dropped 2 of 3 facts"), "{outcome:?}");
        outcome.facts = (0..2000).map(|number| fact(number.to_string(), "")).collect();
        sanitize_outcome(&mut outcome);
        assert_eq!(outcome.facts.len(), FACTS_MAX);
        outcome.facts = (0..100).map(|n| fact(n.to_string(), "v".repeat(VALUE_MAX))).collect();
        sanitize_outcome(&mut outcome);
        assert_eq!(outcome.facts.len(), 15);
    }

    #[test]
    fn a_log_over_the_limit_is_dropped() {
        for in_log in [true, false] {
            let mut outcome = outcome();
            let text = "x".repeat(OUTCOME_MAX);
            if in_log {
                warn(&mut outcome, text);
            } else {
                let (name, current) = ("a".to_owned(), Value::Array(vec![text.into()]));
                let change = AttributeDiff { name, current, desired: Value::Null };
                outcome.change.attributes = vec![change];
            }
            sanitize_outcome(&mut outcome);
            assert!(outcome.change.attributes.is_empty());
            assert_eq!(outcome.log.len(), 1);
            assert!(outcome.log[0].message.contains("exceed the limit"), "{outcome:?}");
        }
    }
}
