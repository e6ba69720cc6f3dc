//! Groups of resources by type, agent or set, and the edges between them.

use std::collections::BTreeMap;

use orrery_api::GraphGrouping;
use rustc_hash::FxHashMap;

use super::selection::{ByStatus, badness};
use super::snapshot::{DependencyGraph, Index, Vertex};

/// Groups with a node of their own.
const GROUPS_MAX: usize = 60;

/// A group, or all that have no node of their own.
#[derive(Debug)]
pub(crate) struct Group {
    /// Empty for the others.
    pub(crate) name: String,
    pub(crate) members: Vec<Index>,
    pub(crate) by_status: ByStatus,
    /// Number of groups, if it stands for others.
    pub(crate) others: u64,
}

impl Group {
    fn new(graph: &DependencyGraph, name: String, members: Vec<Index>, others: u64) -> Self {
        let by_status = count(graph, &members);
        Group { name, members, by_status, others }
    }

    /// Order of groups: the worst status, then the number of resources with trouble, then the size.
    fn rank(&self) -> (u8, u64, u64) {
        let worst = self.by_status.keys().map(|status| badness(*status)).min();
        let fine = self.by_status.iter().filter(|(status, _)| badness(**status) == u8::MAX);
        let fine: u64 = fine.map(|(_, count)| count).sum();
        let size = self.members.len() as u64;
        (worst.unwrap_or(u8::MAX), u64::MAX - (size - fine), u64::MAX - size)
    }
}

/// Counts resources by status.
pub(crate) fn count(graph: &DependencyGraph, members: &[Index]) -> ByStatus {
    let mut by_status = ByStatus::new();
    for index in members {
        *by_status.entry(graph.vertex(*index).status).or_default() += 1;
    }
    by_status
}

fn name_of(vertex: &Vertex, grouping: GraphGrouping) -> u32 {
    match grouping {
        GraphGrouping::Agent => vertex.agent,
        GraphGrouping::Set => vertex.set,
        GraphGrouping::Type | GraphGrouping::None => vertex.entity,
    }
}

/// Groups resources. The opened group always has a node.
pub(crate) fn group(
    graph: &DependencyGraph,
    matching: &[Index],
    grouping: GraphGrouping,
    open: Option<&str>,
) -> Vec<Group> {
    let mut by_name: BTreeMap<u32, Vec<Index>> = BTreeMap::new();
    for index in matching {
        by_name.entry(name_of(graph.vertex(*index), grouping)).or_default().push(*index);
    }
    let mut groups: Vec<Group> = by_name
        .into_iter()
        .map(|(name, members)| Group::new(graph, graph.name(name).to_owned(), members, 0))
        .collect();
    groups
        .sort_by_cached_key(|group| (open != Some(&*group.name), group.rank(), group.name.clone()));
    // A node for a single other group would save nothing.
    if groups.len() > GROUPS_MAX + 1 {
        let rest = groups.split_off(GROUPS_MAX);
        let others = rest.len() as u64;
        let mut members: Vec<Index> = rest.into_iter().flat_map(|group| group.members).collect();
        members.sort_unstable();
        groups.push(Group::new(graph, String::new(), members, others));
    }
    groups
}

/// Counts dependencies between nodes: from the required one to the dependent one.
pub(crate) fn edges<'a>(
    graph: &DependencyGraph,
    nodes: impl Iterator<Item = &'a [Index]> + Clone,
) -> Vec<((usize, usize), u64)> {
    let mut node_of: FxHashMap<Index, usize> = FxHashMap::default();
    for (node, members) in nodes.clone().enumerate() {
        node_of.extend(members.iter().map(|index| (*index, node)));
    }
    let mut found: FxHashMap<(usize, usize), u64> = FxHashMap::default();
    for (node, members) in nodes.enumerate() {
        for index in members {
            for required in graph.requires(*index) {
                if let Some(from) = node_of.get(required).filter(|from| **from != node) {
                    *found.entry((*from, node)).or_default() += 1;
                }
            }
        }
    }
    let mut edges: Vec<((usize, usize), u64)> = found.into_iter().collect();
    edges.sort_unstable();
    edges
}
