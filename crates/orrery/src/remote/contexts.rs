//! The servers that somebody uses: a file with one entry for each, readable by its owner only since it holds sessions and
//! tokens.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use orrery_model::SecretText;
use serde::Deserialize;

/// Names another file.
pub(crate) const FILE_VARIABLE: &str = "ORRERY_CONTEXTS";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ContextsError {
    #[error("there is no home directory to keep contexts in; name a file with {FILE_VARIABLE}")]
    NoHome,
    #[error("the contexts in {} cannot be read", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} is not right: {reason}", path.display())]
    Malformed { path: PathBuf, reason: String },
    #[error("the contexts cannot be written to {}", path.display())]
    Unwritable { path: PathBuf, source: std::io::Error },
}

/// A server, and as whom and for what it is used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) server: String,
    #[serde(default)]
    pub(crate) token: Option<SecretText>,
    /// When the session ends.
    #[serde(default)]
    pub(crate) expires: Option<String>,
    /// Who that is: `user:admin`.
    #[serde(default)]
    pub(crate) user: Option<String>,
    /// Certificates that are trusted instead of those of the machine.
    #[serde(default)]
    pub(crate) ca: Option<PathBuf>,
    /// The id of the environment that commands are about if nobody says otherwise.
    #[serde(default)]
    pub(crate) environment: Option<String>,
    /// What that is called, for people.
    #[serde(default)]
    pub(crate) environment_name: Option<String>,
}

/// All of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The name of the one that is used if nobody says otherwise.
    #[serde(default)]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// Where they are kept.
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
        // Without a home there can be none.
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
        // The parser's message would show the line, which may hold a token.
        toml::from_str(&text).map_err(|error| ContextsError::Malformed {
            path: path.to_owned(),
            reason: error.message().to_owned(),
        })
    }

    pub(crate) fn current(&self) -> Option<(&str, &Context)> {
        let name = self.current.as_deref()?;
        Some((name, self.contexts.get(name)?))
    }

    /// Those of one server, the current one first.
    pub(crate) fn of_server(&self, server: &str) -> Option<(&str, &Context)> {
        let same = |context: &Context| {
            context.server.trim_end_matches('/') == server.trim_end_matches('/')
        };
        let current = self.current().filter(|(_, context)| same(context));
        let any = || self.contexts.iter().find(|(_, context)| same(context));
        current.or_else(|| any().map(|(name, context)| (name.as_str(), context)))
    }

    /// Writes all of them: at once or not at all, and for nobody else to read.
    pub(crate) fn write(&self) -> Result<(), ContextsError> {
        let path = file()?;
        let failed = |source| ContextsError::Unwritable { path: path.clone(), source };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory).map_err(failed)?;
        // A file of this kind is made with mode 0600.
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

/// A text of TOML in quotes.
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
    fn what_is_written_can_be_read() {
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
    fn mistakes_in_the_file_do_not_show_its_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("contexts.toml");
        std::fs::write(&path, "[contexts.a]\nserver = \"x\"\ntoken = \"hunter2\" oops\n").unwrap();
        let error = Contexts::read_from(&path).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
