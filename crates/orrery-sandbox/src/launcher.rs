//! Launcher: the outside part of a sandbox, with total limits, namespaces and its end.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use orrery_base::clock::monotonic;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, kill_process, pidfd_open, pidfd_send_signal,
};

use crate::cgroup::Group;
use crate::policy::{Message, Method};
use crate::setup_error::{SetupError, Step};
use crate::signals::Signals;
use crate::usage::disk_usage;
use crate::{INIT, LIMIT_EXCEEDED, SETUP_FAILED, bubblewrap, report};

/// Minimum interval of disk checks; slow checks are made less often.
const DISK_PAUSE: Duration = Duration::from_millis(500);
const DISK_PAUSE_FACTOR: u32 = 20;

/// Runs the program of the arguments in a sandbox. Returns its exit status.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let message = match Message::from_variables() {
        Ok(message) => message,
        Err(text) => {
            report(&text);
            return ExitCode::from(SETUP_FAILED);
        }
    };
    match launch(message, &arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            report(&error.to_string());
            ExitCode::from(SETUP_FAILED)
        }
    }
}

fn launch(mut message: Message, arguments: &[OsString]) -> Result<u8, SetupError> {
    let mut signals = Signals::handle().step("signals")?;
    let server = ParentProcess::watch()?;
    message.directory = std::env::current_dir().step("the working directory")?;
    let limits = message.policy.limits.clone();
    let group = Group::join(&limits);
    message.memory_is_limited = group.limits_memory();
    message.processes_are_limited = group.limits_processes();
    let ended = start(&message, arguments)
        .and_then(|started| supervise(started, &mut signals, &server, &message));
    for text in group.exceeded(&limits) {
        report(&text);
    }
    group.leave();
    ended
}

/// Parent process. Its death signal is unusable: it reports the end of the parent's thread.
struct ParentProcess(Option<OwnedFd>);

impl ParentProcess {
    fn watch() -> Result<Self, SetupError> {
        let Some(parent) = getppid() else { return Ok(ParentProcess(None)) };
        let descriptor = pidfd_open(parent, PidfdFlags::empty()).step("watching the server")?;
        // The parent may have ended before, and its pid may be reused.
        if getppid() != Some(parent) {
            return Err(io::Error::other("it is gone")).step("watching the server");
        }
        Ok(ParentProcess(Some(descriptor)))
    }
}

/// Starts init in new namespaces. The pipe tells init if this process ended before init set its
/// death signal.
fn start(message: &Message, arguments: &[OsString]) -> Result<InitProcess, SetupError> {
    let (alive, inherited) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("a pipe")?;
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).step("a pipe")?;
    let mut command = match &message.method {
        Method::Namespaces => {
            unshare_namespaces()?;
            Command::new("/proc/self/exe")
        }
        Method::Bubblewrap(program) => bubblewrap::command(program, message)?,
    };
    command.arg(INIT).arg(inherited.as_raw_fd().to_string()).args(arguments);
    let variables = message.to_variables().map_err(io::Error::from).step("the policy")?;
    command.env_clear().envs(variables);
    let child = command.spawn().step("starting the sandbox")?;
    drop(inherited);
    Ok(InitProcess { child, _alive: alive })
}

struct InitProcess {
    child: Child,
    /// Closed at the end of this process.
    _alive: OwnedFd,
}

/// Makes the next child the init of a new pid namespace.
fn unshare_namespaces() -> Result<(), SetupError> {
    let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC;
    if rustix::process::geteuid().is_root() {
        return unshare(flags).step("namespaces (unshare)");
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(flags | CloneFlags::CLONE_NEWUSER).step("a user namespace (unshare)")?;
    let write = |name: &str, text: &str| {
        std::fs::write(format!("/proc/self/{name}"), text).step(format!("/proc/self/{name}"))
    };
    write("setgroups", "deny")?;
    write("uid_map", &format!("{uid} {uid} 1"))?;
    write("gid_map", &format!("{gid} {gid} 1"))?;
    // An executed program of a non-root user loses the namespace's capabilities unless they are
    // ambient. Init drops them.
    let mut sets = rustix::thread::capabilities(None).step("capabilities")?;
    sets.inheritable = sets.permitted;
    rustix::thread::set_capabilities(None, sets).step("capabilities")?;
    sets.permitted.iter().try_for_each(|one| {
        rustix::thread::configure_capability_in_ambient_set(one, true).step("capabilities")
    })
}

/// Waits for the end of the sandbox, and enforces it.
fn supervise(
    mut started: InitProcess,
    signals: &mut Signals,
    server: &ParentProcess,
    message: &Message,
) -> Result<u8, SetupError> {
    let pid = Pid::from_child(&started.child);
    let is_bubblewrap = message.method != Method::Namespaces;
    let init = pidfd_open(pid, PidfdFlags::empty()).step("watching the sandbox")?;
    let limit = message.policy.limits.disk;
    let mut disk = limit.map(|limit| DiskWatch::new(&message.policy.writable, limit));
    let mut exceeded = false;
    loop {
        if let Some(status) = started.child.try_wait().step("waiting for the sandbox")? {
            return Ok(if exceeded { LIMIT_EXCEEDED } else { exit_code(status) });
        }
        if let Some(text) = disk.as_mut().and_then(DiskWatch::check) {
            report(&text);
            exceeded = true;
            disk = None;
            let _ = pidfd_send_signal(&init, Signal::KILL);
        }
        let timeout = disk.as_ref().map(|watch| timespec(watch.next - monotonic().min(watch.next)));
        let mut all =
            vec![PollFd::new(&init, PollFlags::IN), PollFd::new(&signals.woken, PollFlags::IN)];
        if let Some(server) = &server.0 {
            all.push(PollFd::new(server, PollFlags::IN));
        }
        match poll(&mut all, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).step("waiting for the sandbox"),
        }
        if all.get(2).is_some_and(|server| !server.revents().is_empty()) {
            let _ = pidfd_send_signal(&init, Signal::KILL);
            let status = started.child.wait().step("waiting for the sandbox")?;
            return Ok(exit_code(status));
        }
        for signal in signals.take() {
            let below = is_bubblewrap.then(|| bubblewrap::init_below(pid)).flatten();
            let _ = match below {
                Some(below) => kill_process(below, signal),
                None => pidfd_send_signal(&init, signal),
            };
        }
    }
}

/// Periodic check of the bytes in the writable paths.
struct DiskWatch<'p> {
    paths: &'p [PathBuf],
    limit: u64,
    next: Instant,
}

impl<'p> DiskWatch<'p> {
    fn new(paths: &'p [PathBuf], limit: u64) -> Self {
        DiskWatch { paths, limit, next: monotonic() + DISK_PAUSE }
    }

    /// Returns an exceeded limit, if a check is due.
    fn check(&mut self) -> Option<String> {
        let started = monotonic();
        if started < self.next {
            return None;
        }
        let paths: Vec<&Path> = self.paths.iter().map(PathBuf::as_path).collect();
        let used = disk_usage(&paths, self.limit);
        let took = started.elapsed();
        self.next = monotonic() + DISK_PAUSE.max(took * DISK_PAUSE_FACTOR);
        let mebibytes = self.limit >> 20;
        (used > self.limit).then(|| {
            format!(
                "ended: its files took more than the {mebibytes} MiB of disk that they may have"
            )
        })
    }
}

fn timespec(time: Duration) -> Timespec {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// Returns the exit status in the convention of shells.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
