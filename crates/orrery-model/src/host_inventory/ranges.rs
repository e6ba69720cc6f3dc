//! Names with ranges: `web[3..9].example.org` stands for seven hosts.

use super::problem::InventoryIssue;

/// Maximum number of names that one text stands for.
const NAMES_MAX: u64 = 100_000;

/// Expands the ranges of a name. Numbers keep the leading zeros of the first: `web[01..10]`.
pub(super) fn expand(text: &str) -> Result<Vec<String>, InventoryIssue> {
    let wrong = |expected| InventoryIssue::Range { given: text.to_owned(), expected };
    let mut names = vec![String::new()];
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        let form = "expected numbers as in web[3..9]";
        let (range, after) = after.split_once(']').ok_or_else(|| wrong(form))?;
        let (first, last) = range.split_once("..").ok_or_else(|| wrong(form))?;
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<u64>().ok()).flatten().ok_or_else(|| wrong(form))
        };
        let (start, end) = (number(first)?, number(last)?);
        if start > end {
            return Err(wrong("the first number must not be larger than the last"));
        }
        let count = (end - start).saturating_add(1).saturating_mul(names.len() as u64);
        if count > NAMES_MAX {
            return Err(wrong("it stands for more than 100000 hosts"));
        }
        // Without a leading zero, numbers have their natural width.
        let width = if first.starts_with('0') { first.len() } else { 0 };
        let one = |name: &String, number| format!("{name}{before}{number:0width$}");
        names = names
            .iter()
            .flat_map(|name| (start..=end).map(move |number| one(name, number)))
            .collect();
        rest = after;
    }
    if rest.contains(']') {
        return Err(wrong("there is a ] without its ["));
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_expanded_in_order() {
        let names = |text: &str| expand(text).map(|names| names.join(" "));
        assert_eq!(names("web1"), Ok("web1".to_owned()));
        assert_eq!(names("web[3..5].x"), Ok("web3.x web4.x web5.x".to_owned()));
        assert_eq!(names("n[08..10]"), Ok("n08 n09 n10".to_owned()));
        assert_eq!(names("n[9..10]"), Ok("n9 n10".to_owned()));
        assert_eq!(names("r[1..2]n[1..2]"), Ok("r1n1 r1n2 r2n1 r2n2".to_owned()));
    }

    #[test]
    fn wrong_ranges_are_refused() {
        for text in [
            "a[",
            "a]",
            "a[1]",
            "a[1..]",
            "a[x..3]",
            "a[3..1]",
            "a[0..999999]",
            "a[1..2",
            "a[-1..2]",
        ] {
            assert!(matches!(expand(text), Err(InventoryIssue::Range { .. })), "{text}");
        }
        let large = format!("a[0..{}]", u64::MAX);
        assert!(expand(&large).is_err());
        assert!(expand("a[1..1000]b[1..1000]").is_err());
    }
}
