//! The contract with rendering: intents become resources, and these reach their state through the
//! handlers, in the order of their requirements.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orrery_cluster::document::{Catalog, DocumentKind};
use orrery_cluster::intent::{ClusterIntent, ClusterRequest, create};
use orrery_cluster::render::{
    RenderPolicy, Rendering, RestartPolicy, render, settled, with_restarts,
};
use orrery_cluster::solver::{LayoutRequest, SearchLimits};
use orrery_handlers::run::Purpose;
use orrery_model::{ChangeKind, OutcomeStatus, Resource};
use orrery_provisioner::directory::ViewNode;
use orrery_provisioner::facts::NodeFacts;
use orrery_provisioner::journal_check::JournalCheck;
use orrery_provisioner::plugins::Plugins;
use orrery_provisioner::provider::SimProvider;
use orrery_provisioner::sim_journal::{SimEvent, SimJournals};
use orrery_provisioner::task::TaskAction;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::harness::{CLUSTER, World, log};

fn catalog() -> Catalog {
    let actions = |names: &[&str]| -> Value {
        let call =
            |name: &&str| ((*name).to_owned(), json!({"type": "shell", "fields": {"script": "x"}}));
        json!({"actions": names.iter().map(call).collect::<Map<String, Value>>()})
    };
    let all = ["install", "configure", "initialize", "start", "stop", "remove"];
    let documents = [
        (
            DocumentKind::Provider,
            json!({"name": "local", "providertype": "sim", "provisioner": {}}),
        ),
        (
            DocumentKind::HardwareType,
            json!({"name": "small", "providermap": {"local": {"flavor": "s"}}}),
        ),
        (
            DocumentKind::ImageType,
            json!({"name": "debian", "providermap": {"local": {"image": "d"}}}),
        ),
        (
            DocumentKind::Service,
            json!({"name": "base", "provisioner": actions(&["install", "configure"])}),
        ),
        (
            DocumentKind::Service,
            json!({
                "name": "db", "dependencies": {"install": {"requires": ["base"]}},
                "provisioner": actions(&all),
            }),
        ),
        (
            DocumentKind::Service,
            json!({
                "name": "app",
                "dependencies": {"install": {"requires": ["base"]}, "runtime": {"requires": ["db"]}},
                "provisioner": actions(&["install", "configure", "start", "stop", "remove"]),
            }),
        ),
        (
            DocumentKind::ClusterTemplate,
            json!({
                "name": "web",
                "defaults": {
                    "services": ["base", "db", "app"], "provider": "local",
                    "config": {"app": {"database": "%ip.service.db%"}},
                },
                "constraints": {
                    "size": {"min": 2, "max": 20},
                    "layout": {"cantcoexist": [["db", "app"]]},
                    "services": {"db": {"quantities": {"min": 1, "max": 1}}, "app": {"quantities": {"min": 1}}},
                },
            }),
        ),
    ];
    let mut catalog = Catalog::default();
    for (kind, document) in documents {
        let name = document["name"].as_str().unwrap();
        let path = format!("{}/{name}.json", kind.directory());
        catalog.add(kind, &path, document.to_string());
    }
    catalog
}

struct Cluster {
    directory: TempDir,
    world: World,
    intent: Option<ClusterIntent>,
}

impl Cluster {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut plugins = Plugins::default();
        plugins.add_provider(Arc::new(SimProvider::new(directory.path())));
        let world = World::new(plugins, "sim", json!({}));
        Cluster { directory, world, intent: None }
    }

    /// Deploys the transition to an intent, and what follows it.
    fn deploy(&mut self, intent: ClusterIntent, restart: &RestartPolicy) {
        let old = self.intent.as_ref();
        let intent = with_restarts(old, &intent, restart).unwrap();
        let both = old.map_or_else(|| intent.clone(), |old| intent.including(old));
        self.set_nodes(&both);
        let policy = RenderPolicy { restart: restart.clone() };
        let rendering = render(old, &intent, &policy).unwrap();
        self.run(&rendering);
        self.set_nodes(&intent);
        // Another deploy of what stays finds everything done.
        let changed = self.run(&settled(&intent).unwrap());
        assert!(changed.is_empty(), "{changed:?}");
        let check = JournalCheck::run(&self.journals()).unwrap();
        assert!(check.problems.is_empty(), "{:#?}", check.problems);
        let machines: BTreeSet<(u64, u32)> =
            check.machines.keys().map(|name| (name.number, name.incarnation)).collect();
        let expected = intent.nodes.values().map(|node| (node.number, node.incarnation));
        assert_eq!(machines, expected.collect());
        for node in intent.nodes.values() {
            let state =
                check.machines.iter().find(|(name, _)| name.number == node.number).unwrap().1;
            for (service, wanted) in node.services.iter().filter(|(name, _)| *name != "base") {
                let running = wanted.running.then_some(wanted.generation);
                assert_eq!(state.services[service].running, running, "{service}");
            }
        }
        self.intent = Some(intent);
    }

    fn set_nodes(&self, intent: &ClusterIntent) {
        let node = |(name, node): (&String, &orrery_cluster::intent::IntentNode)| ViewNode {
            name: name.clone(),
            number: node.number,
            hostname: node.hostname.clone(),
            services: node.services.keys().cloned().collect(),
            facts: NodeFacts::default(),
        };
        self.world.set_nodes(intent.nodes.iter().map(node).collect());
    }

    /// Runs all resources, each after its requirements; returns those that changed.
    fn run(&self, rendering: &Rendering) -> Vec<String> {
        let all: BTreeMap<&str, &Resource> = rendering
            .sets
            .values()
            .flatten()
            .map(|resource| (resource.id.as_str(), resource))
            .collect();
        let mut done: BTreeSet<&str> = BTreeSet::new();
        let mut changed = Vec::new();
        while done.len() < all.len() {
            let before = done.len();
            for (id, resource) in &all {
                let is_ready = resource.requires.iter().all(|required| {
                    done.contains(required.as_str()) || !all.contains_key(required.as_str())
                });
                if done.contains(id) || !is_ready {
                    continue;
                }
                let outcome = self.world.run_resource(Purpose::Deploy, resource);
                let text = log(&outcome);
                assert_eq!(outcome.outcome.status, OutcomeStatus::Deployed, "{id}: {text}");
                if outcome.outcome.change.kind != ChangeKind::NoChange {
                    changed.push((*id).to_owned());
                }
                done.insert(id);
            }
            assert!(done.len() > before, "resources wait for each other");
        }
        changed
    }

    fn journals(&self) -> SimJournals {
        SimJournals::new(self.directory.path())
    }

    /// Number of successful actions of a service on all machines.
    fn count(&self, service: &str, action: TaskAction) -> usize {
        let journals = self.journals();
        let names = journals.machines().unwrap();
        let entries = names.iter().flat_map(|name| journals.entries(name).unwrap());
        let is_counted = |event: &SimEvent| {
            matches!(event, SimEvent::Act { service: Some(name), action: Some(done), .. }
                if name == service && *done == action)
        };
        entries.filter(|entry| entry.ok && is_counted(&entry.event)).count()
    }

    fn intent(&self) -> &ClusterIntent {
        self.intent.as_ref().unwrap()
    }
}

#[test]
fn intents_reach_their_state_through_all_operations() {
    let new = ClusterRequest {
        cluster: CLUSTER.to_owned(),
        name: "web".to_owned(),
        owner: "ann".to_owned(),
        request: LayoutRequest::new("web", 3),
        ..ClusterRequest::default()
    };
    let mut cluster = Cluster::new();
    let limits = SearchLimits::default;
    let none = RestartPolicy::None;
    cluster.deploy(create(&catalog(), &new, limits()).unwrap(), &none);
    assert_eq!(
        (cluster.count("app", TaskAction::Start), cluster.count("db", TaskAction::Start)),
        (2, 1)
    );

    cluster.deploy(cluster.intent().resize(5, limits()).unwrap(), &none);
    assert_eq!(cluster.count("app", TaskAction::Start), 4);
    assert_eq!(cluster.count("db", TaskAction::Initialize), 1);

    let config = json!({"app": {"database": "%ip.service.db%", "color": "blue"}});
    let rolling = RestartPolicy::Rolling { max_unavailable: BTreeMap::new(), default: 1 };
    let config = config.as_object().cloned().unwrap();
    cluster.deploy(cluster.intent().reconfigure(config).unwrap(), &rolling);
    assert_eq!(cluster.count("app", TaskAction::Stop), 4);
    assert_eq!(cluster.count("app", TaskAction::Start), 8);

    let database: Vec<String> = vec!["db".to_owned()];
    cluster.deploy(cluster.intent().stop(&database).unwrap(), &none);
    cluster.deploy(cluster.intent().start(&["app".to_owned()]).unwrap(), &none);
    cluster.deploy(cluster.intent().restart(&database).unwrap(), &RestartPolicy::Together);

    let node = cluster.intent().nodes.iter().find(|(_, node)| node.services.contains_key("db"));
    let node = node.unwrap().0.clone();
    cluster.deploy(cluster.intent().replace(&node).unwrap(), &none);
    assert_eq!(
        cluster.count("db", TaskAction::Initialize),
        2,
        "the new machine has a new database"
    );

    cluster.deploy(cluster.intent().resize(2, limits()).unwrap(), &none);
    cluster.deploy(cluster.intent().delete(), &none);
    assert!(cluster.intent().nodes.is_empty());
}
