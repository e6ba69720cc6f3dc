//! Each kind of rule, and textual explanations.

use orrery_cluster::solver::{
    Hardware, Interruption, LayoutProblem, RuleChange, RuleKind, SearchLimits, SizeHint,
    SolveError, solve_problem,
};

use crate::support::{
    cannot, compatible, layout_text, max, min, must, names, problem, ratio, refused, requested,
    solved, step,
};

#[test]
fn a_ratio_takes_nodes_from_the_service_it_counts() {
    let tiers = ["app", "nginx"];
    let rules = vec![cannot(&tiers), min("nginx", 1), ratio("nginx", "app", 4)];
    let answer = |size| layout_text(&solved(&problem(&tiers, size, rules.clone())));
    assert_eq!(answer(5), "app x4, nginx x1");
    assert_eq!(answer(6), "app x4, nginx x2");
    assert_eq!(answer(10_000), "app x8000, nginx x2000");
}

#[test]
fn all_sizes_respect_a_step() {
    let services = ["base", "quorum"];
    let rules = vec![step("quorum", 3), requested("quorum")];
    let answer = |size| layout_text(&solved(&problem(&services, size, rules.clone())));
    assert_eq!(answer(3), "base+quorum x3");
    assert_eq!(answer(5), "base+quorum x3, base x2");
    assert_eq!(answer(6), "base+quorum x6");
    let explained = refused(&problem(&services, 2, rules));
    assert_eq!(explained.advice()[0], "size 3 is the smallest that fits");
}

#[test]
fn steps_of_exclusive_services_leave_gaps_between_sizes() {
    let services = ["a", "b", "c"];
    let rules = vec![
        cannot(&["a", "b"]),
        cannot(&["a", "c"]),
        cannot(&["b", "c"]),
        step("a", 2),
        step("b", 4),
        step("c", 6),
    ];
    let explained = refused(&problem(&services, 9_999, rules.clone()));
    assert_eq!(explained.sizes, SizeHint { smaller: Some(9_998), larger: Some(10_000) });
    assert_eq!(explained.conflict.len(), 6);
    assert_eq!(layout_text(&solved(&problem(&services, 9_998, rules))), "a x9998");
}

fn hardware(name: &str, zone: Option<&str>) -> Hardware {
    let labels = zone.map(|zone| ("zone".to_owned(), zone.to_owned())).into_iter().collect();
    Hardware { labels, ..Hardware::new(name) }
}

fn zoned(size: u32) -> LayoutProblem {
    let rules = vec![
        min("db", 2),
        RuleKind::AntiAffinity { service: "db".to_owned(), label: "zone".to_owned(), max: 1 },
    ];
    let mut problem = problem(&["base", "db"], size, rules);
    problem.hardware =
        vec![hardware("east", Some("e")), hardware("west", Some("w")), hardware("any", None)];
    problem
}

#[test]
fn anti_affinity_spreads_a_service_over_zones() {
    let solution = solved(&zoned(4));
    let groups: Vec<(String, String, u32)> = solution
        .groups
        .iter()
        .map(|group| {
            let services: Vec<&str> = group.layout.services.iter().map(String::as_str).collect();
            (group.layout.hardware.clone(), services.join("+"), group.count)
        })
        .collect();
    let expected = [("east", "base+db", 1), ("west", "base+db", 1), ("any", "base", 2)];
    let expected = expected.map(|(h, s, n)| (h.to_owned(), s.to_owned(), n));
    assert_eq!(groups, expected);
}

#[test]
fn a_zone_is_reserved_for_the_node_that_needs_it() {
    // Only eastern machines run y. A node with db, u and v in the east would leave no room for db
    // and y.
    let rules = vec![
        min("db", 2),
        min("y", 2),
        cannot(&["u", "y"]),
        cannot(&["v", "y"]),
        RuleKind::HardwareTypes { service: "y".to_owned(), types: names(&["east"]) },
        RuleKind::AntiAffinity { service: "db".to_owned(), label: "zone".to_owned(), max: 1 },
    ];
    let mut problem = problem(&["base", "db", "u", "v", "y"], 3, rules);
    problem.hardware = vec![hardware("east", Some("e")), hardware("west", Some("w"))];
    let solution = solved(&problem);
    assert_eq!(layout_text(&solution), "base+db+u+v x1, base+db+y x1, base+y x1");
    assert_eq!(solution.groups[0].layout.hardware, "west");
}

#[test]
fn too_few_zones_are_explained() {
    let mut problem = zoned(4);
    problem.hardware.remove(1);
    let explained = refused(&problem);
    assert_eq!(explained.conflict.len(), 2);
    assert_eq!(explained.sizes, SizeHint::default());
    let advice = explained.advice();
    assert_eq!(
        advice,
        [
            "lower the minimum of db to 1",
            "allow 2 db for each zone",
            "drop one of: \"db on at least 2 nodes\", \"at most 1 db for each zone\""
        ]
    );
}

#[test]
fn capacity_chooses_the_hardware_and_splits_services() {
    let needs =
        |service: &str, cpu| RuleKind::Capacity { service: service.to_owned(), cpu, memory: 0 };
    let rules = vec![needs("a", 3), needs("b", 3), requested("a"), requested("b")];
    let mut problem = problem(&["a", "b"], 2, rules);
    let sized = |name: &str, cpu| Hardware { cpu: Some(cpu), ..Hardware::new(name) };
    problem.hardware = vec![sized("small", 4)];
    assert_eq!(layout_text(&solved(&problem)), "a x1, b x1");
    problem.hardware.push(sized("tall", 6));
    let solution = solved(&problem);
    assert_eq!(layout_text(&solution), "a+b x2");
    assert_eq!(solution.groups[0].layout.hardware, "tall");
    problem.hardware = vec![sized("tiny", 2)];
    let explained = refused(&problem);
    let words = explained.to_string();
    assert!(words.contains("a needs 0.003 vcpu"), "{words}");
}

#[test]
fn services_with_the_same_port_never_share_a_node() {
    let port = RuleKind::Port { port: 80, services: names(&["apache", "nginx"]) };
    let rules = vec![port, requested("apache"), requested("nginx")];
    let both = problem(&["apache", "nginx"], 2, rules.clone());
    assert_eq!(layout_text(&solved(&both)), "apache x1, nginx x1");
    let explained = refused(&problem(&["apache", "nginx"], 1, rules));
    assert!(explained.to_string().contains("apache, nginx all listen on port 80"));
}

#[test]
fn hardware_preference_comes_before_cost_and_cost_before_the_alphabet() {
    let mut problem = problem(&["a"], 1, vec![]);
    let priced = |name: &str, cost| Hardware { cost: Some(cost), ..Hardware::new(name) };
    problem.hardware = vec![priced("a-dear", 900), priced("b-cheap", 100), priced("c-fair", 500)];
    let chosen = |problem: &LayoutProblem| solved(problem).groups[0].layout.hardware.clone();
    assert_eq!(chosen(&problem), "a-dear");
    problem.prefer_cost = true;
    assert_eq!(chosen(&problem), "b-cheap");
    assert_eq!(solved(&problem).cost, Some(100));
    problem.hardware_preference = vec!["c-fair".to_owned()];
    assert_eq!(chosen(&problem), "c-fair");
}

#[test]
fn a_requested_service_is_placed_or_explained() {
    let rules = vec![cannot(&["a", "b"]), requested("a"), requested("b")];
    let explained = refused(&problem(&["a", "b"], 1, rules.clone()));
    assert_eq!(explained.conflict.len(), 3);
    assert_eq!(
        explained.to_string(),
        "no layout with 1 node satisfies all rules\
         \n  a, b never share a node (template t /0)\
         \n  a is requested, so it needs a node (template t /1)\
         \n  b is requested, so it needs a node (template t /2)\
         \n  help: size 2 is the smallest that fits\
         \n  help: drop one of: \"a, b never share a node\", \"a is requested, so it needs a node\", \
         \"b is requested, so it needs a node\""
    );
    let solution = solved(&compatible(problem(&["a", "b"], 1, rules)));
    assert_eq!(solution.unplaced, ["b"]);
}

#[test]
fn a_maximum_that_is_too_low_is_named_with_the_one_that_fits() {
    let rules = vec![must(&["a", "b"]), max("a", 1)];
    let explained = refused(&problem(&["a", "b"], 3, rules));
    assert_eq!(explained.sizes, SizeHint { smaller: Some(1), larger: None });
    let advice = explained.advice();
    assert_eq!(advice[0], "size 1 is the largest that fits");
    assert_eq!(advice[1], "raise the maximum of a to 3");
}

#[test]
fn independent_conflicts_are_resolved_together() {
    let rules = vec![min("a", 5), min("b", 6), max("c", 9), min("c", 10)];
    let explained = refused(&problem(&["a", "b", "c"], 3, rules));
    let Some(RuleChange::Drop(dropped)) = explained.changes.last() else {
        panic!("{explained}");
    };
    assert!(dropped.len() > 1, "{explained}");
}

#[test]
fn only_sizes_that_the_template_allows_are_suggested() {
    let mut problem = problem(&["a", "b"], 3, vec![cannot(&["a", "b"]), min("a", 5), min("b", 5)]);
    assert_eq!(refused(&problem).sizes.larger, Some(10));
    problem.size_range = (Some(2), Some(8));
    assert_eq!(refused(&problem).sizes, SizeHint::default());
}

#[test]
fn a_search_can_be_cancelled_and_limited() {
    let services: Vec<String> = (0..30).map(|i| format!("s{i:02}")).collect();
    let services: Vec<&str> = services.iter().map(String::as_str).collect();
    let rules = services.iter().map(|service| max(service, 7)).collect();
    let problem = problem(&services, 40, rules);
    let stop = || true;
    let limits = SearchLimits { stop: Some(&stop), ..SearchLimits::default() };
    let interrupted = |limits| match solve_problem(&problem, limits) {
        Err(SolveError::Interrupted(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(interrupted(limits), Interruption::Stopped);
    let limits = SearchLimits { max_steps: Some(10), ..SearchLimits::default() };
    assert_eq!(interrupted(limits), Interruption::Steps(10));
}

#[test]
fn a_negative_answer_survives_an_interrupted_explanation() {
    let services = ["a", "b", "c", "d", "e"];
    let mut rules: Vec<RuleKind> = services.iter().map(|service| min(service, 21)).collect();
    for (i, a) in services.iter().enumerate() {
        rules.extend(services[i + 1..].iter().map(|b| cannot(&[a, b])));
    }
    rules.push(max("a", 90));
    let problem = problem(&services, 100, rules);
    assert_eq!(refused(&problem).conflict.len(), 15);
    let limits = SearchLimits { max_steps: Some(5), ..SearchLimits::default() };
    let Err(SolveError::Infeasible(explained)) = solve_problem(&problem, limits) else {
        panic!("expected an explanation");
    };
    assert_eq!(explained.incomplete, Some(Interruption::Steps(5)));
    assert!(explained.conflict.len() >= 15, "{explained}");
    assert!(explained.to_string().ends_with("incomplete: the search reached its limit of 5 steps"));
}
