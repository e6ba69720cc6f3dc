//! Traces one secret through a server: it reaches its target and appears nowhere else. Not in the
//! files of the database, in the log at trace level, or in any response, plan, metric or audit
//! entry.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use orrery_model::{EnvironmentId, ProjectId, Timestamp};
use orrery_server::{MasterKey, ProcessOptions, ProcessRole, ServerSettings};
use orrery_store::{Holder, NewEnvironmentRecord, Store};
use serde_json::{Value, json};

use crate::all_routes;
use crate::support::Served;

const CANARY: &str = "canary-5d1c0e97b2";
const ENVIRONMENT: EnvironmentId = EnvironmentId::from_bytes([2; 16]);
const PROJECT: ProjectId = ProjectId::from_bytes([1; 16]);

/// Captures the log of this test binary.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A resource with the secret in one attribute.
fn resource(id: &str, attributes: &Value, attribute: &str) -> Value {
    let reference = "7b1c1a2e-0000-4000-8000-000000000001";
    let mut attributes = attributes.clone();
    attributes[attribute] = Value::Null;
    attributes["references"] = json!([{
        "args": [{"name": "name", "type": "literal", "value": "db"}],
        "id": reference, "type": "std::Secret",
    }]);
    attributes["mutators"] = json!([{"args": [
        {"id": id, "name": "resource", "type": "resource"},
        {"id": reference, "name": "value", "type": "reference"},
        {"name": "destination", "type": "literal", "value": attribute},
    ], "type": "core::Replace"}]);
    json!({"id": id, "attributes": attributes})
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "this never came: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_secret_is_where_it_belongs_and_nowhere_else() {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let directory = tempfile::tempdir().unwrap();
    let target = tempfile::tempdir().unwrap();
    let holder = Holder::this_process("test", Timestamp(0));
    let store = Store::open(directory.path().join("server.db"), &holder).unwrap();
    let master_key = MasterKey::Generated(directory.path().join("secret.key"));
    let settings = ServerSettings { master_key, ..ServerSettings::default() };
    let served = Served::with(store.clone(), settings);
    let now = served.app.now();
    store.projects().create(PROJECT, "p", "", now).unwrap();
    let new = NewEnvironmentRecord {
        uuid: ENVIRONMENT,
        project: PROJECT,
        name: "e",
        description: "",
        icon: "",
        repository: "",
        branch: "",
    };
    store.environments().add(&new, now).unwrap();
    let options = ProcessOptions {
        data: directory.path().to_owned(),
        workers: orrery_executor::WorkerLimits::starting_at(2),
        lease: None,
        host_memory: None,
        isolation: orrery_server::Isolation::Shared,
        own_machine: orrery_server::OwnMachineOptions::shared(),
    };
    let role = ProcessRole::start(served.app.clone(), options).unwrap();

    let base = format!("/api/v1/environments/{ENVIRONMENT}");
    let admin = &served.admin;
    let value = json!({"value": CANARY});
    assert_eq!(admin.put(&format!("{base}/secrets/db"), &value).status, 204);
    let good = target.path().join("password").display().to_string();
    let bad = target.path().join("directory").display().to_string();
    let good_id = format!("std::ConfigFile[localhost,path={good}]");
    // The user does not exist: the handler fails and names it.
    let bad_id = format!("std::Directory[localhost,path={bad}]");
    let resources = json!([
        resource(&good_id, &json!({"mode": 600, "purged": false}), "content"),
        resource(&bad_id, &json!({"mode": 700, "purged": false}), "owner"),
    ]);
    let version = json!({"resources": resources, "release": true});
    admin.post(&format!("{base}/versions"), &version).good();
    until("deployed", || std::fs::read_to_string(&good).is_ok_and(|text| text == CANARY));
    // The file drifts: the log shows the current and the desired content.
    std::fs::write(&good, "older-canary-5d1c").unwrap();
    admin.post(&format!("{base}/repair"), &json!({})).good();
    until("repaired", || std::fs::read_to_string(&good).is_ok_and(|text| text == CANARY));
    std::fs::write(&good, "older-canary-5d1c").unwrap();
    let planned = admin.send("POST", &format!("{base}/versions/1/dry-runs"), &[], None).good();
    let dry_run = planned["request"]["dry_run"].as_str().unwrap().to_owned();
    until("planned", || {
        let path = format!("{base}/versions/1/dry-runs/{dry_run}");
        admin.get(&path).body["finished"].is_string()
    });
    until("failed", || admin.get(&format!("{base}/resources")).text.contains("failed"));

    let mut responses = String::new();
    let encoded = |text: &str| text.replace('/', "%2F").replace('[', "%5B").replace(']', "%5D");
    let environment = ENVIRONMENT.to_string();
    for route in
        all_routes().filter(|route| route.method == "GET" && !route.path.contains("events"))
    {
        for id in [&good_id, &bad_id] {
            let id = if route.path.contains("dry-runs") { dry_run.clone() } else { encoded(id) };
            let path = route.path.replace("{environment}", &environment).replace("{id}", &id);
            let path = path.replace("{number}", "1").replace("{version}", "1");
            let classic = [("x-inmanta-tid", environment.as_str())];
            responses.push_str(&admin.send("GET", &path, &classic, None).text);
        }
    }
    assert!(responses.contains("***"), "something was hidden");
    drop(role);
    drop(served);

    let mut outputs = vec![("the answers", responses.into_bytes())];
    outputs.push(("the log", logged.0.lock().unwrap().clone()));
    let log = String::from_utf8_lossy(&outputs[1].1).into_owned();
    assert!(log.contains("environment taken over"), "{log}");
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            outputs.push(("a file of the server", std::fs::read(path).unwrap()));
        }
    }
    assert!(outputs.len() > 3);
    for (output, bytes) in &outputs {
        for hidden in [CANARY, "older-canary-5d1c"] {
            let found = bytes.windows(hidden.len()).position(|part| part == hidden.as_bytes());
            let around = found.map(|at| {
                let (from, to) = (at.saturating_sub(200), (at + 100).min(bytes.len()));
                String::from_utf8_lossy(&bytes[from..to]).into_owned()
            });
            assert_eq!(around, None, "in {output}");
        }
    }
}
