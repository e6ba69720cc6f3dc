//! The beginning and the end of a compile with a host: its code is loaded, and what it wants run at the end is run.

use std::path::{Path, PathBuf};

use orrery_compiler::host::{Call, LoadError, Manifest, Place, Signature};
use orrery_compiler::load::Module;
use orrery_compiler::value::{UnknownId, Value};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::session::{Init, ModuleCode, ModuleProblem, Role};
use crate::wire::{kind, parse};

use super::calls::is_plain_type;
use super::manifest::Loaded;
use super::{CompileHost, PACKAGE, Setting, answers};

impl CompileHost {
    /// Starts the host, and has it load the code of modules.
    pub(super) fn start(&self, modules: Vec<ModuleCode>) -> Result<Loaded, String> {
        self.connect()?;
        let Setting { project, environment, data, files, tests, path, config, .. } =
            self.setting.clone();
        let (role, fetch) = (Role::Compile, false);
        let init =
            Init { role, project, environment, data, files, fetch, tests, path, config, modules };
        self.on_wire(|connection| connection.writer.send(&init))?;
        let line = self.until("loaded", &mut answers::Asked::Nothing)?;
        parse(&line).map_err(|error| error.to_string())
    }

    /// Loads code that is needed for a call.
    pub(super) fn load_late(&self, modules: Vec<ModuleCode>) -> Result<(), String> {
        let mut loaded = self.start(modules)?;
        if let Some(problem) = loaded.problems.first() {
            return Err(problem.problems.join("\n"));
        }
        *self.plugins.borrow_mut() = loaded.take_plugins().0;
        Ok(())
    }

    /// Arguments for a plugin of another host as those of the plugin of that name here.
    pub(super) fn bind_again(&self, signature: &Signature, call: &Call<'_>) -> Option<BoundAgain> {
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

    pub(super) fn try_load(
        &mut self,
        modules: &[Module],
    ) -> Result<Result<Manifest, LoadError>, String> {
        let told: Vec<ModuleCode> = modules.iter().map(code_of).collect();
        self.modules = told.iter().filter(|of| !of.code.as_os_str().is_empty()).cloned().collect();
        let mut loaded = self.start(told)?;
        if let Some(problem) = loaded.problems.into_iter().next() {
            let ModuleProblem { module, mut problems } = problem;
            let place = problems.last_mut().and_then(split_place).map(|place| self.as_given(place));
            return Ok(Err(LoadError::Code { module, problems, place }));
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
        let (classes, output) = (self.classes.clone(), self.output.take());
        Ok(Ok(Manifest { plugins, dataclasses, classes, warnings, output }))
    }

    /// A place in the project by the path that the compiler has for it.
    pub(super) fn as_given(&self, place: Place) -> Place {
        match place.file.strip_prefix(&self.setting.project) {
            Ok(inside) => Place { file: self.setting.project_given.join(inside), ..place },
            Err(_) => place,
        }
    }

    /// What code printed since it was last asked for, outside of calls.
    pub fn take_output(&self) -> String {
        self.output.take()
    }

    /// Waits for a message of a kind, and answers what is asked before it comes. Code may take its time: whoever
    /// compiles can interrupt it.
    pub(super) fn until(
        &self,
        wanted: &str,
        asked: &mut answers::Asked<'_>,
    ) -> Result<Vec<u8>, String> {
        loop {
            let line = self.receive()?;
            let word = kind(&line).map_err(|error| error.to_string())?.into_owned();
            if word == wanted {
                return Ok(line);
            }
            self.answer(&word, &line, asked)?;
        }
    }

    pub(super) fn try_finalize(&mut self, succeeded: bool) -> Result<Vec<String>, String> {
        self.send_json(&json!({"k": "finalize", "ok": succeeded}))?;
        let line = self.until("finalized", &mut answers::Asked::Nothing)?;
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
pub(super) struct BoundAgain {
    pub(super) plugin: u32,
    pub(super) args: Vec<Value>,
    pub(super) omitted: Vec<usize>,
}

/// A module as a host knows it; one that has no package has no code, only files.
pub(super) fn code_of(module: &Module) -> ModuleCode {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    ModuleCode {
        name: module.name.clone(),
        package: format!("{PACKAGE}.{}", module.name),
        code: module.package.as_deref().map(absolute).unwrap_or_default(),
        root: absolute(&module.dir),
        version: module.version.clone().unwrap_or_default(),
    }
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
pub(super) fn unknown_of(json: &Json) -> Option<UnknownId> {
    let parts = json.get("$")?.as_array()?;
    let number = parts.get(1)?.as_u64()?;
    (parts.first()?.as_str()? == "u").then(|| u32::try_from(number).ok().map(UnknownId))?
}
