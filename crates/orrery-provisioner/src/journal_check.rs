//! Check of the journals of simulated machines: no effect is lost or doubled.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::machine_name::MachineName;
use crate::node_state::{ServiceRecord, StateChange};
use crate::sim_journal::{SimEntry, SimEvent, SimJournals, SimState};

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalCheck {
    /// Final state of each machine that exists.
    pub machines: BTreeMap<MachineName, SimState>,
    /// Number of effects, without injected failures.
    pub effects: u64,
    /// Number of injected failures.
    pub failures: u64,
    pub problems: Vec<JournalProblem>,
}

/// An effect that must not be there, or is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{machine}: {problem}")]
pub struct JournalProblem {
    pub machine: MachineName,
    pub problem: String,
}

impl JournalCheck {
    /// Reads all journals, and finds doubled and misplaced effects.
    ///
    /// # Errors
    /// If a journal cannot be read.
    pub fn run(journals: &SimJournals) -> io::Result<Self> {
        let mut check = JournalCheck::default();
        for machine in journals.machines()? {
            let mut state = SimState::default();
            for entry in journals.entries(&machine)? {
                if entry.ok {
                    check.effects += 1;
                    if let Some(problem) = doubled(&state, &entry) {
                        check.problems.push(JournalProblem { machine: machine.clone(), problem });
                    }
                } else {
                    check.failures += 1;
                }
                state.apply(&entry);
            }
            if state.exists {
                check.machines.insert(machine, state);
            }
        }
        Ok(check)
    }

    /// Adds a problem for each machine that is missing or should not exist, and each service that
    /// is not in its expected state. `expected` has the states by machine and service.
    pub fn expect(&mut self, expected: &BTreeMap<MachineName, BTreeMap<String, ServiceRecord>>) {
        let names: BTreeSet<&MachineName> = expected.keys().chain(self.machines.keys()).collect();
        let mut problems = Vec::new();
        for machine in names {
            let mut add = |problem: String| {
                problems.push(JournalProblem { machine: machine.clone(), problem });
            };
            match (expected.get(machine), self.machines.get(machine)) {
                (Some(_), None) => add("lost: the machine does not exist".to_owned()),
                (None, Some(_)) => add("left over: the machine exists".to_owned()),
                (Some(services), Some(state)) => {
                    for (service, wanted) in services {
                        let found = state.services.get(service).cloned().unwrap_or_default();
                        if found != *wanted {
                            add(format!("lost: {service} is {found:?}, expected {wanted:?}"));
                        }
                    }
                }
                (None, None) => {}
            }
        }
        self.problems.extend(problems);
    }
}

/// Problem with an effect in this state.
fn doubled(state: &SimState, entry: &SimEntry) -> Option<String> {
    let (service, record) = match &entry.event {
        SimEvent::Create if state.exists => return Some("created twice".to_owned()),
        SimEvent::Delete if !state.exists => return Some("deleted twice".to_owned()),
        SimEvent::Create | SimEvent::Delete => return None,
        SimEvent::Confirm if state.exists => return None,
        SimEvent::Confirm => return Some("confirmed without a machine".to_owned()),
        SimEvent::Act { service, record, .. } => (service.as_deref().unwrap_or("machine"), record),
    };
    if !state.exists {
        return Some(format!("{} without a machine", entry.event.key()));
    }
    let key = if service == "machine" { "" } else { service };
    let before = state.services.get(key).cloned().unwrap_or_default();
    let is_doubled = |change: &StateChange| match change {
        StateChange::Toolchain { digest } => before.toolchain.as_ref() == Some(digest),
        StateChange::Installed { digest } => before.installed.as_ref() == Some(digest),
        StateChange::Configured { digest } => before.configured.as_ref() == Some(digest),
        StateChange::Initialized { key } => before.initializations.contains_key(key),
        StateChange::Started { .. } => {
            before.running.is_some() && !record.contains(&StateChange::Stopped)
        }
        StateChange::Stopped => before.running.is_none(),
        StateChange::Removed => before.installed.is_none(),
        StateChange::InitializationBegun { .. } | StateChange::InitializationFailed { .. } => false,
    };
    let found = record.iter().find(|change| is_doubled(change))?;
    Some(format!("doubled: {} ({found:?})", entry.event.key()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskAction;

    fn journal(events: &[SimEvent]) -> (tempfile::TempDir, SimJournals, MachineName) {
        let directory = tempfile::tempdir().unwrap();
        let journals = SimJournals::new(directory.path());
        let name = MachineName::new("c1", 1000, 1).unwrap();
        for event in events {
            let entry = SimEntry { task: "t".to_owned(), event: event.clone(), ok: true };
            journals.append(&name, &entry).unwrap();
        }
        (directory, journals, name)
    }

    fn action_event(action: TaskAction, change: StateChange) -> SimEvent {
        SimEvent::Act { service: Some("db".to_owned()), action: Some(action), record: vec![change] }
    }

    fn initialize() -> SimEvent {
        action_event(TaskAction::Initialize, StateChange::Initialized { key: "k".to_owned() })
    }

    fn start() -> SimEvent {
        action_event(TaskAction::Start, StateChange::Started { generation: 1 })
    }

    fn problems(events: &[SimEvent]) -> Vec<String> {
        let (_directory, journals, _) = journal(events);
        let check = JournalCheck::run(&journals).unwrap();
        check.problems.iter().map(|problem| problem.problem.clone()).collect()
    }

    #[test]
    fn doubled_effects_are_found() {
        let stop = action_event(TaskAction::Stop, StateChange::Stopped);
        assert!(problems(&[SimEvent::Create, initialize(), start(), stop, start()]).is_empty());
        for (events, problem) in [
            (vec![SimEvent::Create, SimEvent::Create], "created twice"),
            (vec![SimEvent::Create, initialize(), initialize()], "doubled: initialize db"),
            (vec![SimEvent::Create, start(), start()], "doubled: start db"),
            (vec![start()], "start db without a machine"),
            (vec![SimEvent::Create, SimEvent::Delete, SimEvent::Delete], "deleted twice"),
        ] {
            let found = problems(&events);
            assert!(found.iter().any(|text| text.starts_with(problem)), "{problem}: {found:?}");
        }
    }

    #[test]
    fn lost_effects_and_leftovers_are_found() {
        let (_directory, journals, name) = journal(&[SimEvent::Create, start()]);
        let expect = |expected| {
            let mut check = JournalCheck::run(&journals).unwrap();
            check.expect(&expected);
            check.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let running =
            |generation| ServiceRecord { running: Some(generation), ..Default::default() };
        let of = |state| [("db".to_owned(), state)].into();
        assert_eq!(expect([(name.clone(), of(running(1)))].into()), "");
        assert!(expect([(name.clone(), of(running(2)))].into()).contains("lost: db"));
        assert!(expect(BTreeMap::new()).contains("left over"));
        let other = MachineName::new("c1", 1001, 1).unwrap();
        assert!(expect([(other, BTreeMap::new())].into()).contains("orr-c1-1001-1: lost"));
    }
}
