//! Compiling with a host: plugins are called, and resources are serialized, in its process.
//!
//! `CompileHost` is a `Host` for the compiler and the `Code` of the export. It starts its process when there is a
//! module with code, so that a project without any never waits for one. Calls nest: while the host runs a plugin it
//! may ask for instances, variables and other plugins, and each question is answered before anything else happens.

mod answers;
mod calls;
mod exporting;
mod loading;
mod manifest;
mod serving;
mod types;
mod values;

use std::cell::{Cell, RefCell};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use orrery_compiler::export::ResourceClass;
use orrery_compiler::host::{Call, Finalized, Host, HostContext, LoadError, Manifest, Signature};
use orrery_compiler::load::{Module, Origin as ModuleOrigin};
use orrery_compiler::plugins::{Failure, Outcome};
use serde_json::Value as Json;

use crate::process::{HostCommand, HostProcess};
use crate::session::{Lost, ModuleCode, Session};
use crate::wire::{Reader, WireError, Writer, kind};

use loading::code_of;
use values::Shared;

/// How long a host may take until it says hello.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The package in which the code of modules lies.
const PACKAGE: &str = "inmanta_plugins";

/// Answers what code asks of a server: method and arguments, status and result.
pub type Server = Box<dyn Fn(&str, &Json) -> (u16, Json)>;

/// Where a host comes from.
pub enum Origin {
    /// A process of its own, started when it is needed. The command may be costly to find.
    Process(Box<dyn Fn() -> Result<HostCommand, String>>),
    /// Somebody who is there already.
    Socket(UnixStream),
}

/// What a compile tells its host.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Where the project is, from the root.
    pub project: PathBuf,
    /// The same as the compiler knows it.
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
    origin: Origin,
    setting: Setting,
    server: Server,
    connection: RefCell<Option<Connection>>,
    shared: RefCell<Shared>,
    /// The types of the model have been sent.
    types_sent: Cell<bool>,
    /// Why there is no host any more.
    lost: RefCell<Option<String>>,
    /// The plugins that the host has, by number.
    plugins: RefCell<Vec<Signature>>,
    /// Which of them may be called before their turn.
    batchable: Vec<bool>,
    /// Modules whose code is loaded when a call needs it.
    reserved: RefCell<Vec<ModuleCode>>,
    classes: Vec<ResourceClass>,
    handlers: Vec<String>,
    exporters: Vec<String>,
    managers: u32,
    modules: Vec<ModuleCode>,
    /// Facts that somebody should find out, as the code said at its end.
    unknown_parameters: Vec<Json>,
    /// What code printed and warned of outside of calls.
    output: RefCell<String>,
    warnings: RefCell<Vec<String>>,
    messages: Cell<u64>,
}

struct Connection {
    reader: Reader<UnixStream>,
    writer: Writer<UnixStream>,
    /// None if somebody else started it.
    process: Option<HostProcess>,
}

impl CompileHost {
    pub fn new(origin: Origin, setting: Setting, server: Server) -> Self {
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
            exporters: Vec::new(),
            managers: 0,
            modules: Vec::new(),
            unknown_parameters: Vec::new(),
            output: RefCell::default(),
            warnings: RefCell::default(),
            messages: Cell::new(0),
        }
    }

    /// Whether there is a host at all.
    pub fn is_running(&self) -> bool {
        self.connection.borrow().is_some()
    }

    /// The entities that the code has handlers for.
    pub fn handlers(&self) -> &[String] {
        &self.handlers
    }

    /// The modules that have a Python package. All of it was loaded.
    pub fn modules(&self) -> &[ModuleCode] {
        &self.modules
    }

    /// How many messages were sent and received.
    pub fn messages(&self) -> u64 {
        self.messages.get()
    }

    /// Leaves the export of some classes to others. An entity that `is_served` elsewhere is handled by code only if its class is kept; then
    /// code handles it, even if all that it can say is that it has no handler.
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
            Origin::Process(command) => {
                let Session { process, reader, writer, .. } =
                    Session::open(&command()?, START_LIMIT).map_err(|error| error.to_string())?;
                Connection { reader, writer, process: Some(process) }
            }
            Origin::Socket(socket) => {
                let copy = || socket.try_clone().map_err(|error| error.to_string());
                let mut reader = Reader::new(copy()?);
                let line = reader.read_line().map_err(|error| error.to_string())?;
                if !matches!(kind(line), Ok(kind) if kind == "hello") {
                    return Err("the host did not say hello".to_owned());
                }
                Connection { reader, writer: Writer::new(copy()?), process: None }
            }
        };
        *self.connection.borrow_mut() = Some(connection);
        Ok(())
    }

    /// Sends a message.
    fn send(&self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
        self.on_wire(|connection| connection.writer.write(fill))
    }

    fn send_json(&self, message: &Json) -> Result<(), String> {
        self.on_wire(|connection| connection.writer.send(message))
    }

    /// The next message, as it came.
    fn receive(&self) -> Result<Vec<u8>, String> {
        self.on_wire(|connection| connection.reader.read_line().map(<[u8]>::to_vec))
    }

    /// Does something with the connection; an error is the end of it.
    fn on_wire<T>(
        &self,
        act: impl FnOnce(&mut Connection) -> Result<T, WireError>,
    ) -> Result<T, String> {
        let mut place = self.connection.borrow_mut();
        let Some(connection) = place.as_mut() else {
            let lost = self.lost.borrow();
            return Err(lost.clone().unwrap_or_else(|| "there is no host".to_owned()));
        };
        self.messages.set(self.messages.get() + 1);
        let error = match act(connection) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let text = match &connection.process {
            Some(process) => Lost::after(process, &error).to_string(),
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
            Err(LoadError::Code { module: all(), problems: vec![problem], place: None })
        })
    }

    fn call(&self, call: &Call<'_>, context: &mut dyn HostContext) -> Outcome {
        self.try_call(call, context).unwrap_or_else(|problem| Err(Failure::Runtime(problem)))
    }

    fn can_batch(&self, plugin: u32) -> bool {
        self.batchable.get(plugin as usize).copied().unwrap_or_default()
    }

    fn call_many(&self, calls: &[Call<'_>], context: &mut dyn HostContext) -> Vec<Outcome> {
        self.try_call_many(calls, context).unwrap_or_else(|problem| {
            calls.iter().map(|_| Err(Failure::Runtime(problem.clone()))).collect()
        })
    }

    fn loads_own_modules(&self) -> bool {
        matches!(self.origin, Origin::Socket(_))
    }

    fn reserve(&mut self, modules: &[Module]) {
        *self.reserved.get_mut() = modules.iter().map(code_of).collect();
    }

    fn call_instead(
        &self,
        signature: &Signature,
        call: &Call<'_>,
        context: &mut dyn HostContext,
    ) -> Option<Outcome> {
        let late = self.reserved.take();
        if !late.is_empty()
            && let Err(problem) = self.load_late(late)
        {
            return Some(Err(Failure::Runtime(problem)));
        }
        let bound = self.bind_again(signature, call)?;
        let call = Call { plugin: bound.plugin, args: &bound.args, omitted: &bound.omitted };
        Some(self.call(&call, context))
    }

    fn finalize(&mut self, succeeded: bool) -> Finalized {
        if !self.is_running() {
            return Finalized::default();
        }
        let mut finalized = match self.try_finalize(succeeded) {
            Ok(errors) => Finalized { errors, ..Finalized::default() },
            Err(problem) => Finalized { errors: vec![problem], ..Finalized::default() },
        };
        finalized.output = self.output.take();
        finalized.warnings = self.warnings.take();
        finalized
    }
}
