//! Compiling with a host: plugins are called, and resources are serialized, in its process.
//!
//! `CompileHost` is a [`Host`] for the compiler and the [`Code`] of the export. It starts its process when there is a
//! module with code, so that a project without any never waits for one. Calls nest: while the host runs a plugin it
//! may ask for instances, variables and other plugins, and each question is answered before anything else happens.

mod answers;
mod exporting;
mod manifest;
mod serving;
mod types;
mod values;

use std::cell::{Cell, RefCell};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orrery_compiler::export::ResourceClass;
use orrery_compiler::host::{
    Call, Finalized, Host, HostContext, LoadError, Manifest, Place, Signature, View,
};
use orrery_compiler::load::Module;
use orrery_compiler::plugins::{CellId, Failure, Outcome};
use orrery_compiler::value::{InstanceId, UnknownId, Value};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::process::{HostCommand, HostProcess};
use crate::session::{Init, Lost, ModuleCode, ModuleProblem, Role, Session};
use crate::wire::{Reader, WireError, Writer, kind, parse};

use manifest::Loaded;
use values::{Shared, decode, encode, encode_blocks, instances_in};

/// How long a host may take until it says hello.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long the code of all modules may take to load.
const LOAD_LIMIT: Duration = Duration::from_secs(600);
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

    /// The modules whose code was loaded.
    pub fn modules(&self) -> &[ModuleCode] {
        &self.modules
    }

    /// How many messages were sent and received.
    pub fn messages(&self) -> u64 {
        self.messages.get()
    }

    /// Leaves the export of some entities to others.
    pub fn retain_classes(&mut self, keep: impl Fn(&str) -> bool) {
        self.classes.retain(|class| keep(&class.declaration.entity));
        self.handlers.retain(|entity| keep(entity));
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

    /// Tells the host about the types of the model, if it does not know them yet.
    fn send_types(&self, view: &dyn View) -> Result<(), String> {
        if self.types_sent.replace(true) {
            return Ok(());
        }
        self.send_json(&types::message(view))
    }

    fn try_call(&self, call: &Call<'_>, context: &mut dyn HostContext) -> Result<Outcome, String> {
        self.send_types(context)?;
        let at = context.called_at();
        let (line, _) = context.sources().line_col(at);
        let file = context.sources().file(at.file).name.clone();
        let namespace = context.caller_namespace();
        self.send(|out| {
            let shared = &mut *self.shared.borrow_mut();
            out.extend_from_slice(b"{\"k\":\"call\",\"p\":");
            out.extend_from_slice(call.plugin.to_string().as_bytes());
            out.extend_from_slice(b",\"a\":[");
            for (number, &argument) in call.args.iter().enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                encode(context.values(), shared, argument, out);
            }
            let rest = json!({"o": call.omitted, "ns": namespace, "at": [file, line]}).to_string();
            out.extend_from_slice(b"],");
            out.extend_from_slice(&rest.as_bytes()[1..rest.len() - 1]);
            out.extend_from_slice(b",\"x\":");
            let instances = instances_in(context.values(), call.args);
            encode_blocks(context, shared, instances, out);
            out.push(b'}');
        })?;
        self.outcome(context)
    }

    /// Waits for the answer of a call, and answers what is asked before it comes.
    fn outcome(&self, context: &mut dyn HostContext) -> Result<Outcome, String> {
        loop {
            let line = self.receive()?;
            let word = kind(&line).map_err(|error| error.to_string())?;
            if let Some(outcome) = self.read_outcome(&word, &line, context)? {
                return Ok(outcome);
            }
            self.answer(&word, &line, &mut answers::Asked::Call(context))?;
        }
    }

    /// The outcome of a call, if the message is one.
    fn read_outcome(
        &self,
        word: &str,
        line: &[u8],
        context: &mut dyn HostContext,
    ) -> Result<Option<Outcome>, String> {
        if !matches!(word, "result" | "unset" | "unknown" | "optional" | "error") {
            return Ok(None);
        }
        let json: Json = parse(line).map_err(|error| error.to_string())?;
        Ok(Some(self.outcome_of(word, &json, context)))
    }

    fn outcome_of(&self, word: &str, json: &Json, context: &mut dyn HostContext) -> Outcome {
        let shared = &mut *self.shared.borrow_mut();
        match word {
            "result" => decode(context, shared, &json["v"]),
            "unset" => {
                let cells: Vec<u32> = Vec::deserialize(&json["cells"]).unwrap_or_default();
                Err(Failure::Unset(cells.into_iter().map(CellId).collect()))
            }
            "unknown" => match decode(context, shared, &json["u"])? {
                unknown @ Value::Unknown(_) => Err(Failure::Unknown(unknown)),
                _ => Err(Failure::Runtime("the host named an unknown that is none".into())),
            },
            "optional" => {
                let instance = json["i"].as_u64().and_then(|id| u32::try_from(id).ok());
                let name = json["name"].as_str().unwrap_or_default();
                match instance.map(InstanceId).filter(|id| id.index() < context.instance_count()) {
                    Some(instance) => {
                        let entity = context.program().entity(context.entity_of(instance)).name;
                        let relation = format!("{}.{name}", context.program().text(entity));
                        Err(Failure::Optional { relation, instance, placed: true })
                    }
                    None => Err(Failure::Runtime("the host named an instance that is none".into())),
                }
            }
            _ => Err(failure(json)),
        }
    }
}

/// An error that a host reports.
fn failure(json: &Json) -> Failure {
    let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
    match json["kind"].as_str() {
        Some("runtime") => Failure::Runtime(text("message")),
        kind => Failure::Exception {
            class: text("class"),
            message: text("message"),
            explicit: kind == Some("plugin"),
        },
    }
}

impl Host for CompileHost {
    fn can_load(&self, module: &Module) -> bool {
        module.code.is_some()
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

    fn loads_own_modules(&self) -> bool {
        matches!(self.origin, Origin::Socket(_))
    }

    fn reserve(&mut self, modules: &[Module]) {
        *self.reserved.get_mut() = modules.iter().filter_map(code_of).collect();
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

impl CompileHost {
    /// Starts the host, and has it load the code of modules.
    fn start(&self, modules: Vec<ModuleCode>) -> Result<Loaded, String> {
        self.connect()?;
        let Setting { project, environment, data, files, tests, path, config, .. } =
            self.setting.clone();
        let role = Role::Compile;
        let init = Init { role, project, environment, data, files, tests, path, config, modules };
        self.on_wire(|connection| connection.writer.send(&init))?;
        let line = self.until("loaded", &mut answers::Asked::Nothing, LOAD_LIMIT)?;
        parse(&line).map_err(|error| error.to_string())
    }

    /// Loads code that is needed for a call.
    fn load_late(&self, modules: Vec<ModuleCode>) -> Result<(), String> {
        let mut loaded = self.start(modules)?;
        if let Some(problem) = loaded.problems.first() {
            return Err(problem.problems.join("\n"));
        }
        *self.plugins.borrow_mut() = loaded.take_plugins().0;
        Ok(())
    }

    /// Arguments for a plugin of another host as those of the plugin of that name here.
    fn bind_again(&self, signature: &Signature, call: &Call<'_>) -> Option<BoundAgain> {
        let plugins = self.plugins.borrow();
        let plugin = plugins.iter().position(|plugin| plugin.name == signature.name)?;
        let mut bound = BoundAgain { plugin: plugin as u32, args: Vec::new(), omitted: Vec::new() };
        for (at, parameter) in plugins[plugin].params.iter().enumerate() {
            let given = signature.params.iter().position(|of| of.name == parameter.name);
            match given.filter(|given| !call.omitted.contains(given)) {
                Some(given) => bound.args.push(call.args[given]),
                None => {
                    bound.args.push(Value::Null);
                    bound.omitted.push(at);
                }
            }
        }
        Some(bound)
    }

    fn try_load(&mut self, modules: &[Module]) -> Result<Result<Manifest, LoadError>, String> {
        self.modules = modules.iter().filter_map(code_of).collect();
        let mut loaded = self.start(self.modules.clone())?;
        if let Some(problem) = loaded.problems.into_iter().next() {
            let ModuleProblem { module, mut problems } = problem;
            let place = problems.last_mut().and_then(split_place).map(|place| self.as_given(place));
            return Ok(Err(LoadError::Code { module, problems, place }));
        }
        loaded.problems = Vec::new();
        if let Some(problem) = loaded.plugin_problem() {
            return Ok(Err(LoadError::Plugin(problem)));
        }
        let (mut plugins, _): (Vec<Signature>, Vec<bool>) = loaded.take_plugins();
        for plugin in &mut plugins {
            plugin.place = plugin.place.take().map(|place| self.as_given(place));
        }
        self.plugins.get_mut().clone_from(&plugins);
        let dataclasses = loaded.take_dataclasses();
        self.classes = loaded.take_resources();
        self.handlers = loaded.handlers;
        self.exporters = loaded.exporters;
        self.managers = loaded.managers;
        tracing::debug!(
            plugins = plugins.len(),
            classes = self.classes.len(),
            handlers = self.handlers.len(),
            finalizers = loaded.finalizers,
            "code loaded"
        );
        let mut warnings = loaded.warnings;
        warnings.extend(self.warnings.take());
        Ok(Ok(Manifest { plugins, dataclasses, warnings, output: self.output.take() }))
    }

    /// A place in the project by the path that the compiler has for it.
    fn as_given(&self, place: Place) -> Place {
        match place.file.strip_prefix(&self.setting.project) {
            Ok(inside) => Place { file: self.setting.project_given.join(inside), ..place },
            Err(_) => place,
        }
    }

    /// What code printed since it was last asked for, outside of calls.
    pub fn take_output(&self) -> String {
        self.output.take()
    }

    /// Waits for a message of a kind, and answers what is asked before it comes.
    fn until(
        &self,
        wanted: &str,
        asked: &mut answers::Asked<'_>,
        limit: Duration,
    ) -> Result<Vec<u8>, String> {
        tracing::trace!(wanted, ?limit, "waiting for the host");
        loop {
            let line = self.receive()?;
            let word = kind(&line).map_err(|error| error.to_string())?.into_owned();
            if word == wanted {
                return Ok(line);
            }
            self.answer(&word, &line, asked)?;
        }
    }

    fn try_finalize(&mut self, succeeded: bool) -> Result<Vec<String>, String> {
        self.send_json(&json!({"k": "finalize", "ok": succeeded}))?;
        let line = self.until("finalized", &mut answers::Asked::Nothing, LOAD_LIMIT)?;
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            errors: Vec<Json>,
            #[serde(default)]
            unknowns: Vec<Json>,
        }
        let answer: Answer = parse(&line).map_err(|error| error.to_string())?;
        self.unknown_parameters = answer.unknowns;
        let text = |error: Json| match error {
            Json::String(text) => text,
            other => other["message"].as_str().unwrap_or_default().to_owned(),
        };
        Ok(answer.errors.into_iter().map(text).collect())
    }
}

/// A call for a plugin of this host.
struct BoundAgain {
    plugin: u32,
    args: Vec<Value>,
    omitted: Vec<usize>,
}

fn code_of(module: &Module) -> Option<ModuleCode> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Some(ModuleCode {
        name: module.name.clone(),
        package: format!("{PACKAGE}.{}", module.name),
        code: absolute(module.code.as_deref()?),
        root: absolute(&module.dir),
        version: module.version.clone().unwrap_or_default(),
    })
}

/// Takes the place from the end of a problem's text: `… (/path/of/file.py:12)`.
fn split_place(problem: &mut String) -> Option<Place> {
    let (text, place) = problem.strip_suffix(')')?.rsplit_once(" (")?;
    let (file, line) = place.rsplit_once(':')?;
    let place = Place { file: PathBuf::from(file), line: line.parse().ok()? };
    let kept = text.len();
    problem.truncate(kept);
    Some(place)
}

/// The number of an unknown that a host names.
fn unknown_of(json: &Json) -> Option<UnknownId> {
    let parts = json.get("$")?.as_array()?;
    let number = parts.get(1)?.as_u64()?;
    (parts.first()?.as_str()? == "u").then(|| u32::try_from(number).ok().map(UnknownId))?
}
