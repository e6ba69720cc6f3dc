//! Order of resources in a plan: requirements directly before their dependents where possible,
//! otherwise by agent and in natural order.

use std::collections::BTreeSet;

use orrery_model::ResourceId;
use rustc_hash::FxHashMap;

use crate::natural_order;

/// A resource with its requirements.
pub(in crate::commands) struct Required<'a> {
    pub(in crate::commands) id: &'a str,
    pub(in crate::commands) requires: Vec<&'a str>,
}

/// Transitive dependents of these resources, each with the resource that blocks it.
pub(in crate::commands) fn held_up(
    by: &BTreeSet<String>,
    resources: &[Required<'_>],
) -> FxHashMap<String, String> {
    let mut dependents: FxHashMap<&str, Vec<&str>> = FxHashMap::default();
    for resource in resources {
        for &id in &resource.requires {
            dependents.entry(id).or_default().push(resource.id);
        }
    }
    let mut found: FxHashMap<String, String> = FxHashMap::default();
    let mut open: Vec<(&str, &str)> = by.iter().map(|id| (id.as_str(), id.as_str())).collect();
    while let Some((id, cause)) = open.pop() {
        for &dependent in dependents.get(id).into_iter().flatten() {
            if !by.contains(dependent) && !found.contains_key(dependent) {
                found.insert(dependent.to_owned(), cause.to_owned());
                open.push((dependent, cause));
            }
        }
    }
    found
}

/// Position of each resource, by id.
pub(in crate::commands) fn by_dependency(
    mut resources: Vec<Required<'_>>,
) -> FxHashMap<String, usize> {
    resources.sort_by(|one, other| by_name(one.id, other.id));
    let at: FxHashMap<&str, usize> =
        resources.iter().enumerate().map(|(at, resource)| (resource.id, at)).collect();
    let requires: Vec<Vec<usize>> = resources
        .iter()
        .map(|resource| {
            let mut found: Vec<usize> =
                resource.requires.iter().filter_map(|id| at.get(id).copied()).collect();
            found.sort_unstable();
            found
        })
        .collect();
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    let mut is_seen = vec![false; resources.len()];
    for root in 0..resources.len() {
        // Each with the number of visited requirements. Iterative, since chains may be long.
        let mut open: Vec<(usize, usize)> = Vec::new();
        if !std::mem::replace(&mut is_seen[root], true) {
            open.push((root, 0));
        }
        while let Some((node, visited)) = open.last_mut() {
            match requires[*node].get(*visited) {
                Some(&next) => {
                    *visited += 1;
                    if !std::mem::replace(&mut is_seen[next], true) {
                        open.push((next, 0));
                    }
                }
                None => {
                    let place = places.len();
                    places.insert(resources[*node].id.to_owned(), place);
                    open.pop();
                }
            }
        }
    }
    places
}

/// Orders by agent, then by id.
pub(super) fn by_name(one: &str, other: &str) -> std::cmp::Ordering {
    fn agent(id: &str) -> Option<ResourceId> {
        id.parse().ok()
    }
    match (agent(one), agent(other)) {
        (Some(a), Some(b)) => natural_order::compare(a.agent(), b.agent())
            .then_with(|| natural_order::compare(one, other)),
        _ => natural_order::compare(one, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(resources: &[(&'static str, &[&'static str])]) -> Vec<String> {
        let resources =
            resources.iter().map(|(id, requires)| Required { id, requires: requires.to_vec() });
        let mut places: Vec<(String, usize)> =
            by_dependency(resources.collect()).into_iter().collect();
        places.sort_by_key(|(_, place)| *place);
        places.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn requirements_come_first_and_numbers_sort_by_value() {
        let found = order(&[
            ("s::File[b,path=/d/f]", &["s::Dir[b,path=/d]"]),
            ("s::Dir[b,path=/d]", &[]),
            ("s::A[b,name=10]", &["s::File[b,path=/d/f]"]),
            ("s::A[b,name=2]", &[]),
            ("s::Z[a,name=1]", &[]),
        ]);
        assert_eq!(
            found,
            [
                "s::Z[a,name=1]",
                "s::A[b,name=2]",
                "s::Dir[b,path=/d]",
                "s::File[b,path=/d/f]",
                "s::A[b,name=10]",
            ]
        );
    }

    #[test]
    fn long_chains_and_circles_end() {
        let ids: Vec<String> =
            (0..100_000).map(|number| format!("s::A[a,name={number}]")).collect();
        let chain = ids
            .iter()
            .enumerate()
            .map(|(at, id)| Required { id, requires: vec![ids[(at + 1) % ids.len()].as_str()] });
        assert_eq!(by_dependency(chain.collect()).len(), ids.len());
    }
}
