//! Which project a command works on, and how its files are called from where the user is.

use std::path::{Path, PathBuf};

use orrery_compiler::error::CompileError;
use orrery_compiler::files::Disk;
use orrery_compiler::project::{Options, Project};

use crate::cli::ProjectOptions;

const DESCRIPTION: &str = "project.yml";
pub(crate) const MAIN_FILE: &str = "main.cf";

/// The options of a compile, with the project found.
///
/// # Errors
/// A diagnostic, if there is no project.
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

/// The directory of the project: the given one, or the one around the working directory.
///
/// # Errors
/// A diagnostic, if there is no project.
pub(crate) fn directory(given: Option<&Path>, main: &str) -> Result<PathBuf, Box<CompileError>> {
    if let Some(directory) = given {
        if directory.is_dir() {
            return Ok(directory.to_owned());
        }
        let text = format!("there is no directory {}", directory.display());
        return Err(CompileError::new("ProjectNotFound", text));
    }
    if let Some(found) = around_here() {
        return Ok(found);
    }
    // A main file alone is a project without modules of its own; and whoever names one wants to
    // hear about that file.
    if main != MAIN_FILE || Path::new(main).is_file() {
        return Ok(PathBuf::from("."));
    }
    let text = format!("there is no {DESCRIPTION} here or in a directory above");
    let help = "go to the project, name it with --project DIR, or make one with `orrery new DIR`";
    Err(CompileError::new("ProjectNotFound", text).help(help))
}

/// The nearest directory with a description, from the working directory upwards, as seen from
/// there: `.` or `../..`.
pub(crate) fn around_here() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let ups = here.ancestors().position(|directory| directory.join(DESCRIPTION).is_file())?;
    Some(if ups == 0 { PathBuf::from(".") } else { std::iter::repeat_n("..", ups).collect() })
}

/// The name in a project's description, if it has one.
pub(crate) fn described_name(directory: &Path) -> Option<String> {
    let described = Project::load(&Disk, directory).ok()?;
    Some(described.name).filter(|name| !name.is_empty())
}

/// The name by which environments know a project: that of its description, or that of its directory if it has none.
pub(crate) fn name_of(directory: &Path) -> String {
    let of_directory = || {
        let path = directory.canonicalize().ok()?;
        Some(path.file_name()?.to_string_lossy().into_owned())
    };
    described_name(directory).or_else(of_directory).unwrap_or_else(|| MAIN_FILE.to_owned())
}

/// How a file is called from the working directory, given how messages call it: relative to the
/// project, with `./` in front.
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
