//! Agents that move from one machine to another while something runs for them.

use std::os::unix::fs::PermissionsExt as _;

use orrery_model::OutcomeStatus;
use serde_json::json;

use super::commands::{Working, answer, connected};

#[test]
fn what_runs_here_when_a_machine_joins_says_nothing_about_that_machine() {
    let working = Working::new();
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("run");
    let (began, may_end) = (place.path().join("began"), place.path().join("may_end"));
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
    session.say(&answer(&command, OutcomeStatus::Deployed));
    let list = || working.world.served.admin.get(&working.world.path("/resources")).good();
    working
        .world
        .until("the machine's answer counts", |_| list()["items"][0]["status"] == "deployed");
}
