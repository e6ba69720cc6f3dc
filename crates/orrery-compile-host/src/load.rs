//! Start and end of a compile with a host: loading of code, and finalizers.

use std::path::{Path, PathBuf};

use orrery_compiler::host::{CodeLocation, LoadError, Manifest, PluginCall, Signature};
use orrery_compiler::load::Module;
use orrery_compiler::value::{UnknownId, Value};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use orrery_host::framing::{kind, parse};
use orrery_host::handshake::{HostRole, Init, ModuleCode, ModuleProblem};

use super::manifest::LoadReport;
use super::plugin_calls::is_plain_type;
use super::{CompileHost, HostSettings, PACKAGE, callbacks};

impl CompileHost {
    /// Starts the host and loads the code of modules.
    pub(super) fn start(&self, modules: Vec<ModuleCode>) -> Result<LoadReport, String> {
        self.connect()?;
        let HostSettings { project, environment, data, files, tests, path, config, .. } =
            self.setting.clone();
        let (role, fetch) = (HostRole::Compile, false);
        let init =
            Init { role, project, environment, data, files, fetch, tests, path, config, modules };
        self.with_connection(|connection| connection.writer.send(&init))?;
        let line = self.wait_for("loaded", &mut callbacks::CallbackContext::Nothing)?;
        parse(&line).map_err(|error| error.to_string())
    }

    /// Loads reserved code that a call needs.
    pub(super) fn load_late(&self, modules: Vec<ModuleCode>) -> Result<(), String> {
        let mut loaded = self.start(modules)?;
        if let Some(problem) = loaded.problems.first() {
            return Err(problem.problems.join("\n"));
        }
        *self.plugins.borrow_mut() = loaded.take_plugins().0;
        Ok(())
    }

    /// Binds the arguments of another host's plugin to the plugin of the same name here.
    pub(super) fn rebind(
        &self,
        signature: &Signature,
        call: &PluginCall<'_>,
    ) -> Option<ReboundCall> {
        let plugins = self.plugins.borrow();
        let plugin = plugins.iter().position(|plugin| plugin.name == signature.name)?;
        let mut bound =
            ReboundCall { plugin: plugin as u32, args: Vec::new(), omitted: Vec::new() };
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

    pub(super) fn try_load(
        &mut self,
        modules: &[Module],
    ) -> Result<Result<Manifest, LoadError>, String> {
        let sent: Vec<ModuleCode> = modules.iter().map(module_code).collect();
        self.modules = sent.iter().filter(|of| !of.code.as_os_str().is_empty()).cloned().collect();
        let mut loaded = self.start(sent)?;
        if let Some(problem) = loaded.problems.into_iter().next() {
            let ModuleProblem { module, mut problems } = problem;
            let location = problems
                .last_mut()
                .and_then(split_location)
                .map(|location| self.to_compiler_path(location));
            return Ok(Err(LoadError::Code { module, problems, location }));
        }
        loaded.problems = Vec::new();
        if let Some(problem) = loaded.plugin_problem() {
            return Ok(Err(LoadError::Plugin(problem)));
        }
        let (mut plugins, contexts): (Vec<Signature>, Vec<bool>) = loaded.take_plugins();
        self.batchable = plugins
            .iter()
            .zip(contexts)
            .map(|(plugin, context)| !context && is_plain_type(&plugin.returns))
            .collect();
        for plugin in &mut plugins {
            plugin.location =
                plugin.location.take().map(|location| self.to_compiler_path(location));
        }
        self.plugins.get_mut().clone_from(&plugins);
        let dataclasses = loaded.take_dataclasses();
        self.classes = loaded.take_resources();
        self.handlers = loaded.handlers;
        self.machine_handlers = loaded.machine_handlers;
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
        let (classes, output) = (self.classes.clone(), self.output.take());
        Ok(Ok(Manifest { plugins, dataclasses, classes, warnings, output }))
    }

    /// Converts a location to the project path that the compiler uses.
    pub(super) fn to_compiler_path(&self, location: CodeLocation) -> CodeLocation {
        match location.file.strip_prefix(&self.setting.project) {
            Ok(inside) => {
                CodeLocation { file: self.setting.project_given.join(inside), ..location }
            }
            Err(_) => location,
        }
    }

    /// Returns the output of code since the last call, outside of plugin calls.
    pub fn take_output(&self) -> String {
        self.output.take()
    }

    /// Waits for a message of a kind; answers callbacks meanwhile. No time limit: the user can
    /// interrupt the compile.
    pub(super) fn wait_for(
        &self,
        expected_kind: &str,
        callback_context: &mut callbacks::CallbackContext<'_>,
    ) -> Result<Vec<u8>, String> {
        loop {
            let line = self.receive()?;
            let word = kind(&line).map_err(|error| error.to_string())?.into_owned();
            if word == expected_kind {
                return Ok(line);
            }
            self.answer(&word, &line, callback_context)?;
        }
    }

    pub(super) fn try_finalize(&mut self, succeeded: bool) -> Result<Vec<String>, String> {
        self.send_json(&json!({"k": "finalize", "ok": succeeded}))?;
        let line = self.wait_for("finalized", &mut callbacks::CallbackContext::Nothing)?;
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

/// A call bound to a plugin of this host.
pub(super) struct ReboundCall {
    pub(super) plugin: u32,
    pub(super) args: Vec<Value>,
    pub(super) omitted: Vec<usize>,
}

/// Converts a module for the host; one without a package has no code, only files.
pub(super) fn module_code(module: &Module) -> ModuleCode {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    ModuleCode {
        name: module.name.clone(),
        package: format!("{PACKAGE}.{}", module.name),
        code: module.package.as_deref().map(absolute).unwrap_or_default(),
        root: absolute(&module.dir),
        version: module.version.clone().unwrap_or_default(),
    }
}

/// Splits the location off the end of a problem's text: `… (/path/of/file.py:12)`.
fn split_location(problem: &mut String) -> Option<CodeLocation> {
    let (text, location) = problem.strip_suffix(')')?.rsplit_once(" (")?;
    let (file, line) = location.rsplit_once(':')?;
    let location = CodeLocation { file: PathBuf::from(file), line: line.parse().ok()? };
    let kept = text.len();
    problem.truncate(kept);
    Some(location)
}

/// Returns the number of an unknown in a host's message.
pub(super) fn unknown_of(json: &Json) -> Option<UnknownId> {
    let parts = json.get("$")?.as_array()?;
    let number = parts.get(1)?.as_u64()?;
    (parts.first()?.as_str()? == "u").then(|| u32::try_from(number).ok().map(UnknownId))?
}
