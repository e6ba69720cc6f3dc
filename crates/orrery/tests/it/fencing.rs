//! Two servers on one database: the owner of an environment that cannot renew its lease stops by
//! its own clock, before another server takes over.
//!
//! The commands write a journal with their process and time; what servers believe or record is not
//! used here.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use orrery_testing::Proxy;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::server_kills::{Server, World, until};

/// Sequential commands on one agent.
const COMMANDS: usize = 100;
/// A long-running command beside them that runs once.
const LONG: &str = "long";
/// Duration of a lease, and time that its holder may act after the last successful renewal.
const LEASE: Duration = Duration::from_secs(15);
const PERMIT: Duration = Duration::from_secs(10);
/// Scheduling delay of a process before it checks its clock.
const SLACK: Duration = Duration::from_millis(300);

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<()>| {
        Trial::test(format!("fencing/{name}"), move || {
            Ok(test().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial(
            "an_owner_without_its_database_stops_by_its_own_clock",
            an_owner_without_its_database_stops_by_its_own_clock,
        ),
        trial(
            "a_frozen_owner_starts_nothing_when_it_resumes",
            a_frozen_owner_starts_nothing_when_it_resumes,
        ),
    ]
}

/// One line of the journal.
#[derive(Clone, Debug)]
struct Entry {
    event: String,
    command: String,
    server: u32,
    /// Since the Unix epoch.
    at: Duration,
}

fn journal(path: &Path) -> Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [event, command, server, at] = words[..] else { anyhow::bail!("{line:?}") };
            Ok(Entry {
                event: event.to_owned(),
                command: command.to_owned(),
                server: server.parse()?,
                at: Duration::from_nanos(at.parse()?),
            })
        })
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "compared with the times that commands write down")]
fn now() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?)
}

/// A command that writes to the journal when it starts and ends.
fn command(journal: &Path, agent: &str, name: &str, seconds: f64, once: bool) -> Value {
    let line =
        |event: &str| format!("echo {event} {name} $PPID $(date +%s%N) >> {}", journal.display());
    let command = format!("sh -c '{}; sleep {seconds}; {}'", line("begin"), line("end"));
    json!({
        "id": format!("exec::Run[{agent},command={command}]"),
        "attributes": {
            "command": command, "creates": "", "cwd": "", "environment": {}, "once": once, "onlyif": "", "path": "",
            "reload": "", "reload_only": false, "returns": [0], "timeout": 300, "unless": "", "skip_on_fail": false,
            "send_event": false, "receive_events": true,
        },
    })
}

/// Two servers; the first owns an environment with running commands.
struct Pair {
    world: World,
    proxy: Proxy,
    journal: PathBuf,
    owner: Server,
    other: Server,
}

impl Pair {
    fn new() -> Result<Self> {
        let world = World::new(true)?;
        let journal = world.path("journal");
        let database = world.database.as_ref().context("no database")?;
        let port = database.server().port();
        let proxy = Proxy::new(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let owner = world.start_at("a", Some(&database.url_through(proxy.port())), &[])?;
        let project = world.create(&owner, "/api/v1/projects", &json!({"name": "p"}))?;
        let body = json!({"name": "e", "project": project["id"]});
        let made = world.create(&owner, "/api/v1/environments", &body)?;
        let path = format!("/api/v1/environments/{}", made["id"].as_str().context("no id")?);
        let mut resources: Vec<Value> = (0..COMMANDS)
            .map(|at| command(&journal, "localhost", &at.to_string(), 0.25, false))
            .collect();
        resources.push(command(&journal, "internal", LONG, 45.0, true));
        let version = json!({"resources": resources, "release": true});
        world.create(&owner, &format!("{path}/versions"), &version)?;
        until("the first commands", || Ok(journal_of(&journal)? > 4))?;
        let other = world.start_at("b", Some(&database.url_through(port)), &[])?;
        Ok(Pair { world, proxy, journal, owner, other })
    }

    fn entries(&self, server: &Server) -> Result<Vec<Entry>> {
        let mut entries = journal(&self.journal)?;
        entries.retain(|entry| entry.server == server.child.id());
        Ok(entries)
    }

    /// Waits until every command was started by one of the two.
    fn finish(&self) -> Result<()> {
        until("every command was begun", || {
            let mut begun: Vec<String> = journal(&self.journal)?
                .into_iter()
                .filter(|entry| entry.event == "begin")
                .map(|entry| entry.command)
                .collect();
            begun.sort_unstable();
            begun.dedup();
            Ok(begun.len() > COMMANDS)
        })
    }

    /// The command that runs once was started once: its outcome is unknown to the other server.
    fn check_once(&self) -> Result<()> {
        let is_begin = |entry: &&Entry| entry.event == "begin" && entry.command == LONG;
        let count = journal(&self.journal)?.iter().filter(is_begin).count();
        ensure!(count == 1, "a command that is to run once was begun {count} times");
        Ok(())
    }

    /// The owner's runs end before the other server starts any.
    fn check_order(&self) -> Result<()> {
        let last = self.entries(&self.owner)?.into_iter().max_by_key(|entry| entry.at);
        let first = self.entries(&self.other)?.into_iter().min_by_key(|entry| entry.at);
        let (last, first) = (last.context("no entry")?, first.context("no take-over")?);
        ensure!(last.at < first.at, "both acted: {last:?} is later than {first:?}");
        Ok(())
    }
}

fn journal_of(path: &Path) -> Result<usize> {
    Ok(journal(path)?.len())
}

/// Command starts after a moment.
fn begun_after(entries: &[Entry], moment: Duration) -> Vec<&Entry> {
    entries.iter().filter(|entry| entry.event == "begin" && entry.at > moment).collect()
}

fn an_owner_without_its_database_stops_by_its_own_clock() -> Result<()> {
    let mut pair = Pair::new()?;
    pair.proxy.stall();
    let cut = now()?;
    until("the other server takes over", || Ok(!pair.entries(&pair.other)?.is_empty()))?;
    pair.finish()?;
    let entries = pair.entries(&pair.owner)?;
    let late = begun_after(&entries, cut + PERMIT + SLACK);
    ensure!(late.is_empty(), "{} commands were started after the deadline: {late:?}", late.len());
    let between = begun_after(&entries, cut).len();
    println!("{between} commands were started between the cut and the deadline, none after it");
    ensure!(between > 5, "the owner stopped at once: {between} commands after the cut");
    let ended = entries.iter().any(|entry| entry.event == "end" && entry.command == LONG);
    ensure!(!ended, "the long command of the owner went on to its end");
    pair.check_order()?;
    pair.check_once()?;
    // The server is alive, and works again when its database is back.
    ensure!(pair.owner.child.try_wait()?.is_none(), "the owner died");
    pair.proxy.heal();
    until("the owner answers again", || {
        let answer = pair.world.call(&pair.owner, "GET", "/api/v1/projects", None);
        Ok(answer.is_ok_and(|(status, _)| status == 200))
    })
}

#[expect(clippy::unchecked_time_subtraction, reason = "the clock is read in order")]
fn a_frozen_owner_starts_nothing_when_it_resumes() -> Result<()> {
    let pair = Pair::new()?;
    let pid = i32::try_from(pair.owner.child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.context("no process")?;
    kill_process(pid, Signal::STOP)?;
    let stopped = now()?;
    until("the other server takes over", || Ok(!pair.entries(&pair.other)?.is_empty()))?;
    let taken = now()?;
    ensure!(taken - stopped >= PERMIT, "the other one did not wait: {:?}", taken - stopped);
    ensure!(taken - stopped < LEASE * 2, "the other one waited for {:?}", taken - stopped);
    kill_process(pid, Signal::CONT)?;
    pair.finish()?;
    // The frozen server had time to do something wrong.
    std::thread::sleep(Duration::from_secs(3));
    let entries = pair.entries(&pair.owner)?;
    pair.check_once()?;
    let late = begun_after(&entries, stopped + SLACK);
    ensure!(late.is_empty(), "{} commands were started after the freeze: {late:?}", late.len());
    let ended = entries.iter().any(|entry| entry.event == "end" && entry.command == LONG);
    ensure!(!ended, "the long command of the owner went on to its end");
    Ok(())
}
