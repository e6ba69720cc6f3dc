//! Commands on the machine.
//!
//! A command runs in a session of its own. A record on the machine holds the number of its process
//! group, so another script can end it: after a cancellation at once, after a lost connection
//! before the next operation.

use super::script::{Script, quote};
use super::session::{NOISE_MAX, Session, find_reply, nonce, split_line};
use crate::error::{Cause, TargetError, TargetVerb};
use crate::target::command::with_usual_directories;
use crate::target::local::cancel_cause;
use crate::target::transport::ExecLimits;
use crate::target::{CancelToken, CommandLine, Output, Result};

/// Directory of the records of running commands; `scripts/probe.sh` removes those that stay behind.
const RECORDS: &str = "/tmp";

/// Variables that a shell does not let a script set as it likes.
const SHELL_VARIABLES: [&str; 10] = [
    "BASHOPTS",
    "BASH_VERSINFO",
    "EUID",
    "GROUPS",
    "OPTIND",
    "PPID",
    "RANDOM",
    "SECONDS",
    "SHELLOPTS",
    "UID",
];

const WHICH: &str = include_str!("scripts/which.sh");

pub(super) fn search_path(session: &Session) -> String {
    let found = session.capabilities(TargetVerb::LookUp);
    with_usual_directories(found.map(|found| found.path.clone()).unwrap_or_default())
}

pub(super) fn which(
    session: &Session,
    command: &str,
    search_path: Option<&str>,
) -> Result<Option<String>> {
    if command.contains('\0') {
        return Ok(None);
    }
    let search_path = match search_path {
        Some(search_path) => search_path.to_owned(),
        None => self::search_path(session),
    };
    let script = session
        .script(TargetVerb::Stat)?
        .set("program", command)
        .set("search_path", &search_path)
        .part(WHICH)
        .part("reply found\nprintf %s \"$found\"");
    let reply = session.call(TargetVerb::Stat, command, script)?;
    let found = String::from_utf8_lossy(&reply.body).into_owned();
    Ok(Some(found).filter(|found| !found.is_empty()))
}

pub(super) fn run(session: &Session, command: &CommandLine, stop: &CancelToken) -> Result<Output> {
    let error = |cause| TargetError::new(TargetVerb::Run, command.display(), cause);
    // The time limit is that of the command: connecting does not count.
    if let Some(reason) = stop.reason() {
        return Err(error(cancel_cause(reason)));
    }
    let texts = command.arguments.iter().chain(&command.directory).chain(&command.search_path);
    let variables = command.environment.iter().flat_map(|(name, value)| [name, value]);
    if texts.chain(variables).any(|text| text.contains('\0')) {
        return Err(error(Cause::Unexpected("it has a zero byte".to_owned())));
    }
    session.end_abandoned().map_err(error)?;
    let nonce = nonce();
    let record = format!("{RECORDS}/.orrery-run-{nonce}");
    let script = script(session, command, &record)?;
    session.running();
    let limits = ExecLimits {
        timeout: command.timeout,
        output_bytes: command.output_limit.saturating_add(NOISE_MAX),
    };
    let done = session.execute(&nonce, script, Some(&command.input), &limits, stop);
    session.count_change(done.as_ref().err());
    let output = match done {
        Ok(output) => output,
        Err(cause) => {
            if cause.is_unclear() {
                session.abandon(record);
                // A lost connection is for the next operation.
                if let Err(cause) = session.end_abandoned() {
                    tracing::warn!(%cause, "cannot end a command that may still run");
                }
            }
            return Err(error(cause));
        }
    };
    parse_output(&nonce, command, output).map_err(error)
}

/// Script that runs the command with the rest of its input.
fn script(session: &Session, command: &CommandLine, record: &str) -> Result<Script> {
    let set = || command.environment.iter().find(|(name, _)| name == "PATH");
    let configured = command.search_path.clone().or_else(|| set().map(|(_, value)| value.clone()));
    let capabilities = session.capabilities(TargetVerb::Run)?;
    let search_path =
        configured.unwrap_or_else(|| with_usual_directories(capabilities.path.clone()));
    let program = command.program();
    let directory = command.directory.as_deref().unwrap_or_default();
    let program = match program.strip_prefix('/') {
        None if program.contains('/') && !directory.is_empty() => {
            let program = program.trim_start_matches("./");
            format!("{}/{program}", directory.trim_end_matches('/'))
        }
        _ => program.to_owned(),
    };
    let mut start = String::from("start() {\n");
    let mut exec = format!("exec {}", capabilities.session.as_deref().unwrap_or_default());
    let mut others = String::new();
    let path = ("PATH".to_owned(), search_path.clone());
    for (name, value) in [&path].into_iter().chain(&command.environment) {
        if is_settable(name) {
            start.push_str(&format!("export {name}={}\n", quote(value)));
        } else {
            others.push_str(&format!(" {}", quote(&format!("{name}={value}"))));
        }
    }
    if !others.is_empty() {
        exec.push_str(&format!(" /usr/bin/env{others}"));
    }
    start.push_str(&format!("{exec} \"$found\" \"$@\"\n}}"));
    Ok(Script::default()
        .set("program", &program)
        .set("search_path", &search_path)
        .set("directory", directory)
        .set("record", record)
        .part(WHICH)
        .part(&start)
        .arguments(command.arguments.iter().skip(1).map(String::as_str))
        .part(include_str!("scripts/run.sh")))
}

/// Returns true if a shell can set the variable like any other.
fn is_settable(name: &str) -> bool {
    let mut letters = name.bytes();
    let first = letters.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let rest = letters.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    first && rest && !SHELL_VARIABLES.contains(&name)
}

/// Removes everything but the output of the command.
fn parse_output(
    nonce: &str,
    command: &CommandLine,
    output: Output,
) -> std::result::Result<Output, Cause> {
    let Some(at) = find_reply(nonce, &output.stdout) else {
        return Err(super::cause::text_cause(&output));
    };
    let (word, stdout) = split_line(&output.stdout[at..]);
    match &*word {
        "run" => {}
        "!command-not-found" => return Err(Cause::CommandNotFound),
        "!no-directory" => {
            let directory = command.directory.as_deref().unwrap_or_default();
            let text = format!("its working directory {directory} does not exist");
            return Err(Cause::Unexpected(text));
        }
        other => return Err(Cause::Unexpected(format!("unexpected reply of the shell: {other}"))),
    }
    let errors = match find_reply(nonce, &output.stderr) {
        Some(at) => split_line(&output.stderr[at..]).1,
        None => &output.stderr,
    };
    let limit = command.output_limit;
    let cut = |stream: &[u8]| stream[..stream.len().min(limit)].to_vec();
    let truncated = output.truncated || stdout.len() > limit || errors.len() > limit;
    Ok(Output { code: output.code, stdout: cut(stdout), stderr: cut(errors), truncated })
}
