//! Remote agents end to end, with the real program on both databases: an invitation, a machine that
//! joins and serves, kills of both sides during a command, and a revocation.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use orrery_testing::Proxy;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::BINARY;
use crate::server_kills::{Server, World};

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, postgres: bool| {
        Trial::test(format!("remote_agents/{name}"), move || {
            Ok(serve_and_kill(postgres).map_err(|error| format!("{error:#}"))?)
        })
    };
    let apart = Trial::test("remote_agents/roles_apart", || {
        Ok(roles_apart().map_err(|error| format!("{error:#}"))?)
    });
    let owner = Trial::test("remote_agents/a_new_owner_is_known_at_once", || {
        Ok(a_new_owner_is_known_at_once().map_err(|error| format!("{error:#}"))?)
    });
    let orphan = Trial::test("remote_agents/a_command_never_runs_beside_its_repetition", || {
        Ok(a_command_never_runs_beside_its_repetition().map_err(|error| format!("{error:#}"))?)
    });
    vec![trial("sqlite", false), trial("postgres", true), apart, owner, orphan]
}

/// A process that ends with this value.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// As by `kill -9`.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may already be dead.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !holds()? {
        ensure!(Instant::now() < end, "this never came: {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
    Ok(())
}

/// Runs the command line against a server.
pub(crate) fn orrery(server: &Server, environment: &str, arguments: &[&str]) -> Result<Value> {
    ask(server, environment, arguments, &[0])
}

/// The same with several allowed exit codes.
pub(crate) fn ask(
    server: &Server,
    environment: &str,
    arguments: &[&str],
    codes: &[i32],
) -> Result<Value> {
    let done = Command::new(BINARY)
        .args(arguments)
        .arg("--json")
        .env("ORRERY_SERVER", &server.base)
        .env("ORRERY_TOKEN", &server.token)
        .env("ORRERY_ENVIRONMENT", environment)
        .output()?;
    let (out, err) = (String::from_utf8(done.stdout)?, String::from_utf8_lossy(&done.stderr));
    let code = done.status.code().context("no exit code")?;
    ensure!(codes.contains(&code), "{arguments:?}: {code}: {err}{out}");
    Ok(serde_json::from_str(&out)?)
}

/// `orrery agent join`; returns its error output if it failed.
pub(crate) fn join(
    gateway: &str,
    token: &str,
    state: &Path,
) -> Result<std::result::Result<(), String>> {
    let mut command = Command::new(BINARY);
    command.args(["agent", "join", gateway, token, "--state"]).arg(state);
    let done = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    Ok(if done.status.success() { Ok(()) } else { Err(said) })
}

/// `orrery agent run`, once it reports its start.
pub(crate) fn run(state: &Path) -> Result<Process> {
    let mut command = Command::new(BINARY);
    command.args(["agent", "run", "--log", "warn", "--state"]).arg(state);
    started(&mut command)
}

/// Starts an agent, and waits until it reports that.
pub(crate) fn started(command: &mut Command) -> Result<Process> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    ensure!(line.starts_with("orrery agent "), "the agent did not start: {line}");
    Ok(Process(child))
}

fn file(path: &Path, content: &str) -> Value {
    json!({
        "id": format!("std::File[web1,path={}]", path.display()),
        "attributes": {
            "path": path, "content": content, "mode": 644, "owner": null, "group": null,
            "purged": false, "prefix_content": [], "suffix_content": [], "content_seperator": "\n",
            "send_event": false, "receive_events": true,
        },
    })
}

fn command(line: &str, creates: &Path) -> Value {
    json!({
        "id": format!("exec::Run[web1,command={line}]"),
        "attributes": {
            "command": line, "creates": creates, "cwd": "", "environment": {}, "onlyif": "", "path": "",
            "reload": "", "reload_only": false, "returns": [0], "timeout": 300, "unless": "", "skip_on_fail": false,
            "send_event": false, "receive_events": true,
        },
    })
}

pub(crate) struct Scene {
    pub(crate) world: World,
    options: [String; 2],
    _port: Port,
    pub(crate) machine: PathBuf,
    pub(crate) state: PathBuf,
    /// API path of the environment.
    environment: String,
}

impl Scene {
    /// Creates an environment whose machines reach the gateway at a reserved port.
    pub(crate) fn create(world: World, server: &Server, port: Port) -> Result<Self> {
        let project = world.create(server, "/api/v1/projects", &json!({"name": "p"}))?;
        let body = json!({"project": project["id"], "name": "e"});
        let made = world.create(server, "/api/v1/environments", &body)?;
        let environment = format!("/api/v1/environments/{}", made["id"].as_str().context("no id")?);
        let (machine, state) = (world.path("machine"), world.path("agent"));
        std::fs::create_dir(&machine)?;
        let options = port.options();
        Ok(Scene { world, options, _port: port, machine, state, environment })
    }

    pub(crate) fn start(&self) -> Result<Server> {
        self.world.start_with(&[&self.options[0], &self.options[1]])
    }

    pub(crate) fn put(&self, server: &Server, resources: &[Value]) -> Result<()> {
        let body = json!({"resources": resources});
        self.world.create(server, &format!("{}/versions", self.environment), &body)?;
        Ok(())
    }

    pub(crate) fn get(&self, server: &Server, rest: &str) -> Result<Value> {
        let path = format!("{}{rest}", self.environment);
        let (status, answer) = self.world.call_with(server, "GET", &path, None, "")?;
        ensure!(status == 200, "{path}: {status} {answer}");
        Ok(answer)
    }

    pub(crate) fn until_all(&self, server: &Server, status: &str, count: u64) -> Result<()> {
        until(&format!("{count} {status}"), || {
            let counts = self.get(server, "/resource-counts")?;
            Ok(counts["by_status"][status].as_u64() == Some(count))
        })
        .with_context(|| self.logs(server).unwrap_or_else(|error| error.to_string()))
    }

    /// Logs of all resources, for the diagnosis of a failure.
    pub(crate) fn logs(&self, server: &Server) -> Result<String> {
        let mut said = String::new();
        let list = self.get(server, "/resources")?;
        for one in list["items"].as_array().into_iter().flatten() {
            let id = one["id"].as_str().unwrap_or_default();
            let part: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let logs = self.get(server, &format!("/resources/{part}/logs"))?;
            said += &format!("{} {id}: {logs}\n", one["status"]);
        }
        Ok(said)
    }

    /// API path of the environment.
    pub(crate) fn api_path(&self) -> &str {
        &self.environment
    }

    pub(crate) fn id(&self) -> &str {
        self.environment.rsplit('/').next().unwrap_or_default()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.machine.join(name)).unwrap_or_default()
    }
}

/// Reserves a port as long as this value exists, even while no server listens. A bound socket that
/// does not listen keeps it: an explicit bind succeeds, and automatic ports avoid it.
pub(crate) struct Port {
    address: SocketAddr,
    _bound: TcpSocket,
}

impl Port {
    pub(crate) fn reserve() -> Result<Self> {
        let bound = TcpSocket::new_v4()?;
        bound.set_reuseaddr(true)?;
        bound.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Port { address: bound.local_addr()?, _bound: bound })
    }

    pub(crate) fn options(&self) -> [String; 2] {
        ["--gateway-listen".to_owned(), self.address.to_string()]
    }
}

pub(crate) fn scene(postgres: bool) -> Result<(Scene, Server)> {
    scene_with(postgres, &[])
}

/// A server with further options.
pub(crate) fn scene_with(postgres: bool, more: &[&str]) -> Result<(Scene, Server)> {
    scene_at(Port::reserve()?, postgres, more)
}

/// A server whose agents reach it through a proxy.
pub(crate) fn scene_behind() -> Result<(Scene, Server, Proxy)> {
    let port = Port::reserve()?;
    let proxy = Proxy::new(port.address);
    let address = format!("127.0.0.1:{}", proxy.port());
    let (scene, server) = scene_at(port, false, &["--gateway-address", &address])?;
    Ok((scene, server, proxy))
}

fn scene_at(port: Port, postgres: bool, more: &[&str]) -> Result<(Scene, Server)> {
    let world = World::new(postgres)?;
    let options = port.options();
    let server = world.start_with(&[&[&*options[0], &*options[1]], more].concat())?;
    Ok((Scene::create(world, &server, port)?, server))
}

fn serve_and_kill(postgres: bool) -> Result<()> {
    let (scene, mut server) = scene(postgres)?;
    let motd = scene.machine.join("motd");

    // A machine is invited, joins, and serves.
    let invited = orrery(&server, scene.id(), &["agent", "invite", "web1"])?;
    let token = invited["token"].as_str().context("no token")?;
    let gateway = invited["gateway"].as_str().context("no gateway")?;
    ensure!(gateway == scene.options[1], "{invited}");
    scene.put(&server, &[file(&motd, "first\n")])?;
    // The name is invited but not joined: the server does not act in its place.
    scene.until_all(&server, "unavailable", 1)?;
    ensure!(!motd.exists(), "the server worked for a machine that was only invited");
    if let Err(said) = join(gateway, token, &scene.state)? {
        anyhow::bail!("joining failed: {said}");
    }
    let second = join(gateway, token, &scene.world.path("other"))?;
    ensure!(second.is_err_and(|said| said.contains("another invitation")), "a token is for one");
    // It has joined, and does not run yet.
    scene.until_all(&server, "unavailable", 1)?;
    ensure!(!motd.exists(), "the server worked for a remote agent");
    let mut agent = run(&scene.state)?;
    scene.until_all(&server, "deployed", 1)?;
    ensure!(scene.read("motd") == "first\n");

    // The agent runs the command.
    let whose = scene.machine.join("whose");
    let who = command(&format!("sh -c 'echo $PPID > {}'", whose.display()), &whose);
    scene.put(&server, &[file(&motd, "second\n"), who.clone()])?;
    scene.until_all(&server, "deployed", 2)?;
    ensure!(scene.read("motd") == "second\n");
    let parent = scene.read("whose");
    ensure!(parent.trim() == agent.pid().to_string(), "{parent} is not {}", agent.pid());

    // The agent is killed during a command, and restarts.
    let (log, marker) = (scene.machine.join("log"), scene.machine.join("marker"));
    let slow =
        format!("sh -c 'echo begun >> {}; sleep 2; touch {}'", log.display(), marker.display());
    let resources = [file(&motd, "third\n"), who.clone(), command(&slow, &marker)];
    scene.put(&server, &resources)?;
    until("the slow command begins", || Ok(scene.read("log").contains("begun")))?;
    agent.kill()?;
    let mut agent = run(&scene.state)?;
    until("the third version is there", || Ok(marker.exists() && scene.read("motd") == "third\n"))?;
    scene.until_all(&server, "deployed", 3)?;

    // The server is killed during a command; the agent finds the new one.
    std::fs::write(&log, "")?;
    let marker = scene.machine.join("second-marker");
    let slow =
        format!("sh -c 'echo begun >> {}; sleep 2; touch {}'", log.display(), marker.display());
    let resources = [file(&motd, "fourth\n"), who.clone(), command(&slow, &marker)];
    scene.put(&server, &resources)?;
    until("the slow command begins", || Ok(scene.read("log").contains("begun")))?;
    server.child.kill()?;
    server.child.wait()?;
    server = scene.start()?;
    until("the agent is back", || {
        Ok(scene.get(&server, "/remote-agents")?["items"][0]["status"] == "connected")
    })?;
    until("the fourth version is there", || {
        Ok(marker.exists() && scene.read("motd") == "fourth\n")
    })?;
    scene.until_all(&server, "deployed", 3)?;
    ensure!(agent.0.try_wait()?.is_none(), "the agent ended with the server");

    // A revoked agent ends, and nothing replaces it.
    let listed = orrery(&server, scene.id(), &["agent", "remotes"])?;
    ensure!(listed["items"][0]["names"] == json!(["web1"]), "{listed}");
    orrery(&server, scene.id(), &["agent", "revoke", "web1", "--yes"])?;
    until("the revoked agent ends", || Ok(agent.0.try_wait()?.is_some()))?;
    ensure!(agent.0.wait()?.code() == Some(3), "its service manager must not start it again");
    until("the status says that the agent is down", || {
        let seen = ask(&server, scene.id(), &["status"], &[0, 2])?;
        Ok(seen["agents"][0]["down"] == true)
    })?;
    // Everything is deployed, but no longer kept compliant.
    let seen = ask(&server, scene.id(), &["status"], &[2])?;
    ensure!(seen["done"] == false && seen["problem_count"] == 0, "{seen}");
    scene.put(&server, &[file(&motd, "fifth\n")])?;
    scene.until_all(&server, "unavailable", 1)?;
    ensure!(scene.read("motd") == "fourth\n");

    // A released name has no machine, unless declared otherwise.
    let said =
        run_and_read(&server, scene.id(), &["agent", "revoke", "web1", "--release", "--yes"])?;
    ensure!(said.contains("web1 is not known to be this machine"), "{said}");
    ensure!(said.contains("unavailable") && said.contains("orrery agent invite web1"), "{said}");
    ensure!(!said.contains("serves web1 from now on"), "{said}");
    let listed = run_and_read(&server, scene.id(), &["agent", "list"])?;
    ensure!(listed.contains("unavailable"), "{listed}");
    Ok(())
}

/// Standard error of a command.
fn run_and_read(server: &Server, environment: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(BINARY);
    command.args(arguments).env("ORRERY_SERVER", &server.base);
    command.env("ORRERY_TOKEN", &server.token).env("ORRERY_ENVIRONMENT", environment);
    let done = command.output()?;
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(done.status.success(), "{arguments:?}: {said}");
    Ok(said)
}

/// A killed agent without a service manager leaves its command running; the next process ends it
/// before the repetition.
fn a_command_never_runs_beside_its_repetition() -> Result<()> {
    let (scene, server) = scene(false)?;
    let invited = orrery(&server, scene.id(), &["agent", "invite", "web1"])?;
    let token = invited["token"].as_str().context("no token")?;
    let gateway = invited["gateway"].as_str().context("no gateway")?;
    if let Err(said) = join(gateway, token, &scene.state)? {
        anyhow::bail!("joining failed: {said}");
    }
    let mut agent = run(&scene.state)?;
    let path = |name: &str| scene.machine.join(name);
    let (log, gate, done) = (path("log"), path("gate"), path("done"));
    let slow = format!(
        "sh -c 'echo begun $$ >> {0}; until test -e {1}; do sleep 0.05; done; echo ended $$ >> {0}; touch {2}'",
        log.display(),
        gate.display(),
        done.display(),
    );
    scene.put(&server, &[command(&slow, &done)])?;
    let begun = || -> Vec<String> {
        let log = scene.read("log");
        log.lines().filter_map(|line| Some(line.strip_prefix("begun ")?.to_owned())).collect()
    };
    // The identity of a process: its id may be reused.
    let start_of = |process: &str| -> Option<String> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        (*fields.first()? != "Z").then(|| fields.get(19).map(|at| (*at).to_owned()))?
    };
    until("the command begins", || Ok(begun().len() == 1))?;
    let first = begun().remove(0);
    let identity = start_of(&first);
    ensure!(identity.is_some(), "the command does not run");
    agent.kill()?;
    ensure!(start_of(&first) == identity, "the command ended with its agent");
    let _agent = run(&scene.state)?;
    until("the command is repeated", || Ok(begun().len() == 2))?;
    ensure!(start_of(&first) != identity, "the command runs beside its repetition");
    std::fs::write(&gate, "")?;
    scene.until_all(&server, "deployed", 1)?;
    let log = scene.read("log");
    ensure!(log.matches("ended").count() == 1 && begun().len() == 2, "{log}");
    let logs = scene.logs(&server)?;
    ensure!(logs.contains("was restarted during the run, which it repeats"), "{logs}");
    ensure!(std::fs::read_dir(scene.state.join("commands"))?.count() == 0, "records stay");
    Ok(())
}

/// A new owner with nothing to deploy: the agent rejects the former owner immediately.
fn a_new_owner_is_known_at_once() -> Result<()> {
    let world = World::new(true)?;
    let port = Port::reserve()?;
    let [listen, own] = &port.options();
    let server = world.start_with(&["--role", "api,gateway", listen, own])?;
    let scene = Scene::create(world, &server, port)?;
    let mut first = scene.world.start_with(&["--role", "process"])?;
    let invited = orrery(&server, scene.id(), &["agent", "invite", "web1"])?;
    let token = invited["token"].as_str().context("no token")?;
    let gateway = invited["gateway"].as_str().context("no gateway")?;
    if let Err(said) = join(gateway, token, &scene.state)? {
        anyhow::bail!("joining failed: {said}");
    }
    let _agent = run(&scene.state)?;
    scene.put(&server, &[file(&scene.machine.join("motd"), "first\n")])?;
    scene.until_all(&server, "deployed", 1)?;
    // As the agent recorded it.
    let epoch = || -> Result<u64> {
        let text = std::fs::read_to_string(scene.state.join("journal")).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(lines.filter_map(|line| line["epoch"].as_u64()).max().unwrap_or(0))
    };
    let before = epoch()?;
    ensure!(before > 0, "the agent knows of no epoch");
    first.child.kill()?;
    first.child.wait()?;
    let _second = scene.world.start_with(&["--role", "process"])?;
    until("the agent knows of the new owner", || Ok(epoch()? > before))
}

/// Separate processes for API, process role and two gateways; one gateway dies.
fn roles_apart() -> Result<()> {
    let world = World::new(true)?;
    let server = world.start_with(&["--role", "api"])?;
    let scene = Scene::create(world, &server, Port::reserve()?)?;
    let _process = scene.world.start_with(&["--role", "process"])?;
    // Agents use a load balancer name that does not resolve here; servers must use the peer
    // address.
    let [listen, own] = &scene.options;
    let balancer = ["--gateway-address", "agents.invalid:8889"];
    let options =
        ["--role", "gateway", listen, own, balancer[0], balancer[1], "--gateway-peer-address", own];
    let mut gateway = scene.world.start_with(&options)?;
    let invite = |names: &str| orrery(&server, scene.id(), &["agent", "invite", names]);
    until("a gateway is there", || Ok(invite("web0").is_ok()))?;
    let invited = invite("web1")?;
    ensure!(invited["gateway"] == balancer[1], "{invited}");
    let token = invited["token"].as_str().context("no token")?;
    if let Err(said) = join(&scene.options[1], token, &scene.state)? {
        anyhow::bail!("joining failed: {said}");
    }
    let _agent = run(&scene.state)?;
    let motd = scene.machine.join("motd");
    scene.put(&server, &[file(&motd, "first\n")])?;
    until("the first version is there", || Ok(scene.read("motd") == "first\n"))?;
    scene.until_all(&server, "deployed", 1)?;

    // The gateway dies during a command; another one takes over.
    let (log, marker) = (scene.machine.join("log"), scene.machine.join("marker"));
    let slow =
        format!("sh -c 'echo begun >> {}; sleep 2; touch {}'", log.display(), marker.display());
    scene.put(&server, &[file(&motd, "second\n"), command(&slow, &marker)])?;
    until("the slow command begins", || Ok(scene.read("log").contains("begun")))?;
    gateway.child.kill()?;
    gateway.child.wait()?;
    let _gateway = scene.world.start_with(&options)?;
    until("the second version is there", || {
        Ok(marker.exists() && scene.read("motd") == "second\n")
    })?;
    scene.until_all(&server, "deployed", 2)?;
    ensure!(scene.read("log").lines().count() == 1, "it ran twice: {}", scene.read("log"));
    Ok(())
}
