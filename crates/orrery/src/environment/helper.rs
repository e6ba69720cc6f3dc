//! Runs `helper.py` in an environment.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Error;
use super::error::python_of;

const HELPER: &str = include_str!("helper.py");

/// What is installed in an environment.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Contents {
    pub(crate) python: String,
    /// The version of pip, if there is one.
    pub(crate) pip: Option<String>,
    pub(crate) packages: Vec<Package>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The names that it adds to what can be imported.
    pub(crate) top_level: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Wheel {
    pub(super) name: String,
    pub(super) version: String,
}

#[derive(Debug, Deserialize)]
struct Chosen {
    version: Option<String>,
}

pub(super) fn inspect(environment: &Path) -> Result<Contents, Error> {
    ask(environment, &["inspect".into()])
}

/// Writes the wheel of the SDK into a directory.
pub(super) fn sdk_wheel(environment: &Path, sdk: &Path, into: &Path) -> Result<Wheel, Error> {
    ask(environment, &["sdk-wheel".into(), sdk.display().to_string(), into.display().to_string()])
}

/// Writes a wheel that is nothing but a name and a version.
pub(super) fn stand_in(
    environment: &Path,
    into: &Path,
    name: &str,
    version: &str,
) -> Result<(), Error> {
    let arguments = ["stand-in".into(), into.display().to_string(), name.into(), version.into()];
    ask::<serde_json::Value>(environment, &arguments).map(drop)
}

/// The first of some versions that specifiers allow.
pub(super) fn choose(
    environment: &Path,
    specifiers: &[String],
    versions: &[String],
) -> Result<Option<String>, Error> {
    let mut arguments = vec!["choose".to_owned(), specifiers.join(",")];
    arguments.extend_from_slice(versions);
    Ok(ask::<Chosen>(environment, &arguments)?.version)
}

fn ask<T: DeserializeOwned>(environment: &Path, arguments: &[String]) -> Result<T, Error> {
    let output = Command::new(python_of(environment))
        .args(["-I", "-c", HELPER])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::system(format!("run {}", python_of(environment).display())))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed");
        return Err(Error::Helper(last.trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| Error::Helper(error.to_string()))
}
