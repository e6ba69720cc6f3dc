//! What the server tells the program that compiles, and what that answers: a job on its standard input, a result in a file. What it
//! prints is for people only.

use std::collections::BTreeMap;
use std::path::PathBuf;

use orrery_api::{CompileProblem, VersionUpload};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The hidden command of `orrery` that takes a job.
pub const JOB_COMMAND: &str = "compile-job";

/// Something to do for a compile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub task: Task,
    pub project: PathBuf,
    /// Where the virtualenv of the project is, or is made.
    pub virtualenv: PathBuf,
    /// Where `Fetch` leaves what it found out for `Install`.
    pub fetched: PathBuf,
    pub environment: Uuid,
    pub environment_name: String,
    pub server: JobServer,
    /// What is known, for the model to ask for.
    #[serde(default)]
    pub parameters: Vec<JobParameter>,
    /// Exporters of modules to run after the model was compiled.
    #[serde(default)]
    pub exporters: Vec<String>,
    /// Where contents of files go, each under its SHA-1.
    pub contents: PathBuf,
    /// Where the result goes.
    pub result: PathBuf,
    /// Modules may come from repositories of the server's own machine.
    #[serde(default)]
    pub local_repositories: bool,
    /// Bytes that the model may need; `None` for the usual limit.
    #[serde(default)]
    pub memory_max: Option<u64>,
}

/// Where the server is, for models that ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobServer {
    pub host: String,
    pub port: u16,
    pub tls: bool,
    /// The certificates by which it is recognized, as PEM.
    pub ca: String,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Clones modules from the repositories of the project: by git, with the server's own identity, and without any code of tenants.
    Fetch,
    /// The same, with the newest versions that the requirements allow.
    FetchUpdates,
    /// Makes the Python environment that the project needs, if it needs one.
    Install,
    /// The same, with the newest versions that the requirements allow.
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

/// What came of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobResult {
    /// What the model wants, if it compiled.
    #[serde(default)]
    pub upload: Option<VersionUpload>,
    /// Contents that the upload refers to, by SHA-1, with their sizes.
    #[serde(default)]
    pub contents: BTreeMap<String, u64>,
    /// Why it did not compile.
    #[serde(default)]
    pub errors: Vec<CompileProblem>,
}
