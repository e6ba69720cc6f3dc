//! Time series of metrics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Time;

/// A time series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MetricSeries {
    pub name: String,
    /// Values of each group (a status, or empty), one per interval; null where there is no sample.
    pub values: BTreeMap<String, Vec<Option<f64>>>,
}

/// Time series with equal intervals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Metrics {
    /// End of each interval.
    pub timestamps: Vec<Time>,
    pub metrics: Vec<MetricSeries>,
}
