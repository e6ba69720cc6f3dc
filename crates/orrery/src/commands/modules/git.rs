//! Runs git for clones of modules, and detects local changes.

use std::path::Path;
use std::process::{Command, Stdio};

/// True if files of a clone differ from its commit.
pub(super) fn is_modified(path: &Path) -> bool {
    let changed = ask(Some(path), &["status", "--porcelain", "--untracked-files=no"]);
    changed.is_ok_and(|changed| !changed.is_empty())
}

/// Local changes or commits of a clone. Such a clone is not moved to another commit.
pub(super) fn local_changes(path: &Path) -> Option<String> {
    if is_modified(path) {
        return Some("it has local changes".to_owned());
    }
    let kept = |kind: &[&str]| ask(Some(path), kind).is_ok_and(|found| !found.is_empty());
    let published = kept(&["branch", "--remotes", "--contains", "HEAD"])
        || kept(&["tag", "--contains", "HEAD"]);
    (!published).then(|| "it has local commits".to_owned())
}

pub(super) fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    match rest.split_once('@') {
        Some((user, host)) if user.contains(':') => format!("{scheme}://***@{host}"),
        _ => address.to_owned(),
    }
}

/// Git without hooks, configuration of the repository, or prompts.
pub(super) fn git(directory: Option<&Path>) -> Command {
    let mut command = Command::new("git");
    for setting in [
        "core.hooksPath=/dev/null",
        "protocol.ext.allow=never",
        "advice.detachedHead=false",
        "color.ui=false",
    ] {
        command.args(["-c", setting]);
    }
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    command.env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null());
    command
}

/// Runs git; returns its output, or the reason of the failure.
pub(super) fn run(mut command: Command) -> Result<String, String> {
    let done = command.output().map_err(|error| format!("cannot start git: {error}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let cause = said.lines().find(|line| line.starts_with("fatal:") || line.starts_with("error:"));
    let cause = cause.or_else(|| said.lines().next_back()).unwrap_or("git failed");
    // A list follows; its first entry is enough.
    let listed = said.lines().skip_while(|line| *line != cause).nth(1).map(str::trim);
    let listed = listed.filter(|_| cause.ends_with(':')).unwrap_or_default();
    let cause = cause.trim_start_matches("fatal:").trim_start_matches("error:").trim();
    Err(without_password(format!("{cause} {listed}").trim_end()))
}

pub(super) fn ask(directory: Option<&Path>, arguments: &[&str]) -> Result<String, String> {
    let mut command = git(directory);
    command.args(arguments);
    run(command)
}
