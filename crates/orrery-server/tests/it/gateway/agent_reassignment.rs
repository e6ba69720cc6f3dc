//! Reassignment of agents to another machine during a run.

use std::os::unix::fs::PermissionsExt as _;

use orrery_model::OutcomeStatus;
use serde_json::json;

use super::commands::{EngineWorld, answer, connected};

#[test]
fn a_local_run_does_not_count_for_a_machine_that_joins() {
    let working = EngineWorld::new();
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("run");
    let (began, may_end) = (directory.path().join("began"), directory.path().join("may_end"));
    let text = format!(
        "#!/bin/sh\ntouch {0}\nwhile test -e {0} -a ! -e {1}; do sleep 0.05; done\n",
        began.display(),
        may_end.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let script = script.to_str().unwrap();
    let id = format!("exec::Run[web1,command={script}]");
    let resource = json!({"id": id, "attributes": {"command": script}, "requires": []});
    let version = json!({"resources": [resource], "local_agents": ["web1"]});
    let admin = &working.world.served.admin;
    admin.post(&working.world.path("/versions"), &version).good();
    working.world.until("it runs on the server", |_| began.exists());
    let (_machine, mut session) = connected(&working);
    let command = session.command();
    assert_eq!(command.resource.id.as_str(), id);
    std::fs::write(may_end, "").unwrap();
    session.send(&answer(&command, OutcomeStatus::Deployed));
    let list = || working.world.served.admin.get(&working.world.path("/resources")).good();
    working
        .world
        .until("the machine's answer counts", |_| list()["items"][0]["status"] == "deployed");
}
