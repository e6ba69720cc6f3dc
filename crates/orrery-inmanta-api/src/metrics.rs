//! Metrics as time series.

use orrery_model::Timestamp;
use orrery_server::app::metrics::{RESOURCE_COUNT, Spans, Values, series};
use serde_json::{Map, Value, json};

use crate::request::{InmantaRequest, bad_request};
use crate::response::{ApiResult, data, time};

const SPANS_MAX: i64 = 1_000;
/// Statuses of Inmanta that Orrery does not have.
const MORE_STATUSES: [&str; 2] = ["cancelled", "dry"];

/// Returns metrics with equal intervals.
pub(crate) async fn get(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[
        "metrics",
        "start_interval",
        "end_interval",
        "nb_datapoints",
        "round_timestamps",
    ])?;
    let names =
        request.texts("metrics")?.ok_or_else(|| bad_request("Field 'metrics' is required."))?;
    let need = |name: &str| {
        request.time(name)?.ok_or_else(|| bad_request(format!("Field '{name}' is required.")))
    };
    let (start, end) = (need("start_interval")?, need("end_interval")?);
    let count = request.number("nb_datapoints")?.unwrap_or(15);
    if !(1..=SPANS_MAX).contains(&count) {
        return Err(bad_request(format!("nb_datapoints must be 1 to {SPANS_MAX}")));
    }
    let round = request.flag("round_timestamps")?.unwrap_or(false);
    let spans = Spans::new(start.0, end.0, u32::try_from(count).unwrap_or(1), round)?;
    let (from, until) = (spans.start(), spans.end());
    let timestamps: Vec<String> = spans.ends().map(|at| time(Timestamp(at))).collect();
    let (wanted, now) = (names.clone(), request.app.now());
    let found =
        request.try_with_store(move |store, key| series(store, key, &spans, &wanted, now)).await?;
    let mut shown = Map::new();
    for (name, values) in names.into_iter().zip(found) {
        shown.insert(name.clone(), values_by_interval(&name, &values, timestamps.len()));
    }
    data(json!({
        "start": time(Timestamp(from)), "end": time(Timestamp(until)),
        "timestamps": timestamps, "metrics": shown,
    }))
}

/// Returns one value per interval: a number, or numbers by group.
fn values_by_interval(name: &str, values: &Values, count: usize) -> Value {
    let is_plain = values.keys().all(String::is_empty);
    let at = |place: usize| {
        if is_plain {
            return json!(values.get("").and_then(|values| values[place]));
        }
        let mut counted = Map::new();
        for (category, values) in values {
            if let Some(value) = values[place] {
                counted.insert(category.clone(), json!(value));
            }
        }
        if counted.is_empty() {
            return Value::Null;
        }
        if name == RESOURCE_COUNT {
            counted.remove("orphaned");
            for status in MORE_STATUSES {
                counted.insert(status.to_owned(), json!(0.0));
            }
        }
        Value::Object(counted)
    };
    Value::Array((0..count).map(at).collect())
}
