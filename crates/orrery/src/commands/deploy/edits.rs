//! Manual edits of resources that are to be removed, found by a dry run before the confirmation.

use std::collections::{BTreeMap, BTreeSet};

use orrery_api::{DryRunChange, DryRunStatus};
use orrery_executor::{DesiredState, EngineSetup, PlanEntry, plan};
use orrery_model::{
    ChangeKind, Inventory, Outcome, Removal, Resource, ResourceState, VersionNumber,
};
use rustc_hash::FxHashMap;

use crate::cli::deploy::RunOptions;
use crate::commands::remote::dry_run;
use crate::error::CliError;
use crate::remote::RemoteEnvironment;
use crate::signals::Interrupt;

use super::{Handlers, LocalStore, setup};

/// Attributes that differ from the last deploy, by resource id.
#[derive(Clone, Debug, Default)]
pub(super) struct Edits(BTreeMap<String, Vec<String>>);

impl Edits {
    /// Checks the resources that are removed locally. Skips those of Python handlers, whose host
    /// starts only for the removal.
    pub(super) fn find_here(
        opened: &LocalStore,
        removal: &Removal,
        run: &RunOptions,
        inventory: Inventory,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let removed: BTreeSet<_> = removal.removed.iter().collect();
        let resources: Vec<Resource> = removal
            .resources
            .iter()
            .filter(|resource| removed.contains(&resource.id))
            .map(|resource| Resource { requires: Vec::new(), ..resource.clone() })
            .collect();
        if resources.is_empty() {
            return Ok(Edits::default());
        }
        let mut known: FxHashMap<String, ResourceState> = FxHashMap::default();
        opened.store.engine().read_states(opened.environment, &mut |row| {
            known.insert(row.id.to_owned(), row.state.clone());
        })?;
        let states = resources.iter().map(|one| known.remove(one.id.as_str())).collect();
        let setup = EngineSetup {
            store_handle: None,
            ..setup(&Handlers::native(), run, Some(opened), inventory)
        };
        let ids: Vec<String> = resources.iter().map(|one| one.id.to_string()).collect();
        let desired = DesiredState { version: VersionNumber(0), resources, keys: Vec::new() };
        let answers = plan(setup, desired, states, &mut |_| true)?;
        let mut edits = BTreeMap::new();
        for (id, answer) in ids.into_iter().zip(answers) {
            if let PlanEntry::Evaluated(Outcome { change, .. }) = answer
                && change.kind == ChangeKind::Purged
                && !change.attributes.is_empty()
            {
                edits.insert(id, change.attributes.into_iter().map(|one| one.name).collect());
            }
        }
        Ok(Edits(edits))
    }

    /// Checks the resources that a stored version removes, by a dry run on the server.
    pub(super) fn find_on_server(
        of: &RemoteEnvironment,
        version: u32,
        quiet: bool,
    ) -> Result<Self, CliError> {
        let found = dry_run::follow(of, version, quiet, &Interrupt::ignored())?;
        let names = |change: DryRunChange| -> Option<(String, Vec<String>)> {
            let names: Vec<String> = change
                .changes
                .into_iter()
                .map(|one| one.name)
                .filter(|name| name != "purged")
                .collect();
            (change.status == DryRunStatus::Deleted && !names.is_empty())
                .then_some((change.resource, names))
        };
        Ok(Edits(found.changes.into_iter().filter_map(names).collect()))
    }

    /// Note on an edited resource in a plan.
    pub(super) fn note_on(&self, id: &str) -> Option<String> {
        let names = self.0.get(id)?;
        Some(format!("edited since it was deployed: {}", names.join(", ")))
    }
}
