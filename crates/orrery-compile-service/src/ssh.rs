//! SSH command of git: as configured by the server's user, or else in batch mode.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command, Stdio};

/// SSH command without a configured one.
pub(crate) const BATCH_MODE_COMMAND: &str = "ssh -o BatchMode=yes";

/// True if these variables, or the git configuration that they select, name an ssh command.
/// `~/.ssh/config` applies in any case.
pub(crate) fn is_configured(variables: &BTreeMap<String, OsString>) -> bool {
    if ["GIT_SSH_COMMAND", "GIT_SSH"].iter().any(|name| variables.contains_key(*name)) {
        return true;
    }
    let mut git = Command::new("git");
    // Outside of any checkout: its configuration must not count.
    git.args(["config", "--get", "core.sshCommand"]).current_dir("/");
    git.env_clear().envs(variables).env("GIT_CEILING_DIRECTORIES", "/");
    git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    git.status().is_ok_and(|status| status.success())
}
