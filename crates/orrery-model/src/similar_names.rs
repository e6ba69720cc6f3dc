//! Suggestions of similar names.

/// Returns the closest name, if it is similar enough.
pub fn closest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // Every one-letter name is close to every other, which says nothing.
    closest_within(name, known, (name.chars().count() + 1) / 3)
}

/// Returns the closest name within this edit distance.
pub fn closest_within<'n>(
    name: &str,
    known: impl Iterator<Item = &'n str>,
    limit: usize,
) -> Option<&'n str> {
    known
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= 4 * limit)
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Damerau-Levenshtein distance: insertions, deletions, replacements and swaps of neighbours.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    let mut last = None;
    for (i, x) in one.chars().enumerate() {
        let mut row = vec![i + 1];
        for (j, &y) in other.iter().enumerate() {
            let replaced = above[j] + usize::from(x != y);
            let mut least = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if j > 0 && last == Some(y) && other[j - 1] == x {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
        last = Some(x);
    }
    above[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_letters_are_one_mistake() {
        assert_eq!(distance("pirnt", "print"), 1);
        assert_eq!(distance("pirnt", "port"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("size", "sizes"), 1);
    }

    #[test]
    fn the_closest_name_is_found_whatever_the_order() {
        let known = ["port", "print", "prefix"];
        assert_eq!(closest("pirnt", known.into_iter()), Some("print"));
        assert_eq!(closest("pirnt", known.into_iter().rev()), Some("print"));
        assert_eq!(closest("hello", known.into_iter()), None);
        // Of equally close names, the first alphabetically.
        assert_eq!(closest("ab", ["ad", "ac"].into_iter()), Some("ac"));
    }
}
