//! Runs that take long: they are noted in the store, so that people see that something goes on.

use std::time::Duration;

use orrery_model::ResourceId;

use crate::core::{Core, Entry, Underway};
use crate::writer::{Record, Write};

/// Runs that take longer are shown as deploying to whoever reads the store.
pub(crate) const LONG: Duration = Duration::from_secs(1);

impl Core {
    /// Notes the runs that have taken long by now, so that people can see them, and says when to look again. Short runs are not
    /// noted: that would cost more than many of them do.
    pub(crate) fn note_long_runs(&mut self) -> Option<Duration> {
        let now = self.now();
        let mut next: Option<Duration> = None;
        let mut long = Vec::new();
        let mut running: Vec<&mut Underway> = self.underway.values_mut().collect();
        running.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        for underway in running {
            let Some(started) = underway.long else { continue };
            let left = LONG.saturating_sub(now.since(underway.started));
            if left.is_zero() {
                underway.long = None;
                underway.noted = true;
                long.push(started);
            } else {
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        long.into_iter().for_each(|started| self.write(Write::Began(started)));
        next
    }

    /// Whether a run is under way that may take long.
    pub(crate) fn may_take_long(&self) -> bool {
        !self.discard && self.underway.values().any(|underway| underway.long.is_some())
    }

    /// Takes the note of a long run back that was given up.
    pub(crate) fn has_ended(&mut self, id: &ResourceId) {
        let Some(index) = self.scheduler.index_of(id.as_str()) else { return };
        let Entry { key: Some(resource), changed_at, .. } = self.entry(index) else { return };
        let Some(mut state) = self.scheduler.state(index) else { return };
        state.last_produced_events = changed_at;
        state.deploying = false;
        let (action, facts) = (None, Vec::new());
        let effect = None;
        self.write(Write::Result(Record { resource, state: Some(state), action, facts, effect }));
    }
}
