//! Unrepeatable effects: commands that run once write a journal while their server is killed and
//! its database is cut off repeatedly. None runs twice, and unknown outcomes are reported.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use orrery_testing::Proxy;
use serde_json::{Value, json};

use crate::server_kills::{Server, World, until};

const COMMANDS: usize = 60;
const KILLS: u64 = 10;
const OUTAGES: u32 = 5;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn(bool) -> Result<()>, postgres: bool| {
        Trial::test(format!("effects/{name}"), move || {
            Ok(test(postgres).map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("kills_of_the_server/sqlite", kills_of_the_server, false),
        trial("kills_of_the_server/postgres", kills_of_the_server, true),
        Trial::test("effects/outages_of_the_database", || {
            Ok(outages_of_the_database().map_err(|error| format!("{error:#}"))?)
        }),
    ]
}

struct EffectWorld {
    world: World,
    path: String,
}

impl EffectWorld {
    fn new(postgres: bool) -> Result<(Self, Server)> {
        let world = World::new(postgres)?;
        let server = world.start()?;
        EffectWorld::fill(world, server)
    }

    /// Creates the environment with its commands.
    fn fill(world: World, server: Server) -> Result<(Self, Server)> {
        let project = world.create(&server, "/api/v1/projects", &json!({"name": "p"}))?;
        let body = json!({"name": "e", "project": project["id"]});
        let made = world.create(&server, "/api/v1/environments", &body)?;
        let path = format!("/api/v1/environments/{}", made["id"].as_str().context("no id")?);
        let journal = world.path("journal");
        let resources: Vec<Value> = (0..COMMANDS).map(|at| command(&journal, at)).collect();
        let version = json!({"resources": resources, "release": true});
        world.create(&server, &format!("{path}/versions"), &version)?;
        Ok((EffectWorld { world, path }, server))
    }

    fn get(&self, server: &Server, rest: &str) -> Result<Value> {
        let (status, answer) =
            self.world.call(server, "GET", &format!("{}/{rest}", self.path), None)?;
        ensure!(status == 200, "{rest}: {status} {answer}");
        Ok(answer)
    }

    /// Number of resources with a status.
    fn count(&self, server: &Server, status: &str) -> Result<usize> {
        let counts = self.get(server, "resource-counts")?;
        Ok(usize::try_from(counts["by_status"][status].as_u64().unwrap_or(0))?)
    }

    /// Resources with unknown effects, and the number of their command.
    fn unknown(&self, server: &Server) -> Result<Vec<(String, usize)>> {
        let found = self.get(server, "unknown-effects")?;
        let items = found["items"].as_array().context("no items")?;
        items
            .iter()
            .map(|item| {
                let id = item["resource"].as_str().context("no resource")?.to_owned();
                let rest = id.split("echo ").nth(1).context("no command of ours")?;
                let number = rest.split(' ').next().context("no number")?.parse()?;
                Ok((id, number))
            })
            .collect()
    }

    /// Number of runs of each command.
    fn runs(&self) -> Result<BTreeMap<usize, usize>> {
        let mut runs = BTreeMap::new();
        let text = std::fs::read_to_string(self.world.path("journal")).unwrap_or_default();
        for line in text.lines() {
            *runs.entry(line.parse()?).or_default() += 1;
        }
        Ok(runs)
    }

    fn check_runs(&self) -> Result<()> {
        let twice: Vec<usize> =
            self.runs()?.into_iter().filter(|(_, count)| *count > 1).map(|(at, _)| at).collect();
        ensure!(twice.is_empty(), "{} commands ran more than once: {twice:?}", twice.len());
        Ok(())
    }
}

fn command(journal: &Path, at: usize) -> Value {
    let command = format!("sh -c 'echo {at} >> {}; sleep 0.1'", journal.display());
    json!({
        "id": format!("exec::Run[localhost,command={command}]"),
        "attributes": {
            "command": command, "creates": "", "cwd": "", "environment": {}, "once": true, "onlyif": "", "path": "",
            "reload": "", "reload_only": false, "returns": [0], "timeout": 300, "unless": "", "skip_on_fail": false,
            "send_event": false, "receive_events": true,
        },
    })
}

fn kills_of_the_server(postgres: bool) -> Result<()> {
    let (place, mut server) = EffectWorld::new(postgres)?;
    for kill in 0..KILLS {
        let before = place.runs()?.len();
        until("some more run", || {
            Ok(place.runs()?.len() >= (before + 2).min(COMMANDS) || place.runs()?.len() == COMMANDS)
        })?;
        std::thread::sleep(Duration::from_millis(kill * 37 % 110));
        server.child.kill()?;
        server.child.wait()?;
        server = place.world.start()?;
    }
    until("everything had its turn", || {
        let ended = place.count(&server, "deployed")? + place.count(&server, "failed")?;
        Ok(ended == COMMANDS)
    })?;
    place.check_runs()?;
    let unknown = place.unknown(&server)?;
    println!("{} of {COMMANDS} outcomes are unknown after {KILLS} kills", unknown.len());
    ensure!(!unknown.is_empty(), "no kill hit a command");
    let failed = place.count(&server, "failed")?;
    ensure!(failed == unknown.len(), "{failed} failed, and {} are unknown", unknown.len());
    // A deploy does not change that.
    place.world.create(&server, &format!("{}/deploy", place.path), &json!({}))?;
    std::thread::sleep(Duration::from_secs(1));
    place.check_runs()?;
    let runs = place.runs()?;
    for (id, at) in &unknown {
        let choice = if runs.contains_key(at) { "done" } else { "again" };
        let body = json!({"resource": id, "choice": choice});
        place.world.create(&server, &format!("{}/unknown-effects/settle", place.path), &body)?;
    }
    until("all of it is done", || Ok(place.count(&server, "deployed")? == COMMANDS))?;
    place.check_runs()?;
    ensure!(place.runs()?.len() == COMMANDS, "some commands never ran");
    ensure!(place.unknown(&server)?.is_empty(), "something is still unknown");
    Ok(())
}

/// The server keeps running: results are kept until the unstable database accepts them.
fn outages_of_the_database() -> Result<()> {
    let world = World::new(true)?;
    let database = world.database.as_ref().context("no database")?;
    let there = SocketAddr::from((Ipv4Addr::LOCALHOST, database.server().port()));
    let proxy = Proxy::new(there);
    let server = world.start_at("data", Some(&database.url_through(proxy.port())), &[])?;
    let (place, server) = EffectWorld::fill(world, server)?;
    for _ in 0..OUTAGES {
        std::thread::sleep(Duration::from_millis(730));
        proxy.shut();
        std::thread::sleep(Duration::from_millis(1_500));
        proxy.heal();
    }
    until("everything is deployed", || {
        let ended = |status| place.count(&server, status).unwrap_or(0);
        Ok(ended("deployed") + ended("failed") == COMMANDS)
    })?;
    place.check_runs()?;
    let unknown = place.unknown(&server)?;
    ensure!(unknown.is_empty(), "outcomes were lost: {unknown:?}");
    ensure!(place.runs()?.len() == COMMANDS, "some commands never ran");
    Ok(())
}
