//! A cluster without a server: handlers, a dispatcher in this process, and a directory in memory
//! that learns facts from the runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_handlers::run::{HandlerRun, Purpose, RunContext, RunOutcome};
use orrery_handlers::{
    BeforeChange, CancelToken, EffectGate, LocalSecrets, NoContents, OutwardTarget, Registry,
    TargetCache,
};
use orrery_model::{
    Attributes, ChangeKind, LogLevel, OutcomeStatus, PipSettings, Resource, Timestamp,
    VersionNumber,
};
use orrery_provisioner::directory::{ClusterDirectory, ClusterView, DirectoryError, ViewNode};
use orrery_provisioner::dispatch::{Dispatcher, LocalDispatcher};
use orrery_provisioner::facts::NodeFacts;
use orrery_provisioner::handlers::{ActionLimits, ClusterServices, register};
use orrery_provisioner::plugin::{PluginError, PluginResources};
use orrery_provisioner::plugins::Plugins;
use orrery_provisioner::redacted::RedactedMap;
use orrery_provisioner::runner::PluginRunner;
use orrery_provisioner::slots::Slots;
use orrery_provisioner::task::{NodeDescription, PluginInvocation, Task, Work};
use orrery_pyenv::interpreters::Interpreter;
use orrery_pyenv::{VirtualEnvSpec, VirtualEnvs};
use serde_json::{Map, Value, json};

pub(crate) const CLUSTER: &str = "c1";

/// Contents by digest.
#[derive(Default)]
pub(crate) struct MemoryResources(pub(crate) Mutex<BTreeMap<String, Arc<[u8]>>>);

impl PluginResources for MemoryResources {
    fn content(&self, _: &str, digest: &str) -> Result<Option<Arc<[u8]>>, PluginError> {
        Ok(self.0.lock().unwrap().get(digest).cloned())
    }
}

/// The cluster as the server would store it.
#[derive(Default)]
pub(crate) struct MemoryDirectory(Mutex<BTreeMap<String, ViewNode>>);

impl ClusterDirectory for MemoryDirectory {
    fn view(&self, cluster: &str, _: bool) -> Result<Arc<ClusterView>, DirectoryError> {
        if cluster != CLUSTER {
            return Err(DirectoryError::NotFound(cluster.to_owned()));
        }
        let nodes = self.0.lock().unwrap().values().cloned().collect();
        Ok(Arc::new(ClusterView::new(cluster, "ann", "shop", nodes)))
    }
}

/// A service of a test.
#[derive(Clone)]
pub(crate) struct TestService {
    pub(crate) name: &'static str,
    /// Automator and fields by action.
    pub(crate) actions: BTreeMap<&'static str, (&'static str, Value)>,
    pub(crate) generation: u64,
    pub(crate) running: bool,
    pub(crate) digest: String,
    pub(crate) once: Option<String>,
}

impl TestService {
    /// A service whose actions are calls of one script with the name of the action.
    pub(crate) fn of_script(name: &'static str, script: &str, actions: &[&'static str]) -> Self {
        let call = |action: &&'static str| {
            (*action, ("shell", json!({"script": script, "args": *action})))
        };
        TestService {
            name,
            actions: actions.iter().map(call).collect(),
            generation: 1,
            running: true,
            digest: "d1".to_owned(),
            once: actions.contains(&"initialize").then(|| "key-1".to_owned()),
        }
    }
}

/// Work on a machine, as a handler would give it to a dispatcher.
pub(crate) fn machine_task(provider: &str, fields: Value, number: u64, work: Work) -> Task {
    Task {
        id: format!("test-{number}"),
        tenant: "shop".to_owned(),
        cluster: CLUSTER.to_owned(),
        node: format!("web-{number}"),
        machine: format!("orr-{CLUSTER}-{number}-1"),
        provider: PluginInvocation {
            plugin: provider.to_owned(),
            fields: RedactedMap(fields.as_object().cloned().unwrap()),
        },
        description: NodeDescription {
            number,
            incarnation: 1,
            ssh_user: "root".to_owned(),
            flavor: "t3.small".to_owned(),
            image: "ami-12c6146b".to_owned(),
            ..NodeDescription::default()
        },
        facts: NodeFacts::default(),
        work,
        plugin_resources: BTreeMap::new(),
        limit_ms: 120_000,
    }
}

/// One cluster.
pub(crate) struct World {
    pub(crate) registry: Registry,
    pub(crate) directory: Arc<MemoryDirectory>,
    pub(crate) resources: Arc<MemoryResources>,
    pub(crate) provider_type: &'static str,
    pub(crate) provider_fields: Map<String, Value>,
    pub(crate) ssh_user: String,
    pub(crate) config: Map<String, Value>,
    pub(crate) plugin_resources: BTreeMap<String, String>,
    pub(crate) automators: Vec<&'static str>,
    pub(crate) incarnation: u32,
    pub(crate) stop: CancelToken,
    /// An earlier run began an effect, and its end is unknown.
    pub(crate) has_unknown_effect: bool,
    pub(crate) effects_begun: RefCell<u32>,
}

impl World {
    pub(crate) fn new(plugins: Plugins, provider_type: &'static str, fields: Value) -> Self {
        let resources = Arc::new(MemoryResources::default());
        let plugins = Arc::new(plugins);
        let runner = PluginRunner::new(Arc::clone(&plugins), Arc::clone(&resources) as _);
        let dispatcher = LocalDispatcher::new(Arc::new(runner), Slots::new(4));
        World::with_dispatcher(plugins, Arc::new(dispatcher), resources, provider_type, fields)
    }

    pub(crate) fn with_dispatcher(
        plugins: Arc<Plugins>,
        dispatcher: Arc<dyn Dispatcher>,
        resources: Arc<MemoryResources>,
        provider_type: &'static str,
        fields: Value,
    ) -> Self {
        let directory = Arc::new(MemoryDirectory::default());
        let mut registry = Registry::new();
        let limits = ActionLimits {
            action: Duration::from_secs(120),
            confirm: Duration::from_secs(30),
            check: Duration::from_secs(5),
            probe: Duration::from_secs(20),
        };
        let services =
            ClusterServices { dispatcher, directory: Arc::clone(&directory) as _, plugins, limits };
        register(&mut registry, services);
        World {
            registry,
            directory,
            resources,
            provider_type,
            provider_fields: fields.as_object().cloned().unwrap(),
            ssh_user: "root".to_owned(),
            config: Map::new(),
            plugin_resources: BTreeMap::new(),
            automators: vec!["shell"],
            incarnation: 1,
            stop: CancelToken::never(),
            has_unknown_effect: false,
            effects_begun: RefCell::new(0),
        }
    }

    /// Uploads a script of the shell automator.
    pub(crate) fn upload_script(&mut self, name: &str, text: &str) {
        let digest = sha256(text.as_bytes());
        self.resources.0.lock().unwrap().insert(digest.clone(), text.as_bytes().into());
        self.plugin_resources.insert(format!("scripts/{name}"), digest);
    }

    /// Adds a node to the directory.
    pub(crate) fn add_node(&self, name: &str, number: u64, services: &[&TestService]) {
        let services = services.iter().map(|service| service.name.to_owned()).collect();
        let node = ViewNode {
            name: name.to_owned(),
            number,
            hostname: format!("{name}.local"),
            services,
            facts: NodeFacts::default(),
        };
        self.directory.0.lock().unwrap().insert(name.to_owned(), node);
    }

    /// Replaces the nodes of the directory; nodes that stay keep their facts.
    pub(crate) fn set_nodes(&self, nodes: Vec<ViewNode>) {
        let mut known = self.directory.0.lock().unwrap();
        let before = std::mem::take(&mut *known);
        for mut node in nodes {
            if let Some(old) = before.get(&node.name) {
                node.facts = old.facts.clone();
            }
            known.insert(node.name.clone(), node);
        }
    }

    pub(crate) fn facts(&self, node: &str) -> NodeFacts {
        self.directory.0.lock().unwrap()[node].facts.clone()
    }

    fn node_attributes(&self, node: &str) -> Map<String, Value> {
        let number = self.directory.0.lock().unwrap()[node].number;
        let value = json!({
            "cluster": CLUSTER, "cluster_name": "web", "node": node, "number": number,
            "incarnation": self.incarnation, "hostname": format!("{node}.local"),
            "provider": "local", "provider_type": self.provider_type,
            "provider_fields": self.provider_fields, "ssh_user": self.ssh_user,
        });
        value.as_object().cloned().unwrap()
    }

    /// Attributes of `cluster::Machine`, `Reachable` and `Toolchain`.
    pub(crate) fn machine_attributes(&self, node: &str) -> Map<String, Value> {
        let mut attributes = self.node_attributes(node);
        let more = json!({
            "hardwaretype": "small", "imagetype": "debian", "flavor": "s1", "image": "debian-12",
            "services": [], "automators": self.automators, "plugin_resources": self.plugin_resources,
        });
        attributes.extend(more.as_object().cloned().unwrap());
        attributes
    }

    pub(crate) fn service_attributes(
        &self,
        node: &str,
        entity: &str,
        service: &TestService,
    ) -> Map<String, Value> {
        let (action, undo) = match entity {
            "cluster::Installed" => ("install", Some("remove")),
            "cluster::Quiesced" => ("stop", Some("stop")),
            "cluster::Configured" => ("configure", None),
            "cluster::Initialized" => ("initialize", None),
            _ => ("start", Some("stop")),
        };
        let call = |name: &str| {
            service.actions.get(name).map(|(automator, fields)| {
                json!({"name": name, "automator": automator, "fields": fields})
            })
        };
        let mut attributes = self.node_attributes(node);
        let more = json!({
            "service": service.name, "action": call(action), "undo": undo.and_then(call),
            "probe": call("probe"), "config": self.config, "digest": service.digest,
            "generation": service.generation, "running": service.running, "once": service.once,
            "plugin_resources": self.plugin_resources,
        });
        attributes.extend(more.as_object().cloned().unwrap());
        attributes
    }

    /// Runs a handler, as the engine does.
    pub(crate) fn run(
        &self,
        purpose: Purpose,
        entity: &str,
        node: &str,
        name: &str,
        attributes: &Map<String, Value>,
    ) -> RunOutcome {
        let text = serde_json::to_string(attributes).unwrap();
        let id = format!("{entity}[{node},name={name}]").parse().unwrap();
        let resource = Resource::new(id, Attributes::parse(&text).unwrap(), Vec::new());
        self.run_resource(purpose, &resource)
    }

    /// Runs the handler of a resource, as the engine does, and remembers its facts.
    pub(crate) fn run_resource(&self, purpose: Purpose, resource: &Resource) -> RunOutcome {
        let (entity, node) = (resource.id.entity(), resource.id.agent());
        let begin = || {
            *self.effects_begun.borrow_mut() += 1;
            Ok(())
        };
        let announce = || Ok(());
        let gate = EffectGate { is_unknown: self.has_unknown_effect, begin: &begin };
        let run = HandlerRun {
            purpose,
            resource,
            version: VersionNumber(1),
            epoch: None,
            deployed_before: false,
            changed_dependencies: &[],
            reason: &"a test",
            stop: &self.stop,
            before_change: Some(BeforeChange(&announce)),
            effects: (purpose == Purpose::Deploy).then_some(gate),
        };
        let cache = TargetCache::new();
        let context = RunContext {
            cache: &cache,
            contents: &NoContents,
            secrets: &LocalSecrets,
            clock: &|| Timestamp(0),
            log_level: LogLevel::Debug,
            server: None,
        };
        let outward = OutwardTarget::new(None, "none".to_owned(), String::new());
        let handler = self.registry.handler(entity).unwrap();
        assert!(!self.registry.acts_on_machine(entity), "{entity} needs a machine");
        let outcome = handler_run(&run, &**handler, &outward, &context);
        if !outcome.outcome.facts.is_empty() {
            let pairs = outcome.outcome.facts.iter().map(|fact| (&*fact.name, &*fact.value));
            let facts = NodeFacts::from_pairs(pairs);
            if let Some(node) = self.directory.0.lock().unwrap().get_mut(node) {
                node.facts = facts;
            }
        }
        outcome
    }

    /// Deploys `cluster::Machine`, `Reachable` and `Toolchain`; returns the changes.
    pub(crate) fn deploy_machine(&self, node: &str) -> Vec<ChangeKind> {
        let attributes = self.machine_attributes(node);
        let deploy = |entity: &&str| {
            let outcome = self.run(Purpose::Deploy, entity, node, node, &attributes);
            expect_deployed(entity, &outcome);
            outcome.outcome.change.kind
        };
        ["cluster::Machine", "cluster::Reachable", "cluster::Toolchain"]
            .iter()
            .map(deploy)
            .collect()
    }

    pub(crate) fn run_service(
        &self,
        purpose: Purpose,
        entity: &str,
        node: &str,
        service: &TestService,
    ) -> RunOutcome {
        let attributes = self.service_attributes(node, entity, service);
        let name = format!("{node}/{}", service.name);
        self.run(purpose, entity, node, &name, &attributes)
    }

    /// Deploys one resource of a service; returns the change.
    pub(crate) fn deploy(&self, entity: &str, node: &str, service: &TestService) -> ChangeKind {
        let outcome = self.run_service(Purpose::Deploy, entity, node, service);
        expect_deployed(entity, &outcome);
        outcome.outcome.change.kind
    }

    /// Deploys all resources of a service, in their order; returns the changes.
    pub(crate) fn deploy_service(&self, node: &str, service: &TestService) -> Vec<ChangeKind> {
        SERVICE_ENTITIES.iter().map(|entity| self.deploy(entity, node, service)).collect()
    }

    /// Purges a resource.
    pub(crate) fn purge(
        &self,
        entity: &str,
        node: &str,
        service: Option<&TestService>,
    ) -> ChangeKind {
        let (mut attributes, name) = match service {
            Some(service) => {
                (self.service_attributes(node, entity, service), format!("{node}/{}", service.name))
            }
            None => (self.machine_attributes(node), node.to_owned()),
        };
        attributes.insert("purged".to_owned(), Value::Bool(true));
        let outcome = self.run(Purpose::Deploy, entity, node, &name, &attributes);
        expect_deployed(entity, &outcome);
        outcome.outcome.change.kind
    }
}

fn handler_run(
    run: &HandlerRun<'_>,
    handler: &dyn orrery_handlers::Handler,
    target: &OutwardTarget,
    context: &RunContext<'_>,
) -> RunOutcome {
    run.run(handler, target, context)
}

pub(crate) const SERVICE_ENTITIES: [&str; 5] = [
    "cluster::Installed",
    "cluster::Quiesced",
    "cluster::Configured",
    "cluster::Initialized",
    "cluster::Running",
];

pub(crate) fn expect_deployed(what: &str, outcome: &RunOutcome) {
    assert_eq!(outcome.outcome.status, OutcomeStatus::Deployed, "{what}: {}", log(outcome));
}

/// Log of a run with its structured values.
pub(crate) fn log(outcome: &RunOutcome) -> String {
    let line = |line: &orrery_model::LogLine| {
        format!("{} {}", line.message, Value::Object(line.values.clone()))
    };
    outcome.outcome.log.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    orrery_base::hex::to_hex(&sha2::Sha256::digest(bytes))
}

/// Waits for a condition.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Text of a file; empty if it does not exist.
pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Virtualenvs that test runs share: packages come from an index, which takes a while.
pub(crate) fn packages() -> std::path::PathBuf {
    std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("python")
}

/// Interpreter with packages; `None` if there is no index.
pub(crate) fn install_packages(requirement: &str) -> Option<Interpreter> {
    let requirements = [requirement.to_owned()];
    let spec = VirtualEnvSpec {
        requirements: &requirements,
        modules: &[],
        sources: Vec::new(),
        pip: &PipSettings::default(),
    };
    let base = Interpreter::find(None).unwrap();
    match VirtualEnvs::new(packages(), Vec::new()).interpreter(&base, &spec) {
        Ok(found) => Some(found),
        Err(error) => {
            eprintln!("skipped: {requirement} cannot be installed: {error}");
            None
        }
    }
}
