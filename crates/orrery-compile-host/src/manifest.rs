//! Manifest of a compile host: plugins, dataclasses and resource classes of modules.

use std::path::PathBuf;

use orrery_compiler::export::ResourceClass;
use orrery_compiler::host::{
    ClassProblem, CodeLocation, Dataclass, DefaultValue, PluginParameter, Signature,
};
use orrery_compiler::plugins::ParamKind;
use orrery_model::{Reach, ResourceType};
use serde::Deserialize;
use serde_json::Value as Json;

use orrery_host::handshake::ModuleProblem;

#[derive(Debug, Default, Deserialize)]
pub(super) struct LoadReport {
    #[serde(default)]
    pub(super) problems: Vec<ModuleProblem>,
    #[serde(default)]
    pub(super) warnings: Vec<String>,
    #[serde(default)]
    plugins: Vec<Plugin>,
    #[serde(default)]
    resources: Vec<Resource>,
    #[serde(default)]
    pub(super) handlers: Vec<String>,
    #[serde(default)]
    pub(super) machine_handlers: Vec<String>,
    #[serde(default)]
    dataclasses: Vec<Class>,
    #[serde(default)]
    pub(super) managers: u32,
    #[serde(default)]
    pub(super) finalizers: u32,
    #[serde(default)]
    pub(super) exporters: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Plugin {
    name: String,
    params: Vec<Param>,
    #[serde(default)]
    returns: Option<String>,
    #[serde(default)]
    allow_unknown: bool,
    #[serde(default)]
    deprecated: Option<String>,
    #[serde(default)]
    context: bool,
    /// Reason that no model can call it, such as a parameter without a type.
    #[serde(default)]
    problem: Option<String>,
    #[serde(default)]
    file: Option<PathBuf>,
    #[serde(default)]
    line: u32,
}

#[derive(Debug, Deserialize)]
struct Param {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    default: Option<serde_json::Map<String, Json>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Normal,
    Varargs,
    Keyword,
    Varkwargs,
}

#[derive(Debug, Deserialize)]
struct Resource {
    entity: String,
    /// Module that defines the class.
    #[serde(default)]
    module: Option<String>,
    agent: String,
    id: String,
    fields: Vec<String>,
    #[serde(default)]
    getters: Vec<String>,
    #[serde(default)]
    problem: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Class {
    entity: String,
    #[serde(default)]
    fields: Vec<(String, Option<String>)>,
    #[serde(default)]
    problem: Option<Problem>,
    #[serde(default)]
    file: Option<PathBuf>,
    #[serde(default)]
    line: u32,
}

/// Problem of a class: its kind, and details as Python reports them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "detail")]
enum Problem {
    NoModule(String),
    NotDataclass,
    NotFrozen,
    BadAnnotation(String),
}

impl From<Problem> for ClassProblem {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::NoModule(module) => ClassProblem::NoModule(module),
            Problem::NotDataclass => ClassProblem::NotDataclass,
            Problem::NotFrozen => ClassProblem::NotFrozen,
            Problem::BadAnnotation(text) => ClassProblem::BadAnnotation(text),
        }
    }
}

fn module_of(entity: &str) -> &str {
    entity.split("::").next().unwrap_or(entity)
}

fn code_location(file: Option<PathBuf>, line: u32) -> Option<CodeLocation> {
    file.map(|file| CodeLocation { file, line })
}

impl LoadReport {
    /// Returns the plugins' signatures, each with a flag for the use of a context.
    pub(super) fn take_plugins(&mut self) -> (Vec<Signature>, Vec<bool>) {
        std::mem::take(&mut self.plugins).into_iter().map(Plugin::signature).unzip()
    }

    /// Returns the problem of the first plugin that no model can call.
    pub(super) fn plugin_problem(&self) -> Option<String> {
        self.plugins.iter().find_map(|plugin| plugin.problem.clone())
    }

    pub(super) fn take_dataclasses(&mut self) -> Vec<Dataclass> {
        let class = |class: Class| Dataclass {
            entity: class.entity,
            fields: class.fields,
            problem: class.problem.map(Into::into),
            location: code_location(class.file, class.line),
        };
        std::mem::take(&mut self.dataclasses).into_iter().map(class).collect()
    }

    pub(super) fn take_resources(&mut self) -> Vec<ResourceClass> {
        let class = |(number, of): (u32, Resource)| ResourceClass {
            number,
            module: of.module.unwrap_or_else(|| module_of(&of.entity).to_owned()),
            declaration: ResourceType {
                entity: of.entity.into(),
                agent: of.agent.into(),
                id_attribute: of.id.into(),
                fields: of.fields.into_iter().map(Into::into).collect::<Vec<_>>().into(),
                parts: Vec::new().into(),
                // The reach of its handler is known only at run time.
                reach: Reach::Outward,
                is_path: false,
            },
            computed: of.getters,
            problem: of.problem,
        };
        (0..).zip(std::mem::take(&mut self.resources)).map(class).collect()
    }
}

impl Plugin {
    fn signature(self) -> (Signature, bool) {
        let signature = Signature {
            name: self.name.into(),
            params: self.params.into_iter().map(Param::parameter).collect(),
            returns: self.returns.unwrap_or_else(|| "any".to_owned()).into(),
            allow_unknown: self.allow_unknown,
            deprecated: self.deprecated.map(Into::into),
            location: code_location(self.file, self.line),
        };
        (signature, self.context)
    }
}

impl Param {
    fn parameter(self) -> PluginParameter {
        let default = match self.default {
            None => DefaultValue::Required,
            Some(given) => match given.get("value") {
                None => DefaultValue::HostOwned,
                Some(value) => default_value(value),
            },
        };
        let kind = match self.kind {
            Kind::Normal => ParamKind::Normal,
            Kind::Varargs => ParamKind::VarPositional,
            Kind::Keyword => ParamKind::KeywordOnly,
            Kind::Varkwargs => ParamKind::VarKeyword,
        };
        PluginParameter { name: self.name.into(), ty: self.ty.into(), default, kind }
    }
}

fn default_value(value: &Json) -> DefaultValue {
    match value {
        Json::Null => DefaultValue::Null,
        Json::Bool(bool) => DefaultValue::Bool(*bool),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(int), _) => DefaultValue::Int(int),
            (None, Some(float)) => DefaultValue::Float(float),
            (None, None) => DefaultValue::HostOwned,
        },
        Json::String(text) => DefaultValue::Str(text.clone().into()),
        Json::Array(items) => DefaultValue::List(items.iter().map(default_value).collect()),
        Json::Object(_) => DefaultValue::HostOwned,
    }
}
