//! Detection of the sandboxing method, and commands that run in a sandbox.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::policy::{Message, Method, SandboxPolicy};
use crate::{LAUNCHER, MESSAGE_PREFIX};

/// A sandboxing method that works on this machine.
#[derive(Clone, Debug)]
pub struct Sandbox {
    launcher: PathBuf,
    method: Method,
}

/// Error of a machine without sandboxes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("programs cannot be sandboxed on this machine: {reason}; either {}", remedies.join(", or "))]
pub struct Unavailable {
    pub reason: String,
    /// Remedies, each sufficient.
    pub remedies: Vec<String>,
}

impl Unavailable {
    fn with_reason(reason: String) -> Self {
        let remedies = [
            "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)",
            "install bubblewrap",
            "run it as root with CAP_SYS_ADMIN",
        ];
        Unavailable { reason, remedies: remedies.map(str::to_owned).to_vec() }
    }
}

impl Sandbox {
    /// Finds a working method by running an empty program in a sandbox. `launcher` is a program
    /// that calls [`crate::run_if_launcher`] first, such as this one.
    ///
    /// # Errors
    /// Fails if no method works.
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
            None => Err(Unavailable::with_reason(reason)),
            Some(program) => {
                Sandbox::with(launcher, Method::Bubblewrap(program)).map_err(|other| {
                    Unavailable::with_reason(format!("{reason}; bubblewrap: {}", other.reason))
                })
            }
        }
    }

    /// Checks one method.
    ///
    /// # Errors
    /// Fails if it does not work.
    pub fn with(launcher: PathBuf, method: Method) -> Result<Self, Unavailable> {
        let sandbox = Sandbox { launcher, method };
        let uid = is_root().then_some(DETECTION_UID);
        let policy = SandboxPolicy { uid, ..SandboxPolicy::default() };
        let mut command = sandbox.command(&policy, Path::new("/bin/sh"));
        command.args(["-c", "test -r /proc/self/stat"]).current_dir("/");
        let output = command.stdin(Stdio::null()).output();
        let reason = match output {
            Ok(output) if output.status.success() => return Ok(sandbox),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                let line = text.lines().find_map(|line| line.strip_prefix(MESSAGE_PREFIX));
                let line = line.or_else(|| text.lines().last());
                line.map_or_else(|| output.status.to_string(), str::to_owned)
            }
            Err(error) => format!("{}: {error}", sandbox.launcher.display()),
        };
        Err(Unavailable::with_reason(reason))
    }

    /// Uses a method without a check, for example one verified by another process.
    pub fn unchecked(launcher: PathBuf, method: Method) -> Self {
        Sandbox { launcher, method }
    }

    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the command that runs `program` in a sandbox. The caller adds arguments, the working
    /// directory and standard streams.
    ///
    /// Variables belong in [`SandboxPolicy::environment`]: those of the command would be visible to the
    /// launcher, which is outside of the sandbox, and are not inherited. The sandbox ends with the
    /// started process, with the calling process, and when it is killed; termination signals are
    /// forwarded to the program.
    pub fn command(&self, policy: &SandboxPolicy, program: &Path) -> Command {
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
            // Without a policy the launcher refuses to start.
            Err(error) => tracing::error!(%error, "a policy cannot be written"),
        }
        command.arg(LAUNCHER).arg(program);
        command
    }
}

/// User id without files, to test the change of identity.
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
