//! Machines of EC2: moto's server with throttled requests, and logins at their addresses.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use orrery_handlers::CancelToken;
use orrery_handlers::run::Purpose;
use orrery_model::{ChangeKind, OutcomeStatus};
use orrery_provisioner::plugins::Plugins;
use orrery_provisioner::provider::Ec2Provider;
use orrery_provisioner::runner::PluginRunner;
use orrery_provisioner::ssh_access::SshMachineAccess;
use orrery_provisioner::task::{TaskStatus, Work};
use orrery_pyenv::interpreters::Interpreter;
use orrery_testing::{TestMachine, keygen};
use serde_json::{Map, Value, json};

use crate::harness::{
    MemoryResources, World, install_packages, log, machine_task, packages, read, wait_for,
};

/// Moto's server. Dropping it ends it.
pub(crate) struct Moto {
    server: Child,
    pub(crate) port: u16,
}

impl Moto {
    pub(crate) fn start(python: &Interpreter, throttled: &std::path::Path) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Command::new(&python.program)
            .args(["-c", include_str!("moto.py"), &port.to_string()])
            .arg(throttled)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("moto answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Moto { server, port }
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

const ASK: &str = r#"
import boto3, json, sys
client = boto3.client("ec2", region_name="us-east-1", endpoint_url=sys.argv[1],
    aws_access_key_id="a", aws_secret_access_key="s", config=boto3.session.Config(retries={"max_attempts": 8}))
found = [i for r in client.describe_instances()["Reservations"] for i in r["Instances"]]
print(json.dumps([{"id": i["InstanceId"], "state": i["State"]["Name"], "type": i["InstanceType"],
    "tags": {t["Key"]: t["Value"] for t in i.get("Tags", [])}} for i in found]))
"#;

fn instances(python: &Interpreter, endpoint: &str) -> Vec<Value> {
    let output = Command::new(&python.program).args(["-c", ASK, endpoint]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn instances_are_created_found_confirmed_and_deleted_under_throttling() {
    if let Some(reason) = TestMachine::obstacle() {
        eprintln!("ec2: skipped: no namespaces: {reason}");
        return;
    }
    // Inside the network of the test there is no index.
    let Some(moto) = install_packages("moto[server,ec2,s3]>=5,<6") else { return };
    let Some(_) = install_packages("boto3>=1.35,<2") else { return };
    let hub = TestMachine::start("hub", &[]);
    let result = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            hub.enter_network();
            deploy_and_delete(&hub, &moto);
        });
        run.join()
    });
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn deploy_and_delete(hub: &TestMachine, python: &Interpreter) {
    let directory = tempfile::tempdir().unwrap();
    let throttled = directory.path().join("throttled");
    let moto = Moto::start(python, &throttled);
    let endpoint = format!("http://127.0.0.1:{}", moto.port);
    let identity = directory.path().join("identity").display().to_string();
    keygen(&["-t", "ed25519", "-f", &identity]);
    hub.start_sshd(&read(&directory.path().join("identity.pub")), "");

    let ssh = SshMachineAccess::new(directory.path().join("known_hosts")).unwrap();
    let mut plugins = Plugins::default();
    plugins.add_provider(Arc::new(Ec2Provider::new(packages(), ssh)));
    let fields = json!({
        "access_key": "a", "secret_key": "hunter2", "endpoint": endpoint,
        "identity": read(identity.as_ref()), "tags": {"team": "web"}, "attempts": 6,
    });
    let world = World::new(plugins, "ec2", fields.clone());
    let node = "web-1000";
    world.add_node(node, 1000, &[]);
    let mut attributes = world.machine_attributes(node);
    attributes.insert("image".to_owned(), json!("ami-12c6146b"));
    attributes.insert("flavor".to_owned(), json!("t3.small"));
    let deploy = |entity: &str, attributes: &Map<String, Value>| {
        world.run(Purpose::Deploy, entity, node, node, attributes)
    };

    let created = deploy("cluster::Machine", &attributes);
    assert_eq!(created.outcome.change.kind, ChangeKind::Created, "{}", log(&created));
    let found = instances(python, &endpoint);
    assert_eq!(found.len(), 1, "{found:?}");
    let tags = &found[0]["tags"];
    assert_eq!(
        (tags["Name"].as_str(), tags["orrery:node"].as_str(), tags["team"].as_str()),
        (Some("orr-c1-1000-1"), Some("web-1000"), Some("web"))
    );
    assert_eq!(found[0]["type"], "t3.small");
    let again = deploy("cluster::Machine", &attributes);
    assert_eq!(again.outcome.change.kind, ChangeKind::NoChange, "{}", log(&again));

    // The answer to a request was lost: the same one finds the machine.
    let runner = runner(&directory);
    let repeated = machine_task("ec2", fields, 1000, Work::Create);
    let report = runner.run(&repeated, &CancelToken::never());
    assert_eq!(report.status, TaskStatus::Succeeded, "{}", report.message);
    let id = report.outputs.facts.and_then(|facts| facts.provider_id);
    assert_eq!(id.as_deref(), found[0]["id"].as_str());
    assert_eq!(instances(python, &endpoint).len(), 1);

    // The machine answers at the address that EC2 reports.
    let address = public_address(python, &endpoint);
    hub.run(&format!("ip address add {address}/32 dev lo"));
    let reached = deploy("cluster::Reachable", &attributes);
    assert_eq!(reached.outcome.status, OutcomeStatus::Deployed, "{}", log(&reached));
    let facts = world.facts(node);
    assert_eq!(facts.access_address(), Some(&*address));
    assert_eq!(facts.provider_id.as_deref(), found[0]["id"].as_str());
    assert!(facts.ssh_host_key.is_some_and(|key| key.starts_with("ssh-ed25519 ")));

    // A replaced node: the earlier machine goes.
    attributes.insert("incarnation".to_owned(), json!(2));
    let replaced = deploy("cluster::Machine", &attributes);
    assert_eq!(replaced.outcome.change.kind, ChangeKind::Updated, "{}", log(&replaced));
    let live = |found: Vec<Value>| -> Vec<String> {
        let live = found.into_iter().filter(|one| one["state"] == "running");
        live.map(|one| one["tags"]["Name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(live(instances(python, &endpoint)), ["orr-c1-1000-2"]);

    // A machine that is gone is made again, with another token.
    attributes.insert("purged".to_owned(), json!(true));
    deploy("cluster::Machine", &attributes);
    assert!(live(instances(python, &endpoint)).is_empty());
    attributes.insert("purged".to_owned(), json!(false));
    deploy("cluster::Machine", &attributes);
    assert_eq!(live(instances(python, &endpoint)), ["orr-c1-1000-2"]);
    attributes.insert("purged".to_owned(), json!(true));
    let purged = deploy("cluster::Machine", &attributes);
    assert_eq!(purged.outcome.change.kind, ChangeKind::Purged, "{}", log(&purged));

    assert!(read(&throttled).lines().count() >= 3, "too few requests were throttled");
    attributes.insert("purged".to_owned(), json!(false));
    attributes["provider_fields"]["attempts"] = json!(1);
    drop(moto);
    let down = deploy("cluster::Machine", &attributes);
    let text = log(&down);
    assert!(text.contains("no answer from EC2"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("PRIVATE KEY"), "{text}");
}

/// Carries out tasks without a handler.
fn runner(directory: &tempfile::TempDir) -> PluginRunner {
    let ssh = SshMachineAccess::new(directory.path().join("other_hosts")).unwrap();
    let mut plugins = Plugins::default();
    plugins.add_provider(Arc::new(Ec2Provider::new(packages(), ssh)));
    PluginRunner::new(Arc::new(plugins), Arc::new(MemoryResources::default()))
}

fn public_address(python: &Interpreter, endpoint: &str) -> String {
    let script = ASK.replace("\"state\"", "\"address\": i[\"PublicIpAddress\"], \"state\"");
    let output = Command::new(&python.program).args(["-c", &script, endpoint]).output().unwrap();
    let found: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    found[0]["address"].as_str().unwrap().to_owned()
}
