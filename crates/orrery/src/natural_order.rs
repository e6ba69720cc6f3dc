//! Natural sort order: numbers in names compare by value, so `service-2` precedes `service-10`.

use std::cmp::Ordering;

/// Compares names piece by piece: digits by value, other characters as they are.
pub(crate) fn compare(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one, other);
    loop {
        let (a, b) = (digits(left), digits(right));
        if !a.is_empty() && !b.is_empty() {
            let (x, y) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
            let order = x.len().cmp(&y.len()).then_with(|| x.cmp(y));
            if order != Ordering::Equal {
                return order;
            }
            (left, right) = (&left[a.len()..], &right[b.len()..]);
            continue;
        }
        let (mut rest_left, mut rest_right) = (left.chars(), right.chars());
        match (rest_left.next(), rest_right.next()) {
            // `a1` and `a01` are different names.
            (None, None) => return one.cmp(other),
            (a, b) if a != b => return a.cmp(&b),
            _ => (left, right) = (rest_left.as_str(), rest_right.as_str()),
        }
    }
}

fn digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_as_numbers() {
        let mut names = [
            "b",
            "service-10",
            "service-2",
            "service-2b",
            "service-02",
            "é9",
            "é10",
            "",
            "7",
            "12",
        ];
        names.sort_unstable_by(|one, other| compare(one, other));
        assert_eq!(
            names,
            [
                "",
                "7",
                "12",
                "b",
                "service-02",
                "service-2",
                "service-2b",
                "service-10",
                "é9",
                "é10"
            ]
        );
        assert_eq!(compare("a1", "a01"), "a1".cmp("a01"));
    }
}
