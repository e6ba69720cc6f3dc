//! An engine that goes on while what is wanted changes: versions that arrive, time that passes without anybody
//! waiting, handlers that are exchanged.

use std::sync::{Arc, PoisonError};

use orrery_handlers::Registry;
use orrery_model::{ResourceId, Timestamp, VersionNumber};
use orrery_scheduler::{Event, VersionDiff};
use orrery_store::{EnvironmentKey, ResourceDifference, ResourceKey, Store, StoreError};
use rustc_hash::FxHashMap;

use crate::asked::Ticket;
use crate::core::{Core, Entry, NO_ENTRY};
use crate::engine::Engine;
use crate::load::Changes;
use crate::writer::WriterState;

/// What newer versions change, read before the engine is disturbed.
#[derive(Debug)]
pub struct Update {
    version: VersionNumber,
    /// What is wanted in the end, by resource, in the order of ids.
    differences: Vec<ResourceDifference>,
    /// The way there, version by version.
    diffs: Vec<VersionDiff>,
}

impl Update {
    /// Reads how the versions `steps`, oldest first, differ from `from` and from each other.
    ///
    /// # Errors
    /// Those of the store; `NoVersion` if one of them is gone: then an engine has to start anew.
    pub fn read(
        store: &dyn Store,
        environment: EnvironmentKey,
        from: VersionNumber,
        steps: &[VersionNumber],
    ) -> Result<Self, StoreError> {
        let mut diffs = Vec::with_capacity(steps.len());
        let mut last: FxHashMap<ResourceKey, ResourceDifference> = FxHashMap::default();
        let mut base = from;
        for &step in steps {
            let mut changes = Changes::default();
            store.diff_versions(environment, base, step, &mut |difference| {
                changes.add(difference.before.as_ref(), difference.after.as_ref());
                let before = last.remove(&difference.key).map(|earlier| earlier.before);
                let before = before.unwrap_or_else(|| difference.before.clone());
                last.insert(difference.key, ResourceDifference { before, ..difference });
            })?;
            diffs.push(changes.finish(step));
            base = step;
        }
        let mut differences: Vec<ResourceDifference> = last.into_values().collect();
        differences.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        Ok(Update { version: base, differences, diffs })
    }

    pub fn version(&self) -> VersionNumber {
        self.version
    }

    /// How many resources are not as they were.
    pub fn len(&self) -> usize {
        self.differences.len()
    }

    pub fn is_empty(&self) -> bool {
        self.differences.is_empty()
    }

    /// Each resource that is not as it was: what was wanted of it before, and what is wanted now.
    pub fn declarations(
        &self,
    ) -> impl Iterator<Item = (Option<&orrery_model::Resource>, Option<&orrery_model::Resource>)>
    {
        self.differences.iter().map(|one| (one.before.as_ref(), one.after.as_ref()))
    }
}

impl Engine {
    /// Takes newer versions in. The cost follows the change.
    pub fn update(&self, update: Update) {
        self.update_and(update, Vec::new());
    }

    /// The same, together with what was asked for along with these versions: no handler ends in between, so that whatever is due
    /// for both reasons is run once.
    pub fn update_and(&self, update: Update, asked: Vec<Event>) -> Vec<Ticket> {
        let tickets = self.with_core(|core| {
            core.update(update);
            asked.into_iter().map(|event| core.ask(event)).collect()
        });
        self.set_to_work();
        tickets
    }

    /// The version that is wanted at present.
    pub fn version(&self) -> VersionNumber {
        self.with_core(|core| core.desired.version)
    }

    /// Lets due timers fire.
    pub fn tick(&self) {
        self.with_core(Core::tick_if_due);
        self.set_to_work();
    }

    /// When something is due next; `tick` is wanted then.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.with_core(|core| core.wake_at)
    }

    /// Whether all is done that can be, and kept.
    pub fn is_at_rest(&self) -> bool {
        self.with_core(|core| {
            let kept = matches!(core.writer, WriterState::Absent | WriterState::Waits);
            core.scheduler.is_idle() && core.writes.is_empty() && kept
        })
    }

    /// Whether a handler runs.
    pub fn is_running(&self) -> bool {
        self.with_core(|core| match core.is_unauthorized {
            // The scheduler still counts what was never begun.
            true => !core.underway.is_empty(),
            false => core.scheduler.counts().running > 0,
        })
    }

    /// Jobs that begin from now on use these handlers.
    pub fn exchange_handlers(&self, registry: Arc<Registry>) {
        let mut handlers =
            self.shared().workshop.registry.write().unwrap_or_else(PoisonError::into_inner);
        *handlers = registry;
    }

    /// Jobs that begin from now on ask anew where their agents are.
    pub fn forget_places(&self) {
        self.with_core(Core::forget_places);
    }

    /// Resources that failed as often as the settings allow since this was last asked, and how often that was.
    pub fn take_parked(&self) -> Vec<(ResourceId, u32)> {
        self.with_core(|core| std::mem::take(&mut core.parked))
    }

    /// Resources of whose effect nobody knows whether it happened, since this was last asked.
    pub fn take_unknown_effects(&self) -> Vec<ResourceId> {
        self.with_core(|core| std::mem::take(&mut core.became_unknown))
    }

    /// How many unknowns results have made known since this was last asked.
    pub fn take_resolved(&self) -> usize {
        self.with_core(|core| std::mem::take(&mut core.resolved))
    }
}

impl Core {
    fn update(&mut self, update: Update) {
        let Update { version, differences, diffs } = update;
        let now = self.now();
        let mut commands = Vec::new();
        // Positions first: handling the event removes who is gone from the scheduler.
        let mut former: Vec<(ResourceId, ResourceKey)> = Vec::new();
        for difference in &differences {
            if difference.after.is_none()
                && let Some(index) = self.scheduler.index_of(difference.id.as_str())
            {
                let position = self.entry(index).position;
                self.free.extend(position);
                self.withdraw(index);
                *self.entry_mut(index) = NO_ENTRY;
                former.push((difference.id.clone(), difference.key));
            }
        }
        self.scheduler.handle(Event::NewVersions(diffs), now, &mut commands);
        self.desired.version = version;
        for difference in differences {
            let ResourceDifference { key, id, before, after } = difference;
            let Some(after) = after else { continue };
            let Some(index) = self.scheduler.index_of(id.as_str()) else { continue };
            let known = self.entry(index);
            let own = known.position.filter(|_| before.is_some());
            let position = match own.or_else(|| self.free.pop()) {
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
            // The store may have a state of an earlier life of a resource that is new: it is written over.
            let changed_at = known.changed_at.filter(|_| before.is_some());
            *self.entry_mut(index) =
                Entry { position: Some(position), key: Some(key), stored: true, changed_at };
        }
        let former = former.iter().map(|(id, key)| (id.as_str(), *key)).collect();
        self.carry_out(commands, &former, now);
        self.look_for_withdrawn();
    }
}
