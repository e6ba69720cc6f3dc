//! The project's own description, `project.yml`, and where its modules are looked for.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{CompileError, Result};
use crate::files::Files;

/// What a compile starts from.
#[derive(Clone, Debug)]
pub struct Options {
    pub project_dir: PathBuf,
    /// Relative to the project's directory.
    pub main_file: String,
    /// Import `std` without being asked.
    pub implicit_std: bool,
    /// A Python environment whose installed modules are found too.
    pub python_environment: Option<PathBuf>,
    pub limits: Limits,
}

/// Bounds that turn an endless model into an error.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub instances: u32,
    /// How deep instances may be created from implementations of instances.
    pub creation_depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { instances: 20_000_000, creation_depth: 5_000 }
    }
}

impl Options {
    pub fn new(project_dir: impl Into<PathBuf>) -> Self {
        Options {
            project_dir: project_dir.into(),
            main_file: "main.cf".into(),
            implicit_std: true,
            python_environment: None,
            limits: Limits::default(),
        }
    }
}

#[derive(Debug, Default)]
pub struct Project {
    pub name: String,
    pub module_path: Vec<PathBuf>,
    pub precedence: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct Raw {
    name: Option<String>,
    #[serde(default)]
    modulepath: Option<OneOrMany>,
    #[serde(default)]
    relation_precedence_policy: Option<Vec<String>>,
}

fn invalid(path: &Path, reason: impl std::fmt::Display) -> Box<CompileError> {
    let text = format!("Metadata defined in {} is invalid:\n  {reason}", path.display());
    CompileError::new("InvalidMetadata", text)
}

impl Project {
    /// Reads `project.yml`. A directory without one is a project with nothing but its main file.
    pub fn load(files: &dyn Files, dir: &Path) -> Result<Project> {
        let path = dir.join("project.yml");
        if !files.is_file(&path) {
            return Ok(Project {
                name: String::new(),
                module_path: vec![dir.join("libs")],
                precedence: Vec::new(),
            });
        }
        let bytes = files.read(&path).map_err(|e| invalid(&path, e))?;
        let text = String::from_utf8(bytes).map_err(|e| invalid(&path, e))?;
        let raw: Raw = serde_saphyr::from_str(&text).map_err(|e| invalid(&path, e))?;
        let name = raw.name.ok_or_else(|| invalid(&path, "name: Field required"))?;
        let module_path = match raw.modulepath {
            None => Vec::new(),
            Some(OneOrMany::One(one)) => vec![one],
            Some(OneOrMany::Many(many)) => many,
        };
        Ok(Project {
            name,
            module_path: module_path.into_iter().map(|part| dir.join(part)).collect(),
            precedence: raw.relation_precedence_policy.unwrap_or_default(),
        })
    }
}
