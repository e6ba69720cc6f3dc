//! Rules for partial versions. Pure: the facts about the previous version are arguments.
//!
//! A partial version defines the sets that occur in it and removes those that it lists. It may add
//! to the shared set and repeat its resources, but neither change nor remove them: other sets
//! depend on them.

use std::collections::{BTreeSet, HashMap};

use orrery_model::{Resource, ResourceId};
use orrery_store::NewestRevision;

use crate::error::ServerError;

/// A partial version.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    /// Sorted by id.
    pub(super) resources: Vec<Resource>,
    pub(super) removed_sets: Vec<String>,
    pub(super) code: Option<String>,
    pub(super) allow_code_update: bool,
    /// Patterns of agents that are the machine which runs the handlers.
    pub(super) local_agents: Vec<String>,
}

impl Change {
    /// Returns the names of the sets that it defines or removes.
    pub(super) fn touched(&self) -> BTreeSet<&str> {
        let updated = self.resources.iter().filter_map(|resource| resource.set.as_deref());
        updated.chain(self.removed_sets.iter().map(String::as_str)).collect()
    }

    pub(super) fn find(&self, id: &str) -> Option<&Resource> {
        let found = self.resources.binary_search_by(|resource| resource.id.as_str().cmp(id));
        found.ok().map(|index| &self.resources[index])
    }
}

/// Facts about the previous version.
#[derive(Clone, Debug, Default)]
pub(super) struct Base {
    /// States of the resources of the change, of their requirements, and of the previous
    /// requirements of shared ones.
    pub(super) newest_revisions: HashMap<String, NewestRevision>,
    pub(super) code: Option<String>,
    /// Modules with changed code.
    pub(super) differing: Vec<String>,
    /// True if no set depends on another one.
    pub(super) suitable: bool,
}

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RuleViolation {
    #[error("there is no version to change: store a full one first")]
    NoBase,
    #[error(
        "sets of the previous version depend on each other: store a full version without such dependencies first"
    )]
    UnsuitableBase,
    #[error("the set {0:?} cannot be both updated and removed")]
    SetUpdatedAndRemoved(String),
    #[error(
        "{resource} of the set {set:?} requires {requires} of the set {other:?}: sets must not depend on each other"
    )]
    CrossSet { resource: String, set: String, requires: String, other: String },
    #[error(
        "{resource} would move from {from} to {to}: a resource moves only if both sets are part of the change"
    )]
    Moved { resource: String, from: String, to: String },
    #[error("{0} is in the shared set and would change: only a full version can do that")]
    SharedChanged(String),
    #[error(
        "version {own} is older than version {base}, which it would change: reserve another number, or none"
    )]
    LateNumber { own: u32, base: u32 },
    #[error(
        "the code of {0} differs from that of the previous version, which other resources use too: store a full version, or allow it with --allow-code-update"
    )]
    CodeDiffers(String),
    #[error("resources require each other: {0}: remove one of these requirements")]
    Cycle(String),
    #[error(
        "several resources manage {path} on one machine, and would undo each other's changes: {resources}: keep one of them"
    )]
    PathCollision { path: String, resources: String },
}

impl RuleViolation {
    /// Error code.
    pub(super) fn code(&self) -> &'static str {
        match self {
            RuleViolation::NoBase => "no-base-version",
            RuleViolation::UnsuitableBase => "base-not-suitable",
            RuleViolation::SetUpdatedAndRemoved(_) => "set-updated-and-removed",
            RuleViolation::CrossSet { .. } => "cross-set-requires",
            RuleViolation::Moved { .. } => "moved-between-sets",
            RuleViolation::SharedChanged(_) => "shared-resource-changed",
            RuleViolation::LateNumber { .. } => "number-too-late",
            RuleViolation::CodeDiffers(_) => "code-differs",
            RuleViolation::Cycle(_) => "requirement-cycle",
            RuleViolation::PathCollision { .. } => "path-collision",
        }
    }
}

impl From<RuleViolation> for ServerError {
    fn from(broken: RuleViolation) -> Self {
        ServerError::rule(broken.code(), broken.to_string())
    }
}

fn set_text(set: Option<&str>) -> String {
    set.map_or_else(|| "the shared set".to_owned(), |set| format!("the set {set:?}"))
}

/// True if no resource of a named set requires one of another named set. The resources must be
/// sorted by id.
pub(super) fn is_suitable(resources: &[Resource]) -> bool {
    let set_of = |id: &ResourceId| {
        let found = resources.binary_search_by(|resource| resource.id.cmp(id));
        found.ok().and_then(|index| resources[index].set.as_deref())
    };
    resources.iter().all(|resource| {
        let Some(own) = resource.set.as_deref() else { return true };
        resource.requires.iter().all(|id| set_of(id).is_none_or(|other| other == own))
    })
}

/// Checks all rules. Returns the resources to store: existing shared ones keep their requirements.
pub(super) fn check(change: &Change, base: &Base) -> Result<Vec<Resource>, RuleViolation> {
    // Without resources and sets, only information on the version changes.
    let is_empty = change.resources.is_empty() && change.removed_sets.is_empty();
    if !base.suitable && !is_empty {
        return Err(RuleViolation::UnsuitableBase);
    }
    if !base.differing.is_empty() && !change.allow_code_update {
        return Err(RuleViolation::CodeDiffers(base.differing.join(", ")));
    }
    let updated: BTreeSet<&str> =
        change.resources.iter().filter_map(|resource| resource.set.as_deref()).collect();
    if let Some(set) = change.removed_sets.iter().find(|set| updated.contains(set.as_str())) {
        return Err(RuleViolation::SetUpdatedAndRemoved(set.clone()));
    }
    let touched = change.touched();
    let mut resources = Vec::with_capacity(change.resources.len());
    for resource in &change.resources {
        let mut resource = resource.clone();
        if let Some(newest) = base.newest_revisions.get(resource.id.as_str()) {
            check_set_move(&resource, newest, &touched)?;
            if newest.set.is_none() {
                merge_requires(change, base, &touched, &mut resource, newest);
            }
        }
        check_requires(change, base, &resource)?;
        resources.push(resource);
    }
    Ok(resources)
}

/// Checks the move of a resource between sets.
fn check_set_move(
    resource: &Resource,
    newest: &NewestRevision,
    touched: &BTreeSet<&str>,
) -> Result<(), RuleViolation> {
    let (from, to) = (newest.set.as_deref(), resource.set.as_deref());
    if from == to {
        if from.is_none() && newest.hash != resource.hash {
            return Err(RuleViolation::SharedChanged(resource.id.to_string()));
        }
        return Ok(());
    }
    // A shared resource cannot leave; one of a set can, if the set is part of the change.
    if from.is_some_and(|from| touched.contains(from)) {
        return Ok(());
    }
    Err(RuleViolation::Moved {
        resource: resource.id.to_string(),
        from: set_text(from),
        to: set_text(to),
    })
}

/// Keeps the previous requirements of a shared resource, unless the change removes them.
fn merge_requires(
    change: &Change,
    base: &Base,
    touched: &BTreeSet<&str>,
    resource: &mut Resource,
    newest: &NewestRevision,
) {
    for id in &newest.requires {
        let stays = match base.newest_revisions.get(id).map(|required| required.set.as_deref()) {
            Some(Some(set)) if touched.contains(set) => change.find(id).is_some(),
            Some(_) => true,
            None => change.find(id).is_some(),
        };
        if let (true, Ok(id)) = (stays, id.parse::<ResourceId>()) {
            resource.requires.push(id);
        }
    }
    resource.requires.sort_unstable();
    resource.requires.dedup();
}

fn check_requires(change: &Change, base: &Base, resource: &Resource) -> Result<(), RuleViolation> {
    let Some(own) = resource.set.as_deref() else { return Ok(()) };
    for id in &resource.requires {
        let other = match change.find(id.as_str()) {
            Some(required) => required.set.as_deref(),
            None => base.newest_revisions.get(id.as_str()).and_then(|newest| newest.set.as_deref()),
        };
        if let Some(other) = other.filter(|other| *other != own) {
            return Err(RuleViolation::CrossSet {
                resource: resource.id.to_string(),
                set: own.to_owned(),
                requires: id.to_string(),
                other: other.to_owned(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "partial_update_tests.rs"]
mod tests;
