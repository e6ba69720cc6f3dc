//! Metrics as time series.

use axum::Json;
use axum::extract::State;
use orrery_api::{MetricSeries, Metrics};
use orrery_model::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::metrics::{self, Spans};
use crate::error::ServerError;
use crate::extract::{InEnvironment, Query};
use crate::state::ServerState;

use super::{parse_time, time};

const SPANS_MAX: u32 = 1000;
const SPANS_DEFAULT: u32 = 60;

/// Filter of metrics.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Names, separated by commas: `resource.resource_count`, `resource.agent_count`,
    /// `orchestrator.compile_time`, `orchestrator.compile_waiting_time`,
    /// `orchestrator.compile_rate`, `resource.run_time`, `resource.run_rate`,
    /// `resource.change_rate`. Times are in seconds, rates per hour. Default: all.
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
        None => metrics::all_names().map(str::to_owned).collect(),
        Some(text) => text.split(',').map(|name| name.trim().to_owned()).collect(),
    };
    let end = match filter.end.as_deref() {
        Some(text) => parse_time("end", text)?,
        None => app.now(),
    };
    let start = match filter.start.as_deref() {
        Some(text) => parse_time("start", text)?,
        None => Timestamp(end.0.saturating_sub(metrics::HOUR)),
    };
    let count = filter.spans.unwrap_or(SPANS_DEFAULT);
    if !(1..=SPANS_MAX).contains(&count) {
        return Err(ServerError::rule("bad-filter", format!("spans must be 1 to {SPANS_MAX}")));
    }
    let spans = Spans::new(start.0, end.0, count, filter.round.unwrap_or(false))?;
    let timestamps = spans.ends().map(|at| time(Timestamp(at))).collect();
    let (wanted, now) = (names.clone(), app.now());
    let values = app
        .try_with_store(move |store| metrics::series(store, environment.key, &spans, &wanted, now))
        .await?;
    let named = names.into_iter().zip(values);
    let metrics = named.map(|(name, values)| MetricSeries { name, values }).collect();
    Ok(Json(Metrics { timestamps, metrics }))
}
