//! Clusters of processes: real scripts and daemons, without root.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use orrery_handlers::run::Purpose;
use orrery_model::{ChangeKind, OutcomeStatus};
use orrery_provisioner::automator::ShellAutomator;
use orrery_provisioner::plugins::Plugins;
use orrery_provisioner::provider::ProcessProvider;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::harness::{SERVICE_ENTITIES, TestService, World, log, read, wait_for};

/// A service that writes what it is asked to do, and runs a daemon.
const APP: &str = r#"#!/bin/sh
set -eu
echo "$1" >>"$HOME/actions"
case $1 in
install) mkdir -p "$HOME/app" ;;
configure) echo "$ORRERY_CONFIG_UPSTREAM" >"$HOME/app/config"; cp "$ORRERY_TASK" "$HOME/task.json" ;;
initialize) cp "$ORRERY_NODE_DIR/state/app.json" "$HOME/state"; echo done >>"$HOME/initialized" ;;
start) orrery-daemon start app sh -c 'while :; do sleep 1000; done' ;;
stop) orrery-daemon stop app ;;
probe) orrery-daemon status app ;;
remove) rm -rf "$HOME/app" ;;
esac
"#;
const ACTIONS: [&str; 7] =
    ["install", "configure", "initialize", "start", "stop", "probe", "remove"];

struct Cluster {
    directory: TempDir,
    world: World,
    service: TestService,
}

impl Cluster {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut plugins = Plugins::default();
        plugins.add_provider(Arc::new(ProcessProvider::new(directory.path())));
        plugins.add_automator(Arc::new(ShellAutomator::new()));
        let mut world = World::new(plugins, "process", json!({}));
        world.upload_script("app.sh", APP);
        let upstream = "%join(map(ip.service.app,'$:8080'),' ')%";
        let config = json!({"app": {"upstream": upstream}});
        world.config = config.as_object().cloned().unwrap();
        let service = TestService::of_script("app", "app.sh", &ACTIONS);
        world.add_node("web-1000", 1000, &[&service]);
        Cluster { directory, world, service }
    }

    fn machine(&self, incarnation: u32) -> PathBuf {
        let root = self.directory.path().canonicalize().unwrap();
        root.join(format!("machines/orr-c1-1000-{incarnation}"))
    }

    fn home(&self, path: &str) -> PathBuf {
        self.machine(self.world.incarnation).join("home").join(path)
    }

    fn actions(&self) -> Vec<String> {
        read(&self.home("actions")).lines().map(str::to_owned).collect()
    }

    fn deploy(&self) -> Vec<ChangeKind> {
        self.world.deploy_machine("web-1000");
        self.world.deploy_service("web-1000", &self.service)
    }

    /// Number of the daemon's process.
    fn daemon(&self) -> u32 {
        let record = read(&self.machine(self.world.incarnation).join("run/app"));
        record.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Processes that a failed test left.
        for incarnation in 1..=self.world.incarnation {
            if self.machine(incarnation).exists() && !std::thread::panicking() {
                self.world.purge("cluster::Machine", "web-1000", None);
            }
        }
    }
}

fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[test]
fn services_are_installed_configured_initialized_and_started() {
    let cluster = Cluster::new();
    cluster.deploy();
    assert_eq!(cluster.actions(), ["install", "configure", "initialize", "start", "probe"]);
    assert!(runs(cluster.daemon()));
    let address = cluster.world.facts("web-1000").bind_address().unwrap().to_owned();
    assert!(address.starts_with("127."), "{address}");
    assert_eq!(read(&cluster.home("app/config")), format!("{address}:8080\n"));
    let task: Value = serde_json::from_str(&read(&cluster.home("task.json"))).unwrap();
    assert_eq!(task["config"]["app"]["upstream"], format!("{address}:8080"));
    assert_eq!(task["node"]["name"], "web-1000");
    // The node knows of the initialization before it starts.
    let during: Value = serde_json::from_str(&read(&cluster.home("state"))).unwrap();
    assert_eq!(during["initializations"], json!({"key-1": "begun"}));
    // The data of tasks does not stay.
    let tasks = fs::read_dir(cluster.machine(1).join("tasks")).unwrap();
    assert_eq!(tasks.count(), 0);

    assert_eq!(cluster.deploy(), [ChangeKind::NoChange; 5]);
    assert_eq!(cluster.actions()[5..], ["probe"]);

    let daemon = cluster.daemon();
    assert_eq!(cluster.world.purge("cluster::Machine", "web-1000", None), ChangeKind::Purged);
    assert!(!runs(daemon) && !cluster.machine(1).exists());
    assert_eq!(fs::read_dir(cluster.directory.path().join("slots")).unwrap().count(), 0);
}

#[test]
fn a_killed_daemon_is_started_again_by_a_repair() {
    let cluster = Cluster::new();
    cluster.deploy();
    let daemon = cluster.daemon();
    let killed = std::process::Command::new("kill").arg("-KILL").arg(daemon.to_string()).status();
    assert!(killed.unwrap().success());
    wait_for("the daemon ends", || !runs(daemon));
    let plan = cluster.world.run_service(
        Purpose::DryRun,
        "cluster::Running",
        "web-1000",
        &cluster.service,
    );
    assert_eq!(plan.outcome.change.attributes[0].name, "probe", "{}", log(&plan));
    let change = cluster.world.deploy("cluster::Running", "web-1000", &cluster.service);
    assert_eq!(change, ChangeKind::Updated);
    assert!(runs(cluster.daemon()) && cluster.daemon() != daemon);
}

#[test]
fn a_restart_stops_before_it_configures() {
    let mut cluster = Cluster::new();
    cluster.deploy();
    cluster.service.generation = 2;
    cluster.service.digest = "d2".to_owned();
    cluster.deploy();
    let actions = cluster.actions();
    assert_eq!(actions[5..], ["install", "stop", "configure", "start", "probe"]);
    assert_eq!(read(&cluster.home("initialized")), "done\n");
}

#[test]
fn a_failing_script_is_reported_with_its_output_and_tried_again() {
    let mut cluster = Cluster::new();
    let script = "#!/bin/sh\necho out; echo 'no disk' >&2; [ -f \"$HOME/fixed\" ] || exit 3\n";
    cluster.world.upload_script("db.sh", script);
    let service = TestService::of_script("db", "db.sh", &["install", "initialize"]);
    cluster.world.deploy_machine("web-1000");
    for entity in ["cluster::Installed", "cluster::Initialized"] {
        let outcome = cluster.world.run_service(Purpose::Deploy, entity, "web-1000", &service);
        assert_eq!(outcome.outcome.status, OutcomeStatus::Failed);
        let text = log(&outcome);
        assert!(text.contains("script db.sh") && text.contains("code 3: no disk"), "{text}");
        // Its end was seen, so it may be tried again.
        assert!(!outcome.unclear, "{text}");
    }
    fs::write(cluster.home("fixed"), "").unwrap();
    for entity in SERVICE_ENTITIES {
        cluster.world.deploy(entity, "web-1000", &service);
    }
}

/// The process of the server dies between the start of an initialization and its record.
#[test]
fn an_initialization_of_unknown_end_is_not_repeated() {
    let mut cluster = Cluster::new();
    cluster.world.deploy_machine("web-1000");
    for entity in &SERVICE_ENTITIES[..3] {
        cluster.world.deploy(entity, "web-1000", &cluster.service);
    }
    let state = cluster.machine(1).join("state/app.json");
    let mut found: Map<String, Value> = serde_json::from_str(&read(&state)).unwrap();
    found.insert("initializations".to_owned(), json!({"key-1": "begun"}));
    fs::write(&state, serde_json::to_vec(&found).unwrap()).unwrap();
    cluster.world.has_unknown_effect = true;
    let initialize = |cluster: &Cluster| {
        let service = &cluster.service;
        cluster.world.run_service(Purpose::Deploy, "cluster::Initialized", "web-1000", service)
    };
    let refused = initialize(&cluster);
    assert_eq!(refused.outcome.status, OutcomeStatus::Failed);
    assert!(refused.unclear && log(&refused).contains("orrery settle"), "{}", log(&refused));
    assert_eq!(read(&cluster.home("initialized")), "");
    // An operator has decided to run it again.
    cluster.world.has_unknown_effect = false;
    assert_eq!(initialize(&cluster).outcome.status, OutcomeStatus::Deployed);
    assert_eq!(read(&cluster.home("initialized")), "done\n");
}

#[test]
fn wrong_fields_are_named_before_anything_runs() {
    let cluster = Cluster::new();
    let mut attributes = cluster.world.machine_attributes("web-1000");
    attributes.insert("provider_fields".to_owned(), json!({"directry": "/tmp"}));
    let outcome =
        cluster.world.run(Purpose::Deploy, "cluster::Machine", "web-1000", "web-1000", &attributes);
    let text = log(&outcome);
    assert!(text.contains("process has no field directry; did you mean directory?"), "{text}");
}
