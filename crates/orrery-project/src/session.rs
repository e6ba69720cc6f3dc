//! A compile together with the host that runs the code of its modules.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use orrery_compile_host::{CompileHost, HostOrigin, HostSettings};
use orrery_compiler::Compilation;
use orrery_compiler::export::{
    ExportResult, FinalView, ModuleCodeError, ResourceClass, export, export_with,
};
use orrery_compiler::files::Disk;
use orrery_compiler::host::{LayeredHost, NativeHost};
use orrery_compiler::load::is_builtin_entity;
use orrery_compiler::plugins::{Facts, ServerEnvironmentInfo};
use orrery_compiler::project::Options;
use orrery_handlers::Registry;
use orrery_handlers::target::host_name;
use orrery_host::code_store::CodeSet;
use orrery_host::{host_command, sources};
use orrery_model::{HostInventory, Inventory, PipSettings, ResourceType};
use orrery_pyenv::interpreters::Interpreter;
use serde_json::{Value as Json, json};

use crate::fact_snapshot::FactSnapshot;
use crate::location::{absolute, environment_id};

/// Directory of the deployment state, relative to the project.
pub const STATE_DIRECTORY: &str = "data/deploy";

/// Environment of a server that a model is compiled for.
#[derive(Clone)]
pub struct ServerContext {
    pub side: ServerEnvironmentInfo,
    /// Directory for file contents.
    pub files: PathBuf,
    pub known: Arc<FactSnapshot>,
}

/// Machine on which handlers will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeployingMachine {
    This,
    /// The machine of a server, or unknown.
    Unknown,
}

/// A compile and the host with the code of its modules.
pub(crate) struct CompileSession {
    pub(crate) compiled: Compilation,
    pub(crate) host: CompileHost,
    /// Patterns of agents that the project declares as the deploying machine.
    local_agents: Vec<String>,
    /// Hosts of the project's inventory.
    hosts: Arc<HostInventory>,
    /// The interpreter, once a host needed one.
    python: Arc<OnceLock<Interpreter>>,
}

impl CompileSession {
    /// A session with a compile that could not start.
    pub(crate) fn failed(compiled: Compilation) -> Self {
        let origin = HostOrigin::Process(Box::new(|| Err("no project".to_owned())));
        CompileSession {
            compiled,
            host: CompileHost::new(origin, HostSettings::default(), Box::new(not_offered)),
            local_agents: Vec::new(),
            hosts: Arc::default(),
            python: Arc::default(),
        }
    }

    /// Compiles, on this machine or for an environment of a server.
    pub(crate) fn compile(
        options: &Options,
        origin: Option<HostOrigin>,
        environment: Option<&ServerContext>,
        (local_agents, hosts): (&[String], Arc<HostInventory>),
    ) -> Self {
        let served = matches!(origin, Some(HostOrigin::Socket(_)));
        let python = Arc::default();
        let mut host = host(options, origin, &python, environment);
        let mut options = options.clone();
        options.resources = Registry::native().declarations().cloned().collect();
        let options = &options;
        let mut layered = LayeredHost::new(NativeHost, &mut host);
        if served {
            // Tests of a module must run its code, not the built-in one.
            layered = layered.prefer_second();
        }
        let compiled = orrery_compiler::compile_with(&Disk, options, &mut layered);
        CompileSession { compiled, host, local_agents: local_agents.to_vec(), hosts, python }
    }

    /// Returns the code that handlers need, if any. Call it after the export.
    pub(crate) fn code(&self, pip: &PipSettings) -> Option<CodeSet> {
        let python = self.python.get()?;
        let (modules, handlers) = (self.host.modules(), self.host.handlers());
        (!handlers.is_empty()).then(|| CodeSet {
            modules: modules.to_vec(),
            handlers: handlers.to_vec(),
            machine_handlers: self.host.machine_handlers(),
            python: Some(python.version.to_string()),
            program: python.program.clone(),
            path: Vec::new(),
            requirements: sources::requirements(modules),
            installed: Vec::new(),
            pip: pip.clone(),
        })
    }

    /// Placement information about the project's agents. Includes the names of this machine only if
    /// this machine deploys: uploads must not depend on the machine that compiles.
    fn inventory(&self, deployer: DeployingMachine) -> Inventory {
        let own = Inventory {
            project_patterns: self.local_agents.clone(),
            hosts: Arc::clone(&self.hosts),
            ..Inventory::default()
        };
        match deployer {
            DeployingMachine::This => own.on_host(&host_name()),
            DeployingMachine::Unknown => own,
        }
    }

    /// Runs exporters of module code.
    pub(crate) fn run_exporters(&self, names: &[String]) -> Result<(), ModuleCodeError> {
        match &self.compiled.model {
            Some(model) => {
                let sources = &self.compiled.sources;
                self.host.run_exporters(&FinalView { model, sources }, names)
            }
            None => Ok(()),
        }
    }

    /// Exports instances with the resource classes of module code, if there are any.
    pub(crate) fn export_with_code(&mut self) -> Option<Result<ExportResult, ModuleCodeError>> {
        let registry = Registry::native();
        let inventory = self.inventory(DeployingMachine::Unknown);
        let model = self.compiled.model.as_ref()?;
        let sources = &self.compiled.sources;
        let exported =
            export_with(model, sources, registry.declarations(), &inventory, &mut self.host);
        self.compiled.output.push_str(&self.host.take_output());
        Some(exported)
    }

    /// Exports the resources of the model, if it compiled.
    ///
    /// Built-in resource types apply only to entities of built-in modules: another module with the
    /// same name defines its own. A resource class in the code of another module overrides the
    /// built-in type.
    pub(crate) fn export(
        &mut self,
        registry: &Registry,
        deployer: DeployingMachine,
    ) -> Option<Result<ExportResult, ModuleCodeError>> {
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
        tracing::debug!(messages = self.host.messages(), "module code finished");
        Some(exported)
    }
}

fn host(
    options: &Options,
    origin: Option<HostOrigin>,
    python: &Arc<OnceLock<Interpreter>>,
    server: Option<&ServerContext>,
) -> CompileHost {
    let environment = orrery_compiler::project::python_environment(&Disk, options);
    let search = environment.clone();
    let python = Arc::clone(python);
    let origin = origin.unwrap_or_else(|| {
        HostOrigin::Process(Box::new(move || {
            let found = Interpreter::find(search.as_deref()).map_err(|error| error.to_string())?;
            let found = python.get_or_init(|| found);
            host_command(&found.program, "python").map_err(|error| error.to_string())
        }))
    });
    let project = absolute(&options.project_dir);
    let tests = matches!(origin, HostOrigin::Socket(_));
    let setting = HostSettings {
        tests,
        // Tests configure the environment themselves.
        environment: (!tests).then(|| {
            server
                .map_or_else(|| environment_id(&project), |server| server.side.environment.clone())
        }),
        data: project.join("data"),
        files: server.map_or_else(
            || project.join(STATE_DIRECTORY).join("files"),
            |server| server.files.clone(),
        ),
        project,
        project_given: options.project_dir.clone(),
        ..HostSettings::default()
    };
    if let Some(server) = server {
        let known = Arc::clone(&server.known);
        let ServerEnvironmentInfo { environment, environment_name, .. } = &server.side;
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

/// Response for a fact of a deployed resource.
fn fact(facts: &dyn Facts, arguments: &Json) -> (u16, Json) {
    let text = |name: &str| arguments[name].as_str().unwrap_or_default();
    let (resource, name) = (text("resource_id"), text("id"));
    match facts.fact(resource, name) {
        Some(value) => {
            let parameter = json!({"name": name, "value": value, "resource_id": resource});
            (200, json!({"parameter": parameter}))
        }
        None => (404, json!({"message": format!("no fact {name} of {resource}")})),
    }
}

/// Response to API calls that compiles may not make: they are read-only.
fn not_offered(method: &str, _: &Json) -> (u16, Json) {
    (404, json!({"message": format!("{method} is not offered to compiles")}))
}
