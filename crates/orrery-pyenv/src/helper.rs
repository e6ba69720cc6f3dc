//! Runs `helper.py` in a virtualenv.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use orrery_model::PipSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::paths::python_of;

const HELPER: &str = include_str!("helper.py");

/// Installed packages of a virtualenv.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Contents {
    pub(crate) python: String,
    /// Version of pip, if installed.
    pub(crate) pip: Option<String>,
    pub(crate) packages: Vec<Package>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// Top-level import names.
    pub top_level: Vec<String>,
    /// Content of `direct_url.json`, if it is not from an index.
    #[serde(default)]
    pub origin: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Wheel {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) file: PathBuf,
}

#[derive(Debug, Deserialize)]
struct ChosenVersion {
    version: Option<String>,
}

pub(crate) fn inspect(environment: &Path) -> Result<Contents, Error> {
    ask(environment, &["inspect".into()])
}

/// Writes the wheel of the SDK into a directory; works with any interpreter.
pub(crate) fn sdk_wheel(python: &Path, sdk: &Path, into: &Path) -> Result<Wheel, Error> {
    let paths = [sdk, into].map(|path| path.display().to_string());
    let [sdk, into] = paths;
    run(python, &["sdk-wheel".into(), sdk, env!("CARGO_PKG_VERSION").into(), into])
}

/// Writes wheels without code, each with `name`, `version` and `requires`.
pub(crate) fn write_shims(
    environment: &Path,
    into: &Path,
    packages: &serde_json::Value,
) -> Result<(), Error> {
    let arguments = ["stand-ins".to_owned(), into.display().to_string(), packages.to_string()];
    ask::<serde_json::Value>(environment, &arguments).map(drop)
}

/// The first version that the specifiers allow.
pub(crate) fn choose(
    environment: &Path,
    specifiers: &[String],
    versions: &[String],
) -> Result<Option<String>, Error> {
    let mut arguments = vec!["choose".to_owned(), specifiers.join(",")];
    arguments.extend_from_slice(versions);
    Ok(ask::<ChosenVersion>(environment, &arguments)?.version)
}

/// pip's configuration for installations.
pub(crate) fn configuration(
    environment: &Path,
    settings: &PipSettings,
) -> Result<BTreeMap<String, String>, Error> {
    let mut command = command(&python_of(environment), &["configuration".into()]);
    answer(crate::pip_settings::configure(&mut command, settings))
}

/// SHA-256 hashes of all files that the indexes have of packages, given by name and version.
pub(crate) fn artefacts(
    environment: &Path,
    directory: &Path,
    settings: &PipSettings,
    sources: &[String],
    packages: &[(String, String)],
) -> Result<BTreeMap<String, Vec<String>>, Error> {
    let given = serde_json::json!(sources).to_string();
    let packages = serde_json::json!(packages).to_string();
    let mut command = command(&python_of(environment), &["artefacts".into(), given, packages]);
    command.current_dir(directory);
    answer(crate::pip_settings::configure(&mut command, settings))
}

/// An unsatisfied requirement.
#[derive(Debug, Deserialize)]
pub(crate) struct Unmet {
    pub(crate) text: String,
    /// The package, if it is not installed.
    pub(crate) missing: Option<String>,
}

/// Unsatisfied requirements of installed packages and of requirement lines.
pub(crate) fn unmet(
    environment: &Path,
    names: &[String],
    lines: &[String],
) -> Result<Vec<Unmet>, Error> {
    let mut arguments = vec!["unmet".to_owned(), serde_json::json!(lines).to_string()];
    arguments.extend_from_slice(names);
    ask(environment, &arguments)
}

fn ask<T: DeserializeOwned>(environment: &Path, arguments: &[String]) -> Result<T, Error> {
    run(&python_of(environment), arguments)
}

fn run<T: DeserializeOwned>(python: &Path, arguments: &[String]) -> Result<T, Error> {
    answer(&mut command(python, arguments))
}

fn command(python: &Path, arguments: &[String]) -> Command {
    let mut command = Command::new(python);
    command.args(["-I", "-c", HELPER]).args(arguments).stdin(Stdio::null());
    command
}

fn answer<T: DeserializeOwned>(command: &mut Command) -> Result<T, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(Error::system(format!("run {program}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed");
        return Err(Error::Helper(last.trim().to_owned()));
    }
    if !said.trim().is_empty() {
        tracing::debug!(%said, "helper");
    }
    serde_json::from_slice(&output.stdout).map_err(|error| Error::Helper(error.to_string()))
}
