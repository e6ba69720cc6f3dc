//! Child processes of a compile: git with the server's identity, tenant code in a sandbox. Each has
//! a clean environment and limits on time and memory, and leaves no processes behind.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::thread::spawn_named;
use orrery_model::SecretText;
use orrery_sandbox::Confinement;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::output_filter::CredentialMask;
use crate::{private_files, ssh};

/// Variables that child processes inherit, besides all with a prefix in `FAMILIES`.
const INHERITED: [&str; 25] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "NETRC",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "SYSTEMROOT",
];
const FAMILIES: [&str; 6] = ["LC_", "PIP_", "GIT_SSH", "GIT_SSL_", "GIT_CONFIG_", "GIT_PROXY_"];
/// Marks every child process with its working directory, so that leftovers can be found.
const MARK: &str = "ORRERY_COMPILE_IN";
/// Poll interval of `should_continue`.
const TICK: Duration = Duration::from_millis(100);
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
const CHUNK: usize = 16 << 10;

/// Limits of a child process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildLimits {
    pub(crate) until: Instant,
    /// Private memory per process, in bytes.
    pub(crate) memory_max: Option<u64>,
    pub(crate) nice: u8,
}

/// A program to run.
#[derive(Clone, Debug)]
pub(crate) struct ChildCommand {
    program: PathBuf,
    arguments: Vec<OsString>,
    directory: Option<PathBuf>,
    variables: BTreeMap<String, OsString>,
    input: Option<Vec<u8>>,
    /// The program may call ssh, which must not prompt.
    calls_ssh: bool,
    /// Arguments, by index, that end with the path of a file with this content, which exists only
    /// while the program runs.
    private_files: Vec<(usize, SecretText)>,
    /// Data directory, for private files.
    data: Option<PathBuf>,
    /// Sandbox; `None` for programs that run no tenant code.
    confinement: Option<Confinement>,
}

/// End of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exit(i64),
    TimedOut,
    /// Stopped by `should_continue`.
    Stopped,
}

impl ChildCommand {
    pub(crate) fn new(program: PathBuf) -> Self {
        let (arguments, variables) = (Vec::new(), inherited_variables());
        ChildCommand {
            program,
            arguments,
            directory: None,
            variables,
            input: None,
            calls_ssh: false,
            private_files: Vec::new(),
            data: None,
            confinement: None,
        }
    }

    /// Sets the data directory, for private files.
    #[must_use]
    pub(crate) fn data(mut self, data: &Path) -> Self {
        self.data = Some(data.to_owned());
        self
    }

    /// Runs the program in a sandbox, if given, with the sandbox's variables only.
    #[must_use]
    pub(crate) fn confined(mut self, confinement: Option<Confinement>) -> Self {
        if let Some(confinement) = &confinement {
            self.variables.clone_from(&confinement.policy.environment);
        }
        ChildCommand { confinement, ..self }
    }

    /// Adds an argument that ends with the path of a private file, which exists only while the
    /// program runs.
    #[must_use]
    pub(crate) fn arg_with_private_file(mut self, before: &str, content: SecretText) -> Self {
        self.private_files.push((self.arguments.len(), content));
        self.arg(before)
    }

    /// Returns the arguments, and the private files, which are removed when dropped.
    fn arguments(&self) -> io::Result<(Vec<OsString>, Vec<tempfile::NamedTempFile>)> {
        let (mut arguments, mut files) = (self.arguments.clone(), Vec::new());
        for (at, content) in &self.private_files {
            let directory = match &self.data {
                Some(data) => private_files::directory(data)?,
                None => std::env::temp_dir(),
            };
            let mut file = tempfile::NamedTempFile::with_prefix_in(".orrery-", directory)?;
            file.write_all(content.expose().as_bytes())?;
            file.flush()?;
            if let Some(argument) = arguments.get_mut(*at) {
                argument.push(file.path());
            }
            files.push(file);
        }
        Ok((arguments, files))
    }

    #[must_use]
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    #[must_use]
    pub(crate) fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    #[must_use]
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.insert(name.to_owned(), value.as_ref().to_owned());
        self
    }

    #[must_use]
    pub(crate) fn envs(mut self, all: &BTreeMap<String, String>) -> Self {
        for (name, value) in all {
            self.variables.entry(name.clone()).insert_entry(value.into());
        }
        self
    }

    /// Keeps ssh, if git calls it, from prompting. An ssh command configured by the server's user
    /// takes precedence.
    #[must_use]
    pub(crate) fn ssh_batch_mode(self) -> Self {
        ChildCommand { calls_ssh: true, ..self }
    }

    /// Sets the standard input. The stream stays open until the program ends: its closing signals
    /// that the server is gone.
    #[must_use]
    pub(crate) fn input(mut self, input: Vec<u8>) -> Self {
        self.input = Some(input);
        self
    }

    /// Formats the command line without credentials.
    pub(crate) fn to_display(&self, mask: &CredentialMask) -> String {
        let mut text = self.program.display().to_string();
        let mut arguments = self.arguments.iter();
        while let Some(argument) = arguments.next() {
            // Omits the settings common to all git commands.
            if argument == "-c" {
                arguments.next();
                continue;
            }
            text.push(' ');
            text.push_str(&argument.to_string_lossy());
        }
        mask.apply(&text)
    }

    /// Builds the shell command that executes the program without a sandbox.
    fn shell(&self, limits: &ChildLimits, mark: &Path) -> std::process::Command {
        let memory = match limits.memory_max {
            // In the shell, so that the limit applies from the start. If it cannot be set, a lower
            // one is in force.
            Some(bytes) => format!("ulimit -d {} 2>/dev/null || :; ", (bytes / 1024).max(1)),
            None => String::new(),
        };
        let nice = match limits.nice {
            0 => String::new(),
            nice => format!("command -v nice >/dev/null && exec nice -n {nice} \"$@\"; "),
        };
        let mut shell = std::process::Command::new("/bin/sh");
        // The environment's user must be able to read the checkout. The data directory is closed to
        // other users.
        let script = format!("umask 022; {memory}{nice}exec \"$@\"");
        shell.arg("-c").arg(script).arg("compile").arg(&self.program);
        shell.env_clear().envs(&self.variables).env(MARK, mark);
        if self.calls_ssh && !ssh::is_configured(&self.variables) {
            shell.env("GIT_SSH_COMMAND", ssh::BATCH_MODE_COMMAND);
        }
        shell
    }

    fn spawn(
        &self,
        limits: &ChildLimits,
        mark: &Path,
    ) -> io::Result<(Child, Vec<tempfile::NamedTempFile>)> {
        let (arguments, private_files) = self.arguments()?;
        let mut shell = match &self.confinement {
            Some(confinement) => {
                let mut confinement = confinement.clone();
                confinement.policy.environment.clone_from(&self.variables);
                confinement.policy.limits.memory = limits.memory_max;
                confinement.policy.nice = limits.nice;
                let mut launcher = confinement.command(&self.program);
                // The server's working directory may be hidden in the sandbox.
                launcher.current_dir("/");
                launcher
            }
            None => self.shell(limits, mark),
        };
        shell.args(&arguments);
        if let Some(directory) = &self.directory {
            shell.current_dir(directory);
        }
        shell.stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() });
        shell.stdout(Stdio::piped()).stderr(Stdio::piped());
        shell.process_group(0);
        Ok((shell.spawn()?, private_files))
    }

    /// Runs the program to its end, and passes its output on: a flag for the error stream, and
    /// bytes. Polls `should_continue`. `mark` is its working directory.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn run(
        &self,
        limits: &ChildLimits,
        mark: &Path,
        should_continue: &mut dyn FnMut() -> bool,
        on_output: &mut dyn FnMut(bool, &[u8]),
    ) -> io::Result<End> {
        let (mut child, private_files) = self.spawn(limits, mark)?;
        let group = Pid::from_child(&child);
        let (sender, receiver) = sync_channel(64);
        let pipes: [(bool, Option<Box<dyn Read + Send>>); 2] = [
            (false, child.stdout.take().map(|pipe| Box::new(pipe) as _)),
            (true, child.stderr.take().map(|pipe| Box::new(pipe) as _)),
        ];
        for (error, pipe) in pipes {
            let (Some(pipe), sender) = (pipe, sender.clone()) else { continue };
            spawn_named("compile output", move || read_pipe(pipe, error, &sender))?;
        }
        drop(sender);
        let lifeline = self.write_input(&mut child)?;
        let end = wait(&mut child, group, &receiver, limits.until, should_continue, on_output);
        // Its own leftover processes are not needed.
        let _ = kill_process_group(group, Signal::KILL);
        end_leftovers(mark);
        let status = child.wait()?;
        drop((lifeline, private_files));
        Ok(end.unwrap_or_else(|| End::Exit(exit_code(status))))
    }

    /// Writes the input, and keeps the stream open until the returned value is dropped.
    fn write_input(&self, child: &mut Child) -> io::Result<Option<Lifeline>> {
        let (Some(mut pipe), Some(input)) = (child.stdin.take(), self.input.clone()) else {
            return Ok(None);
        };
        let (keep, ended) = std::sync::mpsc::channel::<()>();
        spawn_named("compile input", move || {
            // A program that ended early reports its own error.
            let _ = pipe.write_all(&input).and_then(|()| pipe.flush());
            let _ = ended.recv();
        })?;
        Ok(Some(Lifeline(keep)))
    }
}

/// Closes the input stream when dropped.
struct Lifeline(#[expect(dead_code, reason = "only its end matters")] std::sync::mpsc::Sender<()>);

fn inherited_variables() -> BTreeMap<String, OsString> {
    let is_inherited = |name: &str| {
        INHERITED.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
    };
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    all.filter(|(name, _)| is_inherited(name)).collect()
}

fn read_pipe(mut pipe: Box<dyn Read + Send>, error: bool, sender: &SyncSender<(bool, Vec<u8>)>) {
    let mut chunk = vec![0; CHUNK];
    loop {
        match pipe.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => {
                if sender.send((error, chunk[..count].to_vec())).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Waits for the end; `None` if the program ended on its own.
fn wait(
    child: &mut Child,
    group: Pid,
    receiver: &Receiver<(bool, Vec<u8>)>,
    until: Instant,
    should_continue: &mut dyn FnMut() -> bool,
    on_output: &mut dyn FnMut(bool, &[u8]),
) -> Option<End> {
    let mut ending: Option<(End, Instant)> = None;
    loop {
        match receiver.recv_timeout(TICK) {
            Ok((error, bytes)) => on_output(error, &bytes),
            Err(RecvTimeoutError::Disconnected) => {
                // The output is closed; the program may still run.
                if matches!(child.try_wait(), Ok(None)) {
                    std::thread::sleep(TICK.min(Duration::from_millis(5)));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if !matches!(child.try_wait(), Ok(None)) {
            // Reads what has been written, but does not wait for pipes that other processes hold
            // open.
            while let Ok((error, bytes)) = receiver.recv_timeout(TICK) {
                on_output(error, &bytes);
            }
            return ending.map(|(end, _)| end);
        }
        match ending {
            Some((_, since)) if since.elapsed() > GRACE => {
                let _ = kill_process_group(group, Signal::KILL);
            }
            Some(_) => {}
            None => {
                let end = if monotonic() >= until {
                    End::TimedOut
                } else if !should_continue() {
                    End::Stopped
                } else {
                    continue;
                };
                let _ = kill_process_group(group, Signal::TERM);
                ending = Some((end, monotonic()));
            }
        }
    }
}

fn exit_code(status: ExitStatus) -> i64 {
    let signal = status.signal().map(|signal| 128 + signal);
    i64::from(status.code().or(signal).unwrap_or(-1))
}

/// Kills processes that were started for work in a directory and still run: those that a program
/// left, and those of a killed server. Does nothing on systems without `/proc`.
pub(crate) fn end_leftovers(mark: &Path) {
    let mut marker = format!("{MARK}=").into_bytes();
    marker.extend_from_slice(mark.as_os_str().as_encoded_bytes());
    // A killed process may have started another one.
    for _ in 0..10 {
        let found = find_marked(&marker);
        if found.is_empty() {
            return;
        }
        for pid in found {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn find_marked(marker: &[u8]) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let is_marked = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == marker)
    };
    pids.filter(|pid| *pid != own).filter(is_marked).filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> ChildCommand {
        ChildCommand::new("/bin/sh".into()).arg("-c").arg(script)
    }

    fn limits(time: Duration) -> ChildLimits {
        ChildLimits { until: monotonic() + time, memory_max: None, nice: 0 }
    }

    fn run(command: &ChildCommand, limits: &ChildLimits, mark: &Path) -> (End, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let end = command.run(limits, mark, &mut || true, &mut |error, bytes| {
            if error { &mut err } else { &mut out }.extend_from_slice(bytes);
        });
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (end.unwrap(), text(out), text(err))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_program_reads_input_and_writes_output() {
        let dir = tempfile::tempdir().unwrap();
        let command = shell("cat; echo no >&2; exit 3").input(b"yes".to_vec());
        // The program must not wait for the end of its input, which comes only with its own end.
        let command = ChildCommand { input: Some(b"yes\n".to_vec()), ..command };
        let lines = shell("read a; echo $a $X; echo no >&2; exit 3").env("X", "x");
        let lines = ChildCommand { input: command.input, ..lines };
        let (end, out, err) = run(&lines, &limits(LONG), dir.path());
        assert_eq!((end, &*out, &*err), (End::Exit(3), "yes x\n", "no\n"));
    }

    #[test]
    fn the_environment_is_clean() {
        let dir = tempfile::tempdir().unwrap();
        let (_, out, _) = run(&shell("env"), &limits(LONG), dir.path());
        assert!(!out.contains("CARGO_"), "{out}");
        assert!(out.contains("PATH="), "{out}");
    }

    #[test]
    fn a_timeout_kills_the_whole_process_tree() {
        let dir = tempfile::tempdir().unwrap();
        let started = monotonic();
        // A session of its own does not help it to escape.
        let command = shell("setsid sleep 77 & trap '' TERM; while :; do sleep 1; done");
        let (end, _, _) = run(&command, &limits(Duration::from_millis(300)), dir.path());
        assert_eq!(end, End::TimedOut);
        assert!(started.elapsed() < Duration::from_secs(30));
        let mut marker = format!("{MARK}=").into_bytes();
        marker.extend_from_slice(dir.path().as_os_str().as_encoded_bytes());
        assert!(find_marked(&marker).is_empty());
    }

    #[test]
    fn leftover_processes_do_not_delay_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let started = monotonic();
        let (end, out, _) = run(&shell("sleep 60 & echo done"), &limits(LONG), dir.path());
        assert_eq!((end, &*out), (End::Exit(0), "done\n"));
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_program_is_stopped_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let mut asked = 0;
        let mut should_continue = || {
            asked += 1;
            asked < 3
        };
        let end =
            shell("sleep 60").run(&limits(LONG), dir.path(), &mut should_continue, &mut |_, _| {});
        assert_eq!(end.unwrap(), End::Stopped);
    }

    #[test]
    fn memory_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let limits = ChildLimits { memory_max: Some(64 << 20), ..limits(LONG) };
        let (_, out, _) = run(&shell("ulimit -d"), &limits, dir.path());
        assert_eq!(out.trim(), "65536");
    }

    #[test]
    fn commands_are_shown_without_credentials() {
        let url = "https://ada:secret@h/x";
        let command = ChildCommand::new("git".into()).arg("-c").arg("a=b").arg("clone").arg(url);
        assert_eq!(command.to_display(&CredentialMask::for_url(url)), "git clone https://***@h/x");
    }
}
