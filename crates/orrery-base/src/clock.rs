//! The clocks of the machine: the one place of the workspace that reads them.
//!
//! Code that must be repeatable gets time handed in. `clippy.toml` bans the clocks of the standard
//! library everywhere else, so a reader of this module's callers sees every place that depends on
//! real time.

use std::time::{Instant, SystemTime};

/// Returns the wall-clock time. As a `Timestamp` of the model: `orrery_handlers::clock::now`.
#[expect(clippy::disallowed_methods, reason = "the owner of the wall clock")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// Returns the wall-clock time as seconds since 1970.
pub fn unix_seconds() -> f64 {
    wall().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Returns the monotonic time, for deadlines and durations within this process.
#[expect(clippy::disallowed_methods, reason = "the owner of the monotonic clock")]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// Returns nanoseconds since boot, including suspend, comparable between processes.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn since_boot_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Returns nanoseconds of a monotonic clock of this process: this system offers no better one.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn since_boot_ns() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let elapsed = START.get_or_init(monotonic).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        let (wall_before, monotonic_before, boot) = (wall(), monotonic(), since_boot_ns());
        assert!(wall_before > SystemTime::UNIX_EPOCH && boot > 0);
        assert!(monotonic() >= monotonic_before && since_boot_ns() >= boot);
    }
}
