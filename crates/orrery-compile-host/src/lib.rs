//! Compile host: a process that runs plugins and serializes resources.
//!
//! `CompileHost` is a `Host` for the compiler and the `ResourceCode` of the export. It starts its
//! process when a module with code exists, so that a project without any never waits for one. Calls
//! nest: while the host runs a plugin it may request instances, variables and other plugins, and
//! each callback is answered before anything else happens.
//!
//! The crate knows nothing of handlers, stores or terminals. Its tests are the end-to-end tests of
//! models with Python code, in `crates/orrery/tests/it`.

mod callbacks;
mod export;
mod load;
mod manifest;
mod plugin_calls;
mod serve;
mod types;
mod values;

use std::cell::{Cell, RefCell};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use orrery_compiler::export::ResourceClass;
use orrery_compiler::host::{
    FinalizerReport, Host, HostContext, LoadError, Manifest, PluginCall, Signature,
};
use orrery_compiler::load::{Module, Origin as ModuleOrigin};
use orrery_compiler::plugins::{Failure, PluginResult};
use serde_json::Value as Json;

use orrery_host::framing::{Reader, WireError, Writer, kind};
use orrery_host::handshake::{HostSession, LostHost, ModuleCode};
use orrery_host::process::{HostCommand, HostProcess};

use load::module_code;
use values::SharedValues;

/// Time limit for the host's hello.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Python package that contains the modules' packages.
const PACKAGE: &str = "inmanta_plugins";

/// Answers server API calls of code: method and arguments in, status and result out.
pub type ServerApi = Box<dyn Fn(&str, &Json) -> (u16, Json)>;

/// Source of the host's connection.
pub enum HostOrigin {
    /// A process, started when needed. The command may be expensive to find.
    Process(Box<dyn Fn() -> Result<HostCommand, String>>),
    /// A connected process.
    Socket(UnixStream),
}

/// Settings that a compile sends to its host.
#[derive(Clone, Debug, Default)]
pub struct HostSettings {
    /// Absolute path of the project.
    pub project: PathBuf,
    /// Path of the project as the compiler uses it.
    pub project_given: PathBuf,
    pub environment: Option<String>,
    pub data: PathBuf,
    pub files: PathBuf,
    pub tests: bool,
    pub path: Vec<PathBuf>,
    pub config: serde_json::Map<String, Json>,
}

/// A host for one compile and its export.
pub struct CompileHost {
    origin: HostOrigin,
    setting: HostSettings,
    server: ServerApi,
    connection: RefCell<Option<Connection>>,
    shared: RefCell<SharedValues>,
    /// True once the types of the model were sent.
    types_sent: Cell<bool>,
    /// Reason of the loss of the host, if lost.
    lost: RefCell<Option<String>>,
    /// Plugins of the host, by number.
    plugins: RefCell<Vec<Signature>>,
    /// Plugins that may be called ahead of time.
    batchable: Vec<bool>,
    /// Modules with code that is loaded when a call needs it.
    reserved: RefCell<Vec<ModuleCode>>,
    classes: Vec<ResourceClass>,
    handlers: Vec<String>,
    /// Entities with handlers that use `io`.
    machine_handlers: Vec<String>,
    exporters: Vec<String>,
    managers: u32,
    modules: Vec<ModuleCode>,
    /// Facts to collect, as the code reported at its end.
    unknown_parameters: Vec<Json>,
    /// Output and warnings of code outside of calls.
    output: RefCell<String>,
    warnings: RefCell<Vec<String>>,
    messages: Cell<u64>,
}

struct Connection {
    reader: Reader<UnixStream>,
    writer: Writer<UnixStream>,
    /// `None` if another process started it.
    process: Option<HostProcess>,
}

impl CompileHost {
    pub fn new(origin: HostOrigin, setting: HostSettings, server: ServerApi) -> Self {
        CompileHost {
            origin,
            setting,
            server,
            connection: RefCell::new(None),
            shared: RefCell::default(),
            types_sent: Cell::new(false),
            lost: RefCell::new(None),
            plugins: RefCell::default(),
            batchable: Vec::new(),
            reserved: RefCell::default(),
            classes: Vec::new(),
            handlers: Vec::new(),
            machine_handlers: Vec::new(),
            exporters: Vec::new(),
            managers: 0,
            modules: Vec::new(),
            unknown_parameters: Vec::new(),
            output: RefCell::default(),
            warnings: RefCell::default(),
            messages: Cell::new(0),
        }
    }

    /// Returns true if a host is connected.
    pub fn is_running(&self) -> bool {
        self.connection.borrow().is_some()
    }

    /// Entities with handlers in the code.
    pub fn handlers(&self) -> &[String] {
        &self.handlers
    }

    /// Entities with handlers that use the files and programs of their agent's machine.
    pub fn machine_handlers(&self) -> Vec<String> {
        let is_handled = |entity: &&String| self.handlers.contains(entity);
        self.machine_handlers.iter().filter(is_handled).cloned().collect()
    }

    /// Modules with a Python package, all of it loaded.
    pub fn modules(&self) -> &[ModuleCode] {
        &self.modules
    }

    /// Number of messages sent and received.
    pub fn messages(&self) -> u64 {
        self.messages.get()
    }

    /// Retains the export of classes for which `keep` returns true. An entity that `is_served`
    /// elsewhere is handled by code only if its class is retained; then code handles it even
    /// without a handler.
    pub fn retain_classes(
        &mut self,
        keep: impl Fn(&ResourceClass) -> bool,
        is_served: impl Fn(&str) -> bool,
    ) {
        self.classes.retain(keep);
        let mut own: Vec<&str> =
            self.classes.iter().map(|class| &*class.declaration.entity).collect();
        own.retain(|entity| is_served(entity));
        self.handlers.retain(|entity| !is_served(entity) || own.contains(&entity.as_str()));
        let missing = own.into_iter().filter(|entity| !self.handlers.iter().any(|of| of == entity));
        let missing: Vec<String> = missing.map(str::to_owned).collect();
        self.handlers.extend(missing);
        self.handlers.sort_unstable();
    }

    fn connect(&self) -> Result<(), String> {
        let connection = match &self.origin {
            HostOrigin::Process(command) => {
                let HostSession { process, reader, writer, .. } =
                    HostSession::open(&command()?, START_LIMIT)
                        .map_err(|error| error.to_string())?;
                Connection { reader, writer, process: Some(process) }
            }
            HostOrigin::Socket(socket) => {
                let copy = || socket.try_clone().map_err(|error| error.to_string());
                let mut reader = Reader::new(copy()?);
                let line = reader.read_line().map_err(|error| error.to_string())?;
                if !matches!(kind(line), Ok(kind) if kind == "hello") {
                    return Err("the host sent no hello".to_owned());
                }
                Connection { reader, writer: Writer::new(copy()?), process: None }
            }
        };
        *self.connection.borrow_mut() = Some(connection);
        Ok(())
    }

    /// Sends a message.
    fn send(&self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
        self.with_connection(|connection| connection.writer.write(fill))
    }

    fn send_json(&self, message: &Json) -> Result<(), String> {
        self.with_connection(|connection| connection.writer.send(message))
    }

    /// Receives the next raw message.
    fn receive(&self) -> Result<Vec<u8>, String> {
        self.with_connection(|connection| connection.reader.read_line().map(<[u8]>::to_vec))
    }

    /// Uses the connection; an error ends it.
    fn with_connection<T>(
        &self,
        act: impl FnOnce(&mut Connection) -> Result<T, WireError>,
    ) -> Result<T, String> {
        let mut place = self.connection.borrow_mut();
        let Some(connection) = place.as_mut() else {
            let lost = self.lost.borrow();
            return Err(lost.clone().unwrap_or_else(|| "no host is connected".to_owned()));
        };
        self.messages.set(self.messages.get() + 1);
        let error = match act(connection) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let text = match &connection.process {
            Some(process) => LostHost::from_error(process, &error).to_string(),
            None => format!("the host was lost: {error}"),
        };
        *place = None;
        *self.lost.borrow_mut() = Some(text.clone());
        Err(text)
    }
}

impl Host for CompileHost {
    fn can_load(&self, module: &Module) -> bool {
        module.code.is_some() || module.origin != ModuleOrigin::Builtin
    }

    fn load(&mut self, modules: &[Module]) -> Result<Manifest, LoadError> {
        let all = || modules.first().map(|module| module.name.clone()).unwrap_or_default();
        self.try_load(modules).unwrap_or_else(|problem| {
            Err(LoadError::Code { module: all(), problems: vec![problem], location: None })
        })
    }

    fn call(&self, call: &PluginCall<'_>, context: &mut dyn HostContext) -> PluginResult {
        self.try_call(call, context).unwrap_or_else(|problem| Err(Failure::Runtime(problem)))
    }

    fn can_batch(&self, plugin: u32) -> bool {
        self.batchable.get(plugin as usize).copied().unwrap_or_default()
    }

    fn call_many(
        &self,
        calls: &[PluginCall<'_>],
        context: &mut dyn HostContext,
    ) -> Vec<PluginResult> {
        self.try_call_many(calls, context).unwrap_or_else(|problem| {
            calls.iter().map(|_| Err(Failure::Runtime(problem.clone()))).collect()
        })
    }

    fn loads_builtin_modules(&self) -> bool {
        matches!(self.origin, HostOrigin::Socket(_))
    }

    fn defer_load(&mut self, modules: &[Module]) {
        *self.reserved.get_mut() = modules.iter().map(module_code).collect();
    }

    fn call_fallback(
        &self,
        signature: &Signature,
        call: &PluginCall<'_>,
        context: &mut dyn HostContext,
    ) -> Option<PluginResult> {
        let late = self.reserved.take();
        if !late.is_empty()
            && let Err(problem) = self.load_late(late)
        {
            return Some(Err(Failure::Runtime(problem)));
        }
        let bound = self.rebind(signature, call)?;
        let call = PluginCall { plugin: bound.plugin, args: &bound.args, omitted: &bound.omitted };
        Some(self.call(&call, context))
    }

    fn finalize(&mut self, succeeded: bool) -> FinalizerReport {
        if !self.is_running() {
            return FinalizerReport::default();
        }
        let mut finalized = match self.try_finalize(succeeded) {
            Ok(errors) => FinalizerReport { errors, ..FinalizerReport::default() },
            Err(problem) => FinalizerReport { errors: vec![problem], ..FinalizerReport::default() },
        };
        finalized.output = self.output.take();
        finalized.warnings = self.warnings.take();
        finalized
    }
}
