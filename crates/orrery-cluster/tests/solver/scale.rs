//! Times at full scale. The limits are those promised for optimized builds; tests are not
//! optimized.

use std::time::{Duration, Instant};

use orrery_cluster::solver::{
    Hardware, Interruption, LayoutProblem, RuleKind, SearchLimits, SolveError, solve_problem,
};

use crate::support::{cannot, max, min, problem, ratio, refused, requested, solved, step};

const SOLVED: Duration = Duration::from_secs(1);
const EXPLAINED: Duration = Duration::from_secs(2);

fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("s{i:02}")).collect()
}

/// Runs with a time limit; the best of three, as other tests run at the same time.
fn within<T>(limit: Duration, run: impl Fn() -> T) -> T {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let started = Instant::now();
        let answer = run();
        best = best.min(started.elapsed());
        if best < limit {
            return answer;
        }
    }
    panic!("took {best:?}, allowed are {limit:?}");
}

/// Thirty services with rules of many kinds, without mustcoexist rules.
fn large(size: u32) -> LayoutProblem {
    let services = names(30);
    let services: Vec<&str> = services.iter().map(String::as_str).collect();
    let mut rules = Vec::new();
    for (i, &service) in services.iter().enumerate() {
        let number = u32::try_from(i).expect("few services");
        match i % 5 {
            0 => rules.push(min(service, 1 + number % 4)),
            1 => rules.push(max(service, 3 + number)),
            2 => rules.push(ratio(service, services[(i * 7 + 3) % 30], 4)),
            3 => rules.push(step(service, 3)),
            _ => rules.push(requested(service)),
        }
        rules.push(cannot(&[service, services[(i * 11 + 5) % 30]]));
        rules.push(cannot(&[service, services[(i * 17 + 7) % 30], services[(i + 1) % 30]]));
    }
    problem(&services, size, rules)
}

#[test]
fn ten_thousand_nodes_and_thirty_services_take_less_than_a_second() {
    let solution = within(SOLVED, || solved(&large(10_000)));
    assert_eq!(solution.size(), 10_000);
}

#[test]
fn free_services_do_not_multiply() {
    let services = names(30);
    let services: Vec<&str> = services.iter().map(String::as_str).collect();
    let bounds = (0u32..).zip(&services).map(|(i, service)| max(service, 3_000 + i * 200));
    let problem = problem(&services, 10_000, bounds.collect());
    within(SOLVED, || solved(&problem));
}

#[test]
fn capacities_of_thirty_services_take_less_than_a_second() {
    let services = names(30);
    let services: Vec<&str> = services.iter().map(String::as_str).collect();
    let mut rules = Vec::new();
    for (i, &service) in (0u64..).zip(&services) {
        let cpu = 500 + i * 137 % 1500;
        rules.push(RuleKind::Capacity { service: service.to_owned(), cpu, memory: 2 * cpu });
        rules.push(min(service, 1 + u32::try_from(i % 2).expect("a bit")));
    }
    let mut problem = problem(&services, 10_000, rules);
    problem.hardware = vec![Hardware { cpu: Some(8_000), ..Hardware::new("h") }];
    within(SOLVED, || solved(&problem));
}

#[test]
fn odd_cycles_are_explained_in_two_seconds() {
    // On a ring of five, at most two services share a node: 5 * 4,001 / 2 nodes are needed.
    let services = names(30);
    let mut rules = Vec::new();
    for ring in services.chunks(5) {
        for (i, service) in ring.iter().enumerate() {
            rules.push(cannot(&[service, &ring[(i + 1) % 5]]));
            rules.push(min(service, 4_001));
        }
    }
    let services: Vec<&str> = services.iter().map(String::as_str).collect();
    let problem = problem(&services, 10_000, rules);
    let explained = within(EXPLAINED, || refused(&problem));
    // All rules of one ring, and none of the others.
    assert_eq!(explained.conflict.len(), 10);
    assert_eq!(explained.sizes.larger, None);
}

#[test]
fn time_hardly_depends_on_the_number_of_nodes() {
    let time = |size: u32| {
        let problem = large(size);
        let one = || {
            let started = Instant::now();
            solved(&problem);
            started.elapsed()
        };
        (0..5).map(|_| one()).min().expect("five runs")
    };
    let (small, large) = (time(100), time(10_000));
    // A hundred times the nodes; bisection takes twice the steps.
    assert!(large < small * 6 + Duration::from_millis(5), "{small:?} and {large:?}");
}

#[test]
fn a_deadline_stops_the_search() {
    let problem = large(10_000);
    let started = Instant::now();
    let stop = || started.elapsed() > Duration::from_micros(200);
    let answer =
        solve_problem(&problem, SearchLimits { stop: Some(&stop), ..SearchLimits::default() });
    assert!(matches!(answer, Err(SolveError::Interrupted(Interruption::Stopped))), "{answer:?}");
    assert!(started.elapsed() < Duration::from_secs(1));
}
