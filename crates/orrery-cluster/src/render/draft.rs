//! Resources under construction: numbered, with requirements by number.
//!
//! Requirements on all instances of a service are collected as *groups*. A group of n instances
//! with m dependents becomes a barrier if n + m requirements are fewer than n × m.
//!
//! The engine waits for direct requirements that differ, and does not look behind unchanged ones.
//! So the requirements of a resource are transitively closed as far as both ends may differ while
//! everything in between does not, and a barrier differs whenever one of its instances does.

use std::collections::{BTreeMap, BTreeSet};

/// Kinds of resources in the order of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Machine,
    Reachable,
    Toolchain,
    Installed,
    Quiesced,
    Configured,
    Initialized,
    Running,
    Barrier,
}

/// State of all instances of a service that others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Installed,
    Running,
    /// Stopped by this transition.
    Stopped,
    Removed,
    /// Started or configured by this transition.
    Updated,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Installed => "installed",
            State::Running => "running",
            State::Stopped => "stopped",
            State::Removed => "removed",
            State::Updated => "updated",
        }
    }

    /// True for groups that only a transition has.
    pub(super) fn is_passing(self) -> bool {
        !matches!(self, State::Installed | State::Running)
    }
}

/// The intent that a draft comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Old,
    New,
}

#[derive(Clone, Debug)]
pub(super) struct Draft<'i> {
    pub(super) kind: Kind,
    pub(super) source: Source,
    /// Number of the node in the source.
    pub(super) node: usize,
    /// Number of the service in the source.
    pub(super) service: usize,
    pub(super) purged: bool,
    /// False for a purged resource of a service that stays.
    pub(super) has_undo: bool,
    pub(super) is_up: bool,
    pub(super) requires: Vec<u32>,
    /// State and service of a barrier.
    pub(super) barrier: Option<(State, &'i str)>,
}

#[derive(Debug, Default)]
struct Group {
    members: Vec<u32>,
    dependents: Vec<u32>,
}

#[derive(Default)]
pub(super) struct Drafts<'i> {
    pub(super) all: Vec<Draft<'i>>,
    groups: BTreeMap<(State, &'i str), Group>,
    /// True if the drafts contain anything that only a transition has.
    pub(super) is_passing: bool,
}

/// True if a barrier between n instances and m dependents saves requirements.
fn saves_requirements(members: usize, dependents: usize) -> bool {
    members * dependents > members + dependents + 1
}

impl<'i> Drafts<'i> {
    pub(super) fn push(&mut self, draft: Draft<'i>) -> u32 {
        self.is_passing |= draft.purged;
        self.all.push(draft);
        u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
    }

    pub(super) fn require(&mut self, dependent: u32, required: u32) {
        self.all[dependent as usize].requires.push(required);
    }

    pub(super) fn add_member(&mut self, state: State, service: &'i str, member: u32) {
        self.groups.entry((state, service)).or_default().members.push(member);
    }

    /// Makes a resource wait for all members of a group.
    pub(super) fn wait(&mut self, dependent: u32, state: State, service: &'i str) {
        self.groups.entry((state, service)).or_default().dependents.push(dependent);
    }

    /// Turns groups into requirements and barriers. Returns the barriers.
    pub(super) fn resolve_groups(&mut self) -> Vec<(State, &'i str)> {
        let mut barriers = Vec::new();
        for ((state, service), mut group) in std::mem::take(&mut self.groups) {
            group.dependents.sort_unstable();
            group.dependents.dedup();
            let Group { members, dependents } = group;
            if members.is_empty() || dependents.is_empty() {
                continue;
            }
            self.is_passing |= state.is_passing();
            if saves_requirements(members.len(), dependents.len()) {
                barriers.push((state, service));
                let barrier = self.push_barrier((state, service), members, state.is_passing());
                for dependent in dependents {
                    self.require(dependent, barrier);
                }
            } else {
                for dependent in dependents {
                    self.all[dependent as usize].requires.extend(&members);
                }
            }
        }
        barriers
    }

    /// Adds a barrier. Purged ones are gone in the next version.
    pub(super) fn push_barrier(
        &mut self,
        barrier: (State, &'i str),
        requires: Vec<u32>,
        purged: bool,
    ) -> u32 {
        self.push(Draft {
            kind: Kind::Barrier,
            source: Source::New,
            node: 0,
            service: 0,
            purged,
            has_undo: false,
            is_up: true,
            requires,
            barrier: Some(barrier),
        })
    }

    /// Marks all other barriers as gone in the next version.
    pub(super) fn retain_barriers(&mut self, retained: &BTreeSet<(State, &'i str)>) {
        for draft in &mut self.all {
            if draft.barrier.is_some_and(|barrier| !retained.contains(&barrier)) {
                draft.purged = true;
                self.is_passing = true;
            }
        }
    }

    /// Numbers of drafts that wait for each other, if there are any.
    pub(super) fn cycle(&self) -> Option<Vec<u32>> {
        let count = self.all.len();
        let mut left: Vec<u32> = Vec::with_capacity(count);
        let mut next: Vec<Vec<u32>> = vec![Vec::new(); count];
        for (number, draft) in self.all.iter().enumerate() {
            left.push(u32::try_from(draft.requires.len()).unwrap_or(u32::MAX));
            for required in &draft.requires {
                next[*required as usize].push(u32::try_from(number).unwrap_or(u32::MAX));
            }
        }
        let mut ready: Vec<u32> = (0..u32::try_from(count).unwrap_or(u32::MAX))
            .filter(|number| left[*number as usize] == 0)
            .collect();
        let mut done = 0;
        while let Some(number) = ready.pop() {
            done += 1;
            for dependent in &next[number as usize] {
                let left = &mut left[*dependent as usize];
                *left -= 1;
                if *left == 0 {
                    ready.push(*dependent);
                }
            }
        }
        if done == count {
            return None;
        }
        // Every draft that is left requires another one that is left.
        let mut path: Vec<u32> = Vec::new();
        let first = left.iter().position(|left| *left > 0)?;
        let mut at = u32::try_from(first).ok()?;
        loop {
            if let Some(start) = path.iter().position(|known| *known == at) {
                return Some(path.split_off(start));
            }
            path.push(at);
            let mut requires = self.all[at as usize].requires.iter();
            at = *requires.find(|required| left[**required as usize] > 0)?;
        }
    }
}
