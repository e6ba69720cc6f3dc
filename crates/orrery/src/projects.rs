//! Finds the project of a command and its files relative to the working directory.

use std::path::{Path, PathBuf};

use orrery_compiler::error::CompileError;
use orrery_compiler::files::Disk;
use orrery_compiler::project::{Options, ProjectMetadata};

use crate::cli::ProjectOptions;

const DESCRIPTION: &str = "project.yml";
pub(crate) const MAIN_FILE: &str = "main.cf";

/// Returns compile options with the project directory resolved.
///
/// # Errors
/// A diagnostic if there is no project.
pub(crate) fn options(given: &ProjectOptions) -> Result<Options, Box<CompileError>> {
    let mut options = Options::new(directory(given.project.as_deref(), &given.main)?);
    options.main_file.clone_from(&given.main);
    options.implicit_std = !given.no_std;
    options.python_environment.clone_from(&given.python_env);
    options.now = now();
    tracing::debug!(
        project = %options.project_dir.display(),
        main = options.main_file,
        python = ?options.python_environment,
        "found the project"
    );
    Ok(options)
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the command line is where the clock is read")]
pub(crate) fn now() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// Returns the given project directory, or the one around the working directory.
///
/// # Errors
/// A diagnostic if there is no project.
pub(crate) fn directory(given: Option<&Path>, main: &str) -> Result<PathBuf, Box<CompileError>> {
    if let Some(directory) = given {
        if directory.is_dir() {
            return Ok(directory.to_owned());
        }
        let text = format!("no such directory: {}", directory.display());
        return Err(CompileError::new("ProjectNotFound", text));
    }
    if let Some(found) = around_here() {
        return Ok(found);
    }
    // A main file without a project.yml is a project without modules. If --main is given, errors
    // are about that file.
    if main != MAIN_FILE || Path::new(main).is_file() {
        return Ok(PathBuf::from("."));
    }
    let text = format!("no {DESCRIPTION} here or in a parent directory");
    let help =
        "change to the project, name it with --project DIR, or create one with `orrery new DIR`";
    Err(CompileError::new("ProjectNotFound", text).help(help))
}

/// Nearest parent directory with a project.yml, relative to the working directory: `.` or `../..`.
pub(crate) fn around_here() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let ups = here.ancestors().position(|directory| directory.join(DESCRIPTION).is_file())?;
    Some(if ups == 0 { PathBuf::from(".") } else { std::iter::repeat_n("..", ups).collect() })
}

/// Name in project.yml, if any.
pub(crate) fn described_name(directory: &Path) -> Option<String> {
    let described = ProjectMetadata::load(&Disk, directory).ok()?;
    Some(described.name).filter(|name| !name.is_empty())
}

/// Name that environments are bound to: that of project.yml, or else that of the directory.
pub(crate) fn name_of(directory: &Path) -> String {
    let of_directory = || {
        let path = directory.canonicalize().ok()?;
        Some(path.file_name()?.to_string_lossy().into_owned())
    };
    described_name(directory).or_else(of_directory).unwrap_or_else(|| MAIN_FILE.to_owned())
}

/// Path from the working directory of a file that messages name relative to the project, as
/// `./file`.
pub(crate) fn path_from_here(project: &Path, name: &str) -> String {
    match name.strip_prefix("./") {
        Some(inside) if project != Path::new(".") && !project.as_os_str().is_empty() => {
            project.join(inside).display().to_string()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_directories_are_named_with_them() {
        assert_eq!(path_from_here(Path::new("."), "./main.cf"), "./main.cf");
        assert_eq!(path_from_here(Path::new("shop"), "./libs/a.cf"), "shop/libs/a.cf");
        assert_eq!(path_from_here(Path::new("shop"), "/env/a.cf"), "/env/a.cf");
    }
}
