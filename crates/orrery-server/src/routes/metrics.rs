//! Metrics as time series.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use orrery_api::{MetricSeries, Metrics};
use orrery_model::Timestamp;
use orrery_store::{EnvironmentKey, MetricRecord, Store};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ServerError;
use crate::extract::{InEnvironment, Query};
use crate::maintenance::{COMPILE_TIME, GAUGE_VALIDITY, GAUGES, METRIC_NAMES, SAMPLE_INTERVAL};
use crate::state::ServerState;

use super::{parse_time, time};

const HOUR: i64 = 3_600_000_000;
const SPANS_MAX: u32 = 1000;
const SPANS_DEFAULT: u32 = 60;
/// Derived from the number of timed compiles.
const COMPILE_RATE: &str = "orchestrator.compile_rate";

/// Values per interval, by group.
pub(crate) type Values = BTreeMap<String, Vec<Option<f64>>>;

/// Filter of metrics.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Names, separated by commas: `resource.resource_count`, `resource.agent_count`,
    /// `orchestrator.compile_time`, `orchestrator.compile_waiting_time`,
    /// `orchestrator.compile_rate`. Default: all.
    metrics: Option<String>,
    /// Start time (RFC 3339). Default: an hour ago.
    #[param(format = DateTime)]
    start: Option<String>,
    /// End time, exclusive (RFC 3339). Default: now.
    #[param(format = DateTime)]
    end: Option<String>,
    /// Number of intervals.
    #[param(minimum = 1, maximum = 1000)]
    spans: Option<u32>,
    /// Aligns to full hours: the time is extended to them, and an interval is a multiple of an
    /// hour.
    round: Option<bool>,
}

/// Equal intervals of time.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    start: i64,
    length: i64,
    count: usize,
}

impl Spans {
    pub(crate) fn new(start: i64, end: i64, count: u32, round: bool) -> Result<Self, ServerError> {
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

    pub(crate) fn start(&self) -> i64 {
        self.start
    }

    pub(crate) fn end(&self) -> i64 {
        self.start + self.length * i64::try_from(self.count).unwrap_or(i64::MAX)
    }

    /// End times of the intervals.
    pub(crate) fn ends(&self) -> impl Iterator<Item = i64> {
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
pub(crate) fn series(
    store: &Store,
    environment: EnvironmentKey,
    spans: &Spans,
    names: &[String],
    now: Timestamp,
) -> Result<Vec<Values>, ServerError> {
    let (from, until) = (Timestamp(spans.start()), Timestamp(spans.end()));
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        if name != COMPILE_RATE && !METRIC_NAMES.contains(&name.as_str()) {
            let text = format!("metrics: there is no {name:?}");
            return Err(ServerError::rule("bad-filter", text));
        }
        let source = if name == COMPILE_RATE { COMPILE_TIME } else { name };
        let is_gauge = GAUGES.contains(&source);
        let since = if is_gauge { from - GAUGE_VALIDITY } else { from };
        let mut records = store.metrics().list(environment, source, since, until)?;
        if is_gauge {
            records = spans.every_minute(&records, until.min(now));
        }
        found.push(match name.as_str() {
            COMPILE_RATE => spans.rates(&records),
            _ => spans.averages(&records),
        });
    }
    Ok(found)
}

/// Returns metrics of an environment as time series with equal intervals.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/metrics", tag = "metrics",
    params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "The metrics", body = Metrics)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Metrics>, ServerError> {
    let names: Vec<String> = match filter.metrics.as_deref() {
        None => METRIC_NAMES.into_iter().chain([COMPILE_RATE]).map(str::to_owned).collect(),
        Some(text) => text.split(',').map(|name| name.trim().to_owned()).collect(),
    };
    let end = match filter.end.as_deref() {
        Some(text) => parse_time("end", text)?,
        None => app.now(),
    };
    let start = match filter.start.as_deref() {
        Some(text) => parse_time("start", text)?,
        None => Timestamp(end.0.saturating_sub(HOUR)),
    };
    let count = filter.spans.unwrap_or(SPANS_DEFAULT);
    if !(1..=SPANS_MAX).contains(&count) {
        return Err(ServerError::rule("bad-filter", format!("spans must be 1 to {SPANS_MAX}")));
    }
    let spans = Spans::new(start.0, end.0, count, filter.round.unwrap_or(false))?;
    let timestamps = spans.ends().map(|at| time(Timestamp(at))).collect();
    let (wanted, now) = (names.clone(), app.now());
    let values = app
        .try_with_store(move |store| series(store, environment.key, &spans, &wanted, now))
        .await?;
    let named = names.into_iter().zip(values);
    let metrics = named.map(|(name, values)| MetricSeries { name, values }).collect();
    Ok(Json(Metrics { timestamps, metrics }))
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
