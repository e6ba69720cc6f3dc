//! Reads an inventory document: structure, keys and forms of values, before anything is resolved.

use std::collections::BTreeMap;

use serde_json::Value;

use super::problem::{InventoryIssue, InventoryProblem, PathStep};
use crate::similar_names::closest;
use crate::ssh_address::{AddressError, AgentAddress, SshAddress, SshOptions, parse_port};

const SECTIONS: [&str; 3] = ["defaults", "groups", "hosts"];
/// Keys of a host beside the options.
const ADDRESS: &str = "address";
const PORT: &str = "port";
const USER: &str = "user";

/// Path of a value.
pub(super) type Path = Vec<PathStep>;

/// A document with values of the right form.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) defaults: Settings,
    /// In the order of the document.
    pub(super) groups: Vec<Group>,
    pub(super) hosts: Vec<Host>,
}

/// Values by key, each with its path.
pub(super) type Settings = BTreeMap<&'static str, (String, Path)>;

#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) path: Path,
    /// Names, ranges and patterns.
    pub(super) hosts: Vec<(String, Path)>,
    pub(super) groups: Vec<(String, Path)>,
    pub(super) settings: Settings,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) path: Path,
    pub(super) settings: Settings,
}

/// Keys of settings, for hosts or for several hosts.
fn setting_keys(of_host: bool) -> Vec<&'static str> {
    let own: &[&str] = if of_host { &[ADDRESS, PORT, USER] } else { &[PORT, USER] };
    own.iter().copied().chain(SshOptions::NAMES).collect()
}

pub(super) fn read(document: &Value) -> (Document, Vec<InventoryProblem>) {
    let mut reader = Reader::default();
    let mut found = Document::default();
    for (section, value) in reader.entries(&Path::new(), document) {
        let path = vec![PathStep::Key(section.to_owned())];
        match section {
            "defaults" => found.defaults = reader.settings(&path, value, false, &[]),
            "groups" => {
                for (name, value) in reader.entries(&path, value) {
                    let path = inside(&path, name);
                    let settings = reader.settings(&path, value, false, &["hosts", "groups"]);
                    let of = |key| value.as_object().and_then(|fields| fields.get(key));
                    let hosts = reader.texts(&inside(&path, "hosts"), of("hosts"));
                    let groups = reader.texts(&inside(&path, "groups"), of("groups"));
                    found.groups.push(Group {
                        name: name.to_owned(),
                        path,
                        hosts,
                        groups,
                        settings,
                    });
                }
            }
            "hosts" => {
                for (name, value) in reader.entries(&path, value) {
                    let path = inside(&path, name);
                    let settings = reader.settings(&path, value, true, &[]);
                    found.hosts.push(Host { name: name.to_owned(), path, settings });
                }
            }
            _ => reader.unknown_key(path, &SECTIONS),
        }
    }
    (found, reader.problems)
}

pub(super) fn inside(path: &[PathStep], key: &str) -> Path {
    let mut path = path.to_vec();
    path.push(PathStep::Key(key.to_owned()));
    path
}

/// Checks the form of a value, independently of other values.
fn check(key: &'static str, value: &str) -> Result<(), AddressError> {
    match key {
        ADDRESS => read_address(value).map(|_| ()),
        PORT => parse_port(value).map(|_| ()),
        USER => SshAddress::default().set_user(value),
        // A host of the inventory, or a host with user and port.
        _ => SshOptions::default().set(key, value),
    }
}

/// Reads the address of a host: a name, an IP address, or the address of an agent.
pub(super) fn read_address(text: &str) -> Result<AgentAddress, AddressError> {
    if text == "none:" || text.starts_with("local:") || text.starts_with("ssh://") {
        return text.parse();
    }
    Ok(AgentAddress::Ssh(Box::new(SshAddress::new(text)?)))
}

#[derive(Default)]
struct Reader {
    problems: Vec<InventoryProblem>,
}

impl Reader {
    fn refuse(&mut self, path: Path, issue: impl Into<InventoryIssue>) {
        self.problems.push(InventoryProblem { path, is_key: false, issue: issue.into() });
    }

    fn unknown_key(&mut self, path: Path, known: &[&'static str]) {
        let Some(PathStep::Key(key)) = path.last().cloned() else { return };
        let similar = closest(&key, known.iter().copied()).map(str::to_owned);
        let issue = InventoryIssue::UnknownKey { key, known: known.to_vec(), similar };
        self.problems.push(InventoryProblem { path, is_key: true, issue });
    }

    /// Entries of a mapping; nothing stands for an empty one.
    fn entries<'v>(&mut self, path: &[PathStep], value: &'v Value) -> Vec<(&'v str, &'v Value)> {
        match value {
            Value::Null => Vec::new(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.as_str(), value)).collect()
            }
            other => {
                let (expected, found) = ("a mapping", kind(other));
                self.refuse(path.to_vec(), InventoryIssue::Type { expected, found });
                Vec::new()
            }
        }
    }

    fn settings(
        &mut self,
        path: &[PathStep],
        value: &Value,
        of_host: bool,
        further: &[&'static str],
    ) -> Settings {
        let known = setting_keys(of_host);
        let mut settings = Settings::new();
        for (key, value) in self.entries(path, value) {
            let at = inside(path, key);
            if further.contains(&key) {
                continue;
            }
            let Some(&key) = known.iter().find(|known| **known == key) else {
                let known: Vec<&str> = known.iter().chain(further).copied().collect();
                self.unknown_key(at, &known);
                continue;
            };
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Bool(flag) => flag.to_string(),
                other => {
                    let (expected, found) = ("a text, a number or true or false", kind(other));
                    self.refuse(at, InventoryIssue::Type { expected, found });
                    continue;
                }
            };
            match check(key, &text) {
                Ok(()) => drop(settings.insert(key, (text, at))),
                Err(error) => self.refuse(at, error),
            }
        }
        settings
    }

    fn texts(&mut self, path: &[PathStep], value: Option<&Value>) -> Vec<(String, Path)> {
        let items = match value {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => {
                let (expected, found) = ("a list of names", kind(other));
                self.refuse(path.to_vec(), InventoryIssue::Type { expected, found });
                return Vec::new();
            }
        };
        let mut texts = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            let mut path = path.to_vec();
            path.push(PathStep::Index(at));
            match item {
                Value::String(text) => texts.push((text.clone(), path)),
                other => {
                    let (expected, found) = ("a name", kind(other));
                    self.refuse(path, InventoryIssue::Type { expected, found });
                }
            }
        }
        texts
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
