//! Protocol between the server and the compiling child process: a job on standard input, a result
//! in a file. The output is only for people.

use std::collections::BTreeMap;
use std::path::PathBuf;

use orrery_api::{CompileProblem, VersionUpload};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Hidden command of `orrery` that runs a job.
pub const JOB_COMMAND: &str = "compile-job";

/// One step of a compile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CompileJob {
    pub task: CompileStep,
    pub project: PathBuf,
    /// Path of the project's virtualenv.
    pub virtualenv: PathBuf,
    /// File with the metadata that `Fetch` writes for `Install`.
    pub fetched: PathBuf,
    pub environment: Uuid,
    pub environment_name: String,
    pub server: JobServer,
    /// Parameters and facts for the model.
    #[serde(default)]
    pub parameters: Vec<JobParameter>,
    /// Exporters to run after the compile.
    #[serde(default)]
    pub exporters: Vec<String>,
    /// Directory for file contents, each named by its SHA-1.
    pub contents: PathBuf,
    /// Path of the result file.
    pub result: PathBuf,
    /// Allows module repositories on the server's own machine.
    #[serde(default)]
    pub local_repositories: bool,
    /// Memory limit of the model in bytes; `None` for the default.
    #[serde(default)]
    pub memory_max: Option<u64>,
}

/// Address of the server, for models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobServer {
    pub host: String,
    pub port: u16,
    pub tls: bool,
    /// Certificates to trust, as PEM.
    pub ca: String,
}

/// Kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompileStep {
    /// Clones modules from the project's repositories: by git, with the server's identity, without
    /// tenant code.
    Fetch,
    /// Like the previous one, with the newest versions that the requirements allow.
    FetchUpdates,
    /// Creates the project's virtualenv, if it needs one.
    Install,
    /// Like the previous one, with the newest versions that the requirements allow.
    Update,
    Compile,
}

/// A parameter of the environment, or a fact of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobParameter {
    pub name: String,
    pub value: String,
    /// `None` for a parameter.
    #[serde(default)]
    pub resource: Option<String>,
    pub source: String,
}

/// Result of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobResult {
    /// The compiled version.
    #[serde(default)]
    pub upload: Option<VersionUpload>,
    /// File contents of the upload, by SHA-1, with their sizes.
    #[serde(default)]
    pub contents: BTreeMap<String, u64>,
    /// Errors of a failed compile.
    #[serde(default)]
    pub errors: Vec<CompileProblem>,
}
