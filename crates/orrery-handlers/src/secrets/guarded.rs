//! Late-bound values on a server: sources that models may use there.

use std::fs::File;
use std::io::{Read as _, Result as IoResult};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orrery_model::SecretText;
use rustix::fs::{Mode, OFlags};

use super::{COMMAND_TIMEOUT, SecretError, SecretSource, VALUE_MAX, run, text, variable};
use crate::error::Cause;
use crate::target::{CancelToken, CommandLine, FileKind, Target, Variables, is_orrery_variable};

/// Maximum length of a chain of links.
const LINKS_MAX: usize = 16;

/// Files and directories of a server that models must not read.
#[derive(Clone, Debug, Default)]
pub struct ProtectedPaths(Arc<[PathBuf]>);

impl ProtectedPaths {
    /// Protects paths that do not exist, too: they may be created.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let both =
            paths.into_iter().flat_map(|path| [std::fs::canonicalize(&path).ok(), Some(path)]);
        ProtectedPaths(both.flatten().collect())
    }

    /// Returns true if an open file is protected, whatever its name.
    fn include(&self, file: &File) -> IoResult<bool> {
        let found = file.metadata()?;
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        // `/proc` exposes environment variables and memory of processes.
        if path.starts_with("/proc") {
            return Ok(true);
        }
        let is_same = |protected: &PathBuf| {
            let other = std::fs::metadata(protected);
            other.is_ok_and(|other| (other.dev(), other.ino()) == (found.dev(), found.ino()))
        };
        Ok(self.0.iter().any(|protected| path.starts_with(protected) || is_same(protected)))
    }
}

fn refused(what: impl Into<String>) -> SecretError {
    SecretError::Own { what: what.into() }
}

/// Resolves a value with the rights of this process, for trusted models; the process's own secrets
/// are refused.
///
/// # Errors
/// If the value is unavailable, or belongs to this process.
pub fn resolve_guarded(
    reference: &SecretSource,
    protected: &ProtectedPaths,
) -> Result<SecretText, SecretError> {
    match reference {
        SecretSource::Environment(name) if is_orrery_variable(name.as_ref()) => {
            Err(refused(format!("the environment variable {name}")))
        }
        SecretSource::Environment(name) => variable(name),
        SecretSource::File(path) => read(path, protected),
        SecretSource::Command(words) => run(words, Variables::Standard),
        SecretSource::Stored(name) => Err(SecretError::NoServer(name.clone())),
    }
}

fn read(path: &Path, protected: &ProtectedPaths) -> Result<SecretText, SecretError> {
    let failed = |source| SecretError::File { path: path.to_owned(), source };
    // Does not block on a pipe without a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let file = File::from(file);
    if protected.include(&file).map_err(failed)? {
        return Err(refused(format!("the file {}", path.display())));
    }
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::other("not a regular file")));
    }
    let mut bytes = Vec::new();
    file.take(VALUE_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    text(bytes, || path.display().to_string())
}

/// Resolves a value with the rights of a target, for models with no further trust. Variables of
/// this process are not available.
///
/// # Errors
/// If the value is unavailable there.
pub fn resolve_on_target(
    reference: &SecretSource,
    target: &dyn Target,
    stop: &CancelToken,
) -> Result<SecretText, SecretError> {
    match reference {
        SecretSource::Environment(name) if Variables::Standard.include(name.as_ref()) => {
            variable(name)
        }
        SecretSource::Environment(name) => Err(refused(format!("the environment variable {name}"))),
        SecretSource::File(path) => read_on(path, target),
        SecretSource::Command(words) => run_on(words, target, stop),
        SecretSource::Stored(name) => Err(SecretError::NoServer(name.clone())),
    }
}

fn read_on(path: &Path, target: &dyn Target) -> Result<SecretText, SecretError> {
    let failed = |text: String| SecretError::File {
        path: path.to_owned(),
        source: std::io::Error::other(text),
    };
    let mut place =
        path.to_str().ok_or_else(|| failed("its path is not UTF-8".to_owned()))?.to_owned();
    for _ in 0..LINKS_MAX {
        let stat = target.stat(&place).map_err(|error| failed(error.cause.to_string()))?;
        let Some(stat) = stat else { return Err(failed(Cause::NotFound.to_string())) };
        if stat.kind != FileKind::Symlink {
            let content = target.read_file(&place, VALUE_MAX + 1);
            let content = content.map_err(|error| match error.cause {
                Cause::TooLarge { .. } => SecretError::TooLong { what: path.display().to_string() },
                cause => failed(cause.to_string()),
            })?;
            let bytes = content.ok_or_else(|| failed(Cause::NotFound.to_string()))?;
            return text(bytes, || path.display().to_string());
        }
        let leads_to = target.read_link(&place).map_err(|error| failed(error.cause.to_string()))?;
        let leads_to = leads_to.ok_or_else(|| failed(Cause::NotFound.to_string()))?;
        place = follow(&place, &leads_to);
    }
    Err(failed(Cause::TooManyLinks.to_string()))
}

/// Destination of a link, as a path without `.` and `..`.
fn follow(link: &str, leads_to: &str) -> String {
    let directory = link.rsplit_once('/').map_or("", |(directory, _)| directory);
    let whole = match leads_to.starts_with('/') {
        true => leads_to.to_owned(),
        false => format!("{directory}/{leads_to}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn run_on(
    words: &[String],
    target: &dyn Target,
    stop: &CancelToken,
) -> Result<SecretText, SecretError> {
    let program = words.first().cloned().unwrap_or_default();
    let mut command = CommandLine::new(words.iter().cloned());
    command.timeout = Some(COMMAND_TIMEOUT);
    command.output_limit = usize::try_from(VALUE_MAX).unwrap_or(usize::MAX) + 1;
    let output = target.run(&command, stop).map_err(|error| match error.cause {
        Cause::TimedOut => SecretError::CommandTime { program: program.clone() },
        cause => SecretError::Command {
            program: program.clone(),
            source: std::io::Error::other(cause.to_string()),
        },
    })?;
    if !output.success() && !output.truncated {
        let status = format!("exit status: {}", output.code);
        return Err(SecretError::CommandFailed { program, status });
    }
    text(output.stdout, || format!("the command {program}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::LocalTarget;

    fn file(path: impl AsRef<Path>) -> SecretSource {
        SecretSource::File(path.as_ref().to_owned())
    }

    /// Protected files are refused under every name.
    #[test]
    fn secrets_of_the_process_itself_are_refused() {
        let base = tempfile::tempdir().unwrap();
        let (data, other) = (base.path().join("data"), base.path().join("other"));
        std::fs::create_dir_all(data.join("environments")).unwrap();
        std::fs::create_dir(&other).unwrap();
        for path in [data.join("secret.key"), data.join("environments/x"), other.join("fine")] {
            std::fs::write(path, "hunter2\n").unwrap();
        }
        let key = base.path().join("own.key");
        std::fs::write(&key, "hunter2").unwrap();
        std::os::unix::fs::symlink(&data, other.join("link")).unwrap();
        std::os::unix::fs::symlink(data.join("secret.key"), other.join("key")).unwrap();
        std::fs::hard_link(&key, other.join("hard")).unwrap();
        let protected = ProtectedPaths::new([data.clone(), key.clone()]);
        for path in [
            data.join("secret.key"),
            data.join("environments/x"),
            other.join("link/secret.key"),
            other.join("../data/./secret.key"),
            other.join("key"),
            other.join("hard"),
            key,
            "/proc/self/environ".into(),
            format!("/proc/{}/environ", std::process::id()).into(),
        ] {
            let error = resolve_guarded(&file(&path), &protected).unwrap_err();
            assert!(matches!(error, SecretError::Own { .. }), "{}: {error}", path.display());
            let error_text = error.to_string();
            assert!(
                error_text.contains("orrery secret set") && !error_text.contains("hunter2"),
                "{error_text}"
            );
        }
        let fine = resolve_guarded(&file(other.join("fine")), &protected).unwrap();
        assert_eq!(fine.expose(), "hunter2");
        for name in ["ORRERY_ADMIN_PASSWORD", "ORRERY_NOT_SET", "orrery_database"] {
            let error = resolve_guarded(&SecretSource::Environment(name.to_owned()), &protected);
            assert!(matches!(error, Err(SecretError::Own { .. })), "{name}");
        }
        assert!(resolve_guarded(&SecretSource::Environment("PATH".to_owned()), &protected).is_ok());
    }

    #[test]
    fn a_target_resolves_files_and_commands() {
        let base = tempfile::tempdir().unwrap();
        let path = |name: &str| base.path().join(name);
        std::fs::write(path("secret"), "value\n").unwrap();
        std::os::unix::fs::symlink("secret", path("link")).unwrap();
        std::os::unix::fs::symlink("./../link", path("deep")).unwrap();
        std::fs::create_dir(path("d")).unwrap();
        std::os::unix::fs::symlink("../link", path("d/link")).unwrap();
        let target = LocalTarget::default();
        let resolve = |reference| resolve_on_target(&reference, &target, &CancelToken::never());
        for name in ["secret", "link", "d/link"] {
            assert_eq!(resolve(file(path(name))).unwrap().expose(), "value", "{name}");
        }
        assert!(resolve(file(path("none"))).unwrap_err().to_string().contains("does not exist"));
        let command = |words: &[&str]| {
            SecretSource::Command(words.iter().map(|word| (*word).to_owned()).collect())
        };
        assert_eq!(resolve(command(&["printf", "a b"])).unwrap().expose(), "a b");
        let failed = resolve(command(&["sh", "-c", "echo hunter2 >&2; exit 3"])).unwrap_err();
        assert!(failed.to_string().contains('3') && !failed.to_string().contains("hunter2"));
        // Variables of the server process are not the target's.
        for name in ["PGPASSWORD", "ORRERY_DATABASE", "CARGO_MANIFEST_DIR"] {
            let error = resolve(SecretSource::Environment(name.to_owned())).unwrap_err();
            assert!(matches!(error, SecretError::Own { .. }), "{name}");
        }
    }
}
