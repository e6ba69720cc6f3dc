//! Running commands: in a process group of their own, so that all of it can be ended; with their output
//! read while they run; and without waiting for daemons that they leave behind.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::{LocalTarget, failed};
use crate::error::{Cause, Operation, TargetError};
use crate::target::{CommandLine, Output, Result, Stop, StopReason, Target};

/// How long a command that was asked to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// How often a reason to stop is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// As above, where the end of the process itself has to be asked for too.
const POLL_INTERVAL_SHORT: Duration = Duration::from_millis(5);

pub(super) fn run(target: &LocalTarget, command: &CommandLine, stop: &Stop) -> Result<Output> {
    let stop = command.timeout.map_or_else(|| stop.clone(), |limit| stop.within(limit));
    let error = |cause| TargetError::new(Operation::Run, command.display(), cause);
    if let Some(reason) = stop.reason() {
        return Err(error(stop_cause(reason)));
    }
    let search_path = search_path(target, command);
    let program = program(command)
        .and_then(|program| target.which(&program, Some(&search_path)).transpose())
        .transpose()?
        .ok_or_else(|| error(Cause::CommandNotFound))?;
    let mut prepared = Command::new(program);
    prepared
        .args(command.arguments.iter().skip(1))
        .env_clear()
        .envs(target.variables.collect())
        .env("PATH", &search_path)
        .envs(command.environment.iter().map(|(name, value)| (name, value)))
        .stdin(if command.input.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(directory) = &command.directory {
        if !std::path::Path::new(directory).is_dir() {
            let cause = Cause::Unexpected(format!("its directory {directory} does not exist"));
            return Err(error(cause));
        }
        prepared.current_dir(directory);
    }
    // Once more, as late as possible: the right to act may have ended while this process was held up.
    if let Some(reason) = stop.reason() {
        return Err(error(stop_cause(reason)));
    }
    let child =
        prepared.spawn().map_err(|found| failed(Operation::Run, &command.display(), found))?;
    let mut running = Running::new(child, command);
    match running.finish(&stop) {
        Ok(Ended::Exited(status)) => Ok(running.into_output(status)),
        Ok(Ended::Stopped(reason)) => Err(error(stop_cause(reason))),
        Err(found) => {
            running.end();
            Err(failed(Operation::Run, &command.display(), found))
        }
    }
}

/// Where programs are looked for: as the command says, as its environment says, or as usual.
fn search_path(target: &LocalTarget, command: &CommandLine) -> String {
    let set = || command.environment.iter().find(|(name, _)| name == "PATH");
    let given = command.search_path.clone().or_else(|| set().map(|(_, value)| value.clone()));
    given.unwrap_or_else(|| target.search_path())
}

/// The program, by its name or absolute path. `None` for a path that leads on from a directory that the
/// command does not name.
fn program(command: &CommandLine) -> Option<Cow<'_, str>> {
    let program = command.program();
    if program.starts_with('/') || !program.contains('/') {
        return Some(Cow::Borrowed(program));
    }
    let directory = command.directory.as_ref()?.trim_end_matches('/');
    let program = program.trim_start_matches("./");
    Some(Cow::Owned(format!("{directory}/{program}")))
}

fn stop_cause(reason: StopReason) -> Cause {
    match reason {
        StopReason::Cancelled => Cause::Cancelled,
        StopReason::DeadlinePassed => Cause::TimedOut,
    }
}

enum Ended {
    Exited(ExitStatus),
    Stopped(StopReason),
}

/// One stream of output: what was kept of it.
struct Stream<S> {
    source: Option<S>,
    kept: Vec<u8>,
    truncated: bool,
}

struct Running<'a> {
    child: Child,
    /// Becomes readable when the child ends; `None` where the kernel has no such thing.
    end_of_child: Option<OwnedFd>,
    stdout: Stream<std::process::ChildStdout>,
    stderr: Stream<std::process::ChildStderr>,
    input: &'a [u8],
    output_limit: usize,
}

impl<'a> Running<'a> {
    fn new(mut child: Child, command: &'a CommandLine) -> Self {
        let end_of_child = pid(&child).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let stdout = Stream { source: child.stdout.take(), kept: Vec::new(), truncated: false };
        let stderr = Stream { source: child.stderr.take(), kept: Vec::new(), truncated: false };
        Running {
            child,
            end_of_child,
            stdout,
            stderr,
            input: &command.input,
            output_limit: command.output_limit,
        }
    }

    fn finish(&mut self, stop: &Stop) -> io::Result<Ended> {
        for stream in [
            self.stdout.source.as_ref().map(AsFd::as_fd),
            self.stderr.source.as_ref().map(AsFd::as_fd),
            self.child.stdin.as_ref().map(AsFd::as_fd),
        ]
        .into_iter()
        .flatten()
        {
            rustix::io::ioctl_fionbio(stream, true)?;
        }
        loop {
            if let Some(reason) = stop.reason() {
                self.end();
                return Ok(Ended::Stopped(reason));
            }
            self.wait_for_something(stop)?;
            self.feed()?;
            self.stdout.drain(self.output_limit)?;
            self.stderr.drain(self.output_limit)?;
            if let Some(status) = self.child.try_wait()? {
                // What it wrote before it ended is in the pipes; a daemon may keep them open.
                self.stdout.drain(self.output_limit)?;
                self.stderr.drain(self.output_limit)?;
                return Ok(Ended::Exited(status));
            }
        }
    }

    fn wait_for_something(&self, stop: &Stop) -> io::Result<()> {
        let mut events = Vec::with_capacity(4);
        if let Some(stdout) = &self.stdout.source {
            events.push(PollFd::new(stdout, PollFlags::IN));
        }
        if let Some(stderr) = &self.stderr.source {
            events.push(PollFd::new(stderr, PollFlags::IN));
        }
        if let Some(stdin) = &self.child.stdin {
            events.push(PollFd::new(stdin, PollFlags::OUT));
        }
        let interval = match &self.end_of_child {
            Some(end) => {
                events.push(PollFd::new(end, PollFlags::IN));
                POLL_INTERVAL
            }
            None => POLL_INTERVAL_SHORT,
        };
        let interval = stop.remaining().map_or(interval, |remaining| interval.min(remaining));
        let timeout = Timespec::try_from(interval).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        match poll(&mut events, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the child as much input as it takes now.
    fn feed(&mut self) -> io::Result<()> {
        while let Some(stdin) = &mut self.child.stdin {
            if self.input.is_empty() {
                self.child.stdin = None;
                break;
            }
            match stdin.write(self.input) {
                Ok(count) => self.input = &self.input[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It does not care about its input; that is its right.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => self.input = &[],
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the child with all that it started: politely, then not. Never leaves a zombie.
    fn end(&mut self) {
        if let Some(group) = pid(&self.child) {
            let _ = kill_process_group(group, Signal::TERM);
            let until = Instant::now() + GRACE;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(POLL_INTERVAL_SHORT);
            }
            // Also after it has ended: members of its group may live on.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn into_output(self, status: ExitStatus) -> Output {
        let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
        Output {
            code,
            truncated: self.stdout.truncated || self.stderr.truncated,
            stdout: self.stdout.kept,
            stderr: self.stderr.kept,
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

impl<S: Read> Stream<S> {
    /// Reads what is there now; forgets the source at its end.
    fn drain(&mut self, limit: usize) -> io::Result<()> {
        /// A command that writes without end must not keep us from looking at the clock.
        const READS_MAX: usize = 64;
        let mut buffer = [0; 16 * 1024];
        for _ in 0..READS_MAX {
            let Some(source) = &mut self.source else {
                break;
            };
            match source.read(&mut buffer) {
                Ok(0) => self.source = None,
                Ok(count) => {
                    let kept = count.min(limit.saturating_sub(self.kept.len()));
                    self.kept.extend_from_slice(&buffer[..kept]);
                    self.truncated |= kept < count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
