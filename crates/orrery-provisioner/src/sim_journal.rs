//! Journals of simulated machines: one append-only file for each, which is also their state.
//!
//! Each effect is a single write of one line to a file that is open for appending. So several
//! processes share a directory, and no end of a process loses or halves an effect.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::machine_name::MachineName;
use crate::node_state::{ServiceRecord, StateChange};
use crate::task::TaskAction;

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimEntry {
    /// Id of the task.
    pub task: String,
    #[serde(flatten)]
    pub event: SimEvent,
    /// False for an injected failure, which has no effect.
    pub ok: bool,
}

/// The entry under its short name, where its module qualifies it.
pub use SimEntry as JournalEntry;

/// An action on a simulated machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SimEvent {
    Create,
    Confirm,
    Delete,
    Act {
        /// `None` for the machine itself.
        service: Option<String>,
        /// `None` if only changes are recorded.
        action: Option<TaskAction>,
        record: Vec<StateChange>,
    },
}

impl SimEvent {
    /// Identity of the action, for counting attempts.
    pub fn key(&self) -> String {
        match self {
            SimEvent::Create => "create".to_owned(),
            SimEvent::Confirm => "confirm".to_owned(),
            SimEvent::Delete => "delete".to_owned(),
            SimEvent::Act { service, action, .. } => {
                let action = action.map_or("record", TaskAction::as_str);
                format!("{action} {}", service.as_deref().unwrap_or_default())
            }
        }
    }
}

/// State of a simulated machine: the replay of its journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimState {
    pub exists: bool,
    /// By service; that of the machine itself has an empty name.
    pub services: BTreeMap<String, ServiceRecord>,
    /// Number of entries by kind of action.
    pub attempts: BTreeMap<String, u32>,
}

impl SimState {
    /// Applies an entry.
    pub fn apply(&mut self, entry: &SimEntry) {
        *self.attempts.entry(entry.event.key()).or_default() += 1;
        if !entry.ok {
            return;
        }
        match &entry.event {
            SimEvent::Create => self.exists = true,
            SimEvent::Confirm => {}
            SimEvent::Delete => {
                self.exists = false;
                self.services.clear();
            }
            SimEvent::Act { service, record, .. } => {
                let state = self.services.entry(service.clone().unwrap_or_default()).or_default();
                record.iter().for_each(|change| state.apply(change));
            }
        }
    }
}

/// Journals below one directory.
#[derive(Clone, Debug)]
pub struct SimJournals {
    directory: PathBuf,
}

impl SimJournals {
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        SimJournals { directory: directory.into() }
    }

    /// A directory for each node, so that finding the machines of one does not read all.
    fn node_directory(&self, name: &MachineName) -> PathBuf {
        self.directory.join(&name.cluster).join(name.number.to_string())
    }

    fn path(&self, name: &MachineName) -> PathBuf {
        self.node_directory(name).join(format!("{}.jsonl", name.incarnation))
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn append(&self, name: &MachineName, entry: &SimEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry).map_err(io::Error::other)?;
        line.push(b'\n');
        let path = self.path(name);
        let open = || OpenOptions::new().append(true).create(true).open(&path);
        let mut file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(self.node_directory(name))?;
                open()?
            }
            opened => opened?,
        };
        let written = file.write(&line)?;
        if written == line.len() {
            return Ok(());
        }
        // The disk is full. The part is no entry; the next one begins on a line of its own.
        let _ = file.write(b"\n");
        Err(io::Error::other("the entry was not written as a whole"))
    }

    /// Entries of a machine; none if it never existed. Incomplete lines are left out.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn entries(&self, name: &MachineName) -> io::Result<Vec<SimEntry>> {
        let text = match fs::read_to_string(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text?,
        };
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        Ok(complete.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Current state of a machine.
    ///
    /// # Errors
    /// If its journal cannot be read.
    pub fn state(&self, name: &MachineName) -> io::Result<SimState> {
        let mut state = SimState::default();
        self.entries(name)?.iter().for_each(|entry| state.apply(entry));
        Ok(state)
    }

    /// Names of all machines of a node that ever existed.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn machines_of_node(&self, node: &MachineName) -> io::Result<Vec<MachineName>> {
        let directory = self.node_directory(node);
        let incarnations = numbers(&directory, ".jsonl")?;
        Ok(incarnations
            .into_iter()
            .filter_map(|number| {
                let incarnation = u32::try_from(number).ok()?;
                Some(MachineName { incarnation, ..node.clone() })
            })
            .collect())
    }

    /// Names of all machines that ever existed, sorted.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn machines(&self) -> io::Result<Vec<MachineName>> {
        let mut found = Vec::new();
        for cluster in names(&self.directory)? {
            for number in numbers(&self.directory.join(&cluster), "")? {
                let Ok(node) = MachineName::new(&cluster, number, 0) else { continue };
                found.extend(self.machines_of_node(&node)?);
            }
        }
        found.sort();
        Ok(found)
    }
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        found.extend(entry?.file_name().into_string());
    }
    found.sort();
    Ok(found)
}

fn numbers(directory: &Path, ending: &str) -> io::Result<Vec<u64>> {
    let names = names(directory)?;
    let mut found: Vec<u64> =
        names.iter().filter_map(|name| name.strip_suffix(ending)?.parse().ok()).collect();
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event: SimEvent) -> SimEntry {
        SimEntry { task: "t".to_owned(), event, ok: true }
    }

    #[test]
    fn the_state_is_the_replay_of_the_journal() {
        let directory = tempfile::tempdir().unwrap();
        let journals = SimJournals::new(directory.path());
        let name = MachineName::new("c1", 1000, 1).unwrap();
        assert_eq!(journals.state(&name).unwrap(), SimState::default());
        journals.append(&name, &entry(SimEvent::Create)).unwrap();
        let record = vec![StateChange::Installed { digest: "d".to_owned() }];
        let act = SimEvent::Act {
            service: Some("app".to_owned()),
            action: Some(TaskAction::Install),
            record,
        };
        journals.append(&name, &SimEntry { ok: false, ..entry(act.clone()) }).unwrap();
        assert_eq!(journals.state(&name).unwrap().services, BTreeMap::new());
        journals.append(&name, &entry(act)).unwrap();
        let state = journals.state(&name).unwrap();
        assert!(state.exists);
        assert_eq!(state.services["app"].installed.as_deref(), Some("d"));
        assert_eq!(state.attempts["install app"], 2);
        assert_eq!(journals.machines().unwrap(), [name]);
    }

    #[test]
    fn an_incomplete_last_line_is_no_entry() {
        let directory = tempfile::tempdir().unwrap();
        let journals = SimJournals::new(directory.path());
        let name = MachineName::new("c1", 1000, 1).unwrap();
        journals.append(&name, &entry(SimEvent::Create)).unwrap();
        let mut file = OpenOptions::new().append(true).open(journals.path(&name)).unwrap();
        file.write_all(br#"{"task":"t","event":"delete","ok":true}"#).unwrap();
        assert!(journals.state(&name).unwrap().exists);
    }
}
