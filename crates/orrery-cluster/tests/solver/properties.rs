//! Random small problems, compared with exhaustive search; explanations are minimal and advice is
//! true.

use orrery_cluster::solver::{
    ClusterService, Hardware, LayoutProblem, NodeGroup, NodeLayout, Rule, RuleChange, RuleKind,
    RuleLocation, SearchLimits, SolveError, check, is_feasible, narrow, node_layouts,
    smallest_size_of, solve_problem,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use crate::support::{bag, cannot, compatible, min, problem};

const SERVICES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn service() -> impl Strategy<Value = String> {
    prop::sample::select(SERVICES.to_vec()).prop_map(str::to_owned)
}

fn rule() -> impl Strategy<Value = RuleKind> {
    let types = || btree_set(prop::sample::select(vec!["h1", "h2", "h3"]), 1..3);
    let types = move || types().prop_map(|set| set.into_iter().map(str::to_owned).collect());
    prop_oneof![
        4 => (service(), 1..4u32).prop_map(|(service, count)| RuleKind::Min { service, count }),
        4 => (service(), 0..5u32).prop_map(|(service, count)| RuleKind::Max { service, count }),
        1 => (service(), 2..4u32).prop_map(|(service, step)| RuleKind::Step { service, step }),
        4 => (service(), service(), 1..4u32)
            .prop_map(|(service, of, per)| RuleKind::Ratio { service, of, per }),
        2 => btree_set(service(), 2..4).prop_map(|services| RuleKind::MustCoexist { services }),
        5 => btree_set(service(), 2..4).prop_map(|services| RuleKind::CannotCoexist { services }),
        2 => (service(), types())
            .prop_map(|(service, types)| RuleKind::HardwareTypes { service, types }),
        1 => (service(), 1..4u64, 0..3u64)
            .prop_map(|(service, cpu, memory)| RuleKind::Capacity { service, cpu, memory }),
        1 => btree_set(service(), 2..4)
            .prop_map(|services| RuleKind::Port { port: 80, services }),
        4 => (service(), 1..3u32)
            .prop_map(|(service, max)| RuleKind::AntiAffinity { service, label: "zone".to_owned(), max }),
        2 => service().prop_map(|service| RuleKind::Requested { service }),
        1 => service().prop_map(|service| RuleKind::Placed { service }),
    ]
}

fn hardware() -> impl Strategy<Value = Vec<Hardware>> {
    let one = (prop::option::of(2..6u64), prop::option::of(1..4u64), 0..3u64, 0..3usize);
    vec(one, 1..4).prop_map(|list| {
        let number = |(at, (cpu, memory, cost, zone)): (usize, (_, _, u64, usize))| {
            let labels = [None, Some("x"), Some("y")][zone];
            let labels = labels.map(|value| ("zone".to_owned(), value.to_owned()));
            Hardware {
                name: format!("h{}", at + 1),
                cost: (cost > 0).then_some(cost),
                cpu,
                memory,
                labels: labels.into_iter().collect(),
            }
        };
        list.into_iter().enumerate().map(number).collect()
    })
}

pub(crate) fn problems() -> impl Strategy<Value = LayoutProblem> {
    let preference = prop_oneof![Just(Vec::new()), Just(vec!["h2".to_owned(), "h3".to_owned()])];
    (2..=SERVICES.len(), 1..7u32, vec(rule(), 0..9), hardware(), preference, any::<bool>())
        .prop_map(|(services, size, rules, hardware, hardware_preference, prefer_cost)| {
            LayoutProblem {
                size,
                services: SERVICES[..services]
                    .iter()
                    .map(|name| ClusterService::new(*name))
                    .collect(),
                hardware,
                images: vec!["i".to_owned(), "j".to_owned()],
                rules: rules
                    .into_iter()
                    .enumerate()
                    .map(|(at, kind)| {
                        Rule::new(kind, RuleLocation::new("template t", format!("/{at}")))
                    })
                    .collect(),
                hardware_preference,
                prefer_cost,
                ..LayoutProblem::default()
            }
        })
}

/// The first count vector in descending lexicographic order that the checker accepts.
fn exhaustive(problem: &LayoutProblem) -> Option<Vec<NodeGroup>> {
    fn descend(
        problem: &LayoutProblem,
        layouts: &[NodeLayout],
        left: u32,
        groups: &mut Vec<NodeGroup>,
    ) -> bool {
        let exceeds = |rule: &Rule| match &rule.kind {
            RuleKind::Max { service, count } => {
                let with = groups.iter().filter(|group| group.layout.services.contains(service));
                with.map(|group| group.count).sum::<u32>() > *count
            }
            _ => false,
        };
        if problem.rules.iter().any(exceeds) {
            return false;
        }
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
    let mut groups = Vec::new();
    descend(problem, &layouts, problem.size, &mut groups).then_some(groups)
}

/// True if it is small enough for exhaustive search.
fn is_small(problem: &LayoutProblem) -> bool {
    let layouts = narrow(problem, node_layouts(problem).expect("few services")).len();
    // Vectors of counts: size + layouts - 1 over size.
    let mut vectors = 1u64;
    for i in 1..=u64::from(problem.size) {
        vectors = vectors * (layouts as u64 + i) / i;
    }
    vectors < 60_000
}

/// The problem with only the given rules active; others only keep services constrained.
fn only(problem: &LayoutProblem, rules: &[Rule]) -> LayoutProblem {
    let mut reduced = problem.clone();
    reduced.rules = rules.to_vec();
    let constrained = problem
        .rules
        .iter()
        .filter(|rule| !matches!(rule.kind, RuleKind::Requested { .. }))
        .flat_map(|rule| rule.kind.services())
        .map(|service| RuleKind::Placed { service: service.to_owned() });
    reduced.rules.extend(constrained.map(|kind| Rule::new(kind, RuleLocation::default())));
    reduced
}

fn feasible(problem: &LayoutProblem) -> bool {
    is_feasible(problem, SearchLimits::default()).expect("an answer")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_equal_exhaustive_search(problem in problems()) {
        prop_assume!(is_small(&problem));
        let expected = exhaustive(&problem);
        match solve_problem(&problem, SearchLimits::default()) {
            Ok(solution) => {
                prop_assert_eq!(check(&problem, &solution.groups), vec![]);
                prop_assert_eq!(Some(bag(&solution.groups)), expected.map(|groups| bag(&groups)));
            }
            Err(SolveError::Infeasible(_)) => prop_assert_eq!(expected, None),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn explanations_are_minimal_and_advice_is_true(problem in problems()) {
        let Err(SolveError::Infeasible(explained)) = solve_problem(&problem, SearchLimits::default()) else {
            return Ok(());
        };
        let conflict = &explained.conflict;
        prop_assert!(!feasible(&only(&problem, conflict)), "no conflict: {}", explained);
        for rule in conflict {
            let rest: Vec<Rule> = conflict.iter().filter(|other| *other != rule).cloned().collect();
            prop_assert!(feasible(&only(&problem, &rest)), "not needed: {}\n{}", rule.kind, explained);
        }
        // Rules without which the whole problem has a layout come first.
        let helps: Vec<bool> = conflict
            .iter()
            .map(|rule| {
                let rest = problem.rules.iter().filter(|other| *other != rule);
                feasible(&only(&problem, &rest.cloned().collect::<Vec<Rule>>()))
            })
            .collect();
        prop_assert!(helps.is_sorted_by(|one, next| one >= next), "{:?}: {}", helps, explained);
        for change in &explained.changes {
            let changed = match change {
                RuleChange::Drop(rules) => {
                    let rest: Vec<Rule> =
                        problem.rules.iter().filter(|rule| !rules.contains(rule)).cloned().collect();
                    only(&problem, &rest)
                }
                RuleChange::Relax { rule, to } => relaxed(&problem, rule, *to),
            };
            prop_assert!(feasible(&changed), "{:?} does not help: {}", change, explained);
            if let RuleChange::Relax { rule, to } = change {
                // The nearest change: one less is not enough.
                let nearer = match rule.kind {
                    RuleKind::Min { .. } => to + 1,
                    _ => to - 1,
                };
                prop_assert!(!feasible(&relaxed(&problem, rule, nearer)), "{:?}", change);
            }
        }
        for size in [explained.sizes.smaller, explained.sizes.larger].into_iter().flatten() {
            let resized = LayoutProblem { size, ..problem.clone() };
            prop_assert!(feasible(&resized), "size {} does not fit", size);
        }
        for size in 1..20 {
            let nearer = explained.sizes.larger.is_none_or(|larger| size < larger)
                && explained.sizes.smaller.is_none_or(|smaller| size > smaller);
            if nearer {
                let resized = LayoutProblem { size, ..problem.clone() };
                prop_assert!(!feasible(&resized), "size {} would fit: {}", size, explained);
            }
        }
    }

    #[test]
    fn compatible_layouts_satisfy_all_rules_too(problem in problems()) {
        let problem = compatible(problem);
        if let Ok(solution) = solve_problem(&problem, SearchLimits::default()) {
            prop_assert_eq!(check(&problem, &solution.groups), vec![]);
        }
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(problem in problems()) {
        let mut reversed = problem.clone();
        reversed.services.reverse();
        reversed.hardware.reverse();
        reversed.images.reverse();
        reversed.rules.reverse();
        let answer = |problem: &LayoutProblem| solve_problem(problem, SearchLimits::default()).ok();
        prop_assert_eq!(answer(&problem), answer(&reversed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Random conflicts, including odd cycles and triples, for which greedy packing is not enough.
    #[test]
    fn smallest_sizes_equal_dynamic_programming(
        demands in vec(0..4u32, 4..8),
        conflicts in vec(btree_set(0..7usize, 2..4), 0..14),
        cycle in any::<bool>(),
    ) {
        let name = |i: usize| ["a", "b", "c", "d", "e", "f", "g"][i];
        let services: Vec<&str> = (0..demands.len()).map(name).collect();
        let mut rules: Vec<RuleKind> = demands.iter().enumerate().map(|(i, &n)| min(name(i), n)).collect();
        let mut sets: Vec<Vec<usize>> = conflicts
            .into_iter()
            .map(|set| set.into_iter().collect::<Vec<_>>())
            .filter(|set| set.iter().all(|&i| i < demands.len()))
            .collect();
        if cycle {
            sets.extend((0..demands.len()).map(|i| vec![i, (i + 1) % demands.len()]));
        }
        for set in &sets {
            rules.push(cannot(&set.iter().map(|&i| name(i)).collect::<Vec<_>>()));
        }
        let problem = problem(&services, 1, rules);
        let expected = Table::new(&demands, &|set| avoids(set, &sets)).fewest(&demands).max(1);
        prop_assert_eq!(smallest_size_of(&problem, SearchLimits::default()).expect("an answer"), Some(expected));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() / 4 + 1, failure_persistence: None, ..ProptestConfig::default() })]

    /// At the smallest feasible sizes, minima decide about every node. With a service that runs
    /// everywhere and no maxima, a rest is feasible if the fewest nodes that cover it are not too
    /// many.
    #[test]
    fn smallest_layouts_equal_dynamic_programming(
        demands in vec(1..9u32, 5),
        conflicts in vec(btree_set(0..5usize, 2..4), 0..5),
        spare in 0..3u32,
    ) {
        let name = |i: usize| SERVICES[i];
        let mut sets: Vec<Vec<usize>> =
            conflicts.into_iter().map(|set| set.into_iter().collect()).collect();
        sets.extend((0..5).map(|i| vec![i, (i + 1) % 5]));
        let mut rules: Vec<RuleKind> = demands.iter().enumerate().map(|(i, &n)| min(name(i), n)).collect();
        for set in &sets {
            rules.push(cannot(&set.iter().map(|&i| name(i)).collect::<Vec<_>>()));
        }
        let services: Vec<&str> = SERVICES.iter().copied().chain(["z"]).collect();
        let mut problem = problem(&services, 1, rules);
        let table = Table::new(&demands, &|set| avoids(set, &sets));
        problem.size = table.fewest(&demands) + spare;
        let expected = table.layouts(&problem, &demands);
        let solution = solve_problem(&problem, SearchLimits::default()).expect("a layout");
        prop_assert_eq!(check(&problem, &solution.groups), vec![]);
        prop_assert_eq!(solution.groups, expected);
    }

    /// The same with services that fill machines.
    #[test]
    fn full_machines_equal_dynamic_programming(
        demands in vec(1..7u32, 5),
        sizes in vec(2..9u64, 5),
        spare in 0..2u32,
    ) {
        let mut rules = Vec::new();
        for (service, (&count, &cpu)) in SERVICES.iter().zip(demands.iter().zip(&sizes)) {
            rules.push(min(service, count));
            rules.push(RuleKind::Capacity { service: (*service).to_owned(), cpu, memory: 0 });
        }
        let services: Vec<&str> = SERVICES.iter().copied().chain(["z"]).collect();
        let mut problem = problem(&services, 1, rules);
        problem.hardware[0].cpu = Some(12);
        let is_valid = |set: usize| (0..5).filter(|i| set >> i & 1 == 1).map(|i| sizes[i]).sum::<u64>() <= 12;
        let table = Table::new(&demands, &is_valid);
        problem.size = table.fewest(&demands) + spare;
        let expected = table.layouts(&problem, &demands);
        let solution = solve_problem(&problem, SearchLimits::default()).expect("a layout");
        prop_assert_eq!(check(&problem, &solution.groups), vec![]);
        prop_assert_eq!(solution.groups, expected);
    }
}

/// True if no conflict is a subset of the set.
fn avoids(set: usize, conflicts: &[Vec<usize>]) -> bool {
    conflicts.iter().all(|conflict| conflict.iter().any(|&service| set >> service & 1 == 0))
}

/// Fewest nodes that cover demands, for all demands up to given ones.
struct Table {
    limits: Vec<u32>,
    fewest: Vec<u32>,
}

impl Table {
    fn new(limits: &[u32], is_valid: &dyn Fn(usize) -> bool) -> Self {
        let sets: Vec<usize> = (1..1 << limits.len()).filter(|&set| is_valid(set)).collect();
        let mut weights = vec![1];
        for limit in limits {
            weights.push(weights[weights.len() - 1] * (*limit as usize + 1));
        }
        let states = weights[limits.len()];
        let mut fewest = vec![u32::MAX; states];
        fewest[0] = 0;
        for state in 1..states {
            for &set in &sets {
                let mut rest = state;
                for (i, limit) in limits.iter().enumerate() {
                    let open = state / weights[i] % (*limit as usize + 1);
                    if set >> i & 1 == 1 && open > 0 {
                        rest -= weights[i];
                    }
                }
                if rest < state {
                    fewest[state] = fewest[state].min(fewest[rest] + 1);
                }
            }
        }
        Self { limits: limits.to_vec(), fewest }
    }

    /// The greatest counts: as many nodes of each layout as leave enough for the rest.
    fn layouts(&self, problem: &LayoutProblem, demands: &[u32]) -> Vec<NodeGroup> {
        let (mut open, mut left, mut groups) = (demands.to_vec(), problem.size, Vec::new());
        for layout in narrow(problem, node_layouts(problem).expect("few services")) {
            let has = |i: usize| u32::from(layout.services.contains(SERVICES[i]));
            let take = |open: &[u32]| -> Vec<u32> {
                open.iter().enumerate().map(|(i, n)| n.saturating_sub(has(i))).collect()
            };
            let mut count = 0;
            while left > 0 && self.fewest(&take(&open)) < left {
                open = take(&open);
                left -= 1;
                count += 1;
            }
            if count > 0 {
                groups.push(NodeGroup { layout, count });
            }
        }
        assert_eq!(left, 0);
        groups
    }

    fn fewest(&self, demands: &[u32]) -> u32 {
        let (mut state, mut weight) = (0, 1);
        for (demand, limit) in demands.iter().zip(&self.limits) {
            state += *demand as usize * weight;
            weight *= *limit as usize + 1;
        }
        self.fewest[state]
    }
}

fn relaxed(problem: &LayoutProblem, rule: &Rule, to: u32) -> LayoutProblem {
    let mut problem = problem.clone();
    for known in problem.rules.iter_mut().filter(|known| *known == rule) {
        match &mut known.kind {
            RuleKind::Min { count, .. } | RuleKind::Max { count, .. } => *count = to,
            RuleKind::AntiAffinity { max, .. } => *max = to,
            RuleKind::Ratio { per, .. } => *per = to,
            _ => {}
        }
    }
    problem
}

/// Number of cases of each property; `ORRERY_SOLVER_PROPERTY_CASES` sets it.
fn cases() -> u32 {
    let asked = std::env::var("ORRERY_SOLVER_PROPERTY_CASES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(192)
}
