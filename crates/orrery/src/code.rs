//! The code of a project's modules: which host runs it, and what the host is told.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use orrery_compiler::Compiled;
use orrery_compiler::export::{CodeError, Exported, Frozen, ResourceClass, export, export_with};
use orrery_compiler::files::Disk;
use orrery_compiler::host::{Layered, NativeHost};
use orrery_compiler::load::is_builtin_entity;
use orrery_compiler::plugins::{Facts, ServerSide};
use orrery_compiler::project::{Options, Project};
use orrery_handlers::Registry;
use orrery_handlers::target::host_name;
use orrery_host::code::CodeSet;
use orrery_host::compiling::{CompileHost, Origin, Setting};
use orrery_host::python::{Interpreter, PythonError};
use orrery_model::{Inventory, ResourceType};
use serde_json::{Value as Json, json};

use crate::known::Known;
use crate::state;

/// The environment of a server that a model is compiled for.
pub(crate) struct ServerEnvironment {
    pub(crate) side: ServerSide,
    /// Where contents of files go.
    pub(crate) files: PathBuf,
    pub(crate) known: Arc<Known>,
}

/// The machine on which handlers will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeployingMachine {
    This,
    /// That of a server, or nobody knows.
    Unknown,
}

/// A compile, and the host that has the code of its modules.
pub(crate) struct Work {
    pub(crate) project: PathBuf,
    pub(crate) compiled: Compiled,
    pub(crate) host: CompileHost,
    /// The interpreter, once one was needed.
    python: Arc<OnceLock<Interpreter>>,
}

impl Work {
    /// A compile that could not even begin.
    pub(crate) fn failed(error: Box<orrery_compiler::error::CompileError>) -> Self {
        let origin = Origin::Process(Box::new(|| Err("there is no project".to_owned())));
        Work {
            project: PathBuf::from("."),
            compiled: Compiled::failed(error),
            host: CompileHost::new(origin, Setting::default(), Box::new(not_offered)),
            python: Arc::default(),
        }
    }

    pub(crate) fn compile(options: &Options, origin: Option<Origin>) -> Self {
        Self::compile_for(options, origin, None)
    }

    /// The same for an environment of a server.
    pub(crate) fn compile_for(
        options: &Options,
        origin: Option<Origin>,
        environment: Option<&ServerEnvironment>,
    ) -> Self {
        let served = matches!(origin, Some(Origin::Socket(_)));
        let python = Arc::default();
        let mut host = host(options, origin, &python, environment);
        let mut options = options.clone();
        options.resources = Registry::native().declarations().cloned().collect();
        let options = &options;
        let mut layered = Layered::new(NativeHost, &mut host);
        if served {
            // Whoever tests code wants that code to run.
            layered = layered.second_goes_first();
        }
        let compiled = orrery_compiler::compile_with(&Disk, options, &mut layered);
        Work { project: options.project_dir.clone(), compiled, host, python }
    }

    /// What runs the handlers of modules, if there are any. To be asked after the export.
    pub(crate) fn code(&self) -> Option<CodeSet> {
        let python = self.python.get()?;
        let (modules, handlers) = (self.host.modules(), self.host.handlers());
        // It was read when the project was compiled.
        let project = Project::load(&Disk, &self.project);
        (!handlers.is_empty()).then(|| CodeSet {
            modules: modules.to_vec(),
            handlers: handlers.to_vec(),
            python: Some(python.version.to_string()),
            program: python.program.clone(),
            path: Vec::new(),
            requirements: orrery_host::environments::requirements(modules),
            installed: Vec::new(),
            pip: project.map(|project| project.pip).unwrap_or_default(),
        })
    }

    /// Patterns of agents that are the deploying machine, as the project declares them.
    pub(crate) fn local_agents(&self) -> Vec<String> {
        let project = Project::load(&Disk, &self.project);
        project.map(|project| project.settings.local_agents).unwrap_or_default()
    }

    /// What is known of the project's agents. The names of the deploying machine are a part of it only where this machine deploys: what
    /// is sent to a server is the same from everywhere.
    fn inventory(&self, deployer: DeployingMachine) -> Inventory {
        let own = Inventory { project_patterns: self.local_agents(), ..Inventory::default() };
        match deployer {
            DeployingMachine::This => own.on_host(&host_name()),
            DeployingMachine::Unknown => own,
        }
    }

    /// Runs exporters that the code of modules offers.
    pub(crate) fn run_exporters(&self, names: &[String]) -> Result<(), CodeError> {
        match &self.compiled.model {
            Some(model) => {
                let sources = &self.compiled.sources;
                self.host.run_exporters(&Frozen { model, sources }, names)
            }
            None => Ok(()),
        }
    }

    /// Makes resources of the instances by the classes of code wherever there are any.
    pub(crate) fn export_by_code(&mut self) -> Option<Result<Exported, CodeError>> {
        let registry = Registry::native();
        let inventory = self.inventory(DeployingMachine::Unknown);
        let model = self.compiled.model.as_ref()?;
        let sources = &self.compiled.sources;
        let exported =
            export_with(model, sources, registry.declarations(), &inventory, &mut self.host);
        self.compiled.output.push_str(&self.host.take_output());
        Some(exported)
    }

    /// Makes resources of the instances, if the model compiled.
    ///
    /// What this program declares is for entities of its own modules: a module of another origin that has the name of one says itself
    /// what becomes of its entities. And a class in the code of any other module takes the place of what this program declares.
    pub(crate) fn export(
        &mut self,
        registry: &Registry,
        deployer: DeployingMachine,
    ) -> Option<Result<Exported, CodeError>> {
        let inventory = self.inventory(deployer);
        let model = self.compiled.model.as_ref()?;
        let sources = &self.compiled.sources;
        let modules = &self.compiled.modules;
        let native = registry.declarations().filter(|of| is_builtin_entity(modules, &of.entity));
        let native: Vec<&ResourceType> = native.collect();
        if !self.host.is_running() {
            return Some(Ok(export(model, sources, native, &inventory)));
        }
        let is_native = |entity: &str| native.iter().any(|of| &*of.entity == entity);
        let keep = |class: &ResourceClass| {
            !is_native(&class.declaration.entity) || !is_builtin_entity(modules, &class.module)
        };
        self.host.retain_classes(keep, is_native);
        let exported =
            export_with(model, sources, native.iter().copied(), &inventory, &mut self.host);
        self.compiled.output.push_str(&self.host.take_output());
        tracing::debug!(messages = self.host.messages(), "the code of modules has done its part");
        Some(exported)
    }
}

fn host(
    options: &Options,
    origin: Option<Origin>,
    python: &Arc<OnceLock<Interpreter>>,
    server: Option<&ServerEnvironment>,
) -> CompileHost {
    let environment = orrery_compiler::project::python_environment(&Disk, options);
    let search = environment.clone();
    let python = Arc::clone(python);
    let origin = origin.unwrap_or_else(|| {
        Origin::Process(Box::new(move || {
            let text = |error: PythonError| error.to_string();
            let found = Interpreter::find(search.as_deref()).map_err(text)?;
            python.get_or_init(|| found).host("python").map_err(text)
        }))
    });
    let project = absolute(&options.project_dir);
    let tests = matches!(origin, Origin::Socket(_));
    let setting = Setting {
        tests,
        // Tests say themselves whether there is one.
        environment: (!tests).then(|| {
            server
                .map_or_else(|| environment_id(&project), |server| server.side.environment.clone())
        }),
        data: project.join("data"),
        files: server.map_or_else(
            || project.join(state::DIRECTORY).join("files"),
            |server| server.files.clone(),
        ),
        project,
        project_given: options.project_dir.clone(),
        ..Setting::default()
    };
    if let Some(server) = server {
        let known = Arc::clone(&server.known);
        let ServerSide { environment, environment_name, .. } = &server.side;
        let own = json!({"id": environment, "name": environment_name});
        let server = move |method: &str, arguments: &Json| match method {
            "get_environment" => (200, json!({"environment": own, "data": own})),
            _ => known.answer(method, arguments).unwrap_or_else(|| not_offered(method, arguments)),
        };
        return CompileHost::new(origin, setting, Box::new(server));
    }
    let facts = options.facts.clone();
    let server = move |method: &str, arguments: &Json| match (&facts, method) {
        (Some(facts), "get_param") => fact(&**facts, arguments),
        (Some(_), "list_params") => (200, json!({"parameters": []})),
        _ => not_offered(method, arguments),
    };
    CompileHost::new(origin, setting, Box::new(server))
}

/// A fact of a deployed resource.
fn fact(facts: &dyn Facts, arguments: &Json) -> (u16, Json) {
    let text = |name: &str| arguments[name].as_str().unwrap_or_default();
    let (resource, name) = (text("resource_id"), text("id"));
    match facts.fact(resource, name) {
        Some(value) => {
            let parameter = json!({"name": name, "value": value, "resource_id": resource});
            (200, json!({"parameter": parameter}))
        }
        None => (404, json!({"message": format!("there is no fact {name} of {resource}")})),
    }
}

pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A name for the one environment of a project on this machine, in the form that code expects.
pub(crate) fn environment_id(project: &Path) -> String {
    use std::hash::{BuildHasher, BuildHasherDefault};
    let build = BuildHasherDefault::<rustc_hash::FxHasher>::default();
    let (high, low) = (build.hash_one(project), build.hash_one((project, "environment")));
    let hex = format!("{high:016x}{low:016x}");
    // Version 8 and the usual variant: an id made of what its maker likes.
    format!("{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

/// A compile asks for what is known; it changes nothing.
fn not_offered(method: &str, _: &Json) -> (u16, Json) {
    (404, json!({"message": format!("{method} is not offered to compiles")}))
}
