//! Programs that a compile runs: git with the server's own identity, code of tenants in a sandbox; with a clean environment, limits on
//! time and memory, and nothing left of them afterwards.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use orrery_model::SecretText;
use orrery_sandbox::Confinement;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::text::Mask;
use super::{scratch, ssh};

/// What programs get from the server's own environment, besides all that begins with one of `FAMILIES`.
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
/// Marks every program that works in a directory, so that what is left of it can be found.
const MARK: &str = "ORRERY_COMPILE_IN";
/// How often the owner is asked whether to go on.
const TICK: Duration = Duration::from_millis(100);
/// How long programs may take to end after they were asked to.
const GRACE: Duration = Duration::from_secs(2);
const CHUNK: usize = 16 << 10;

/// How far a program may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) until: Instant,
    /// Bytes of private memory for each process.
    pub(crate) memory_max: Option<u64>,
    pub(crate) nice: u8,
}

/// A program to be run.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    program: PathBuf,
    arguments: Vec<OsString>,
    directory: Option<PathBuf>,
    variables: BTreeMap<String, OsString>,
    input: Option<Vec<u8>>,
    /// It may call ssh, which must not ask anything.
    calls_ssh: bool,
    /// Arguments, by their place, that name a file with this content, which is there only while the program runs.
    private_files: Vec<(usize, SecretText)>,
    /// The data directory, below which private files are.
    data: Option<PathBuf>,
    /// Keeps it away from the server; `None` for programs that run no code of tenants.
    confinement: Option<Confinement>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exit(i64),
    TimedOut,
    /// Its owner did not want it any more.
    Stopped,
}

impl Command {
    pub(crate) fn new(program: PathBuf) -> Self {
        let (arguments, variables) = (Vec::new(), inherited());
        Command {
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

    /// Says where the data directory is, below which private files are.
    #[must_use]
    pub(crate) fn data(mut self, data: &Path) -> Self {
        self.data = Some(data.to_owned());
        self
    }

    /// Runs it in a sandbox, if there is one, with the variables of the sandbox alone.
    #[must_use]
    pub(crate) fn confined(mut self, confinement: Option<Confinement>) -> Self {
        if let Some(confinement) = &confinement {
            self.variables.clone_from(&confinement.policy.environment);
        }
        Command { confinement, ..self }
    }

    /// Adds an argument that ends with the path of a file, which only this user can read, and which is there only while the program runs.
    #[must_use]
    pub(crate) fn arg_with_private_file(mut self, before: &str, content: SecretText) -> Self {
        self.private_files.push((self.arguments.len(), content));
        self.arg(before)
    }

    /// The arguments with the paths of private files, which are removed when they are dropped.
    fn arguments(&self) -> io::Result<(Vec<OsString>, Vec<tempfile::NamedTempFile>)> {
        let (mut arguments, mut files) = (self.arguments.clone(), Vec::new());
        for (at, content) in &self.private_files {
            let directory = match &self.data {
                Some(data) => scratch::directory(data)?,
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

    /// Keeps ssh, if git calls it, from asking for passwords and about hosts. Where the server's user has configured how git is to
    /// call ssh, that configuration counts alone.
    #[must_use]
    pub(crate) fn without_questions_of_ssh(self) -> Self {
        Command { calls_ssh: true, ..self }
    }

    /// What it reads. The stream stays open until it ends: its end says that the server is gone.
    #[must_use]
    pub(crate) fn input(mut self, input: Vec<u8>) -> Self {
        self.input = Some(input);
        self
    }

    /// As people would type it, without credentials.
    pub(crate) fn shown(&self, mask: &Mask) -> String {
        let mut text = self.program.display().to_string();
        let mut arguments = self.arguments.iter();
        while let Some(argument) = arguments.next() {
            // Settings that every git command has tell nothing.
            if argument == "-c" {
                arguments.next();
                continue;
            }
            text.push(' ');
            text.push_str(&argument.to_string_lossy());
        }
        mask.apply(&text)
    }

    /// The shell that becomes the program, outside of any sandbox.
    fn shell(&self, limits: &Limits, mark: &Path) -> std::process::Command {
        let memory = match limits.memory_max {
            // In the shell, so that there is no moment without it. Where it cannot be set, a lower one is in force.
            Some(bytes) => format!("ulimit -d {} 2>/dev/null || :; ", (bytes / 1024).max(1)),
            None => String::new(),
        };
        let nice = match limits.nice {
            0 => String::new(),
            nice => format!("command -v nice >/dev/null && exec nice -n {nice} \"$@\"; "),
        };
        let mut shell = std::process::Command::new("/bin/sh");
        // What git checks out has to be readable for the environment's own user. The data directory is closed to all others.
        let script = format!("umask 022; {memory}{nice}exec \"$@\"");
        shell.arg("-c").arg(script).arg("compile").arg(&self.program);
        shell.env_clear().envs(&self.variables).env(MARK, mark);
        if self.calls_ssh && !ssh::is_configured(&self.variables) {
            shell.env("GIT_SSH_COMMAND", ssh::WITHOUT_QUESTIONS);
        }
        shell
    }

    fn spawn(
        &self,
        limits: &Limits,
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
                // That of the server may be hidden.
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

    /// Runs it to its end, and hands on what it writes: whether on the error stream, and what. `go_on` is asked again and
    /// again. `mark` is the directory that it works in.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn run(
        &self,
        limits: &Limits,
        mark: &Path,
        go_on: &mut dyn FnMut() -> bool,
        said: &mut dyn FnMut(bool, &[u8]),
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
            let thread = std::thread::Builder::new().name("compile output".to_owned());
            thread.spawn(move || listen(pipe, error, &sender))?;
        }
        drop(sender);
        let lifeline = self.feed(&mut child)?;
        let end = wait(&mut child, group, &receiver, limits.until, go_on, said);
        // Whatever it started and left is not needed any more.
        let _ = kill_process_group(group, Signal::KILL);
        end_leftovers(mark);
        let status = child.wait()?;
        drop((lifeline, private_files));
        Ok(end.unwrap_or_else(|| End::Exit(code_of(status))))
    }

    /// Writes its input, and keeps the stream open as long as what is given back lives.
    fn feed(&self, child: &mut Child) -> io::Result<Option<Lifeline>> {
        let (Some(mut pipe), Some(input)) = (child.stdin.take(), self.input.clone()) else {
            return Ok(None);
        };
        let (keep, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("compile input".to_owned());
        thread.spawn(move || {
            // A program that ended early says so itself.
            let _ = pipe.write_all(&input).and_then(|()| pipe.flush());
            let _ = ended.recv();
        })?;
        Ok(Some(Lifeline(keep)))
    }
}

/// The other side ends when this does.
struct Lifeline(#[expect(dead_code, reason = "only its end matters")] std::sync::mpsc::Sender<()>);

fn inherited() -> BTreeMap<String, OsString> {
    let kept = |name: &str| {
        INHERITED.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
    };
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    all.filter(|(name, _)| kept(name)).collect()
}

fn listen(mut pipe: Box<dyn Read + Send>, error: bool, sender: &SyncSender<(bool, Vec<u8>)>) {
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

/// Waits for the end; `None` if the program ended by itself.
fn wait(
    child: &mut Child,
    group: Pid,
    receiver: &Receiver<(bool, Vec<u8>)>,
    until: Instant,
    go_on: &mut dyn FnMut() -> bool,
    said: &mut dyn FnMut(bool, &[u8]),
) -> Option<End> {
    let mut ending: Option<(End, Instant)> = None;
    loop {
        match receiver.recv_timeout(TICK) {
            Ok((error, bytes)) => said(error, &bytes),
            Err(RecvTimeoutError::Disconnected) => {
                // Its output is over; it may still work.
                if matches!(child.try_wait(), Ok(None)) {
                    std::thread::sleep(TICK.min(Duration::from_millis(5)));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if !matches!(child.try_wait(), Ok(None)) {
            // What others hold open is not waited for, but what has been written is read.
            while let Ok((error, bytes)) = receiver.recv_timeout(TICK) {
                said(error, &bytes);
            }
            return ending.map(|(end, _)| end);
        }
        match ending {
            Some((_, since)) if since.elapsed() > GRACE => {
                let _ = kill_process_group(group, Signal::KILL);
            }
            Some(_) => {}
            None => {
                let end = if Instant::now() >= until {
                    End::TimedOut
                } else if !go_on() {
                    End::Stopped
                } else {
                    continue;
                };
                let _ = kill_process_group(group, Signal::TERM);
                ending = Some((end, Instant::now()));
            }
        }
    }
}

fn code_of(status: ExitStatus) -> i64 {
    let signal = status.signal().map(|signal| 128 + signal);
    i64::from(status.code().or(signal).unwrap_or(-1))
}

/// Ends programs that were started for work in a directory and are still there: those that a program left, and those of a server
/// that was killed. Where the system does not tell what runs, there is nothing to do.
pub(crate) fn end_leftovers(mark: &Path) {
    let mut wanted = format!("{MARK}=").into_bytes();
    wanted.extend_from_slice(mark.as_os_str().as_encoded_bytes());
    // One that is ended may have started another meanwhile.
    for _ in 0..10 {
        let found = marked(&wanted);
        if found.is_empty() {
            return;
        }
        for pid in found {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn marked(wanted: &[u8]) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let is_marked = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
    };
    pids.filter(|pid| *pid != own).filter(is_marked).filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        Command::new("/bin/sh".into()).arg("-c").arg(script)
    }

    fn limits(time: Duration) -> Limits {
        Limits { until: Instant::now() + time, memory_max: None, nice: 0 }
    }

    fn run(command: &Command, limits: &Limits, mark: &Path) -> (End, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let end = command.run(limits, mark, &mut || true, &mut |error, bytes| {
            if error { &mut err } else { &mut out }.extend_from_slice(bytes);
        });
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (end.unwrap(), text(out), text(err))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_program_is_told_and_tells() {
        let dir = tempfile::tempdir().unwrap();
        let command = shell("cat; echo no >&2; exit 3").input(b"yes".to_vec());
        // It reads to the end of its input, which comes with its own end only.
        let command = Command { input: Some(b"yes\n".to_vec()), ..command };
        let lines = shell("read a; echo $a $X; echo no >&2; exit 3").env("X", "x");
        let lines = Command { input: command.input, ..lines };
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
    fn what_takes_too_long_is_ended_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let started = Instant::now();
        // A session of its own is no way out.
        let command = shell("setsid sleep 77 & trap '' TERM; while :; do sleep 1; done");
        let (end, _, _) = run(&command, &limits(Duration::from_millis(300)), dir.path());
        assert_eq!(end, End::TimedOut);
        assert!(started.elapsed() < Duration::from_secs(30));
        let mut wanted = format!("{MARK}=").into_bytes();
        wanted.extend_from_slice(dir.path().as_os_str().as_encoded_bytes());
        assert!(marked(&wanted).is_empty());
    }

    #[test]
    fn nobody_waits_for_what_a_program_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let started = Instant::now();
        let (end, out, _) = run(&shell("sleep 60 & echo done"), &limits(LONG), dir.path());
        assert_eq!((end, &*out), (End::Exit(0), "done\n"));
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_program_whose_owner_goes_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let mut asked = 0;
        let mut go_on = || {
            asked += 1;
            asked < 3
        };
        let end = shell("sleep 60").run(&limits(LONG), dir.path(), &mut go_on, &mut |_, _| {});
        assert_eq!(end.unwrap(), End::Stopped);
    }

    #[test]
    fn memory_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { memory_max: Some(64 << 20), ..limits(LONG) };
        let (_, out, _) = run(&shell("ulimit -d"), &limits, dir.path());
        assert_eq!(out.trim(), "65536");
    }

    #[test]
    fn commands_are_shown_without_credentials() {
        let url = "https://ada:secret@h/x";
        let command = Command::new("git".into()).arg("-c").arg("a=b").arg("clone").arg(url);
        assert_eq!(command.shown(&Mask::for_url(url)), "git clone https://***@h/x");
    }
}
