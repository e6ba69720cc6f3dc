//! Records of running commands, so that a process which is killed leaves none behind unnoticed.
//!
//! A record is a file that exists while its command runs. It names a marker, which the command has
//! in its environment, and its process group. The next process of the same program finds the
//! records of commands that were left behind, and ends their processes before anything is repeated.
//! A daemon that such a command has started is in another session, and stays.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orrery_base::clock::{monotonic, since_boot_ns};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

/// Variable with the marker of a command.
pub(super) const MARKER: &str = "ORRERY_COMMAND_RECORD";

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Time for killed processes to disappear.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// Poll interval for their end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum size of a record in bytes.
const RECORD_MAX: usize = 4096;

/// Reason why commands of an earlier process are still running.
#[derive(Debug, thiserror::Error)]
pub enum LeftBehindError {
    #[error("the records of running commands in {} cannot be read", path.display())]
    Records { path: PathBuf, source: io::Error },
    #[error("cannot list the processes of this machine")]
    Processes(#[source] io::Error),
    #[error(
        "a command of the former process does not end: {program} (process {})",
        processes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    )]
    Alive { program: String, processes: Vec<u32> },
}

/// Records of the commands that this process runs.
#[derive(Debug)]
pub struct CommandRecords {
    directory: PathBuf,
    next: AtomicU64,
}

/// Record of one command. Dropping it removes the record.
pub(super) struct CommandRecord {
    path: PathBuf,
    file: File,
    marker: String,
}

/// A command of an earlier process.
#[derive(Debug, Default, PartialEq, Eq)]
struct LeftBehind {
    marker: String,
    /// Session of the process that started it.
    session: u32,
    program: String,
    /// Its process group, and the start of the group's first process; `None` if the earlier process
    /// was killed before it knew them.
    group: Option<(u32, u64)>,
}

impl CommandRecords {
    /// Creates the directory if necessary.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn open(directory: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(CommandRecords { directory, next: AtomicU64::new(0) })
    }

    /// Ends the commands that an earlier process left behind, and removes their records. Returns
    /// the programs that still ran.
    ///
    /// # Errors
    /// If one does not end, or this cannot be determined.
    pub fn end_left_behind(&self) -> Result<Vec<String>, LeftBehindError> {
        let failed = |source| LeftBehindError::Records { path: self.directory.clone(), source };
        let mut ended = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let text = std::fs::read(&path).map_err(failed)?;
            // A record without its first line was never completed: its command did not start.
            if let Some(left) = LeftBehind::parse(&String::from_utf8_lossy(&text))
                && left.end()?
            {
                ended.push(left.program);
            }
            std::fs::remove_file(&path).map_err(failed)?;
        }
        Ok(ended)
    }

    /// Records a command that is about to start.
    pub(super) fn begin(&self, program: &str) -> io::Result<CommandRecord> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let own = getpid().as_raw_nonzero().get().unsigned_abs();
        // Zero if the session is that of another PID namespace, such as of a container's host.
        let session = ProcessStatus::read(own).map_or(0, |status| status.session);
        let marker = format!("{own}-{}-{number}", since_boot_ns());
        let path = self.directory.join(&marker);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let program: String = program.chars().filter(|c| !c.is_control()).take(200).collect();
        let line = format!("{marker} {session} {program}\n");
        if let Err(error) = file.write_all(line.as_bytes()) {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok(CommandRecord { path, file, marker })
    }
}

impl CommandRecord {
    pub(super) fn marker(&self) -> &str {
        &self.marker
    }

    /// Adds the process group. Without it, the marker alone finds the processes.
    pub(super) fn set_group(&mut self, group: u32) {
        let started = ProcessStatus::read(group).map(|status| status.started).unwrap_or_default();
        let line = format!("{group} {started}\n");
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "the record of a command is incomplete");
        }
    }
}

impl Drop for CommandRecord {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, "the record of a command was not removed");
        }
    }
}

impl LeftBehind {
    fn parse(text: &str) -> Option<Self> {
        let text = text.get(..RECORD_MAX).unwrap_or(text);
        let (first, rest) = text.split_once('\n')?;
        let mut words = first.splitn(3, ' ');
        let marker = words.next().filter(|marker| !marker.is_empty())?.to_owned();
        let session = words.next()?.parse().ok()?;
        let program = words.next().unwrap_or_default().to_owned();
        let group = rest.split_once('\n').and_then(|(line, _)| {
            let (group, started) = line.split_once(' ')?;
            Some((group.parse().ok()?, started.parse().ok()?))
        });
        Some(LeftBehind { marker, session, program, group })
    }

    /// Ends the processes: SIGTERM, then SIGKILL. False if there were none.
    fn end(&self) -> Result<bool, LeftBehindError> {
        let began = monotonic();
        let mut found = false;
        loop {
            let alive = self.processes().map_err(LeftBehindError::Processes)?;
            if alive.is_empty() {
                return Ok(found);
            }
            let elapsed = began.elapsed();
            if elapsed > GRACE + KILLED_WITHIN {
                let (program, processes) = (self.program.clone(), alive);
                return Err(LeftBehindError::Alive { program, processes });
            }
            // SIGTERM once to each; processes that appear meanwhile get SIGKILL at last.
            let signal = if elapsed < GRACE { Signal::TERM } else { Signal::KILL };
            if !found || signal == Signal::KILL {
                alive.iter().for_each(|process| self.signal(*process, signal));
            }
            found = true;
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Signals a process, unless its id has gone to another one.
    fn signal(&self, process: u32, signal: Signal) {
        let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return };
        let sent = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) if self.is_own(process) => pidfd_send_signal(descriptor, signal),
            Ok(_) => return,
            Err(_) => kill_process(pid, signal),
        };
        if let Err(error) = sent {
            tracing::warn!(process, %error, "cannot end a process of an earlier command");
        }
    }

    /// Processes of the command that are alive.
    fn processes(&self) -> io::Result<Vec<u32>> {
        let mut found = Vec::new();
        let own = std::fs::read_link("/proc/self")?;
        if own.to_str() != Some(&getpid().as_raw_nonzero().to_string()) {
            tracing::warn!(
                program = self.program,
                "/proc belongs to another PID namespace: a command that was left running is not found"
            );
            return Ok(found);
        }
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(process) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            if self.is_own(process) {
                found.push(process);
            }
        }
        Ok(found)
    }

    fn is_own(&self, process: u32) -> bool {
        let Some(status) = ProcessStatus::read(process).filter(|status| !status.has_ended) else {
            return false;
        };
        if self.group == Some((process, status.started)) {
            return true;
        }
        // Without its first process, the group exists as long as it has members.
        let in_group = self
            .group
            .is_some_and(|(group, _)| status.group == group && !ProcessStatus::exists(group));
        let in_living_group = self.group.is_some_and(|(group, started)| {
            status.group == group
                && ProcessStatus::read(group).is_some_and(|first| first.started == started)
        });
        status.session == self.session && (in_group || in_living_group || self.is_marked(process))
    }

    /// True if the process has the marker in its environment.
    fn is_marked(&self, process: u32) -> bool {
        let Ok(environment) = std::fs::read(format!("/proc/{process}/environ")) else {
            return false;
        };
        let marked = format!("{MARKER}={}", self.marker);
        environment.split(|byte| *byte == 0).any(|variable| variable == marked.as_bytes())
    }
}

/// Status of a process of this machine.
#[derive(Clone, Copy)]
struct ProcessStatus {
    has_ended: bool,
    group: u32,
    session: u32,
    /// Start in ticks since boot.
    started: u64,
}

impl ProcessStatus {
    fn exists(process: u32) -> bool {
        Path::new("/proc").join(process.to_string()).exists()
    }

    fn read(process: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name of the program may contain anything.
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        Some(ProcessStatus {
            has_ended: matches!(*fields.first()?, "Z" | "X"),
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

impl fmt::Debug for CommandRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandRecord").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Starts a script as a recorded command, whose record stays as after a kill.
    fn leave_behind(records: &CommandRecords, script: &str, with_group: bool) -> Child {
        let mut record = records.begin("sh").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).env(MARKER, record.marker()).process_group(0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        if with_group {
            record.set_group(child.id());
        }
        std::mem::forget(record);
        child
    }

    fn records() -> (tempfile::TempDir, CommandRecords) {
        let directory = tempfile::tempdir().unwrap();
        let records = CommandRecords::open(directory.path().join("commands")).unwrap();
        (directory, records)
    }

    /// Reads a line that a script prints once it is ready.
    fn line(child: &mut Child) -> String {
        let mut line = String::new();
        let mut output = io::BufReader::new(child.stdout.as_mut().unwrap());
        io::BufRead::read_line(&mut output, &mut line).unwrap();
        line.trim().to_owned()
    }

    fn is_running(process: u32) -> bool {
        ProcessStatus::read(process).is_some_and(|status| !status.has_ended)
    }

    #[test]
    fn commands_left_behind_are_ended_with_their_children() {
        for with_group in [true, false] {
            let (_directory, records) = records();
            let mut child = leave_behind(&records, "sleep 600 & echo $!; wait", with_group);
            let grandchild: u32 = line(&mut child).parse().unwrap();
            assert!(is_running(grandchild));
            assert_eq!(records.end_left_behind().unwrap(), ["sh"]);
            assert!(!is_running(grandchild) && !is_running(child.id()), "{with_group}");
            child.wait().unwrap();
            assert!(records.end_left_behind().unwrap().is_empty(), "the record is removed");
        }
    }

    #[test]
    fn a_command_that_ignores_sigterm_is_killed() {
        let (_directory, records) = records();
        let mut child =
            leave_behind(&records, "trap '' TERM; echo; while :; do sleep 600; done", true);
        line(&mut child);
        assert_eq!(records.end_left_behind().unwrap(), ["sh"]);
        assert!(!is_running(child.id()));
        child.wait().unwrap();
    }

    #[test]
    fn a_command_without_its_environment_is_found_by_its_group() {
        let (_directory, records) = records();
        let mut child = leave_behind(&records, "echo; exec env -i sleep 600", true);
        line(&mut child);
        assert_eq!(records.end_left_behind().unwrap(), ["sh"]);
        assert!(!is_running(child.id()));
        child.wait().unwrap();
    }

    #[test]
    fn daemons_and_other_processes_stay() {
        let (_directory, records) = records();
        let mut child =
            leave_behind(&records, "setsid sh -c 'echo $$; exec sleep 600' & wait", true);
        let daemon: u32 = line(&mut child).parse().unwrap();
        let mut other = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        assert_eq!(records.end_left_behind().unwrap(), ["sh"]);
        assert!(is_running(daemon) && is_running(other.id()));
        other.kill().unwrap();
        let pid = Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        other.wait().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn ended_commands_and_reused_ids_are_nothing() {
        let (directory, records) = records();
        drop(records.begin("true").unwrap());
        let mut other = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let session = ProcessStatus::read(std::process::id()).unwrap().session;
        // The same id, and another start.
        let record = format!("gone {session} x\n{} 1\n", other.id());
        std::fs::write(directory.path().join("commands/gone"), record).unwrap();
        // Killed while it wrote the record.
        std::fs::write(directory.path().join("commands/partial"), "7-8").unwrap();
        assert!(records.end_left_behind().unwrap().is_empty());
        assert!(is_running(other.id()));
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(std::fs::read_dir(directory.path().join("commands")).unwrap().count(), 0);
    }
}
