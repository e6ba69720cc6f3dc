//! Resources in the order of their ids.

use orrery_model::Resource;

/// The numbers of all that are there, by id; equal ids stand side by side, the first one first.
pub(super) fn by_id(resources: &[Option<Resource>]) -> Vec<u32> {
    let mut order: Vec<(&str, u32)> = resources
        .iter()
        .zip(0..)
        .filter_map(|(resource, number)| Some((resource.as_ref()?.id.as_str(), number)))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, number)| number).collect()
}

/// Brings everything to its place: `place[i]` says where the `i`th one goes. Each place is taken once.
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
    use super::*;

    #[test]
    fn everything_goes_to_its_place() {
        let mut items = ["c", "a", "d", "b"];
        arrange(&mut items, vec![2, 0, 3, 1]);
        assert_eq!(items, ["a", "b", "c", "d"]);
    }
}
