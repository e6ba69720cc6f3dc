//! Contexts: known servers with their sessions and tokens, in a file that only its owner can read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use orrery_model::SecretText;
use serde::Deserialize;

use crate::error::CliError;

/// Path of another contexts file.
pub(crate) const FILE_VARIABLE: &str = "ORRERY_CONTEXTS";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ContextsError {
    #[error("no home directory for contexts; set {FILE_VARIABLE} to the path of a file")]
    NoHome,
    #[error("cannot read contexts from {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} is invalid: {reason}", path.display())]
    Malformed { path: PathBuf, reason: String },
    #[error("cannot write contexts to {}", path.display())]
    Unwritable { path: PathBuf, source: std::io::Error },
}

impl From<ContextsError> for CliError {
    fn from(error: ContextsError) -> Self {
        CliError::from_error(&error)
    }
}

/// A server, the account used there, and its default environment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) server: String,
    #[serde(default)]
    pub(crate) token: Option<SecretText>,
    /// Expiry of the session.
    #[serde(default)]
    pub(crate) expires: Option<String>,
    /// Account: `user:admin`.
    #[serde(default)]
    pub(crate) user: Option<String>,
    /// CA certificates trusted instead of the system's.
    #[serde(default)]
    pub(crate) ca: Option<PathBuf>,
    /// Id of the default environment.
    #[serde(default)]
    pub(crate) environment: Option<String>,
    /// Name of that environment.
    #[serde(default)]
    pub(crate) environment_name: Option<String>,
}

/// All contexts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// Name of the current context.
    #[serde(default)]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// Path of the contexts file.
pub(crate) fn file() -> Result<PathBuf, ContextsError> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(file) = set(FILE_VARIABLE) {
        return Ok(file.into());
    }
    let home = || Some(PathBuf::from(set("HOME")?).join(".config"));
    let directory = set("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    Ok(directory.ok_or(ContextsError::NoHome)?.join("orrery/contexts.toml"))
}

impl Contexts {
    pub(crate) fn read() -> Result<Self, ContextsError> {
        // Without a home directory, there are no contexts.
        let Ok(path) = file() else { return Ok(Contexts::default()) };
        Contexts::read_from(&path)
    }

    fn read_from(path: &Path) -> Result<Self, ContextsError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Contexts::default());
            }
            Err(source) => return Err(ContextsError::Unreadable { path: path.to_owned(), source }),
        };
        // The parser's message would show the line, which may contain a token.
        toml::from_str(&text).map_err(|error| ContextsError::Malformed {
            path: path.to_owned(),
            reason: error.message().to_owned(),
        })
    }

    pub(crate) fn current(&self) -> Option<(&str, &Context)> {
        let name = self.current.as_deref()?;
        Some((name, self.contexts.get(name)?))
    }

    /// Context of a server, preferably the current one.
    pub(crate) fn of_server(&self, server: &str) -> Option<(&str, &Context)> {
        let same = |context: &Context| {
            context.server.trim_end_matches('/') == server.trim_end_matches('/')
        };
        let current = self.current().filter(|(_, context)| same(context));
        let any = || self.contexts.iter().find(|(_, context)| same(context));
        current.or_else(|| any().map(|(name, context)| (name.as_str(), context)))
    }

    /// Writes the file atomically, readable only by its owner.
    pub(crate) fn write(&self) -> Result<(), ContextsError> {
        let path = file()?;
        let failed = |source| ContextsError::Unwritable { path: path.clone(), source };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory).map_err(failed)?;
        // Temporary files are created with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
        file.write_all(self.as_toml().as_bytes()).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    fn as_toml(&self) -> String {
        let mut text =
            "# Servers that `orrery` uses; `orrery context` and `orrery login` change this.\n"
                .to_owned();
        if let Some(current) = &self.current {
            let _ = writeln!(text, "current = {}", quoted(current));
        }
        for (name, context) in &self.contexts {
            let _ = writeln!(text, "\n[contexts.{}]", quoted(name));
            let ca = context.ca.as_ref().map(|ca| ca.display().to_string());
            for (key, value) in [
                ("server", Some(context.server.as_str())),
                ("token", context.token.as_ref().map(SecretText::expose)),
                ("expires", context.expires.as_deref()),
                ("user", context.user.as_deref()),
                ("ca", ca.as_deref()),
                ("environment", context.environment.as_deref()),
                ("environment_name", context.environment_name.as_deref()),
            ] {
                if let Some(value) = value {
                    let _ = writeln!(text, "{key} = {}", quoted(value));
                }
            }
        }
        text
    }
}

/// TOML string literal.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_round_trip() {
        let odd = Context {
            server: "https://a.example".to_owned(),
            token: Some(SecretText::new("t\"o\\k\u{7f}\n")),
            ca: Some("/etc/ca.pem".into()),
            environment_name: Some("shop/ü".to_owned()),
            ..Context::default()
        };
        let contexts = Contexts {
            current: Some("a b".to_owned()),
            contexts: BTreeMap::from([("a b".to_owned(), odd)]),
        };
        let read: Contexts = toml::from_str(&contexts.as_toml()).unwrap();
        let (name, context) = read.current().unwrap();
        assert_eq!(name, "a b");
        assert_eq!(context.token.as_ref().unwrap().expose(), "t\"o\\k\u{7f}\n");
        assert_eq!(context.environment_name.as_deref(), Some("shop/ü"));
        assert_eq!(read.of_server("https://a.example/").unwrap().0, "a b");
        assert!(read.of_server("https://b.example").is_none());
    }

    #[test]
    fn parse_errors_do_not_show_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("contexts.toml");
        std::fs::write(&path, "[contexts.a]\nserver = \"x\"\ntoken = \"hunter2\" oops\n").unwrap();
        let error = Contexts::read_from(&path).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
