//! Compiles on the server: requests and results.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::Time;
use crate::string_enum::string_enums;

/// A compile request. Equal requests are merged into one run that satisfies all of them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewCompile {
    /// Chosen by the server if absent. Two requests with the same id are one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// Stores a version. Otherwise the model is only checked.
    pub export: bool,
    /// Fetches the newest sources and modules first.
    pub update: bool,
    /// Starts from an empty directory: clones and installs everything again.
    pub reinstall: bool,
    /// Replaces only the resource sets that the model defines.
    pub partial: bool,
    /// Resource sets to remove. Only for a partial compile.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub removed_sets: BTreeSet<String>,
    /// Keeps a set that is both removed and exported, instead of failing.
    pub soft_delete: bool,
    /// Exporters of modules to run after the compile.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub exporters: BTreeSet<String>,
    /// Environment variables of the compile. Requests with different ones are not merged.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment_variables: BTreeMap<String, String>,
    /// Environment variables that are joined by spaces when requests are merged.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mergeable_environment_variables: BTreeMap<String, String>,
    /// Reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub message: Option<String>,
    /// Metadata of the request; `type` defaults to `api`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Creates a notification on failure. Default: only for compiles that store a version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_failed_compile: Option<bool>,
    /// Text of that notification, instead of the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_compile_message: Option<String>,
    /// External links that belong to the compile, by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, BTreeSet<String>>,
}

impl Default for NewCompile {
    fn default() -> Self {
        NewCompile {
            id: None,
            export: true,
            update: false,
            reinstall: false,
            partial: false,
            removed_sets: BTreeSet::new(),
            soft_delete: false,
            exporters: BTreeSet::new(),
            environment_variables: BTreeMap::new(),
            mergeable_environment_variables: BTreeMap::new(),
            message: None,
            metadata: Map::new(),
            notify_failed_compile: None,
            failed_compile_message: None,
            links: BTreeMap::new(),
        }
    }
}

string_enums! {
    /// Category of a compile error.
    pub enum ProblemCategory {
        Parse = "parse_error",
        Runtime = "runtime_error",
        Plugin = "plugin_exception",
        Export = "export_error",
        Stage = "stage_error",
        Limit = "limit",
        Cancelled = "cancelled",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro of these enums derives no default")]
impl Default for ProblemCategory {
    fn default() -> Self {
        ProblemCategory::Stage
    }
}

/// State of a compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CompileState {
    /// Waiting in the queue.
    Queued,
    Running,
    Succeeded,
    Failed,
    /// Cancelled by a client.
    Cancelled,
}

/// A compile.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Compile {
    pub id: Uuid,
    pub environment: Uuid,
    pub state: CompileState,
    /// `yes` while in progress, `error` after a failure.
    pub transitioning: crate::Transitioning,
    /// Current activity, or the error.
    pub transitioning_message: String,
    /// Available actions.
    pub actions: crate::Actions,
    /// Time of the request.
    pub requested: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Time>,
    /// Absent until the compile has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    /// The resulting version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// True if that version existed before: the compile produced the same resources and code.
    #[serde(default)]
    pub unchanged: bool,
    /// The compile that serves this request as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substitute: Option<Uuid>,
    pub export: bool,
    pub update: bool,
    pub reinstall: bool,
    pub partial: bool,
    pub removed_sets: BTreeSet<String>,
    pub metadata: Map<String, Value>,
    pub environment_variables: BTreeMap<String, String>,
    pub mergeable_environment_variables: BTreeMap<String, String>,
    /// Environment variables of the run, including those of merged requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_environment_variables: Option<BTreeMap<String, String>>,
    pub links: BTreeMap<String, BTreeSet<String>>,
}

/// A compile with its stages, errors and output.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompileDetails {
    #[serde(flatten)]
    pub compile: Compile,
    /// Errors of a failed compile.
    pub errors: Vec<CompileProblem>,
    pub stages: Vec<CompileStage>,
    /// Output after the requested position, oldest first.
    pub output: Vec<CompileOutput>,
    /// Position to pass as `after` to continue the output.
    pub next: i64,
    /// True if more output is available already.
    pub more: bool,
}

/// One stage of a compile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompileStage {
    pub position: i64,
    pub name: String,
    pub command: String,
    pub started: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returncode: Option<i64>,
}

/// A piece of output of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompileOutput {
    /// Increasing number.
    pub id: i64,
    /// Position of the stage.
    pub stage: i64,
    pub stream: OutputStream,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    Out,
    Err,
}

/// An error of a compile: of the model, or before it was evaluated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompileProblem {
    pub category: ProblemCategory,
    /// Class of the error.
    pub r#type: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<CompileLocation>,
    /// Line of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Id of the diagnostic, which has a page in the documentation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// A range in a source file, as editors represent it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompileLocation {
    /// Path in the project, or absolute path.
    pub uri: String,
    pub range: CompileRange,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompileRange {
    pub start: CompilePosition,
    pub end: CompilePosition,
}

/// Line and character, both counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompilePosition {
    pub line: u32,
    pub character: u32,
}
