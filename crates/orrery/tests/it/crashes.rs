//! kill -9 at random moments: each deploy continues where the last one ended, files are never
//! half-written, and unrepeatable commands never run twice: an unknown outcome waits for a
//! decision.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use orrery_model::OutcomeStatus;
use orrery_store::Store;
use rustix::process::Signal;

use crate::deploys::ids;
use crate::scratch_project::{ScratchProject, until};

const KILLS: u32 = 50;
/// Number of killed deploys per model.
const KILLS_PER_GENERATION: u32 = 3;
/// Minimum number of kills that hit a deploy in progress; fewer prove nothing.
const HITS_MIN: u32 = 8;

const DIRECTORIES: u32 = 20;
const FILES: u32 = 98;

/// In each directory: the files, a command that runs once, and a file after it.
const MODEL: &str = r#"
generation = std::get_env("GENERATION")
filler = std::get_env("FILLER")
for at in std::sequence(DIRECTORIES):
    lane = at % 3
    machine = std::Host(name="agent-{{ lane }}", os=std::linux)
    directory = Folder(host=machine, path="{{ root }}/{{ at }}")
    for file in std::sequence(FILES):
        Text(host=machine, path="{{ root }}/{{ at }}/{{ file }}", requires=directory,
            content="generation {{ generation }}\nfile {{ at }}/{{ file }}\n{{ filler }}\n")
    end
    once = exec::Run(host=machine, command="sh -c 'echo {{ at }} >> once-{{ generation }}-{{ at }}'",
        cwd=root, once=true, requires=directory)
    Text(host=machine, path="{{ root }}/{{ at }}/last", content="{{ generation }}", requires=once)
end
"#;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("crashes: fifty kills of a deploy of 2,000 resources", || {
        let seed = match std::env::var("ORRERY_SEED") {
            Ok(seed) => seed.parse()?,
            Err(_) => u64::from(std::process::id()),
        };
        println!("the seed is {seed}; ORRERY_SEED={seed} takes the same moments again");
        Ok(many_kills(seed).map_err(|error| format!("seed {seed}: {error:#}"))?)
    })]
}

/// Deterministic random numbers (splitmix64).
struct Random(u64);

impl Random {
    /// Below `limit`, which is not 0.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

fn filler() -> String {
    "0123456789abcdef".repeat(128)
}

fn content(generation: &str, name: &str) -> String {
    format!("generation {generation}\nfile {name}\n{}\n", filler())
}

fn scratch_project() -> Result<ScratchProject> {
    let model =
        MODEL.replace("DIRECTORIES", &DIRECTORIES.to_string()).replace("FILES", &FILES.to_string());
    let mut project = ScratchProject::in_memory(&model)?;
    project.declare_local(&["agent-?"])?;
    project.set("FILLER", &filler());
    Ok(project)
}

fn many_kills(seed: u64) -> Result<()> {
    let last = format!("{}", (KILLS - 1) / KILLS_PER_GENERATION);
    let mut calm = scratch_project()?;
    calm.set("GENERATION", &last);
    let started = Instant::now();
    calm.expect(0, &["deploy"])?;
    let undisturbed = u64::try_from(started.elapsed().as_millis())?;

    let mut random = Random(seed);
    let mut project = scratch_project()?;
    let reader = Reader::start(&project, seed);
    let mut done = Done::default();
    let mut hits = 0;
    for kill in 0..KILLS {
        let generation = (kill / KILLS_PER_GENERATION).to_string();
        project.set("GENERATION", &generation);
        let before = progress(&project, &generation);
        let running = project.start(&["deploy"])?;
        let moment = if kill % KILLS_PER_GENERATION == 0 {
            // First deploy of a model: soon after its first write.
            until("a file is written", Duration::from_secs(30), || {
                Ok((0..DIRECTORIES).any(|at| is_of(&project, &generation, &format!("{at}/0"))))
            })?;
            random.below(undisturbed / 8 + 1)
        } else {
            // Not during the compile, when nothing can be half-done.
            undisturbed / 5 + random.below(undisturbed * 3 / 5 + 1)
        };
        std::thread::sleep(Duration::from_millis(moment));
        running.signal(Signal::KILL)?;
        let ran = running.wait()?;
        // An unknown outcome is a failure until it is settled.
        ensure!(ran.code.is_none_or(|code| [0, 2].contains(&code)), "{:?}: {}", ran.code, ran.said);
        // Commands of a killed deploy run to their end.
        until("commands have ended", Duration::from_secs(10), || no_command_runs(&project))?;
        let after = progress(&project, &generation);
        ensure!(after >= before, "kill {kill}: {after} files, and {before} before");
        hits += u32::from(before < after && after < DIRECTORIES * FILES);
        done.check(&project).with_context(|| format!("after kill {kill}"))?;
    }
    println!("{hits} of {KILLS} kills hit a deploy that was writing files");
    ensure!(hits >= HITS_MIN, "only {hits} kills hit a deploy that was writing files");

    let unknown = settle(&project)?;
    println!("{unknown} commands were unknown after {KILLS} kills");
    project.expect(0, &["deploy"])?;
    done.check(&project)?;
    let count = DIRECTORIES * (FILES + 3);
    let report = project.json(0, &["deploy"])?;
    ensure!(report["tally"]["deployed"] == count && ids(&report).is_empty(), "{report}");
    done.check(&project)?;
    ensure!(done.0.len() >= DIRECTORIES as usize, "{} commands are recorded", done.0.len());
    let read = reader.stop()?;
    println!("{read} files were read meanwhile, and all were whole");
    // No temporary file is left: a deploy removes those of its files.
    let (wanted, found) = (tree(&calm.managed(""))?, tree(&project.managed(""))?);
    for path in wanted.keys().chain(found.keys()) {
        ensure!(wanted.get(path) == found.get(path), "{} differs", path.display());
    }
    Ok(())
}

/// Settles all commands with unknown outcomes, by what they wrote. Returns their number.
fn settle(project: &ScratchProject) -> Result<usize> {
    project.run(&["deploy"])?;
    let ran = project.run(&["settle", "--json"])?;
    let found: serde_json::Value = serde_json::from_str(&ran.out).context(ran.said)?;
    let unknown = found["items"].as_array().context("no items")?;
    for one in unknown {
        let id = one["resource"].as_str().context("no resource")?;
        let choice = if project.managed(&written_by(id)?).exists() { "--done" } else { "--again" };
        project.expect(0, &["settle", choice, id])?;
    }
    Ok(unknown.len())
}

/// File that a command writes.
fn written_by(id: &str) -> Result<String> {
    let name = id.split(">> ").nth(1).and_then(|rest| rest.split('\'').next());
    Ok(name.with_context(|| format!("no command of ours: {id}"))?.to_owned())
}

/// Number of files of a generation.
fn progress(project: &ScratchProject, generation: &str) -> u32 {
    let names = (0..DIRECTORIES).flat_map(|at| (0..FILES).map(move |file| format!("{at}/{file}")));
    let count = names.filter(|name| is_of(project, generation, name)).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn is_of(project: &ScratchProject, generation: &str, name: &str) -> bool {
    let start = format!("generation {generation}\n");
    project.read(name).is_ok_and(|text| text.starts_with(&start))
}

/// True if no process runs in the managed directory.
fn no_command_runs(project: &ScratchProject) -> Result<bool> {
    let managed = project.managed("").canonicalize()?;
    for entry in fs::read_dir("/proc")? {
        // A process may end meanwhile, and other users' processes cannot be read.
        if fs::read_link(entry?.path().join("cwd")).is_ok_and(|cwd| cwd == managed) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Commands with a recorded success.
#[derive(Default)]
struct Done(BTreeSet<String>);

impl Done {
    /// Checks the store for new ones; no command may have run twice.
    fn check(&mut self, project: &ScratchProject) -> Result<()> {
        for entry in fs::read_dir(project.managed(""))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with("once-") {
                let count = project.read(&name)?.lines().count();
                ensure!(count == 1, "{name}: run {count} times");
            }
        }
        let file = project.data().join("state.db");
        if !file.exists() {
            return Ok(());
        }
        let store = Store::open_read_only(file)?;
        for environment in store.environments().list(None)? {
            let mut commands = Vec::new();
            store.engine().read_states(environment.key, &mut |row| {
                if row.id.starts_with("exec::Run[") {
                    commands.push(row.id.to_owned());
                }
            })?;
            for id in commands {
                let actions = store.actions().of_resource(environment.key, &id, None, 100)?;
                let deployed = Some(OutcomeStatus::Deployed);
                if actions.iter().any(|action| action.outcome == deployed) {
                    let name = written_by(&id)?;
                    ensure!(project.managed(&name).exists(), "{name} is recorded, and was not run");
                    self.0.insert(name);
                }
            }
        }
        Ok(())
    }
}

/// Continuously reads managed files: each is absent or complete.
struct Reader {
    stop: Arc<AtomicBool>,
    read: Arc<AtomicU32>,
    thread: JoinHandle<Result<()>>,
}

impl Reader {
    fn start(project: &ScratchProject, seed: u64) -> Self {
        let (stop, read) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let managed = project.managed("");
        let thread = {
            let (stop, read, mut random) = (Arc::clone(&stop), Arc::clone(&read), Random(!seed));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let at = random.below(DIRECTORIES.into());
                    let name = format!("{at}/{}", random.below(FILES.into()));
                    if let Ok(found) = fs::read_to_string(managed.join(&name)) {
                        let generation = found.lines().next().unwrap_or_default();
                        let generation = generation.strip_prefix("generation ").unwrap_or_default();
                        let whole = content(generation, &name);
                        ensure!(found == whole, "{name} was seen half-written:\n{found:.200}");
                        read.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
                Ok(())
            })
        };
        Reader { stop, read, thread }
    }

    /// Returns the number of files that it read.
    fn stop(self) -> Result<u32> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the reader")??;
        Ok(self.read.load(Ordering::Relaxed))
    }
}

/// The mode of a file or directory, and the content of a file.
type Entry = (u32, Option<Vec<u8>>);

/// Everything below a directory, with permissions and contents, except output of the commands.
fn tree(root: &Path) -> Result<BTreeMap<PathBuf, Entry>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("once-") {
                continue;
            }
            let (path, metadata) = (entry.path(), entry.metadata()?);
            let mode = metadata.permissions().mode();
            if metadata.is_dir() {
                left.push(path.clone());
                found.insert(path.strip_prefix(root)?.to_owned(), (mode, None));
            } else {
                let bytes = fs::read(&path)?;
                found.insert(path.strip_prefix(root)?.to_owned(), (mode, Some(bytes)));
            }
        }
    }
    Ok(found)
}
