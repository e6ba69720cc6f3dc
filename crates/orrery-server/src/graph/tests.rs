//! Selections of a graph and what they leave out.

use std::collections::BTreeMap;

use orrery_api::{GraphDirection, GraphGrouping, GraphNodeKind, GraphScope, ResourceGraph};
use orrery_model::{Status, Timestamp};
use orrery_store::{ChangeSeq, GraphResource};
use proptest::prelude::*;

use super::selection::{DrawnPart, GraphFilter, GraphQuery};
use super::snapshot::DependencyGraph;
use super::view::draw;

const QUERY: GraphQuery = GraphQuery {
    group: None,
    open: None,
    focus: None,
    depth: 1,
    direction: GraphDirection::Both,
    limit: 300,
    per_parent: 12,
    filter: GraphFilter { agent: None, entity: None, set: None, value: None, statuses: Vec::new() },
};

fn id(number: usize) -> String {
    format!("t::R[a{},n={number:05}]", number % 3)
}

/// Resources by number, each with its status and its requirements.
fn graph(resources: &[(Status, Vec<usize>)]) -> DependencyGraph {
    let mut given: Vec<GraphResource<usize>> = (0..)
        .zip(resources)
        .map(|(number, (status, requires))| GraphResource {
            key: number,
            name: id(number),
            status: *status,
            set: (number % 2 == 1).then(|| "odd".into()),
            requires: requires.clone(),
        })
        .collect();
    given.sort_by(|a, b| a.name.cmp(&b.name));
    DependencyGraph::new(ChangeSeq(7), Timestamp(1), given)
}

fn drawn(graph: &DependencyGraph, query: &GraphQuery) -> ResourceGraph {
    draw(graph, &DrawnPart::choose(graph, query).unwrap(), query)
}

fn ids(view: &ResourceGraph) -> Vec<&str> {
    let mut ids: Vec<&str> = view.nodes.iter().map(|node| &*node.id).collect();
    ids.sort_unstable();
    ids
}

fn chain(length: usize) -> Vec<(Status, Vec<usize>)> {
    let requires = |at: usize| at.checked_sub(1).into_iter().collect();
    (0..length).map(|at| (Status::Deployed, requires(at))).collect()
}

#[test]
fn a_small_environment_is_drawn_whole() {
    let graph = graph(&chain(40));
    let view = drawn(&graph, &QUERY);
    assert_eq!((view.scope, view.nodes.len(), view.edges.len()), (GraphScope::All, 40, 39));
    assert_eq!((view.total, view.left_out.nodes, view.position), (40, 0, 7));
    assert_eq!(view.nodes[0].value.as_deref(), Some("00000"));
}

#[test]
fn trouble_in_a_large_environment_is_drawn_with_its_causes() {
    let mut resources = chain(1000);
    // 990 failed, and those after it wait.
    resources[990].0 = Status::Failed;
    for waiting in &mut resources[991..] {
        waiting.0 = Status::Skipped;
    }
    // One that fails apart.
    resources[500].0 = Status::Failed;
    let graph = graph(&resources);
    let view = drawn(&graph, &QUERY);
    assert_eq!(view.scope, GraphScope::Trouble);
    assert_eq!(view.nodes.len(), 11);
    assert_eq!(view.left_out.by_status, BTreeMap::from([(Status::Deployed, 989)]));
    let failed = view.nodes.iter().find(|node| node.id == id(990)).unwrap();
    assert_eq!((failed.hidden_in, failed.hidden_out), (1, 0));
    // With less room, the worst are drawn, and the way from the first that waits to its cause.
    let few = drawn(&graph, &GraphQuery { limit: 3, ..QUERY });
    assert!(ids(&few).contains(&&*id(990)) && ids(&few).contains(&&*id(500)), "{:?}", ids(&few));
    assert_eq!(few.left_out.by_status[&Status::Skipped], 8);
}

#[test]
fn a_large_environment_without_trouble_shows_groups() {
    let mut resources = chain(1000);
    resources[3].0 = Status::Available;
    let graph = graph(&resources);
    let view = drawn(&graph, &QUERY);
    assert_eq!((view.scope, view.group), (GraphScope::Groups, GraphGrouping::Set));
    assert_eq!(ids(&view), ["", "odd"]);
    assert_eq!(view.nodes.iter().map(|node| node.count).sum::<u64>(), 1000);
    // Both groups require each other: one edge points back.
    let mut back: Vec<bool> = view.edges.iter().map(|edge| edge.back).collect();
    back.sort_unstable();
    assert_eq!(back, [false, true]);
    assert_eq!(view.edges.iter().map(|edge| edge.n).sum::<u64>(), 999);

    let agents = GraphQuery { group: Some(GraphGrouping::Agent), ..QUERY };
    assert_eq!(ids(&drawn(&graph, &agents)), ["a0", "a1", "a2"]);
    let open = drawn(&graph, &GraphQuery { open: Some("a0".to_owned()), ..agents });
    let opened = open.nodes.iter().find(|node| node.id == "a0").unwrap();
    assert_eq!(opened.cells.iter().map(|cell| cell.count).sum::<u64>(), opened.count);
    assert_eq!((&*opened.cells[0].id, opened.cells[0].status), (&*id(3), Status::Available));
}

#[test]
fn neighbours_are_found_level_by_level_and_never_siblings() {
    // 1 and 2 require 0; 3 requires 1.
    let of = |requires: &[usize]| (Status::Deployed, requires.to_vec());
    let graph = graph(&[of(&[]), of(&[0]), of(&[0]), of(&[1]), of(&[3])]);
    let focus = |number: usize, depth: usize, direction: GraphDirection| {
        let query = GraphQuery { focus: Some(id(number)), depth, direction, ..QUERY };
        let view = drawn(&graph, &query);
        assert_eq!(view.scope, GraphScope::Focus);
        ids(&view).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(focus(1, 1, GraphDirection::Both), [id(0), id(3), id(1)]);
    assert_eq!(focus(1, 2, GraphDirection::Both), [id(0), id(3), id(1), id(4)]);
    assert_eq!(focus(1, 2, GraphDirection::Requires), [id(0), id(1)]);
    assert_eq!(focus(1, 1, GraphDirection::Provides), [id(3), id(1)]);
    let unknown = GraphQuery { focus: Some(id(9)), ..QUERY };
    assert!(DrawnPart::choose(&graph, &unknown).is_none());
}

#[test]
fn many_neighbours_are_limited_to_the_worst_and_siblings_are_folded() {
    let mut resources = vec![(Status::Deployed, Vec::new())];
    resources.extend((1..101).map(|_| (Status::Deployed, vec![0])));
    resources[70].0 = Status::Failed;
    let graph = graph(&resources);
    let query = GraphQuery { per_parent: 5, ..QUERY };
    let view = drawn(&graph, &query);
    let siblings: Vec<u64> = view
        .nodes
        .iter()
        .filter(|node| node.kind == GraphNodeKind::Siblings)
        .map(|node| node.count)
        .collect();
    // The root, the failed one and five of the others have their own nodes.
    assert_eq!((siblings, view.nodes.len(), view.left_out.nodes), (vec![94], 8, 0));
    let focus = drawn(&graph, &GraphQuery { focus: Some(id(0)), ..query });
    assert_eq!(focus.nodes.len(), 6);
    assert!(ids(&focus).contains(&&*id(70)));
    let root = focus.nodes.iter().find(|node| node.id == id(0)).unwrap();
    assert_eq!(root.hidden_out, 95);
}

fn statuses() -> impl Strategy<Value = Status> {
    prop::sample::select(
        Status::ALL.into_iter().filter(|status| *status != Status::Orphaned).collect::<Vec<_>>(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_resource_is_drawn_or_counted_as_left_out(
        resources in prop::collection::vec((statuses(), prop::collection::vec(any::<prop::sample::Index>(), 0..4)), 1..400),
        group in prop::option::of(prop::sample::select(GraphGrouping::ALL.to_vec())),
        (limit, per_parent) in (1_usize..500, 1_usize..25),
        is_focused in any::<bool>(),
    ) {
        let resources: Vec<(Status, Vec<usize>)> = resources
            .into_iter()
            .enumerate()
            .map(|(at, (status, others))| {
                let others = others.into_iter().filter(|_| at > 0).map(|other| other.index(at));
                (status, others.collect())
            })
            .collect();
        let graph = graph(&resources);
        let focus = is_focused.then(|| id(resources.len() / 2));
        let query = GraphQuery { group, limit, per_parent, focus, depth: 3, ..QUERY };
        let view = drawn(&graph, &query);
        prop_assert_eq!(&view, &drawn(&graph, &query), "the same graph, the same answer");
        let mut counted = view.left_out.by_status.clone();
        for node in &view.nodes {
            if node.by_status.is_empty() {
                *counted.entry(node.status).or_default() += node.count;
            }
            for (status, count) in &node.by_status {
                *counted.entry(*status).or_default() += count;
            }
        }
        let mut all = BTreeMap::new();
        for (status, _) in &resources {
            *all.entry(*status).or_default() += 1;
        }
        prop_assert_eq!(counted, all);
        if view.scope != GraphScope::Groups {
            prop_assert!(view.nodes.len() <= limit);
        }
    }
}
