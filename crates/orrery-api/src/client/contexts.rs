//! Which server is meant: what somebody says, what the environment of the process says, and what was noted at a login.
//!
//! The notes are a file, `contexts.toml` in the user's configuration, which only its owner can read:
//!
//! ```toml
//! current = "work"
//!
//! [contexts.work]
//! server = "https://orrery.example.org:8888"
//! token = "…"
//! environment = "shop/live"
//! ca_file = "/etc/ssl/own-ca.pem"
//! ```

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use orrery_model::SecretText;
use serde::Deserialize;

/// A server that is known by a name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    pub server: String,
    #[serde(default)]
    pub token: Option<SecretText>,
    /// The environment that is meant where nobody names one.
    #[serde(default)]
    pub environment: Option<String>,
    /// Certificates to trust instead of the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
}

/// All servers that are known.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    #[serde(default)]
    pub current: Option<String>,
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

/// Why it is not known which server is meant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextsError {
    #[error("no server is named: log in with `orrery login URL`, or set --server or ORRERY_SERVER")]
    NoServer,
    #[error("no environment is named: set --environment or ORRERY_ENVIRONMENT")]
    NoEnvironment,
    #[error("there is no context {0:?}; `orrery login` makes one")]
    NoContext(String),
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("{} cannot be written: {reason}", path.display())]
    Unwritable { path: PathBuf, reason: String },
    #[error("there is no home directory to note contexts in; set HOME or XDG_CONFIG_HOME")]
    NoHome,
}

/// What somebody says on the command line.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub context: Option<String>,
    pub server: Option<String>,
    pub token: Option<SecretText>,
    pub environment: Option<String>,
    pub ca_file: Option<PathBuf>,
}

/// The server that is meant.
#[derive(Clone, Debug, Default)]
pub struct Target {
    pub server: String,
    pub token: Option<SecretText>,
    pub environment: Option<String>,
    pub ca_file: Option<PathBuf>,
}

impl Target {
    /// The environment that is meant.
    ///
    /// # Errors
    /// If nobody names one.
    pub fn environment(&self) -> Result<&str, ContextsError> {
        self.environment.as_deref().ok_or(ContextsError::NoEnvironment)
    }
}

impl Choice {
    /// Finds the server that is meant: what is said goes first, then the variables `ORRERY_SERVER`, `ORRERY_TOKEN`,
    /// `ORRERY_ENVIRONMENT`, `ORRERY_CA_FILE` and `ORRERY_CONTEXT`, then the context. A token goes to no other server than the one
    /// that it is noted with.
    ///
    /// # Errors
    /// If no server is named.
    pub fn resolve(
        self,
        variable: &dyn Fn(&str) -> Option<String>,
        contexts: &Contexts,
    ) -> Result<Target, ContextsError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let chosen = self.context.is_some();
        let named = self.context.or_else(|| variable("ORRERY_CONTEXT"));
        let context = match named.as_ref().or(contexts.current.as_ref()) {
            Some(name) => match contexts.contexts.get(name) {
                Some(context) => Some(context),
                None if named.is_some() => return Err(ContextsError::NoContext(name.clone())),
                None => None,
            },
            None => None,
        };
        // Who names a context and no server means the server of that context.
        let said = self.server.or_else(|| match chosen {
            true => None,
            false => variable("ORRERY_SERVER"),
        });
        let server = said.or_else(|| Some(context?.server.clone()));
        let server = server.ok_or(ContextsError::NoServer)?;
        let same = |context: &&Context| {
            context.server.trim_end_matches('/') == server.trim_end_matches('/')
        };
        let context = context.filter(same);
        let token = self.token.or_else(|| variable("ORRERY_TOKEN").map(SecretText::new));
        let environment = self.environment.or_else(|| variable("ORRERY_ENVIRONMENT"));
        let ca_file = self.ca_file.or_else(|| variable("ORRERY_CA_FILE").map(PathBuf::from));
        Ok(Target {
            token: token.or_else(|| context?.token.clone()),
            environment: environment.or_else(|| context?.environment.clone()),
            ca_file: ca_file.or_else(|| context?.ca_file.clone()),
            server,
        })
    }
}

impl Contexts {
    /// Where contexts are noted.
    ///
    /// # Errors
    /// If the user has no home.
    pub fn path(variable: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, ContextsError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let configuration = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
        Ok(configuration.ok_or(ContextsError::NoHome)?.join("orrery/contexts.toml"))
    }

    /// Reads what was noted; nothing if there is no file.
    ///
    /// # Errors
    /// If there is one that cannot be read.
    pub fn load(path: &Path) -> Result<Self, ContextsError> {
        let failed = |reason: String| ContextsError::Unreadable { path: path.to_owned(), reason };
        match std::fs::read_to_string(path) {
            // The parser would show the line, and a token may be in it.
            Ok(text) => toml::from_str(&text)
                .map_err(|error: toml::de::Error| failed(error.message().to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Notes them, so that only the owner can read them. They are there as a whole or as before.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ContextsError> {
        let failed = |error: std::io::Error| ContextsError::Unwritable {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        let fresh = path.with_extension("new");
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // One that somebody left may have other rights.
        let _ = std::fs::remove_file(&fresh);
        let mut file = options.open(&fresh).map_err(failed)?;
        file.write_all(self.text().as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&fresh, path).map_err(failed)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            text.push_str(&format!("{name} = {}\n", quoted(value)));
        };
        if let Some(current) = &self.current {
            line("current", current);
        }
        for (name, context) in &self.contexts {
            text.push_str(&format!("\n[contexts.{}]\n", quoted(name)));
            let mut line = |name: &str, value: &str| {
                text.push_str(&format!("{name} = {}\n", quoted(value)));
            };
            line("server", &context.server);
            if let Some(token) = &context.token {
                line("token", token.expose());
            }
            if let Some(environment) = &context.environment {
                line("environment", environment);
            }
            if let Some(ca_file) = &context.ca_file {
                line("ca_file", &ca_file.display().to_string());
            }
        }
        text
    }
}

/// A text as TOML has it, which in this is as JSON has it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted() -> Contexts {
        let context = |server: &str, token: &str| Context {
            server: server.to_owned(),
            token: Some(SecretText::new(token)),
            environment: Some("shop/live".to_owned()),
            ca_file: None,
        };
        Contexts {
            current: Some("work".to_owned()),
            contexts: [
                ("work".to_owned(), context("https://work", "w\"\\\n")),
                ("home \"lab\"".to_owned(), context("https://home/", "h")),
            ]
            .into(),
        }
    }

    fn resolve(choice: Choice, variables: &[(&str, &str)]) -> Result<Target, ContextsError> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        choice.resolve(&variable, &noted())
    }

    fn token(target: &Target) -> Option<&str> {
        target.token.as_ref().map(SecretText::expose)
    }

    #[test]
    fn what_is_said_goes_before_variables_and_those_before_contexts() {
        let said = |server: &str| Choice { server: Some(server.to_owned()), ..Choice::default() };
        let target = resolve(Choice::default(), &[]).unwrap();
        assert_eq!((&*target.server, token(&target)), ("https://work", Some("w\"\\\n")));
        assert_eq!(target.environment().unwrap(), "shop/live");
        let variables = [("ORRERY_SERVER", "https://var"), ("ORRERY_TOKEN", "v")];
        let target = resolve(Choice::default(), &variables).unwrap();
        assert_eq!((&*target.server, token(&target)), ("https://var", Some("v")));
        assert!(target.environment().is_err());
        assert_eq!(resolve(said("https://flag"), &variables).unwrap().server, "https://flag");
        let chosen = Choice { context: Some("home \"lab\"".to_owned()), ..Choice::default() };
        let target = resolve(chosen, &[("ORRERY_ENVIRONMENT", "e")]).unwrap();
        assert_eq!((&*target.server, target.environment().unwrap()), ("https://home/", "e"));
        let both = Choice { context: Some("work".to_owned()), ..said("https://flag") };
        assert_eq!(resolve(both, &variables).unwrap().server, "https://flag");
        let unknown = Choice { context: Some("x".to_owned()), ..Choice::default() };
        assert!(matches!(resolve(unknown, &[]), Err(ContextsError::NoContext(_))));
        let nothing = Choice::default().resolve(&|_| None, &Contexts::default());
        assert!(matches!(nothing, Err(ContextsError::NoServer)));
    }

    #[test]
    fn a_token_goes_to_its_own_server_only() {
        let other = Choice { server: Some("https://other".to_owned()), ..Choice::default() };
        assert_eq!(token(&resolve(other, &[]).unwrap()), None);
        let same = Choice { server: Some("https://work/".to_owned()), ..Choice::default() };
        assert_eq!(token(&resolve(same, &[]).unwrap()), Some("w\"\\\n"));
    }

    #[test]
    fn what_is_noted_is_read_again_and_hidden_from_others() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().display().to_string();
        let path = Contexts::path(&|name| (name == "HOME").then(|| home.clone())).unwrap();
        assert!(path.ends_with(".config/orrery/contexts.toml"), "{}", path.display());
        assert!(Contexts::load(&path).unwrap().contexts.is_empty());
        let contexts = noted();
        contexts.save(&path).unwrap();
        contexts.save(&path).unwrap();
        let read = Contexts::load(&path).unwrap();
        assert_eq!(read.text(), contexts.text());
        assert_eq!(read.contexts["work"].token.as_ref().unwrap().expose(), "w\"\\\n");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::write(&path, "current = 3\n[contexts.x]\ntoken = \"secret\nx").unwrap();
        let error = Contexts::load(&path).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
