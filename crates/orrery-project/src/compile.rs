//! Compiles a found project and exports its resources.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use orrery_compile_host::{CompileHost, HostOrigin};
use orrery_compiler::Compilation;
use orrery_compiler::diagnostic::Diagnostic;
use orrery_compiler::error::CompileError;
use orrery_compiler::export::{
    ExcludedResources, ExportProblem, ExportResult, ExportWarning, ModuleCodeError,
    has_requirement_cycle,
};
use orrery_compiler::plugins::Facts;
use orrery_compiler::project::{CompileLimits, Options, ProjectMetadata};
use orrery_handlers::Registry;
use orrery_host::code_store::CodeSet;
use orrery_model::{PipSettings, ResourceId};

use crate::inventory::ProjectInventory;
use crate::location::FoundProject;
use crate::session::{CompileSession, DeployingMachine, ServerContext};

/// Options of one compile.
#[derive(Default)]
pub struct ProjectRequest {
    /// True to compile without the implicit import of `std`.
    pub without_std: bool,
    /// Virtualenv of the project; the usual one is found without it.
    pub python_environment: Option<PathBuf>,
    /// Time visible to the model, in seconds since 1970.
    pub now: f64,
    pub limits: CompileLimits,
    pub facts: FactSource,
    pub export: ExportMode,
    /// Exporters of module code to run after the export.
    pub exporters: Vec<String>,
    /// Socket to a process that runs the module code itself, such as module tests. The export then
    /// uses the resource classes of that code.
    pub code_socket: Option<UnixStream>,
}

/// Source of facts and parameters.
#[derive(Clone, Default)]
pub enum FactSource {
    /// Nothing is ever deployed.
    #[default]
    None,
    /// Facts of deployed resources.
    Deployed(Arc<dyn Facts>),
    /// An environment of a server.
    Server(ServerContext),
}

/// Extent of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExportMode {
    /// Exports only if requirements are cyclic: that is an error of the model.
    #[default]
    OnlyIfCyclic,
    Resources(DeployingMachine),
}

/// An attribute of a resource without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownValue {
    pub name: String,
    /// Resource with the missing fact, if it is a fact.
    pub fact_of: Option<ResourceId>,
}

/// Result of a compile: values, diagnostics, and the host with the code of the modules.
pub struct CompiledProject {
    /// Directory, as it was named or found.
    pub directory: PathBuf,
    /// Name that environments are bound to.
    pub name: String,
    /// Name in `project.yml`, if any.
    pub declared_name: Option<String>,
    /// Patterns of agents that the project declares as the deploying machine.
    pub local_agents: Vec<String>,
    /// Content of `inventory.yml`, if there is one.
    pub inventory: Option<ProjectInventory>,
    pub compiled: Compilation,
    /// Resources, if they were exported.
    pub exported: Option<ExportResult>,
    /// Error of module code during the export.
    pub export_error: Option<ModuleCodeError>,
    code: Option<CodeSet>,
    host: CompileHost,
}

/// Compiles a project and exports it as requested. Problems of the model are part of the result.
pub fn compile(project: FoundProject, request: ProjectRequest) -> CompiledProject {
    let name = project.name();
    let declared_name = project.declared_name().map(str::to_owned);
    let mut options = project.options();
    let FoundProject { directory, metadata, .. } = project;
    options.implicit_std = !request.without_std;
    options.python_environment = request.python_environment;
    options.now = request.now;
    options.limits = request.limits;
    log_project(&options);
    let server = match request.facts {
        FactSource::None => None,
        FactSource::Deployed(facts) => {
            options.facts = Some(facts);
            None
        }
        FactSource::Server(server) => {
            options.server = Some(server.side.clone());
            options.facts = Some(Arc::clone(&server.known) as Arc<dyn Facts>);
            Some(server)
        }
    };
    let (pip, local_agents) = match metadata {
        Some(ProjectMetadata { pip, settings, .. }) => (pip, settings.local_agents),
        None => (PipSettings::default(), Vec::new()),
    };
    let served = request.code_socket.is_some();
    let origin = request.code_socket.map(HostOrigin::Socket);
    let (mut session, inventory) = match ProjectInventory::read(&directory) {
        Ok(inventory) => {
            let hosts = inventory.as_ref().map(|one| Arc::clone(&one.hosts)).unwrap_or_default();
            let agents = (local_agents.as_slice(), hosts);
            (CompileSession::compile(&options, origin, server.as_ref(), agents), inventory)
        }
        Err(error) => (CompileSession::failed(error.into_compilation()), None),
    };
    session.compiled.warnings.extend(ProjectInventory::warning(&directory));
    let exported = match request.export {
        _ if served => session.export_with_code(),
        ExportMode::Resources(machine) => session.export(&Registry::native(), machine),
        ExportMode::OnlyIfCyclic
            if session.compiled.model.as_ref().is_some_and(has_requirement_cycle) =>
        {
            session.export(&Registry::native(), DeployingMachine::Unknown)
        }
        ExportMode::OnlyIfCyclic => None,
    };
    let exported = exported.transpose().and_then(|exported| {
        session.run_exporters(&request.exporters)?;
        Ok(exported)
    });
    let code = session.code(&pip);
    let CompileSession { mut compiled, host, .. } = session;
    compiled.output.push_str(&host.take_output());
    let (exported, export_error) = match exported {
        Ok(exported) => (exported, None),
        Err(error) => (None, Some(error)),
    };
    debug_assert!(exported.is_none() || compiled.model.is_some(), "only a model has resources");
    CompiledProject {
        directory,
        name,
        declared_name,
        local_agents,
        inventory,
        compiled,
        exported,
        export_error,
        code,
        host,
    }
}

fn log_project(options: &Options) {
    tracing::debug!(
        project = %options.project_dir.display(),
        main = options.main_file,
        python = ?options.python_environment,
        "found the project"
    );
}

impl CompiledProject {
    /// Result for a project that could not be found.
    pub fn not_found(error: Box<CompileError>) -> Self {
        let CompileSession { compiled, host, .. } =
            CompileSession::failed(Compilation::failed(error));
        CompiledProject {
            directory: PathBuf::from("."),
            name: String::new(),
            declared_name: None,
            local_agents: Vec::new(),
            inventory: None,
            compiled,
            exported: None,
            export_error: None,
            code: None,
            host,
        }
    }

    /// Warnings of the compile.
    pub fn warnings(&self) -> Vec<Diagnostic> {
        self.compiled.warnings.iter().map(Diagnostic::from).collect()
    }

    /// Errors of the compile.
    pub fn errors(&self) -> Vec<Diagnostic> {
        self.compiled.errors()
    }

    /// Problems that keep resources out of the export.
    pub fn export_problems(&self) -> Vec<Diagnostic> {
        self.problems().iter().map(Diagnostic::from).collect()
    }

    /// Cycles of requirements.
    pub fn cycles(&self) -> Vec<Diagnostic> {
        let cycles = self.problems().iter();
        let cycles = cycles.filter(|problem| matches!(problem, ExportProblem::Cycle { .. }));
        cycles.map(Diagnostic::from).collect()
    }

    fn problems(&self) -> &[ExportProblem] {
        self.exported.as_ref().map_or(&[], |exported| &exported.problems)
    }

    /// Warnings of the export.
    pub fn export_warnings(&self) -> &[ExportWarning] {
        self.exported.as_ref().map_or(&[], |exported| &exported.warnings)
    }

    /// Number of resources that cannot be deployed: left out, or without a handler.
    pub fn undeployable(&self) -> usize {
        let without_handler = self.export_warnings().iter().map(|warning| match warning {
            ExportWarning::NoHandler { count, .. } => *count,
            _ => 0,
        });
        self.left_out() + without_handler.sum::<usize>()
    }

    /// Number of resources of the model that are not exported.
    pub fn left_out(&self) -> usize {
        self.exported.as_ref().map_or(0, ExportResult::left_out)
    }

    /// Resources of the model that are not exported, since they cannot be identified yet.
    pub fn left_out_resources(&self) -> ExcludedResources {
        self.exported.as_ref().map(ExportResult::left_out_resources).unwrap_or_default()
    }

    /// Attributes of exported resources without a value.
    pub fn unknowns(&self) -> Vec<UnknownValue> {
        let unknowns = self.exported.iter().flat_map(|exported| &exported.unknowns);
        let unknown = unknowns.map(|one| UnknownValue {
            name: one.attribute.to_string(),
            fact_of: one.fact_of.clone(),
        });
        unknown.collect()
    }

    /// Takes the module code that handlers need, if any.
    pub fn take_code(&mut self) -> Option<CodeSet> {
        self.code.take()
    }

    /// Turns an error of module code during the export into an error of the compile.
    pub fn fail_on_export_error(&mut self) {
        if let Some(error) = self.export_error.take() {
            self.fail(error.to_string());
        }
    }

    /// Replaces the outcome of the compile by an error.
    pub fn fail(&mut self, text: String) {
        self.compiled.outcome = Err(CompileError::new("CompilerException", text));
    }

    /// Host that runs the code of the modules.
    pub fn host(&self) -> &CompileHost {
        &self.host
    }

    /// Ends the host and leaks the model: freeing a large one takes longer than the rest of a
    /// command.
    pub fn finish(self) {
        let CompiledProject { compiled, host, .. } = self;
        std::mem::forget(compiled);
        drop(host);
    }
}
