//! Settings: intervals, retries, deadlines, concurrency limits.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use orrery_model::Duration;

use crate::cron::{Cron, InvalidCron};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Interval between attempts at resources that are not compliant.
    pub deploy_interval: Interval,
    /// Interval between verifications of every resource.
    pub repair_interval: Interval,
    pub retry: Retry,
    /// Time limit of one task before it is cancelled; `None`: no limit.
    pub task_time_max: Option<Duration>,
    /// Grace period for a cancelled task to end before it is abandoned.
    pub cancel_time_max: Duration,
    /// Maximum number of running tasks over all agents.
    pub running_max: Option<u32>,
    /// Groups of agents with a common concurrency limit. An agent belongs to the first group that
    /// names it.
    pub groups: Vec<AgentGroup>,
    /// Seed of the jitter: the same seed gives the same delays.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            deploy_interval: Interval::Every(Duration::from_secs(600)),
            repair_interval: Interval::Every(Duration::from_secs(86_400)),
            retry: Retry::default(),
            task_time_max: Some(Duration::from_secs(3600)),
            cancel_time_max: Duration::from_secs(15),
            running_max: None,
            groups: Vec::new(),
            seed: 0,
        }
    }
}

/// Agents that together run at most `running_max` tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentGroup {
    pub name: Arc<str>,
    pub agents: Vec<Arc<str>>,
    pub running_max: u32,
}

/// Recurrence of deploys or repairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interval {
    Off,
    /// A fixed time after each resource's last run.
    Every(Duration),
    /// Fixed times, for all resources at once.
    Cron(Cron),
}

/// `0`, a number of seconds, or a cron expression.
impl FromStr for Interval {
    type Err = InvalidCron;

    fn from_str(text: &str) -> Result<Self, InvalidCron> {
        match text.trim().parse::<u32>() {
            Ok(0) => Ok(Interval::Off),
            Ok(seconds) => Ok(Interval::Every(Duration::from_secs(seconds.into()))),
            Err(_) => Ok(Interval::Cron(text.parse()?)),
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interval::Off => f.write_str("0"),
            Interval::Every(duration) => write!(f, "{}", duration.as_secs()),
            Interval::Cron(cron) => cron.fmt(f),
        }
    }
}

/// Retry policy for failed resources. A retry is never later than the deploy interval. The delay
/// applies only if that interval is a duration; attempts are always counted, and `attempts_max`
/// always parks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Delay after the first failure, if shorter than the deploy interval.
    pub delay: Option<Duration>,
    /// Factor by which each further failure multiplies the delay, up to the deploy interval.
    pub factor: u32,
    /// Maximum share, in percent, by which jitter shortens each delay. It differs for each resource
    /// and attempt.
    pub jitter_percent: u8,
    /// Number of consecutive failed runs after which a resource is parked; `None`: never.
    pub attempts_max: Option<u32>,
}

impl Default for Retry {
    fn default() -> Self {
        // Resources that failed together, because a service is down, must not all retry at the same
        // moment.
        Retry { jitter_percent: 10, ..Retry::constant() }
    }
}

impl Retry {
    /// A constant delay of exactly the deploy interval, without a limit on attempts.
    pub fn constant() -> Self {
        Retry { delay: None, factor: 2, jitter_percent: 0, attempts_max: None }
    }

    /// Returns the delay after this number of consecutive failed runs.
    ///
    /// `resource` is a number that stays the same for a resource over restarts.
    pub fn delay_after(
        &self,
        attempts: u32,
        interval: Duration,
        seed: u64,
        resource: u64,
    ) -> Duration {
        let first = self.delay.unwrap_or(interval);
        let grown = self
            .factor
            .max(1)
            .checked_pow(attempts.saturating_sub(1))
            .and_then(|factor| first.checked_mul(factor))
            .map_or(interval, |delay| delay.min(interval));
        let micros = u64::try_from(grown.as_micros()).unwrap_or(u64::MAX);
        let spread = u128::from(micros) * u128::from(self.jitter_percent.min(100)) / 100;
        let random = mix(seed ^ mix(resource ^ mix(u64::from(attempts))));
        // The upper half of the product is uniform between zero and the spread.
        let cut = (spread * u128::from(random)) >> 64;
        Duration::from_micros(micros - u64::try_from(cut).unwrap_or(0))
    }
}

/// Spreads a number over all 64 bits: the finalizer of the `SplitMix64` generator.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn intervals_are_read_from_texts() {
        assert_eq!("0".parse(), Ok(Interval::Off));
        assert_eq!("600".parse(), Ok(Interval::Every(Duration::from_secs(600))));
        assert!(matches!("0 3 * * *".parse(), Ok(Interval::Cron(_))));
        assert!("often".parse::<Interval>().is_err());
        assert!("-5".parse::<Interval>().is_err());
        for text in ["0", "600", "0 3 * * *"] {
            assert_eq!(text.parse::<Interval>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn delays_grow_up_to_the_interval_and_never_beyond() {
        let interval = Duration::from_secs(1000);
        let seconds =
            |retry: &Retry, attempts| retry.delay_after(attempts, interval, 0, 0).as_secs();
        let growing = Retry { delay: Some(Duration::from_secs(100)), ..Retry::constant() };
        let attempts = [0, 1, 2, 3, 4, 5, 500];
        assert_eq!(
            attempts.map(|attempts| seconds(&growing, attempts)),
            [100, 100, 200, 400, 800, 1000, 1000]
        );
        for attempts in 0..100 {
            let usual = Retry::default().delay_after(attempts, interval, 0, 7);
            assert!(usual <= interval && usual >= interval * 9 / 10, "{attempts}: {usual:?}");
        }
    }

    #[test]
    fn jitter_shortens_repeatably_and_differently() {
        let retry = Retry { jitter_percent: 50, ..Retry::default() };
        let delays: Vec<_> =
            (0..100).map(|resource| retry.delay_after(1, MINUTE, 7, resource)).collect();
        assert!(delays.iter().all(|delay| (MINUTE / 2..=MINUTE).contains(delay)));
        let mut distinct = delays.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 90);
        assert!(
            distinct[99 - 90] < MINUTE * 6 / 10 && distinct[distinct.len() - 10] > MINUTE * 9 / 10
        );
        assert_eq!(delays[3], retry.delay_after(1, MINUTE, 7, 3));
        assert_ne!(delays[3], retry.delay_after(2, MINUTE, 7, 3));
        assert_ne!(delays[3], retry.delay_after(1, MINUTE, 8, 3));
    }

    #[test]
    fn the_constant_policy_is_the_deploy_interval() {
        assert_eq!(Retry::constant().delay_after(40, MINUTE, 1, 2), MINUTE);
    }
}
