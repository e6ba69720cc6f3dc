//! Metrics of environments as time series.

use std::collections::BTreeMap;
use std::time::Duration;

use orrery_model::Timestamp;
use orrery_store::{EnvironmentKey, MetricRecord, Store};

use crate::error::ServerError;

pub const RESOURCE_COUNT: &str = "resource.resource_count";
pub(crate) const AGENT_COUNT: &str = "resource.agent_count";
pub(crate) const COMPILE_TIME: &str = "orchestrator.compile_time";
pub(crate) const COMPILE_WAITING_TIME: &str = "orchestrator.compile_waiting_time";

/// Run time of handlers, by outcome.
pub(crate) const RUN_TIME: &str = "resource.run_time";
/// Number of runs with a change, by outcome.
pub(crate) const RUN_CHANGES: &str = "resource.run_changes";

/// Names of all sampled metrics with averages.
const SAMPLED: [&str; 5] =
    [RESOURCE_COUNT, AGENT_COUNT, COMPILE_TIME, COMPILE_WAITING_TIME, RUN_TIME];

/// Derived from the number of timed compiles.
const COMPILE_RATE: &str = "orchestrator.compile_rate";
/// Derived from the numbers of runs and of runs with a change.
const RUN_RATES: [(&str, &str); 2] =
    [("resource.run_rate", RUN_TIME), ("resource.change_rate", RUN_CHANGES)];

/// Metrics with a value at any time; the others are event counts.
const GAUGES: [&str; 2] = [RESOURCE_COUNT, AGENT_COUNT];

/// Sampling interval of environments with changes.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(60);
/// Longest interval between samples of an environment.
pub(crate) const SAMPLE_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// Validity of a sampled gauge: longer than the longest interval between samples.
const GAUGE_VALIDITY: Duration =
    Duration::from_secs(SAMPLE_INTERVAL_MAX.as_secs() + 2 * SAMPLE_INTERVAL.as_secs());

pub(crate) const HOUR: i64 = 3_600_000_000;

/// Returns the names of all metrics.
pub(crate) fn all_names() -> impl Iterator<Item = &'static str> {
    SAMPLED.into_iter().chain([COMPILE_RATE]).chain(RUN_RATES.map(|(name, _)| name))
}

/// Values per interval, by group.
pub type Values = BTreeMap<String, Vec<Option<f64>>>;

/// Equal intervals of time.
#[derive(Clone, Debug)]
pub struct Spans {
    start: i64,
    length: i64,
    count: usize,
}

impl Spans {
    pub fn new(start: i64, end: i64, count: u32, round: bool) -> Result<Self, ServerError> {
        if end <= start {
            return Err(ServerError::rule("bad-filter", "end must be later than start"));
        }
        if round {
            let start = start.div_euclid(HOUR) * HOUR;
            let hours = (end - start + HOUR - 1) / HOUR;
            let each = (hours + i64::from(count) - 1) / i64::from(count);
            let count = (hours + each - 1) / each;
            let count = usize::try_from(count).unwrap_or(1);
            return Ok(Spans { start, length: each * HOUR, count });
        }
        let length = ((end - start) / i64::from(count)).max(1);
        Ok(Spans { start, length, count: count as usize })
    }

    pub fn start(&self) -> i64 {
        self.start
    }

    pub fn end(&self) -> i64 {
        self.start + self.length * i64::try_from(self.count).unwrap_or(i64::MAX)
    }

    /// End times of the intervals.
    pub fn ends(&self) -> impl Iterator<Item = i64> {
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        (1..=count).map(|index| self.start + self.length * index)
    }

    fn index_of(&self, at: Timestamp) -> Option<usize> {
        let place = usize::try_from((at.0 - self.start).div_euclid(self.length)).ok()?;
        (place < self.count).then_some(place)
    }

    /// Averages per interval: of gauges over their samples, of timers over the timed events.
    fn averages(&self, records: &[MetricRecord]) -> Values {
        let mut sums: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
        for record in records {
            let Some(place) = self.index_of(record.at) else { continue };
            let sums =
                sums.entry(record.category.clone()).or_insert_with(|| vec![(0, 0); self.count]);
            sums[place].0 += record.count;
            sums[place].1 += record.value;
        }
        let average =
            |(count, value): (i64, i64)| (count > 0).then(|| value as f64 / 1000.0 / count as f64);
        sums.into_iter()
            .map(|(category, sums)| (category, sums.into_iter().map(average).collect()))
            .collect()
    }

    /// Resamples gauges to one a minute until `until`. An idle environment is sampled rarely and
    /// keeps its values; a longer gap means that no server was running, and stays visible.
    fn every_minute(&self, records: &[MetricRecord], until: Timestamp) -> Vec<MetricRecord> {
        let minute = i64::try_from(SAMPLE_INTERVAL.as_micros()).unwrap_or(i64::MAX);
        let mut later: BTreeMap<&str, Timestamp> = BTreeMap::new();
        let mut all = Vec::with_capacity(records.len());
        for record in records.iter().rev() {
            let next = later.insert(&record.category, record.at).unwrap_or(until);
            let end = next.min(record.at + GAUGE_VALIDITY).0;
            let mut at = record.at.0;
            loop {
                // All samples of one interval form one record.
                let place = (at - self.start).div_euclid(self.length);
                let rest = (self.start + (place + 1) * self.length).min(end) - at;
                let times = ((rest + minute - 1) / minute).max(1);
                let (count, value) = (record.count * times, record.value * times);
                all.push(MetricRecord { at: Timestamp(at), count, value, ..record.clone() });
                at += times * minute;
                if at >= end {
                    break;
                }
            }
        }
        all
    }

    /// Returns the number of events per hour by category. An interval without a sample has none:
    /// nothing ran.
    fn rates_by_category(&self, records: &[MetricRecord]) -> Values {
        let mut by_category: BTreeMap<&str, Vec<MetricRecord>> = BTreeMap::new();
        for record in records.iter().filter(|record| self.index_of(record.at).is_some()) {
            by_category.entry(&record.category).or_default().push(record.clone());
        }
        let rates = by_category.into_iter().map(|(category, records)| {
            let rates = self.rates(&records).remove("").unwrap_or_default();
            (category.to_owned(), rates)
        });
        rates.collect()
    }

    /// Returns the number of timed events per hour.
    fn rates(&self, records: &[MetricRecord]) -> Values {
        let mut counts = vec![0_i64; self.count];
        for record in records {
            if let Some(place) = self.index_of(record.at) {
                counts[place] += record.count;
            }
        }
        let hours = self.length as f64 / HOUR as f64;
        let rates = counts.into_iter().map(|count| Some(count as f64 / hours)).collect();
        BTreeMap::from([(String::new(), rates)])
    }
}

/// Returns the values of the named metrics per interval.
pub fn series(
    store: &Store,
    environment: EnvironmentKey,
    spans: &Spans,
    names: &[String],
    now: Timestamp,
) -> Result<Vec<Values>, ServerError> {
    let (from, until) = (Timestamp(spans.start()), Timestamp(spans.end()));
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        if !all_names().any(|known| known == name) {
            let text = format!("metrics: there is no {name:?}");
            return Err(ServerError::rule("bad-filter", text));
        }
        let run_rate = RUN_RATES.iter().find(|(rate, _)| rate == name);
        let source = match run_rate {
            Some((_, source)) => *source,
            None if name == COMPILE_RATE => COMPILE_TIME,
            None => name,
        };
        let is_gauge = GAUGES.contains(&source);
        let since = if is_gauge { from - GAUGE_VALIDITY } else { from };
        let mut records = store.metrics().list(environment, source, since, until)?;
        if is_gauge {
            records = spans.every_minute(&records, until.min(now));
        }
        found.push(match name.as_str() {
            COMPILE_RATE => spans.rates(&records),
            _ if run_rate.is_some() => spans.rates_by_category(&records),
            _ => spans.averages(&records),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at: i64, count: i64, value: i64) -> MetricRecord {
        MetricRecord {
            name: String::new(),
            category: "c".to_owned(),
            at: Timestamp(at),
            count,
            value,
        }
    }

    #[test]
    fn intervals_cover_the_time_and_average_their_samples() {
        let spans = Spans::new(0, 100, 4, false).unwrap();
        let records =
            [record(0, 1, 2000), record(24, 1, 4000), record(75, 2, 3000), record(100, 1, 9)];
        let averages = spans.averages(&records);
        assert_eq!(averages["c"], [Some(3.0), None, None, Some(1.5)]);
        assert!(Spans::new(5, 5, 4, false).is_err());
    }

    #[test]
    fn gauges_last_until_the_next_sample_but_not_forever() {
        let minute = i64::try_from(SAMPLE_INTERVAL.as_micros()).unwrap();
        let spans = Spans::new(0, 8 * minute, 4, false).unwrap();
        let records = [record(minute, 1, 2000), record(4 * minute, 1, 4000)];
        // There is no value before the first sample, nor in the future.
        let averages = spans.averages(&spans.every_minute(&records, Timestamp(6 * minute)));
        assert_eq!(averages["c"], [Some(2.0), Some(2.0), Some(4.0), None]);
        let hours = Spans::new(0, 4 * HOUR, 4, false).unwrap();
        let averages = hours.averages(&hours.every_minute(&records, Timestamp(4 * HOUR)));
        assert_eq!((averages["c"][2], averages["c"][3]), (None, None));
    }

    #[test]
    fn rounded_spans_are_whole_hours() {
        let spans = Spans::new(HOUR / 2, 5 * HOUR + 1, 4, true).unwrap();
        assert_eq!((spans.start, spans.length, spans.count), (0, 2 * HOUR, 3));
        let rates = spans.rates(&[record(HOUR, 4, 1), record(3 * HOUR, 1, 1)]);
        assert_eq!(rates[""], [Some(2.0), Some(0.5), Some(0.0)]);
    }
}
