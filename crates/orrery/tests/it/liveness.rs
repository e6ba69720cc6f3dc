//! Liveness of agents: within ten seconds, every place that shows an agent says that its machine is
//! gone, whether a remote agent hangs, its link is cut, or a machine over SSH disappears.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use orrery_testing::{Proxy, TestSshd};
use serde_json::{Value, json};

use crate::BINARY;
use crate::remote_agents::{Scene, ask, join, orrery, run, scene_behind};
use crate::server_kills::{Server, until};

/// The promise.
const ACCURATE_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, fault: Fault| {
        Trial::test(format!("liveness/{name}"), move || {
            Ok(seen_in_time(fault).map_err(|error| format!("{error:#}"))?)
        })
    };
    let over_ssh = Trial::test("liveness/a_machine_over_ssh", || {
        Ok(machine_over_ssh().map_err(|error| format!("{error:#}"))?)
    });
    vec![
        trial("a_cut_link", Fault::CutLink),
        trial("a_stopped_process", Fault::StopProcess),
        over_ssh,
    ]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Packets vanish in both directions; no connection is closed.
    CutLink,
    /// SIGSTOP: the connection stays open, and the kernel acknowledges its packets.
    StopProcess,
}

/// Places that show a remote agent, and the state that each shows: true if it is alive.
fn views(server: &Server, scene: &Scene) -> Result<Vec<(&'static str, bool)>> {
    let remote = scene.get(server, "/remote-agents")?["items"][0]["status"] == "connected";
    let mut views = agent_views(server, scene)?;
    views.push(("remote agents of the API", remote));
    Ok(views)
}

/// Places that show any agent, and the state that each shows.
fn agent_views(server: &Server, scene: &Scene) -> Result<Vec<(&'static str, bool)>> {
    let agent = &scene.get(server, "/agents")?["items"][0];
    let listed = ask(server, scene.id(), &["agent", "list"], &[0, 2])?;
    let status = ask(server, scene.id(), &["status"], &[0, 2])?;
    let compatible = compatible_agents(server, scene)?;
    Ok(vec![
        ("agents of the API", agent["status"] == "up"),
        ("orrery agent list", listed["items"][0]["status"] == "up"),
        ("connection of the API", agent["connection"]["state"] == "connected"),
        (
            "connection of orrery agent list",
            listed["items"][0]["connection"]["state"] == "connected",
        ),
        ("orrery status", status["agents"][0]["down"] != true),
        ("the compatible API", compatible["data"][0]["status"] == "up"),
    ])
}

fn compatible_agents(server: &Server, scene: &Scene) -> Result<Value> {
    let mut answer = ureq::get(format!("{}/api/v2/agents", server.base))
        .header("Authorization", format!("Bearer {}", server.token))
        .header("X-Inmanta-tid", scene.id())
        .call()?;
    Ok(serde_json::from_str(&answer.body_mut().read_to_string()?)?)
}

fn seen_in_time(fault: Fault) -> Result<()> {
    let (scene, server, proxy): (Scene, Server, Proxy) = scene_behind()?;
    let invited = orrery(&server, scene.id(), &["agent", "invite", "web1"])?;
    let token = invited["token"].as_str().context("no token")?;
    let gateway = invited["gateway"].as_str().context("no gateway")?;
    ensure!(gateway.ends_with(&format!(":{}", proxy.port())), "{invited}");
    if let Err(said) = join(gateway, token, &scene.state)? {
        bail!("joining failed: {said}");
    }
    let agent = run(&scene.state)?;
    let attributes = json!({"path": scene.machine.join("motd"), "content": "x", "purged": false});
    let id = format!("std::File[web1,path={}]", scene.machine.join("motd").display());
    scene.put(&server, &[json!({"id": id, "attributes": attributes})])?;
    scene.until_all(&server, "deployed", 1)?;
    let alive = views(&server, &scene)?;
    ensure!(alive.iter().all(|(_, is_alive)| *is_alive), "before the fault: {alive:?}");

    let signal = |name: &str| -> Result<()> {
        let done = Command::new("kill").args([name, &agent.pid().to_string()]).status()?;
        ensure!(done.success(), "kill {name}");
        Ok(())
    };
    match fault {
        Fault::CutLink => proxy.stall(),
        Fault::StopProcess => signal("-STOP")?,
    }
    let begun = Instant::now();
    // A look that begins after the time has to see it.
    loop {
        let asked = begun.elapsed();
        let seen = views(&server, &scene)?;
        if seen.iter().all(|(_, is_alive)| !is_alive) {
            break;
        }
        ensure!(asked < ACCURATE_WITHIN, "after {asked:?} it still seems alive: {seen:?}");
        std::thread::sleep(Duration::from_millis(100));
    }

    match fault {
        Fault::CutLink => proxy.heal(),
        Fault::StopProcess => signal("-CONT")?,
    }
    until("it is alive again everywhere", || {
        Ok(views(&server, &scene)?.iter().all(|(_, is_alive)| *is_alive))
    })
}

/// A machine over SSH that disappears is shown as such although nothing needs it, and one that returns
/// gets what waits for it without a request.
fn machine_over_ssh() -> Result<()> {
    // No helper can run there: a helper watches files and asks to verify them when it is back.
    let mut sshd = TestSshd::with_config("SetEnv XDG_CACHE_HOME=/dev/null/none");
    let (scene, server) = crate::remote_agents::scene(false)?;
    let key = Stdio::from(std::fs::File::open(sshd.identity())?);
    let stored = Command::new(BINARY)
        .args(["secret", "set", "deploy-key"])
        .env("ORRERY_SERVER", &server.base)
        .env("ORRERY_TOKEN", &server.token)
        .env("ORRERY_ENVIRONMENT", scene.id())
        .stdin(key)
        .output()?;
    ensure!(stored.status.success(), "{}", String::from_utf8_lossy(&stored.stderr));
    let address = format!(
        "ssh://{}@127.0.0.1:{}?identity_secret=deploy-key&strict_host_key=accept-new",
        sshd.user(),
        sshd.port()
    );
    let places = json!({ "web1": address }).to_string();
    orrery(&server, scene.id(), &["environment", "setting", "set", "agent_placements", &places])?;
    let file = |name: &str| {
        let path = scene.machine.join(name);
        let attributes = json!({"path": path, "content": "x", "purged": false});
        json!({"id": format!("std::File[web1,path={}]", path.display()), "attributes": attributes})
    };
    scene.put(&server, &[file("first")])?;
    scene.until_all(&server, "deployed", 1)?;
    let all = |alive: bool| -> Result<bool> {
        Ok(agent_views(&server, &scene)?.iter().all(|(_, is_alive)| *is_alive == alive))
    };
    until("it is alive everywhere", || all(true))?;

    sshd.kill();
    let begun = Instant::now();
    loop {
        let asked = begun.elapsed();
        let seen = agent_views(&server, &scene)?;
        if seen.iter().all(|(_, is_alive)| !is_alive) {
            break;
        }
        ensure!(asked < ACCURATE_WITHIN, "after {asked:?} it still seems alive: {seen:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let status = ask(&server, scene.id(), &["status"], &[0, 2])?;
    let reason = status["agents"][0]["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains("its machine is not reached over SSH"), "{status}");

    scene.put(&server, &[file("first"), file("second")])?;
    scene.until_all(&server, "unavailable", 1)?;
    ensure!(!scene.machine.join("second").exists());
    sshd.restart();
    scene.until_all(&server, "deployed", 2)?;
    ensure!(scene.machine.join("second").exists());
    until("it is alive again everywhere", || all(true))
}
