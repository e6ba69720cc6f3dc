//! Types, dataflow evaluation and standard plugins of the modelling language, and the export of
//! instances to resources.
//!
//! The crate reads sources only through `files::Files` and does not depend on terminals, servers or
//! Python processes. Start from `compile`, then `value::Value` and `eval`; then `export::export`.
//! Behaviour is tested by the models in `tests/language` at the root of the repository.

pub mod builtin;
mod define;
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
pub mod late_values;
pub mod load;
mod lower;
mod metadata;
pub mod modules;
mod pep440;
pub mod plugins;
mod policy;
pub mod program;
pub mod project;
pub mod render;
pub mod report;
pub mod source;
mod system;
pub mod value;
mod yaml;

use std::path::Path;

use orrery_model::similar_names;
use orrery_syntax::ast::Loc;
use orrery_syntax::{SyntaxError, SyntaxWarning};

use crate::define::Builder;
use crate::define::dataclasses::Pairing;
use crate::error::CompileError;
use crate::eval::Evaluator;
use crate::files::Files;
use crate::host::{CodeLocation, Host, Manifest, NativeHost};
use crate::load::{Loader, Module, Origin};
use crate::project::Options;
use crate::report::Model;
use crate::source::Sources;
use crate::system::ProjectSystem;

/// A message that does not end the compile.
#[derive(Clone, Debug)]
pub struct CompileWarning {
    pub class: &'static str,
    pub message: String,
    pub loc: Option<Loc>,
}

impl CompileWarning {
    /// The text as the reference compiler logs it: with its class, if any.
    pub fn to_text(&self) -> String {
        if self.class.is_empty() {
            return self.message.clone();
        }
        format!("{}: {}", self.class, self.message)
    }
}

/// Result of a compile.
pub struct Compilation {
    pub sources: Sources,
    /// Output printed by the model.
    pub output: String,
    pub warnings: Vec<CompileWarning>,
    pub modules: Vec<Module>,
    pub outcome: Result<Summary, Box<CompileError>>,
    /// Further syntax errors besides the one in `outcome`.
    pub syntax_errors: Vec<SyntaxError>,
    /// The evaluated model, if there was no error.
    pub model: Option<Model>,
}

impl From<SyntaxWarning> for CompileWarning {
    fn from(SyntaxWarning { class, message, loc }: SyntaxWarning) -> Self {
        CompileWarning { class, message, loc: Some(loc) }
    }
}

impl Compilation {
    fn new() -> Self {
        Compilation {
            sources: Sources::default(),
            output: String::new(),
            warnings: Vec::new(),
            modules: Vec::new(),
            outcome: Ok(Summary { instances: 0, files: 0 }),
            syntax_errors: Vec::new(),
            model: None,
        }
    }

    /// A compile that failed before it started.
    pub fn failed(error: Box<CompileError>) -> Self {
        Compilation { outcome: Err(error), ..Self::new() }
    }

    /// Removes repeated warnings: the reference compiler shows equal warnings of a class once.
    fn dedup_warnings(&mut self) {
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
pub fn compile(files: &dyn Files, options: &Options) -> Compilation {
    compile_with(files, options, &mut NativeHost)
}

/// Compiles a project with the plugins of a host.
pub fn compile_with(files: &dyn Files, options: &Options, host: &mut dyn Host) -> Compilation {
    let mut compiled = Compilation::new();
    let loader = match Loader::new(files, options) {
        Ok(loader) => loader,
        Err(error) => return Compilation::failed(error),
    };
    if let Some((loader, manifest)) = load(files, options, loader, host, &mut compiled) {
        evaluate(files, options, host, loader, manifest, &mut compiled);
        finalize(host, &mut compiled);
    }
    compiled.dedup_warnings();
    compiled
}

fn warning((class, message, loc): (&'static str, String, Option<Loc>)) -> CompileWarning {
    CompileWarning { class, message, loc }
}

/// Reads the sources and has the host load the code of their modules.
fn load<'f>(
    files: &dyn Files,
    options: &Options,
    mut loader: Loader<'f>,
    host: &mut dyn Host,
    compiled: &mut Compilation,
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
        host.defer_load(&with_code(&compiled.modules, host));
    }
    match host.load(&loadable) {
        Ok(mut manifest) => {
            compiled.output = std::mem::take(&mut manifest.output);
            let warnings = std::mem::take(&mut manifest.warnings);
            compiled.warnings.extend(warnings.into_iter().map(|text| warning(("", text, None))));
            Some((loader, manifest))
        }
        Err(error) => {
            let location = error.location().cloned();
            let mut error = error.into_error();
            if let Some(CodeLocation { file, line }) = location {
                let text = files.read(&file).ok().and_then(|text| String::from_utf8(text).ok());
                let text = text.unwrap_or_default();
                let loc = loader.sources.add_line(load::display_path(options, &file), text, line);
                error = error.at(loc);
            }
            compiled.sources = loader.sources;
            compiled.outcome = Err(error);
            None
        }
    }
}

/// Defines and evaluates the sources.
fn evaluate(
    files: &dyn Files,
    options: &Options,
    host: &mut dyn Host,
    loader: Loader<'_>,
    manifest: Manifest,
    compiled: &mut Compilation,
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
        (load::display_path(options, path), text.unwrap_or_default())
    };
    let built =
        builder.define(&asts, plugins, &show).and_then(|()| builder.lower(&asts)).and_then(|()| {
            builder.check_dataclasses(&Pairing {
                classes: &dataclasses,
                loaded: &loaded,
                builtin: &builtin,
                show: &|path| load::display_path(options, path),
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
    let system = ProjectSystem::new(files, options, &compiled.modules, &classes, templates);
    let mut evaluator =
        Evaluator::new(&builder.program, builder.heap, &system, host, options.limits);
    let outcome = evaluator.check_defaults().and_then(|()| evaluator.run());
    tracing::debug!(instances = evaluator.instance_count(), "evaluated");
    compiled.output.push_str(&std::mem::take(&mut evaluator.output));
    compiled.warnings.extend(std::mem::take(&mut evaluator.warnings).into_iter().map(warning));
    compiled.outcome =
        outcome.map(|()| Summary { instances: evaluator.instance_count(), files: count });
    let graph = evaluator.into_graph();
    let mut program = builder.program;
    compiled.sources = std::mem::take(&mut program.sources);
    if let Err(error) = &mut compiled.outcome {
        let show = |path: &str| system::show(&options.project_dir, path);
        error.resolve_file_locations(&mut compiled.sources, &show);
    }
    if compiled.outcome.is_ok() {
        compiled.model = Some(Model { program, graph });
    }
}

/// Runs the finalizers of the host. Failed finalizers are errors of a successful compile, and
/// warnings of a failed one.
fn finalize(host: &mut dyn Host, compiled: &mut Compilation) {
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

/// The modules that a host with code needs. Modules without code are included: code of other
/// modules may read their files.
fn with_code(modules: &[Module], host: &dyn Host) -> Vec<Module> {
    let found: Vec<Module> =
        modules.iter().filter(|module| host.can_load(module)).cloned().collect();
    if found.iter().all(|module| module.code.is_none()) {
        return Vec::new();
    }
    found
}

/// The modules to load. Built-in code exists for other modules that need it: alone it does not
/// justify starting a host.
fn loadable(modules: &[Module], host: &dyn Host) -> Vec<Module> {
    let found = with_code(modules, host);
    let mut coded = found.iter().filter(|module| module.code.is_some());
    let only_own = coded.all(|module| module.origin == Origin::Builtin);
    if only_own && !host.loads_builtin_modules() {
        return Vec::new();
    }
    found
}
