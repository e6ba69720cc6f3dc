//! `kill -9` of the server in the middle of operations: another process continues from the store,
//! and the journals of the machines show that nothing was lost or done twice.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_provisioner::journal_check::JournalCheck;
use orrery_provisioner::sim_journal::SimJournals;
use orrery_server::{MasterKey, ProcessOptions, ProcessRole, ServerSettings};
use orrery_store::{Holder, Store};
use orrery_testing::{Postgres, TestDatabase};
use serde_json::{Value, json};

use super::{PATIENCE, documents};
use crate::support::{Client, Served};

/// Variables of the process that is killed: its directory, and its database if it has one.
const DIRECTORY: &str = "ORRERY_TEST_SERVER_DIRECTORY";
const DATABASE: &str = "ORRERY_TEST_SERVER_DATABASE";
/// File with the address and the token of the server.
const ADDRESS: &str = "address";

#[test]
fn operations_survive_kills_with_sqlite() {
    operations_survive_kills(None);
}

#[test]
fn operations_survive_kills_with_postgresql() {
    operations_survive_kills(Some(Postgres::shared().database()));
}

/// The process that the tests above start and kill. Without its variables, there is nothing to do.
#[test]
fn serve_until_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = PathBuf::from(directory);
    let holder = Holder::this_process("test server", Timestamp(1));
    let (store, lease) = match std::env::var(DATABASE) {
        Ok(url) => (Store::connect(&url, &holder).unwrap(), Some(Duration::from_secs(2))),
        Err(_) => (Store::open(directory.join("store.db"), &holder).unwrap(), None),
    };
    let master_key = MasterKey::Generated(directory.join("secret.key"));
    let served = Served::with(store, ServerSettings { master_key, ..ServerSettings::default() });
    let options = ProcessOptions {
        data: directory.join("data"),
        workers: orrery_executor::WorkerLimits::starting_at(8),
        lease,
        host_memory: None,
        isolation: orrery_server::Isolation::Shared,
        own_machine: orrery_server::OwnMachineOptions::shared(),
    };
    let _role = ProcessRole::start(served.app.clone(), options).unwrap();
    let token = served.admin.token.clone().unwrap();
    let text = json!({"base": served.admin.base, "token": token}).to_string();
    std::fs::write(directory.join("address.new"), text).unwrap();
    std::fs::rename(directory.join("address.new"), directory.join(ADDRESS)).unwrap();
    loop {
        std::thread::park();
    }
}

/// A server process that ends with this value.
struct Killable(Child);

impl Drop for Killable {
    fn drop(&mut self) {
        // SIGKILL. It may already be dead.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(directory: &Path, database: Option<&TestDatabase>) -> (Killable, Client) {
    let address = directory.join(ADDRESS);
    let _ = std::fs::remove_file(&address);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "clusters::kills::serve_until_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if let Some(database) = database {
        command.env(DATABASE, database.url());
    }
    let mut child = Killable(command.spawn().unwrap());
    let end = Instant::now() + PATIENCE;
    loop {
        if let Ok(text) = std::fs::read_to_string(&address) {
            let found: Value = serde_json::from_str(&text).unwrap();
            let text = |name: &str| found[name].as_str().unwrap().to_owned();
            return (child, Client { base: text("base"), token: Some(text("token")) });
        }
        assert!(child.0.try_wait().unwrap().is_none(), "the server ended");
        assert!(Instant::now() < end, "the server does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn operations_survive_kills(database: Option<TestDatabase>) {
    const ROUNDS: u64 = 4;
    let directory = tempfile::tempdir().unwrap();
    let journals = directory.path().join("journals");
    let fields = json!({"directory": journals, "latency_ms": 15, "failure_rate": 0.02, "seed": 7});
    let (mut server, mut client) = start(directory.path(), database.as_ref());
    let project = client.post("/api/v1/projects", &json!({"name": "p"})).good();
    let apply = json!({"documents": documents(&fields)});
    client.post("/api/v1/cluster-documents/apply", &apply).good();
    let clusters = format!("/api/v1/projects/{}/clusters", project["id"].as_str().unwrap());
    let new = json!({"name": "web", "template": "shop", "size": 12, "hardwaretype": "small"});
    let begun = client.post(&clusters, &new).good();
    let id = begun["cluster"]["id"].as_str().unwrap().to_owned();
    let environment = begun["cluster"]["environment"].as_str().unwrap();
    let setting =
        format!("/api/v1/environments/{environment}/settings/autostart_agent_deploy_interval");
    client.put(&setting, &json!({"value": "1"})).good();
    let path = format!("/api/v1/clusters/{id}");
    let operations = format!("{path}/operations");
    let requests =
        [None, Some(json!({"kind": "resize", "size": 7})), Some(json!({"kind": "delete"}))];
    for (number, request) in (0..).zip(requests) {
        if let Some(request) = &request {
            let answer = client.post(&operations, request);
            assert_eq!(answer.status, 202, "{answer:?}");
        }
        for round in 0..ROUNDS {
            // Moments that differ, and repeat with the test.
            std::thread::sleep(Duration::from_millis(60 + (number * 7 + round * 5) % 11 * 25));
            drop(server);
            (server, client) = start(directory.path(), database.as_ref());
        }
        let wanted = if number == 2 { "terminated" } else { "active" };
        let end = Instant::now() + PATIENCE;
        loop {
            let found = client.get(&path).good();
            if found["status"] == wanted {
                break;
            }
            assert!(Instant::now() < end, "not {wanted}: {found:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let check = JournalCheck::run(&SimJournals::new(&journals)).unwrap();
        assert!(check.problems.is_empty(), "{:?}", check.problems);
        let count = |service: &str| {
            let runs = check.machines.values().filter(|state| {
                state.services.get(service).is_some_and(|state| state.running.is_some())
            });
            runs.count()
        };
        let expected = [(12, 11, 1), (7, 6, 1), (0, 0, 0)][number as usize];
        assert_eq!((check.machines.len(), count("app"), count("db")), expected);
    }
}
