//! What a run came to, made fit to be kept: handlers in the code of modules and on other machines may answer anything, and what no
//! database takes must not keep the results of others from being kept.

use orrery_model::{Fact, LogLevel, LogLine, Outcome};
use serde_json::Value;

use crate::task::now;

/// Facts of one run.
const FACTS_MAX: usize = 1000;
/// Bytes of a fact's name: it is a part of a key.
const NAME_MAX: usize = 512;
/// Bytes of a fact's value.
const VALUE_MAX: usize = 1024 * 1024;
/// Bytes of a run's log and changes together, and of its facts together.
const OUTCOME_MAX: usize = 16 * 1024 * 1024;

/// Takes out what cannot be kept, and says so in the log.
pub(crate) fn fit(outcome: &mut Outcome) {
    let size = size_of_log(outcome).saturating_add(size_of_change(outcome));
    if size > OUTCOME_MAX {
        outcome.log.clear();
        outcome.change.attributes.clear();
        let text =
            format!("the log and the changes have {size} bytes, too many to be kept: left out");
        warn(outcome, text);
    }
    let given = outcome.facts.len();
    let mut left = OUTCOME_MAX;
    outcome.facts.retain_mut(|fact| {
        let size = fact.name.len().saturating_add(fact.value.len());
        let fits = fact.name.len() <= NAME_MAX && fact.value.len() <= VALUE_MAX && size <= left;
        if fits {
            left -= size;
            clean(fact);
        }
        fits
    });
    outcome.facts.truncate(FACTS_MAX);
    let left_out = given - outcome.facts.len();
    if left_out > 0 {
        let text = format!(
            "{left_out} of {given} facts are left out: there may be {FACTS_MAX}, with names of {NAME_MAX} and values of {VALUE_MAX} bytes"
        );
        warn(outcome, text);
    }
}

fn warn(outcome: &mut Outcome, message: String) {
    let values = serde_json::Map::new();
    outcome.log.push(LogLine { at: now(), level: LogLevel::Warning, message, values });
}

/// No text of a database holds the character that ends texts elsewhere.
fn clean(fact: &mut Fact) {
    for text in [&mut fact.name, &mut fact.value] {
        if text.contains('\0') {
            *text = text.replace('\0', "\u{fffd}");
        }
    }
}

fn size_of_log(outcome: &Outcome) -> usize {
    let sizes = outcome.log.iter().map(|line| {
        let values = line.values.iter().map(|(name, value)| name.len() + size_of(value));
        LINE + line.message.len() + values.sum::<usize>()
    });
    sizes.sum()
}

fn size_of_change(outcome: &Outcome) -> usize {
    let changes = outcome.change.attributes.iter();
    changes.map(|one| LINE + one.name.len() + size_of(&one.current) + size_of(&one.desired)).sum()
}

/// About what stands around the texts of a line.
const LINE: usize = 64;

/// About as many bytes as the value has as a text; writing it down only to measure it would cost more than all else here.
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
    use orrery_model::{AttributeChange, Change, OutcomeStatus};

    use super::*;

    fn outcome() -> Outcome {
        let (status, change) = (OutcomeStatus::Deployed, Change::default());
        Outcome { status, change, facts: Vec::new(), log: Vec::new() }
    }

    fn fact(name: impl Into<String>, value: impl Into<String>) -> Fact {
        Fact { name: name.into(), value: value.into(), expires: true }
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        let mut given = outcome();
        given.facts = vec![fact("a", "1"), fact("n".repeat(NAME_MAX), "v".repeat(VALUE_MAX))];
        warn(&mut given, "with \0 in it, which is written as a text of JSON".to_owned());
        let mut fitted = given.clone();
        fit(&mut fitted);
        assert_eq!(fitted, given);
    }

    #[test]
    fn facts_that_no_database_takes_are_cleaned_or_left_out() {
        let mut outcome = outcome();
        let too_long = fact("n".repeat(NAME_MAX + 1), "");
        let too_large = fact("large", "v".repeat(VALUE_MAX + 1));
        outcome.facts = vec![fact("a\0b", "\0"), too_long, too_large];
        fit(&mut outcome);
        assert_eq!(outcome.facts, [fact("a\u{fffd}b", "\u{fffd}")]);
        assert!(outcome.log[0].message.starts_with("2 of 3 facts are left out"), "{outcome:?}");
        outcome.facts = (0..2000).map(|number| fact(number.to_string(), "")).collect();
        fit(&mut outcome);
        assert_eq!(outcome.facts.len(), FACTS_MAX);
        outcome.facts = (0..100).map(|n| fact(n.to_string(), "v".repeat(VALUE_MAX))).collect();
        fit(&mut outcome);
        assert_eq!(outcome.facts.len(), 15);
    }

    #[test]
    fn a_log_that_is_too_long_is_left_out() {
        for in_log in [true, false] {
            let mut outcome = outcome();
            let text = "x".repeat(OUTCOME_MAX);
            if in_log {
                warn(&mut outcome, text);
            } else {
                let (name, current) = ("a".to_owned(), Value::Array(vec![text.into()]));
                let change = AttributeChange { name, current, desired: Value::Null };
                outcome.change.attributes = vec![change];
            }
            fit(&mut outcome);
            assert!(outcome.change.attributes.is_empty());
            assert_eq!(outcome.log.len(), 1);
            assert!(outcome.log[0].message.contains("too many to be kept"), "{outcome:?}");
        }
    }
}
