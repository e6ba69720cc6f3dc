//! Clusters through the API, on simulated machines whose journals tell what was done to them.

mod changes;
mod kills;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use orrery_provisioner::journal_check::JournalCheck;
use orrery_provisioner::sim_journal::{JournalEntry, SimEvent, SimJournals};
use orrery_server::{ProcessOptions, ProcessRole};
use serde_json::{Value, json};

use crate::support::Client;
use crate::world::World;

/// Timeout of a condition, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that runs clusters on simulated machines.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) options: ProcessOptions,
    role: Option<ProcessRole>,
    journals: tempfile::TempDir,
    _data: tempfile::TempDir,
}

/// A service whose actions are simulated.
fn service(name: &str, requires: &[&str], actions: &[&str]) -> Value {
    let action = |action: &&str| {
        (
            (*action).to_owned(),
            json!({"type": "shell", "fields": {"script": "run.sh", "args": action}}),
        )
    };
    let actions: serde_json::Map<String, Value> = actions.iter().map(action).collect();
    json!({
        "name": name,
        "dependencies": {"runtime": {"requires": requires}},
        "provisioner": {"actions": actions},
    })
}

const ACTIONS: [&str; 5] = ["install", "configure", "start", "stop", "remove"];

/// Documents of a shop, whose provider has these fields.
fn documents(fields: &Value) -> Value {
    let offers = json!({"local": {"flavor": "s1"}});
    let images = json!({"local": {"image": "debian-12", "sshuser": "admin"}});
    let provider = json!({"name": "local", "providertype": "sim", "provisioner": fields});
    let services = json!({
        "db": {"quantities": {"min": 1, "max": 1}}, "app": {"quantities": {"min": 1}},
    });
    let template = json!({
        "name": "shop",
        "defaults": {"provider": "local", "services": ["app", "db"], "config": {"app": {"port": "80"}}},
        "constraints": {"services": services, "layout": {"cantcoexist": [["app", "db"]]}},
    });
    let with_initialize: Vec<&str> = ACTIONS.into_iter().chain(["initialize"]).collect();
    let tiny = json!({"name": "tiny", "providermap": {"local": {"flavor": "s0"}}});
    json!([
        {"kind": "provider", "content": provider},
        {"kind": "hardware", "content": {"name": "small", "providermap": offers}},
        {"kind": "hardware", "content": tiny},
        {"kind": "image", "content": {"name": "debian", "providermap": images}},
        {"kind": "service", "content": service("db", &[], &with_initialize)},
        {"kind": "service", "content": service("app", &["db"], &ACTIONS)},
        {"kind": "service", "content": service("cache", &[], &ACTIONS)},
        {"kind": "template", "content": template},
    ])
}

impl Site {
    pub(crate) fn new(world: World) -> Self {
        let data = tempfile::tempdir().unwrap();
        let options = ProcessOptions {
            data: data.path().to_owned(),
            workers: orrery_executor::WorkerLimits::starting_at(8),
            lease: None,
            host_memory: None,
            isolation: orrery_server::Isolation::Shared,
            own_machine: orrery_server::OwnMachineOptions::shared(),
        };
        let journals = tempfile::tempdir().unwrap();
        let mut site = Site { world, options, role: None, journals, _data: data };
        site.add_documents();
        site.start();
        site
    }

    fn add_documents(&self) {
        self.set_provider(&json!({}));
    }

    /// Stores the documents, with further fields of the provider.
    pub(crate) fn set_provider(&self, further: &Value) {
        let mut fields = json!({"directory": self.journals.path()});
        for (name, value) in further.as_object().unwrap() {
            fields[name] = value.clone();
        }
        let body = json!({"documents": documents(&fields)});
        self.world.admin().post("/api/v1/cluster-documents/apply", &body).good();
    }

    pub(crate) fn start(&mut self) {
        let app = self.world.served.app.clone();
        self.role = Some(ProcessRole::start(app, self.options.clone()).unwrap());
    }

    pub(crate) fn stop(&mut self) {
        self.role = None;
    }

    pub(crate) fn admin(&self) -> &Client {
        self.world.admin()
    }

    pub(crate) fn clusters(&self) -> String {
        format!("/api/v1/projects/{}/clusters", self.world.project)
    }

    /// Requests a cluster, and returns its id.
    pub(crate) fn request(&self, name: &str, size: u32) -> String {
        let new = json!({"name": name, "template": "shop", "size": size, "hardwaretype": "small"});
        let answer = self.admin().post(&self.clusters(), &new);
        assert_eq!(answer.status, 202, "{answer:?}");
        let id = answer.body["cluster"]["id"].as_str().unwrap().to_owned();
        self.retry_fast(&id);
        id
    }

    /// Shortens the pause between retries.
    fn retry_fast(&self, id: &str) {
        let environment = self.show(id)["environment"].as_str().unwrap().to_owned();
        let setting = "autostart_agent_deploy_interval";
        let path = format!("/api/v1/environments/{environment}/settings/{setting}");
        self.admin().put(&path, &json!({"value": "1"})).good();
    }

    /// Creates a cluster and waits until it is active.
    pub(crate) fn create(&self, name: &str, size: u32) -> String {
        let id = self.request(name, size);
        self.wait_for(&id, "active");
        id
    }

    pub(crate) fn show(&self, id: &str) -> Value {
        self.admin().get(&format!("/api/v1/clusters/{id}")).good()
    }

    /// Waits for a status of a cluster.
    #[track_caller]
    pub(crate) fn wait_for(&self, id: &str, status: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.show(id);
            if found["status"] == status {
                return found;
            }
            if Instant::now() > end {
                let number = &found["operation"]["number"];
                let path = format!("/api/v1/clusters/{id}/operations/{number}");
                panic!("not {status}: {found:#}\n{:#}", self.admin().get(&path).body);
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Requests an operation.
    pub(crate) fn operate(&self, id: &str, request: &Value) -> crate::support::Answer {
        self.admin().post(&format!("/api/v1/clusters/{id}/operations"), request)
    }

    /// Requests an operation and waits until it is done.
    #[track_caller]
    pub(crate) fn carry_out(&self, id: &str, request: &Value) -> Value {
        let answer = self.operate(id, request);
        assert_eq!(answer.status, 202, "{answer:?}");
        let number = answer.body["operation"]["number"].clone();
        self.wait_for(id, "active");
        let path = format!("/api/v1/clusters/{id}/operations/{number}");
        let ended = self.admin().get(&path).good();
        assert_eq!(ended["state"], "done", "{ended:#}");
        ended
    }

    pub(crate) fn journals(&self) -> SimJournals {
        SimJournals::new(self.journals.path())
    }

    /// Removes a machine behind the back of the server.
    pub(crate) fn lose_machine(&self, machine: &str) {
        let parts: Vec<&str> = machine.split('-').collect();
        let [_, cluster, number, incarnation] = parts[..] else { panic!("{machine}") };
        let journal = self.journals.path().join(cluster).join(number);
        std::fs::remove_file(journal.join(format!("{incarnation}.jsonl"))).unwrap();
    }

    /// Checks the journals: nothing was done twice. Returns the names of existing machines.
    #[track_caller]
    pub(crate) fn machines(&self) -> BTreeSet<String> {
        let check = JournalCheck::run(&self.journals()).unwrap();
        assert!(check.problems.is_empty(), "{:?}", check.problems);
        check.machines.keys().map(ToString::to_string).collect()
    }

    /// Machines on which a service runs.
    pub(crate) fn running(&self, service: &str) -> BTreeSet<String> {
        let check = JournalCheck::run(&self.journals()).unwrap();
        let machines = check.machines.iter();
        let runs = machines.filter(|(_, state)| {
            state.services.get(service).is_some_and(|state| state.running.is_some())
        });
        runs.map(|(name, _)| name.to_string()).collect()
    }

    /// All entries of all machines, by machine.
    pub(crate) fn entries(&self) -> BTreeMap<String, Vec<JournalEntry>> {
        let journals = self.journals();
        let machines = journals.machines().unwrap();
        let entries = machines.into_iter().map(|machine| {
            let entries = journals.entries(&machine).unwrap();
            (machine.to_string(), entries)
        });
        entries.collect()
    }

    /// Successful actions on a service, by machine: `start`, `stop`, …
    pub(crate) fn actions(&self, service: &str) -> BTreeMap<String, Vec<String>> {
        let of = |entries: Vec<JournalEntry>| {
            let actions = entries.into_iter().filter(|entry| entry.ok).filter_map(|entry| {
                match entry.event {
                    SimEvent::Act { service: Some(on), action: Some(action), .. }
                        if on == service =>
                    {
                        Some(action.as_str().to_owned())
                    }
                    _ => None,
                }
            });
            actions.collect::<Vec<String>>()
        };
        self.entries().into_iter().map(|(name, entries)| (name, of(entries))).collect()
    }
}
