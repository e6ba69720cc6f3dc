//! Schedule of compiles, per environment.

use std::collections::BTreeMap;

use orrery_model::Timestamp;
use orrery_scheduler::Cron;
use orrery_store::EnvironmentKey;

/// Due times of scheduled compiles. Missed times are not caught up.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    entries: BTreeMap<EnvironmentKey, Entry>,
}

#[derive(Debug)]
struct Entry {
    cron: Cron,
    next: Option<Timestamp>,
}

impl Schedule {
    /// Replaces the schedules. Unchanged ones keep their next time; changed ones start from now.
    pub(crate) fn update(&mut self, wanted: BTreeMap<EnvironmentKey, Cron>, now: Timestamp) {
        self.entries.retain(|key, entry| wanted.get(key) == Some(&entry.cron));
        for (key, cron) in wanted {
            self.entries.entry(key).or_insert_with(|| {
                let next = cron.next_after(now);
                Entry { cron, next }
            });
        }
    }

    /// Returns due environments with their due times, and advances them.
    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<(EnvironmentKey, Timestamp)> {
        let mut due = Vec::new();
        for (key, entry) in &mut self.entries {
            if let Some(at) = entry.next.filter(|at| *at <= now) {
                due.push((*key, at));
                entry.next = entry.cron.next_after(now);
            }
        }
        due
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.entries.values().filter_map(|entry| entry.next).min()
    }
}

#[cfg(test)]
mod tests {
    use orrery_store::Store;

    use super::*;

    const MINUTE: i64 = 60_000_000;

    fn keys() -> [EnvironmentKey; 2] {
        let store = Store::in_memory().unwrap();
        ["a", "b"].map(|name| store.environments().create("p", name).unwrap().key)
    }

    fn at(minutes: i64) -> Timestamp {
        Timestamp(minutes * MINUTE)
    }

    #[test]
    fn times_are_kept_replaced_and_cancelled() {
        let [one, other] = keys();
        let cron = |text: &str| text.parse::<Cron>().unwrap();
        let mut schedule = Schedule::default();
        schedule.update([(one, cron("*/10 * * * *")), (other, cron("5 * * * *"))].into(), at(1));
        assert_eq!(schedule.next(), Some(at(5)));
        assert!(schedule.due(Timestamp(5 * MINUTE - 1)).is_empty(), "never early");
        assert_eq!(schedule.due(at(5)), [(other, at(5))]);
        assert!(schedule.due(at(6)).is_empty(), "once only");
        // An unchanged schedule stays, a new one starts from now, a removed one is not due.
        schedule.update([(one, cron("*/10 * * * *"))].into(), at(9));
        assert_eq!(schedule.next(), Some(at(10)));
        schedule.update([(one, cron("30 * * * *"))].into(), at(9));
        assert!(schedule.due(at(29)).is_empty());
        assert_eq!(schedule.due(at(30)), [(one, at(30))]);
        schedule.update(BTreeMap::new(), at(31));
        assert_eq!((schedule.due(at(500)).len(), schedule.next()), (0, None));
    }

    #[test]
    fn missed_times_run_once() {
        let [one, _] = keys();
        let mut schedule = Schedule::default();
        schedule.update([(one, "* * * * *".parse().unwrap())].into(), at(1));
        assert_eq!(schedule.due(at(100)), [(one, at(2))]);
        assert_eq!(schedule.next(), Some(at(101)));
    }
}
