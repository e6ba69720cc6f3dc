//! Updates of a running engine: new versions, timers, replaced handlers.

use std::sync::Arc;

use orrery_handlers::Registry;
use orrery_model::{ResourceId, Timestamp, VersionNumber};
use orrery_scheduler::{Event, VersionDiff};
use orrery_store::{EnvironmentKey, ResourceDiff, ResourceKey, Store, StoreError};
use rustc_hash::FxHashMap;

use crate::engine::Engine;
use crate::recovery::DiffBuilder;
use crate::requests::RequestId;
use crate::state::{EngineState, NO_ENTRY, ResourceEntry};
use crate::writer::WriterState;

/// Changes of newer versions, read before the engine is locked.
#[derive(Debug)]
pub struct Update {
    version: VersionNumber,
    /// Net difference by resource, sorted by id.
    differences: Vec<ResourceDiff>,
    /// The differences version by version.
    diffs: Vec<VersionDiff>,
}

impl Update {
    /// Reads how the versions `steps`, oldest first, differ from `from` and from each other.
    ///
    /// # Errors
    /// Those of the store; `NoVersion` if one of them is gone: then an engine has to start anew.
    pub fn read(
        store: &Store,
        environment: EnvironmentKey,
        from: VersionNumber,
        steps: &[VersionNumber],
    ) -> Result<Self, StoreError> {
        let mut diffs = Vec::with_capacity(steps.len());
        let mut last: FxHashMap<ResourceKey, ResourceDiff> = FxHashMap::default();
        let mut base = from;
        for &step in steps {
            let mut changes = DiffBuilder::default();
            store.versions().diff(environment, base, step, &mut |difference| {
                changes.add(difference.before.as_ref(), difference.after.as_ref());
                let before = last.remove(&difference.key).map(|earlier| earlier.before);
                let before = before.unwrap_or_else(|| difference.before.clone());
                last.insert(difference.key, ResourceDiff { before, ..difference });
            })?;
            diffs.push(changes.finish(step));
            base = step;
        }
        let mut differences: Vec<ResourceDiff> = last.into_values().collect();
        differences.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        Ok(Update { version: base, differences, diffs })
    }

    pub fn version(&self) -> VersionNumber {
        self.version
    }

    /// Number of changed resources.
    pub fn len(&self) -> usize {
        self.differences.len()
    }

    pub fn is_empty(&self) -> bool {
        self.differences.is_empty()
    }

    /// Each changed resource: its former and its new desired state.
    pub fn changed_resources(
        &self,
    ) -> impl Iterator<Item = (Option<&orrery_model::Resource>, Option<&orrery_model::Resource>)>
    {
        self.differences.iter().map(|one| (one.before.as_ref(), one.after.as_ref()))
    }
}

impl Engine {
    /// Applies newer versions. The cost is proportional to the change.
    pub fn update(&self, update: Update) {
        self.update_with_requests(update, Vec::new());
    }

    /// Applies newer versions together with requests. No run ends in between, so work that both
    /// require is done once.
    pub fn update_with_requests(&self, update: Update, requests: Vec<Event>) -> Vec<RequestId> {
        let ids = self.with_state(|state| {
            state.update(update);
            requests.into_iter().map(|event| state.submit(event)).collect()
        });
        self.wake_workers();
        ids
    }

    /// Current desired version.
    pub fn version(&self) -> VersionNumber {
        self.with_state(|state| state.desired.version)
    }

    /// Fires due timers.
    pub fn tick(&self) {
        self.with_state(EngineState::tick_if_due);
        self.wake_workers();
    }

    /// Time of the next due timer, at which `tick` must be called.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.with_state(|state| state.wake_at)
    }

    /// Returns true if the engine is idle and all results are persisted.
    pub fn is_quiescent(&self) -> bool {
        self.with_state(|state| {
            let persisted = matches!(state.writer, WriterState::Absent | WriterState::Idle);
            state.scheduler.is_idle() && state.writes.is_empty() && persisted
        })
    }

    /// Returns true if a handler runs.
    pub fn is_running(&self) -> bool {
        self.with_state(|state| match state.is_unauthorized {
            // The scheduler still counts tasks that never started.
            true => !state.running_tasks.is_empty(),
            false => state.scheduler.counts().running > 0,
        })
    }

    /// Replaces the handlers for runs that start from now on.
    pub fn replace_handlers(&self, registry: Arc<Registry>) {
        self.with_state(|state| state.registry = registry);
    }

    /// Resolves the sites of agents anew for runs that start from now on.
    pub fn invalidate_sites(&self) {
        self.with_state(EngineState::invalidate_sites);
    }

    /// Takes the resources parked since the last call, with the number of attempts.
    pub fn take_parked(&self) -> Vec<(ResourceId, u32)> {
        self.with_state(|state| std::mem::take(&mut state.parked))
    }

    /// Takes the resources with an effect that became unknown since the last call.
    pub fn take_unknown_effects(&self) -> Vec<ResourceId> {
        self.with_state(|state| std::mem::take(&mut state.became_unknown))
    }

    /// Takes the number of unknowns resolved since the last call.
    pub fn take_resolved(&self) -> usize {
        self.with_state(|state| std::mem::take(&mut state.resolved))
    }
}

impl EngineState {
    fn update(&mut self, update: Update) {
        let Update { version, differences, diffs } = update;
        let now = self.now();
        let mut commands = Vec::new();
        // Positions first: handling the event removes deleted resources from the scheduler.
        let mut former: Vec<(ResourceId, ResourceKey)> = Vec::new();
        for difference in &differences {
            if difference.after.is_none()
                && let Some(index) = self.scheduler.index_of(difference.id.as_str())
            {
                let position = self.entry(index).position;
                self.free_positions.extend(position);
                self.withdraw(index);
                *self.entry_mut(index) = NO_ENTRY;
                former.push((difference.id.clone(), difference.key));
            }
        }
        self.scheduler.handle(Event::NewVersions(diffs), now, &mut commands);
        self.desired.version = version;
        for difference in differences {
            let ResourceDiff { key, id, before, after } = difference;
            let Some(after) = after else { continue };
            let Some(index) = self.scheduler.index_of(id.as_str()) else { continue };
            let former_entry = self.entry(index);
            let own = former_entry.position.filter(|_| before.is_some());
            let position = match own.or_else(|| self.free_positions.pop()) {
                Some(position) => {
                    self.desired.resources[position as usize] = after;
                    self.desired.keys[position as usize] = key;
                    position
                }
                None => {
                    let position = u32::try_from(self.desired.resources.len()).unwrap_or(u32::MAX);
                    self.desired.resources.push(after);
                    self.desired.keys.push(key);
                    position
                }
            };
            // The store may have a state of an earlier life of a new resource: it is overwritten.
            let changed_at = former_entry.changed_at.filter(|_| before.is_some());
            *self.entry_mut(index) = ResourceEntry {
                position: Some(position),
                key: Some(key),
                stored: true,
                changed_at,
            };
        }
        let former = former.iter().map(|(id, key)| (id.as_str(), *key)).collect();
        self.execute_commands(commands, &former, now);
        self.drop_withdrawn();
    }
}
