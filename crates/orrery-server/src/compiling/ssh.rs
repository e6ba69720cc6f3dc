//! How git calls ssh: as the server's user has configured it, or else so that nobody is asked anything.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command, Stdio};

/// Set for git where nothing is configured.
pub(super) const WITHOUT_QUESTIONS: &str = "ssh -o BatchMode=yes";

/// Whether these variables, or the configuration of git that they lead to, say how to call ssh. What `~/.ssh/config` says counts in
/// any case.
pub(super) fn is_configured(variables: &BTreeMap<String, OsString>) -> bool {
    if ["GIT_SSH_COMMAND", "GIT_SSH"].iter().any(|name| variables.contains_key(*name)) {
        return true;
    }
    let mut git = Command::new("git");
    // Not in a checkout, whose own configuration says nothing about it.
    git.args(["config", "--get", "core.sshCommand"]).current_dir("/");
    git.env_clear().envs(variables).env("GIT_CEILING_DIRECTORIES", "/");
    git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    git.status().is_ok_and(|status| status.success())
}
