//! Signs of life of the roles of this process and of the store, for who asks whether it can work.

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

/// How often it is tried whether the store can be written to, at most.
const PROBED_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Probed {
    begun: Option<Instant>,
    is_running: bool,
    trouble: Option<&'static str>,
}

/// Whether the store takes writes: a disk that is full still answers questions. It is tried beside requests, because a write waits for those
/// of others, which may take long and are no trouble.
#[derive(Debug, Default)]
pub(crate) struct WriteProbe(Mutex<Probed>);

impl WriteProbe {
    /// Whether it is time for another try; the caller makes it and ends it.
    pub(crate) fn begin(&self) -> bool {
        let mut probed = self.lock();
        let is_due = probed.begun.is_none_or(|begun| begun.elapsed() >= PROBED_EVERY);
        if !is_due || probed.is_running {
            return false;
        }
        (probed.begun, probed.is_running) = (Some(Instant::now()), true);
        true
    }

    pub(crate) fn end(&self, trouble: Option<&'static str>) {
        let mut probed = self.lock();
        (probed.trouble, probed.is_running) = (trouble, false);
    }

    /// What the last try came to.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        self.lock().trouble
    }

    fn lock(&self) -> MutexGuard<'_, Probed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
