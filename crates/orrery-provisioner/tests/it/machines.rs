//! Clusters of namespaces and of existing machines: real sshd, real networks. Needs root.
//!
//! Each test runs in a thread in a network of its own, so that it touches nothing of this machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use orrery_handlers::run::Purpose;
use orrery_model::{ChangeKind, OutcomeStatus};
use orrery_provisioner::automator::ShellAutomator;
use orrery_provisioner::plugin::ServiceAutomator;
use orrery_provisioner::plugins::Plugins;
use orrery_provisioner::provider::{InventoryProvider, NetnsProvider};
use orrery_provisioner::ssh_access::SshMachineAccess;
use orrery_testing::TestMachine;
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{SERVICE_ENTITIES, TestService, World, log, read, wait_for};

const APP: &str = r#"#!/bin/bash
set -eu
echo "$1" >>"$ORRERY_NODE_DIR/actions"
case $1 in
configure) hostname >"$ORRERY_NODE_DIR/hostname"; echo "$ORRERY_CONFIG_PEERS" >"$ORRERY_NODE_DIR/peers" ;;
start) orrery-daemon start app sh -c 'while :; do sleep 1000; done' ;;
stop) orrery-daemon stop app ;;
probe) orrery-daemon status app ;;
initialize)
    # The other machines answer.
    for peer in $ORRERY_CONFIG_PEERS; do
        exec 3<>"/dev/tcp/$peer/22"
        read -r banner <&3
        echo "$peer $banner" >>"$ORRERY_NODE_DIR/reached"
    done ;;
esac
"#;
const ACTIONS: [&str; 6] = ["install", "configure", "initialize", "start", "stop", "probe"];

/// Runs a test in a thread of its own, in a new network.
pub(crate) fn apart(name: &str, test: fn()) {
    if let Some(reason) = TestMachine::obstacle() {
        eprintln!("{name}: skipped: no namespaces: {reason}");
        return;
    }
    let hub = TestMachine::start("hub", &[]);
    let result = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            hub.enter_network();
            test();
        });
        run.join()
    });
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) struct Site {
    directory: TempDir,
    ssh: SshMachineAccess,
    pub(crate) world: World,
    service: TestService,
}

impl Site {
    fn new() -> Self {
        Site::with_automator(Arc::new(ShellAutomator::new()))
    }

    /// A site with another automator beside `shell`.
    pub(crate) fn with_automator(automator: Arc<dyn ServiceAutomator>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ssh = SshMachineAccess::new(directory.path().join("known_hosts")).unwrap();
        let mut plugins = Plugins::default();
        plugins.add_provider(Arc::new(NetnsProvider::new(directory.path(), ssh.clone())));
        plugins.add_automator(Arc::new(ShellAutomator::new()));
        plugins.add_automator(automator);
        let fields = json!({"network": "10.91.0.0/24", "bridge": "orrtest"});
        let mut world = World::new(plugins, "netns", fields);
        let service = prepare(&mut world);
        Site { directory, ssh, world, service }
    }

    pub(crate) fn node(&self, number: u64) -> String {
        let node = format!("web-{number}");
        self.world.add_node(&node, number, &[&self.service]);
        node
    }

    fn machine(&self, number: u64) -> PathBuf {
        let root = self.directory.path().canonicalize().unwrap();
        root.join(format!("machines/orr-c1-{number}-1"))
    }

    /// File of a node.
    pub(crate) fn file(&self, number: u64, path: &str) -> PathBuf {
        self.machine(number).join("upper/var/lib/orrery-node").join(path)
    }
}

fn prepare(world: &mut World) -> TestService {
    world.upload_script("app.sh", APP);
    let config = json!({"app": {"peers": "%join(ip.service.app,' ')%"}});
    world.config = config.as_object().cloned().unwrap();
    TestService::of_script("app", "app.sh", &ACTIONS)
}

impl Drop for Site {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.directory.path().join("machines")).into_iter().flatten()
        {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let number: u64 = name.split('-').nth(2).unwrap().parse().unwrap();
            let node = self.node(number);
            let mut attributes = self.world.machine_attributes(&node);
            attributes.insert("purged".to_owned(), json!(true));
            self.world.run(Purpose::Deploy, "cluster::Machine", &node, &node, &attributes);
        }
    }
}

fn links() -> String {
    let output = Command::new("ip").args(["-br", "link"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Processes below a directory of nodes.
fn processes_of(directory: &Path) -> usize {
    let mark = format!("ORRERY_NODE_DIR={}", directory.canonicalize().unwrap().display());
    let environments = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
    environments.filter(|text| String::from_utf8_lossy(text).contains(&mark)).count()
}

#[test]
fn namespaces_run_services_and_leave_nothing_behind() {
    apart("namespaces_run_services_and_leave_nothing_behind", || {
        let before = links();
        let site = Site::new();
        let nodes = [site.node(1000), site.node(1001)];
        for node in &nodes {
            assert_eq!(site.world.deploy_machine(node), [ChangeKind::Created; 3]);
        }
        for entity in SERVICE_ENTITIES {
            for node in &nodes {
                site.world.deploy(entity, node, &site.service);
            }
        }
        assert_eq!(read(&site.file(1001, "hostname")), "web-1001\n");
        assert_eq!(read(&site.file(1000, "peers")), "10.91.0.2 10.91.0.3\n");
        let reached = read(&site.file(1000, "reached"));
        assert!(reached.contains("10.91.0.3 SSH-2.0"), "{reached}");
        for node in &nodes {
            assert_eq!(site.world.deploy_machine(node), [ChangeKind::NoChange; 3]);
            let changes = site.world.deploy_service(node, &site.service);
            assert_eq!(changes, [ChangeKind::NoChange; 5]);
        }
        // The real file system is not touched.
        assert!(!Path::new("/var/lib/orrery-node").exists());
        for node in &nodes {
            let change = site.world.purge("cluster::Machine", node, None);
            assert_eq!(change, ChangeKind::Purged);
        }
        wait_for("all devices are gone", || links() == before);
        assert_eq!(processes_of(site.directory.path()), 0);
        let left = std::fs::read_dir(site.directory.path().join("machines")).unwrap().count();
        assert_eq!(left, 0);
    });
}

#[test]
fn a_dead_or_half_made_namespace_is_made_again() {
    apart("a_dead_or_half_made_namespace_is_made_again", || {
        let site = Site::new();
        let node = site.node(1000);
        // A creation that was killed: directories without a node.
        std::fs::create_dir_all(site.machine(1000).join("upper")).unwrap();
        let changes = site.world.deploy_machine(&node);
        assert_eq!(changes, [ChangeKind::Updated, ChangeKind::Created, ChangeKind::Created]);
        site.world.deploy_service(&node, &site.service);
        let key = site.world.facts(&node).ssh_host_key;
        let file: serde_json::Value =
            serde_json::from_str(&read(&site.machine(1000).join("machine.json"))).unwrap();
        let pid = file["pid"].to_string();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        wait_for("the processes end", || processes_of(site.directory.path()) == 0);
        // Its files are still there: it starts with the same key and state, and the service does
        // not run.
        let changes = site.world.deploy_machine(&node);
        assert_eq!(changes[0], ChangeKind::Updated);
        assert_eq!(site.world.facts(&node).ssh_host_key, key);
        let changes = site.world.deploy_service(&node, &site.service);
        assert_eq!(changes[..4], [ChangeKind::NoChange; 4]);
        assert_eq!(changes[4], ChangeKind::Updated);
    });
}

#[test]
fn a_machine_with_another_host_key_is_refused() {
    apart("a_machine_with_another_host_key_is_refused", || {
        let site = Site::new();
        let node = site.node(1000);
        site.world.deploy_machine(&node);
        let machine = site.machine(1000);
        for file in ["host_key", "host_key.pub"] {
            std::fs::remove_file(machine.join("ssh").join(file)).unwrap();
        }
        let file: serde_json::Value =
            serde_json::from_str(&read(&machine.join("machine.json"))).unwrap();
        let pid = file["pid"].to_string();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        wait_for("the processes end", || processes_of(site.directory.path()) == 0);
        let attributes = site.world.machine_attributes(&node);
        site.world.run(Purpose::Deploy, "cluster::Machine", &node, &node, &attributes);
        let outcome =
            site.world.run(Purpose::Deploy, "cluster::Reachable", &node, &node, &attributes);
        assert_eq!(outcome.outcome.status, OutcomeStatus::Failed);
        assert!(log(&outcome).contains("host key"), "{}", log(&outcome));
    });
}

#[test]
fn existing_hosts_are_claimed_by_one_node_each() {
    apart("existing_hosts_are_claimed_by_one_node_each", || {
        let site = Site::new();
        let hosts: Vec<String> = [1000, 1001]
            .map(|number| {
                let node = site.node(number);
                site.world.deploy_machine(&node);
                site.world.facts(&node).access_address().unwrap().to_owned()
            })
            .to_vec();
        let mut plugins = Plugins::default();
        plugins.add_provider(Arc::new(InventoryProvider::new(site.ssh.clone())));
        plugins.add_automator(Arc::new(ShellAutomator::new()));
        let identity = read(&site.directory.path().join("identity"));
        let list: Vec<_> = hosts.iter().map(|host| json!({"host": host})).collect();
        let mut world =
            World::new(plugins, "inventory", json!({"hosts": list, "identity": identity}));
        let service = prepare(&mut world);
        for (node, number) in [("db-2000", 2000), ("db-2001", 2001)] {
            world.add_node(node, number, &[&service]);
            world.deploy_machine(node);
            world.deploy_service(node, &service);
        }
        let addresses = ["db-2000", "db-2001"]
            .map(|node| world.facts(node).access_address().unwrap().to_owned());
        assert_eq!(addresses.to_vec(), hosts);
        assert_eq!(read(&site.file(1000, "actions")).lines().count(), 5);
        assert_eq!(world.deploy_machine("db-2000"), [ChangeKind::NoChange; 3]);
        // There is no third host.
        world.add_node("db-2002", 2002, &[&service]);
        let attributes = world.machine_attributes("db-2002");
        let create =
            || world.run(Purpose::Deploy, "cluster::Machine", "db-2002", "db-2002", &attributes);
        let refused = create();
        assert!(log(&refused).contains("no host of the inventory is free"), "{}", log(&refused));
        assert!(!log(&refused).contains("PRIVATE KEY"));
        assert_eq!(world.purge("cluster::Machine", "db-2000", None), ChangeKind::Purged);
        assert_eq!(create().outcome.status, OutcomeStatus::Deployed);
        // A host that is down disturbs no node of another one.
        assert_eq!(site.world.purge("cluster::Machine", "web-1001", None), ChangeKind::Purged);
        let list = world.run(
            Purpose::Deploy,
            "cluster::Machine",
            "db-2002",
            "db-2002",
            &world.machine_attributes("db-2002"),
        );
        assert_eq!(list.outcome.change.kind, ChangeKind::NoChange, "{}", log(&list));
        // It is a new machine: nothing of the earlier node counts.
        assert_eq!(world.deploy_machine("db-2002")[1..], [ChangeKind::Created; 2]);
    });
}
