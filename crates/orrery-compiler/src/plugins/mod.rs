//! Plugins that are written in Rust: their signatures, what they may ask of the compiler, and how
//! they fail. The standard library's plugins live in the files beside this one.
//!
//! A plugin sees evaluated, validated arguments. It may read attributes of instances; one that is
//! not there yet ends the call with `Failure::Unset`, and the call is made again, from scratch,
//! once that value has arrived.

mod address;
mod args;
mod environment;
mod exec;
mod files;
mod format;
mod ip;
mod json;
mod lists;
mod network;
mod references;
mod reflection;
mod strings;
mod template;
mod validate;

use std::sync::LazyLock;

use orrery_python::PyError;
use orrery_syntax::Explanation;

use crate::project::TemplateMode;
use crate::value::{Heap, InstanceId, Value};

/// Number of a cell that a call has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellId(pub u32);

/// Why a plugin call gave no value.
#[derive(Debug)]
pub enum Failure {
    /// These cells have no value yet: call again when they have.
    Unset(Vec<CellId>),
    /// The plugin read an unknown: it is the result of the call.
    Unknown(Value),
    /// An optional relation without a value was read: `(entity.relation, instance)`.
    Optional {
        relation: String,
        instance: InstanceId,
        /// The error is placed at the call.
        placed: bool,
    },
    /// The plugin's own complaint (the reference's `PluginException`).
    Plugin(String),
    /// Only the plugin of the same name in another language can do this; if there is none, it fails so.
    NotHere(Box<Failure>),
    /// An error of the compiler itself with this message (the reference's `RuntimeException`), to be
    /// placed at the call.
    Runtime(String),
    /// An argument that does not fit its parameter, which shows only when it is converted.
    Argument { name: String, value: String, reason: String },
    /// A failure in a file that the plugin reads, such as a template.
    InFile(Box<FileFailure>),
    /// What would be a Python exception of another kind.
    Python(PyError),
    /// An exception in a plugin that is not written in Rust: its class, with the module that Python's
    /// tracebacks have before it, and its text. `explicit`: it is the plugin's own complaint
    /// (a `PluginException` or one derived from it).
    Exception { class: String, message: String, explicit: bool },
}

impl From<PyError> for Failure {
    fn from(error: PyError) -> Self {
        Failure::Python(error)
    }
}

impl Failure {
    pub fn python(kind: &'static str, message: impl Into<String>) -> Self {
        Failure::Python(PyError { kind, message: message.into() })
    }

    /// The failure as programs know it: without its place in another file.
    pub fn plain(self) -> Self {
        match self {
            Failure::InFile(of) => of.failure.plain(),
            other => other,
        }
    }
}

/// A failure that people are told in other words, with its place in a file that is no part of the
/// model.
#[derive(Debug)]
pub struct FileFailure {
    pub failure: Failure,
    /// Its page is `docs/diagnostics/ID.md`.
    pub id: &'static str,
    pub explanation: Explanation,
    pub place: Option<FilePlace>,
}

/// A line of a file that is no part of the model.
#[derive(Clone, Debug)]
pub struct FilePlace {
    pub path: String,
    pub text: String,
    /// From 1.
    pub line: usize,
    /// What is underlined of the line; if it is not in it, all of it is.
    pub word: String,
    pub label: String,
    /// Another line with the word to underline and its label.
    pub related: Option<(usize, String, String)>,
}

pub type Outcome = Result<Value, Failure>;

/// What a plugin may ask of the compiler and of the world. Everything outside goes through here, so
/// that plugins are tested without a project.
pub trait Context {
    fn heap(&self) -> &Heap;
    fn heap_mut(&mut self) -> &mut Heap;

    /// Reads an attribute or relation as a plugin sees it. `Ok(None)`: the entity has no such attribute.
    fn attribute(&mut self, instance: InstanceId, name: &str) -> Result<Option<Value>, Failure>;
    /// Fully qualified name of the instance's entity.
    fn entity_name(&self, instance: InstanceId) -> String;
    /// An instance as messages name it: `std::Host (instantiated at ./main.cf:3)`.
    fn describe(&self, instance: InstanceId) -> String;
    /// Whether a value is of the named type (entity, typedef or primitive; looked up as the model would
    /// with its full name). `Err` if there is no such type.
    fn is_of_type(&mut self, value: Value, type_name: &str) -> Result<bool, Failure>;

    /// Python's `repr` of a value as model values print inside lists (`'a'`, `1.0`, `null`, instances by type and number).
    fn repr(&self, value: Value) -> String;
    /// Python's `str` of what a plugin gets for a value: proxies of lists, dicts and instances begin with `@`.
    fn proxy_str(&self, value: Value) -> String;

    /// A line on the model's output.
    fn print(&mut self, text: &str);
    /// A warning that does not end the compile.
    fn warn(&mut self, text: &str);

    /// A variable as the calling statement sees it (for templates). `Ok(None)`: not found.
    fn variable(&mut self, name: &str) -> Result<Option<Value>, Failure>;
    /// The names of all variables that `variable` would find, to suggest one of them.
    fn variable_names(&self) -> Vec<String>;
    /// The names of all attributes and relations of an instance.
    fn attribute_names(&self, instance: InstanceId) -> Vec<String>;
    /// Treatment of attributes that a template reads and their entity does not declare.
    fn template_mode(&self) -> TemplateMode;
    /// A path as messages name it.
    fn show_path(&self, path: &str) -> String;
    /// Calls another plugin by its full name with positional arguments (templates use plugins as filters).
    fn call(&mut self, plugin: &str, args: &[Value]) -> Outcome;
    /// Whether a plugin of that full name exists.
    fn has_plugin(&self, plugin: &str) -> bool;

    /// Namespace of the file that holds the calling statement, e.g. `std::testing` or `__config__`.
    fn caller_namespace(&self) -> String;
    /// Root directory of a loaded module, `None` if it is not loaded; the built-in ones have virtual paths.
    fn module_dir(&self, module: &str) -> Option<String>;
    /// Directory of the project.
    fn project_dir(&self) -> String;
    /// What a path below a module's or the project's directory is.
    fn file_kind(&self, path: &str) -> FileKind;
    /// Text of a file below a module's or the project's directory. The error is for people.
    fn read_text(&self, path: &str) -> Result<String, String>;
    /// Names in a directory, sorted; error as above.
    fn list_dir(&self, path: &str) -> Result<Vec<String>, String>;
    fn write_text(&mut self, path: &str, text: &str) -> Result<(), String>;
    fn environment_variable(&self, name: &str) -> Option<String>;
    /// The facts that are known about deployed resources; `None` if nothing is ever deployed.
    fn facts(&self) -> Option<&dyn Facts>;
    /// The environment of a server that the model is compiled for; `None` if it is for none.
    fn server(&self) -> Option<&ServerSide>;
    /// How an instance becomes a resource: by its own entity, or the nearest one above that is declared to be one.
    fn identity(&self, instance: InstanceId) -> Option<Identity>;
    /// Seconds since the epoch.
    fn now(&self) -> f64;
    /// Random bytes for generated passwords.
    fn random_bytes(&mut self, count: usize) -> Vec<u8>;
}

/// What is known about deployed resources.
pub trait Facts: std::fmt::Debug + Send + Sync {
    /// A fact by the id of the resource and its name.
    fn fact(&self, id: &str, name: &str) -> Option<String>;
}

/// What the id of a resource is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub entity: String,
    /// The way to the name of the agent, by attributes and relations: `host.name`.
    pub agent: String,
    pub attribute: String,
    /// Only code can say what the attribute is.
    pub computed: bool,
    pub declared: DeclaredBy,
}

/// Where it is declared how instances of an entity become resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclaredBy {
    /// In this program, for one of its own modules.
    Program,
    /// In the code of a module.
    Code,
    /// In the code of a module, and in this program: the class of the module counts, also for descendants of the entity.
    CodeInstead,
}

/// The environment of a server that a model is compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSide {
    /// The id of the environment.
    pub environment: String,
    pub environment_name: String,
    /// Where the server is reached.
    pub host: String,
    pub port: u16,
    /// Whether connections to it are encrypted.
    pub tls: bool,
    /// The certificates by which it is recognized, as PEM; may be empty.
    pub ca: String,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Missing,
    File,
    Directory,
}

/// Kinds of parameters, as in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    Normal,
    /// `*args`: arrives as one list value.
    VarPositional,
    KeywordOnly,
    /// `**kwargs`: arrives as one dict value.
    VarKeyword,
}

/// Default of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum ParamDefault {
    Required,
    Null,
    Bool(bool),
    Int(i64),
    Str(&'static str),
    /// A list of texts.
    Strs(&'static [&'static str]),
}

#[derive(Clone, Copy, Debug)]
pub struct Param {
    pub name: &'static str,
    /// A type as the model writes it (`string`, `int?`, `std::Host`, `string[]`, `any`, `list`, `dict`), or one
    /// that only plugins have: `Reference[any] | any`, `(Reference[any] | any)[]`, `dict[string, any]`,
    /// `Reference[string] | string`. Messages print it as it stands here.
    pub ty: &'static str,
    pub default: ParamDefault,
    pub kind: ParamKind,
}

pub type Run = fn(&mut dyn Context, &[Value]) -> Outcome;

/// A plugin in Rust. Arguments arrive in parameter order with defaults filled in.
#[derive(Clone, Copy, Debug)]
pub struct NativePlugin {
    /// Full name, `std::count`.
    pub name: &'static str,
    pub params: &'static [Param],
    /// Type of the result; `any` where nothing is checked.
    pub returns: &'static str,
    pub allow_unknown: bool,
    /// The name of the plugin that replaces it, if it is deprecated: `Some("")` for none.
    pub deprecated: Option<&'static str>,
    pub run: Run,
}

/// Plugins whose values only the code of the same name can make use of later on: they give way to it.
pub(crate) fn yields(name: &str) -> bool {
    name.starts_with("std::create_") && name.ends_with("_reference")
}

impl NativePlugin {
    /// What most entries of the tables have in common.
    const BASE: NativePlugin = NativePlugin {
        name: "",
        params: &[],
        returns: "any",
        allow_unknown: false,
        deprecated: None,
        run: |_, _| Ok(Value::Null),
    };
}

/// All plugins that are written in Rust, sorted by name.
pub fn native_plugins() -> &'static [NativePlugin] {
    static ALL: LazyLock<Vec<NativePlugin>> = LazyLock::new(|| {
        let mut all = [
            environment::PLUGINS,
            exec::PLUGINS,
            files::PLUGINS,
            format::PLUGINS,
            ip::PLUGINS,
            json::PLUGINS,
            lists::PLUGINS,
            network::PLUGINS,
            references::PLUGINS,
            reflection::PLUGINS,
            strings::PLUGINS,
            template::PLUGINS,
            validate::PLUGINS,
        ]
        .concat();
        all.sort_unstable_by_key(|plugin| plugin.name);
        all
    });
    &ALL
}
