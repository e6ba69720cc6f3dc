//! Drift on servers: a file that is changed by hand is restored within a second, on a remote agent,
//! over SSH and on the server's own machine, or only reported, as its policy says.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use orrery_testing::TestSshd;
use serde_json::{Value, json};

use crate::remote_agents::{Process, Scene, ask, join, orrery, run, scene};
use crate::server_commands::World;
use crate::server_kills::{Server, until};

/// The promise is a second; the limit allows for a busy machine.
const HEALED_WITHIN: Duration = Duration::from_secs(10);
/// Number of watched files.
const FILES: usize = 1_000;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("drift/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("a_remote_agent_heals", remote_agent),
        trial("restarts_lose_no_drift", restarts),
        trial("policies_report_and_ask", policies),
        trial("two_parties_do_not_loop", two_parties),
        trial("machines_over_ssh_heal", over_ssh),
        trial("the_servers_own_machine_heals", own_machine),
    ]
}

fn file(path: &Path, content: &str) -> Value {
    json!({
        "id": format!("std::File[web1,path={}]", path.display()),
        "attributes": {"path": path, "content": content, "mode": 644, "purged": false},
    })
}

/// A server with a remote agent that manages some files.
fn managed(files: usize) -> Result<(Scene, Server, Process, Vec<PathBuf>)> {
    let (scene, server) = scene(false)?;
    let invited = orrery(&server, scene.id(), &["agent", "invite", "web1"])?;
    let token = invited["token"].as_str().context("no token")?;
    let gateway = invited["gateway"].as_str().context("no gateway")?;
    if let Err(said) = join(gateway, token, &scene.state)? {
        bail!("joining failed: {said}");
    }
    let agent = run(&scene.state)?;
    let paths: Vec<PathBuf> =
        (0..files).map(|number| scene.machine.join(format!("file-{number}"))).collect();
    let resources: Vec<Value> = paths.iter().map(|path| file(path, "desired\n")).collect();
    scene.put(&server, &resources)?;
    scene.until_all(&server, "deployed", files as u64)?;
    Ok((scene, server, agent, paths))
}

fn is_healed(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text == "desired\n")
}

/// Waits until a file has its desired content again; returns the time that it took.
fn healing_time(path: &Path, what: &str) -> Result<Duration> {
    let began = Instant::now();
    while !is_healed(path) {
        ensure!(began.elapsed() < HEALED_WITHIN, "{what}: {} still differs", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(began.elapsed())
}

fn settled(scene: &Scene, server: &Server, count: usize) -> Result<()> {
    scene.until_all(server, "deployed", count as u64)?;
    until("the requests are done", || {
        let open = scene.get(server, "/operations")?;
        let is_open = |one: &Value| one["finished"].is_null();
        Ok(!open["items"].as_array().into_iter().flatten().any(is_open))
    })
}

fn remote_agent() -> Result<()> {
    let (scene, server, _agent, paths) = managed(FILES)?;
    settled(&scene, &server, FILES)?;
    let mut times = Vec::new();
    for path in [&paths[0], &paths[FILES / 2], &paths[FILES - 1]] {
        fs::write(path, "by hand\n")?;
        times.push(healing_time(path, "a changed file")?);
        scene.until_all(&server, "deployed", FILES as u64)?;
    }
    fs::remove_file(&paths[1])?;
    times.push(healing_time(&paths[1], "a removed file")?);
    println!("{FILES} watched files on a remote agent; healed after {times:?}");
    // All of them at once.
    for path in &paths {
        fs::write(path, "by hand\n")?;
    }
    let began = Instant::now();
    until("all files are restored", || Ok(paths.iter().all(|path| is_healed(path))))?;
    println!("{FILES} changed files were healed after {:?}", began.elapsed());
    // The cause is shown.
    let part: String = file(&paths[1], "")["id"]
        .as_str()
        .unwrap_or_default()
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    let logs = scene.get(&server, &format!("/resources/{part}/logs"))?;
    ensure!(logs.to_string().contains("updated"), "{logs}");
    let state = scene.get(&server, &format!("/resources/{part}"))?;
    ensure!(state["state"]["last_run_at"].is_string(), "when it was verified: {state}");
    Ok(())
}

fn restarts() -> Result<()> {
    let (scene, mut server, mut agent, paths) = managed(20)?;
    settled(&scene, &server, paths.len())?;
    // While the agent's process is away.
    agent.kill()?;
    fs::write(&paths[0], "by hand\n")?;
    let mut agent = run(&scene.state)?;
    healing_time(&paths[0], "changed while the agent was away")?;
    settled(&scene, &server, paths.len())?;
    // The watches are there again.
    fs::write(&paths[1], "by hand\n")?;
    healing_time(&paths[1], "changed after the restart of the agent")?;
    settled(&scene, &server, paths.len())?;
    // While the server is away.
    server.child.kill()?;
    server.child.wait()?;
    fs::write(&paths[2], "by hand\n")?;
    server = scene.start()?;
    until("what changed while the server was away is restored", || Ok(is_healed(&paths[2])))?;
    settled(&scene, &server, paths.len())?;
    fs::write(&paths[3], "by hand\n")?;
    healing_time(&paths[3], "changed after the restart of the server")?;
    ensure!(agent.0.try_wait()?.is_none(), "the agent ended");
    Ok(())
}

fn set_policy(scene: &Scene, server: &Server, policy: &str) -> Result<()> {
    let value = json!({"*": policy}).to_string();
    let arguments = ["environment", "setting", "set", "drift_policies", &value];
    orrery(server, scene.id(), &arguments).map(drop)
}

fn policies() -> Result<()> {
    let (scene, server, _agent, paths) = managed(2)?;
    let refused = ask(
        &server,
        scene.id(),
        &["environment", "setting", "set", "drift_policies", r#"{"*": "hide"}"#],
        &[1],
    );
    ensure!(refused.is_err() || refused.is_ok_and(|said| said.to_string().contains("heal")));
    set_policy(&scene, &server, "report")?;
    settled(&scene, &server, 2)?;
    fs::write(&paths[0], "by hand\n")?;
    scene.until_all(&server, "non_compliant", 1)?;
    ensure!(!is_healed(&paths[0]), "a report changes nothing");
    let status = ask(&server, scene.id(), &["status"], &[2])?;
    ensure!(status.to_string().contains("non_compliant"), "{status}");
    let why = ask(&server, scene.id(), &["why", "file-0"], &[0, 2])?;
    ensure!(why.to_string().contains("content"), "{why}");
    let notified = || scene.get(&server, "/notifications");
    ensure!(!notified()?.to_string().contains("Resources drifted"), "{}", notified()?);
    // An operator decides.
    ask(&server, scene.id(), &["repair"], &[0])?;
    ensure!(is_healed(&paths[0]));
    scene.until_all(&server, "deployed", 2)?;
    set_policy(&scene, &server, "ask")?;
    fs::write(&paths[1], "by hand\n")?;
    scene.until_all(&server, "non_compliant", 1)?;
    until("operators are asked", || Ok(notified()?.to_string().contains("Resources drifted")))?;
    ensure!(!is_healed(&paths[1]), "a question changes nothing");
    ask(&server, scene.id(), &["repair"], &[0])?;
    ensure!(is_healed(&paths[1]));
    set_policy(&scene, &server, "heal")?;
    settled(&scene, &server, 2)?;
    fs::write(&paths[0], "by hand again\n")?;
    healing_time(&paths[0], "after the policy was changed back")?;
    Ok(())
}

/// Another program changes a file whenever it is restored.
fn two_parties() -> Result<()> {
    let (scene, server, _agent, paths) = managed(1)?;
    settled(&scene, &server, 1)?;
    let (mut heals, began) = (0, Instant::now());
    fs::write(&paths[0], "by hand\n")?;
    while began.elapsed() < Duration::from_secs(8) {
        if is_healed(&paths[0]) {
            heals += 1;
            fs::write(&paths[0], "by hand\n")?;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("a file that is changed again at once was healed {heals} times in 8 s");
    // A change in the milliseconds of the repair itself counts as a part of it.
    ensure!((1..=7).contains(&heals), "{heals} times");
    Ok(())
}

fn served_model(world: &mut World, model: &str) -> Result<PathBuf> {
    world.settle("")?;
    world.done("mkdir -p model managed")?;
    let root = world.directory.path().canonicalize()?.join("managed");
    let directory = world.directory.path().join("model");
    fs::write(directory.join("project.yml"), "name: shop\n")?;
    let group = world.done("id -gn")?.trim().to_owned();
    let user = world.done("id -un")?.trim().to_owned();
    let model = model
        .replace("{root}", &root.display().to_string())
        .replace("{user}", &user)
        .replace("{group}", &group);
    fs::write(directory.join("main.cf"), model)?;
    Ok(root)
}

fn over_ssh() -> Result<()> {
    let mut sshd = TestSshd::start();
    let mut world = World::new(false)?;
    let root = served_model(
        &mut world,
        "web1 = std::Host(name=\"web1\", os=std::linux)\n\
         std::File(host=web1, mode=644, owner=\"{user}\", group=\"{group}\", path=\"{root}/there\", content=\"desired\\n\")\n",
    )?;
    let host = format!(
        "hosts:\n  web1: {{ address: 127.0.0.1, port: {}, user: {}, identity_secret: deploy-key, strict_host_key: accept-new }}\n",
        sshd.port(),
        sshd.user()
    );
    fs::write(world.directory.path().join("model/inventory.yml"), host)?;
    world.done(&format!("orrery secret set deploy-key < {}", sshd.identity()))?;
    world.done("cd model && orrery deploy")?;
    let there = root.join("there");
    ensure!(is_healed(&there));
    let shown = || -> Result<Value> {
        let (text, _) = world.run("cd model && orrery agent list --json 2> /dev/null")?;
        let mut agents: Value = serde_json::from_str(&text)?;
        let items = agents["items"].as_array_mut().context("agents")?;
        let web1 = items.iter().position(|agent| agent["name"] == "web1").context("web1")?;
        Ok(items.swap_remove(web1)["connection"].take())
    };
    until("the connection is shown", || {
        let connection = shown()?;
        Ok(connection["state"] == "connected" && connection["latency_ms"].as_f64().is_some())
    })?;
    // The first run began to watch the file.
    world.done("cd model && orrery deploy")?;
    fs::write(&there, "by hand\n")?;
    let took = healing_time(&there, "a changed file over SSH")?;
    println!("healed over SSH after {took:?}");
    // The machine is away for a while.
    sshd.kill();
    let began = Instant::now();
    until("the lost connection is shown", || Ok(shown()?["state"] != "connected"))?;
    println!("the lost connection was shown after {:?}", began.elapsed());
    fs::write(&there, "by hand\n")?;
    sshd.restart();
    let began = Instant::now();
    until("what changed while it was away is restored", || Ok(is_healed(&there)))?;
    println!("restored {:?} after the machine came back", began.elapsed());
    until("the connection is shown again", || Ok(shown()?["state"] == "connected"))?;
    fs::write(&there, "by hand\n")?;
    healing_time(&there, "a changed file after the machine came back")?;
    Ok(())
}

fn own_machine() -> Result<()> {
    let mut world = World::new(false)?;
    let root = served_model(
        &mut world,
        "here = std::Host(name=\"localhost\", os=std::linux)\n\
         std::File(host=here, mode=644, owner=\"{user}\", group=\"{group}\", path=\"{root}/here\", content=\"desired\\n\")\n",
    )?;
    world.done("cd model && orrery deploy")?;
    let here = root.join("here");
    fs::write(&here, "by hand\n")?;
    let took = healing_time(&here, "a changed file of the server")?;
    println!("healed on the server's own machine after {took:?}");
    // A restarted server knows nothing of what changed before.
    world.end()?;
    fs::write(&here, "by hand\n")?;
    world.start(true, "")?;
    until("what changed while it was away is restored", || Ok(is_healed(&here)))
}
