//! Resizing an existing cluster: nodes stay, new ones are the preferred ones, and few are removed.

use orrery_cluster::solver::{
    ExistingNode, LayoutProblem, NodeGroup, NodeLayout, ResizeError, SearchLimits, check, narrow,
    node_layouts, resize, solve_problem,
};
use proptest::prelude::*;

use crate::properties::problems;
use crate::support::{bag, cannot, max, min, problem, requested};

/// The nodes of a layout, numbered in its order.
fn nodes_of(groups: &[NodeGroup]) -> Vec<ExistingNode> {
    let all =
        groups.iter().flat_map(|group| std::iter::repeat_n(&group.layout, group.count as usize));
    all.zip(1000..)
        .map(|(layout, number)| ExistingNode { number, layout: layout.clone() })
        .collect()
}

fn of_size(problem: &LayoutProblem, size: u32) -> LayoutProblem {
    LayoutProblem { size, ..problem.clone() }
}

fn groups_of(nodes: &[ExistingNode]) -> Vec<NodeGroup> {
    nodes.iter().map(|node| NodeGroup { layout: node.layout.clone(), count: 1 }).collect()
}

/// The first vector of new nodes in descending lexicographic order that the checker accepts beside
/// the old ones.
fn best_growth(problem: &LayoutProblem, old: &[NodeGroup], more: u32) -> Option<Vec<NodeGroup>> {
    fn descend(
        problem: &LayoutProblem,
        layouts: &[NodeLayout],
        left: u32,
        groups: &mut Vec<NodeGroup>,
    ) -> bool {
        if left == 0 {
            return check(problem, groups).is_empty();
        }
        let Some((first, rest)) = layouts.split_first() else { return false };
        for count in (0..=left).rev() {
            if count > 0 {
                groups.push(NodeGroup { layout: first.clone(), count });
            }
            if descend(problem, rest, left - count, groups) {
                return true;
            }
            if count > 0 {
                groups.pop();
            }
        }
        false
    }
    let layouts = narrow(problem, node_layouts(problem).expect("few services"));
    let mut groups = old.to_vec();
    let found = descend(problem, &layouts, more, &mut groups);
    found.then(|| groups.split_off(old.len()))
}

/// The best set of nodes to remove: few services first, then the newest.
fn best_removal(problem: &LayoutProblem, nodes: &[ExistingNode], fewer: usize) -> Option<Vec<u64>> {
    let mut order: Vec<&ExistingNode> = nodes.iter().collect();
    order.sort_by_key(|node| (node.layout.services.len(), std::cmp::Reverse(node.number)));
    let subsets = 0u32..1 << nodes.len();
    // A node that comes first in the order has the highest bit.
    let is_removed = |set: u32, at: usize| set >> (nodes.len() - 1 - at) & 1 == 1;
    let mut valid = subsets.rev().filter(|set| {
        if set.count_ones() as usize != fewer {
            return false;
        }
        let rest = order.iter().enumerate().filter(|(at, _)| !is_removed(*set, *at));
        let rest: Vec<ExistingNode> = rest.map(|(_, node)| (*node).clone()).collect();
        check(problem, &groups_of(&rest)).is_empty()
    });
    let best = valid.next()?;
    let mut removed: Vec<u64> = order
        .iter()
        .enumerate()
        .filter(|(at, _)| is_removed(best, *at))
        .map(|(_, node)| node.number)
        .collect();
    removed.sort_unstable();
    Some(removed)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn growing_keeps_nodes_and_equals_exhaustive_search(base in problems(), more in 1..3u32) {
        let base = of_size(&base, base.size.min(4));
        let Ok(old) = solve_problem(&base, SearchLimits::default()) else { return Ok(()) };
        let wanted = of_size(&base, base.size + more);
        let layouts = narrow(&wanted, node_layouts(&wanted).expect("few services")).len();
        prop_assume!(layouts < 120);
        let expected = best_growth(&wanted, &old.groups, more);
        match (resize(&wanted, &nodes_of(&old.groups), SearchLimits::default()), expected) {
            (Ok(found), Some(expected)) => {
                prop_assert_eq!(&found.removed, &Vec::<u64>::new());
                prop_assert_eq!(bag(&found.added), bag(&expected));
                let mut all = old.groups.clone();
                all.extend(found.added);
                prop_assert_eq!(check(&wanted, &all), vec![]);
            }
            (Err(ResizeError::NoGrowth { nearest, .. }), None) => {
                for size in [nearest.0, nearest.1].into_iter().flatten() {
                    let other = of_size(&base, size);
                    prop_assert!(resize(&other, &nodes_of(&old.groups), SearchLimits::default()).is_ok());
                }
            }
            (found, expected) => prop_assert!(false, "{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn shrinking_removes_the_nodes_that_exhaustive_search_does(base in problems(), fewer in 1..4u32) {
        let Ok(old) = solve_problem(&base, SearchLimits::default()) else { return Ok(()) };
        prop_assume!(fewer < base.size);
        let nodes = nodes_of(&old.groups);
        let wanted = of_size(&base, base.size - fewer);
        let expected = best_removal(&wanted, &nodes, fewer as usize);
        match (resize(&wanted, &nodes, SearchLimits::default()), expected) {
            (Ok(found), Some(expected)) => {
                prop_assert_eq!(found.added, vec![]);
                prop_assert_eq!(found.removed, expected);
            }
            (Err(ResizeError::NoShrinking { nearest, .. }), None) => {
                for size in [nearest.0, nearest.1].into_iter().flatten() {
                    prop_assert!(resize(&of_size(&base, size), &nodes, SearchLimits::default()).is_ok());
                }
            }
            (found, expected) => prop_assert!(false, "{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn the_same_size_changes_nothing(base in problems()) {
        let Ok(old) = solve_problem(&base, SearchLimits::default()) else { return Ok(()) };
        let found = resize(&base, &nodes_of(&old.groups), SearchLimits::default()).unwrap();
        prop_assert!(found.removed.is_empty() && found.added.is_empty());
    }
}

fn web(size: u32) -> LayoutProblem {
    let rules =
        vec![requested("app"), requested("db"), min("db", 1), max("db", 1), cannot(&["app", "db"])];
    problem(&["app", "db"], size, rules)
}

#[test]
fn thousands_of_nodes_are_resized_in_less_than_a_second() {
    let old = solve_problem(&web(9_000), SearchLimits::default()).unwrap();
    let nodes = nodes_of(&old.groups);
    let started = std::time::Instant::now();
    let grown = resize(&web(10_000), &nodes, SearchLimits::default()).unwrap();
    assert_eq!(grown.added.iter().map(|group| group.count).sum::<u32>(), 1_000);
    let shrunk = resize(&web(1_000), &nodes, SearchLimits::default()).unwrap();
    assert_eq!(shrunk.removed.len(), 8_000);
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn nodes_that_break_rules_are_named() {
    let old = solve_problem(&web(4), SearchLimits::default()).unwrap();
    let mut nodes = nodes_of(&old.groups);
    nodes[0].layout.services.insert("db".to_owned());
    nodes[0].layout.services.insert("app".to_owned());
    let error = resize(&web(5), &nodes, SearchLimits::default()).unwrap_err();
    assert!(error.to_string().contains("app, db never share a node"), "{error}");
    // The only database stays.
    let nodes = nodes_of(&old.groups);
    let removed = resize(&web(2), &nodes, SearchLimits::default()).unwrap().removed;
    let rest = nodes.iter().filter(|node| !removed.contains(&node.number));
    assert!(rest.into_iter().any(|node| node.layout.services.contains("db")));
}
