//! Conversion of documents to problems: locations of rules, pins, optional services, and sizes.

use orrery_cluster::document::{Catalog, DocumentKind};
use orrery_cluster::solver::{
    InvalidReason, LayoutRequest, SearchLimits, SolveError, lower, smallest_size, solve,
};
use serde_json::{Value, json};

use crate::support::{add, layout_text};

fn webstack(change: impl Fn(&mut Value)) -> Catalog {
    let mut catalog = Catalog::default();
    let provider = json!({ "name": "local", "providertype": "proc" });
    add(&mut catalog, DocumentKind::Provider, &provider);
    for (name, cost, zone) in
        [("large", "4", "z1"), ("small", "1.5", "z1"), ("small2", "1.5", "z2")]
    {
        let document = json!({
            "name": name,
            "providermap": { "local": { "flavor": name, "cost": cost, "vcpu": "4", "ram": "8192" } },
            "labels": { "zone": zone, "rack": "r1" },
        });
        add(&mut catalog, DocumentKind::HardwareType, &document);
    }
    for name in ["debian", "centos"] {
        let document = json!({ "name": name, "providermap": { "local": { "image": name } } });
        add(&mut catalog, DocumentKind::ImageType, &document);
    }
    for name in ["app", "base", "nginx", "postgresql", "redis"] {
        add(&mut catalog, DocumentKind::Service, &json!({ "name": name }));
    }
    let mut template = json!({
        "name": "webstack",
        "defaults": {
            "services": ["base", "nginx", "app", "postgresql", "redis"],
            "provider": "local",
            "imagetype": "debian",
        },
        "compatibility": { "hardwaretypes": ["small", "large"] },
        "constraints": {
            "layout": {
                "mustcoexist": [["postgresql", "redis"]],
                "cantcoexist": [["nginx", "app"], ["nginx", "postgresql"], ["app", "postgresql"]],
            },
            "services": {
                "nginx": { "hardwaretypes": ["small"], "quantities": { "min": 1, "max": 2 } },
                "app": { "hardwaretypes": ["small"], "quantities": { "min": 2 } },
                "postgresql": { "hardwaretypes": ["large"], "quantities": { "min": 1, "max": 1 } },
                "redis": { "quantities": { "max": 1 } },
            },
        },
    });
    change(&mut template);
    add(&mut catalog, DocumentKind::ClusterTemplate, &template);
    let problems = catalog.check();
    assert!(problems.is_empty(), "{problems:?}");
    catalog
}

#[test]
fn conflicts_point_into_the_template() {
    let catalog = webstack(|_| ());
    let error = solve(&catalog, &LayoutRequest::new("webstack", 3), SearchLimits::default())
        .expect_err("3");
    let SolveError::Infeasible(explained) = error else { panic!("{error}") };
    assert_eq!(explained.advice()[0], "size 4 is the smallest that fits");
    let places: Vec<&str> = explained.conflict.iter().map(|r| r.location.path.as_str()).collect();
    assert_eq!(
        places,
        [
            "/constraints/services/nginx/quantities/min",
            "/constraints/services/app/quantities/min",
            "/constraints/layout/cantcoexist/0",
            // Changes of the other rules alone do not help.
            "/constraints/services/postgresql/quantities/min",
            "/constraints/layout/cantcoexist/1",
            "/constraints/layout/cantcoexist/2",
        ]
    );
    for rule in &explained.conflict {
        let source = rule.location.source.as_ref().expect("a place in a file");
        assert!(catalog.locate(source).starts_with("clustertemplates/webstack.json:1:"));
    }
}

#[test]
fn the_smallest_size_is_found_without_a_requested_size() {
    let catalog = webstack(|_| ());
    let smallest = |catalog: &Catalog| {
        smallest_size(catalog, &LayoutRequest::new("webstack", 0), SearchLimits::default())
            .expect("an answer")
    };
    assert_eq!(smallest(&catalog), Some(4));
    let catalog = webstack(|template| template["constraints"]["size"] = json!({ "max": 3 }));
    assert_eq!(smallest(&catalog), None);
    let catalog = webstack(|template| template["constraints"]["size"] = json!({ "min": 6 }));
    assert_eq!(smallest(&catalog), Some(6));
}

#[test]
fn rules_of_all_kinds_come_from_the_documents() {
    let catalog = webstack(|template| {
        template["compatibility"] = json!({});
        template["preferences"] = json!({ "cost": true });
        let services = &mut template["constraints"]["services"];
        services["nginx"]["quantities"] = json!({ "max": 2, "ratio": { "app": 4 } });
        services["nginx"]["hardwaretypes"] = json!([]);
        services["app"]["hardwaretypes"] = json!(["small", "small2"]);
        services["app"]["quantities"] = json!({ "min": 2, "step": 2 });
        template["constraints"]["layout"]["spread"] =
            json!([{ "services": ["app"], "label": "zone", "max": 3 }]);
    });
    let solution =
        solve(&catalog, &LayoutRequest::new("webstack", 9), SearchLimits::default()).expect("9");
    assert_eq!(
        layout_text(&solution),
        "base+postgresql+redis x1, app+base x3, base+nginx x2, app+base x3"
    );
    let hardware: Vec<&str> =
        solution.groups.iter().map(|group| group.layout.hardware.as_str()).collect();
    assert_eq!(hardware, ["large", "small", "small", "small2"]);
    assert_eq!(solution.cost, Some(4_000_000 + 8 * 1_500_000));
}

#[test]
fn optional_services_may_be_left_out() {
    let hide = |template: &mut Value, optional: bool| {
        let services = &mut template["constraints"]["services"];
        services["redis"] = json!({ "quantities": { "max": 0 }, "optional": optional });
        template["constraints"]["layout"]["mustcoexist"] = json!([]);
    };
    let request = LayoutRequest::new("webstack", 4);
    let catalog = webstack(|template| hide(template, true));
    let solution = solve(&catalog, &request, SearchLimits::default()).expect("a layout");
    assert_eq!(solution.unplaced, ["redis"]);
    let catalog = webstack(|template| hide(template, false));
    let error =
        solve(&catalog, &request, SearchLimits::default()).expect_err("no layout").to_string();
    assert!(error.contains("redis is requested"), "{error}");
}

#[test]
fn pins_and_requested_values_replace_defaults() {
    let catalog = webstack(|_| ());
    let request = LayoutRequest {
        services: Some(vec!["base".to_owned(), "app".to_owned()]),
        image: Some("centos".to_owned()),
        ..LayoutRequest::new("webstack", 2)
    };
    let solution = solve(&catalog, &request, SearchLimits::default()).expect("a layout");
    assert_eq!(layout_text(&solution), "app+base x2");
    assert_eq!(solution.groups[0].layout.image, "centos");
    let request =
        LayoutRequest { hardware: Some("small2".to_owned()), ..LayoutRequest::new("webstack", 4) };
    let invalid = lower(&catalog, &request).expect_err("not compatible");
    assert_eq!(invalid[0].reason, InvalidReason::NoHardware);
    assert_eq!(invalid[0].help.as_deref(), Some("the only requested hardware type is small2"));
}

#[test]
fn all_errors_of_a_request_are_reported_together() {
    let catalog = webstack(|template| template["constraints"]["size"] = json!({ "max": 50 }));
    let request = LayoutRequest {
        services: Some(vec!["base".to_owned(), "mongodb".to_owned()]),
        image: Some("plan9".to_owned()),
        ..LayoutRequest::new("webstack", 51)
    };
    let invalid = lower(&catalog, &request).expect_err("invalid");
    let reasons: Vec<&InvalidReason> = invalid.iter().map(|invalid| &invalid.reason).collect();
    assert_eq!(
        reasons,
        [&InvalidReason::Size, &InvalidReason::NoImages, &InvalidReason::ServiceNotFound]
    );
    let place = invalid[0].location.as_ref().expect("a place");
    assert_eq!(place.path, "/constraints/size/max");
}

#[test]
fn one_label_is_the_limit_for_services_that_share_nodes() {
    let catalog = webstack(|template| {
        template["constraints"]["layout"]["spread"] = json!([
            { "services": ["postgresql"], "label": "zone" },
            { "services": ["redis"], "label": "rack" },
        ]);
    });
    let invalid = lower(&catalog, &LayoutRequest::new("webstack", 4)).expect_err("invalid");
    assert_eq!(invalid[0].reason, InvalidReason::Spread);
}
