//! Newer versions of the desired state.

use std::collections::BTreeSet;

use orrery_model::{OutcomeStatus, ResourceId};
use orrery_scheduler::{Event, Filter};
use orrery_store::{ResourceDiff, ResourceKey};

use super::EngineState;
use crate::update::Update;

impl EngineState {
    pub(crate) fn update(&mut self, update: Update) {
        let Update { version, differences, diffs } = update;
        let now = self.clock.now();
        let mut commands = Vec::new();
        // Positions first: handling the event removes deleted resources from the scheduler.
        let mut former: Vec<(ResourceId, ResourceKey)> = Vec::new();
        for difference in &differences {
            if difference.after.is_none()
                && let Some(index) = self.scheduler.index_of(difference.id.as_str())
            {
                self.requests.withdraw(index);
                self.resources.remove(index);
                former.push((difference.id.clone(), difference.key));
            }
        }
        self.scheduler.handle(Event::NewVersions(diffs), now, &mut commands);
        self.resources.set_version(version);
        for difference in differences {
            let ResourceDiff { key, id, before, after } = difference;
            let Some(after) = after else { continue };
            let Some(index) = self.scheduler.index_of(id.as_str()) else { continue };
            self.resources.put(index, after, key, before.is_none());
        }
        let former = former.iter().map(|(id, key)| (id.as_str(), *key)).collect();
        self.execute_commands(commands, &former, now);
        self.drop_withdrawn();
    }

    /// Deploys the resources of some entities whose last run was unavailable, and those that run:
    /// they may have found their handler not ready.
    pub(crate) fn deploy_unavailable(&mut self, entities: &BTreeSet<String>) {
        let scheduler = &self.scheduler;
        let ids = scheduler.resources().filter_map(|index| {
            let id = scheduler.id(index).filter(|id| entities.contains(id.entity()))?;
            let state = scheduler.state(index)?;
            let unavailable = state.last_outcome == Some(OutcomeStatus::Unavailable);
            let is_due = unavailable || state.deploying;
            is_due.then(|| id.clone())
        });
        let ids: Vec<ResourceId> = ids.collect();
        if !ids.is_empty() {
            self.handle_external_event(Event::DeployDirty(Filter::ids(ids)));
        }
    }
}
