//! Unrepeatable effects of Python handlers, and their fencing. The handlers write a journal; server
//! records are only compared with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use orrery_testing::Proxy;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::server_handlers::Scene;
use crate::server_kills::{World, until};

const MODULE: [(&str, &str); 3] = [
    ("module.yml", include_str!("unrepeatable/module.yml")),
    ("model/_init.cf", include_str!("unrepeatable/model/_init.cf")),
    ("plugins/__init__.py", include_str!("unrepeatable/plugins/__init__.py")),
];
const EFFECTS: usize = 40;
const KILLS: u64 = 4;
/// Time that an owner may act after its last successful renewal.
const PERMIT: Duration = Duration::from_secs(10);
/// Time for an operation to end after that, and then for its process.
const ENDING: Duration = Duration::from_secs(5);
/// Scheduling delay of a process before it checks its clock.
const SLACK: Duration = Duration::from_millis(300);

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<()>| {
        Trial::test(format!("handler_effects/{name}"), move || {
            Ok(test().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("declared_effects_happen_once/sqlite", || declared_effects_happen_once(false)),
        trial("declared_effects_happen_once/postgres", || declared_effects_happen_once(true)),
        trial("what_a_handler_reads_back_is_not_parked", what_a_handler_reads_back_is_not_parked),
        trial("effects_of_a_killed_host_are_unknown", effects_of_a_killed_host_are_unknown),
        trial("a_fenced_owner_ends_its_hosts", a_fenced_owner_ends_its_hosts),
    ]
}

fn scene(postgres: bool, model: &str) -> Result<Scene> {
    let world = World::new(postgres)?;
    let server = world.start()?;
    Scene::with_module(world, server, ("unrepeatable", &MODULE), |world| with_journal(world, model))
}

fn with_journal(world: &World, model: &str) -> String {
    let journal = world.path("journal");
    format!("import unrepeatable\njournal = \"{}\"\n{model}", journal.display())
}

/// A process by its id in its own namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    number: i32,
    namespace: u64,
}

/// One line of the journal.
#[derive(Clone, Debug)]
struct Entry {
    word: String,
    name: String,
    process: Process,
    /// Since the Unix epoch.
    at: Duration,
}

fn journal(world: &World) -> Result<Vec<Entry>> {
    let text = std::fs::read_to_string(world.path("journal")).unwrap_or_default();
    text.lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [word, name, number, namespace, at] = words[..] else { anyhow::bail!("{line:?}") };
            Ok(Entry {
                word: word.to_owned(),
                name: name.to_owned(),
                process: Process { number: number.parse()?, namespace: namespace.parse()? },
                at: Duration::from_nanos(at.parse()?),
            })
        })
        .collect()
}

/// Number of times that each effect happened.
fn runs(world: &World) -> Result<BTreeMap<String, usize>> {
    let mut runs = BTreeMap::new();
    for entry in journal(world)?.into_iter().filter(|entry| entry.word == "done") {
        *runs.entry(entry.name).or_default() += 1;
    }
    Ok(runs)
}

fn check_once(world: &World) -> Result<()> {
    let mut runs = runs(world)?;
    runs.retain(|_, count| *count > 1);
    ensure!(runs.is_empty(), "{} effects happened more than once: {runs:?}", runs.len());
    Ok(())
}

impl Scene {
    fn restart(&mut self) -> Result<()> {
        self.server.child.kill()?;
        self.server.child.wait()?;
        self.server = self.world.start()?;
        Ok(())
    }

    fn count(&self, status: &str) -> Result<usize> {
        let counts = self.get("resource-counts")?;
        Ok(usize::try_from(counts["by_status"][status].as_u64().unwrap_or(0))?)
    }

    /// Names of resources with unknown effects.
    fn unknown(&self) -> Result<Vec<(String, String)>> {
        let found = self.get("unknown-effects")?;
        let items = found["items"].as_array().context("no items")?;
        items
            .iter()
            .map(|item| {
                let id = item["resource"].as_str().context("no resource")?;
                let name = id.split("name=").nth(1).context("no name")?.trim_end_matches(']');
                Ok((id.to_owned(), name.to_owned()))
            })
            .collect()
    }

    fn until_all_had_their_turn(&self, count: usize) -> Result<()> {
        until("everything had its turn", || {
            Ok(self.count("deployed")? + self.count("failed")? == count)
        })
    }
}

/// Declared and announced effects, on several agents, while the server is killed.
fn declared_effects_happen_once(postgres: bool) -> Result<()> {
    let mut model = String::new();
    for at in 0..EFFECTS {
        let entity = if at % 2 == 0 { "Effect" } else { "Call" };
        writeln!(
            model,
            "unrepeatable::{entity}(name=\"e{at}\", agent=\"a{}\", journal=journal)",
            at % 4
        )?;
    }
    let mut scene = scene(postgres, &model)?;
    for kill in 0..KILLS {
        let before = runs(&scene.world)?.len();
        until("some more happen", || Ok(runs(&scene.world)?.len() >= (before + 2).min(EFFECTS)))?;
        std::thread::sleep(Duration::from_millis(kill * 37 % 110));
        scene.restart()?;
    }
    scene.until_all_had_their_turn(EFFECTS)?;
    check_once(&scene.world)?;
    let unknown = scene.unknown()?;
    println!("{} of {EFFECTS} outcomes are unknown after {KILLS} kills", unknown.len());
    ensure!(!unknown.is_empty(), "no kill hit an effect");
    let failed = scene.count("failed")?;
    ensure!(failed == unknown.len(), "{failed} failed, and {} are unknown", unknown.len());
    let done = runs(&scene.world)?;
    for (id, name) in &unknown {
        let choice = if done.contains_key(name) { "done" } else { "again" };
        let body = json!({"resource": id, "choice": choice});
        let path = format!("{}/unknown-effects/settle", scene.environment);
        scene.world.create(&scene.server, &path, &body)?;
    }
    scene.until_deployed(EFFECTS as u64)?;
    check_once(&scene.world)?;
    ensure!(runs(&scene.world)?.len() == EFFECTS, "some effects never happened");
    ensure!(scene.unknown()?.is_empty(), "something is still unknown");
    Ok(())
}

/// After a kill, a handler that can read back its effect decides itself.
fn what_a_handler_reads_back_is_not_parked() -> Result<()> {
    let mut scene = scene(
        false,
        r#"unrepeatable::Effect(name="done", agent="a", journal=journal, reads="journal", waits=30)
unrepeatable::Effect(name="undone", agent="b", journal=journal, reads="all", waits=-30)
unrepeatable::Effect(name="unclear", agent="c", journal=journal, reads="journal", waits=-30)
"#,
    )?;
    until("all of them are under way", || Ok(journal(&scene.world)?.len() == 3))?;
    scene.restart()?;
    scene.until_all_had_their_turn(3)?;
    let unknown: Vec<String> = scene.unknown()?.into_iter().map(|(_, name)| name).collect();
    ensure!(unknown == ["unclear"], "{unknown:?}");
    ensure!(scene.count("deployed")? == 2, "{}", scene.get("resource-counts")?);
    let runs = runs(&scene.world)?;
    ensure!(runs == BTreeMap::from([("done".into(), 1), ("undone".into(), 1)]), "{runs:?}");
    Ok(())
}

/// The server survives, and the handler process does not.
fn effects_of_a_killed_host_are_unknown() -> Result<()> {
    // Agents are distributed over two processes: these two share one.
    let scene = scene(
        false,
        r#"unrepeatable::Effect(name="one", agent="a", journal=journal, waits=30)
unrepeatable::Effect(name="two", agent="b", journal=journal, waits=30)
unrepeatable::Effect(name="three", agent="c", journal=journal, waits=30)
"#,
    )?;
    until("all of them are under way", || Ok(runs(&scene.world)?.len() == 3))?;
    let mut processes: Vec<Process> =
        journal(&scene.world)?.into_iter().map(|entry| entry.process).collect();
    processes.sort_unstable();
    processes.dedup();
    for process in &processes {
        for number in outer_numbers(*process) {
            kill_process(Pid::from_raw(number).context("no process")?, Signal::KILL)?;
        }
    }
    scene.until_all_had_their_turn(3)?;
    check_once(&scene.world)?;
    ensure!(scene.unknown()?.len() == 3, "{:?}", scene.unknown()?);
    // A repair does not run them.
    let path = format!("{}/repair", scene.environment);
    let asked = scene.world.create(&scene.server, &path, &json!({}))?;
    let asked = format!("operations/{}", asked["id"].as_str().context("no id")?);
    until("the repair is done", || Ok(scene.get(&asked)?["transitioning"] == "no"))?;
    check_once(&scene.world)
}

#[expect(clippy::disallowed_methods, reason = "compared with the times that handlers write down")]
fn now() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?)
}

/// An owner that is cut off from its database starts no handler after its permit, and ends the
/// processes of running ones.
fn a_fenced_owner_ends_its_hosts() -> Result<()> {
    let world = World::new(true)?;
    let database = world.database.as_ref().context("no database")?;
    let proxy = Proxy::new(SocketAddr::from((Ipv4Addr::LOCALHOST, database.server().port())));
    let server = world.start_at("data", Some(&database.url_through(proxy.port())), &[])?;
    let mut model = String::from(
        "unrepeatable::Effect(name=\"long\", agent=\"long\", journal=journal, waits=120)\n",
    );
    // Handlers without declared effects need no record: only their owner's clock prevents a start.
    for at in 0..100 {
        writeln!(
            model,
            "unrepeatable::Effect(name=\"e{at}\", agent=\"short\", journal=journal, reads=\"nothing\", waits=0.2, purged=false)"
        )?;
    }
    let plugins = MODULE[2].1.replace("    unrepeatable = (\"create_resource\",)\n", "");
    let files = [MODULE[0], MODULE[1], (MODULE[2].0, plugins.as_str())];
    let scene = Scene::with_module(world, server, ("unrepeatable", &files), |world| {
        with_journal(world, &model)
    })?;
    until("the first of them", || {
        let runs = runs(&scene.world)?;
        Ok(runs.len() > 4 && runs.contains_key("long"))
    })?;
    let long = journal(&scene.world)?.into_iter().find(|entry| entry.name == "long");
    let long = long.context("no entry")?.process;
    ensure!(is_there(long), "the handler does not run");
    proxy.stall();
    let cut = now()?;
    std::thread::sleep(PERMIT + ENDING);
    let entries = journal(&scene.world)?;
    let late: Vec<&Entry> = entries.iter().filter(|one| one.at > cut + PERMIT + SLACK).collect();
    ensure!(late.is_empty(), "{} handlers were started after the deadline: {late:?}", late.len());
    let between = entries.iter().filter(|one| one.at > cut).count();
    println!("{between} handlers were started between the cut and the deadline, none after it");
    ensure!(between > 5, "the owner stopped at once: {between} handlers after the cut");
    ensure!(!is_there(long), "the process of a handler outlived its owner's right to act");
    Ok(())
}

/// Process ids outside of the sandbox: one, or none if it has ended.
fn outer_numbers(process: Process) -> Vec<i32> {
    use std::os::unix::fs::MetadataExt as _;
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_it = |number: &i32| {
        let at = Path::new("/proc").join(number.to_string());
        let status = std::fs::read_to_string(at.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let known_as = line.split_whitespace().last().and_then(|number| number.parse().ok());
        let namespace = std::fs::metadata(at.join("ns/pid")).map(|found| found.ino()).ok();
        known_as == Some(process.number)
            && namespace == Some(process.namespace)
            && !status.contains("State:\tZ")
    };
    numbers.filter(is_it).collect()
}

/// True if a handler process exists and is not a zombie.
fn is_there(process: Process) -> bool {
    !outer_numbers(process).is_empty()
}
