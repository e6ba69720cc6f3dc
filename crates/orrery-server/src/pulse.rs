//! Signs of life of the roles of this process, for who asks whether it can work.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A role that was not heard of for so long is stuck. Longer than a database takes that does not answer.
const SILENCE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Beat {
    at: Instant,
    trouble: Option<&'static str>,
}

/// When each role was last heard of.
#[derive(Debug, Default)]
pub(crate) struct Pulse(Mutex<BTreeMap<&'static str, Beat>>);

impl Pulse {
    /// A role goes on, with or without trouble.
    pub(crate) fn beat(&self, role: &'static str, trouble: Option<&'static str>) {
        self.lock().insert(role, Beat { at: Instant::now(), trouble });
    }

    /// A role ends as it should.
    pub(crate) fn end(&self, role: &str) {
        self.lock().remove(role);
    }

    /// All roles that were heard of, and what is wrong with each.
    pub(crate) fn read(&self) -> Vec<(&'static str, Option<String>)> {
        let troubles = |beat: &Beat| match (beat.at.elapsed(), beat.trouble) {
            (silent, _) if silent > SILENCE_MAX => {
                Some(format!("nothing was heard of it for {} seconds", silent.as_secs()))
            }
            (_, trouble) => trouble.map(str::to_owned),
        };
        self.lock().iter().map(|(role, beat)| (*role, troubles(beat))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Beat>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
