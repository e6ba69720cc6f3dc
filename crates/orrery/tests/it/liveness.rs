//! Liveness of remote agents: within ten seconds, every place that shows an agent says that its
//! machine is gone, whether the process hangs or the link is cut.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use orrery_testing::Proxy;
use serde_json::{Value, json};

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
    vec![trial("a_cut_link", Fault::CutLink), trial("a_stopped_process", Fault::StopProcess)]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Packets vanish in both directions; no connection is closed.
    CutLink,
    /// SIGSTOP: the connection stays open, and the kernel acknowledges its packets.
    StopProcess,
}

/// Places that show the agent, and the state that each shows: true if it is alive.
fn views(server: &Server, scene: &Scene) -> Result<[(&'static str, bool); 7]> {
    let remote = scene.get(server, "/remote-agents")?["items"][0]["status"] == "connected";
    let agent = &scene.get(server, "/agents")?["items"][0];
    let listed = ask(server, scene.id(), &["agent", "list"], &[0, 2])?;
    let status = ask(server, scene.id(), &["status"], &[0, 2])?;
    let compatible = compatible_agents(server, scene)?;
    Ok([
        ("remote agents of the API", remote),
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
