//! Resources to draw: those that match a filter, the worst first; or the neighbours of one.

use std::collections::BTreeMap;

use orrery_api::{GraphDirection, GraphGrouping, GraphScope};
use orrery_model::{Pattern, ResourceId, Status};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::causes;

use super::snapshot::{DependencyGraph, Index, Vertex};

/// Resources up to which the graph shows all of them.
const ALL_MAX: usize = 150;
/// Resources in trouble that are drawn, beside the paths to their causes.
const TROUBLE_MAX: usize = 200;
/// Length of a path to a cause.
const PATH_MAX: usize = 16;

/// Request for a part of the graph.
#[derive(Clone, Debug)]
pub(crate) struct GraphQuery {
    /// `None` to choose by the size and the state of the environment.
    pub(crate) group: Option<GraphGrouping>,
    /// Opened group.
    pub(crate) open: Option<String>,
    /// Resource whose neighbours are drawn.
    pub(crate) focus: Option<String>,
    pub(crate) depth: usize,
    pub(crate) direction: GraphDirection,
    /// Maximum number of resources.
    pub(crate) limit: usize,
    /// Maximum number of neighbours, and of siblings, that are drawn one by one.
    pub(crate) per_parent: usize,
    pub(crate) filter: GraphFilter,
}

/// Conditions on the drawn resources. All given ones must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct GraphFilter {
    pub(crate) agent: Option<String>,
    pub(crate) entity: Option<String>,
    pub(crate) set: Option<String>,
    pub(crate) value: Option<Pattern>,
    /// Any of these; empty for all.
    pub(crate) statuses: Vec<Status>,
}

impl GraphFilter {
    fn is_empty(&self) -> bool {
        self.agent.is_none()
            && self.entity.is_none()
            && self.set.is_none()
            && self.value.is_none()
            && self.statuses.is_empty()
    }

    fn matches(&self, graph: &DependencyGraph, vertex: &Vertex) -> bool {
        let is = |wanted: Option<&String>, name: u32| {
            wanted.is_none_or(|wanted| wanted == graph.name(name))
        };
        (self.statuses.is_empty() || self.statuses.contains(&vertex.status))
            && is(self.agent.as_ref(), vertex.agent)
            && is(self.entity.as_ref(), vertex.entity)
            && is(self.set.as_ref(), vertex.set)
            && self.value.as_ref().is_none_or(|value| {
                vertex.id.parse::<ResourceId>().is_ok_and(|id| value.matches_value(&id))
            })
    }
}

/// Order of statuses, the worst first. The cause of a wait comes before the wait.
pub(crate) fn badness(status: Status) -> u8 {
    match status {
        Status::Deployed | Status::Orphaned => u8::MAX,
        // A running handler comes before a resource that waits.
        Status::Available => 7,
        _ => causes::rank(status).unwrap_or(u8::MAX),
    }
}

/// Number of resources by status.
pub(crate) type ByStatus = BTreeMap<Status, u64>;

/// What to draw.
#[derive(Debug)]
pub(crate) struct DrawnPart {
    pub(crate) scope: GraphScope,
    pub(crate) group: GraphGrouping,
    /// Resources that match, in the order of ids.
    pub(crate) matching: Vec<Index>,
    /// Resources to draw one by one or as siblings, in the order of ids. Empty for groups.
    pub(crate) drawn: Vec<Index>,
}

impl DrawnPart {
    /// Chooses the resources. `None` if the focus does not exist.
    pub(crate) fn choose(graph: &DependencyGraph, query: &GraphQuery) -> Option<Self> {
        let all = (0..).zip(&graph.vertices);
        let matching: Vec<Index> = match query.filter.is_empty() {
            true => all.map(|(index, _)| index).collect(),
            false => all
                .filter(|(_, vertex)| query.filter.matches(graph, vertex))
                .map(|(index, _)| index)
                .collect(),
        };
        if let Some(focus) = &query.focus {
            let mut drawn = neighbourhood(graph, graph.find(focus)?, query);
            drawn.sort_unstable();
            let group = GraphGrouping::None;
            return Some(DrawnPart { scope: GraphScope::Focus, group, matching, drawn });
        }
        let (scope, group) = match query.group {
            Some(GraphGrouping::None) => (GraphScope::All, GraphGrouping::None),
            Some(group) => (GraphScope::Groups, group),
            None if matching.len() <= ALL_MAX || !query.filter.is_empty() => {
                (GraphScope::All, GraphGrouping::None)
            }
            None if matching.iter().any(|index| is_trouble(graph.vertex(*index).status)) => {
                (GraphScope::Trouble, GraphGrouping::None)
            }
            None => {
                let has_sets = graph.vertices.iter().any(|one| !graph.name(one.set).is_empty());
                let group = if has_sets { GraphGrouping::Set } else { GraphGrouping::Type };
                (GraphScope::Groups, group)
            }
        };
        let mut drawn = match scope {
            GraphScope::Groups => Vec::new(),
            GraphScope::Trouble => {
                let waiting = matching
                    .iter()
                    .copied()
                    .filter(|index| badness(graph.vertex(*index).status) < u8::MAX);
                let worst = worst_first(graph, waiting.collect(), TROUBLE_MAX.min(query.limit));
                with_causes(graph, worst, query.limit)
            }
            _ => worst_first(graph, matching.clone(), query.limit),
        };
        drawn.sort_unstable();
        Some(DrawnPart { scope, group, matching, drawn })
    }
}

/// True if a status makes the resource worth a look: more than a change that waits for its turn.
fn is_trouble(status: Status) -> bool {
    !matches!(status, Status::Deployed | Status::Orphaned | Status::Available)
}

/// The worst resources, in the order of ids among equal ones.
fn worst_first(graph: &DependencyGraph, mut given: Vec<Index>, limit: usize) -> Vec<Index> {
    given.sort_by_key(|index| (badness(graph.vertex(*index).status), *index));
    given.truncate(limit);
    given
}

/// Adds the requirements through which each resource waits for its cause.
fn with_causes(graph: &DependencyGraph, drawn: Vec<Index>, limit: usize) -> Vec<Index> {
    let mut known: FxHashSet<Index> = drawn.iter().copied().collect();
    let mut all = drawn.clone();
    for mut at in drawn {
        for _ in 0..PATH_MAX {
            let Some(cause) = graph.cause(at) else { break };
            if known.insert(cause) {
                if all.len() == limit {
                    return all;
                }
                all.push(cause);
            }
            at = cause;
        }
    }
    all
}

/// Finds the neighbours of a resource, level by level, the worst first.
fn neighbourhood(graph: &DependencyGraph, focus: Index, query: &GraphQuery) -> Vec<Index> {
    let directions: &[bool] = match query.direction {
        GraphDirection::Both => &[true, false],
        GraphDirection::Requires => &[true],
        GraphDirection::Provides => &[false],
    };
    let mut found = vec![focus];
    let mut known: FxHashSet<Index> = found.iter().copied().collect();
    // Requirements of requirements and dependents of dependents: siblings are no neighbours.
    for requires in directions {
        let mut level = vec![focus];
        for _ in 0..query.depth {
            let mut next = Vec::new();
            for at in level {
                let all = if *requires { graph.requires(at) } else { graph.provides(at) };
                for to in worst_first(graph, all.to_vec(), query.per_parent) {
                    if found.len() == query.limit {
                        return found;
                    }
                    if known.insert(to) {
                        found.push(to);
                        next.push(to);
                    }
                }
            }
            level = next;
        }
    }
    found
}

/// Divides drawn resources into nodes: those with the same type, kind of state and drawn neighbours
/// are siblings, of which the worst are drawn one by one. The focus is never among them.
pub(crate) fn fold(
    graph: &DependencyGraph,
    part: &DrawnPart,
    query: &GraphQuery,
) -> Vec<Vec<Index>> {
    let drawn: FxHashSet<Index> = part.drawn.iter().copied().collect();
    let focus = query.focus.as_deref();
    let mut classes: Vec<Vec<Index>> = Vec::new();
    let mut by_neighbours: FxHashMap<(u32, bool, Vec<Index>, Vec<Index>), usize> =
        FxHashMap::default();
    for &index in &part.drawn {
        let vertex = graph.vertex(index);
        if focus == Some(&*vertex.id) {
            classes.push(vec![index]);
            continue;
        }
        let only_drawn = |all: &[Index]| -> Vec<Index> {
            all.iter().copied().filter(|other| drawn.contains(other)).collect()
        };
        let is_fine = badness(vertex.status) == u8::MAX;
        let key = (
            vertex.entity,
            is_fine,
            only_drawn(graph.requires(index)),
            only_drawn(graph.provides(index)),
        );
        let class = *by_neighbours.entry(key).or_insert_with(|| {
            classes.push(Vec::new());
            classes.len() - 1
        });
        classes[class].push(index);
    }
    let mut nodes = Vec::new();
    for class in classes {
        // A node for a single resource more would save nothing.
        if class.len() <= query.per_parent + 1 {
            nodes.extend(class.into_iter().map(|index| vec![index]));
            continue;
        }
        let count = class.len();
        let mut worst = worst_first(graph, class, count);
        let mut rest = worst.split_off(query.per_parent);
        rest.sort_unstable();
        nodes.extend(worst.into_iter().map(|index| vec![index]));
        nodes.push(rest);
    }
    nodes.sort_unstable_by_key(|members| members[0]);
    nodes
}
