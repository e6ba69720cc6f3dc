//! Heartbeats of the roles of this process and a write probe of the store, read by `/health`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;

/// Age at which a heartbeat counts as stale. Longer than the timeout of an unresponsive database.
const SILENCE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Heartbeat {
    at: Instant,
    error: Option<&'static str>,
}

/// Latest heartbeat of each role.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats(Mutex<BTreeMap<&'static str, Heartbeat>>);

impl Heartbeats {
    /// Records a heartbeat, with the error that the role reports, if any.
    pub(crate) fn record(&self, role: &'static str, error: Option<&'static str>) {
        self.lock().insert(role, Heartbeat { at: monotonic(), error });
    }

    /// Removes a role that stopped in an orderly way.
    pub(crate) fn remove(&self, role: &str) {
        self.lock().remove(role);
    }

    /// Returns all known roles, each with its error, if any.
    pub(crate) fn statuses(&self) -> Vec<(&'static str, Option<String>)> {
        let role_error = |heartbeat: &Heartbeat| match (heartbeat.at.elapsed(), heartbeat.error) {
            (silent, _) if silent > SILENCE_MAX => {
                Some(format!("no heartbeat for {} seconds", silent.as_secs()))
            }
            (_, error) => error.map(str::to_owned),
        };
        self.lock().iter().map(|(role, heartbeat)| (*role, role_error(heartbeat))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Heartbeat>> {
        self.0.lock().ignore_poison()
    }
}

/// Minimum interval between write probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct ProbeState {
    begun: Option<Instant>,
    is_running: bool,
    error: Option<&'static str>,
}

/// Result of the latest write probe. A full disk still answers reads. The probe runs beside
/// requests, because a write may have to wait for other long writes, which is not an error.
#[derive(Debug, Default)]
pub(crate) struct WriteProbe(Mutex<ProbeState>);

impl WriteProbe {
    /// Starts a probe if one is due. A caller that gets `true` must run it and call `end`.
    pub(crate) fn begin(&self) -> bool {
        let mut probed = self.lock();
        let is_due = probed.begun.is_none_or(|begun| begun.elapsed() >= PROBE_INTERVAL);
        if !is_due || probed.is_running {
            return false;
        }
        (probed.begun, probed.is_running) = (Some(monotonic()), true);
        true
    }

    pub(crate) fn end(&self, error: Option<&'static str>) {
        let mut probed = self.lock();
        (probed.error, probed.is_running) = (error, false);
    }

    /// Error of the latest probe.
    pub(crate) fn error(&self) -> Option<&'static str> {
        self.lock().error
    }

    fn lock(&self) -> MutexGuard<'_, ProbeState> {
        self.0.lock().ignore_poison()
    }
}
