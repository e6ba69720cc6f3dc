//! Layered layout of a directed graph: pure, deterministic, in integers.
//!
//! Nodes stand in columns, each right of all that it depends on (longest path). Edges that skip
//! columns pass through lanes between the nodes. Four sweeps order each column by the mean position of
//! its neighbours; then each node moves as close to them as the others allow, which is an isotonic
//! regression. Nodes without edges follow below in a grid.

/// Vertical distance of boxes.
const GAP_Y: i64 = 12;
/// Height of a lane, and its distance to others.
const LANE: i64 = 6;
/// Free space at both ends of the space between columns.
const MARGIN_X: i32 = 20;
/// Distance of vertical lines between two columns.
const TRACK: i32 = 7;
/// Vertical lines between two columns beyond which they share places.
const TRACKS_MAX: usize = 14;
/// Sweeps that order the columns.
const SWEEPS: usize = 4;
/// Passes that align the nodes with their neighbours.
const ALIGNMENTS: usize = 4;
/// Lanes beyond which edges pass behind boxes.
const LANES_MAX: usize = 6_000;
/// Offset of two ends that is drawn as a straight line.
const STRAIGHT: i64 = 8;
/// Distance of boxes in the grid of nodes without edges.
const GRID_GAP: i32 = 24;
/// Scale of means.
const SCALE: i64 = 4096;

/// Size of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) w: i32,
    pub(crate) h: i32,
}

/// Upper left corner and column of a box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) x: i32,
    pub(crate) y: i32,
    pub(crate) layer: u32,
}

/// Line of an edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// Corners, x and y in turn; the first is at the source.
    pub(crate) points: Vec<i32>,
    /// True if it points left.
    pub(crate) back: bool,
}

/// Result of a layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) nodes: Vec<Position>,
    pub(crate) edges: Vec<Route>,
    pub(crate) w: i32,
    pub(crate) h: i32,
}

/// Lays out boxes and the edges between them. Edges from a node to itself get no line.
pub(crate) fn layout(sizes: &[Size], edges: &[(usize, usize)]) -> Layout {
    let is_back = back_edges(sizes.len(), edges);
    let forward: Vec<(usize, usize)> = edges
        .iter()
        .zip(&is_back)
        .map(|(&(from, to), &back)| if back { (to, from) } else { (from, to) })
        .collect();
    let mut drawing = Drawing::new(sizes, &forward);
    drawing.order();
    drawing.align();
    let mut layout = drawing.coordinates();
    for (edge, back) in layout.edges.iter_mut().zip(is_back) {
        edge.back = back;
        if back {
            let corners: Vec<[i32; 2]> = edge.points.chunks(2).map(|at| [at[0], at[1]]).collect();
            edge.points = corners.into_iter().rev().flatten().collect();
        }
    }
    place_isolated(sizes, &forward, &mut layout);
    layout
}

/// Finds edges that close a cycle, by a depth-first search in the given order.
fn back_edges(nodes: usize, edges: &[(usize, usize)]) -> Vec<bool> {
    let mut outgoing: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (index, (from, _)) in edges.iter().enumerate() {
        outgoing[*from].push(index);
    }
    let mut is_back = vec![false; edges.len()];
    // 0: new, 1: on the path, 2: done.
    let mut states = vec![0_u8; nodes];
    for start in 0..nodes {
        if states[start] != 0 {
            continue;
        }
        let mut path = vec![(start, 0)];
        states[start] = 1;
        while let Some((node, next)) = path.last_mut() {
            let Some(&edge) = outgoing[*node].get(*next) else {
                states[*node] = 2;
                path.pop();
                continue;
            };
            *next += 1;
            let to = edges[edge].1;
            match states[to] {
                0 => {
                    states[to] = 1;
                    path.push((to, 0));
                }
                1 => is_back[edge] = true,
                _ => {}
            }
        }
    }
    is_back
}

/// Columns by longest path. Nodes without requirements move right, next to their dependents.
fn layers(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut incoming = vec![0_usize; nodes];
    let mut outgoing: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for &(from, to) in edges.iter().filter(|(from, to)| from != to) {
        incoming[to] += 1;
        outgoing[from].push(to);
    }
    let is_source: Vec<bool> = incoming.iter().map(|count| *count == 0).collect();
    let mut layer = vec![0_usize; nodes];
    let mut ready: Vec<usize> = (0..nodes).filter(|node| is_source[*node]).collect();
    while let Some(node) = ready.pop() {
        for &to in &outgoing[node] {
            layer[to] = layer[to].max(layer[node] + 1);
            incoming[to] -= 1;
            if incoming[to] == 0 {
                ready.push(to);
            }
        }
    }
    for node in (0..nodes).filter(|node| is_source[*node]) {
        let nearest = outgoing[node].iter().map(|to| layer[*to]).min();
        layer[node] = nearest.map_or(0, |nearest| nearest - 1);
    }
    layer
}

/// A graph in columns. Vertices are the nodes, then the lanes of edges that skip columns.
struct Drawing<'a> {
    sizes: &'a [Size],
    /// Vertices of each edge, from its source to its target. Without lanes, two; empty for none.
    chains: Vec<Vec<usize>>,
    layer: Vec<usize>,
    /// Vertices of each column, from above.
    columns: Vec<Vec<usize>>,
    /// Neighbours in the columns before and after.
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
    /// Vertical centres.
    centre: Vec<i64>,
}

impl<'a> Drawing<'a> {
    fn new(sizes: &'a [Size], edges: &[(usize, usize)]) -> Self {
        let nodes = sizes.len();
        let mut layer = layers(nodes, edges);
        let mut chains = Vec::with_capacity(edges.len());
        for &(from, to) in edges {
            if from == to {
                chains.push(Vec::new());
                continue;
            }
            let mut chain = vec![from];
            let between = layer[from] + 1..layer[to];
            if layer.len() - nodes + between.len() <= LANES_MAX {
                for column in between {
                    chain.push(layer.len());
                    layer.push(column);
                }
            }
            chain.push(to);
            chains.push(chain);
        }
        let mut is_drawn = vec![false; layer.len()];
        let (mut before, mut after) =
            (vec![Vec::new(); layer.len()], vec![Vec::new(); layer.len()]);
        for chain in &chains {
            for pair in chain.windows(2) {
                let (from, to) = (pair[0], pair[1]);
                (is_drawn[from], is_drawn[to]) = (true, true);
                if layer[to] == layer[from] + 1 {
                    after[from].push(to);
                    before[to].push(from);
                }
            }
        }
        let count = layer.iter().max().map_or(0, |last| last + 1);
        let mut columns: Vec<Vec<usize>> = vec![Vec::new(); count];
        for vertex in (0..layer.len()).filter(|vertex| is_drawn[*vertex]) {
            columns[layer[vertex]].push(vertex);
        }
        let centre = vec![0; layer.len()];
        Drawing { sizes, chains, layer, columns, before, after, centre }
    }

    fn height(&self, vertex: usize) -> i64 {
        self.sizes.get(vertex).map_or(LANE, |size| i64::from(size.h))
    }

    /// Distance of the centres of neighbours in a column.
    fn distance(&self, above: usize, below: usize) -> i64 {
        let is_lane = |vertex: usize| vertex >= self.sizes.len();
        let gap = if is_lane(above) && is_lane(below) { LANE } else { GAP_Y };
        // Rounded up: an odd height has its centre in the upper half.
        (self.height(above) + self.height(below) + 1) / 2 + gap
    }

    /// Orders each column by the mean place of the neighbours in the column before, then after.
    fn order(&mut self) {
        let mut place = vec![0_i64; self.layer.len()];
        let note = |column: &[usize], place: &mut [i64]| {
            for (at, vertex) in (0_i64..).zip(column) {
                place[*vertex] = at;
            }
        };
        for column in &self.columns {
            note(column, &mut place);
        }
        for sweep in 0..SWEEPS {
            let is_rightward = sweep % 2 == 0;
            let count = self.columns.len();
            for step in 0..count {
                let at = if is_rightward { step } else { count - 1 - step };
                let neighbours = if is_rightward { &self.before } else { &self.after };
                let mean = |vertex: usize| {
                    let all = &neighbours[vertex];
                    let sum: i64 = all.iter().map(|other| place[*other] * SCALE).sum();
                    let count = i64::try_from(all.len()).unwrap_or(i64::MAX);
                    if count == 0 { place[vertex] * SCALE } else { sum / count }
                };
                let mut keyed: Vec<(i64, i64, usize)> = self.columns[at]
                    .iter()
                    .map(|vertex| (mean(*vertex), place[*vertex], *vertex))
                    .collect();
                keyed.sort_unstable();
                self.columns[at] = keyed.into_iter().map(|(_, _, vertex)| vertex).collect();
                note(&self.columns[at], &mut place);
            }
        }
    }

    /// Moves vertices towards the mean of their neighbours, in the order of their columns.
    fn align(&mut self) {
        for column in self.columns.clone() {
            self.settle(&column, &vec![0; column.len()]);
        }
        for pass in 0..ALIGNMENTS {
            let is_rightward = pass % 2 == 0;
            let mut columns = self.columns.clone();
            if !is_rightward {
                columns.reverse();
            }
            for column in columns {
                let neighbours = if is_rightward { &self.before } else { &self.after };
                let wanted: Vec<i64> = column
                    .iter()
                    .map(|vertex| {
                        let all = &neighbours[*vertex];
                        let sum: i64 = all.iter().map(|other| self.centre[*other]).sum();
                        let count = i64::try_from(all.len()).unwrap_or(i64::MAX);
                        if count == 0 { self.centre[*vertex] } else { sum.div_euclid(count) }
                    })
                    .collect();
                self.settle(&column, &wanted);
            }
        }
    }

    /// Sets the centres of a column as close as possible to the wanted ones without overlap: the
    /// isotonic regression of what remains after the least distances are subtracted.
    fn settle(&mut self, column: &[usize], wanted: &[i64]) {
        /// Vertices that touch, with their mean.
        struct Block {
            sum: i64,
            count: i64,
        }
        let mut offsets = Vec::with_capacity(column.len());
        let mut offset = 0;
        for (at, vertex) in column.iter().enumerate() {
            if at > 0 {
                offset += self.distance(column[at - 1], *vertex);
            }
            offsets.push(offset);
        }
        let mut blocks: Vec<Block> = Vec::new();
        for (wanted, offset) in wanted.iter().zip(&offsets) {
            blocks.push(Block { sum: wanted - offset, count: 1 });
            while let [.., above, below] = &mut blocks[..] {
                if above.sum * below.count < below.sum * above.count {
                    break;
                }
                above.sum += below.sum;
                above.count += below.count;
                blocks.pop();
            }
        }
        let means = blocks.iter().flat_map(|block| {
            let mean = block.sum.div_euclid(block.count);
            (0..block.count).map(move |_| mean)
        });
        for ((vertex, offset), mean) in column.iter().zip(&offsets).zip(means) {
            self.centre[*vertex] = mean + offset;
        }
    }

    /// Turns columns and centres into coordinates and lines.
    fn coordinates(&self) -> Layout {
        let top = |vertex: usize| self.centre[vertex] - self.height(vertex) / 2;
        let drawn = || self.columns.iter().flatten().copied();
        let first = drawn().map(top).min().unwrap_or(0);
        let last = drawn().map(|vertex| top(vertex) + self.height(vertex)).max().unwrap_or(0);
        let y = |value: i64| i32::try_from(value - first).unwrap_or(i32::MAX);
        let mut layout = Layout {
            nodes: vec![Position::default(); self.sizes.len()],
            edges: Vec::with_capacity(self.chains.len()),
            w: 0,
            h: y(last),
        };
        // Left ends of the columns, their right ends, and the vertical line after each vertex.
        let mut ends = Vec::with_capacity(self.columns.len());
        let mut track = vec![0; self.layer.len()];
        let mut x = 0;
        for (layer, column) in (0_u32..).zip(&self.columns) {
            let widths = column.iter().filter_map(|vertex| self.sizes.get(*vertex));
            let width = widths.map(|size| size.w).max().unwrap_or(0);
            let mut tracks = 0;
            for vertex in column {
                if *vertex < self.sizes.len() {
                    let y = y(top(*vertex));
                    layout.nodes[*vertex] = Position { x, y, layer };
                }
                if !self.after[*vertex].is_empty() {
                    let lane = i32::try_from(tracks % TRACKS_MAX).unwrap_or(0);
                    track[*vertex] = x + width + MARGIN_X + lane * TRACK;
                    tracks += 1;
                }
            }
            ends.push((x, x + width));
            layout.w = x + width;
            let used = i32::try_from(tracks.min(TRACKS_MAX)).unwrap_or(0);
            x += width + 2 * MARGIN_X + used * TRACK;
        }
        for chain in &self.chains {
            layout.edges.push(Route { points: self.line(chain, &ends, &track, &y), back: false });
        }
        layout
    }

    /// Corners of an edge.
    fn line(
        &self,
        chain: &[usize],
        ends: &[(i32, i32)],
        track: &[i32],
        y: &dyn Fn(i64) -> i32,
    ) -> Vec<i32> {
        let (Some(&from), Some(&to)) = (chain.first(), chain.last()) else { return Vec::new() };
        let (left, _) = ends[self.layer[from]];
        let mut points = vec![left + self.sizes[from].w, y(self.centre[from])];
        let mut at = self.centre[from];
        for pair in chain.windows(2) {
            let (before, next) = (pair[0], pair[1]);
            let is_target = next == to;
            let target = self.centre[next];
            // Boxes are higher than the offset: the line still ends at one.
            if is_target && (target - at).abs() <= STRAIGHT {
                continue;
            }
            // Without lanes, the line passes behind the boxes and turns before the target.
            let is_far = self.layer[next] != self.layer[before] + 1;
            let turn = if is_far { ends[self.layer[next]].0 - MARGIN_X / 2 } else { track[before] };
            if target != at {
                points.extend([turn, y(at), turn, y(target)]);
            }
            at = target;
        }
        points.extend([ends[self.layer[to]].0, y(at)]);
        points
    }
}

/// Places nodes without edges in a grid below the others.
fn place_isolated(sizes: &[Size], edges: &[(usize, usize)], layout: &mut Layout) {
    let mut has_edge = vec![false; sizes.len()];
    for (from, to) in edges.iter().filter(|(from, to)| from != to) {
        (has_edge[*from], has_edge[*to]) = (true, true);
    }
    let alone: Vec<usize> = (0..sizes.len()).filter(|node| !has_edge[*node]).collect();
    if alone.is_empty() {
        return;
    }
    let width = alone.iter().map(|node| sizes[*node].w).max().unwrap_or(0) + GRID_GAP;
    let height = alone.iter().map(|node| sizes[*node].h).max().unwrap_or(0).max(1);
    let count = i32::try_from(alone.len()).unwrap_or(i32::MAX);
    // About twice as wide as high, and not narrower than the rest.
    let square = (f64::from(count) * f64::from(height) * 2.0 / f64::from(width)).sqrt();
    #[expect(clippy::cast_possible_truncation, reason = "the square root of a count")]
    let columns = (square.ceil() as i32).max((layout.w + GRID_GAP) / width).clamp(1, count);
    let mut y = if layout.h == 0 { 0 } else { layout.h + 2 * GRID_GAP };
    let per_row = usize::try_from(columns).unwrap_or(1);
    for row in alone.chunks(per_row) {
        let mut lowest = 0;
        for (at, node) in (0_i32..).zip(row) {
            layout.nodes[*node] = Position { x: at * width, y, layer: 0 };
            layout.w = layout.w.max(at * width + sizes[*node].w);
            lowest = lowest.max(sizes[*node].h);
        }
        layout.h = y + lowest;
        y += lowest + i32::try_from(GAP_Y).unwrap_or(0);
    }
}

/// Boxes that overlap, for tests.
#[cfg(test)]
fn overlaps(sizes: &[Size], layout: &Layout) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for a in 0..sizes.len() {
        for b in a + 1..sizes.len() {
            let (p, q) = (layout.nodes[a], layout.nodes[b]);
            let apart = p.x + sizes[a].w <= q.x
                || q.x + sizes[b].w <= p.x
                || p.y + sizes[a].h <= q.y
                || q.y + sizes[b].h <= p.y;
            if !apart {
                found.push((a, b));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn boxes(count: usize) -> Vec<Size> {
        vec![Size { w: 200, h: 44 }; count]
    }

    #[test]
    fn requirements_are_left_of_their_dependents() {
        // A diamond, and an edge that skips a column.
        let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)];
        let layout = layout(&boxes(4), &edges);
        let layers: Vec<u32> = layout.nodes.iter().map(|at| at.layer).collect();
        assert_eq!(layers, [0, 1, 1, 2]);
        assert!(layout.edges.iter().all(|edge| !edge.back));
        assert_eq!(overlaps(&boxes(4), &layout), []);
    }

    #[test]
    fn a_source_stands_next_to_its_only_dependent() {
        let layout = layout(&boxes(5), &[(0, 1), (1, 2), (2, 3), (4, 3)]);
        assert_eq!(layout.nodes[4].layer, 2);
    }

    #[test]
    fn an_edge_that_closes_a_cycle_points_left_and_is_marked() {
        let layout = layout(&boxes(3), &[(0, 1), (1, 2), (2, 0)]);
        let back: Vec<bool> = layout.edges.iter().map(|edge| edge.back).collect();
        assert_eq!(back, [false, false, true]);
        let line = &layout.edges[2].points;
        // From the third node, back to the first.
        assert_eq!(line[0], layout.nodes[2].x);
        assert_eq!(line[line.len() - 2], layout.nodes[0].x + 200);
    }

    #[test]
    fn nodes_without_edges_form_a_grid() {
        let layout = layout(&boxes(100), &[]);
        assert_eq!(overlaps(&boxes(100), &layout), []);
        let ratio = f64::from(layout.w) / f64::from(layout.h);
        assert!((1.0..4.0).contains(&ratio), "{} x {}", layout.w, layout.h);
    }

    #[test]
    fn a_chain_is_a_straight_line() {
        let layout = layout(&boxes(3), &[(0, 1), (1, 2)]);
        assert!(layout.edges.iter().all(|edge| edge.points.len() == 4), "{layout:?}");
    }

    #[test]
    fn an_edge_to_itself_has_no_line() {
        let layout = layout(&boxes(1), &[(0, 0)]);
        assert!(layout.edges[0].points.is_empty());
        assert_eq!((layout.w, layout.h), (200, 44));
    }

    fn graphs() -> impl Strategy<Value = (Vec<Size>, Vec<(usize, usize)>)> {
        (1_usize..60).prop_flat_map(|nodes| {
            let size = (20_i32..300, 11_i32..90).prop_map(|(w, h)| Size { w, h });
            (
                prop::collection::vec(size, nodes),
                prop::collection::vec((0..nodes, 0..nodes), 0..120),
            )
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn any_graph_is_drawn_without_overlaps((sizes, edges) in graphs()) {
            let made = layout(&sizes, &edges);
            prop_assert_eq!(&made, &layout(&sizes, &edges), "the same input, the same output");
            prop_assert_eq!(overlaps(&sizes, &made), []);
            for (at, size) in made.nodes.iter().zip(&sizes) {
                prop_assert!(at.x >= 0 && at.y >= 0);
                prop_assert!(at.x + size.w <= made.w && at.y + size.h <= made.h);
            }
            for ((from, to), edge) in edges.iter().zip(&made.edges) {
                if from == to {
                    prop_assert!(edge.points.is_empty());
                    continue;
                }
                let (left, right) = if edge.back { (*to, *from) } else { (*from, *to) };
                prop_assert!(made.nodes[left].layer < made.nodes[right].layer);
                // The line begins and ends at the boxes, and turns at right angles only.
                let mut points: Vec<&[i32]> = edge.points.chunks(2).collect();
                if edge.back {
                    points.reverse();
                }
                let (first, last) = (points[0], points[points.len() - 1]);
                prop_assert_eq!(first[0], made.nodes[left].x + sizes[left].w);
                prop_assert_eq!(last[0], made.nodes[right].x);
                let touches = |y: i32, node: usize| {
                    let top = made.nodes[node].y;
                    (top - 8..=top + sizes[node].h + 8).contains(&y)
                };
                prop_assert!(touches(first[1], left) && touches(last[1], right));
                for pair in points.windows(2) {
                    prop_assert!(pair[0][0] == pair[1][0] || pair[0][1] == pair[1][1]);
                }
            }
        }
    }
}
