//! Sorts resources by id.

use orrery_model::Resource;

/// Shorter runs are sorted by full comparison.
const RUN_MIN: usize = 24;

/// The number of a resource with the next compared bytes of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    key: u64,
    number: u32,
}

/// Numbers of all present resources, by id; equal ids are adjacent, in original order.
pub(super) fn by_id(resources: &[Option<Resource>]) -> Vec<u32> {
    let present = |(resource, number): (&Option<Resource>, u32)| resource.as_ref().map(|_| number);
    let numbers = resources.iter().zip(0..).filter_map(present);
    let id = |number: u32| resources[number as usize].as_ref().map_or("", |r| r.id.as_str());
    sorted(numbers, id)
}

/// Sorts numbers by their texts. Ids share long prefixes, and comparing those repeatedly dominates
/// an ordinary sort. Here the common prefix of a run is skipped once, and the next eight bytes are
/// compared as one number; runs that are still equal follow.
fn sorted<'t>(numbers: impl Iterator<Item = u32>, text: impl Fn(u32) -> &'t str) -> Vec<u32> {
    let mut items: Vec<Item> = numbers.map(|number| Item { key: 0, number }).collect();
    let bytes = |item: &Item| text(item.number).as_bytes();
    let mut runs = vec![(0..items.len(), 0)];
    while let Some((range, known)) = runs.pop() {
        let start = range.start;
        let run = &mut items[range];
        if run.len() < RUN_MIN {
            run.sort_unstable_by(|a, b| (bytes(a), a.number).cmp(&(bytes(b), b.number)));
            continue;
        }
        let first = &bytes(&run[0])[known..];
        let mut common = first.len();
        for item in &run[1..] {
            let other = &bytes(item)[known..];
            common = first.iter().zip(other).take(common).take_while(|(a, b)| a == b).count();
        }
        let from = known + common;
        let mut is_whole = true;
        for item in run.iter_mut() {
            let rest = &bytes(item)[from..];
            is_whole &= rest.len() >= 8;
            let mut key = [0; 8];
            let length = rest.len().min(8);
            key[..length].copy_from_slice(&rest[..length]);
            item.key = u64::from_be_bytes(key);
        }
        run.sort_unstable();
        let mut at = 0;
        while at < run.len() {
            let key = run[at].key;
            let equal = run[at..].iter().take_while(|item| item.key == key).count();
            let same = &mut run[at..at + equal];
            if is_whole {
                runs.push((start + at..start + at + equal, from + 8));
            } else {
                // A text that ended may differ from another one by zeros only: these are compared
                // in full.
                same.sort_unstable_by(|a, b| (bytes(a), a.number).cmp(&(bytes(b), b.number)));
            }
            at += equal;
        }
    }
    items.into_iter().map(|item| item.number).collect()
}

/// Permutes in place: `place[i]` is the new position of the `i`th item. Each position occurs once.
pub(super) fn arrange<T>(items: &mut [T], mut place: Vec<u32>) {
    for at in 0..items.len() {
        while place[at] as usize != at {
            let to = place[at] as usize;
            items.swap(at, to);
            place.swap(at, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn arrange_applies_the_permutation() {
        let mut items = ["c", "a", "d", "b"];
        arrange(&mut items, vec![2, 0, 3, 1]);
        assert_eq!(items, ["a", "b", "c", "d"]);
    }

    proptest! {
        /// Texts with long common prefixes, equal ones, and some that end where others continue
        /// with zeros.
        #[test]
        fn texts_are_sorted_like_any_others(
            texts in prop::collection::vec("(std::File\\[host[12],path=/var/|x)?[ab\\x00]{0,20}", 0..200)
        ) {
            let mut expected: Vec<(&str, u32)> = texts.iter().map(String::as_str).zip(0..).collect();
            expected.sort_unstable();
            let expected: Vec<u32> = expected.into_iter().map(|(_, number)| number).collect();
            let found = sorted(0..texts.len() as u32, |number| texts[number as usize].as_str());
            prop_assert_eq!(found, expected);
        }
    }
}
