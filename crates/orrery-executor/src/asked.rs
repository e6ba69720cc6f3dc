//! What people asked for, and when it is done: each request ends with its own resources, whatever else goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_model::{Blocked, ChangeKind, OutcomeStatus, ResourceId};
use orrery_scheduler::{Event, Filter, Reason, ResourceIndex, Scheduler, TaskNumber};
use rustc_hash::FxHashSet;

use crate::core::Core;
use crate::engine::Engine;
use crate::progress::Tally;

/// Resources that are looked at to find out whom a request waits for.
const LOOKS_MAX: usize = 10_000;

/// One request; never used twice by one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Resources that the request means.
    pub matched: usize,
    /// What their runs came to.
    pub runs: Tally,
    /// Those that were not tried, being as wanted.
    pub as_wanted: usize,
    /// Those that cannot be tried: something about them, or about what they require, is not known.
    pub blocked: usize,
    /// Those whose turn never came: taken back, or not wanted any more.
    pub withdrawn: usize,
    /// Runs of resources that the request means, and that followed from a run of another one: what it changed concerns them.
    pub followed: usize,
    /// What the request names and nobody knows.
    pub unknown_ids: Vec<ResourceId>,
    pub unknown_agents: Vec<String>,
}

/// How far a request is that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Agents that take no work and that it waits for, in the order of their names.
    pub paused: Vec<String>,
}

/// Progress of a request that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestProgress {
    /// Resources that it runs.
    pub total: usize,
    /// Of those, how many have had their run.
    pub done: usize,
    /// Some of the resources whose handlers run now, the longest running first.
    pub running: Vec<ResourceId>,
}

/// What ends the wait for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// A deploy that begins after the request, or nothing more to do. `verified`: also of what is believed to be as wanted.
    Deploy {
        verified: bool,
    },
    /// The end of what runs.
    Stop,
    Facts,
}

#[derive(Debug)]
enum Agents {
    All,
    These(Vec<Arc<str>>),
}

#[derive(Debug)]
struct Asked {
    awaited: Awaited,
    /// Of which agents it means all resources; `None` if it names resources.
    whole: Option<Agents>,
    /// Runs up to this one began before the request.
    since: TaskNumber,
    left: FxHashSet<ResourceIndex>,
    answer: Answer,
    /// Set at the end: how much has to be kept before the request may be said to be done.
    kept_at: Option<u64>,
}

/// All requests that nobody has heard the end of.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    asked: BTreeMap<Ticket, Asked>,
    next: u64,
}

impl Requests {
    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Whether one has ended whose results are kept.
    pub(crate) fn has_answers(&self, kept: u64) -> bool {
        self.asked.values().any(|asked| asked.kept_at.is_some_and(|at| at <= kept))
    }

    /// Somebody has something to be kept that a request ended with.
    fn end(&mut self, queued: u64) -> bool {
        let mut ended = false;
        for asked in self.asked.values_mut() {
            if asked.left.is_empty() && asked.kept_at.is_none() {
                asked.kept_at = Some(queued);
                ended = true;
            }
        }
        ended
    }
}

impl Asked {
    fn is_open(&self, scheduler: &Scheduler, resource: ResourceIndex) -> bool {
        match self.awaited {
            Awaited::Deploy { .. } | Awaited::Stop => scheduler.is_under_way(resource),
            Awaited::Facts => scheduler.is_asked_for_facts(resource),
        }
    }

    /// Whether the request means this resource without naming it.
    fn includes(&self, scheduler: &Scheduler, resource: ResourceIndex) -> bool {
        match &self.whole {
            None => false,
            Some(Agents::All) => true,
            Some(Agents::These(names)) => scheduler
                .id(resource)
                .is_some_and(|id| names.iter().any(|name| &**name == id.agent())),
        }
    }
}

impl Engine {
    /// Tells the engine what somebody asks for, to be answered for.
    pub fn ask(&self, event: Event) -> Ticket {
        let ticket = self.with_core(|core| core.ask(event));
        self.set_to_work();
        ticket
    }

    /// Takes the requests that have ended, with everything kept that they brought about.
    pub fn take_answers(&self) -> Vec<(Ticket, Answer)> {
        self.with_core(|core| {
            let kept = core.kept;
            let ended = core
                .requests
                .asked
                .extract_if(.., |_, asked| asked.kept_at.is_some_and(|at| at <= kept));
            ended.map(|(ticket, asked)| (ticket, asked.answer)).collect()
        })
    }

    /// How far a request is.
    pub fn request_progress(&self, ticket: Ticket) -> RequestProgress {
        self.with_core(|core| core.request_progress(ticket))
    }

    /// What keeps a request from ending, as far as people can do something about it.
    pub fn waiting(&self, ticket: Ticket) -> Waiting {
        self.with_core(|core| core.waiting(ticket))
    }
}

impl Core {
    pub(crate) fn ask(&mut self, event: Event) -> Ticket {
        let verified = matches!(event, Event::Repair(_) | Event::ContinueRepair { .. });
        let (filter, awaited) = match &event {
            Event::FactRefresh(ids) => (Filter::ids(ids.iter().cloned()), Awaited::Facts),
            Event::Cancel(filter) => (filter.clone(), Awaited::Stop),
            Event::Deploy(filter)
            | Event::Repair(filter)
            | Event::ContinueRepair { filter, .. } => {
                (filter.clone(), Awaited::Deploy { verified })
            }
            _ => (Filter::ids([]), Awaited::Deploy { verified }),
        };
        let continued = match event {
            Event::ContinueRepair { since, .. } => Some(since),
            _ => None,
        };
        let deploys = matches!(awaited, Awaited::Deploy { .. });
        if deploys {
            self.begin_pass();
        }
        let since = self.latest_task;
        let matched = self.scheduler.matched(&filter);
        let waited: Vec<ResourceIndex> = match awaited {
            Awaited::Stop => {
                let waits = |one: &ResourceIndex| self.scheduler.scheduled(*one).is_some();
                matched.iter().copied().filter(waits).collect()
            }
            Awaited::Deploy { .. } | Awaited::Facts => Vec::new(),
        };
        self.apply(event);
        let whole = match (&filter.ids, &filter.agents) {
            (Some(_), _) => None,
            (None, Some(names)) => Some(Agents::These(names.clone())),
            (None, None) => Some(Agents::All),
        };
        let mut asked = Asked {
            awaited,
            whole,
            since,
            left: FxHashSet::default(),
            answer: self.unknown_names(&filter),
            kept_at: None,
        };
        asked.answer.matched = matched.len();
        for resource in matched {
            let Some(state) = self.scheduler.state(resource) else { continue };
            let is_tried = || match awaited {
                Awaited::Deploy { verified: false } => {
                    self.scheduler.is_dirty(resource)
                        || state.blocked == Blocked::TemporarilyBlocked
                        || !self.is_only_verified(resource)
                }
                Awaited::Deploy { verified: true } | Awaited::Stop | Awaited::Facts => true,
            };
            if asked.is_open(&self.scheduler, resource) && is_tried() {
                asked.left.insert(resource);
            } else if state.blocked == Blocked::Blocked {
                asked.answer.blocked += 1;
            } else if continued.is_some() && state.last_success >= continued {
                // It had its turn before the engine was started anew.
                let was_changed = self.entry(resource).changed_at >= continued;
                let change = if was_changed { ChangeKind::Updated } else { ChangeKind::NoChange };
                asked.answer.runs.add(OutcomeStatus::Deployed, change);
            } else if deploys {
                asked.answer.as_wanted += 1;
            }
        }
        asked.answer.withdrawn += waited.len();
        self.requests.next += 1;
        let ticket = Ticket(self.requests.next);
        self.requests.asked.insert(ticket, asked);
        self.end_requests();
        ticket
    }

    /// Whether it has yet to be looked at because of the time alone, or for whoever asked for a repair: one who wants to deploy
    /// does not wait for that. What follows from a change, such as that of a new version, is another matter.
    fn is_only_verified(&self, resource: ResourceIndex) -> bool {
        let reason = self.scheduler.scheduled(resource).map(|(_, reason)| reason);
        matches!(reason, Some(Reason::RepairInterval | Reason::RepairCron | Reason::UserRepair))
    }

    fn unknown_names(&self, filter: &Filter) -> Answer {
        let mut answer = Answer::default();
        for id in filter.ids.iter().flatten() {
            if self.scheduler.index_of(id.as_str()).is_none() {
                answer.unknown_ids.push(id.clone());
            }
        }
        for name in filter.agents.iter().flatten() {
            if self.scheduler.agent_of(name).is_none() {
                answer.unknown_agents.push(name.to_string());
            }
        }
        answer
    }

    /// Notes that a run has ended; after the scheduler was told.
    pub(crate) fn run_ended(
        &mut self,
        resource: ResourceIndex,
        task: TaskNumber,
        facts: bool,
        result: Option<(OutcomeStatus, ChangeKind)>,
    ) {
        for asked in self.requests.asked.values_mut() {
            if (asked.awaited == Awaited::Facts) != facts || !asked.left.contains(&resource) {
                continue;
            }
            if task <= asked.since && asked.is_open(&self.scheduler, resource) {
                // It runs once more.
                continue;
            }
            asked.left.remove(&resource);
            match result {
                Some((status, change)) => asked.answer.runs.add(status, change),
                None => asked.answer.runs.cancelled += 1,
            }
            if !matches!(asked.awaited, Awaited::Deploy { .. }) || asked.whole.is_none() {
                continue;
            }
            for dependent in self.scheduler.dependents(resource) {
                if self.scheduler.is_under_way(dependent)
                    && asked.includes(&self.scheduler, dependent)
                    && asked.left.insert(dependent)
                {
                    asked.answer.followed += 1;
                }
            }
        }
        self.end_requests();
    }

    /// A resource is not wanted any more; before the scheduler is told.
    pub(crate) fn withdraw(&mut self, resource: ResourceIndex) {
        for asked in self.requests.asked.values_mut() {
            if asked.left.remove(&resource) {
                asked.answer.withdrawn += 1;
            }
        }
    }

    /// Tasks may have been taken back without a run.
    pub(crate) fn look_for_withdrawn(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        for asked in self.requests.asked.values_mut() {
            let left = std::mem::take(&mut asked.left);
            let before = left.len();
            asked.left =
                left.into_iter().filter(|one| asked.is_open(&self.scheduler, *one)).collect();
            asked.answer.withdrawn += before - asked.left.len();
        }
        self.end_requests();
    }

    fn end_requests(&mut self) {
        let queued = self.queued;
        if self.requests.end(queued) {
            // Whoever asked waits for it to be kept.
            self.pressing = true;
        }
    }

    fn request_progress(&self, ticket: Ticket) -> RequestProgress {
        let Some(asked) = self.requests.asked.get(&ticket) else {
            return RequestProgress::default();
        };
        let Answer { matched, as_wanted, blocked, followed, .. } = &asked.answer;
        let total = (matched + followed).saturating_sub(as_wanted + blocked);
        let done = total.saturating_sub(asked.left.len());
        let running = self.longest_running().into_iter().map(|one| one.id.clone()).collect();
        RequestProgress { total, done, running }
    }

    fn waiting(&self, ticket: Ticket) -> Waiting {
        let Some(asked) = self.requests.asked.get(&ticket) else { return Waiting::default() };
        let mut seen: FxHashSet<ResourceIndex> = FxHashSet::default();
        let mut ahead: Vec<ResourceIndex> = asked.left.iter().copied().collect();
        let mut paused: Vec<String> = Vec::new();
        while let Some(resource) = ahead.pop() {
            if seen.len() >= LOOKS_MAX || !seen.insert(resource) {
                continue;
            }
            let Some(id) = self.scheduler.id(resource) else { continue };
            let agent = self.scheduler.agent_of(id.agent());
            if agent.is_some_and(|agent| self.scheduler.is_paused(agent)) {
                paused.push(id.agent().to_owned());
            }
            ahead.extend(self.scheduler.waiting_on(resource).into_iter().flatten());
        }
        paused.sort_unstable();
        paused.dedup();
        Waiting { paused }
    }
}
