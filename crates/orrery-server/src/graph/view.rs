//! Answers: nodes and edges with their coordinates, and what is left out.

use orrery_api::{
    GraphBounds, GraphCell, GraphEdge, GraphNode, GraphNodeKind, GraphRest, GraphScope,
    ResourceGraph, Time,
};
use orrery_model::{ResourceId, Status};

use super::groups::{self, Group};
use super::layout::{Size, layout};
use super::selection::{ByStatus, DrawnPart, GraphQuery, badness, fold};
use super::snapshot::{DependencyGraph, Index};

/// Size of a resource and of siblings.
const RESOURCE: Size = Size { w: 216, h: 44 };
/// Size of a group.
const GROUP: Size = Size { w: 216, h: 60 };
/// Cells of an opened group, each with its distance to the next.
const CELL: i32 = 12;
const CELLS_PER_ROW: usize = 20;
const CELLS_MAX: usize = 400;
/// Edges of one drawing.
const EDGES_MAX: usize = 3_000;

/// A node before it has a place.
struct Draft {
    members: Vec<Index>,
    node: GraphNode,
}

/// Draws a part of the graph.
pub(crate) fn draw(graph: &DependencyGraph, part: &DrawnPart, query: &GraphQuery) -> ResourceGraph {
    let drafts: Vec<Draft> = match part.scope {
        GraphScope::Groups => {
            let open = query.open.as_deref();
            groups::group(graph, &part.matching, part.group, open)
                .into_iter()
                .map(|group| of_group(graph, group, open))
                .collect()
        }
        _ => fold(graph, part, query).into_iter().map(|members| of(graph, members)).collect(),
    };
    let mut edges = groups::edges(graph, drafts.iter().map(|draft| &draft.members[..]));
    let left_out_edges = edges.len().saturating_sub(EDGES_MAX) as u64;
    edges.truncate(EDGES_MAX);
    let sizes: Vec<Size> =
        drafts.iter().map(|draft| Size { w: draft.node.w, h: draft.node.h }).collect();
    let pairs: Vec<(usize, usize)> = edges.iter().map(|(pair, _)| *pair).collect();
    let placed = layout(&sizes, &pairs);
    let left_out = left_out(graph, part, &drafts);
    let nodes = drafts.into_iter().zip(placed.nodes).map(|(draft, at)| {
        let node = GraphNode { x: at.x, y: at.y, layer: at.layer, ..draft.node };
        match part.scope {
            GraphScope::Groups => node,
            _ => with_hidden(graph, part, &draft.members, node),
        }
    });
    let nodes = nodes.collect();
    let index = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let edges = edges.into_iter().zip(placed.edges).map(|(((from, to), n), route)| GraphEdge {
        from: index(from),
        to: index(to),
        n,
        back: route.back,
        points: route.points,
    });
    ResourceGraph {
        scope: part.scope,
        group: part.group,
        total: part.matching.len() as u64,
        nodes,
        edges: edges.collect(),
        left_out,
        left_out_edges,
        bounds: GraphBounds { w: placed.w, h: placed.h },
        position: graph.position.0,
        counted_at: Time(graph.at),
    }
}

fn left_out(graph: &DependencyGraph, part: &DrawnPart, drafts: &[Draft]) -> GraphRest {
    let mut drawn: Vec<Index> = drafts.iter().flat_map(|draft| &draft.members).copied().collect();
    drawn.sort_unstable();
    let mut rest = GraphRest::default();
    for index in part.matching.iter().filter(|index| drawn.binary_search(index).is_err()) {
        rest.nodes += 1;
        *rest.by_status.entry(graph.vertex(*index).status).or_default() += 1;
    }
    rest
}

/// The property that all members share.
fn shared<'a>(
    graph: &'a DependencyGraph,
    members: &[Index],
    name: impl Fn(Index) -> u32,
) -> Option<&'a str> {
    let first = name(*members.first()?);
    members.iter().all(|index| name(*index) == first).then(|| graph.name(first))
}

/// A resource, or siblings.
fn of(graph: &DependencyGraph, members: Vec<Index>) -> Draft {
    let first = graph.vertex(members[0]);
    let is_single = members.len() == 1;
    let by_status = if is_single { ByStatus::new() } else { groups::count(graph, &members) };
    let value = match is_single {
        true => first.id.parse::<ResourceId>().ok().map(|id| id.value().to_owned()),
        false => None,
    };
    let node = GraphNode {
        kind: if is_single { GraphNodeKind::Resource } else { GraphNodeKind::Siblings },
        id: first.id.to_string(),
        value,
        by_status,
        ..common(graph, &members, RESOURCE)
    };
    Draft { members, node }
}

fn of_group(graph: &DependencyGraph, group: Group, open: Option<&str>) -> Draft {
    let Group { name, members, by_status, others } = group;
    let cells = match others == 0 && open == Some(&*name) {
        true => cells(graph, &members),
        false => Vec::new(),
    };
    let rows = i32::try_from(cells.len().div_ceil(CELLS_PER_ROW)).unwrap_or(0);
    let size = match rows {
        0 => GROUP,
        rows => {
            let per_row = i32::try_from(CELLS_PER_ROW).unwrap_or(0);
            Size { w: per_row * CELL + 24, h: GROUP.h + rows * CELL + 8 }
        }
    };
    let kind = if others > 0 { GraphNodeKind::OtherGroups } else { GraphNodeKind::Group };
    let node = GraphNode {
        kind,
        id: name,
        by_status,
        groups: others,
        cells,
        ..common(graph, &members, size)
    };
    Draft { members, node }
}

fn common(graph: &DependencyGraph, members: &[Index], size: Size) -> GraphNode {
    let worst = members.iter().map(|index| graph.vertex(*index).status);
    let worst = worst.min_by_key(|status| badness(*status)).unwrap_or(Status::Deployed);
    let text = |name: Option<&str>| name.map(str::to_owned);
    GraphNode {
        kind: GraphNodeKind::Resource,
        id: String::new(),
        r#type: text(shared(graph, members, |index| graph.vertex(index).entity)),
        agent: text(shared(graph, members, |index| graph.vertex(index).agent)),
        value: None,
        status: worst,
        count: members.len() as u64,
        by_status: ByStatus::new(),
        groups: 0,
        x: 0,
        y: 0,
        w: size.w,
        h: size.h,
        layer: 0,
        hidden_in: 0,
        hidden_out: 0,
        cells: Vec::new(),
    }
}

/// Members of an opened group, worst first. Of a large one, each cell stands for several.
fn cells(graph: &DependencyGraph, members: &[Index]) -> Vec<GraphCell> {
    let mut worst_first = members.to_vec();
    worst_first.sort_by_key(|index| (badness(graph.vertex(*index).status), *index));
    let per_cell = worst_first.len().div_ceil(CELLS_MAX).max(1);
    let cell = |some: &[Index]| {
        let first = graph.vertex(some[0]);
        GraphCell { id: first.id.to_string(), status: first.status, count: some.len() as u64 }
    };
    worst_first.chunks(per_cell).map(cell).collect()
}

fn with_hidden(
    graph: &DependencyGraph,
    part: &DrawnPart,
    members: &[Index],
    node: GraphNode,
) -> GraphNode {
    let hidden = |all: &dyn Fn(Index) -> usize| members.iter().map(|at| all(*at) as u64).sum();
    let missing = |others: &[Index]| {
        others.iter().filter(|other| part.drawn.binary_search(other).is_err()).count()
    };
    GraphNode {
        hidden_in: hidden(&|at| missing(graph.requires(at))),
        hidden_out: hidden(&|at| missing(graph.provides(at))),
        ..node
    }
}
