//! Init process of a sandbox: sets up its view and limits, starts the program, and ends with it.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    DumpableBehavior, Signal, kill_process_group, set_dumpable_behavior,
    set_parent_process_death_signal,
};

use crate::policy::Message;
use crate::setup_error::{SetupError, Step};
use crate::signals::Signals;
use crate::{LIMIT_EXCEEDED, Method, SETUP_FAILED, cgroup, mounts, privileges, report, usage};

/// Exit statuses of a missing and of a non-executable program, as in shells.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// Poll interval of the total memory, where no control group limits it.
const MEMORY_PAUSE: Duration = Duration::from_millis(100);

/// Runs the program of the arguments. The first argument is a descriptor that signals the
/// launcher's end.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let code = prepare(&arguments).and_then(|(message, mut signals)| {
        let program = arguments.get(1..).unwrap_or_default();
        run_program(&message, &mut signals, program)
    });
    ExitCode::from(code.unwrap_or_else(|error| {
        report(&error.to_string());
        SETUP_FAILED
    }))
}

fn prepare(arguments: &[OsString]) -> Result<(Message, Signals), SetupError> {
    let message = Message::from_variables().map_err(std::io::Error::other).step("the policy")?;
    let number = arguments.first().and_then(|text| text.to_str()).unwrap_or_default();
    let launcher = OpenOptions::new().write(true).open(format!("/proc/self/fd/{number}"));
    let mut launcher = launcher.step("the launcher")?;
    // Detaches from the terminal and the signals of the launcher's group.
    let _ = nix::unistd::setsid();
    if message.method == Method::Namespaces {
        mounts::prepare(&message.policy)?;
        let directory = &message.directory;
        std::env::set_current_dir(directory).step(format!("going to {}", directory.display()))?;
    }
    privileges::close_descriptors()?;
    privileges::limit(&message)?;
    privileges::drop_all(&message.policy)?;
    // A program of the same user must not inspect this process.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("protecting init")?;
    // A change of identity clears the death signal, so it is set last. A launcher that ended before
    // closes its pipe.
    set_parent_process_death_signal(Some(Signal::KILL)).step("ending with the launcher")?;
    launcher.write_all(b"\n").step("the launcher")?;
    Ok((message, Signals::handle().step("signals")?))
}

fn run_program(
    message: &Message,
    signals: &mut Signals,
    program: &[OsString],
) -> Result<u8, SetupError> {
    let Some((program, arguments)) = program.split_first() else {
        return Err(std::io::Error::other("none was given")).step("the program");
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&message.policy.environment).process_group(0);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            report(&format!("{} cannot be run: {error}", Path::new(program).display()));
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            return Ok(if missing { NOT_FOUND } else { NOT_EXECUTABLE });
        }
    };
    let own = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    supervise(message, signals, own)
}

/// Waits for the program, and reaps all other children.
fn supervise(message: &Message, signals: &mut Signals, program: Pid) -> Result<u8, SetupError> {
    let memory = message.policy.limits.memory.filter(|_| !message.memory_is_limited);
    let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(MEMORY_PAUSE.subsec_nanos()) };
    loop {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == program => {
                    return Ok(u8::try_from(code).unwrap_or(u8::MAX));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == program => {
                    return Ok(u8::try_from(128 + signal as i32).unwrap_or(u8::MAX));
                }
                Ok(WaitStatus::StillAlive) | Err(_) => break,
                Ok(_) => {}
            }
        }
        if let Some(limit) = memory
            && usage::memory_usage(limit) > limit
        {
            report(&cgroup::memory_exceeded(limit));
            return Ok(LIMIT_EXCEEDED);
        }
        let mut all = [PollFd::new(&signals.woken, PollFlags::IN)];
        match poll(&mut all, memory.is_some().then_some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).step("waiting for the program"),
        }
        for signal in signals.take() {
            if let Some(group) = rustix::process::Pid::from_raw(program.as_raw()) {
                let _ = kill_process_group(group, signal);
            }
        }
    }
}
