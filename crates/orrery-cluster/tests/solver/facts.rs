//! Recorded facts of the original. `ORRERY_SOLVER_CASES` names another file of the same format.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use orrery_cluster::document::DocumentKind;
use orrery_cluster::solver::{
    AddError, ClusterService, DescendingCounts, InvalidReason, LayoutProblem, LayoutRequest,
    NodeGroup, NodeLayout, Rule, RuleKind, SearchLimits, Solution, SolveError, SolverMode,
    add_services, check, is_valid_node, is_valid_service_set, lower, narrow, node_layouts,
    order_layouts, service_sets, solve_problem, unconstrained,
};
use serde_json::{Value, json};

use crate::support::{add, bag, catalog, compatible, groups, layout, strings, template};

fn facts() -> Value {
    let path = match std::env::var_os("ORRERY_SOLVER_CASES") {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/solver_cases.json"),
    };
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Runs a test for each fact of a kind and reports all differences.
fn for_each(kind: &str, test: impl Fn(&Value, &Value)) {
    let facts = facts();
    let mut failed = Vec::new();
    let mut count = 0;
    for case in facts["cases"].as_array().expect("cases") {
        if case["kind"] != kind {
            continue;
        }
        count += 1;
        let template = case["template"].as_str().map(|name| &facts["templates"][name]);
        let run = std::panic::AssertUnwindSafe(|| test(case, template.unwrap_or(&Value::Null)));
        if std::panic::catch_unwind(run).is_err() {
            failed.push(case["id"].to_string());
        }
    }
    assert!(failed.is_empty(), "{} of {count} {kind} facts differ: {failed:?}", failed.len());
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().expect("a number")).expect("a small number")
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().expect("numbers").iter().map(number).collect()
}

fn layouts(value: &Value) -> Vec<NodeLayout> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(layout).collect()
}

/// The problem of a fact, built from documents.
fn problem_of(case: &Value, fact: &Value) -> LayoutProblem {
    let services = match &case["services"] {
        Value::Null => strings(&fact["default_services"]),
        list => strings(list),
    };
    let hardware = strings(&case["hardwaretypes"]);
    let images = strings(&case["imagetypes"]);
    let mut catalog = catalog(&hardware, &images, &services);
    add(&mut catalog, DocumentKind::ClusterTemplate, &template("t", &services, fact));
    let size = case["size"].as_u64().map_or(1, |_| number(&case["size"]));
    lower(&catalog, &LayoutRequest::new("t", size)).unwrap_or_else(|e| panic!("{e:?}"))
}

fn narrowed(problem: &LayoutProblem) -> Vec<NodeLayout> {
    narrow(problem, node_layouts(problem).expect("few services"))
}

fn solve(problem: &LayoutProblem) -> Option<Solution> {
    match solve_problem(problem, SearchLimits::default()) {
        Ok(solution) => {
            assert_eq!(check(problem, &solution.groups), []);
            Some(solution)
        }
        Err(SolveError::Infeasible(_)) => None,
        Err(other) => panic!("{other}"),
    }
}

fn counts(solution: &Solution, layouts: &[NodeLayout]) -> Vec<u32> {
    let bag = bag(&solution.groups);
    layouts.iter().map(|layout| bag.get(layout).copied().unwrap_or(0)).collect()
}

#[test]
fn compatible_answers_equal_those_of_the_original() {
    for_each("solve", |case, fact| {
        let problem = compatible(problem_of(case, fact));
        let expected = &case["expected"];
        let answer = solve(&problem);
        if expected["result"] == "unsolvable" {
            assert_eq!(answer, None);
        } else {
            let answer = answer.expect("a layout");
            assert_eq!(bag(&answer.groups), bag(&groups(&expected["layout"])));
            let unplaced: BTreeSet<String> = answer.unplaced.iter().cloned().collect();
            let left_out = strings(&expected["requested_but_not_placed"]).into_iter().collect();
            assert_eq!(unplaced, left_out);
            let layouts = narrowed(&problem);
            if let Some(count) = expected["preferences_count"].as_u64() {
                assert_eq!(layouts.len() as u64, count);
            }
            if expected["counts"].is_array() {
                assert_eq!(counts(&answer, &layouts), numbers(&expected["counts"]));
            }
        }
        for preferences in [&case["preferences"], &expected["preferences"]] {
            if preferences.is_array() {
                assert_eq!(narrowed(&problem), crate::facts::layouts(preferences));
            }
        }
    });
}

/// Number of nodes that the original reaches before it considers minima: as many of each layout as
/// maxima allow.
fn greedy_start(problem: &LayoutProblem) -> u32 {
    let mut left = problem.size;
    let mut placed: BTreeMap<String, u32> = BTreeMap::new();
    for layout in narrowed(problem) {
        let spare = |rule: &Rule| match &rule.kind {
            RuleKind::Max { service, count } if layout.services.contains(service) => {
                Some(count.saturating_sub(placed.get(service).copied().unwrap_or(0)))
            }
            _ => None,
        };
        let count = problem.rules.iter().filter_map(spare).min().unwrap_or(left).min(left);
        left -= count;
        for service in &layout.services {
            *placed.entry(service.clone()).or_default() += count;
        }
    }
    problem.size - left
}

#[test]
fn strict_answers_place_every_service_and_are_otherwise_the_same() {
    for_each("solve", |case, fact| {
        let problem = problem_of(case, fact);
        assert_eq!(problem.mode, SolverMode::Strict);
        let expected = &case["expected"];
        let answer = solve(&problem);
        if expected["result"] == "unsolvable" {
            // Problems that the original gives up on are solved; the checker has verified it.
            let witness = expected["false_negative_witness"].is_array()
                || !expected["complete_solver_expected"].is_null()
                || !case["complete_solver_expected"].is_null();
            let gives_up = greedy_start(&problem) < problem.size;
            assert!(answer.is_some() || !witness);
            assert!(answer.is_none() || gives_up, "{answer:?}");
        } else if expected["requested_but_not_placed"].is_array() {
            // The checker has verified that the services are placed, if possible.
            if let Some(answer) = answer {
                assert_eq!(answer.unplaced, Vec::<String>::new());
            }
        } else {
            let answer = answer.expect("a layout");
            assert_eq!(bag(&answer.groups), bag(&groups(&expected["layout"])));
        }
    });
}

#[test]
fn strict_answers_follow_the_advice() {
    let expected = [
        ("P-01", vec![(vec!["a"], 2), (vec!["b"], 1)]),
        ("P-05", vec![(vec!["a", "b"], 1), (vec!["a"], 1), (vec!["b"], 1)]),
    ];
    for_each("solve", |case, fact| {
        let id = case["id"].as_str().unwrap_or_default();
        let Some((_, groups)) = expected.iter().find(|(known, _)| *known == id) else { return };
        let group = |(services, count): &(Vec<&str>, u32)| NodeGroup {
            layout: NodeLayout {
                hardware: "h".to_owned(),
                image: "i".to_owned(),
                services: crate::support::names(services),
            },
            count: *count,
        };
        let groups: Vec<NodeGroup> = groups.iter().map(group).collect();
        let answer = solve(&problem_of(case, fact)).expect("a layout");
        assert_eq!(answer.groups, groups);
    });
}

/// A problem with the machine types of the given layouts, preferred in their order.
fn problem_for(case: &Value, fact: &Value, layouts: &[NodeLayout]) -> LayoutProblem {
    let mut hardware: Vec<String> = Vec::new();
    let mut images: Vec<String> = Vec::new();
    for layout in layouts {
        for (list, name) in [(&mut hardware, &layout.hardware), (&mut images, &layout.image)] {
            if !list.contains(name) {
                list.push(name.clone());
            }
        }
    }
    let case = json!({
        "services": case["cluster_services"],
        "hardwaretypes": hardware,
        "imagetypes": images,
        "size": case["size"],
    });
    let mut problem = compatible(problem_of(&case, fact));
    problem.hardware_preference = hardware;
    problem
}

#[test]
fn counts_of_given_layouts() {
    for_each("node_counts", |case, fact| {
        let layouts = layouts(&case["preferences"]);
        let problem = problem_for(case, fact, &layouts);
        // The facts give some sets of services other hardware than the comparator would.
        let count = |answer: &Solution, services: &BTreeSet<String>| {
            let mut groups = answer.groups.iter();
            groups.find(|group| group.layout.services == *services).map_or(0, |group| group.count)
        };
        let answer = solve(&problem).map(|answer| {
            assert!(answer.groups.len() <= layouts.len());
            layouts.iter().map(|layout| count(&answer, &layout.services)).collect::<Vec<u32>>()
        });
        let expected = &case["expected"]["counts"];
        assert_eq!(answer, (!expected.is_null()).then(|| numbers(expected)));
    });
}

#[test]
fn validity_of_counts() {
    for_each("counts_valid", |case, fact| {
        let layouts = layouts(&case["preferences"]);
        let problem = problem_for(case, fact, &layouts);
        let groups: Vec<NodeGroup> = layouts
            .into_iter()
            .zip(numbers(&case["counts"]))
            .filter(|(_, count)| *count > 0)
            .map(|(layout, count)| NodeGroup { layout, count })
            .collect();
        let violations = check(&problem, &groups);
        let valid = case["expected"]["valid"] == true;
        assert_eq!(violations.is_empty(), valid, "{violations:?}");
    });
}

#[test]
fn validity_of_service_sets() {
    for_each("service_set_valid", |case, fact| {
        let problem =
            problem_for(case, fact, &layouts(&json!([{ "hardwaretype": "h", "imagetype": "i" }])));
        let set = strings(&case["service_set"]).into_iter().collect();
        assert_eq!(is_valid_service_set(&problem, &set), case["expected"]["valid"] == true);
    });
    for_each("service_sets", |case, fact| {
        let problem =
            problem_for(case, fact, &layouts(&json!([{ "hardwaretype": "h", "imagetype": "i" }])));
        let sets: BTreeSet<BTreeSet<String>> =
            service_sets(&problem).expect("few services").into_iter().collect();
        let expected = case["expected"]["sets"].as_array().expect("sets");
        let expected = expected.iter().map(|set| strings(set).into_iter().collect()).collect();
        assert_eq!(sets, expected);
    });
}

#[test]
fn validity_of_node_layouts() {
    for_each("node_layout_valid", |case, fact| {
        let node = layout(&case["node_layout"]);
        let problem = problem_for(case, fact, std::slice::from_ref(&node));
        let expected = case["expected"]["satisfies_service_constraints"] == true;
        assert_eq!(is_valid_node(&problem, &node), expected);
    });
    for_each("node_layouts", |case, fact| {
        let problem = problem_of(case, fact);
        let found: BTreeSet<NodeLayout> =
            node_layouts(&problem).expect("few services").into_iter().collect();
        assert_eq!(found, layouts(&case["expected"]["layouts"]).into_iter().collect());
    });
    for_each("narrow", |case, _| {
        let mut given = layouts(&case["input"]);
        let problem = LayoutProblem {
            hardware_preference: strings(&case["hardware_preference"]),
            image_preference: strings(&case["image_preference"]),
            ..LayoutProblem::default()
        };
        order_layouts(&problem, &mut given);
        assert_eq!(narrow(&problem, given), layouts(&case["expected"]["ordered"]));
    });
}

#[test]
fn unconstrained_services() {
    for_each("unconstrained", |case, fact| {
        let problem =
            problem_for(case, fact, &layouts(&json!([{ "hardwaretype": "h", "imagetype": "i" }])));
        let found: BTreeSet<&str> = unconstrained(&problem).into_iter().collect();
        let expected = strings(&case["expected"]["services"]);
        assert_eq!(found, expected.iter().map(String::as_str).collect());
    });
}

#[test]
fn validity_of_layouts() {
    for_each("layout_valid", |case, fact| {
        let groups = groups(&case["layout"]);
        let layouts: Vec<NodeLayout> = groups.iter().map(|group| group.layout.clone()).collect();
        let mut problem = problem_for(case, fact, &layouts);
        let present: BTreeSet<String> =
            layouts.iter().flat_map(|layout| layout.services.iter().cloned()).collect();
        problem.services = present.into_iter().map(ClusterService::new).collect();
        problem.size = groups.iter().map(|group| group.count).sum();
        let violations = check(&problem, &groups);
        let valid = case["expected"]["valid"] == true;
        assert_eq!(violations.is_empty(), valid, "{violations:?}");
    });
}

#[test]
fn sequences_of_counts() {
    for_each("iterator", |case, _| {
        let max = case["max"].is_array().then(|| numbers(&case["max"]));
        let found = if case["initial"].is_array() {
            let initial = numbers(&case["initial"]);
            DescendingCounts::starting_at(&initial, &max.expect("maxima"))
        } else {
            let slots = number(&case["slots"]) as usize;
            DescendingCounts::new(slots, number(&case["items"]), max.as_deref())
        };
        let expected = &case["expected"];
        if let Some(error) = expected["error"].as_str() {
            let found = found.expect_err("an error").to_string();
            assert_eq!(format!("error: {found}"), error);
        } else if expected["sequence"].is_array() {
            let sequence = expected["sequence"].as_array().expect("a sequence");
            let sequence: Vec<Vec<u32>> = sequence.iter().map(numbers).collect();
            assert_eq!(found.expect("counts").collect::<Vec<_>>(), sequence);
        } else {
            // "all 20 three-of-six subsets in descending lexicographic order"
            let found: Vec<Vec<u32>> = found.expect("counts").collect();
            assert_eq!(found.len(), 20);
            assert!(found.windows(2).all(|pair| pair[0] > pair[1]));
            assert!(found.iter().all(|counts| counts.iter().sum::<u32>() == 3));
        }
    });
}

#[test]
fn additions_to_a_layout() {
    for_each("add_services", |case, fact| {
        let nodes = groups(&case["nodes"]);
        let layouts: Vec<NodeLayout> = nodes.iter().map(|group| group.layout.clone()).collect();
        let fact = if fact.is_null() { case } else { fact };
        let added: BTreeSet<String> = strings(&case["add"]).into_iter().collect();
        let services: BTreeSet<String> = layouts
            .iter()
            .flat_map(|layout| layout.services.iter().cloned())
            .chain(added.iter().cloned())
            .collect();
        let case_of = json!({ "cluster_services": services });
        let problem = problem_for(&case_of, fact, &layouts);
        let answer = add_services(&problem, &nodes, &added, SearchLimits::default());
        let expected = &case["expected"];
        if expected["result"] == "unsolvable" {
            assert!(matches!(answer, Err(AddError::NoPlacement(_))), "{answer:?}");
        } else if case["id"] == "A-05" {
            // The original forgets a service here.
            let expected = json!([
                { "hardwaretype": "h", "imagetype": "i", "services": ["B", "x"], "count": 1 },
                { "hardwaretype": "h", "imagetype": "i", "services": ["A", "x"], "count": 1 },
            ]);
            assert_eq!(bag(&answer.expect("a layout")), bag(&groups(&expected)));
        } else {
            assert_eq!(bag(&answer.expect("a layout")), bag(&groups(&expected["layout"])));
        }
    });
}

#[test]
fn requests_are_checked_before_the_search() {
    for_each("validate", |case, _| {
        let facts = facts();
        let input = &case["input"];
        let fact =
            input["template"].as_str().map_or(&Value::Null, |name| &facts["templates"][name]);
        let mut services = strings(&input["services"]);
        services.extend(strings(&input["cluster_services"]));
        services.extend(strings(&input["add"]));
        if services.is_empty() {
            services.push("a".to_owned());
        }
        let known = |name: &&String| *name != "fakeservice";
        let mut catalog = catalog(&["h".to_owned()], &["i".to_owned()], &[]);
        let other = json!({ "name": "rackspace", "providertype": "sim" });
        add(&mut catalog, DocumentKind::Provider, &other);
        for service in services.iter().filter(known) {
            let mut document = json!({ "name": service, "dependencies": {} });
            for (path, list) in input["deps"][service].as_object().into_iter().flatten() {
                match path.split_once('.') {
                    Some((phase, key)) => document["dependencies"][phase][key] = list.clone(),
                    None => document["dependencies"][path] = list.clone(),
                }
            }
            // The fixture of the original: its facts do not repeat it.
            if case["id"] == "E-07" && service == "reactor" {
                document["dependencies"]["runtime"]["requires"] = json!(["zookeeper"]);
            }
            add(&mut catalog, DocumentKind::Service, &document);
        }
        let mut document = template("t", &services, fact);
        if fact["compatibility"].is_object() {
            document["compatibility"] = fact["compatibility"].clone();
        }
        document["constraints"]["size"] = input["size"].clone();
        if input["size"].is_null() {
            document["constraints"]["size"] = json!({});
        }
        add(&mut catalog, DocumentKind::ClusterTemplate, &document);
        let size = input["numMachines"].as_u64().map_or(10, |_| number(&input["numMachines"]));
        let provider = input["provider"].as_str().map(str::to_owned);
        let request = LayoutRequest { provider, ..LayoutRequest::new("t", size) };
        let answer = lower(&catalog, &request);
        let accepted = case["expected"]["accepted"] == true;
        assert_eq!(answer.is_ok(), accepted, "{answer:?}");
        let Err(invalid) = answer else { return };
        let reasons: Vec<&InvalidReason> = invalid.iter().map(|invalid| &invalid.reason).collect();
        let reason = match case["id"].as_str().unwrap_or_default() {
            "E-01" => {
                assert_eq!(invalid[0].message, case["expected"]["reason"]);
                InvalidReason::MissingDependency
            }
            "E-02" => InvalidReason::ServiceNotFound,
            "E-03" | "E-06" => InvalidReason::IncompatibleServices,
            "E-04" => InvalidReason::ConflictingServices,
            "E-07" => InvalidReason::MissingDependency,
            "E-08" => InvalidReason::NoHardware,
            "E-09" | "E-10" => InvalidReason::Size,
            _ => return,
        };
        assert!(reasons.contains(&&reason), "{reasons:?}");
    });
}
