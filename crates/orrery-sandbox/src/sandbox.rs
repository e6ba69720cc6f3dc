//! The outside view: whether this machine has sandboxes, and commands that run in one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::policy::{Message, Policy};
use crate::{LAUNCHER, VOICE};

/// What sandboxes are made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// Namespaces of the kernel, set up by the launcher.
    Namespaces,
    /// The program bubblewrap, which may make namespaces where others may not.
    Bubblewrap(PathBuf),
}

/// A way to run programs in sandboxes that was found to work on this machine.
#[derive(Clone, Debug)]
pub struct Sandbox {
    launcher: PathBuf,
    method: Method,
}

/// Why this machine has no sandboxes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("programs cannot be sandboxed on this machine: {reason}; either {}", remedies.join(", or "))]
pub struct Unavailable {
    pub reason: String,
    /// What helps, each by itself.
    pub remedies: Vec<String>,
}

impl Unavailable {
    fn because(reason: String) -> Self {
        let remedies = [
            "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)",
            "install bubblewrap",
            "run it as root with CAP_SYS_ADMIN",
        ];
        Unavailable { reason, remedies: remedies.map(str::to_owned).to_vec() }
    }
}

impl Sandbox {
    /// Finds what this machine offers: runs a program that does nothing in a sandbox. `launcher` is a program that calls
    /// [`crate::launch_if_asked`] first, such as this one.
    ///
    /// # Errors
    /// If no method works.
    pub fn detect(launcher: PathBuf) -> Result<Self, Unavailable> {
        if !cfg!(target_os = "linux") {
            return Err(Unavailable {
                reason: "sandboxes need Linux".to_owned(),
                remedies: vec!["run it on Linux".to_owned()],
            });
        }
        let own = Sandbox::with(launcher.clone(), Method::Namespaces);
        let reason = match own {
            Ok(sandbox) => return Ok(sandbox),
            Err(Unavailable { reason, .. }) => reason,
        };
        match find_bubblewrap() {
            None => Err(Unavailable::because(reason)),
            Some(program) => {
                Sandbox::with(launcher, Method::Bubblewrap(program)).map_err(|other| {
                    Unavailable::because(format!("{reason}; bubblewrap: {}", other.reason))
                })
            }
        }
    }

    /// The same for one method.
    ///
    /// # Errors
    /// If it does not work.
    pub fn with(launcher: PathBuf, method: Method) -> Result<Self, Unavailable> {
        let sandbox = Sandbox { launcher, method };
        let uid = is_root().then_some(DETECTION_UID);
        let policy = Policy { uid, ..Policy::default() };
        let mut command = sandbox.command(&policy, Path::new("/bin/sh"));
        command.args(["-c", "test -r /proc/self/stat"]).current_dir("/");
        let output = command.stdin(Stdio::null()).output();
        let reason = match output {
            Ok(output) if output.status.success() => return Ok(sandbox),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                let line = text.lines().find_map(|line| line.strip_prefix(VOICE));
                let line = line.or_else(|| text.lines().last());
                line.map_or_else(|| output.status.to_string(), str::to_owned)
            }
            Err(error) => format!("{}: {error}", sandbox.launcher.display()),
        };
        Err(Unavailable::because(reason))
    }

    /// A method that is known to work, by another process for instance.
    pub fn unchecked(launcher: PathBuf, method: Method) -> Self {
        Sandbox { launcher, method }
    }

    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The command that runs `program` in a sandbox. The caller adds arguments, the working directory and standard streams.
    ///
    /// Variables belong in [`Policy::environment`]: those of the command would be seen by the launcher, which is outside of the
    /// sandbox, and are not passed on. The sandbox ends with the process that was started, with the calling process, and when it is
    /// killed; signals that ask it to end are passed on to the program.
    pub fn command(&self, policy: &Policy, program: &Path) -> Command {
        let message = Message {
            policy: policy.clone(),
            method: self.method.clone(),
            directory: PathBuf::from("/"),
            memory_is_limited: false,
            processes_are_limited: false,
        };
        let mut command = Command::new(&self.launcher);
        command.env_clear();
        match message.to_variables() {
            Ok(variables) => {
                command.envs(variables);
            }
            // Without a policy the launcher refuses.
            Err(error) => tracing::error!(%error, "a policy cannot be written"),
        }
        command.arg(LAUNCHER).arg(program);
        command
    }
}

/// A user that has nothing, for finding out whether identities can be changed.
const DETECTION_UID: u32 = 1_879_048_191;

fn is_root() -> bool {
    #[cfg(target_os = "linux")]
    return rustix::process::geteuid().is_root();
    #[cfg(not(target_os = "linux"))]
    false
}

fn find_bubblewrap() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("bwrap")).find(|program| program.is_file())
}
