//! Resource types that a remote agent offers, end to end: the example agent in Python, its model,
//! and `orrery deploy` to a server.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::BINARY;
use crate::remote_agents::{Process, Scene, orrery, scene};
use crate::server_kills::{Server, until};

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("offered_types/an_agent_in_python", || {
        Ok(an_agent_in_python().map_err(|error| format!("{error:#}"))?)
    })]
}

fn example() -> std::path::PathBuf {
    xtask::repository_root().join("examples/agent-python")
}

fn agent_py() -> Command {
    let mut command = Command::new("python3");
    command.arg(example().join("agent.py")).stdin(Stdio::null());
    command
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// `orrery deploy` of the project, with its output.
fn deploy(server: &Server, scene: &Scene, project: &Path) -> Result<(i32, String)> {
    let done = Command::new(BINARY)
        .arg("deploy")
        .current_dir(project)
        .env("ORRERY_SERVER", &server.base)
        .env("ORRERY_TOKEN", &server.token)
        .env("ORRERY_ENVIRONMENT", scene.id())
        .output()?;
    let said = [done.stdout, done.stderr].concat();
    Ok((done.status.code().context("no exit code")?, String::from_utf8(said)?))
}

fn resource(id: &str, attributes: &Value) -> Value {
    json!({"id": id, "attributes": attributes})
}

fn an_agent_in_python() -> Result<()> {
    let (scene, server) = scene(false)?;
    let project = scene.world.path("project");
    copy(&example().join("project"), &project)?;
    // Without the agent, its resources are unavailable.
    let (code, said) = deploy(&server, &scene, &project)?;
    ensure!(code == 2 && said.contains("py1"), "{code}: {said}");
    scene.until_all(&server, "unavailable", 1)?;

    let invited = orrery(&server, scene.id(), &["agent", "invite", "py1"])?;
    let state = scene.world.path("python-agent");
    let mut join = agent_py();
    join.arg("join").arg(invited["gateway"].as_str().context("no gateway")?);
    join.arg("--state").arg(&state);
    join.env("ORRERY_AGENT_TOKEN", invited["token"].as_str().context("no token")?);
    let joined = join.output()?;
    ensure!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    let mut run = agent_py();
    run.arg("run").arg("--state").arg(&state).arg("--notes").arg(&scene.machine);
    let _agent = Process(run.spawn()?);
    until("the agent is connected", || {
        Ok(scene.get(&server, "/remote-agents")?["items"][0]["status"] == "connected")
    })?;
    let types = &scene.get(&server, "/remote-agents")?["items"][0]["types"];
    ensure!(types[0]["entity"] == "notes::Note", "{types}");

    let (code, said) = deploy(&server, &scene, &project)?;
    ensure!(code == 0, "{code}: {said}");
    scene.until_all(&server, "deployed", 2)?;
    let read = |name: &str| std::fs::read_to_string(scene.machine.join(name)).unwrap_or_default();
    ensure!(read("todo.txt") == "buy milk" && read("later.txt") == "see todo");

    // Types and attributes that the agent does not have.
    let path = scene.machine.join("motd");
    scene.put(
        &server,
        &[
            resource("fabric::Port[py1,name=p]", &json!({"name": "p"})),
            resource(
                &format!("std::File[py1,path={}]", path.display()),
                &json!({"path": path, "content": "x", "purged": false}),
            ),
            resource("notes::Note[py1,title=n]", &json!({"title": "n"})),
        ],
    )?;
    scene.until_all(&server, "unavailable", 2)?;
    scene.until_all(&server, "failed", 1)?;
    let logs = scene.logs(&server)?;
    for reason in [
        "there is no handler for fabric::Port: the remote agent py1 does not offer it; it offers notes::Note",
        "this agent has no handler for std::File",
        "has no attribute",
    ] {
        ensure!(logs.contains(reason), "{logs}");
    }
    ensure!(!path.exists());
    Ok(())
}
