//! Types, dataflow evaluation and standard plugins of the modelling language, and the export: instances
//! become resources.
//!
//! It reads sources only through `files::Files` and knows nothing of terminals, servers or Python
//! processes. Start from `compile`, then `value::Value` and `eval`; then `export::export`. Behaviour is
//! tested by the models in `tests/language` at the root of the repository.

pub mod builtin;
mod define;
mod define_dataclasses;
mod define_entities;
mod define_missing;
mod define_plugins;
pub mod diagnostic;
pub mod documentation;
pub mod error;
pub mod eval;
pub mod export;
pub mod files;
pub mod host;
mod ids;
mod ini;
pub mod ir;
pub mod load;
mod lower;
mod lower_expr;
mod lower_implements;
mod metadata;
pub mod modules;
pub mod plugins;
mod policy;
pub mod program;
pub mod project;
pub mod reference;
pub mod release;
pub mod render;
pub mod report;
pub mod source;
pub mod value;
mod versions;
mod world;
mod yaml;

use std::path::Path;

use orrery_model::similar_names;
use orrery_syntax::ast::Loc;
use orrery_syntax::{SyntaxError, SyntaxWarning};

use crate::define::Builder;
use crate::define_dataclasses::Pairing;
use crate::error::CompileError;
use crate::eval::Machine;
use crate::files::Files;
use crate::host::{Host, Manifest, NativeHost, Place};
use crate::load::{Loader, Module, Origin};
use crate::project::Options;
use crate::report::Model;
use crate::source::Sources;
use crate::world::FileWorld;

/// A message that does not end the compile.
#[derive(Clone, Debug)]
pub struct Warning {
    pub class: &'static str,
    pub message: String,
    pub loc: Option<Loc>,
}

impl Warning {
    /// The text as the reference logs it: with its class, if it has one.
    pub fn shown(&self) -> String {
        if self.class.is_empty() {
            return self.message.clone();
        }
        format!("{}: {}", self.class, self.message)
    }
}

/// What a compile came to.
pub struct Compiled {
    pub sources: Sources,
    /// What the model printed.
    pub output: String,
    pub warnings: Vec<Warning>,
    pub modules: Vec<Module>,
    pub outcome: Result<Summary, Box<CompileError>>,
    /// Further syntax errors beside the one in `outcome`.
    pub syntax_errors: Vec<SyntaxError>,
    /// What the model came to, if there was no error.
    pub model: Option<Model>,
}

impl From<SyntaxWarning> for Warning {
    fn from(SyntaxWarning { class, message, loc }: SyntaxWarning) -> Self {
        Warning { class, message, loc: Some(loc) }
    }
}

impl Compiled {
    fn new() -> Self {
        Compiled {
            sources: Sources::default(),
            output: String::new(),
            warnings: Vec::new(),
            modules: Vec::new(),
            outcome: Ok(Summary { instances: 0, files: 0 }),
            syntax_errors: Vec::new(),
            model: None,
        }
    }

    /// A compile that could not even begin.
    pub fn failed(error: Box<CompileError>) -> Self {
        Compiled { outcome: Err(error), ..Self::new() }
    }

    /// The reference shows a warning of a class with the same text once.
    fn forget_repeated_warnings(&mut self) {
        let mut seen = std::collections::BTreeSet::new();
        self.warnings.retain(|w| {
            let once = !matches!(w.class, "" | "DeprecationWarning");
            !once || seen.insert((w.class, w.message.clone()))
        });
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub instances: usize,
    pub files: usize,
}

/// Compiles a project with the plugins that are written in Rust.
pub fn compile(files: &dyn Files, options: &Options) -> Compiled {
    compile_with(files, options, &mut NativeHost)
}

/// Compiles a project with the plugins of a host.
pub fn compile_with(files: &dyn Files, options: &Options, host: &mut dyn Host) -> Compiled {
    let mut compiled = Compiled::new();
    let loader = match Loader::new(files, options) {
        Ok(loader) => loader,
        Err(error) => return Compiled::failed(error),
    };
    if let Some((loader, manifest)) = load(files, options, loader, host, &mut compiled) {
        evaluate(files, options, host, loader, manifest, &mut compiled);
        finalize(host, &mut compiled);
    }
    compiled.forget_repeated_warnings();
    compiled
}

fn warning((class, message, loc): (&'static str, String, Option<Loc>)) -> Warning {
    Warning { class, message, loc }
}

/// Reads the sources, and has the host load the code of their modules.
fn load<'f>(
    files: &dyn Files,
    options: &Options,
    mut loader: Loader<'f>,
    host: &mut dyn Host,
    compiled: &mut Compiled,
) -> Option<(Loader<'f>, Manifest)> {
    let loaded = loader.load_all();
    tracing::debug!(files = loader.loaded.len(), "loaded");
    compiled.warnings.extend(std::mem::take(&mut loader.warnings).into_iter().map(warning));
    compiled.modules = std::mem::take(&mut loader.modules);
    compiled.syntax_errors = std::mem::take(&mut loader.syntax_errors);
    if let Err(error) = loaded {
        compiled.sources = loader.sources;
        compiled.outcome = Err(error);
        return None;
    }
    let loadable = loadable(&compiled.modules, host);
    for file in &mut loader.loaded {
        let name = loader.interner.text(file.namespace);
        let module = name.split("::").next().unwrap_or(name);
        file.foreign_plugins &= loadable.iter().all(|other| other.name != module);
    }
    if loadable.is_empty() {
        host.reserve(&with_code(&compiled.modules, host));
    }
    match host.load(&loadable) {
        Ok(mut manifest) => {
            compiled.output = std::mem::take(&mut manifest.output);
            let warnings = std::mem::take(&mut manifest.warnings);
            compiled.warnings.extend(warnings.into_iter().map(|text| warning(("", text, None))));
            Some((loader, manifest))
        }
        Err(error) => {
            let place = error.place().cloned();
            let mut error = error.into_error();
            if let Some(Place { file, line }) = place {
                let text = files.read(&file).ok().and_then(|text| String::from_utf8(text).ok());
                let text = text.unwrap_or_default();
                let loc = loader.sources.add_line(load::shown(options, &file), text, line);
                error = error.at(loc);
            }
            compiled.sources = loader.sources;
            compiled.outcome = Err(error);
            None
        }
    }
}

/// Defines what the sources define, and runs them.
fn evaluate(
    files: &dyn Files,
    options: &Options,
    host: &mut dyn Host,
    loader: Loader<'_>,
    manifest: Manifest,
    compiled: &mut Compiled,
) {
    let loaded: Vec<String> =
        loadable(&compiled.modules, host).into_iter().map(|module| module.name).collect();
    let builtin: Vec<String> = compiled
        .modules
        .iter()
        .filter(|module| module.origin == Origin::Builtin)
        .map(|module| module.name.clone())
        .collect();
    let Manifest { plugins, dataclasses, classes, .. } = manifest;
    let asts = loader.loaded;
    let templates = loader.project.settings.templates;
    let mut builder = Builder::new(loader.interner, loader.sources, loader.project.precedence);
    let show = |path: &Path| {
        let text = files.read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        (load::shown(options, path), text.unwrap_or_default())
    };
    let built =
        builder.define(&asts, plugins, &show).and_then(|()| builder.lower(&asts)).and_then(|()| {
            builder.dataclasses(&Pairing {
                classes: &dataclasses,
                loaded: &loaded,
                builtin: &builtin,
                show: &|path| load::shown(options, path),
            })
        });
    compiled.warnings.extend(std::mem::take(&mut builder.warnings).into_iter().map(warning));
    if let Err(error) = built {
        compiled.sources = builder.program.sources;
        compiled.outcome = Err(error);
        return;
    }
    tracing::debug!(
        entities = builder.program.entities.len(),
        statements = builder.program.stmts.len(),
        "defined"
    );
    let count = asts.len();
    drop(asts);
    let world = FileWorld::new(files, options, &compiled.modules, &classes, templates);
    let mut machine = Machine::new(&builder.program, builder.heap, &world, host, options.limits);
    let outcome = machine.check_defaults().and_then(|()| machine.run());
    tracing::debug!(instances = machine.instance_count(), "evaluated");
    compiled.output.push_str(&std::mem::take(&mut machine.output));
    compiled.warnings.extend(std::mem::take(&mut machine.warnings).into_iter().map(warning));
    compiled.outcome =
        outcome.map(|()| Summary { instances: machine.instance_count(), files: count });
    let graph = machine.into_graph();
    let mut program = builder.program;
    compiled.sources = std::mem::take(&mut program.sources);
    if let Err(error) = &mut compiled.outcome {
        let show = |path: &str| world::show(&options.project_dir, path);
        error.resolve_file_places(&mut compiled.sources, &show);
    }
    if compiled.outcome.is_ok() {
        compiled.model = Some(Model { program, graph });
    }
}

/// Has the host run what it runs at the end of each compile. Finalizers that fail are the errors of a compile that
/// went well, and warnings of one that did not.
fn finalize(host: &mut dyn Host, compiled: &mut Compiled) {
    let ended = host.finalize(compiled.outcome.is_ok());
    compiled.output.push_str(&ended.output);
    let mut warn = |text| compiled.warnings.push(warning(("", text, None)));
    ended.warnings.into_iter().for_each(&mut warn);
    let errors = ended.errors.into_iter().map(|text| format!("Finalizer failed: {text}"));
    if compiled.outcome.is_err() {
        return errors.for_each(warn);
    }
    let errors = errors.map(|text| {
        let mut error = CompileError::new("CompilerException", text);
        error.bare = true;
        *error
    });
    if let Some(error) = CompileError::combine(errors.collect()) {
        compiled.outcome = Err(error);
        compiled.model = None;
    }
}

/// The modules that a host with code has to know. Those without code are among them: code of others may ask for their files.
fn with_code(modules: &[Module], host: &dyn Host) -> Vec<Module> {
    let found: Vec<Module> =
        modules.iter().filter(|module| host.can_load(module)).cloned().collect();
    if found.iter().all(|module| module.code.is_none()) {
        return Vec::new();
    }
    found
}

/// Those that it has to load. Code of the program's own modules is for others that need it: alone it is not worth
/// starting a host for.
fn loadable(modules: &[Module], host: &dyn Host) -> Vec<Module> {
    let found = with_code(modules, host);
    let mut coded = found.iter().filter(|module| module.code.is_some());
    let only_own = coded.all(|module| module.origin == Origin::Builtin);
    if only_own && !host.loads_own_modules() {
        return Vec::new();
    }
    found
}
