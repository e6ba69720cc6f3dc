//! Random steps: versions, results, requests, pauses, restarts, time.

use orrery_model::{Duration, OutcomeStatus};
use orrery_scheduler::{Filter, Interval, Retry, Settings};
use proptest::prelude::*;

use crate::world::{Model, calm, id, r};

/// Ten resources on four agents; few, so that they interact.
pub(crate) const NAMES: [&str; 10] =
    ["x/a", "x/b", "x/c", "y/a", "y/b", "y/c", "z/a", "z/b", "w/a", "w/b"];
pub(crate) const AGENTS: [&str; 4] = ["x", "y", "z", "w"];

/// One resource of a random version.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    present: bool,
    value: u8,
    undefined: bool,
    sends: bool,
    deaf: bool,
    reports: bool,
    set: u8,
    /// Indexes, within the shuffled names, of its requirements; only lower ones are used.
    requires: Vec<usize>,
}

/// A version: a permutation of the names, so that edges reverse between versions, and a draft for
/// each.
#[derive(Clone, Debug)]
pub(crate) struct DraftVersion {
    rotation: usize,
    drafts: Vec<Draft>,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Versions(Vec<DraftVersion>),
    /// A few resources of the current model get another value.
    Touch(Vec<usize>),
    Finish {
        which: usize,
        status: Option<OutcomeStatus>,
    },
    /// The result of an ended or unknown task.
    Stray(u64),
    Deploy(Choice),
    Repair(Choice),
    /// A repair that began this many seconds ago, resumed after a restart.
    ResumeVerify {
        choice: Choice,
        ago: u32,
    },
    Cancel(Choice),
    Pause(usize),
    Unpause(usize),
    Halt,
    Resume,
    Pass(u64),
    Settings(usize),
    Restart {
        reset: bool,
        newer: Option<DraftVersion>,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Choice {
    All,
    Agent(usize),
    Names(Vec<usize>),
    Both(usize, Vec<usize>),
}

impl Choice {
    pub(crate) fn filter(&self) -> Filter {
        let ids = |places: &[usize]| places.iter().map(|index| id(NAMES[*index])).collect();
        match self {
            Choice::All => Filter::all(),
            Choice::Agent(agent) => Filter::agent(AGENTS[*agent]),
            Choice::Names(places) => Filter { ids: Some(ids(places)), agents: None },
            Choice::Both(agent, places) => {
                Filter { ids: Some(ids(places)), ..Filter::agent(AGENTS[*agent]) }
            }
        }
    }
}

impl DraftVersion {
    pub(crate) fn models(&self) -> Vec<Model> {
        // Multiples of a coprime number visit every index once.
        let names: Vec<&str> = (0..NAMES.len())
            .map(|index| NAMES[(index * 3 + self.rotation * (1 + index % 2)) % NAMES.len()])
            .collect();
        let mut models: Vec<Model> = Vec::new();
        for (name, draft) in names.iter().zip(&self.drafts) {
            if !draft.present || models.iter().any(|model| model.name == *name) {
                continue;
            }
            let mut model = r(name).value(draft.value);
            model.flags.undefined = draft.undefined;
            model.flags.send_event = draft.sends;
            model.flags.receive_events = !draft.deaf;
            model.flags.report_only = draft.reports;
            if draft.set > 0 {
                model = model.set(&format!("set{}", draft.set));
            }
            let before = models.iter().enumerate();
            let required = before.filter(|(index, _)| draft.requires.contains(index));
            model.requires = required.map(|(_, model)| model.name.clone()).collect();
            models.push(model);
        }
        models.sort_by(|one, other| one.name.cmp(&other.name));
        models
    }
}

pub(crate) fn draft_version() -> impl Strategy<Value = DraftVersion> {
    let draft = (
        prop::bool::weighted(0.85),
        0..3_u8,
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
        0..3_u8,
        prop::collection::vec(0..NAMES.len(), 0..3),
    );
    let draft =
        draft.prop_map(|(present, value, undefined, sends, deaf, reports, set, requires)| Draft {
            present,
            value,
            undefined,
            sends,
            deaf,
            reports,
            set,
            requires,
        });
    (0..4_usize, prop::collection::vec(draft, NAMES.len()))
        .prop_map(|(rotation, drafts)| DraftVersion { rotation, drafts })
}

pub(crate) fn choice() -> impl Strategy<Value = Choice> {
    let names = || prop::collection::vec(0..NAMES.len(), 1..4);
    prop_oneof![
        3 => Just(Choice::All),
        1 => (0..AGENTS.len()).prop_map(Choice::Agent),
        2 => names().prop_map(Choice::Names),
        1 => (0..AGENTS.len(), names()).prop_map(|(agent, names)| Choice::Both(agent, names)),
    ]
}

pub(crate) fn status() -> impl Strategy<Value = Option<OutcomeStatus>> {
    prop_oneof![
        8 => Just(Some(OutcomeStatus::Deployed)),
        3 => Just(Some(OutcomeStatus::Failed)),
        1 => Just(Some(OutcomeStatus::Unavailable)),
        2 => Just(Some(OutcomeStatus::Skipped)),
        4 => Just(Some(OutcomeStatus::SkippedForDependency)),
        1 => Just(Some(OutcomeStatus::NonCompliant)),
        1 => Just(None),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec(draft_version(), 1..4).prop_map(Step::Versions),
        4 => prop::collection::vec(0..NAMES.len(), 1..4).prop_map(Step::Touch),
        30 => (0..8_usize, status()).prop_map(|(which, status)| Step::Finish { which, status }),
        1 => (0..50_u64).prop_map(Step::Stray),
        3 => choice().prop_map(Step::Deploy),
        3 => choice().prop_map(Step::Repair),
        2 => (choice(), 0..100_u32)
            .prop_map(|(choice, ago)| Step::ResumeVerify { choice, ago }),
        2 => choice().prop_map(Step::Cancel),
        2 => (0..AGENTS.len()).prop_map(Step::Pause),
        3 => (0..AGENTS.len()).prop_map(Step::Unpause),
        1 => Just(Step::Halt),
        2 => Just(Step::Resume),
        6 => (0..80_u64).prop_map(Step::Pass),
        1 => (0..4_usize).prop_map(Step::Settings),
        2 => (prop::bool::weighted(0.2), prop::option::weighted(0.3, draft_version()))
            .prop_map(|(reset, newer)| Step::Restart { reset, newer }),
    ]
}

pub(crate) fn settings(number: usize) -> Settings {
    let every = |seconds| Interval::Every(Duration::from_secs(seconds));
    let delay = Some(Duration::from_secs(20));
    let retry = Retry { delay, attempts_max: Some(3), ..Retry::constant() };
    let (deploy_interval, repair_interval) = match number {
        0 => (every(50), every(120)),
        1 => (every(90), every(40)),
        2 => (Interval::Off, every(60)),
        _ => (every(30), Interval::Off),
    };
    let task_time_max = (number == 1).then(|| Duration::from_secs(100));
    let cancel_time_max = Duration::from_secs(20);
    Settings { deploy_interval, repair_interval, retry, task_time_max, cancel_time_max, ..calm() }
}
