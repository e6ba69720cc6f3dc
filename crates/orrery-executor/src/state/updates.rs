//! Newer versions of the desired state.

use orrery_model::ResourceId;
use orrery_scheduler::Event;
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
}
