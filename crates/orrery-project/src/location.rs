//! Finds a project and reads its `project.yml`.

use std::path::{Path, PathBuf};

use orrery_compiler::error::CompileError;
use orrery_compiler::files::Disk;
use orrery_compiler::project::{Options, ProjectMetadata};

const DESCRIPTION: &str = "project.yml";
/// Default main file.
pub const MAIN_FILE: &str = "main.cf";

/// A project that was found. Its `project.yml` is read once.
#[derive(Clone, Debug)]
pub struct FoundProject {
    /// Directory, as it was named or found.
    pub directory: PathBuf,
    main_file: String,
    /// Content of `project.yml`; `None` if it is unreadable, which a compile reports.
    pub(crate) metadata: Option<ProjectMetadata>,
}

impl FoundProject {
    /// Finds the given project, or the one around the working directory.
    ///
    /// # Errors
    /// A diagnostic if there is no project.
    pub fn find(given: Option<&Path>, main: &str) -> Result<Self, Box<CompileError>> {
        Ok(FoundProject::open(find_directory(given, main)?, main))
    }

    /// Opens the project in a directory.
    pub fn open(directory: PathBuf, main: &str) -> Self {
        let metadata = ProjectMetadata::load(&Disk, &directory).ok();
        FoundProject { directory, main_file: main.to_owned(), metadata }
    }

    /// Name in `project.yml`, if any.
    pub fn declared_name(&self) -> Option<&str> {
        let metadata = self.metadata.as_ref()?;
        Some(metadata.name.as_str()).filter(|name| !name.is_empty())
    }

    /// Name that environments are bound to: that of `project.yml`, or else that of the directory.
    pub fn name(&self) -> String {
        let of_directory = || {
            let path = self.directory.canonicalize().ok()?;
            Some(path.file_name()?.to_string_lossy().into_owned())
        };
        let declared = self.declared_name().map(str::to_owned);
        declared.or_else(of_directory).unwrap_or_else(|| MAIN_FILE.to_owned())
    }

    /// Options of the compiler for this project.
    pub fn options(&self) -> Options {
        let mut options = Options::new(&self.directory);
        options.main_file.clone_from(&self.main_file);
        options.metadata.clone_from(&self.metadata);
        options
    }
}

/// Name in the `project.yml` of a directory, if any.
pub fn declared_name(directory: &Path) -> Option<String> {
    FoundProject::open(directory.to_owned(), MAIN_FILE).declared_name().map(str::to_owned)
}

/// Name that environments of the project in a directory are bound to.
pub fn name_of(directory: &Path) -> String {
    FoundProject::open(directory.to_owned(), MAIN_FILE).name()
}

/// Returns the given project directory, or the one around the working directory.
///
/// # Errors
/// A diagnostic if there is no project.
pub fn find_directory(given: Option<&Path>, main: &str) -> Result<PathBuf, Box<CompileError>> {
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
pub fn around_here() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let ups = here.ancestors().position(|directory| directory.join(DESCRIPTION).is_file())?;
    Some(if ups == 0 { PathBuf::from(".") } else { std::iter::repeat_n("..", ups).collect() })
}

/// Absolute form of a path, as far as it can be found.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Id of the only environment of a local project, as a UUID.
pub fn environment_id(project: &Path) -> String {
    use std::hash::{BuildHasher, BuildHasherDefault};
    let build = BuildHasherDefault::<rustc_hash::FxHasher>::default();
    let (high, low) = (build.hash_one(project), build.hash_one((project, "environment")));
    let hex = format!("{high:016x}{low:016x}");
    // UUID version 8 (custom content) with the standard variant.
    format!("{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}
