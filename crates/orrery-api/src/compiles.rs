//! Compiles on the server: asking for one, and what became of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

/// A compile to be asked for. Requests that ask for the same are served together; what each asks for happens.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewCompile {
    /// Chosen by the server if absent; asking twice with one id is asking once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// Whether a version is stored; otherwise the model is only checked.
    pub export: bool,
    /// Fetch the newest sources and modules first.
    pub update: bool,
    /// Start from an empty directory: clone and install anew.
    pub reinstall: bool,
    /// Replace only the resource sets that the model has.
    pub partial: bool,
    /// Sets that are to go; only for a partial compile.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub removed_sets: BTreeSet<String>,
    /// A set that is removed and exported is kept instead of being an error.
    pub soft_delete: bool,
    /// Exporters of modules to run afterwards.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub exporters: BTreeSet<String>,
    /// Environment variables of the compile. Requests that differ in them are not served together.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment_variables: BTreeMap<String, String>,
    /// Environment variables that are joined with those of requests that are served together, by spaces.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mergeable_environment_variables: BTreeMap<String, String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub message: Option<String>,
    /// What else there is to say about the reason; `type` is `api` if absent.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Whether people are told of a failure; if absent, of compiles that store a version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_failed_compile: Option<bool>,
    /// What they are told instead of the usual words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_compile_message: Option<String>,
    /// What belongs to it elsewhere, by kind.
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

/// Where a compile is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CompileState {
    /// It waits for its turn.
    Queued,
    Running,
    Succeeded,
    Failed,
    /// Somebody did not want it any more.
    Cancelled,
}

/// A compile.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Compile {
    pub id: Uuid,
    pub environment: Uuid,
    pub state: CompileState,
    /// Whether it is still under way, or went wrong.
    pub transitioning: crate::Transitioning,
    /// What it is doing, or what went wrong.
    pub transitioning_message: String,
    /// What can be done with it now.
    pub actions: crate::Actions,
    /// When it was asked for.
    pub requested: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<String>,
    /// Known when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    /// The version that came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Whether that version was there before: the compile led to the same resources and the same code.
    #[serde(default)]
    pub unchanged: bool,
    /// The compile whose run serves, or served, this one too.
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
    /// The variables that the run had, those of requests that were served with it included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_environment_variables: Option<BTreeMap<String, String>>,
    pub links: BTreeMap<String, BTreeSet<String>>,
}

/// A compile with all that it said.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompileDetails {
    #[serde(flatten)]
    pub compile: Compile,
    /// Why it failed.
    pub errors: Vec<CompileProblem>,
    pub stages: Vec<CompileStage>,
    /// What the stages wrote after the place that was asked for, oldest first.
    pub output: Vec<CompileOutput>,
    /// Given as `after`, this continues the output.
    pub next: i64,
    /// There is more output already.
    pub more: bool,
}

/// One stage of a compile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompileStage {
    pub position: i64,
    pub name: String,
    pub command: String,
    pub started: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returncode: Option<i64>,
}

/// Something that a stage wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompileOutput {
    /// Grows from piece to piece.
    pub id: i64,
    /// The position of the stage.
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

/// Why a model does not compile, or a compile did not get so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompileProblem {
    /// `parse_error`, `runtime_error`, `plugin_exception`, `export_error`, `stage_error`, `limit` or `cancelled`.
    pub category: String,
    /// The class of the error.
    pub r#type: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<CompileLocation>,
    /// The line of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What can be done about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The kind of error, which has a page in the documentation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// A place in a source, as editors have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompileLocation {
    /// A path in the project, or an absolute one.
    pub uri: String,
    pub range: CompileRange,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompileRange {
    pub start: CompilePosition,
    pub end: CompilePosition,
}

/// Both are counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompilePosition {
    pub line: u32,
    pub character: u32,
}
