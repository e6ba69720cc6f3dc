//! The sandbox's file system view by bubblewrap, where this program may not create namespaces.

use std::path::Path;
use std::process::Command;

use rustix::process::Pid;

use crate::mounts::{SCRATCH, Visibility, items};
use crate::policy::Message;
use crate::setup_error::{SetupError, Step};

/// Returns the command that runs this program as init; its arguments follow.
pub(crate) fn command(program: &Path, message: &Message) -> Result<Command, SetupError> {
    let own = std::env::current_exe().step("the path of this program")?;
    let mut command = Command::new(program);
    command.args(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent"]);
    let root = if message.policy.manages_machine { "--bind" } else { "--ro-bind" };
    command.args([root, "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    let size = message.policy.limits.scratch.to_string();
    for path in SCRATCH {
        command.args(["--perms", "1777", "--size", &size, "--tmpfs", path]);
    }
    let mut policy = message.policy.clone();
    policy.readable.push(own.clone());
    let mut covers = Vec::new();
    for item in items(&policy) {
        let is_dir = item.source.is_dir();
        match item.look {
            Visibility::Hidden if is_dir => {
                command.args(["--perms", "0755", "--tmpfs"]).arg(&item.path);
                covers.push(item.path);
            }
            Visibility::Hidden => {
                command.args(["--ro-bind", "/dev/null"]).arg(&item.path);
            }
            Visibility::Readable => {
                command.arg("--ro-bind").arg(&item.source).arg(&item.path);
            }
            Visibility::Writable => {
                command.arg("--bind").arg(&item.source).arg(&item.path);
            }
        }
    }
    covers.push("/dev".into());
    for path in covers {
        command.arg("--remount-ro").arg(path);
    }
    command.arg("--chdir").arg(&message.directory).arg("--").arg(own);
    Ok(command)
}

/// Returns the init process, for signals: bubblewrap forwards none. Another bubblewrap process is
/// between the two.
pub(crate) fn init_below(bubblewrap: Pid) -> Option<Pid> {
    let child = |pid: Pid| {
        let pid = pid.as_raw_pid();
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        Pid::from_raw(text.split_whitespace().next()?.parse().ok()?)
    };
    child(child(bubblewrap)?)
}
