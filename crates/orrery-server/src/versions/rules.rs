//! What a change of some sets may do. Pure: what has to be known of the version it is based on is given.
//!
//! A change says everything about the sets that occur in it and about those that it removes. It may add to the shared set, and
//! repeat what is there, but neither change nor drop it: others depend on it who do not know of the change.

use std::collections::{BTreeSet, HashMap};

use orrery_model::{Resource, ResourceId};
use orrery_store::Standing;

use crate::problem::ServerError;

/// A change of some sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    /// In the order of their ids.
    pub(super) resources: Vec<Resource>,
    pub(super) removed_sets: Vec<String>,
    pub(super) code: Option<String>,
    pub(super) allow_code_update: bool,
    /// Patterns of agents that are the machine which runs the handlers.
    pub(super) local_agents: Vec<String>,
}

impl Change {
    /// Names of the sets that it says everything about.
    pub(super) fn touched(&self) -> BTreeSet<&str> {
        let updated = self.resources.iter().filter_map(|resource| resource.set.as_deref());
        updated.chain(self.removed_sets.iter().map(String::as_str)).collect()
    }

    pub(super) fn find(&self, id: &str) -> Option<&Resource> {
        let found = self.resources.binary_search_by(|resource| resource.id.as_str().cmp(id));
        found.ok().map(|index| &self.resources[index])
    }
}

/// What is known of the version that a change is based on.
#[derive(Clone, Debug, Default)]
pub(super) struct Base {
    /// Of the resources of the change, of what they require, and of what the shared ones among them required before.
    pub(super) standings: HashMap<String, Standing>,
    pub(super) code: Option<String>,
    /// Modules whose code is another one in the change.
    pub(super) differing: Vec<String>,
    /// No set depends on another one.
    pub(super) suitable: bool,
}

/// A rule that is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    #[error("there is no version that could be changed: store a full one first")]
    NoBase,
    #[error(
        "sets of the version before depend on each other: store a full version that does not do so first"
    )]
    UnsuitableBase,
    #[error("the set {0:?} cannot be updated and removed at once")]
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
        "version {own} cannot change version {base}, which is newer: reserve another number, or none"
    )]
    LateNumber { own: u32, base: u32 },
    #[error(
        "the code of {0} differs from that of the version before, which other resources use too: store a full version, or allow it with --allow-code-update"
    )]
    CodeDiffers(String),
    #[error("resources require each other: {0}: take one of these requirements away")]
    Cycle(String),
    #[error(
        "several resources manage {path} on one machine, so that each would undo what the others did: {resources}: keep one of them"
    )]
    PathCollision { path: String, resources: String },
}

impl Broken {
    /// The kind of problem, for programs.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Broken::NoBase => "no-base-version",
            Broken::UnsuitableBase => "base-not-suitable",
            Broken::SetUpdatedAndRemoved(_) => "set-updated-and-removed",
            Broken::CrossSet { .. } => "cross-set-requires",
            Broken::Moved { .. } => "moved-between-sets",
            Broken::SharedChanged(_) => "shared-resource-changed",
            Broken::LateNumber { .. } => "number-too-late",
            Broken::CodeDiffers(_) => "code-differs",
            Broken::Cycle(_) => "requirement-cycle",
            Broken::PathCollision { .. } => "path-collision",
        }
    }
}

impl From<Broken> for ServerError {
    fn from(broken: Broken) -> Self {
        ServerError::rule(broken.code(), broken.to_string())
    }
}

fn set_text(set: Option<&str>) -> String {
    set.map_or_else(|| "the shared set".to_owned(), |set| format!("the set {set:?}"))
}

/// Whether no resource of a named set requires one of another named set. Resources are in the order of their ids.
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

/// Checks all rules, and answers the resources to be stored: shared ones that are there already keep what they required.
pub(super) fn check(change: &Change, base: &Base) -> Result<Vec<Resource>, Broken> {
    if !base.suitable {
        return Err(Broken::UnsuitableBase);
    }
    if !base.differing.is_empty() && !change.allow_code_update {
        return Err(Broken::CodeDiffers(base.differing.join(", ")));
    }
    let updated: BTreeSet<&str> =
        change.resources.iter().filter_map(|resource| resource.set.as_deref()).collect();
    if let Some(set) = change.removed_sets.iter().find(|set| updated.contains(set.as_str())) {
        return Err(Broken::SetUpdatedAndRemoved(set.clone()));
    }
    let touched = change.touched();
    let mut resources = Vec::with_capacity(change.resources.len());
    for resource in &change.resources {
        let mut resource = resource.clone();
        if let Some(standing) = base.standings.get(resource.id.as_str()) {
            check_place(&resource, standing, &touched)?;
            if standing.set.is_none() {
                merge_requires(change, base, &touched, &mut resource, standing);
            }
        }
        check_requires(change, base, &resource)?;
        resources.push(resource);
    }
    Ok(resources)
}

/// Where a resource was, and where it goes.
fn check_place(
    resource: &Resource,
    standing: &Standing,
    touched: &BTreeSet<&str>,
) -> Result<(), Broken> {
    let (from, to) = (standing.set.as_deref(), resource.set.as_deref());
    if from == to {
        if from.is_none() && standing.hash != resource.hash {
            return Err(Broken::SharedChanged(resource.id.to_string()));
        }
        return Ok(());
    }
    // What is shared cannot leave; what is in a set can, if the set is part of the change.
    if from.is_some_and(|from| touched.contains(from)) {
        return Ok(());
    }
    Err(Broken::Moved { resource: resource.id.to_string(), from: set_text(from), to: set_text(to) })
}

/// What a shared resource required before it still does, unless that goes with this change.
fn merge_requires(
    change: &Change,
    base: &Base,
    touched: &BTreeSet<&str>,
    resource: &mut Resource,
    standing: &Standing,
) {
    for id in &standing.requires {
        let stays = match base.standings.get(id).map(|required| required.set.as_deref()) {
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

fn check_requires(change: &Change, base: &Base, resource: &Resource) -> Result<(), Broken> {
    let Some(own) = resource.set.as_deref() else { return Ok(()) };
    for id in &resource.requires {
        let other = match change.find(id.as_str()) {
            Some(required) => required.set.as_deref(),
            None => base.standings.get(id.as_str()).and_then(|standing| standing.set.as_deref()),
        };
        if let Some(other) = other.filter(|other| *other != own) {
            return Err(Broken::CrossSet {
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
#[path = "rules_tests.rs"]
mod tests;
