//! uv, a faster replacement of pip. Used if it is installed and supports all of pip's
//! configuration, so that packages come from the same sources. If it fails, pip is run and reports
//! the error.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::paths::python_of;
use crate::pip::{self, InstallEvent, InstallListener};
use crate::{Error, helper, request::InstallRequest};

/// Variable with the path of uv, or a value that disables it.
pub(crate) const VARIABLE: &str = "ORRERY_UV";

/// Values that disable uv.
const OFF: [&str; 4] = ["0", "", "false", "no"];

/// Options of pip that do not affect the installed packages.
const IRRELEVANT: [&str; 18] = [
    "break-system-packages",
    "cache-dir",
    "config-file",
    "default-timeout",
    "disable-pip-version-check",
    "log",
    "no-cache-dir",
    "no-color",
    "no-input",
    "no-python-version-warning",
    "no-warn-script-location",
    "progress-bar",
    "quiet",
    "require-virtualenv",
    "retries",
    "root-user-action",
    "timeout",
    "verbose",
];

/// Machine-specific variables of uv. Package sources come only from pip's configuration.
const VARIABLES: [&str; 5] =
    ["UV_CACHE_DIR", "UV_HTTP_TIMEOUT", "UV_NATIVE_TLS", "UV_NO_CACHE", "UV_SYSTEM_CERTS"];

pub(crate) struct Uv<'e> {
    program: PathBuf,
    environment: &'e Path,
    directory: &'e Path,
    configuration: Configuration,
}

/// pip's configuration in uv's form.
#[derive(Debug, Default, PartialEq, Eq)]
struct Configuration {
    arguments: Vec<String>,
    certificates: Option<String>,
}

impl<'e> Uv<'e> {
    /// The uv for a virtualenv, if it can be used.
    ///
    /// # Errors
    /// An error if the variable names a missing program.
    pub(crate) fn find(
        request: &'e InstallRequest,
        environment: &'e Path,
        listener: InstallListener<'_>,
    ) -> Result<Option<Self>, Error> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let Some(program) = program(std::env::var_os(VARIABLE), &path)? else { return Ok(None) };
        let found = helper::configuration(environment, &request.pip);
        let configuration = match found.map(|found| Configuration::of_pip(&found)) {
            Ok(Ok(configuration)) => configuration,
            Ok(Err(option)) => {
                let text = format!("uv is not used: pip is configured with {option}");
                listener(InstallEvent::Line(text));
                return Ok(None);
            }
            Err(error) => {
                listener(InstallEvent::Line(format!("uv is not used: {error}")));
                return Ok(None);
            }
        };
        Ok(Some(Uv { program, environment, directory: &request.directory, configuration }))
    }

    /// Resolves requirement files; returns the text of a `pylock.toml` in `scratch`. Keeps versions
    /// in `preferred` if they fit.
    pub(crate) fn compile(
        &self,
        requirements: &[PathBuf],
        constraints: &Path,
        sources: &[String],
        preferred: &[(String, String)],
        scratch: &Path,
        listener: InstallListener<'_>,
    ) -> Result<String, Error> {
        let output = scratch.join("pylock.toml");
        let mut known =
            "lock-version = \"1.0\"\ncreated-by = \"orrery\"\npackages = [\n".to_owned();
        for (name, version) in preferred {
            known += &format!("  {{ name = {name:?}, version = {version:?} }},\n");
        }
        known += "]\n";
        std::fs::write(&output, known)
            .map_err(Error::system(format!("write {}", output.display())))?;
        let mut command = self.command("compile", sources);
        command.args(["--quiet", "--generate-hashes", "--no-header", "--python"]);
        command.arg(python_of(self.environment));
        command.arg("--constraint").arg(constraints);
        command.arg("--output-file").arg(&output).args(requirements);
        self.run(command, listener)?;
        std::fs::read_to_string(&output).map_err(Error::system("read uv's output"))
    }

    /// Installs exactly the packages of a requirements file.
    pub(crate) fn install(
        &self,
        requirements: &Path,
        hashes: bool,
        sources: &[String],
        listener: InstallListener<'_>,
    ) -> Result<(), Error> {
        let mut command = self.command("install", sources);
        // Copies files: links into the cache would let code in this virtualenv change others.
        command.args(["--no-deps", "--reinstall", "--link-mode", "copy", "--python"]);
        command.arg(python_of(self.environment));
        command.arg(if hashes { "--require-hashes" } else { "--no-verify-hashes" });
        command.arg("--requirement").arg(requirements);
        self.run(command, listener)
    }

    fn command(&self, action: &str, sources: &[String]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--no-config", "--no-progress", "--color", "never", "pip", action])
            .args(["--index-strategy", "unsafe-best-match"])
            .args(&self.configuration.arguments)
            .args(translated(sources))
            .current_dir(self.directory);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("UV_") && !VARIABLES.contains(&text.as_ref()) {
                command.env_remove(&name);
            }
        }
        command.env_remove("VIRTUAL_ENV");
        if let Some(certificates) = &self.configuration.certificates {
            command.env("SSL_CERT_FILE", certificates);
        }
        command
    }

    fn run(&self, command: Command, listener: InstallListener<'_>) -> Result<(), Error> {
        pip::stream(command, listener)?.map_err(|lines| Error::Pip { said: lines.join("\n") })
    }
}

/// Program that the variable names, or the one in the search path.
fn program(named: Option<OsString>, path: &std::ffi::OsStr) -> Result<Option<PathBuf>, Error> {
    let in_path = |name: &Path| {
        std::env::split_paths(path).map(|dir| dir.join(name)).find(|file| file.is_file())
    };
    let named = match named {
        None => return Ok(in_path(Path::new("uv"))),
        Some(named) => PathBuf::from(named),
    };
    let text = named.to_string_lossy().to_lowercase();
    if OFF.contains(&text.as_str()) {
        return Ok(None);
    }
    if text == "1" {
        return Ok(in_path(Path::new("uv")));
    }
    // A name without a directory is looked up in the search path, as in a shell.
    let found = match named.components().count() {
        1 if !text.contains('/') => in_path(&named),
        _ => Some(named.clone()).filter(|file| file.is_file()),
    };
    found.map(Some).ok_or(Error::NoUv { program: named })
}

/// Arguments of pip in uv's form.
fn translated(arguments: &[String]) -> Vec<String> {
    let allow = ["--prerelease", "allow"].map(str::to_owned);
    let one = |argument: &String| match argument.as_str() {
        "--pre" => allow.to_vec(),
        "--trusted-host" => vec!["--allow-insecure-host".to_owned()],
        _ => vec![argument.clone()],
    };
    arguments.iter().flat_map(one).collect()
}

impl Configuration {
    /// Translates pip's configuration; the error is an option without an equivalent.
    fn of_pip(options: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut found = Configuration::default();
        for (option, value) in options {
            let is_on =
                || !["", "0", "false", "no", "off"].contains(&value.to_lowercase().as_str());
            let argument = match option.as_str() {
                name if IRRELEVANT.contains(&name) => continue,
                "cert" => {
                    found.certificates = Some(value.clone());
                    continue;
                }
                "no-index" | "pre" => {
                    if is_on() {
                        found.arguments.extend(translated(&[format!("--{option}")]));
                    }
                    continue;
                }
                "index-url" => "--index-url",
                "extra-index-url" => "--extra-index-url",
                "find-links" => "--find-links",
                "trusted-host" => "--allow-insecure-host",
                other => return Err(other.to_owned()),
            };
            for value in value.split_whitespace() {
                found.arguments.extend([argument.to_owned(), value.to_owned()]);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn pip_configuration_is_passed_to_uv() {
        let found = Configuration::of_pip(&options(&[
            ("cert", "/c.pem"),
            ("extra-index-url", "https://a.example\nhttps://b.example"),
            ("index-url", "https://i.example"),
            ("no-index", "0"),
            ("pre", "true"),
            ("timeout", "3"),
            ("trusted-host", "a.example"),
        ]));
        let expected = "--extra-index-url https://a.example --extra-index-url https://b.example \
                        --index-url https://i.example --prerelease allow --allow-insecure-host a.example";
        let found = found.unwrap();
        assert_eq!(found.arguments.join(" "), expected);
        assert_eq!(found.certificates.as_deref(), Some("/c.pem"));
    }

    #[test]
    fn unsupported_pip_options_disable_uv() {
        let found = Configuration::of_pip(&options(&[("only-binary", ":all:")]));
        assert_eq!(found, Err("only-binary".to_owned()));
    }

    #[test]
    fn the_variable_names_or_forbids_it() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().as_os_str();
        assert_eq!(program(None, path).unwrap(), None);
        let uv = scratch.path().join("uv");
        std::fs::write(&uv, "").unwrap();
        assert_eq!(program(None, path).unwrap(), Some(uv.clone()));
        assert_eq!(program(Some("0".into()), path).unwrap(), None);
        assert_eq!(program(Some("uv".into()), path).unwrap(), Some(uv.clone()));
        assert_eq!(program(Some(uv.clone().into()), path).unwrap(), Some(uv));
        for absent in ["/nonexistent/uv", "nonexistent-uv"] {
            let error = program(Some(absent.into()), path).unwrap_err();
            assert!(error.to_string().contains(absent), "{error}");
        }
    }
}
