//! Sources of late-bound values on the machine that runs handlers. Values are read for each run and
//! not retained.

mod guarded;

pub use guarded::{ProtectedPaths, resolve_guarded, resolve_on_target};

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use orrery_base::thread::spawn_named;
use orrery_model::SecretText;

use crate::target::Variables;

/// Maximum size of a secret, in bytes.
const VALUE_MAX: u64 = 64 * 1024;

/// Timeout of a command that prints a secret.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Source of a late-bound value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SecretSource {
    /// An environment variable of this process.
    Environment(String),
    /// Content of a file on this machine.
    File(PathBuf),
    /// Output of a command on this machine.
    Command(Vec<String>),
    /// A secret in the server's vault.
    Stored(String),
}

/// Error of a late-bound value. Names its source, never the value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    #[error("the environment variable {0} is not set")]
    NoVariable(String),
    #[error("the value of {what} is not UTF-8 text")]
    NotText { what: String },
    #[error("the value of {what} is longer than {VALUE_MAX} bytes")]
    TooLong { what: String },
    #[error("{} cannot be read: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("cannot run the command {program}: {source}")]
    Command { program: String, source: std::io::Error },
    #[error("the command {program} ended with {status}; run it by hand to see why")]
    CommandFailed { program: String, status: String },
    #[error("the command {program} timed out after {} s", COMMAND_TIMEOUT.as_secs())]
    CommandTime { program: String },
    #[error(
        "the secret {0} is in the vault of a server; deploy through the server, or use an environment variable, a file or a command"
    )]
    NoServer(String),
    #[error(
        "the name of the secret comes from {what}, which only the remote agent's machine can read; write the name into the model"
    )]
    Elsewhere { what: String },
    #[error("secret {0:?} not found; set it with `orrery secret set {0}`")]
    NotFound(String),
    /// Reserved for the server itself.
    #[error(
        "{what} belongs to the server itself and cannot be used in models; store the value with `orrery secret set`"
    )]
    Own { what: String },
    #[error("the secret {name}: {reason}")]
    Stored { name: String, reason: String },
}

/// Resolves late-bound values.
pub trait Secrets: Send + Sync {
    /// # Errors
    /// If the value is unavailable.
    fn resolve(&self, reference: &SecretSource) -> Result<SecretText, SecretError>;
}

/// Values of this machine; those of a server's vault are not among them.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalSecrets;

impl Secrets for LocalSecrets {
    fn resolve(&self, reference: &SecretSource) -> Result<SecretText, SecretError> {
        match reference {
            SecretSource::Environment(name) => variable(name),
            SecretSource::File(path) => {
                let failed = |source| SecretError::File { path: path.clone(), source };
                let file = std::fs::File::open(path).map_err(failed)?;
                let mut bytes = Vec::new();
                file.take(VALUE_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
                text(bytes, || path.display().to_string())
            }
            SecretSource::Command(words) => run(words, Variables::All),
            SecretSource::Stored(name) => Err(SecretError::NoServer(name.clone())),
        }
    }
}

fn variable(name: &str) -> Result<SecretText, SecretError> {
    match std::env::var(name) {
        Ok(value) => Ok(SecretText::new(value)),
        Err(std::env::VarError::NotPresent) => Err(SecretError::NoVariable(name.to_owned())),
        Err(_) => Err(SecretError::NotText { what: format!("the variable {name}") }),
    }
}

/// Converts bytes to a value, without the trailing newline that editors and programs add.
fn text(bytes: Vec<u8>, what: impl Fn() -> String) -> Result<SecretText, SecretError> {
    if bytes.len() as u64 > VALUE_MAX {
        return Err(SecretError::TooLong { what: what() });
    }
    let mut text = String::from_utf8(bytes).map_err(|_| SecretError::NotText { what: what() })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(SecretText::new(text))
}

fn run(words: &[String], variables: Variables) -> Result<SecretText, SecretError> {
    let program = words.first().cloned().unwrap_or_default();
    let failed = |source| SecretError::Command { program: program.clone(), source };
    // Standard error may contain the secret: it is discarded.
    let mut child = Command::new(&program)
        .args(&words[1.min(words.len())..])
        .env_clear()
        .envs(variables.collect())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let output = child.stdout.take();
    let (sender, receiver) = mpsc::channel();
    let reader = spawn_named("secret", move || {
        let mut bytes = Vec::new();
        let read =
            output.map_or(Ok(0), |output| output.take(VALUE_MAX + 1).read_to_end(&mut bytes));
        // The receiver may have timed out.
        let _ = sender.send(read.map(|_| bytes));
    });
    if let Err(error) = reader {
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed(error));
    }
    let read = receiver.recv_timeout(COMMAND_TIMEOUT);
    let Ok(read) = read else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(SecretError::CommandTime { program });
    };
    let bytes = read.map_err(failed)?;
    if bytes.len() as u64 > VALUE_MAX {
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    let what = || format!("the command {program}");
    if bytes.len() as u64 <= VALUE_MAX && !status.success() {
        return Err(SecretError::CommandFailed { program, status: status.to_string() });
    }
    text(bytes, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(reference: SecretSource) -> Result<SecretText, SecretError> {
        LocalSecrets.resolve(&reference)
    }

    fn command(words: &[&str]) -> SecretSource {
        SecretSource::Command(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn values_come_from_variables_files_and_commands() {
        let path = std::env::var("PATH").unwrap();
        let variable = resolve(SecretSource::Environment("PATH".to_owned())).unwrap();
        assert_eq!(variable.expose(), path);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        std::fs::write(&file, "two\nlines\n").unwrap();
        assert_eq!(resolve(SecretSource::File(file)).unwrap().expose(), "two\nlines");
        let value = resolve(command(&["printf", "%s\\n", "from a program"])).unwrap();
        assert_eq!(value.expose(), "from a program");
    }

    #[test]
    fn errors_name_the_source_and_not_the_value() {
        let error_text = |reference| resolve(reference).unwrap_err().to_string();
        let none = error_text(SecretSource::Environment("ORRERY_NOT_SET".to_owned()));
        assert!(none.contains("ORRERY_NOT_SET"), "{none}");
        let failed = error_text(command(&["sh", "-c", "echo hunter2; echo hunter2 >&2; exit 3"]));
        assert!(failed.contains("sh") && failed.contains('3'), "{failed}");
        assert!(!failed.contains("hunter2"), "{failed}");
        assert!(error_text(command(&["/no/such/program"])).contains("/no/such/program"));
        assert!(error_text(SecretSource::File("/no/such/file".into())).contains("/no/such/file"));
        assert!(error_text(SecretSource::File("/dev/zero".into())).contains("longer"));
        assert!(error_text(SecretSource::Stored("db".to_owned())).contains("server"));
    }
}
