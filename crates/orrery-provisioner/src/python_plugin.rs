//! Plug-ins in Python: a process for each call, in a virtualenv, with a request on its standard
//! input and the answer on its standard output.

use std::path::PathBuf;
use std::sync::Mutex;

use orrery_base::lock::IgnorePoison as _;
use orrery_handlers::target::{CommandLine, Variables};
use orrery_handlers::{CancelToken, Durability, LocalTarget, Target as _};
use orrery_model::PipSettings;
use orrery_pyenv::interpreters::Interpreter;
use orrery_pyenv::{VirtualEnvSpec, VirtualEnvs};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plugin::PluginError;

/// Largest answer in bytes.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Virtualenv with the packages of a plug-in, created at the first use.
#[derive(Debug)]
pub(crate) struct PythonPackages {
    environments: VirtualEnvs,
    requirements: Vec<String>,
    interpreter: Mutex<Option<Interpreter>>,
}

impl PythonPackages {
    pub(crate) fn new(directory: PathBuf, requirements: &[&str]) -> Self {
        PythonPackages {
            environments: VirtualEnvs::new(directory, Vec::new()),
            requirements: requirements.iter().map(|&text| text.to_owned()).collect(),
            interpreter: Mutex::default(),
        }
    }

    /// Interpreter with the packages. Concurrent callers wait for the installation in progress.
    ///
    /// # Errors
    /// If there is no Python, or the packages cannot be installed.
    pub(crate) fn interpreter(&self) -> Result<Interpreter, PluginError> {
        let mut known = self.interpreter.lock().ignore_poison();
        if let Some(interpreter) = known.as_ref().filter(|found| found.program.exists()) {
            return Ok(interpreter.clone());
        }
        let names = self.requirements.join(", ");
        let base = Interpreter::find(None).map_err(|error| {
            PluginError::new(format!("cannot install {names}: {error}"))
                .with_hint("install Python 3 with its module venv")
        })?;
        let spec = VirtualEnvSpec {
            requirements: &self.requirements,
            modules: &[],
            sources: Vec::new(),
            pip: &PipSettings::default(),
        };
        let found = self.environments.interpreter(&base, &spec).map_err(|error| {
            PluginError::new(format!("cannot install {names}: {error}"))
                .with_hint("see if this machine reaches a package index: PIP_INDEX_URL")
        })?;
        *known = Some(found.clone());
        Ok(found)
    }
}

/// A plug-in in Python.
#[derive(Debug)]
pub(crate) struct PythonPlugin {
    name: &'static str,
    script: &'static str,
    packages: PythonPackages,
}

/// Answer of a plug-in that failed.
#[derive(Debug, Serialize, Deserialize)]
struct PluginFailure {
    message: String,
    #[serde(default)]
    hint: Option<String>,
    /// The request may have been carried out.
    #[serde(default)]
    unclear: bool,
}

impl PythonPlugin {
    pub(crate) fn new(name: &'static str, script: &'static str, packages: PythonPackages) -> Self {
        PythonPlugin { name, script, packages }
    }

    /// Sends a request, and returns the answer. The request may have secrets: it is only on the
    /// standard input of the process.
    ///
    /// # Errors
    /// If the plug-in fails, or does not answer.
    pub(crate) fn call(&self, request: &Value, stop: &CancelToken) -> Result<Value, PluginError> {
        let interpreter = self.packages.interpreter()?;
        let program = interpreter.program.display().to_string();
        let mut command = CommandLine::new([program.as_str(), "-I", "-c", self.script]);
        command.input = request.to_string().into_bytes();
        command.timeout = stop.remaining();
        command.output_limit = ANSWER_BYTES_MAX;
        let target = LocalTarget::new(Durability::None).with_variables(Variables::Standard);
        let output = target.run(&command, stop).map_err(|error| {
            // The message would have the whole script.
            let text = format!("the plug-in {} did not answer: {}", self.name, error.cause);
            let is_unclear = error.cause.is_unclear();
            PluginError { is_unclear, ..PluginError::new(text) }
        })?;
        let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        let Some(answer) = answer.filter(|_| output.success()) else {
            let text = format!("the plug-in {} failed: {}", self.name, output.error_excerpt());
            return Err(PluginError::new(text).unclear());
        };
        match answer.get("error") {
            None => Ok(answer),
            Some(error) => {
                let failure = PluginFailure::deserialize(error).map_err(|error| {
                    PluginError::new(format!("the answer of {}: {error}", self.name)).unclear()
                })?;
                let (hint, is_unclear) = (failure.hint, failure.unclear);
                Err(PluginError { hint, is_unclear, ..PluginError::new(failure.message) })
            }
        }
    }
}
