//! Checks of what a project or module says about itself: which keys there must be and of which type,
//! as the reference wants them. All mistakes of a file are reported together.

use std::path::Path;

use crate::error::{CompileError, Result};
use crate::files::{Files, Kind};
use crate::yaml::{self, Yaml};

/// No description of a project or module is larger.
const METADATA_BYTES_MAX: usize = 1 << 20;

/// Why a description cannot be used.
pub(crate) enum Unusable {
    /// It is none: unreadable, or not of the right form.
    Form(String),
    /// A syntax error, or keys that do not fit.
    Content(String),
}

/// The text of a description, with a bound.
pub(crate) fn read(files: &dyn Files, path: &Path, shown: &str) -> Result<String, Unusable> {
    let unreadable = |reason: String| Unusable::Form(format!("could not read {shown}: {reason}"));
    match files.kind(path) {
        Ok(Kind::File) => {}
        Ok(Kind::Directory) => return Err(unreadable("it is a directory".into())),
        Ok(Kind::Other) => return Err(unreadable("it is no regular file".into())),
        Err(error) => return Err(unreadable(error.to_string())),
    }
    let bytes = files.read(path).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() > METADATA_BYTES_MAX {
        return Err(unreadable(format!("it is over {} KiB", METADATA_BYTES_MAX >> 10)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        unreadable(format!("the byte at offset {at} is not UTF-8"))
    })
}

/// A YAML description as a mapping.
pub(crate) fn read_yaml(files: &dyn Files, path: &Path, shown: &str) -> Result<Yaml, Unusable> {
    let text = read(files, path, shown)?;
    let document = yaml::parse(&text).map_err(|problem| {
        Unusable::Content(format!(
            "Invalid yaml syntax in {shown}:\n{}\n  in \"{shown}\", line {}, column {}",
            problem.reason, problem.line, problem.column
        ))
    })?;
    let Yaml::Map(entries) = &document else {
        return Err(Unusable::Form(format!(
            "{shown} has to be a mapping of keys to values, but it is {}",
            document.kind()
        )));
    };
    match entries.iter().find(|(key, _)| !matches!(key, Yaml::Text(_))) {
        Some((key, _)) => Err(Unusable::Form(format!(
            "{shown} has a key that is {}; keys have to be strings",
            key.kind()
        ))),
        None => Ok(document),
    }
}

/// Reads keys of a description and collects what is wrong with them.
pub(crate) struct Checks<'y> {
    fields: &'y Yaml,
    problems: Vec<(String, String)>,
}

impl<'y> Checks<'y> {
    pub(crate) fn new(fields: &'y Yaml) -> Self {
        Checks { fields, problems: Vec::new() }
    }

    pub(crate) fn refuse(&mut self, key: impl Into<String>, reason: impl Into<String>) {
        self.problems.push((key.into(), reason.into()));
    }

    pub(crate) fn required_text(&mut self, key: &str) -> String {
        match self.fields.get(key) {
            Some(value) => self.text(key, value),
            None => {
                self.refuse(key, "Field required");
                String::new()
            }
        }
    }

    /// A text that may be missing or null.
    pub(crate) fn optional_text(&mut self, key: &str) -> Option<String> {
        match self.fields.get(key) {
            None | Some(Yaml::Null) => None,
            Some(value) => Some(self.text(key, value)),
        }
    }

    /// A text; numbers count as such.
    fn text(&mut self, key: &str, value: &Yaml) -> String {
        match value {
            Yaml::Text(text) => text.trim().to_owned(),
            Yaml::Int(digits) => digits.clone(),
            Yaml::Float(number) => orrery_python::repr_float(*number),
            other => {
                self.refuse(
                    key,
                    format!("Input should be a valid string, but it is {}", other.kind()),
                );
                String::new()
            }
        }
    }

    /// One text or several; null is none.
    pub(crate) fn texts(&mut self, key: &str) -> Vec<String> {
        match self.fields.get(key) {
            None | Some(Yaml::Null) => Vec::new(),
            Some(Yaml::List(items)) => self.items(key, items),
            Some(one) => vec![self.text(&format!("{key}.0"), one)],
        }
    }

    /// A list of texts and nothing else.
    pub(crate) fn text_list(&mut self, key: &str) -> Vec<String> {
        match self.fields.get(key) {
            None => Vec::new(),
            Some(Yaml::List(items)) => self.items(key, items),
            Some(other) => {
                self.refuse(
                    key,
                    format!("Input should be a valid list, but it is {}", other.kind()),
                );
                Vec::new()
            }
        }
    }

    fn items(&mut self, key: &str, items: &[Yaml]) -> Vec<String> {
        (0..).zip(items).map(|(at, item)| self.text(&format!("{key}.{at}"), item)).collect()
    }

    pub(crate) fn boolean(&mut self, key: &str, null_allowed: bool) -> bool {
        match self.fields.get(key) {
            None => false,
            Some(Yaml::Null) if null_allowed => false,
            Some(value) => self.truth(key, value),
        }
    }

    pub(crate) fn truth(&mut self, key: &str, value: &Yaml) -> bool {
        let text = match value {
            Yaml::Bool(truth) => return *truth,
            Yaml::Int(digits) => digits.clone(),
            Yaml::Float(number) if *number == 0.0 || *number == 1.0 => return *number == 1.0,
            Yaml::Text(text) => text.to_lowercase(),
            other => {
                self.refuse(
                    key,
                    format!("Input should be a valid boolean, but it is {}", other.kind()),
                );
                return false;
            }
        };
        match text.as_str() {
            "1" | "on" | "t" | "true" | "y" | "yes" => true,
            "0" | "off" | "f" | "false" | "n" | "no" => false,
            other => {
                self.refuse(key, format!("Input should be a valid boolean, but it is `{other}`"));
                false
            }
        }
    }

    pub(crate) fn choice(&mut self, key: &str, allowed: &[&str]) {
        let given = match self.fields.get(key) {
            None => return,
            Some(Yaml::Text(text)) if allowed.contains(&text.as_str()) => return,
            Some(Yaml::Text(text)) => format!("`{text}`"),
            Some(other) => other.kind().to_owned(),
        };
        self.refuse(
            key,
            format!("Input should be one of {}, but it is {given}", allowed.join(", ")),
        );
    }

    /// Keys that the descriptions of projects and of modules share.
    pub(crate) fn common(&mut self) {
        self.optional_text("description");
        self.boolean("freeze_recursive", false);
        self.choice("freeze_operator", &["==", "~=", ">="]);
    }

    /// `Ok` if nothing was wrong; otherwise the complete message.
    pub(crate) fn finish(self, shown: &str, subject: &str) -> Result<(), Unusable> {
        if self.problems.is_empty() {
            return Ok(());
        }
        let count = self.problems.len();
        let plural = if count == 1 { "" } else { "s" };
        let mut text = format!(
            "Metadata defined in {shown} is invalid:\n  {count} validation error{plural} for {subject}"
        );
        for (key, reason) in self.problems {
            text.push_str(&format!("\n  {key}\n    {reason}"));
        }
        Err(Unusable::Content(text))
    }
}

impl Unusable {
    pub(crate) fn text(self) -> String {
        match self {
            Unusable::Form(text) | Unusable::Content(text) => text,
        }
    }

    /// As the error of a project: there is nothing around it.
    pub(crate) fn of_project(self) -> Box<CompileError> {
        let mut error = CompileError::new("InvalidMetadata", self.text());
        error.bare = true;
        error
    }
}
