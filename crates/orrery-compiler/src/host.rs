//! Hosts run plugins. The compiler asks a host for the plugins of the loaded modules and executes
//! every call through it; the plugin's language and process are up to the host.
//!
//! `NativeHost` provides the plugins written in Rust. A host for another language is the second
//! layer of a `LayeredHost`, and is responsible for the modules with code that it can load:
//!
//! ```text
//! compile_with(&files, &options, &mut LayeredHost::new(NativeHost, host))
//! ```
//!
//! A call may end with `Failure::Unset`: the plugin has read a cell without a value. The compiler
//! stores the arguments, waits, and repeats the call from scratch.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::PathBuf;

use orrery_syntax::ast::Loc;

use crate::export::ResourceClass;
use crate::load::{Module, Origin};
use crate::plugins::{
    CellId, Failure, NativePlugin, Param, ParamDefault, ParamKind, PluginContext, PluginResult,
    native_plugins, yields_to_module_code,
};
use crate::program::{EntityId, Program};
use crate::source::Sources;
use crate::value::{Heap, InstanceId, Value};

/// A text that is part of the program or comes from a host.
pub type Text = Cow<'static, str>;

/// Runs plugins.
pub trait Host {
    /// True if it can load the code of a module. Other modules are left to other hosts.
    fn can_load(&self, module: &Module) -> bool;

    /// Loads the code of modules and returns their plugins. Called once per compile, before
    /// definitions are processed, with all loadable modules in the order in which the model loaded
    /// them. A plugin's position in the result is its number from then on.
    fn load(&mut self, modules: &[Module]) -> Result<Manifest, LoadError>;

    /// Executes a call. The arguments fit their types. A plugin may call others through the
    /// context, so calls can be nested; they end in reverse order.
    fn call(&self, call: &PluginCall<'_>, context: &mut dyn HostContext) -> PluginResult;

    /// True if calls of a plugin may be batched and run before their turn: it reads only its
    /// arguments and returns only plain values.
    fn can_batch(&self, _plugin: u32) -> bool {
        false
    }

    /// Executes several calls in order and returns the outcome of each.
    fn call_many(
        &self,
        calls: &[PluginCall<'_>],
        context: &mut dyn HostContext,
    ) -> Vec<PluginResult> {
        calls.iter().map(|call| self.call(call, context)).collect()
    }

    /// True if it loads the code of built-in modules even if there is no other code.
    fn loads_builtin_modules(&self) -> bool {
        false
    }

    /// Registers modules with code that is loaded only when a call needs it.
    fn defer_load(&mut self, _modules: &[Module]) {}

    /// Calls a plugin for another host, if its plugin of that name cannot serve the call; `None` if
    /// this host has none either.
    fn call_fallback(
        &self,
        _signature: &Signature,
        _call: &PluginCall<'_>,
        _context: &mut dyn HostContext,
    ) -> Option<PluginResult> {
        None
    }

    /// Runs finalizers at the end of each compile, successful or not.
    fn finalize(&mut self, _succeeded: bool) -> FinalizerReport {
        FinalizerReport::default()
    }
}

/// Read access to instances, during or after a compile.
pub trait InstanceView {
    fn program(&self) -> &Program;
    fn sources(&self) -> &Sources;
    fn values(&self) -> &Heap;
    fn instance_count(&self) -> usize;
    fn entity_of(&self, instance: InstanceId) -> EntityId;
    /// State of a slot of an instance.
    fn slot(&self, instance: InstanceId, slot: u32) -> SlotState;
    /// State of a top-level variable, by its cell.
    fn global(&self, cell: u32) -> SlotState;
    fn constructed_at(&self, instance: InstanceId) -> Loc;
    /// Description of an instance for messages.
    fn description(&self, instance: InstanceId) -> String;
}

/// Services of the compiler for a host during a call.
pub trait HostContext: PluginContext + InstanceView {
    /// Location of the call.
    fn called_at(&self) -> Loc;
    /// Appends to the model's output verbatim.
    fn write_output(&mut self, text: &str);
    /// State of a variable, as visible to the calling statement.
    fn variable_slot(&self, name: &str) -> Option<SlotState>;
    /// The instance and slot of a variable that is an attribute of an instance.
    fn variable_owner(&self, name: &str) -> Option<(InstanceId, u32)>;
    /// Creates an instance of a dataclass entity.
    fn construct(
        &mut self,
        entity: EntityId,
        attributes: &[(u32, Value)],
    ) -> Result<InstanceId, Failure>;
}

/// State of a cell.
#[derive(Clone, Copy, Debug)]
pub enum SlotState {
    Value(Value),
    /// No value yet.
    Pending(CellId),
    /// An optional relation without a value.
    Empty,
}

/// Contents of the modules that a host has loaded.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    pub plugins: Vec<Signature>,
    pub dataclasses: Vec<Dataclass>,
    /// Classes that define how instances become resources.
    pub classes: Vec<ResourceClass>,
    pub warnings: Vec<String>,
    /// Output of the code while it was loaded.
    pub output: String,
}

/// A class that represents a dataclass entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataclass {
    /// Full name of the entity.
    pub entity: String,
    /// Name and type of each field, in model syntax; `None` for a type that models cannot express.
    pub fields: Vec<(String, Option<String>)>,
    /// Reason why it cannot represent an entity.
    pub problem: Option<ClassProblem>,
    pub location: Option<CodeLocation>,
}

/// Reason why no class represents an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassProblem {
    /// The Python module for it does not exist.
    NoModule(String),
    NotDataclass,
    NotFrozen,
    /// An annotation is invalid, in Python's own words.
    BadAnnotation(String),
}

/// Result of the finalizers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalizerReport {
    pub output: String,
    pub warnings: Vec<String>,
    /// One text per failed finalizer.
    pub errors: Vec<String>,
}

/// Failure to load the code of modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// Files of a module that do not load, one text for each, and the location of the first.
    Code { module: String, problems: Vec<String>, location: Option<CodeLocation> },
    /// A plugin that the language cannot call, such as one without types.
    Plugin(String),
}

impl LoadError {
    /// Location of the error, if it has a single one.
    pub fn location(&self) -> Option<&CodeLocation> {
        match self {
            LoadError::Code { location, .. } => location.as_ref(),
            LoadError::Plugin(_) => None,
        }
    }
}

/// Signature of a plugin.
#[derive(Clone, Debug)]
pub struct Signature {
    /// Full name, `std::count`. It can be called where the namespace is loaded.
    pub name: Text,
    pub params: Vec<PluginParameter>,
    /// Type of the result, in the syntax of `PluginParameter::ty`.
    pub returns: Text,
    /// True if the plugin accepts unknowns. Otherwise, an unknown argument is the result of the
    /// call.
    pub allow_unknown: bool,
    /// Replacement of a deprecated plugin: `Some("")` if there is none.
    pub deprecated: Option<Text>,
    /// Location of the definition; `None` for a built-in plugin.
    pub location: Option<CodeLocation>,
}

#[derive(Clone, Debug)]
pub struct PluginParameter {
    pub name: Text,
    /// A type in model syntax, seen from the plugin's namespace (`int?`, `Host`, `std::Host[]`), or
    /// a plugin-only type: `any`, `null`, `list`, `dict`, `dict[string, T]`, `Union[T,U]`, with
    /// parentheses around one of these before `?` or `[]`.
    pub ty: Text,
    pub default: DefaultValue,
    pub kind: ParamKind,
}

/// Value of an omitted argument.
#[derive(Clone, Debug, PartialEq)]
pub enum DefaultValue {
    /// The argument is mandatory.
    Required,
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Text),
    List(Vec<DefaultValue>),
    /// A value that only the host knows. The argument is null, and `PluginCall::omitted` has its
    /// position.
    HostOwned,
}

/// Location in the code of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLocation {
    pub file: PathBuf,
    /// Line, from 1.
    pub line: u32,
}

/// One call of a plugin.
#[derive(Clone, Copy, Debug)]
pub struct PluginCall<'c> {
    /// The plugin's number.
    pub plugin: u32,
    /// One value for each parameter: `*args` is a list, `**kwargs` a dict, and an omitted one has
    /// its default.
    pub args: &'c [Value],
    /// Positions of defaulted parameters.
    pub omitted: &'c [usize],
}

impl<H: Host + ?Sized> Host for &mut H {
    fn can_load(&self, module: &Module) -> bool {
        (**self).can_load(module)
    }

    fn load(&mut self, modules: &[Module]) -> Result<Manifest, LoadError> {
        (**self).load(modules)
    }

    fn call(&self, call: &PluginCall<'_>, context: &mut dyn HostContext) -> PluginResult {
        (**self).call(call, context)
    }

    fn can_batch(&self, plugin: u32) -> bool {
        (**self).can_batch(plugin)
    }

    fn call_many(
        &self,
        calls: &[PluginCall<'_>],
        context: &mut dyn HostContext,
    ) -> Vec<PluginResult> {
        (**self).call_many(calls, context)
    }

    fn loads_builtin_modules(&self) -> bool {
        (**self).loads_builtin_modules()
    }

    fn defer_load(&mut self, modules: &[Module]) {
        (**self).defer_load(modules);
    }

    fn call_fallback(
        &self,
        signature: &Signature,
        call: &PluginCall<'_>,
        context: &mut dyn HostContext,
    ) -> Option<PluginResult> {
        (**self).call_fallback(signature, call, context)
    }

    fn finalize(&mut self, succeeded: bool) -> FinalizerReport {
        (**self).finalize(succeeded)
    }
}

/// The plugins written in Rust: those of built-in modules.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeHost;

impl Host for NativeHost {
    fn can_load(&self, _: &Module) -> bool {
        false
    }

    fn load(&mut self, _: &[Module]) -> Result<Manifest, LoadError> {
        let plugins = native_plugins().iter().map(Signature::from).collect();
        Ok(Manifest { plugins, ..Manifest::default() })
    }

    fn call(&self, call: &PluginCall<'_>, context: &mut dyn HostContext) -> PluginResult {
        (native_plugins()[call.plugin as usize].run)(context, call.args)
    }
}

/// Two hosts as one. Plugins of the first shadow those of the second with the same name; the second
/// is used only if there is code that it can load.
#[derive(Clone, Debug, Default)]
pub struct LayeredHost<A, B> {
    first: A,
    second: B,
    /// Plugins of the first host.
    first_plugins: Vec<Signature>,
    /// True if the second host takes precedence where both have a plugin.
    prefer_second: bool,
}

impl<A: Host, B: Host> LayeredHost<A, B> {
    pub fn new(first: A, second: B) -> Self {
        LayeredHost { first, second, first_plugins: Vec::new(), prefer_second: false }
    }

    /// The same, but plugins of the second host shadow those of the first with the same name.
    #[must_use]
    pub fn prefer_second(self) -> Self {
        LayeredHost { prefer_second: true, ..self }
    }
}

impl<A: Host, B: Host> Host for LayeredHost<A, B> {
    fn can_load(&self, module: &Module) -> bool {
        self.first.can_load(module) || self.second.can_load(module)
    }

    fn load(&mut self, modules: &[Module]) -> Result<Manifest, LoadError> {
        let (for_first, rest): (Vec<Module>, Vec<Module>) =
            modules.iter().cloned().partition(|module| self.first.can_load(module));
        let mut manifest = self.first.load(&for_first)?;
        self.first_plugins.clone_from(&manifest.plugins);
        if !rest.is_empty() {
            // A module installed in place of a built-in one has its own plugins.
            let replaced: HashSet<&str> = rest
                .iter()
                .filter(|module| module.origin != Origin::Builtin)
                .map(|module| module.name.as_str())
                .collect();
            let goes_first = |name: &str| {
                let module = name.split("::").next().unwrap_or(name);
                self.prefer_second || replaced.contains(module)
            };
            let more = self.second.load(&rest)?;
            {
                let names: HashSet<&str> = more.plugins.iter().map(|of| &*of.name).collect();
                for plugin in &mut manifest.plugins {
                    if names.contains(&*plugin.name) && goes_first(&plugin.name) {
                        // It keeps its number, but cannot be called by this name.
                        plugin.name = format!("{} (replaced)", plugin.name).into();
                    }
                }
            }
            manifest.plugins.extend(more.plugins);
            manifest.dataclasses.extend(more.dataclasses);
            manifest.classes.extend(more.classes);
            manifest.warnings.extend(more.warnings);
            manifest.output.push_str(&more.output);
        }
        Ok(manifest)
    }

    fn call(&self, call: &PluginCall<'_>, context: &mut dyn HostContext) -> PluginResult {
        let Some(signature) = self.first_plugins.get(call.plugin as usize) else {
            let plugin = call.plugin - self.first_plugins.len() as u32;
            return self.second.call(&PluginCall { plugin, ..*call }, context);
        };
        if yields_to_module_code(&signature.name)
            && let Some(outcome) = self.second.call_fallback(signature, call, context)
        {
            return outcome;
        }
        match self.first.call(call, context) {
            Err(Failure::NeedsOtherHost(failure)) => self
                .second
                .call_fallback(signature, call, context)
                .unwrap_or(Err(Failure::NeedsOtherHost(failure))),
            outcome => outcome,
        }
    }

    fn can_batch(&self, plugin: u32) -> bool {
        let own = self.first_plugins.len() as u32;
        plugin.checked_sub(own).is_some_and(|plugin| self.second.can_batch(plugin))
    }

    fn call_many(
        &self,
        calls: &[PluginCall<'_>],
        context: &mut dyn HostContext,
    ) -> Vec<PluginResult> {
        // Only calls of the second host are batched.
        let own = self.first_plugins.len() as u32;
        let shifted: Option<Vec<PluginCall<'_>>> = calls
            .iter()
            .map(|call| Some(PluginCall { plugin: call.plugin.checked_sub(own)?, ..*call }))
            .collect();
        match shifted {
            Some(calls) => self.second.call_many(&calls, context),
            None => calls.iter().map(|call| self.call(call, context)).collect(),
        }
    }

    fn loads_builtin_modules(&self) -> bool {
        self.first.loads_builtin_modules() || self.second.loads_builtin_modules()
    }

    fn defer_load(&mut self, modules: &[Module]) {
        self.first.defer_load(modules);
        self.second.defer_load(modules);
    }

    fn finalize(&mut self, succeeded: bool) -> FinalizerReport {
        let mut all = self.first.finalize(succeeded);
        let more = self.second.finalize(succeeded);
        all.output.push_str(&more.output);
        all.warnings.extend(more.warnings);
        all.errors.extend(more.errors);
        all
    }
}

impl From<&NativePlugin> for Signature {
    fn from(plugin: &NativePlugin) -> Self {
        Signature {
            name: plugin.name.into(),
            params: plugin.params.iter().map(PluginParameter::from).collect(),
            returns: plugin.returns.into(),
            allow_unknown: plugin.allow_unknown,
            deprecated: plugin.deprecated.map(Text::from),
            location: None,
        }
    }
}

impl From<&Param> for PluginParameter {
    fn from(param: &Param) -> Self {
        let default = match param.default {
            ParamDefault::Required => DefaultValue::Required,
            ParamDefault::Null => DefaultValue::Null,
            ParamDefault::Bool(bool) => DefaultValue::Bool(bool),
            ParamDefault::Int(int) => DefaultValue::Int(int),
            ParamDefault::Str(text) => DefaultValue::Str(text.into()),
            ParamDefault::Strs(texts) => {
                let texts = texts.iter().map(|&text| DefaultValue::Str(text.into()));
                DefaultValue::List(texts.collect())
            }
        };
        PluginParameter { name: param.name.into(), ty: param.ty.into(), default, kind: param.kind }
    }
}
