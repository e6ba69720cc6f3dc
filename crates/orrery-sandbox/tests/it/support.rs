//! Helpers to run a script in a sandbox.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orrery_sandbox::{Method, Sandbox, SandboxLimits, SandboxPolicy};

/// First user id of root's sandboxes.
const FIRST_UID: u32 = 1_879_050_000;
/// An ordinary user.
const NOBODY: u32 = 65_534;

thread_local! {
    static UID: u32 = {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        FIRST_UID + std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// User id of root's sandboxes in this test. Process limits count by user, and tests run
/// concurrently.
pub(crate) fn uid() -> u32 {
    UID.with(|uid| *uid)
}

/// Creator of sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Root,
    Ordinary,
    WithBubblewrap(PathBuf),
}

/// Result of a script.
#[derive(Debug)]
pub(crate) struct ScriptResult {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn launcher() -> PathBuf {
    env!("CARGO_BIN_EXE_orrery-sandbox-launcher").into()
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self")
        .is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0)
}

/// All creators of sandboxes that this machine allows.
pub(crate) fn users() -> Vec<User> {
    let mut users = vec![User::Ordinary];
    if is_root() {
        users.insert(0, User::Root);
    }
    let bubblewrap = PathBuf::from("/usr/bin/bwrap");
    if bubblewrap.is_file() {
        users.push(User::WithBubblewrap(bubblewrap));
    }
    users
}

impl User {
    pub(crate) fn policy(&self) -> SandboxPolicy {
        let mut policy =
            SandboxPolicy { uid: (*self == User::Root).then(uid), ..SandboxPolicy::default() };
        policy.set("PATH", "/usr/bin:/bin");
        policy
    }

    /// Changes the owner of a path to the sandbox's user.
    pub(crate) fn own(&self, path: &Path) {
        if is_root() {
            let uid = if *self == User::Root { uid() } else { NOBODY };
            std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
        }
    }

    pub(crate) fn command(&self, policy: &SandboxPolicy, script: &str) -> Command {
        let method = match self {
            User::WithBubblewrap(program) => Method::Bubblewrap(program.clone()),
            _ => Method::Namespaces,
        };
        let sandbox = Sandbox::unchecked(launcher(), method);
        let mut command = sandbox.command(policy, Path::new("/bin/sh"));
        command.args(["-c", script]).current_dir("/");
        if *self != User::Root && is_root() {
            command = as_nobody(&command);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, policy: &SandboxPolicy, script: &str) -> ScriptResult {
        ScriptResult::from(self.command(policy, script).output().unwrap())
    }

    /// Returns the output of a script, which must succeed.
    pub(crate) fn print(&self, policy: &SandboxPolicy, script: &str) -> String {
        let ended = self.run(policy, script);
        assert_eq!(ended.code, Some(0), "{self:?}: {script}: {ended:?}");
        ended.out
    }
}

impl From<Output> for ScriptResult {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        ScriptResult {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

/// Returns the command as run by an ordinary user.
fn as_nobody(command: &Command) -> Command {
    let id = NOBODY.to_string();
    let mut other = Command::new("setpriv");
    other.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
    other.arg(command.get_program()).args(command.get_args()).env_clear();
    other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    other.env("PATH", "/usr/bin:/bin");
    if let Some(directory) = command.get_current_dir() {
        other.current_dir(directory);
    }
    other
}

pub(crate) fn few() -> SandboxLimits {
    SandboxLimits { processes: 60, scratch: 16 << 20, ..SandboxLimits::default() }
}

/// Counts processes of this machine with this text in their arguments.
pub(crate) fn processes_with(text: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let line = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    pids.filter(|pid| {
        let line = line(pid);
        // The launcher and init also have the script among their arguments.
        let own = line.split(|byte| *byte == 0).any(|word| word.starts_with(b"__sandbox"));
        !own && String::from_utf8_lossy(&line).contains(text)
    })
    .count()
}

pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
