//! Operations on intents, with the documents of a web application.

use std::collections::BTreeSet;

use orrery_cluster::document::{Catalog, DocumentKind};
use orrery_cluster::intent::{ClusterIntent, ClusterRequest, HardwareChange, IntentError, create};
use orrery_cluster::render::{
    MachineAttributes, RenderPolicy, RestartPolicy, ServiceAttributes, ToolchainAttributes, entity,
    render, settled, with_restarts,
};
use orrery_cluster::solver::{LayoutRequest, SearchLimits};
use orrery_model::Attributes;
use serde_json::{Value, json};

use crate::rendered_graph::RenderedGraph;
use crate::webstack;

fn catalog() -> Catalog {
    let mut catalog = webstack::catalog();
    let text = webstack::TEMPLATE.to_owned();
    catalog.add(DocumentKind::ClusterTemplate, "clustertemplates/webstack.json", text);
    catalog
}

fn new_cluster(size: u32) -> ClusterRequest {
    ClusterRequest {
        cluster: "00000071".to_owned(),
        name: "Shop".to_owned(),
        owner: "ada".to_owned(),
        request: LayoutRequest::new("webstack", size),
        ..ClusterRequest::default()
    }
}

fn cluster(size: u32) -> ClusterIntent {
    create(&catalog(), &new_cluster(size), SearchLimits::default()).expect("an intent")
}

fn count(intent: &ClusterIntent, service: &str) -> usize {
    intent.nodes.values().filter(|node| node.services.contains_key(service)).count()
}

fn names(intent: &ClusterIntent) -> BTreeSet<String> {
    intent.nodes.keys().cloned().collect()
}

#[test]
fn a_new_cluster_has_names_numbers_and_machines() {
    let intent = cluster(4);
    let names: Vec<&String> = intent.nodes.keys().collect();
    assert_eq!(names, ["shop-1000", "shop-1001", "shop-1002", "shop-1003"]);
    let node = &intent.nodes["shop-1003"];
    assert_eq!(node.hostname, "shop71-1003.example.org");
    assert_eq!((node.image.as_str(), node.ssh_user.as_str()), ("debian-12", "admin"));
    assert_eq!((node.number, node.incarnation), (1003, 1));
    assert_eq!(intent.next_number, 1004);
    assert_eq!(intent.config["nginx"]["upstream"], "%join(map(ip.service.app,'$:8080'),' ')%");
    // What the request names replaces the defaults as a whole.
    let request = ClusterRequest {
        dns_suffix: Some("lan".to_owned()),
        config: json!({"app": {"port": 1}}).as_object().cloned(),
        ..new_cluster(4)
    };
    let other = create(&catalog(), &request, SearchLimits::default()).expect("an intent");
    assert_eq!(Value::Object(other.config), json!({"app": {"port": 1}}));
    assert_eq!(other.nodes["shop-1000"].hostname, "shop71-1000.lan");
}

#[test]
fn wrong_requests_are_refused() {
    let fails = |new: ClusterRequest| {
        let error = create(&catalog(), &new, SearchLimits::default()).expect_err("an error");
        error.to_string()
    };
    assert!(fails(new_cluster(3)).contains("size 3 is too small"));
    let mut new = new_cluster(4);
    new.cluster = "Shop 1".to_owned();
    assert!(fails(new).contains("cannot be the id of a cluster"));
    let new = ClusterRequest { dns_suffix: Some("-a..b".to_owned()), ..new_cluster(4) };
    assert!(fails(new).contains("cannot be a domain"));
    let config = json!({"app": {"urls": ["%ip.nothing%"]}}).as_object().cloned();
    let message = fails(ClusterRequest { config, ..new_cluster(4) });
    assert!(message.starts_with("configuration /app/urls/0: "), "{message}");
}

#[test]
fn a_grown_cluster_keeps_its_nodes_and_never_reuses_numbers() {
    let small = cluster(4);
    let large = small.resize(8, SearchLimits::default()).expect("an intent");
    assert_eq!(count(&large, "app"), 6);
    for (name, node) in &small.nodes {
        assert_eq!(large.nodes[name], *node);
    }
    let shrunk = large.resize(5, SearchLimits::default()).expect("an intent");
    assert_eq!(shrunk.nodes.len(), 5);
    assert!(names(&shrunk).is_superset(&names(&small)), "the newest nodes go first");
    let again = shrunk.resize(6, SearchLimits::default()).expect("an intent");
    assert!(again.nodes.contains_key("shop-1008"), "{:?}", again.nodes.keys());
    assert_eq!(again.next_number, 1009);
    let refused = small.resize(3, SearchLimits::default()).expect_err("an error");
    assert!(matches!(refused, IntentError::Solve(_)), "{refused}");
}

#[test]
fn changed_documents_do_not_touch_a_cluster() {
    let intent = cluster(4);
    // Only a catalog without any document is at hand: growth needs none.
    let grown = intent.resize(6, SearchLimits::default()).expect("an intent");
    assert_eq!(grown.nodes["shop-1005"].flavor, "small");
    let mut changed = catalog();
    changed.services.get_mut("app").expect("app").body.info.label = Some("New".to_owned());
    changed.templates.get_mut("webstack").expect("it").body.constraints.size.max = Some(4);
    assert_eq!(intent.services["app"].info.label, None);
    let updated = intent.update(&changed).expect("an intent");
    assert_eq!(updated.services["app"].info.label.as_deref(), Some("New"));
    assert_eq!(updated.nodes, intent.nodes);
    // An update is refused if the nodes break the new rules.
    let refused = grown.update(&changed).expect_err("an error");
    assert!(refused.to_string().contains("at most 4"), "{refused}");
}

#[test]
fn services_are_added_and_removed_with_their_dependencies() {
    let mut new = new_cluster(4);
    new.request.services = Some(["base", "postgresql", "app"].map(str::to_owned).to_vec());
    let small = create(&catalog(), &new, SearchLimits::default()).expect("an intent");
    let limits = SearchLimits::default();
    let added = small.add_services(&catalog(), &["redis".to_owned()], limits).expect("an intent");
    assert_eq!((count(&added, "redis"), names(&added)), (1, names(&small)));
    assert!(added.services.contains_key("redis"));
    let again = added.add_services(&catalog(), &["redis".to_owned()], limits);
    assert!(matches!(again, Err(IntentError::AlreadyOnCluster(_))));
    let unknown = added.add_services(&catalog(), &["mongo".to_owned()], limits);
    assert!(unknown.expect_err("an error").to_string().contains("service mongo does not exist"));
    // app requires postgresql.
    let refused = added.remove_services(&["postgresql".to_owned()]).expect_err("an error");
    assert_eq!(
        refused.to_string(),
        "postgresql cannot be removed: app requires it; remove app, too"
    );
    // Nothing requires redis: app uses it.
    let removed = added.remove_services(&["redis".to_owned()]).expect("an intent");
    assert_eq!((count(&removed, "redis"), removed.services.contains_key("redis")), (0, false));
    assert_eq!(names(&removed), names(&small));
}

#[test]
fn a_replaced_node_has_a_new_incarnation() {
    let intent = cluster(4);
    let replaced = intent.replace("shop-1001").expect("an intent");
    assert_eq!(replaced.nodes["shop-1001"].incarnation, 2);
    assert!(matches!(intent.replace("shop-1"), Err(IntentError::UnknownNode(_))));
    let change = HardwareChange {
        services: vec!["app".to_owned()],
        hardwaretype: Some("large".to_owned()),
        ..HardwareChange::default()
    };
    let refused = intent.change_hardware(&catalog(), &change).expect_err("an error");
    assert!(matches!(refused, IntentError::Layout(_)), "{refused}");
    let change = HardwareChange { services: vec!["redis".to_owned()], ..change };
    let same = intent.change_hardware(&catalog(), &change).expect("an intent");
    assert_eq!(same.nodes, intent.nodes, "redis is on large hardware");
}

#[test]
fn starts_include_dependencies_and_stops_dependents() {
    let intent = cluster(4);
    let running = |intent: &ClusterIntent| -> BTreeSet<String> {
        let services = intent.nodes.values().flat_map(|node| &node.services);
        services.filter(|(_, one)| one.running).map(|(name, _)| name.clone()).collect()
    };
    let stopped = intent.stop(&["postgresql".to_owned()]).expect("an intent");
    assert_eq!(running(&stopped), ["base", "redis"].map(str::to_owned).into());
    let nothing = intent.stop(&[]).expect("an intent");
    assert!(running(&nothing).is_empty());
    let started = nothing.start(&["app".to_owned()]).expect("an intent");
    assert_eq!(running(&started), ["app", "postgresql", "redis"].map(str::to_owned).into());
    let restarted = intent.restart(&["app".to_owned()]).expect("an intent");
    for (service, state) in restarted.nodes.values().flat_map(|node| &node.services) {
        let is_restarted = ["app", "nginx"].contains(&service.as_str());
        assert_eq!(state.generation, u64::from(is_restarted), "{service}");
    }
    assert!(matches!(intent.stop(&["mongo".to_owned()]), Err(IntentError::NotOnCluster(_))));
}

/// Names of resources that differ, and of those that are new.
fn differences(old: &ClusterIntent, new: &ClusterIntent) -> BTreeSet<String> {
    let graph = |intent: &ClusterIntent| RenderedGraph::new(&settled(intent).expect("a version"));
    let (old, new) = (graph(old), graph(new));
    let known = new.changed(Some(&old)).into_iter().filter(|id| old.resources.contains_key(id));
    let known = known.filter(|id| id.entity() != entity::BARRIER);
    known.map(|id| format!("{} {}", &id.entity()["cluster::".len()..], id.value())).collect()
}

#[test]
fn a_changed_member_changes_its_readers_only() {
    let old = cluster(4);
    let grown = old.resize(6, SearchLimits::default()).expect("an intent");
    let nginx = old.nodes.iter().find(|(_, node)| node.services.contains_key("nginx"));
    let reader = format!("Configured {}/nginx", nginx.expect("a node").0);
    assert_eq!(differences(&old, &grown), BTreeSet::from([reader.clone()]));
    // The address of a replaced machine is another one.
    let app = old.nodes.iter().find(|(_, node)| node.services.contains_key("app"));
    let app = app.expect("a node").0;
    let replaced = differences(&old, &old.replace(app).expect("an intent"));
    let others: Vec<&String> = replaced.iter().filter(|one| !one.contains(app.as_str())).collect();
    assert_eq!(others, [&reader]);
    // A section belongs to its service, and any other key to all.
    let mut config = old.config.clone();
    config.insert("redis".to_owned(), json!({"size": 1}));
    let changed = differences(&old, &old.reconfigure(config.clone()).expect("an intent"));
    assert!(changed.iter().all(|one| one.ends_with("/redis")), "{changed:?}");
    assert_eq!(changed.len(), 5, "all actions of a service get its configuration");
    config.insert("proxy".to_owned(), json!("http://proxy"));
    let changed = differences(&old, &old.reconfigure(config).expect("an intent"));
    let changed = changed.iter().filter(|one| one.starts_with("Configured "));
    assert_eq!(changed.count(), old.nodes.values().map(|node| node.services.len()).sum::<usize>());
}

#[test]
fn restarts_follow_the_policy() {
    let old = cluster(6);
    let mut config = old.config.clone();
    config.insert("app".to_owned(), json!({"threads": 4}));
    let new = old.reconfigure(config).expect("an intent");
    let generations = |intent: &ClusterIntent, service: &str| -> Vec<u64> {
        let services = intent.nodes.values().filter_map(|node| node.services.get(service));
        services.map(|one| one.generation).collect()
    };
    let none = with_restarts(Some(&old), &new, &RestartPolicy::None).expect("an intent");
    assert_eq!(generations(&none, "app"), [0; 4]);
    assert_eq!(none.pending_restarts()["app"].len(), 4);
    // The next restart ends the wait, also one for another reason.
    let restarted = none.restart(&["postgresql".to_owned()]).expect("an intent");
    let restarted = with_restarts(Some(&none), &restarted, &RestartPolicy::None);
    assert!(restarted.expect("an intent").pending_restarts().is_empty());
    let together = with_restarts(Some(&old), &new, &RestartPolicy::Together).expect("an intent");
    assert_eq!(
        (generations(&together, "app"), generations(&together, "nginx")),
        (vec![1; 4], vec![1])
    );
    assert_eq!(generations(&together, "postgresql"), [0]);
    let rolling = RestartPolicy::Rolling { max_unavailable: Default::default(), default: 2 };
    let next = with_restarts(Some(&old), &new, &rolling).expect("an intent");
    assert_eq!((generations(&next, "app"), generations(&next, "nginx")), (vec![1; 4], vec![0]));
    let again = with_restarts(Some(&old), &next, &rolling).expect("an intent");
    assert_eq!(again, next);
    let policy = RenderPolicy { restart: rolling };
    let graph = RenderedGraph::new(&render(Some(&old), &next, &policy).expect("a version"));
    // The third instance stops when the first runs again.
    let apps: Vec<&String> =
        next.nodes.iter().filter(|(_, n)| n.services.contains_key("app")).map(|(n, _)| n).collect();
    let third = graph.id(entity::QUIESCED, apps[2], Some("app"));
    let first = graph.id(entity::RUNNING, apps[0], Some("app"));
    assert!(graph.resources[&third].requires.contains(&first));
}

#[test]
fn a_removed_node_leaves_the_configuration_of_its_readers_first() {
    let old = cluster(6);
    let new = old.resize(5, SearchLimits::default()).expect("an intent");
    let gone = names(&old).difference(&names(&new)).next().cloned().expect("a node");
    for restart in [
        RestartPolicy::None,
        RestartPolicy::Rolling { max_unavailable: Default::default(), default: 1 },
    ] {
        let next = with_restarts(Some(&old), &new, &restart).expect("an intent");
        let policy = RenderPolicy { restart };
        let rendering = render(Some(&old), &next, &policy).expect("a version");
        assert!(!rendering.is_settled);
        let graph = RenderedGraph::new(&rendering);
        let changed = graph.changed(Some(&RenderedGraph::new(&settled(&old).expect("a version"))));
        let closure = graph.closure(&changed);
        let stop = graph.id(entity::RUNNING, &gone, Some("app"));
        let nginx = next.nodes.iter().find(|(_, node)| node.services.contains_key("nginx"));
        let reader = graph.id(entity::CONFIGURED, nginx.expect("a node").0, Some("nginx"));
        assert!(closure[&stop].contains(&reader), "{:?}", policy.restart);
        assert!(closure[&graph.id(entity::MACHINE, &gone, None)].contains(&stop));
        assert_eq!(graph.attribute(&stop, "purged"), json!(true));
        assert_eq!(graph.attribute(&stop, "undo")["name"], json!("stop"));
        let after = settled(&next).expect("a version");
        assert!(!after.sets.contains_key(&gone));
    }
}

#[test]
fn creating_and_growing_need_one_version_only() {
    let small = cluster(4);
    let policy = RenderPolicy::default();
    let created = render(None, &small, &policy).expect("a version");
    assert!(created.is_settled);
    let large = small.resize(9, SearchLimits::default()).expect("an intent");
    let grown = render(Some(&small), &large, &policy).expect("a version");
    assert!(grown.is_settled);
    let unchanged = |name: &String| created.sets[name] == grown.sets[name];
    let database = small.nodes.iter().find(|(_, n)| n.services.contains_key("postgresql"));
    assert!(unchanged(database.expect("a node").0), "the database does not see new nodes");
}

#[test]
fn attributes_are_canonical_and_those_that_handlers_read() {
    let mut config = cluster(4).config;
    config.insert("z \"quoted\"".to_owned(), json!({"b": [1, "%host.self%"], "a": null}));
    let resources = [("scripts/base.sh".to_owned(), "d1".to_owned())].into_iter().collect();
    let old = cluster(5).reconfigure(config).expect("an intent").with_plugin_resources(resources);
    let new = old.resize(4, SearchLimits::default()).expect("an intent");
    let rendering = render(Some(&old), &new, &RenderPolicy::default()).expect("a version");
    for resource in rendering.sets.values().flatten() {
        let text = resource.attributes.as_str();
        let canonical = |attributes: Value| {
            Attributes::parse(&attributes.to_string()).expect("attributes").as_str().to_owned()
        };
        let read = &resource.attributes;
        let typed = match resource.id.entity() {
            entity::MACHINE | entity::REACHABLE => {
                serde_json::to_value(read.read::<MachineAttributes>().expect("attributes"))
            }
            entity::TOOLCHAIN => {
                serde_json::to_value(read.read::<ToolchainAttributes>().expect("attributes"))
            }
            entity::BARRIER => Ok(Value::Object(read.to_object())),
            _ => serde_json::to_value(read.read::<ServiceAttributes>().expect("attributes")),
        };
        assert_eq!(canonical(typed.expect("JSON")), text, "{}", resource.id.as_str());
    }
    let graph = RenderedGraph::new(&rendering);
    let node = new.nodes.keys().next().expect("a node");
    let installed = graph.id(entity::INSTALLED, node, Some("base"));
    assert_eq!(graph.attribute(&installed, "plugin_resources"), json!({"scripts/base.sh": "d1"}));
    let config = graph.attribute(&installed, "config");
    assert!(config.get("nginx").is_none() && config.get("z \"quoted\"").is_some(), "{config}");
}

#[test]
fn requirements_grow_with_the_number_of_nodes() {
    let edges = |size: u32| -> usize {
        let mut catalog = catalog();
        let template = &mut catalog.templates.get_mut("webstack").expect("it").body;
        template.constraints.size.max = None;
        template.constraints.services["nginx"].quantities.max = None;
        template.constraints.services["nginx"].quantities.min = Some(size / 2);
        let new = new_cluster(size);
        let intent = create(&catalog, &new, SearchLimits::default()).expect("an intent");
        let rendering = settled(&intent).expect("a version");
        rendering.sets.values().flatten().map(|resource| resource.requires.len()).sum()
    };
    let (small, large) = (edges(50), edges(400));
    assert!(large < 9 * small, "{small} requirements of 50 nodes, {large} of 400");
}

#[test]
fn a_barrier_differs_whenever_one_of_its_instances_does() {
    let old = cluster(8);
    let resources = [("scripts/base.sh".to_owned(), "d1".to_owned())].into_iter().collect();
    let new = old.with_plugin_resources(resources);
    let graph = |intent: &ClusterIntent| RenderedGraph::new(&settled(intent).expect("a version"));
    let (before, after) = (graph(&old), graph(&new));
    let changed = after.changed(Some(&before));
    let node = new.nodes.keys().next().expect("a node");
    assert!(changed.contains(&after.id(entity::INSTALLED, node, Some("base"))));
    // The engine orders only what differs: what waits for the barrier waits for this, too.
    let barriers: Vec<&str> =
        changed.iter().filter(|id| id.entity() == entity::BARRIER).map(|id| id.value()).collect();
    assert_eq!(barriers, ["installed/base"]);
}
