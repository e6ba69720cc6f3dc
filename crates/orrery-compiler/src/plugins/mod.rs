//! Plugins written in Rust: their signatures, the services of the compiler, and their failures. The
//! standard library's plugins are in the files beside this one.
//!
//! A plugin receives evaluated, validated arguments. It may read attributes of instances; one
//! without a value ends the call with `Failure::Unset`, and the call is repeated from scratch once
//! that value has arrived.

mod address;
mod agents;
mod args;
mod environment;
mod exec;
mod files;
mod format;
mod ip;
mod json;
mod late_values;
mod lists;
mod machines;
mod network;
mod reflection;
mod strings;
mod template;
mod validate;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use orrery_python::PyError;
use orrery_syntax::Explanation;

use crate::project::TemplateMode;
use crate::value::{Heap, InstanceId, Value};

/// Number of a cell that a call has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellId(pub u32);

/// Failure of a plugin call.
#[derive(Debug)]
pub enum Failure {
    /// These cells have no value yet: repeat the call when they have.
    Unset(Vec<CellId>),
    /// The plugin read an unknown, which is the result of the call.
    Unknown(Value),
    /// An empty optional relation was read: `(entity.relation, instance)`.
    Optional {
        relation: String,
        instance: InstanceId,
        /// The error is attributed to the call.
        placed: bool,
    },
    /// An error raised by the plugin itself (the reference compiler's `PluginException`).
    Plugin(String),
    /// Only the plugin of the same name in another language supports this; if there is none, the
    /// inner failure applies.
    NeedsOtherHost(Box<Failure>),
    /// An error of the compiler itself with this message (the reference compiler's
    /// `RuntimeException`), attributed to the call.
    Runtime(String),
    /// An argument that fails conversion to its parameter's type.
    Argument { name: String, value: String, reason: String },
    /// A failure in a file that the plugin reads, such as a template.
    InFile(Box<FileFailure>),
    /// The equivalent of another Python exception.
    Python(PyError),
    /// An exception in a plugin that is not written in Rust: its class, qualified as in Python's
    /// tracebacks, and its text. `explicit`: the plugin raised it deliberately (a `PluginException`
    /// or a subclass).
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

    /// The failure without its location in another file, for programs.
    #[must_use]
    pub fn without_location(self) -> Self {
        match self {
            Failure::InFile(of) => of.failure.without_location(),
            other => other,
        }
    }
}

/// A failure with a user-facing explanation and a location in a file outside of the model.
#[derive(Debug)]
pub struct FileFailure {
    pub failure: Failure,
    /// Diagnostic id; its page is `docs/diagnostics/ID.md`.
    pub id: &'static str,
    pub explanation: Explanation,
    pub location: Option<FileLocation>,
}

/// A line of a file outside of the model.
#[derive(Clone, Debug)]
pub struct FileLocation {
    pub path: String,
    pub text: String,
    /// Line, from 1.
    pub line: usize,
    /// The underlined part of the line; if absent, the whole line.
    pub word: String,
    pub label: String,
    /// Another line with the word to underline and its label.
    pub related: Option<(usize, String, String)>,
}

pub type PluginResult = Result<Value, Failure>;

/// Services of the compiler and the outside world for plugins. All access goes through this trait,
/// so that plugins are tested without a project.
pub trait PluginContext {
    fn heap(&self) -> &Heap;
    fn heap_mut(&mut self) -> &mut Heap;

    /// Reads an attribute or relation. `Ok(None)`: the entity has no such attribute.
    fn attribute(&mut self, instance: InstanceId, name: &str) -> Result<Option<Value>, Failure>;
    /// Fully qualified name of the instance's entity.
    fn entity_name(&self, instance: InstanceId) -> String;
    /// Description of an instance for messages: `std::Host (instantiated at ./main.cf:3)`.
    fn describe(&self, instance: InstanceId) -> String;
    /// True if a value is of the named type (entity, typedef or primitive; looked up by its full
    /// name). `Err` if there is no such type.
    fn is_of_type(&mut self, value: Value, type_name: &str) -> Result<bool, Failure>;

    /// Python's `repr` of a value inside lists (`'a'`, `1.0`, `null`, instances by type and
    /// number).
    fn repr(&self, value: Value) -> String;
    /// Python's `str` of the object that a plugin gets for a value: proxies of lists, dicts and
    /// instances begin with `@`.
    fn proxy_str(&self, value: Value) -> String;

    /// Prints a line on the model's output.
    fn print(&mut self, text: &str);
    /// A warning that does not end the compile.
    fn warn(&mut self, text: &str);

    /// Reads a variable as the calling statement sees it (for templates). `Ok(None)`: not found.
    fn variable(&mut self, name: &str) -> Result<Option<Value>, Failure>;
    /// Names of all variables that `variable` would find, for suggestions.
    fn variable_names(&self) -> Vec<String>;
    /// The names of all attributes and relations of an instance.
    fn attribute_names(&self, instance: InstanceId) -> Vec<String>;
    /// Treatment of undeclared attributes in templates.
    fn template_mode(&self) -> TemplateMode;
    /// The display form of a path.
    fn show_path(&self, path: &str) -> String;
    /// Calls another plugin by its full name with positional arguments (templates use plugins as
    /// filters).
    fn call(&mut self, plugin: &str, args: &[Value]) -> PluginResult;
    /// True if a plugin of that full name exists.
    fn has_plugin(&self, plugin: &str) -> bool;

    /// Namespace of the file that holds the calling statement, e.g. `std::testing` or `__config__`.
    fn caller_namespace(&self) -> String;
    /// Root directory of a loaded module, `None` if it is not loaded; built-in modules have virtual
    /// paths.
    fn module_dir(&self, module: &str) -> Option<String>;
    /// Directory of the project.
    fn project_dir(&self) -> String;
    /// Kind of file at a path below a module's or the project's directory.
    fn file_kind(&self, path: &str) -> PathKind;
    /// Text of a file below a module's or the project's directory. The error is user-facing.
    fn read_text(&self, path: &str) -> Result<String, String>;
    /// Names in a directory, sorted; error as above.
    fn list_dir(&self, path: &str) -> Result<Vec<String>, String>;
    fn write_text(&mut self, path: &str, text: &str) -> Result<(), String>;
    fn environment_variable(&self, name: &str) -> Option<String>;
    /// Facts of deployed resources; `None` if nothing is ever deployed.
    fn facts(&self) -> Option<&dyn Facts>;
    /// Adds the resource that provides the facts of a machine to the export.
    fn request_machine_facts(&mut self, machine: &str);
    /// The server environment that the model is compiled for, if any.
    fn server(&self) -> Option<&ServerEnvironmentInfo>;
    /// The resource identity of an instance: declared by its own entity or its nearest declared
    /// ancestor.
    fn identity(&self, instance: InstanceId) -> Option<ResourceIdentity>;
    /// Seconds since the epoch.
    fn now(&self) -> f64;
    /// Random bytes for generated passwords.
    fn random_bytes(&mut self, count: usize) -> Vec<u8>;
}

/// Facts of deployed resources.
pub trait Facts: std::fmt::Debug + Send + Sync {
    /// Looks up a fact by resource id and name.
    fn fact(&self, id: &str, name: &str) -> Option<String>;

    /// All facts of a resource, if `probe` is one of them: a lookup of `probe`.
    fn facts_with(&self, id: &str, probe: &str) -> Option<BTreeMap<String, String>>;
}

/// Components of a resource id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceIdentity {
    pub entity: String,
    /// Path to the agent name, by attributes and relations: `host.name`.
    pub agent: String,
    pub attribute: String,
    /// True if only module code can compute the attribute.
    pub computed: bool,
    pub declared: DeclaredBy,
}

/// Source of the declaration that makes instances resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclaredBy {
    /// Built into the program, for a built-in module.
    Program,
    /// In the code of a module.
    Code,
    /// In module code and in this program: the module's class wins, also for descendants of the
    /// entity.
    CodeInstead,
}

/// A server environment that a model is compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEnvironmentInfo {
    /// The id of the environment.
    pub environment: String,
    pub environment_name: String,
    /// Host name of the server.
    pub host: String,
    pub port: u16,
    /// True if connections use TLS.
    pub tls: bool,
    /// Trusted certificates of the server, as PEM; may be empty.
    pub ca: String,
}

/// Kind of file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
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
    /// A type in model syntax (`string`, `int?`, `std::Host`, `string[]`, `any`, `list`, `dict`),
    /// or a plugin-only type: `Reference[any] | any`, `(Reference[any] | any)[]`, `dict[string,
    /// any]`, `Reference[string] | string`. Messages print it verbatim.
    pub ty: &'static str,
    pub default: ParamDefault,
    pub kind: ParamKind,
}

pub type PluginFn = fn(&mut dyn PluginContext, &[Value]) -> PluginResult;

/// A plugin in Rust. Arguments arrive in parameter order with defaults filled in.
#[derive(Clone, Copy, Debug)]
pub struct NativePlugin {
    /// Full name, `std::count`.
    pub name: &'static str,
    pub params: &'static [Param],
    /// Type of the result; `any` is unchecked.
    pub returns: &'static str,
    pub allow_unknown: bool,
    /// Replacement of a deprecated plugin: `Some("")` if there is none.
    pub deprecated: Option<&'static str>,
    pub run: PluginFn,
}

/// True for plugins with values that only module code can process later: module code
/// takes precedence.
pub(crate) fn yields_to_module_code(name: &str) -> bool {
    name.starts_with("std::create_") && name.ends_with("_reference")
}

impl NativePlugin {
    /// Common defaults of the tables.
    const BASE: NativePlugin = NativePlugin {
        name: "",
        params: &[],
        returns: "any",
        allow_unknown: false,
        deprecated: None,
        run: |_, _| Ok(Value::Null),
    };
}

/// All plugins written in Rust, sorted by name.
pub fn native_plugins() -> &'static [NativePlugin] {
    static ALL: LazyLock<Vec<NativePlugin>> = LazyLock::new(|| {
        let mut all = [
            environment::PLUGINS,
            exec::PLUGINS,
            agents::PLUGINS,
            files::PLUGINS,
            format::PLUGINS,
            ip::PLUGINS,
            json::PLUGINS,
            lists::PLUGINS,
            machines::PLUGINS,
            network::PLUGINS,
            late_values::PLUGINS,
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
