//! Where the values of references come from, on the machine that runs handlers. They are asked for when a handler runs and forgotten when it has.

mod guarded;

pub use guarded::{ProtectedPaths, resolve_guarded, resolve_on};

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use orrery_model::SecretText;

use crate::target::Variables;

/// Nothing longer is a secret.
const VALUE_MAX: u64 = 64 * 1024;

/// A program that tells a secret has this long.
const COMMAND_TIME: Duration = Duration::from_secs(30);

/// What says where a value is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reference {
    /// A variable of this process.
    Environment(String),
    /// The content of a file of this machine.
    File(PathBuf),
    /// What a program of this machine writes.
    Command(Vec<String>),
    /// A secret of the server's own store.
    Stored(String),
}

/// Why a value cannot be had. It tells where it should be, and nothing of what it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    #[error("the environment variable {0} is not set")]
    NoVariable(String),
    #[error("the value of {what} is no text")]
    NotText { what: String },
    #[error("the value of {what} is longer than {VALUE_MAX} bytes")]
    TooLong { what: String },
    #[error("{} cannot be read: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("the command {program} cannot be run: {source}")]
    Command { program: String, source: std::io::Error },
    #[error("the command {program} ended with {status}; run it by hand to see why")]
    CommandFailed { program: String, status: String },
    #[error("the command {program} took more than {} s", COMMAND_TIME.as_secs())]
    CommandTime { program: String },
    #[error(
        "the secret {0} is kept by a server; deploy through the server, or take it from the environment, a file or a command"
    )]
    NoServer(String),
    #[error(
        "the name of a secret of the server comes from {what}, which only the machine of the remote agent knows; write the name into the model"
    )]
    Elsewhere { what: String },
    #[error("secret {0:?} not found; set it with `orrery secret set {0}`")]
    NotFound(String),
    /// It is no business of models.
    #[error(
        "{what} belongs to the server itself and cannot be referred to; keep the value as a secret of the server, with `orrery secret set`"
    )]
    Own { what: String },
    #[error("the secret {name}: {reason}")]
    Stored { name: String, reason: String },
}

/// Finds the values of references.
pub trait Secrets: Send + Sync {
    /// # Errors
    /// If it cannot be had.
    fn resolve(&self, reference: &Reference) -> Result<SecretText, SecretError>;
}

/// Values that this machine has. Those of a server are not among them.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalSecrets;

impl Secrets for LocalSecrets {
    fn resolve(&self, reference: &Reference) -> Result<SecretText, SecretError> {
        match reference {
            Reference::Environment(name) => variable(name),
            Reference::File(path) => {
                let failed = |source| SecretError::File { path: path.clone(), source };
                let file = std::fs::File::open(path).map_err(failed)?;
                let mut bytes = Vec::new();
                file.take(VALUE_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
                text(bytes, || path.display().to_string())
            }
            Reference::Command(words) => run(words, Variables::All),
            Reference::Stored(name) => Err(SecretError::NoServer(name.clone())),
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

/// The value in what was read: without the line break at its end that editors and programs add.
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
    // What it says about failures may have the secret in it: nobody keeps it.
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
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read =
            output.map_or(Ok(0), |output| output.take(VALUE_MAX + 1).read_to_end(&mut bytes));
        // Whoever asked may have given up.
        let _ = tell.send(read.map(|_| bytes));
    });
    let read = told.recv_timeout(COMMAND_TIME);
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

    fn resolve(reference: Reference) -> Result<SecretText, SecretError> {
        LocalSecrets.resolve(&reference)
    }

    fn command(words: &[&str]) -> Reference {
        Reference::Command(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn values_come_from_variables_files_and_programs() {
        let path = std::env::var("PATH").unwrap();
        let variable = resolve(Reference::Environment("PATH".to_owned())).unwrap();
        assert_eq!(variable.expose(), path);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        std::fs::write(&file, "two\nlines\n").unwrap();
        assert_eq!(resolve(Reference::File(file)).unwrap().expose(), "two\nlines");
        let told = resolve(command(&["printf", "%s\\n", "from a program"])).unwrap();
        assert_eq!(told.expose(), "from a program");
    }

    #[test]
    fn failures_say_where_and_not_what() {
        let told = |reference| resolve(reference).unwrap_err().to_string();
        let none = told(Reference::Environment("ORRERY_NOT_SET".to_owned()));
        assert!(none.contains("ORRERY_NOT_SET"), "{none}");
        let failed = told(command(&["sh", "-c", "echo hunter2; echo hunter2 >&2; exit 3"]));
        assert!(failed.contains("sh") && failed.contains('3'), "{failed}");
        assert!(!failed.contains("hunter2"), "{failed}");
        assert!(told(command(&["/no/such/program"])).contains("/no/such/program"));
        assert!(told(Reference::File("/no/such/file".into())).contains("/no/such/file"));
        assert!(told(Reference::File("/dev/zero".into())).contains("longer"));
        assert!(told(Reference::Stored("db".to_owned())).contains("server"));
    }
}
