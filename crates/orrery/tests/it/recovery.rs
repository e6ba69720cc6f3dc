//! Recovery from `kill -9` during commands that must run once: of an agent, of the server, and of a
//! gateway with a hundred agents, with another one beside it. The effects are counted at the target.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use orrery_agent::token::JoinToken;
use orrery_agent::{AgentProcess, ReconnectBackoff, StateDirectory};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::remote_agents::{Port, Scene, ask, join, orrery, run, scene};
use crate::server_kills::{Server, World, until};

const AGENTS: usize = 100;
/// Time within which all agents of a killed gateway are connected to another one.
const FAILOVER_MAX: Duration = Duration::from_secs(15);

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("recovery/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("agents_of_a_killed_gateway_use_another_one", gateway_with_a_hundred_agents),
        trial("kills_during_commands_repeat_no_effect", kills_during_commands),
    ]
}

/// A command that must run once. It writes to the journal before and after the time that it takes.
fn once(agent: &str, journal: &str, name: &str, seconds: f32) -> Value {
    let command = format!(
        "sh -c 'echo begin {name} >> {journal}; sleep {seconds}; echo end {name} >> {journal}'"
    );
    json!({
        "id": format!("exec::Run[{agent},command={command}]"),
        "attributes": {
            "command": command, "creates": "", "cwd": "", "environment": {}, "onlyif": "", "path": "",
            "reload": "", "reload_only": false, "returns": [0], "timeout": 300, "unless": "", "skip_on_fail": false,
            "send_event": false, "receive_events": true, "once": true,
        },
    })
}

fn lines(path: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Number of lines with this text.
fn count(path: &std::path::Path, text: &str) -> usize {
    lines(path).iter().filter(|line| *line == text).count()
}

fn kill(process: &mut std::process::Child) -> Result<()> {
    process.kill()?;
    process.wait()?;
    Ok(())
}

fn kills_during_commands() -> Result<()> {
    let (scene, mut server) = scene(false)?;
    let retry = format!("{}/settings/autostart_agent_deploy_interval", scene.api_path());
    scene.world.call(&server, "PUT", &retry, Some(&json!({"value": "2"})))?;
    let invited = orrery(&server, scene.id(), &["agent", "invite", "web1"])?;
    let token = invited["token"].as_str().context("no token")?;
    let gateway = invited["gateway"].as_str().context("no gateway")?;
    if let Err(said) = join(gateway, token, &scene.state)? {
        anyhow::bail!("joining failed: {said}");
    }
    let mut agent = run(&scene.state)?;
    let path = scene.machine.join("journal");
    let journal = path.display().to_string();

    // The agent: it comes back, says that the outcome is lost, and does not run the command again.
    let mut resources = vec![once("web1", &journal, "a", 5.0)];
    scene.put(&server, &resources)?;
    until("the command begins", || Ok(count(&path, "begin a") > 0))?;
    agent.kill()?;
    let killed = Instant::now();
    let _agent = run(&scene.state)?;
    let unknown = |server: &Server| -> Result<Vec<Value>> {
        let listed = ask(server, scene.id(), &["settle"], &[0, 2])?;
        Ok(listed["items"].as_array().context("no items")?.clone())
    };
    until("its outcome is unknown", || Ok(unknown(&server)?.len() == 1))?;
    let reported = killed.elapsed();
    ask(&server, scene.id(), &["settle", "--done", "exec::Run"], &[0])?;
    scene.until_all(&server, "deployed", 1)?;
    ensure!(count(&path, "begin a") == 1, "{:?}", lines(&path));

    // The server, with a command under way and others queued: the agent ends what the former owner
    // of the environment started.
    resources.extend(["b", "c", "d"].map(|name| once("web1", &journal, name, 1.5)));
    scene.put(&server, &resources)?;
    until("one of the commands begins", || Ok(lines(&path).len() > 1))?;
    kill(&mut server.child)?;
    let killed = Instant::now();
    server = scene.start()?;
    // That one waits for a decision; the others run.
    scene.until_all(&server, "deployed", 3)?;
    let recovered = killed.elapsed();
    let parked = unknown(&server)?;
    ensure!(parked.len() == 1, "{parked:?}");
    ask(&server, scene.id(), &["settle", "--done", "exec::Run"], &[0])?;
    scene.until_all(&server, "deployed", 4)?;
    let begun: Vec<usize> =
        ["a", "b", "c", "d"].iter().map(|name| count(&path, &format!("begin {name}"))).collect();
    ensure!(begun == [1; 4], "{:?}", lines(&path));
    eprintln!(
        "recovery: agent killed: outcome reported as unknown after {:.1} s; server killed: the rest deployed after {:.1} s",
        reported.as_secs_f32(),
        recovered.as_secs_f32()
    );
    Ok(())
}

/// Agents of this process, with the code of the real program.
struct Agents {
    runtime: tokio::runtime::Runtime,
    stop: CancellationToken,
}

impl Agents {
    fn start(scene: &Scene, server: &Server, gateway: &str) -> Result<Self> {
        let runtime = tokio::runtime::Runtime::new()?;
        let stop = CancellationToken::new();
        for number in 0..AGENTS {
            let path = format!("/api/v1/environments/{}/remote-agents/invitations", scene.id());
            let body = json!({"names": [format!("web{number}")]});
            let invited = scene.world.create(server, &path, &body)?;
            let token = JoinToken::parse(invited["token"].as_str().context("no token")?)?;
            let state = StateDirectory::open(&scene.world.path(&format!("agents/{number}")))?;
            let gateway = gateway.parse()?;
            runtime.block_on(orrery_agent::join(&state, &gateway, &token, None))?;
            let backoff = ReconnectBackoff::default();
            let agent = AgentProcess::start(
                state,
                orrery_agent::runner::Limits::default(),
                backoff,
                None,
                None,
            )?;
            runtime.spawn(agent.run(stop.clone()));
        }
        Ok(Agents { runtime, stop })
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.stop.cancel();
        // Tasks end with the runtime.
        let _entered = self.runtime.enter();
    }
}

/// Number of sessions of a gateway, by its own metrics.
fn sessions(world: &World, gateway: &Server) -> Result<usize> {
    let (status, metrics) = world.call(gateway, "GET", "/metrics", None)?;
    ensure!(status == 200, "metrics: {status} {metrics}");
    let text = metrics.as_str().context("metrics are text")?;
    let line = text.lines().find_map(|line| line.strip_prefix("orrery_agent_sessions "));
    Ok(line.context("no such metric")?.parse()?)
}

fn gateway_with_a_hundred_agents() -> Result<()> {
    let world = World::new(true)?;
    let server = world.start_with(&["--role", "api,process"])?;
    let (port, other) = (Port::reserve()?, Port::reserve()?);
    let options = [port.options(), other.options()];
    let scene = Scene::create(world, &server, port)?;
    let world = &scene.world;
    let gateway = |[listen, address]: &[String; 2]| -> Result<Server> {
        let mut gateway = world.start_with(&["--role", "gateway", listen, address])?;
        gateway.token.clone_from(&server.token);
        Ok(gateway)
    };
    let mut first = gateway(&options[0])?;
    until("a gateway is there", || {
        let path = format!("{}/remote-agents/invitations", scene.api_path());
        let (status, _) = world.call(&server, "POST", &path, Some(&json!({"names": ["probe"]})))?;
        Ok(status < 300)
    })?;
    let _agents = Agents::start(&scene, &server, &options[0][1])?;
    until("all agents are connected", || Ok(sessions(world, &first)? == AGENTS))?;
    // Agents learn of a gateway that starts after they connected.
    let second = gateway(&options[1])?;
    until("the agents know of the other gateway", || {
        let known = |number| {
            let identity = scene.world.path(&format!("agents/{number}/identity.json"));
            std::fs::read_to_string(identity).is_ok_and(|text| text.contains(&options[1][1]))
        };
        Ok((0..AGENTS).all(known))
    })?;

    let path = scene.machine.join("journal");
    let journal = path.display().to_string();
    let names: Vec<String> = (0..AGENTS).map(|number| format!("web{number}")).collect();
    let resources: Vec<Value> = names.iter().map(|name| once(name, &journal, name, 4.0)).collect();
    scene.put(&server, &resources)?;
    until("all commands have begun", || Ok(lines(&path).len() >= AGENTS))?;
    let under_way = names.iter().filter(|name| count(&path, &format!("end {name}")) == 0).count();
    ensure!(under_way > AGENTS / 2, "only {under_way} commands are under way");
    kill(&mut first.child)?;
    let killed = Instant::now();
    until("all agents have found the other gateway", || Ok(sessions(world, &second)? == AGENTS))
        .with_context(|| format!("{:?} have", sessions(world, &second)))?;
    let found = killed.elapsed();
    scene.until_all(&server, "deployed", AGENTS as u64)?;
    let deployed = killed.elapsed();
    eprintln!(
        "recovery: gateway killed with {under_way} commands under way: {AGENTS} agents on the other one after {:.1} s, all deployed after {:.1} s",
        found.as_secs_f32(),
        deployed.as_secs_f32()
    );
    ensure!(found < FAILOVER_MAX, "it took {found:?}");
    for name in names {
        let ran = (count(&path, &format!("begin {name}")), count(&path, &format!("end {name}")));
        ensure!(ran == (1, 1), "{name} ran {ran:?} times");
    }
    let unknown = ask(&server, scene.id(), &["settle"], &[0])?;
    ensure!(unknown["items"] == json!([]), "{unknown}");
    Ok(())
}
