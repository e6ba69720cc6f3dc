//! Validates the metadata of projects and modules: required keys and their types, as the reference
//! compiler does. All errors of a file are reported together.

use std::path::Path;

use crate::error::{CompileError, Result};
use crate::files::{Files, Kind};
use crate::yaml::{self, Yaml};

/// Maximum size of a metadata file.
const METADATA_BYTES_MAX: usize = 1 << 20;

/// Reason why metadata cannot be used.
pub(crate) enum MetadataError {
    /// Unreadable, or not of the right form.
    Form(String),
    /// A syntax error, or invalid keys.
    Content(String),
}

/// Reads a metadata file, with a size limit.
pub(crate) fn read(files: &dyn Files, path: &Path, shown: &str) -> Result<String, MetadataError> {
    let unreadable =
        |reason: String| MetadataError::Form(format!("could not read {shown}: {reason}"));
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

/// Reads a YAML metadata file as a mapping.
pub(crate) fn read_yaml(
    files: &dyn Files,
    path: &Path,
    shown: &str,
) -> Result<Yaml, MetadataError> {
    let text = read(files, path, shown)?;
    let document = yaml::parse(&text).map_err(|problem| {
        MetadataError::Content(format!(
            "Invalid yaml syntax in {shown}:\n{}\n  in \"{shown}\", line {}, column {}",
            problem.reason, problem.line, problem.column
        ))
    })?;
    let Yaml::Map(entries) = &document else {
        return Err(MetadataError::Form(format!(
            "{shown} has to be a mapping of keys to values, but it is {}",
            document.kind()
        )));
    };
    match entries.iter().find(|(key, _)| !matches!(key, Yaml::Text(_))) {
        Some((key, _)) => Err(MetadataError::Form(format!(
            "{shown} has a key that is {}; keys have to be strings",
            key.kind()
        ))),
        None => Ok(document),
    }
}

/// Reads metadata keys and collects errors.
pub(crate) struct MetadataReader<'y> {
    fields: &'y Yaml,
    problems: Vec<(String, String)>,
}

impl<'y> MetadataReader<'y> {
    pub(crate) fn new(fields: &'y Yaml) -> Self {
        MetadataReader { fields, problems: Vec::new() }
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

    /// An optional text; may be null.
    pub(crate) fn optional_text(&mut self, key: &str) -> Option<String> {
        match self.fields.get(key) {
            None | Some(Yaml::Null) => None,
            Some(value) => Some(self.text(key, value)),
        }
    }

    /// A text; numbers are converted.
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

    /// One text or several; null means none.
    pub(crate) fn texts(&mut self, key: &str) -> Vec<String> {
        match self.fields.get(key) {
            None | Some(Yaml::Null) => Vec::new(),
            Some(Yaml::List(items)) => self.items(key, items),
            Some(one) => vec![self.text(&format!("{key}.0"), one)],
        }
    }

    /// A list that contains only texts.
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

    #[expect(clippy::float_cmp, reason = "Python compares exactly")]
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

    /// Reads the keys that projects and modules share.
    pub(crate) fn common(&mut self) {
        self.optional_text("description");
        self.boolean("freeze_recursive", false);
        self.choice("freeze_operator", &["==", "~=", ">="]);
    }

    /// `Ok` if there were no errors; otherwise the complete message.
    pub(crate) fn finish(self, shown: &str, subject: &str) -> Result<(), MetadataError> {
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
        Err(MetadataError::Content(text))
    }
}

impl MetadataError {
    pub(crate) fn text(self) -> String {
        match self {
            MetadataError::Form(text) | MetadataError::Content(text) => text,
        }
    }

    /// Converts to the error of a project, without an enclosing error.
    pub(crate) fn into_project_error(self) -> Box<CompileError> {
        let mut error = CompileError::new("InvalidMetadata", self.text());
        error.bare = true;
        error
    }
}
