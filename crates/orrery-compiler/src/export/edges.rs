//! The graph of requirements over node numbers, and its cycles.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

const NONE: u32 = u32::MAX;

/// Maximum number of edges examined in the search for the shortest cycle of a component. Sufficient
/// for realistic cycles; in a giant component the shortest cycle found so far is used.
const SEARCH_BUDGET: usize = 4_000_000;

/// Adjacency lists: the targets of all nodes, stored consecutively.
#[derive(Debug)]
pub(super) struct Edges {
    /// Start of each node's targets, followed by the end of the last.
    starts: Vec<u32>,
    targets: Vec<u32>,
}

impl Edges {
    pub(super) fn with_capacity(nodes: usize) -> Self {
        let mut starts = Vec::with_capacity(nodes + 1);
        starts.push(0);
        Edges { starts, targets: Vec::new() }
    }

    /// Adds a target of the current node.
    pub(super) fn push(&mut self, target: u32) {
        self.targets.push(target);
    }

    /// Ends the current node.
    pub(super) fn end_node(&mut self) {
        let end = u32::try_from(self.targets.len()).expect("invariant: fewer than 2^32 edges");
        self.starts.push(end);
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub(super) fn targets(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.targets[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// A copy with other targets for some nodes.
    pub(super) fn with_targets(&self, targets: &FxHashMap<u32, Vec<u32>>) -> Edges {
        let mut edges = Edges::with_capacity(self.len());
        for node in 0..self.len() as u32 {
            let of = targets.get(&node).map_or_else(|| self.targets(node), Vec::as_slice);
            edges.targets.extend_from_slice(of);
            edges.end_node();
        }
        edges
    }

    /// The inverse graph: dependents by requirement.
    pub(super) fn reversed(&self) -> Edges {
        let mut starts = vec![0_u32; self.len() + 1];
        for &target in &self.targets {
            starts[target as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut targets = vec![0; self.targets.len()];
        for node in 0..self.len() as u32 {
            for &target in self.targets(node) {
                targets[next[target as usize] as usize] = node;
                next[target as usize] += 1;
            }
        }
        Edges { starts, targets }
    }

    /// Strongly connected sets of nodes.
    pub(super) fn cycles(&self) -> Vec<Vec<u32>> {
        let mut search = Search {
            number: vec![NONE; self.len()],
            low: vec![0; self.len()],
            is_open: vec![false; self.len()],
            open: Vec::new(),
            path: Vec::new(),
            count: 0,
        };
        let mut found = Vec::new();
        for root in 0..self.len() as u32 {
            if search.number[root as usize] != NONE || self.targets(root).is_empty() {
                continue;
            }
            search.visit(root);
            while let Some((node, next)) = search.path.last_mut() {
                let node = *node;
                if let Some(&to) = self.targets(node).get(*next as usize) {
                    *next += 1;
                    if search.number[to as usize] == NONE {
                        search.visit(to);
                    } else if search.is_open[to as usize] {
                        search.reach(node, search.number[to as usize]);
                    }
                    continue;
                }
                search.path.pop();
                if let Some(&(parent, _)) = search.path.last() {
                    search.reach(parent, search.low[node as usize]);
                }
                if let Some(members) = search.close(node)
                    && (members.len() > 1 || self.targets(node).contains(&node))
                {
                    found.push(members);
                }
            }
        }
        found
    }

    /// The shortest cycle within a set returned by `cycles`: its nodes in requirement order. Ties
    /// are resolved by the order of `members`.
    pub(super) fn shortest_cycle(&self, members: &[u32]) -> Vec<u32> {
        if let Some(&own) = members.iter().find(|&&member| self.targets(member).contains(&member)) {
            return vec![own];
        }
        let inside: FxHashMap<u32, u32> = members.iter().copied().zip(0..).collect();
        let mut shortest: Vec<u32> = Vec::new();
        // The predecessor of each node on the way from the start, and the start for which it was
        // recorded.
        let mut before = vec![(NONE, NONE); members.len()];
        let mut queue: VecDeque<(u32, usize)> = VecDeque::new();
        let mut budget = SEARCH_BUDGET;
        for (start, &first) in (0_u32..).zip(members) {
            if budget == 0 && !shortest.is_empty() {
                break;
            }
            queue.clear();
            queue.push_back((start, 1));
            'search: while let Some((at, length)) = queue.pop_front() {
                if !shortest.is_empty() && length >= shortest.len() {
                    break;
                }
                for to in self.targets(members[at as usize]) {
                    budget = budget.saturating_sub(1);
                    let Some(&to) = inside.get(to) else { continue };
                    if to == start {
                        shortest.clear();
                        let mut back = at;
                        while back != start {
                            shortest.push(members[back as usize]);
                            back = before[back as usize].0;
                        }
                        shortest.push(first);
                        shortest.reverse();
                        break 'search;
                    }
                    if before[to as usize].1 != start {
                        before[to as usize] = (at, start);
                        queue.push_back((to, length + 1));
                    }
                }
            }
        }
        shortest
    }
}

/// Tarjan's algorithm with an explicit stack: a chain of requirements may be as long as the model.
struct Search {
    /// Discovery order.
    number: Vec<u32>,
    /// The lowest reachable number.
    low: Vec<u32>,
    is_open: Vec<bool>,
    open: Vec<u32>,
    /// The path from the root, and the number of followed targets of each node.
    path: Vec<(u32, u32)>,
    count: u32,
}

impl Search {
    fn visit(&mut self, node: u32) {
        self.number[node as usize] = self.count;
        self.low[node as usize] = self.count;
        self.count += 1;
        self.is_open[node as usize] = true;
        self.open.push(node);
        self.path.push((node, 0));
    }

    fn reach(&mut self, node: u32, number: u32) {
        let low = &mut self.low[node as usize];
        *low = number.min(*low);
    }

    /// The completed component, if this node is its root.
    fn close(&mut self, node: u32) -> Option<Vec<u32>> {
        if self.low[node as usize] != self.number[node as usize] {
            return None;
        }
        let mut members = Vec::new();
        while let Some(member) = self.open.pop() {
            self.is_open[member as usize] = false;
            members.push(member);
            if member == node {
                break;
            }
        }
        Some(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(of: &[&[u32]]) -> Edges {
        let mut edges = Edges::with_capacity(of.len());
        for targets in of {
            targets.iter().for_each(|&target| edges.push(target));
            edges.end_node();
        }
        edges
    }

    fn cycles(edges: &Edges) -> Vec<Vec<u32>> {
        let mut cycles = edges.cycles();
        cycles.iter_mut().for_each(|members| members.sort_unstable());
        cycles.sort_unstable();
        cycles
    }

    #[test]
    fn cycles_are_separate_from_each_other_and_from_their_dependents() {
        // 0 -> 1 -> 2 -> 0, 3 -> 0, 4 -> 4, 5 -> 6, 6 -> 5 and 3
        let edges = edges(&[&[1], &[2], &[0], &[0], &[4], &[6], &[5, 3]]);
        assert_eq!(cycles(&edges), [vec![0, 1, 2], vec![4], vec![5, 6]]);
    }

    #[test]
    fn an_acyclic_graph_has_no_cycles() {
        assert!(cycles(&edges(&[&[1, 2], &[2, 3], &[3], &[]])).is_empty());
        assert!(cycles(&edges(&[])).is_empty());
    }

    #[test]
    fn the_shortest_cycle_begins_with_its_first_member() {
        // A ring of five with a chord that closes a cycle of three: 1 -> 2 -> 3 -> 1.
        let edges = edges(&[&[1], &[2], &[3], &[4, 1], &[0]]);
        assert_eq!(edges.shortest_cycle(&[0, 1, 2, 3, 4]), [1, 2, 3]);
        assert_eq!(edges.shortest_cycle(&[3, 2, 1, 0, 4]), [3, 1, 2]);
    }

    #[test]
    fn a_long_chain_needs_no_deep_stack() {
        let count = 300_000;
        let mut edges = Edges::with_capacity(count as usize);
        for node in 0..count {
            edges.push((node + 1) % count);
            edges.end_node();
        }
        let cycles = edges.cycles();
        assert_eq!((cycles.len(), cycles[0].len()), (1, count as usize));
        assert_eq!(edges.shortest_cycle(&cycles[0]).len(), count as usize);
    }

    #[test]
    fn reversed_edges_lead_back() {
        let reversed = edges(&[&[1, 2], &[2], &[]]).reversed();
        assert_eq!((reversed.targets(0), reversed.targets(1)), (&[][..], &[0][..]));
        assert_eq!(reversed.targets(2), [0, 1]);
    }
}
