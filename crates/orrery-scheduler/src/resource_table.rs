//! Table of the managed resources: one packed record each, found by id or slot, listed by agent and
//! set.

use hashbrown::HashTable;
use orrery_model::{
    AttributeHash, Blocked, Compliance, LastRunStatus, OutcomeStatus, ResourceFlags, ResourceId,
    ResourceState, SetName, Status, Timestamp,
};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;
use std::sync::Arc;

use crate::command::ChangedFields;
use crate::edges::NONE;
use crate::timers::NEVER;

/// Optional timestamp in eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaybeTime(Timestamp);

impl From<Option<Timestamp>> for MaybeTime {
    fn from(time: Option<Timestamp>) -> Self {
        MaybeTime(time.unwrap_or(NEVER))
    }
}

impl MaybeTime {
    pub(crate) fn get(self) -> Option<Timestamp> {
        (self.0 != NEVER).then_some(self.0)
    }
}

/// State of one resource except its id and edges.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) intent: AttributeHash,
    pub(crate) last_deployed: Option<AttributeHash>,
    pub(crate) flags: ResourceFlags,
    pub(crate) last_run: LastRunStatus,
    pub(crate) last_run_compliant: Option<bool>,
    pub(crate) last_outcome: Option<OutcomeStatus>,
    pub(crate) blocked: Blocked,
    /// True if undefined, or if a requirement is undeployable. `blocked` follows it after each
    /// version.
    pub(crate) undeployable: bool,
    pub(crate) parked: bool,
    /// True if a deploy of dirty resources would run it.
    pub(crate) dirty: bool,
    /// True while its handler runs.
    pub(crate) running: bool,
    /// True if that handler runs the current intent.
    pub(crate) running_latest: bool,
    /// True if managed, or added by the current fold; false in a free slot.
    pub(crate) present: bool,
    /// Fields that changed during this event.
    pub(crate) changed: ChangedFields,
    pub(crate) last_run_at: MaybeTime,
    pub(crate) last_success: MaybeTime,
    pub(crate) last_produced_events: MaybeTime,
    /// Time of its timer; `NEVER` without.
    pub(crate) due: Timestamp,
    pub(crate) attempts: u32,
    pub(crate) agent: u32,
    pub(crate) set: u32,
    /// Its waiting or ready deploy task.
    pub(crate) task: u32,
    /// Its index in the list of unsettled resources.
    pub(crate) unsettled_at: u32,
    /// Number of direct requirements that are undeployable.
    pub(crate) undeployable_requirements: u32,
    /// Number of direct requirements that are known to be bad.
    pub(crate) bad_requirements: u32,
    /// Number of earlier uses of the slot, to detect stale references.
    pub(crate) generation: u32,
    links: [Links; 2],
}

/// Neighbours in an intrusive list.
#[derive(Clone, Copy, Debug)]
struct Links {
    previous: u32,
    next: u32,
}

const UNLINKED: Links = Links { previous: NONE, next: NONE };

/// Lists of which every managed resource is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Agent = 0,
    Set = 1,
}

impl Record {
    fn new(generation: u32) -> Self {
        Record {
            intent: AttributeHash([0; 16]),
            last_deployed: None,
            flags: ResourceFlags::default(),
            last_run: LastRunStatus::New,
            last_run_compliant: None,
            last_outcome: None,
            blocked: Blocked::NotBlocked,
            undeployable: false,
            parked: false,
            dirty: false,
            running: false,
            running_latest: false,
            present: false,
            changed: ChangedFields::default(),
            last_run_at: None.into(),
            last_success: None.into(),
            last_produced_events: None.into(),
            due: NEVER,
            attempts: 0,
            agent: NONE,
            set: NONE,
            task: NONE,
            unsettled_at: NONE,
            undeployable_requirements: 0,
            bad_requirements: 0,
            generation,
            links: [UNLINKED; 2],
        }
    }

    /// True if waiting, ready or running the latest intent: dependents wait for it.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.task != NONE || self.running_latest
    }

    pub(crate) fn compliance(&self) -> Compliance {
        if self.flags.undefined {
            Compliance::Undefined
        } else if self.last_deployed != Some(self.intent) {
            Compliance::HasUpdate
        } else if self.last_run_compliant == Some(true) {
            Compliance::Compliant
        } else {
            Compliance::NonCompliant
        }
    }

    /// True if its last run found or left it non-compliant.
    pub(crate) fn is_known_bad(&self) -> bool {
        self.last_run_compliant == Some(false)
    }

    /// True if a deploy has work to do. A completed report needs none, even if it found a
    /// difference.
    pub(crate) fn needs_deploy(&self) -> bool {
        match self.compliance() {
            Compliance::HasUpdate => true,
            Compliance::NonCompliant => self.last_run != LastRunStatus::Successful,
            Compliance::Compliant | Compliance::Undefined => false,
        }
    }

    /// Status as passed to the handlers of dependents.
    pub(crate) fn status_for_dependents(&self) -> Status {
        match (self.compliance(), self.last_run) {
            (Compliance::Undefined, _) => Status::Undefined,
            _ if self.blocked == Blocked::Blocked => Status::SkippedForUndefined,
            (Compliance::HasUpdate, _) => Status::Available,
            (_, LastRunStatus::Skipped) => Status::Skipped,
            (_, LastRunStatus::Failed) => Status::Failed,
            (Compliance::NonCompliant, _) => Status::NonCompliant,
            (Compliance::Compliant, _) => Status::Deployed,
        }
    }

    pub(crate) fn state(&self) -> ResourceState {
        ResourceState {
            intent: Some(self.intent),
            undefined: self.flags.undefined,
            blocked: self.blocked,
            deploying: self.running,
            last_run: self.last_run,
            last_run_compliant: self.last_run_compliant,
            last_outcome: self.last_outcome,
            last_run_at: self.last_run_at.get(),
            last_deployed: self.last_deployed,
            last_success: self.last_success.get(),
            last_produced_events: self.last_produced_events.get(),
            attempts: self.attempts,
            parked: self.parked,
        }
    }

    /// Restores the recorded outcome of earlier runs. Requires that the resource has no dependents
    /// yet: they count bad requirements.
    pub(crate) fn restore(&mut self, state: &ResourceState) {
        self.last_run = state.last_run;
        self.last_run_compliant = state.last_run_compliant;
        self.last_outcome = state.last_outcome;
        self.last_run_at = state.last_run_at.into();
        self.last_deployed = state.last_deployed;
        self.last_success = state.last_success.into();
        self.last_produced_events = state.last_produced_events.into();
        self.attempts = state.attempts;
        self.parked = state.parked;
    }

    /// Drops the recorded outcomes, as for a new resource. Requires that the resource is not known
    /// to be bad.
    pub(crate) fn reset(&mut self) {
        let kept = Record {
            agent: self.agent,
            set: self.set,
            links: self.links,
            present: self.present,
            changed: self.changed,
            unsettled_at: self.unsettled_at,
            undeployable: self.undeployable,
            undeployable_requirements: self.undeployable_requirements,
            bad_requirements: self.bad_requirements,
            ..Record::new(self.generation.wrapping_add(1))
        };
        *self = kept;
    }
}

/// All resources, dense.
#[derive(Debug, Default)]
pub(crate) struct ResourceTable {
    records: Vec<Record>,
    /// `None` in a free slot.
    ids: Vec<Option<ResourceId>>,
    by_id: HashTable<u32>,
    free: Vec<u32>,
    sets: FxHashMap<SetName, u32>,
    /// First resource of each set.
    set_heads: Vec<u32>,
}

impl std::ops::Index<u32> for ResourceTable {
    type Output = Record;

    fn index(&self, slot: u32) -> &Record {
        &self.records[slot as usize]
    }
}

impl std::ops::IndexMut<u32> for ResourceTable {
    fn index_mut(&mut self, slot: u32) -> &mut Record {
        &mut self.records[slot as usize]
    }
}

fn hash_text(text: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Hash of a resource id that is stable over restarts (FNV-1a).
pub(crate) fn stable_hash(id: &ResourceId) -> u64 {
    id.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl ResourceTable {
    /// Number of slots, free ones included.
    pub(crate) fn slots(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn count(&self) -> usize {
        self.records.len() - self.free.len()
    }

    pub(crate) fn reserve(&mut self, more: usize) {
        let fresh = more.saturating_sub(self.free.len());
        self.records.reserve(fresh);
        self.ids.reserve(fresh);
        let ids = &self.ids;
        self.by_id.reserve(more, |slot| hash_of(ids, *slot));
    }

    pub(crate) fn find(&self, id: &str) -> Option<u32> {
        let same = |slot: &u32| {
            self.ids[*slot as usize].as_ref().is_some_and(|known| known.as_str() == id)
        };
        self.by_id.find(hash_text(id), same).copied()
    }

    /// Returns the id in a slot, if it is used.
    pub(crate) fn id(&self, slot: u32) -> Option<&ResourceId> {
        self.ids.get(slot as usize)?.as_ref()
    }

    /// Returns the slot of an id, allocated if unknown, and true if it is new.
    pub(crate) fn intern(&mut self, id: &ResourceId) -> (u32, bool) {
        if let Some(slot) = self.find(id.as_str()) {
            return (slot, false);
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                let generation = self.records[slot as usize].generation.wrapping_add(1);
                self.records[slot as usize] = Record::new(generation);
                self.ids[slot as usize] = Some(id.clone());
                slot
            }
            None => {
                let slot = u32::try_from(self.records.len())
                    .expect("invariant: fewer resources than u32 holds");
                self.records.push(Record::new(0));
                self.ids.push(Some(id.clone()));
                slot
            }
        };
        let ids = &self.ids;
        self.by_id.insert_unique(hash_text(id.as_str()), slot, |slot| hash_of(ids, *slot));
        (slot, true)
    }

    /// Frees a slot. Requires that it is in no list.
    pub(crate) fn release(&mut self, slot: u32) -> Option<ResourceId> {
        let id = self.ids[slot as usize].take()?;
        if let Ok(entry) = self.by_id.find_entry(hash_text(id.as_str()), |known| *known == slot) {
            entry.remove();
        }
        self.records[slot as usize].present = false;
        self.free.push(slot);
        Some(id)
    }

    pub(crate) fn intern_set(&mut self, name: &SetName) -> u32 {
        if let Some(set) = self.sets.get(name) {
            return *set;
        }
        let set =
            u32::try_from(self.set_heads.len()).expect("invariant: fewer sets than u32 holds");
        self.sets.insert(name.clone(), set);
        self.set_heads.push(NONE);
        set
    }

    pub(crate) fn set_head(&self, set: u32) -> u32 {
        self.set_heads[set as usize]
    }

    /// The next resource of the same agent or set; `NONE` at the end.
    pub(crate) fn next_in(&self, list: List, slot: u32) -> u32 {
        self.records[slot as usize].links[list as usize].next
    }

    /// Adds a resource at the front of its set.
    pub(crate) fn join_set(&mut self, slot: u32, set: u32) {
        self.records[slot as usize].set = set;
        let head = self.set_heads[set as usize];
        self.set_heads[set as usize] = self.join(List::Set, slot, head);
    }

    pub(crate) fn leave_set(&mut self, slot: u32) {
        let set = std::mem::replace(&mut self.records[slot as usize].set, NONE);
        if set != NONE {
            let head = self.set_heads[set as usize];
            self.set_heads[set as usize] = self.leave(List::Set, slot, head);
        }
    }

    /// Inserts a slot at the front of a list. Returns the new head.
    pub(crate) fn join(&mut self, list: List, slot: u32, head: u32) -> u32 {
        self.records[slot as usize].links[list as usize] = Links { previous: NONE, next: head };
        if head != NONE {
            self.records[head as usize].links[list as usize].previous = slot;
        }
        slot
    }

    /// Removes a slot from a list. Returns the new head.
    pub(crate) fn leave(&mut self, list: List, slot: u32, head: u32) -> u32 {
        let Links { previous, next } =
            std::mem::replace(&mut self.records[slot as usize].links[list as usize], UNLINKED);
        if next != NONE {
            self.records[next as usize].links[list as usize].previous = previous;
        }
        if previous == NONE {
            next
        } else {
            self.records[previous as usize].links[list as usize].next = next;
            head
        }
    }

    /// Returns all managed resources, by slot.
    pub(crate) fn present(&self) -> impl Iterator<Item = u32> + '_ {
        let slots = 0..u32::try_from(self.records.len()).unwrap_or(NONE);
        slots.filter(|slot| self.records[*slot as usize].present)
    }
}

fn hash_of(ids: &[Option<ResourceId>], slot: u32) -> u64 {
    ids[slot as usize].as_ref().map_or(0, |id| hash_text(id.as_str()))
}

/// Numbers of agents by name.
#[derive(Debug, Default)]
pub(crate) struct AgentNames(FxHashMap<Arc<str>, u32>);

impl AgentNames {
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }

    pub(crate) fn insert(&mut self, name: Arc<str>, number: u32) {
        self.0.insert(name, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_stays_small() {
        // A million records are in memory; see bench/scheduler.
        assert!(size_of::<Record>() <= 144, "{}", size_of::<Record>());
    }

    #[test]
    fn slots_are_used_again_and_found_by_id() {
        let mut table = ResourceTable::default();
        let id = |n: u32| ResourceId::new("a::B", "agent", "name", &n.to_string()).unwrap();
        for n in 0..100 {
            assert_eq!(table.intern(&id(n)), (n, true));
        }
        assert_eq!(table.intern(&id(7)), (7, false));
        assert_eq!(table.release(7), Some(id(7)));
        assert_eq!(table.find(id(7).as_str()), None);
        assert_eq!(table.intern(&id(100)), (7, true));
        assert_eq!(table.find(id(100).as_str()), Some(7));
        assert_eq!((table.count(), table.slots(), table[7].generation), (100, 100, 1));
    }
}
