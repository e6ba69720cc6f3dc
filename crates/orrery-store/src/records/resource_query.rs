//! Filter for resources, shared by lists, counts and the graph.

use orrery_model::{Blocked, Compliance, OutcomeStatus, Pattern, ResourceState, Status};

/// Filter for resources. All given conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct ResourceQuery {
    pub agent: Option<String>,
    /// The entity: `std::File`.
    pub entity: Option<String>,
    /// Any of these agents, instead of `agent`; empty for all.
    pub agents: Vec<String>,
    /// Any of these entities, instead of `entity`; empty for all.
    pub entities: Vec<String>,
    pub state: StateFilter,
    /// Pattern for the identifying value.
    pub value: Option<Pattern>,
    /// Any of these; empty for all but orphans.
    pub statuses: Vec<Status>,
    /// Resources of one named set.
    pub set: Option<String>,
    pub descending: bool,
    /// Includes removed resources. They are orphans.
    pub removed: bool,
}

impl ResourceQuery {
    /// True if an agent is selected.
    pub(super) fn has_agent(&self, agent: &str) -> bool {
        self.agent.as_ref().is_none_or(|only| only == agent)
            && (self.agents.is_empty() || self.agents.iter().any(|one| one == agent))
    }

    /// True if an entity is selected.
    pub(super) fn has_entity(&self, entity: &str) -> bool {
        self.entity.as_ref().is_none_or(|only| only == entity)
            && (self.entities.is_empty() || self.entities.iter().any(|one| one == entity))
    }
}

/// Conditions on the axes of the state. All given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateFilter {
    /// Any of these; empty for all.
    pub compliances: Vec<Compliance>,
    /// Outcomes of the last run, any of these; empty for all, including resources without a run.
    pub outcomes: Vec<OutcomeStatus>,
    pub parked: Option<bool>,
    /// Blocked by an undefined or a bad requirement, or not.
    pub blocked: Option<bool>,
}

impl StateFilter {
    pub fn is_empty(&self) -> bool {
        *self == StateFilter::default()
    }

    pub(super) fn matches(&self, state: &ResourceState) -> bool {
        let has_compliance =
            || state.compliance().is_some_and(|compliance| self.compliances.contains(&compliance));
        let has_outcome =
            || state.last_outcome.is_some_and(|outcome| self.outcomes.contains(&outcome));
        (self.compliances.is_empty() || has_compliance())
            && (self.outcomes.is_empty() || has_outcome())
            && self.parked.is_none_or(|parked| parked == state.parked)
            && self.blocked.is_none_or(|is| is == (state.blocked != Blocked::NotBlocked))
    }
}
