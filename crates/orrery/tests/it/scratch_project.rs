//! A scratch project with directories for managed files and state, and the binary that runs in it.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{BINARY, finish};

/// Generous for a binary that is not optimised, on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Prelude of models.
const PRELUDE: &str = r#"import exec
import std::testing
root = std::get_env("ORRERY_SCRATCH")
host = std::Host(name="localhost", os=std::linux)
"#;

pub(crate) struct ScratchProject {
    directory: tempfile::TempDir,
    project: PathBuf,
    environment: Vec<(String, String)>,
}

/// Result of a command.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    /// Standard error.
    pub(crate) said: String,
}

impl ScratchProject {
    fn at(directory: tempfile::TempDir, project: impl FnOnce(&Path) -> PathBuf) -> Result<Self> {
        let root = directory.path().canonicalize()?;
        fs::create_dir(root.join("managed"))?;
        fs::create_dir(root.join("data"))?;
        let scratch = root.join("managed").display().to_string();
        let environment = vec![("ORRERY_SCRATCH".to_owned(), scratch)];
        Ok(ScratchProject { project: project(&root), directory, environment })
    }

    /// Creates a project with a model after the prelude: `root` is the managed directory, `host` is
    /// this machine, and `Text(` and `Folder(` create a file and a directory of the current user.
    pub(crate) fn new(model: &str) -> Result<Self> {
        ScratchProject::with_model(tempfile::tempdir()?, model)
    }

    /// As `new`, but in memory where possible, for tests that would wait for a busy disk.
    pub(crate) fn in_memory(model: &str) -> Result<Self> {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
        ScratchProject::with_model(directory, model)
    }

    fn with_model(directory: tempfile::TempDir, model: &str) -> Result<Self> {
        let project = ScratchProject::at(directory, |root| root.join("project"))?;
        fs::create_dir(&project.project)?;
        fs::write(project.project.join("project.yml"), "name: test\nmodulepath: libs\n")?;
        project.write_model(model)?;
        Ok(project)
    }

    /// Declares agents as this machine.
    pub(crate) fn declare_local(&self, agents: &[&str]) -> Result<()> {
        let agents = serde_json::to_string(agents)?;
        let text = format!("name: test\nmodulepath: libs\norrery: {{local_agents: {agents}}}\n");
        self.write("project.yml", &text)
    }

    /// Creates a project from an example; the deploy creates its managed directory.
    pub(crate) fn example(name: &str) -> Result<Self> {
        let example = xtask::repository_root().join("examples").join(name);
        let project = ScratchProject::at(tempfile::tempdir()?, |_| example)?;
        fs::remove_dir(project.managed(""))?;
        Ok(project)
    }

    pub(crate) fn write_model(&self, model: &str) -> Result<()> {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let owner = format!("owner=\"{}\", group=\"{}\"", uid.as_raw(), gid.as_raw());
        let model = model
            .replace("Folder(", &format!("std::Directory({owner}, mode=755, "))
            .replace("Text(", &format!("std::File({owner}, mode=644, "));
        Ok(fs::write(self.project.join("main.cf"), format!("{PRELUDE}{model}"))?)
    }

    /// Directory of the project.
    pub(crate) fn project(&self) -> &Path {
        &self.project
    }

    /// Writes a file of the project.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.project.join(name);
        fs::create_dir_all(path.parent().context("a file has a directory")?)?;
        Ok(fs::write(path, text)?)
    }

    /// Removes a file of the project.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        fs::remove_file(self.project.join(name)).with_context(|| name.to_owned())
    }

    /// Sets an environment variable for all following commands.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.environment.retain(|(other, _)| other != name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// A path below the managed directory; the directory itself if `name` is empty.
    pub(crate) fn managed(&self, name: &str) -> PathBuf {
        let managed = self.directory.path().join("managed");
        if name.is_empty() { managed } else { managed.join(name) }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) fn read(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.managed(name)).with_context(|| name.to_owned())
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(&self.project).stdin(Stdio::null());
        command.env_remove("VIRTUAL_ENV").env_remove("RUST_LOG").env("NO_COLOR", "1");
        command.env("ORRERY_DATA", self.data());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<Ran> {
        self.start(arguments)?.wait()
    }

    /// As `run`, with an expected exit code.
    pub(crate) fn expect(&self, code: i32, arguments: &[&str]) -> Result<Ran> {
        let ran = self.run(arguments)?;
        let Ran { out, said, .. } = &ran;
        ensure!(ran.code == Some(code), "{arguments:?}: {:?}, not {code}\n{out}{said}", ran.code);
        Ok(ran)
    }

    /// JSON output of a command with `--json`.
    pub(crate) fn json(&self, code: i32, arguments: &[&str]) -> Result<Value> {
        let ran = self.expect(code, &[arguments, &["--json"]].concat())?;
        serde_json::from_str(&ran.out).with_context(|| format!("{arguments:?}: {}", ran.out))
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Running> {
        Running::start(self.command(arguments))
    }
}

/// A running command.
pub(crate) struct Running {
    child: Child,
    out: Option<JoinHandle<Vec<u8>>>,
    said: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        // Reads both pipes while it runs, so that neither fills up.
        let out = Some(reader(child.stdout.take().context("standard output")?));
        let said = Some(reader(child.stderr.take().context("standard error")?));
        Ok(Running { child, out, said })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.context("a process has a number")?, signal)?)
    }

    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    pub(crate) fn wait(mut self) -> Result<Ran> {
        let status = finish(&mut self.child, TIME_LIMIT)?;
        let text = |reader: Option<JoinHandle<Vec<u8>>>| -> Result<String> {
            let bytes = reader.and_then(|reader| reader.join().ok()).context("the reader")?;
            Ok(String::from_utf8(bytes)?)
        };
        let ran =
            Ran { code: status.code(), out: text(self.out.take())?, said: text(self.said.take())? };
        ensure!(!ran.said.contains("internal error"), "{}", ran.said);
        Ok(ran)
    }
}

impl Drop for Running {
    /// Ends the process if a test fails.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn reader(mut source: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output up to an error is enough.
        let _ = source.read_to_end(&mut bytes);
        bytes
    })
}

impl Ran {
    /// Checks that standard output contains these words.
    pub(crate) fn shows(&self, words: &[&str]) -> Result<()> {
        for word in words {
            ensure!(self.out.contains(word), "{word:?} is not in:\n{}{}", self.out, self.said);
        }
        Ok(())
    }

    /// Checks that standard error contains these words.
    pub(crate) fn says(&self, words: &[&str]) -> Result<()> {
        for word in words {
            ensure!(self.said.contains(word), "{word:?} is not in:\n{}{}", self.out, self.said);
        }
        Ok(())
    }
}

/// Waits for a condition, and returns the elapsed time.
pub(crate) fn until(
    what: &str,
    limit: Duration,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let started = Instant::now();
    while !is_so()? {
        if started.elapsed() > limit {
            bail!("{what}: not within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(started.elapsed())
}
