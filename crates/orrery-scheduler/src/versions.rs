//! Folds several versions into one net change for each resource.
//!
//! Versions are folded in order. For each resource that any of them names, the net change depends
//! on its presence before and after, and on its absence in between.

use orrery_model::{AttributeHash, ResourceFlags, ResourceId, VersionNumber};
use rustc_hash::FxHashMap;

use crate::edges::NONE;
use crate::event::{Intent, Scope, SetContent, VersionDiff};
use crate::resource_table::List;
use crate::scheduler::Scheduler;

/// Net change of one resource over several versions.
#[derive(Debug)]
pub(crate) struct NetChange {
    pub(crate) slot: u32,
    pub(crate) present: bool,
    /// True if it was deleted and added again: the recorded state does not apply to the new one.
    pub(crate) recreated: bool,
    pub(crate) hash: AttributeHash,
    pub(crate) flags: ResourceFlags,
    pub(crate) requires: Vec<ResourceId>,
    pub(crate) set: u32,
    /// Last version that held it, if it is removed.
    pub(crate) last_version: VersionNumber,
    /// Index, in the fold, of the last version that named it.
    named_in: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Fold {
    pub(crate) changes: Vec<NetChange>,
    /// Indexes into `changes`.
    by_slot: FxHashMap<u32, u32>,
    /// Resources that joined a set within this fold.
    entered: FxHashMap<u32, Vec<u32>>,
}

impl Fold {
    fn get(&self, slot: u32) -> Option<&NetChange> {
        let at = *self.by_slot.get(&slot)?;
        self.changes.get(at as usize)
    }

    fn get_mut(&mut self, slot: u32) -> Option<&mut NetChange> {
        let at = *self.by_slot.get(&slot)?;
        self.changes.get_mut(at as usize)
    }

    fn add(&mut self, folded: NetChange) {
        let at = u32::try_from(self.changes.len()).expect("invariant: fewer slots than u32 holds");
        self.by_slot.insert(folded.slot, at);
        self.changes.push(folded);
    }
}

impl Scheduler {
    /// Folds versions, oldest first. New ids get slots, which are not present until the change is
    /// applied.
    pub(crate) fn fold(&mut self, diffs: Vec<VersionDiff>) -> Fold {
        let mut fold = Fold::default();
        let expected = diffs.iter().flat_map(|diff| &diff.sets).map(|set| match &set.content {
            SetContent::Whole(resources) | SetContent::Changes { resources, .. } => resources.len(),
        });
        let expected = expected.max().unwrap_or(0);
        fold.changes.reserve(expected);
        fold.by_slot.reserve(expected);
        let mut before = self.version.unwrap_or(VersionNumber(0));
        for (number, diff) in (0..).zip(diffs) {
            let version = diff.version;
            self.fold_version(&mut fold, diff, number, before);
            before = version;
        }
        fold
    }

    fn fold_version(
        &mut self,
        fold: &mut Fold,
        diff: VersionDiff,
        number: u32,
        before: VersionNumber,
    ) {
        // Possible departures must be known before any resource joins.
        let mut leaving = Vec::new();
        if diff.scope == Scope::Everything {
            leaving.extend(self.resources.present());
            leaving.extend(fold.changes.iter().map(|change| change.slot));
        }
        for set_diff in &diff.sets {
            match &set_diff.content {
                SetContent::Whole(_) if diff.scope == Scope::Everything => {}
                SetContent::Whole(_) => {
                    let set = self.resources.intern_set(&set_diff.set);
                    self.members(fold, set, &mut leaving);
                }
                SetContent::Changes { removed, .. } => {
                    leaving
                        .extend(removed.iter().filter_map(|id| self.resources.find(id.as_str())));
                }
            }
        }
        for set_diff in diff.sets {
            let set = self.resources.intern_set(&set_diff.set);
            let (SetContent::Whole(resources) | SetContent::Changes { resources, .. }) =
                set_diff.content;
            self.resources.reserve(resources.len().saturating_sub(self.resources.count()));
            for intent in resources {
                self.fold_intent(fold, intent, set, number);
            }
        }
        for slot in leaving {
            self.fold_departure(fold, slot, number, before);
        }
    }

    /// Returns the members of a set at this point of the fold.
    fn members(&self, fold: &Fold, set: u32, members: &mut Vec<u32>) {
        let is_member = |slot: u32| match fold.get(slot) {
            Some(folded) => folded.present && folded.set == set,
            None => true,
        };
        let mut slot = self.resources.set_head(set);
        while slot != NONE {
            if is_member(slot) {
                members.push(slot);
            }
            slot = self.resources.next_in(List::Set, slot);
        }
        let entered = fold.entered.get(&set).into_iter().flatten();
        members.extend(entered.copied().filter(|slot| is_member(*slot)));
    }

    fn fold_intent(&mut self, fold: &mut Fold, intent: Intent, set: u32, number: u32) {
        let (slot, _) = self.resources.intern(&intent.id);
        let Intent { hash, flags, requires, .. } = intent;
        let base_set = self.resources[slot].set;
        let moved = match fold.get_mut(slot) {
            Some(folded) => {
                folded.recreated |= !folded.present;
                let moved = folded.set != set || !folded.present;
                folded.present = true;
                folded.named_in = number;
                (folded.hash, folded.flags, folded.set) = (hash, flags, set);
                folded.requires = requires;
                moved
            }
            None => {
                fold.add(NetChange {
                    slot,
                    present: true,
                    recreated: false,
                    hash,
                    flags,
                    requires,
                    set,
                    last_version: VersionNumber(0),
                    named_in: number,
                });
                true
            }
        };
        if moved && base_set != set {
            fold.entered.entry(set).or_default().push(slot);
        }
    }

    /// Records a departure, unless this version names the resource elsewhere.
    fn fold_departure(&mut self, fold: &mut Fold, slot: u32, number: u32, before: VersionNumber) {
        match fold.get_mut(slot) {
            Some(folded) if folded.named_in == number || !folded.present => {}
            Some(folded) => {
                folded.present = false;
                folded.last_version = before;
            }
            None => {
                let record = &self.resources[slot];
                fold.add(NetChange {
                    slot,
                    present: false,
                    recreated: false,
                    hash: record.intent,
                    flags: record.flags,
                    requires: Vec::new(),
                    set: record.set,
                    last_version: before,
                    named_in: number,
                });
            }
        }
    }
}
