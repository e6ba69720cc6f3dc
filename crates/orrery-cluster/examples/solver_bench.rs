//! Measures the solver on generated templates, for `bench/solver`. Prints one line of JSON for each
//! case.
//!
//! Arguments: repetitions, and optionally a part of the names of the cases to run.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]
#![expect(clippy::print_stdout, reason = "the report of a measurement goes to the terminal")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use orrery_cluster::solver::{
    ClusterService, Hardware, LayoutProblem, Rule, RuleKind, RuleLocation, SearchLimits,
    SolveError, check, smallest_size_of, solve_problem,
};

/// Time after which a case counts as unanswered.
const TIME_LIMIT: Duration = Duration::from_secs(20);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let repeat: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(3);
    let filter = arguments.next().unwrap_or_default();
    for (name, problem) in cases() {
        if name.contains(&filter) {
            measure(&name, &problem, repeat);
        }
    }
}

fn measure(name: &str, problem: &LayoutProblem, repeat: usize) {
    let mut times = Vec::new();
    let mut result = String::new();
    let mut kinds = 0;
    for _ in 0..repeat {
        let started = Instant::now();
        let stop = || started.elapsed() > TIME_LIMIT;
        let answer =
            solve_problem(problem, SearchLimits { stop: Some(&stop), ..SearchLimits::default() });
        times.push(started.elapsed());
        (result, kinds) = match answer {
            Ok(solution) => {
                let violations = check(problem, &solution.groups);
                assert!(violations.is_empty(), "{name}: {violations:?}");
                ("solved".to_owned(), solution.groups.len())
            }
            Err(SolveError::Infeasible(explained)) => {
                (format!("explained by {}", explained.conflict.len()), 0)
            }
            Err(other) => (other.to_string(), 0),
        };
    }
    times.sort();
    let seconds = times[times.len() / 2].as_secs_f64();
    let (size, services) = (problem.size, problem.services.len());
    println!(
        r#"{{"case": "{name}", "nodes": {size}, "services": {services}, "rules": {}, "kinds": {kinds}, "result": "{result}", "seconds": {seconds:.6}}}"#,
        problem.rules.len(),
    );
}

fn cases() -> Vec<(String, LayoutProblem)> {
    let mut cases = Vec::new();
    for services in [5, 10, 20, 30] {
        for nodes in [10, 100, 1_000, 10_000] {
            cases.push(("tiers".to_owned(), tiers(services, nodes)));
            cases.push(("ratios".to_owned(), ratios(services, nodes)));
            cases.push(("free".to_owned(), free(services, nodes)));
            cases.push(("random rules".to_owned(), random(services, nodes, 0)));
            cases.push(("capacity and zones".to_owned(), zones(services, nodes)));
        }
    }
    for seed in 1..=stress_seeds() {
        cases.push((format!("random rules, seed {seed}"), random(30, 10_000, seed)));
        cases.push((format!("random and tight, seed {seed}"), tight(30, 10_000, seed)));
        cases.push((format!("random and crowded, seed {seed}"), tight(30, 12, seed)));
        let smallest = threshold(30, 3_000, seed);
        let below = LayoutProblem { size: smallest.size - 1, ..smallest.clone() };
        cases.push((format!("smallest size, seed {seed}"), smallest));
        cases.push((format!("one node too few, seed {seed}"), below));
    }
    for nodes in [100, 10_000] {
        cases.push(("infeasible: minima exceed the size".to_owned(), overfull(30, nodes)));
        cases.push(("infeasible: odd cycles".to_owned(), odd_cycles(30, nodes)));
        cases.push(("infeasible: steps and no filler".to_owned(), steps(30, nodes + 1)));
    }
    for services in [8, 10, 12, 14, 16, 30] {
        cases.push(("reference: free services".to_owned(), free(services, 10)));
    }
    cases.push(("reference: 4 exclusive, minima 250".to_owned(), exclusive(4, 250, 1_000)));
    cases.push(("reference: infeasible, 5 services".to_owned(), exclusive(5, 21, 100)));
    cases
}

fn names(count: u32) -> Vec<String> {
    (0..count).map(|i| format!("s{i:02}")).collect()
}

fn problem(services: &[String], size: u32, rules: Vec<RuleKind>) -> LayoutProblem {
    LayoutProblem {
        size,
        services: services.iter().map(|name| ClusterService::new(name.clone())).collect(),
        hardware: ["large", "medium", "small"].map(Hardware::new).to_vec(),
        images: vec!["debian".to_owned()],
        rules: rules.into_iter().map(|kind| Rule::new(kind, RuleLocation::default())).collect(),
        ..LayoutProblem::default()
    }
}

fn set(names: &[&String]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).clone()).collect()
}

fn min(service: &str, count: u32) -> RuleKind {
    RuleKind::Min { service: service.to_owned(), count }
}

fn max(service: &str, count: u32) -> RuleKind {
    RuleKind::Max { service: service.to_owned(), count }
}

fn cannot(a: &String, b: &String) -> RuleKind {
    RuleKind::CannotCoexist { services: set(&[a, b]) }
}

/// Masters, workers and edges, as in published templates: groups that coexist and exclude each
/// other.
fn tiers(count: u32, size: u32) -> LayoutProblem {
    let services = names(count);
    let tiers: Vec<&[String]> = services[1..].chunks(services.len().div_ceil(4)).collect();
    let mut rules = Vec::new();
    for (at, tier) in tiers.iter().enumerate() {
        rules.push(RuleKind::MustCoexist { services: tier.iter().cloned().collect() });
        rules.push(min(&tier[0], 1));
        if at > 0 {
            rules.push(max(&tier[0], 1 + u32::try_from(at).unwrap_or(1) * 2));
        }
        for other in &tiers[at + 1..] {
            rules.push(cannot(&tier[0], &other[0]));
        }
    }
    problem(&services, size, rules)
}

/// Exclusive services, each with a ratio to the one before it, and none that runs everywhere.
fn ratios(count: u32, size: u32) -> LayoutProblem {
    let services = names(count.min(size / 2 + 2));
    let mut rules = Vec::new();
    for (at, service) in services.iter().enumerate() {
        if at > 0 {
            rules.push(cannot(&services[at - 1], service));
            let of = services[at - 1].clone();
            rules.push(RuleKind::Ratio { service: service.clone(), of, per: 3 });
        }
        if at > 1 {
            rules.push(cannot(&services[at - 2], service));
        }
        rules.push(RuleKind::Requested { service: service.clone() });
    }
    problem(&services, size, rules)
}

/// Services that may run anywhere, alone or together, each on a limited number of nodes.
fn free(count: u32, size: u32) -> LayoutProblem {
    let services = names(count);
    let mut rules = Vec::new();
    for (at, service) in (0u32..).zip(&services) {
        rules.push(max(service, (size / 2 + at * 7 % size).max(1)));
        rules.push(min(service, 1 + at % 3));
    }
    problem(&services, size, rules)
}

/// Rules of all kinds from a small random number generator.
fn random(count: u32, size: u32, seed: u64) -> LayoutProblem {
    let services = names(count);
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(u64::from(count));
    let mut next = |limit: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(state >> 33).unwrap_or(0) % limit.max(1)
    };
    let mut rules = Vec::new();
    for service in &services {
        match next(4) {
            0 => rules.push(min(service, 1 + next(3))),
            1 => rules.push(max(service, size / 2 + next(size))),
            2 => rules.push(RuleKind::Requested { service: service.clone() }),
            _ => {}
        }
    }
    for _ in 0..count * 2 {
        let (a, b) = (next(count) as usize, next(count) as usize);
        if a != b {
            rules.push(cannot(&services[a], &services[b]));
        }
    }
    for _ in 0..count / 5 {
        let (a, b) = (next(count) as usize, next(count) as usize);
        let (service, of) = (services[a].clone(), services[b].clone());
        rules.push(RuleKind::Ratio { service, of, per: 2 + next(8) });
    }
    problem(&services, size, rules)
}

/// Random rules, with maxima for all services and capacities for some, and none that runs
/// everywhere.
fn tight(count: u32, size: u32, seed: u64) -> LayoutProblem {
    let mut problem = random(count, size, seed);
    for (at, service) in (0u32..).zip(names(count)) {
        let kind = max(&service, size / 8 + (at * 977 + 13) % (size / 4 + 1) + 1);
        problem.rules.push(Rule::new(kind, RuleLocation::default()));
        if at % 3 == 0 {
            let cpu = u64::from(700 + at * 211 % 1700);
            let kind = RuleKind::Capacity { service, cpu, memory: 0 };
            problem.rules.push(Rule::new(kind, RuleLocation::default()));
        }
    }
    for hardware in &mut problem.hardware {
        hardware.cpu = Some(6_000);
    }
    problem
}

/// Random conflicts and large minima, at the smallest feasible size: packing at its hardest.
fn threshold(count: u32, most: u32, seed: u64) -> LayoutProblem {
    let mut problem = random(count, most, seed);
    problem.rules.retain(|rule| matches!(rule.kind, RuleKind::CannotCoexist { .. }));
    for (at, service) in (1u64..).zip(names(count)) {
        let count =
            u32::try_from((seed * 7_919 + at * at * 104_729) % u64::from(most)).unwrap_or(0);
        problem.rules.push(Rule::new(min(&service, count + 1), RuleLocation::default()));
    }
    let smallest = smallest_size_of(&problem, SearchLimits::default());
    problem.size = smallest.ok().flatten().unwrap_or(most);
    problem
}

/// Number of random cases of each kind; `ORRERY_SOLVER_BENCH_SEEDS` sets it.
fn stress_seeds() -> u64 {
    let asked = std::env::var("ORRERY_SOLVER_BENCH_SEEDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// Services that fill machines, some of them spread over zones.
fn zones(count: u32, size: u32) -> LayoutProblem {
    let services = names(count);
    let mut rules = Vec::new();
    for (at, service) in (0u32..).zip(&services) {
        let cpu = u64::from(500 + at * 137 % 1500);
        rules.push(RuleKind::Capacity { service: service.clone(), cpu, memory: cpu * 2 });
        rules.push(min(service, 1 + at % 2));
        if at % 5 == 0 {
            let label = "zone".to_owned();
            let max = (size / 10).max(1);
            rules.push(RuleKind::AntiAffinity { service: service.clone(), label, max });
        }
    }
    let mut problem = problem(&services, size, rules);
    problem.hardware = (0..6)
        .map(|at| Hardware {
            cpu: Some(8_000),
            memory: Some(32_000),
            labels: [("zone".to_owned(), format!("z{}", at % 3))].into(),
            ..Hardware::new(format!("h{at}"))
        })
        .collect();
    problem
}

fn overfull(count: u32, size: u32) -> LayoutProblem {
    let mut problem = exclusive(count, size / count + 1, size);
    problem.size = size;
    problem
}

/// Every service excludes its neighbours on a ring of five: at most two of them share a node.
fn odd_cycles(count: u32, size: u32) -> LayoutProblem {
    let services = names(count);
    let mut rules = Vec::new();
    for ring in services.chunks(5) {
        for (at, service) in ring.iter().enumerate() {
            rules.push(cannot(service, &ring[(at + 1) % ring.len()]));
            rules.push(min(service, size * 2 / 5 + 1));
        }
    }
    problem(&services, size, rules)
}

/// Exclusive services that come in pairs, and an odd number of nodes.
fn steps(count: u32, size: u32) -> LayoutProblem {
    let mut problem = exclusive(count, 2, size);
    for service in names(count) {
        problem.rules.push(Rule::new(RuleKind::Step { service, step: 2 }, RuleLocation::default()));
    }
    problem
}

fn exclusive(count: u32, least: u32, size: u32) -> LayoutProblem {
    let services = names(count);
    let mut rules: Vec<RuleKind> = services.iter().map(|service| min(service, least)).collect();
    for (at, service) in services.iter().enumerate() {
        for other in &services[at + 1..] {
            rules.push(cannot(service, other));
        }
    }
    problem(&services, size, rules)
}
