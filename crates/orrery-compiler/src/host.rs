//! Hosts: whoever runs plugins. The compiler asks a host which plugins the loaded modules offer, and
//! has every call made through it; what language they are written in, and in which process they
//! run, is the host's affair.
//!
//! `NativeHost` has the plugins that are written in Rust. A host for another language stands behind
//! it in a `Layered`, and is asked for the modules that bring code which it can load:
//!
//! ```text
//! compile_with(&files, &options, &mut Layered::new(NativeHost, host))
//! ```
//!
//! A call may end with `Failure::Unset`: the plugin has read a cell that has no value yet. The
//! compiler keeps the arguments, waits, and makes the same call again, from scratch.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::PathBuf;

use orrery_syntax::ast::Loc;

use crate::export::ResourceClass;
use crate::load::{Module, Origin};
use crate::plugins::{
    CellId, Context, Failure, NativePlugin, Outcome, Param, ParamDefault, ParamKind,
    native_plugins, yields,
};
use crate::program::{EntityId, Program};
use crate::source::Sources;
use crate::value::{Heap, InstanceId, Value};

/// A text that is part of the program, or that a host has brought.
pub type Text = Cow<'static, str>;

/// Runs plugins.
pub trait Host {
    /// Whether it can load the code that a module brings. What it cannot load is left to others.
    fn can_load(&self, module: &Module) -> bool;

    /// Loads the code of modules and tells which plugins there are. It is asked once in a compile,
    /// before anything is defined, with all modules that it can load in the order in which the
    /// model loaded them. A plugin's position in the answer is its number from then on.
    fn load(&mut self, modules: &[Module]) -> Result<Manifest, LoadError>;

    /// Makes a call. The arguments fit their types. A plugin may call others through the context,
    /// so a host can be called while it is busy with a call; the calls end in the opposite order.
    fn call(&self, call: &Call<'_>, context: &mut dyn HostContext) -> Outcome;

    /// Whether calls of a plugin may be made before their turn, together with others: it sees nothing but its
    /// arguments, and gives nothing but plain values.
    fn can_batch(&self, _plugin: u32) -> bool {
        false
    }

    /// Makes several calls, one after the other, and gives the outcome of each.
    fn call_many(&self, calls: &[Call<'_>], context: &mut dyn HostContext) -> Vec<Outcome> {
        calls.iter().map(|call| self.call(call, context)).collect()
    }

    /// Whether it wants to load the code of modules that the program has itself, also if there is no other.
    fn loads_own_modules(&self) -> bool {
        false
    }

    /// Names modules whose code is not worth loading for itself, but may be loaded when a call needs it.
    fn reserve(&mut self, _modules: &[Module]) {}

    /// Calls a plugin for another host that has one of that name and cannot do what is asked; `None` if there is
    /// none here either.
    fn call_instead(
        &self,
        _signature: &Signature,
        _call: &Call<'_>,
        _context: &mut dyn HostContext,
    ) -> Option<Outcome> {
        None
    }

    /// Runs what code wants run at the end of each compile, whether it went well or not.
    fn finalize(&mut self, _succeeded: bool) -> Finalized {
        Finalized::default()
    }
}

/// What is known of instances, now or at the end.
pub trait View {
    fn program(&self) -> &Program;
    fn sources(&self) -> &Sources;
    fn values(&self) -> &Heap;
    fn instance_count(&self) -> usize;
    fn entity_of(&self, instance: InstanceId) -> EntityId;
    /// What stands in a slot of an instance.
    fn slot(&self, instance: InstanceId, slot: u32) -> Slot;
    /// What a variable at the top of a file holds, by its cell.
    fn global(&self, cell: u32) -> Slot;
    fn constructed_at(&self, instance: InstanceId) -> Loc;
    /// As messages name it.
    fn described(&self, instance: InstanceId) -> String;
}

/// What a host may ask while it makes a call.
pub trait HostContext: Context + View {
    /// The place of the call.
    fn called_at(&self) -> Loc;
    /// Adds to the model's output, as it is.
    fn write_output(&mut self, text: &str);
    /// What the variable of a name holds, as the calling statement sees it.
    fn variable_slot(&self, name: &str) -> Option<Slot>;
    /// If the variable of a name is an attribute of an instance: that instance, and its slot.
    fn variable_owner(&self, name: &str) -> Option<(InstanceId, u32)>;
    /// Makes an instance of an entity that is only data.
    fn construct(
        &mut self,
        entity: EntityId,
        attributes: &[(u32, Value)],
    ) -> Result<InstanceId, Failure>;
}

/// What a cell holds.
#[derive(Clone, Copy, Debug)]
pub enum Slot {
    Value(Value),
    /// Nothing yet.
    Pending(CellId),
    /// Nothing for ever: an optional relation.
    Empty,
}

/// What a host has found in the modules that it was asked to load.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    pub plugins: Vec<Signature>,
    pub dataclasses: Vec<Dataclass>,
    /// How instances become resources.
    pub classes: Vec<ResourceClass>,
    pub warnings: Vec<String>,
    /// What the code printed when it was loaded.
    pub output: String,
}

/// A class that stands for an entity that is only data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataclass {
    /// Full name of the entity.
    pub entity: String,
    /// Name and type of each field, the type as a model writes it; `None` for one that no model has
    /// a word for.
    pub fields: Vec<(String, Option<String>)>,
    /// Reason why it cannot stand for an entity at all.
    pub problem: Option<ClassProblem>,
    pub place: Option<Place>,
}

/// Reason why no class stands for an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassProblem {
    /// The Python module that would have it does not exist.
    NoModule(String),
    NotDataclass,
    NotFrozen,
    /// An annotation means nothing, in Python's own words.
    BadAnnotation(String),
}

/// What came of the code that runs at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finalized {
    pub output: String,
    pub warnings: Vec<String>,
    /// One text for each that failed.
    pub errors: Vec<String>,
}

/// Why a host could not load the code of modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// Files of a module that do not load, one text for each, and the place of the first.
    Code { module: String, problems: Vec<String>, place: Option<Place> },
    /// A plugin that the language cannot call, such as one without types.
    Plugin(String),
}

impl LoadError {
    /// Where the error is, if it is at one place.
    pub fn place(&self) -> Option<&Place> {
        match self {
            LoadError::Code { place, .. } => place.as_ref(),
            LoadError::Plugin(_) => None,
        }
    }
}

/// A plugin as the language sees it.
#[derive(Clone, Debug)]
pub struct Signature {
    /// Full name, `std::count`. It can be called where the namespace is loaded.
    pub name: Text,
    pub params: Vec<Parameter>,
    /// Type of the result, in the words of `Parameter::ty`.
    pub returns: Text,
    /// It wants to see unknowns. Without it, an unknown argument is the result of the call.
    pub allow_unknown: bool,
    /// The name of the plugin that replaces it, if it is deprecated: `Some("")` for none.
    pub deprecated: Option<Text>,
    /// Where it is written; nowhere, if it is part of the program.
    pub place: Option<Place>,
}

#[derive(Clone, Debug)]
pub struct Parameter {
    pub name: Text,
    /// A type as a model writes it, seen from the plugin's namespace (`int?`, `Host`,
    /// `std::Host[]`), or one that only plugins have: `any`, `null`, `list`, `dict`,
    /// `dict[string, T]`, `Union[T,U]`, with parentheses around one of these before `?` or `[]`.
    pub ty: Text,
    pub default: DefaultValue,
    pub kind: ParamKind,
}

/// What an argument is that was not given.
#[derive(Clone, Debug, PartialEq)]
pub enum DefaultValue {
    /// It has to be given.
    Required,
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Text),
    List(Vec<DefaultValue>),
    /// A value that only the host knows. The argument arrives as null, and `Call::omitted` has its
    /// position.
    Kept,
}

/// Where a plugin is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: PathBuf,
    /// From 1.
    pub line: u32,
}

/// One call of a plugin.
#[derive(Clone, Copy, Debug)]
pub struct Call<'c> {
    /// The plugin's number.
    pub plugin: u32,
    /// One value for each parameter: `*args` is a list, `**kwargs` a dict, and what was not given
    /// is its default.
    pub args: &'c [Value],
    /// Positions of the parameters that got their default.
    pub omitted: &'c [usize],
}

impl<H: Host + ?Sized> Host for &mut H {
    fn can_load(&self, module: &Module) -> bool {
        (**self).can_load(module)
    }

    fn load(&mut self, modules: &[Module]) -> Result<Manifest, LoadError> {
        (**self).load(modules)
    }

    fn call(&self, call: &Call<'_>, context: &mut dyn HostContext) -> Outcome {
        (**self).call(call, context)
    }

    fn can_batch(&self, plugin: u32) -> bool {
        (**self).can_batch(plugin)
    }

    fn call_many(&self, calls: &[Call<'_>], context: &mut dyn HostContext) -> Vec<Outcome> {
        (**self).call_many(calls, context)
    }

    fn loads_own_modules(&self) -> bool {
        (**self).loads_own_modules()
    }

    fn reserve(&mut self, modules: &[Module]) {
        (**self).reserve(modules);
    }

    fn call_instead(
        &self,
        signature: &Signature,
        call: &Call<'_>,
        context: &mut dyn HostContext,
    ) -> Option<Outcome> {
        (**self).call_instead(signature, call, context)
    }

    fn finalize(&mut self, succeeded: bool) -> Finalized {
        (**self).finalize(succeeded)
    }
}

/// The plugins that are written in Rust: those of the modules inside the program.
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

    fn call(&self, call: &Call<'_>, context: &mut dyn HostContext) -> Outcome {
        (native_plugins()[call.plugin as usize].run)(context, call.args)
    }
}

/// Two hosts as one. The plugins of the first go before those of the second that have the same
/// name; the second is only bothered where there is code that it can load.
#[derive(Clone, Debug, Default)]
pub struct Layered<A, B> {
    first: A,
    second: B,
    /// The plugins of the first one.
    first_plugins: Vec<Signature>,
    /// The second one goes before the first where both have a plugin.
    second_goes_first: bool,
}

impl<A: Host, B: Host> Layered<A, B> {
    pub fn new(first: A, second: B) -> Self {
        Layered { first, second, first_plugins: Vec::new(), second_goes_first: false }
    }

    /// The same, but the plugins of the second go before those of the first that have the same name.
    #[must_use]
    pub fn second_goes_first(self) -> Self {
        Layered { second_goes_first: true, ..self }
    }
}

impl<A: Host, B: Host> Host for Layered<A, B> {
    fn can_load(&self, module: &Module) -> bool {
        self.first.can_load(module) || self.second.can_load(module)
    }

    fn load(&mut self, modules: &[Module]) -> Result<Manifest, LoadError> {
        let (for_first, rest): (Vec<Module>, Vec<Module>) =
            modules.iter().cloned().partition(|module| self.first.can_load(module));
        let mut manifest = self.first.load(&for_first)?;
        self.first_plugins.clone_from(&manifest.plugins);
        if !rest.is_empty() {
            // A module that is installed in the place of the program's own has plugins of its own.
            let replaced: HashSet<&str> = rest
                .iter()
                .filter(|module| module.origin != Origin::Builtin)
                .map(|module| module.name.as_str())
                .collect();
            let goes_first = |name: &str| {
                let module = name.split("::").next().unwrap_or(name);
                self.second_goes_first || replaced.contains(module)
            };
            let more = self.second.load(&rest)?;
            {
                let names: HashSet<&str> = more.plugins.iter().map(|of| &*of.name).collect();
                for plugin in &mut manifest.plugins {
                    if names.contains(&*plugin.name) && goes_first(&plugin.name) {
                        // It keeps its number, but nobody can call it by this name.
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

    fn call(&self, call: &Call<'_>, context: &mut dyn HostContext) -> Outcome {
        let Some(signature) = self.first_plugins.get(call.plugin as usize) else {
            let plugin = call.plugin - self.first_plugins.len() as u32;
            return self.second.call(&Call { plugin, ..*call }, context);
        };
        if yields(&signature.name)
            && let Some(outcome) = self.second.call_instead(signature, call, context)
        {
            return outcome;
        }
        match self.first.call(call, context) {
            Err(Failure::NotHere(failure)) => self
                .second
                .call_instead(signature, call, context)
                .unwrap_or(Err(Failure::NotHere(failure))),
            outcome => outcome,
        }
    }

    fn can_batch(&self, plugin: u32) -> bool {
        let own = self.first_plugins.len() as u32;
        plugin.checked_sub(own).is_some_and(|plugin| self.second.can_batch(plugin))
    }

    fn call_many(&self, calls: &[Call<'_>], context: &mut dyn HostContext) -> Vec<Outcome> {
        // Only those of the second come together.
        let own = self.first_plugins.len() as u32;
        let shifted: Option<Vec<Call<'_>>> = calls
            .iter()
            .map(|call| Some(Call { plugin: call.plugin.checked_sub(own)?, ..*call }))
            .collect();
        match shifted {
            Some(calls) => self.second.call_many(&calls, context),
            None => calls.iter().map(|call| self.call(call, context)).collect(),
        }
    }

    fn loads_own_modules(&self) -> bool {
        self.first.loads_own_modules() || self.second.loads_own_modules()
    }

    fn reserve(&mut self, modules: &[Module]) {
        self.first.reserve(modules);
        self.second.reserve(modules);
    }

    fn finalize(&mut self, succeeded: bool) -> Finalized {
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
            params: plugin.params.iter().map(Parameter::from).collect(),
            returns: plugin.returns.into(),
            allow_unknown: plugin.allow_unknown,
            deprecated: plugin.deprecated.map(Text::from),
            place: None,
        }
    }
}

impl From<&Param> for Parameter {
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
        Parameter { name: param.name.into(), ty: param.ty.into(), default, kind: param.kind }
    }
}
