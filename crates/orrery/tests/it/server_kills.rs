//! `kill -9` of a server at any moment, on both databases: nothing acknowledged is lost, no
//! unrepeatable effect happens twice, and no environment is stuck.
//!
//! Each round starts the real program, pushes versions over HTTP and commits to a repository that
//! the server compiles, and kills it. After the last start, every acknowledged version exists with
//! its content, the newest one is deployed, counted runs happened once per change, and the
//! requested compile ended.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use orrery_testing::{Postgres, TestDatabase};
use serde_json::{Value, json};

use crate::BINARY;

const PASSWORD: &str = "correct horse battery staple 1";
const ROUNDS: u32 = 6;
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, postgres: bool| {
        Trial::test(format!("server_kills/{name}"), move || {
            Ok(kill_again_and_again(postgres).map_err(|error| format!("{error:#}"))?)
        })
    };
    let cut_off = |name: &str, postgres: bool| {
        Trial::test(format!("server_kills/a_verifying_deploy_resumes/{name}"), move || {
            Ok(a_verifying_deploy_resumes(postgres).map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("sqlite", false),
        trial("postgres", true),
        cut_off("sqlite", false),
        cut_off("postgres", true),
    ]
}

/// Commands that run at each deploy, and record it.
fn noting(log: &Path, count: usize) -> Vec<Value> {
    let note = |at: usize| {
        let command = format!("sh -c 'sleep 0.2; echo {at} >> {}'", log.display());
        json!({
            "id": format!("exec::Run[localhost,command={command}]"),
            "attributes": {
                "command": command, "creates": "", "cwd": "", "environment": {}, "onlyif": "", "path": "",
                "reload": "", "reload_only": false, "returns": [0], "timeout": 300, "unless": "", "skip_on_fail": false,
                "send_event": false, "receive_events": true,
            },
        })
    };
    (0..count).map(note).collect()
}

/// A verifying deploy, and a repair, that are interrupted twice by kills: recorded runs are not
/// repeated, the rest runs, and the operation reports all of it.
fn a_verifying_deploy_resumes(postgres: bool) -> Result<()> {
    const COUNT: usize = 24;
    let world = World::new(postgres)?;
    let log = world.path("log");
    let lines = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    let runs = |at: usize| {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter(|line| *line == at.to_string()).count()
    };
    let mut server = world.start()?;
    let project = world.create(&server, "/api/v1/projects", &json!({"name": "p"}))?;
    let body = json!({"name": "e", "project": project["id"]});
    let made = world.create(&server, "/api/v1/environments", &body)?;
    let path = format!("/api/v1/environments/{}", made["id"].as_str().context("no id")?);
    let version = json!({"resources": noting(&log, COUNT), "release": true});
    world.create(&server, &format!("{path}/versions"), &version)?;
    let all_deployed = |server: &Server| -> Result<bool> {
        let (_, counts) = world.call(server, "GET", &format!("{path}/resource-counts"), None)?;
        Ok(counts["by_status"]["deployed"] == COUNT)
    };
    until("the first deploy", || all_deployed(&server))?;
    // The commands whose runs the store has recorded since `began`.
    let recorded_since = |server: &Server, began: &str| -> Result<Vec<usize>> {
        let (_, page) = world.call(server, "GET", &format!("{path}/resources?limit=100"), None)?;
        let resources = page["items"].as_array().context("no items")?;
        let ran = resources.iter().filter(|resource| {
            let ended = resource["last_run_at"].as_str();
            resource["last_outcome"] == "deployed" && ended.is_some_and(|at| at > began)
        });
        ran.map(|resource| {
            let id = resource["id"].as_str().context("no id")?;
            let number = id.split("echo ").nth(1).and_then(|rest| rest.split(' ').next());
            Ok(number.context("no number")?.parse()?)
        })
        .collect()
    };
    for (kind, at, body, parts) in [
        ("a verifying deploy", "versions/1/release", json!({"verify": true}), &[5, 12][..]),
        ("a repair", "repair", json!({}), &[8]),
    ] {
        std::fs::write(&log, "")?;
        let asked = world.create(&server, &format!("{path}/{at}"), &body)?;
        let asked = asked.get("operation").unwrap_or(&asked);
        let began = asked["created"].as_str().context("no time")?;
        let operation = format!("{path}/operations/{}", asked["id"].as_str().context("no id")?);
        // Runs of the commands that were recorded before a kill.
        let mut recorded = BTreeMap::new();
        for part in parts {
            let mut ran = Vec::new();
            until("a part is recorded", || {
                ran = recorded_since(&server, began)?;
                Ok(ran.len() >= *part)
            })?;
            server.child.kill()?;
            server.child.wait()?;
            ensure!(lines() < COUNT, "{kind}: all was done before the kill");
            for at in ran {
                recorded.entry(at).or_insert(runs(at));
            }
            server = world.start()?;
        }
        let mut ended = Value::Null;
        until("the operation has ended", || {
            ended = world.call(&server, "GET", &operation, None)?.1;
            Ok(ended["transitioning"] == "no")
        })?;
        ensure!(ended["outcome"]["deployed"] == COUNT, "{kind}: {ended}");
        let never: Vec<usize> = (0..COUNT).filter(|at| runs(*at) == 0).collect();
        ensure!(never.is_empty(), "{kind}: {never:?} never ran");
        let repeated: Vec<usize> = recorded
            .iter()
            .filter(|(at, before)| runs(**at) > **before)
            .map(|(at, _)| *at)
            .collect();
        ensure!(repeated.is_empty(), "{kind}: {repeated:?} were recorded and ran again");
    }
    Ok(())
}

/// A server process that ends with this value.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) base: String,
    pub(crate) token: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may already be dead.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct World {
    directory: tempfile::TempDir,
    pub(crate) database: Option<TestDatabase>,
    agent: ureq::Agent,
}

impl World {
    pub(crate) fn new(postgres: bool) -> Result<Self> {
        let database = postgres.then(|| Postgres::shared().database());
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(20)))
            .http_status_as_error(false)
            .build();
        let directory = tempfile::tempdir()?;
        // Handlers run as other users and leave files here for the tests.
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777))?;
        Ok(World { directory, database, agent: config.into() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn start(&self) -> Result<Server> {
        self.start_with(&[])
    }

    /// With further options.
    pub(crate) fn start_with(&self, options: &[&str]) -> Result<Server> {
        let database = self.database.as_ref().map(TestDatabase::url);
        self.start_at("data", database.as_deref(), options)
    }

    /// With its own data directory, on a given database.
    pub(crate) fn start_at(
        &self,
        data: &str,
        database: Option<&str>,
        options: &[&str],
    ) -> Result<Server> {
        let mut command = Command::new(BINARY);
        command
            .args([
                "server",
                "--listen",
                "127.0.0.1:0",
                "--log",
                "warn",
                "--allow-local-repositories",
            ])
            .arg("--data")
            .arg(self.path(data))
            .arg("--sandbox-writable")
            .arg(self.directory.path())
            .args(options)
            .env("ORRERY_ADMIN_PASSWORD", PASSWORD)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if let Some(database) = database {
            command.arg("--database").arg(database);
        }
        let mut child = command.spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let base = line.split_whitespace().last().context("the server did not start")?.to_owned();
        let mut server = Server { child, base, token: String::new() };
        // Other roles answer no login.
        let roles = options.iter().position(|option| *option == "--role");
        if roles.is_some_and(|at| !options[at + 1].contains("api")) {
            return Ok(server);
        }
        let body = json!({"name": "admin", "password": PASSWORD});
        let (status, answer) = self.call(&server, "POST", "/api/v1/login", Some(&body))?;
        ensure!(status == 200, "login: {status} {answer}");
        server.token = answer["token"].as_str().context("no token")?.to_owned();
        Ok(server)
    }

    pub(crate) fn call(
        &self,
        server: &Server,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value)> {
        self.call_with(server, method, path, body, "")
    }

    /// With an `Idempotency-Key`, unless it is empty.
    pub(crate) fn call_with(
        &self,
        server: &Server,
        method: &str,
        path: &str,
        body: Option<&Value>,
        key: &str,
    ) -> Result<(u16, Value)> {
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", server.base))
            .header("Authorization", format!("Bearer {}", server.token))
            .header("Content-Type", "application/json");
        let request = if key.is_empty() { request } else { request.header("Idempotency-Key", key) };
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut answer = self.agent.run(request.body(text)?)?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string()?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    pub(crate) fn create(&self, server: &Server, path: &str, body: &Value) -> Result<Value> {
        let (status, answer) = self.call(server, "POST", path, Some(body))?;
        ensure!(status < 300, "{path}: {status} {answer}");
        Ok(answer)
    }
}

pub(crate) fn git(directory: &Path, arguments: &[&str]) -> Result<()> {
    let identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
    let done = Command::new("git")
        .current_dir(directory)
        .args(identity)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    ensure!(done.success(), "git {arguments:?}");
    Ok(())
}

/// A version with files that contain the number, and a command that records its runs.
fn version(directory: &Path, number: u32) -> Value {
    let mut resources: Vec<Value> = (0..20)
        .map(|at| {
            let path = directory.join(format!("f{at:02}"));
            json!({
                "id": format!("std::File[here{},path={}]", at % 4, path.display()),
                "attributes": {
                    "path": path, "content": format!("{number}\n"), "mode": 644, "owner": null, "group": null,
                    "purged": false, "prefix_content": [], "suffix_content": [], "content_seperator": "\n",
                    "send_event": false, "receive_events": true,
                },
            })
        })
        .collect();
    // Its identity contains the number: each runs once.
    let marker = directory.join(format!("once{number}"));
    let log = directory.join("runs");
    let command = format!("sh -c 'echo {number} >> {}; touch {}'", log.display(), marker.display());
    resources.push(json!({
        "id": format!("exec::Run[here9,command={command}]"),
        "attributes": {
            "command": command, "creates": marker, "cwd": "", "environment": {}, "onlyif": "", "path": "",
            "reload": "", "reload_only": false, "returns": [0], "timeout": 300, "unless": "", "skip_on_fail": false,
            "send_event": false, "receive_events": true,
        },
    }));
    json!({"resources": resources, "release": true, "local_agents": ["here?"]})
}

fn kill_again_and_again(postgres: bool) -> Result<()> {
    let world = World::new(postgres)?;
    let targets = world.path("targets");
    std::fs::create_dir(&targets)?;
    let repository = world.path("repository");
    std::fs::create_dir(&repository)?;
    let model = |text: &str| {
        let path = world.path("compiled");
        format!(
            "import std\nhost = std::Host(name=\"internal\", os=std::linux)\n\
             std::ConfigFile(host=host, path=\"{}\", content=\"{text}\")\n",
            path.display()
        )
    };
    std::fs::write(repository.join("project.yml"), "name: test\nmodulepath: libs\n")?;
    std::fs::write(repository.join("main.cf"), model("start"))?;
    git(&repository, &["init", "-q", "-b", "main"])?;
    git(&repository, &["add", "."])?;
    git(&repository, &["commit", "-q", "-m", "start"])?;
    let mut server = world.start()?;
    let project = world.create(&server, "/api/v1/projects", &json!({"name": "p"}))?;
    let environment = |name: &str, body: Value| -> Result<String> {
        let mut body = body;
        body["project"] = project["id"].clone();
        body["name"] = name.into();
        let made = world.create(&server, "/api/v1/environments", &body)?;
        Ok(format!("/api/v1/environments/{}", made["id"].as_str().context("no id")?))
    };
    let pushed = environment("pushed", json!({}))?;
    // Retention removes old versions; here, none is old.
    let keep = format!("{pushed}/settings/available_versions_to_keep");
    let (status, answer) = world.call(&server, "PUT", &keep, Some(&json!({"value": 100_000})))?;
    ensure!(status == 200, "{keep}: {status} {answer}");
    let source = json!({"repository": repository, "branch": "main"});
    let compiled = environment("compiled", source)?;
    // Acknowledged versions and their contents.
    let mut acknowledged: Vec<(u64, u32)> = Vec::new();
    let mut released: Vec<u64> = Vec::new();
    let mut asked: Vec<String> = Vec::new();
    let mut number = 0;
    // A generator with a fixed seed: the moments differ, the rounds repeat.
    let mut random = 0x2545_f491_u64;
    for round in 0..ROUNDS {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let until = Instant::now() + Duration::from_millis(200 + (random >> 33) % 1_500);
        let text = format!("round {round}");
        std::fs::write(repository.join("main.cf"), model(&text))?;
        git(&repository, &["commit", "-q", "-a", "-m", &text])?;
        let request = json!({"update": true});
        let compile = world.create(&server, &format!("{compiled}/compiles"), &request)?;
        asked.push(compile["id"].as_str().context("no id")?.to_owned());
        let killed = std::thread::scope(|scope| -> Result<()> {
            let pid = server.child.id().to_string();
            let killer = scope.spawn(move || {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                Command::new("kill").args(["-9", &pid]).status()
            });
            loop {
                number += 1;
                // Every other version is released by a separate request.
                let at_once = number % 2 == 0;
                let mut body = version(&targets, number);
                body["release"] = at_once.into();
                let stored =
                    match world.call(&server, "POST", &format!("{pushed}/versions"), Some(&body)) {
                        Ok((201, answer)) => answer["number"].as_u64().context("no number")?,
                        Ok((status, answer)) => bail!("a version was refused: {status} {answer}"),
                        // The server is gone.
                        Err(_) => break,
                    };
                acknowledged.push((stored, number));
                if at_once {
                    released.push(stored);
                    continue;
                }
                let path = format!("{pushed}/versions/{stored}/release");
                match world.call(&server, "POST", &path, None) {
                    Ok((200..=202, _)) => released.push(stored),
                    Ok((status, answer)) => bail!("a release was refused: {status} {answer}"),
                    Err(_) => break,
                }
            }
            ensure!(killer.join().is_ok_and(|done| done.is_ok()), "it could not be killed");
            Ok(())
        });
        killed?;
        drop(std::mem::replace(&mut server, world.start()?));
    }
    ensure!(!acknowledged.is_empty(), "no version was ever acknowledged");
    let told = Acknowledged { pushed, compiled, acknowledged, released, asked, number };
    check(&world, &server, &told, &targets)
}

struct Acknowledged {
    pushed: String,
    compiled: String,
    acknowledged: Vec<(u64, u32)>,
    released: Vec<u64>,
    asked: Vec<String>,
    /// The last version that was sent, acknowledged or not.
    number: u32,
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !holds()? {
        ensure!(Instant::now() < end, "this never came: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn check(world: &World, server: &Server, told: &Acknowledged, targets: &Path) -> Result<()> {
    let get = |path: &str| -> Result<Value> {
        let (status, answer) = world.call(server, "GET", path, None)?;
        ensure!(status == 200, "{path}: {status} {answer}");
        Ok(answer)
    };
    // One more version, so that the final state is known.
    let last = told.number + 1;
    let body = version(targets, last);
    world.create(server, &format!("{}/versions", told.pushed), &body)?;
    for (stored, number) in &told.acknowledged {
        let path = format!("{}/versions/{stored}/resources?limit=1", told.pushed);
        let (status, answer) = world.call(server, "GET", &path, None)?;
        ensure!(status == 200, "version {stored} was acknowledged and is gone: {status} {answer}");
        let first = &answer["items"][0];
        let text = first.to_string();
        ensure!(text.contains("exec::Run"), "{text}");
        ensure!(
            text.contains(&format!("once{number}")),
            "version {stored} has other content: {text}"
        );
    }
    for stored in &told.released {
        let version = get(&format!("{}/versions/{stored}", told.pushed))?;
        ensure!(version["released"] == true, "a release was acknowledged and is gone: {version}");
    }
    until("everything is deployed", || {
        let counts = get(&format!("{}/resource-counts", told.pushed))?;
        let done = counts["by_status"]["deployed"].as_u64() == Some(21);
        let file = std::fs::read_to_string(targets.join("f19")).unwrap_or_default();
        Ok(done && file == format!("{last}\n"))
    })?;
    let runs = std::fs::read_to_string(targets.join("runs"))?;
    let mut seen: Vec<&str> = runs.lines().collect();
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    ensure!(seen.len() == count, "a command that may run once ran twice: {runs}");
    for id in &told.asked {
        let path = format!("{}/compiles/{id}", told.compiled);
        until("a compile comes to an end", || Ok(!get(&path)?["completed"].is_null()))?;
        let compile = get(&path)?;
        ensure!(compile["success"] == true, "{compile}");
    }
    let expected = format!("round {}", ROUNDS - 1);
    until("the last commit is deployed", || {
        Ok(std::fs::read_to_string(world.path("compiled")).is_ok_and(|text| text == expected))
    })
}
