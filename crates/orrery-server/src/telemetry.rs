//! Logs and traces of a server: structured lines on standard error, and spans for an optional
//! collector.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// Minimum interval between warnings about lost traces.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("invalid log filter {filter:?}: {reason}")]
    Filter { filter: String, reason: String },
    #[error(
        "invalid collector URL {endpoint:?}: expected http or https, such as http://127.0.0.1:4318/v1/traces"
    )]
    Address { endpoint: String },
    #[error("traces cannot be sent to {endpoint}")]
    Traces { endpoint: String, source: opentelemetry_otlp::ExporterBuildError },
    #[error("logging was set up twice")]
    Twice,
}

/// Running telemetry; sends pending spans when dropped.
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Drop for Telemetry {
    #[expect(clippy::print_stderr, reason = "the subscriber may be gone with its provider")]
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take()
            && let Err(error) = provider.shutdown()
        {
            eprintln!("orrery: the last traces were not sent: {error}");
        }
    }
}

/// Sets up logs, and traces if `collector` is the URL of an OTLP/HTTP endpoint.
///
/// # Errors
/// If the filter or the URL is invalid.
pub fn start(
    filter: &str,
    format: LogFormat,
    colour: bool,
    collector: Option<&str>,
) -> Result<Telemetry, TelemetryError> {
    let wrong = |reason: String| TelemetryError::Filter { filter: filter.to_owned(), reason };
    check_levels(filter).map_err(wrong)?;
    let parsed = EnvFilter::try_new(filter).map_err(|error| wrong(error.to_string()))?;
    let provider = collector.map(provider).transpose()?;
    let traces = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("orrery")));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colour);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let set = tracing_subscriber::registry().with(parsed).with(traces).with(lines).try_init();
    set.map_err(|_| TelemetryError::Twice)?;
    Ok(Telemetry { provider })
}

/// Requires a word without `=` to be a level. As a module name, a misspelt level would silence the
/// log.
fn check_levels(filter: &str) -> Result<(), String> {
    // Span filters contain commas; they are not checked.
    if filter.contains('[') {
        return Ok(());
    }
    for part in filter.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        if !part.contains('=') && part.parse::<tracing_subscriber::filter::LevelFilter>().is_err() {
            return Err(format!(
                "{part:?} is not a level: expected off, error, warn, info, debug or trace; a module is \
                 named with its level, as in info,orrery_server=debug"
            ));
        }
    }
    Ok(())
}

/// True for an http or https URL with a host. Failures to send spans would go unnoticed otherwise.
fn is_valid_endpoint(endpoint: &str) -> bool {
    let Ok(parsed) = endpoint.parse::<axum::http::Uri>() else { return false };
    let host = parsed.host().is_some_and(|host| !host.is_empty());
    host && matches!(parsed.scheme_str(), Some("http" | "https"))
}

fn provider(endpoint: &str) -> Result<SdkTracerProvider, TelemetryError> {
    if !is_valid_endpoint(endpoint) {
        return Err(TelemetryError::Address { endpoint: endpoint.to_owned() });
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(CollectorClient::default())
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint)
        .with_timeout(Duration::from_secs(5))
        .build()
        .map_err(|source| TelemetryError::Traces { endpoint: endpoint.to_owned(), source })?;
    let resource = Resource::builder().with_service_name("orrery").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

/// HTTP client of the exporter: the one that the program links already. Spans are sent from a
/// thread that may block.
#[derive(Debug)]
struct CollectorClient {
    agent: ureq::Agent,
    /// Time of the latest warning, while the collector is failing.
    logged_at: Mutex<Option<Instant>>,
}

impl Default for CollectorClient {
    fn default() -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(5)))
            .http_status_as_error(false)
            .build();
        CollectorClient { agent: config.into(), logged_at: Mutex::default() }
    }
}

impl CollectorClient {
    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let answer = self.agent.run(Request::from_parts(parts, body.to_vec()))?;
        let (parts, mut body) = answer.into_parts();
        Ok(Response::from_parts(parts, body.read_to_vec()?.into()))
    }

    /// Logs lost traces at intervals, and the recovery once.
    fn log_delivery(&self, collector: &str, error: Option<String>) {
        let mut logged_at = self.logged_at.lock().ignore_poison();
        match (error, *logged_at) {
            (Some(_), Some(at)) if at.elapsed() < LOG_INTERVAL => {}
            (Some(reason), _) => {
                *logged_at = Some(monotonic());
                tracing::warn!(collector, reason, "traces cannot be sent (--traces)");
            }
            (None, Some(_)) => {
                *logged_at = None;
                tracing::info!(collector, "traces are delivered again");
            }
            (None, None) => {}
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let collector = request.uri().to_string();
        let answer = self.send(request);
        let error = match &answer {
            Err(error) => Some(error.to_string()),
            Ok(answer) if !answer.status().is_success() => {
                Some(format!("response status {}", answer.status()))
            }
            Ok(_) => None,
        };
        self.log_delivery(&collector, error);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_addresses_are_checked() {
        for good in ["info", "WARN", "off", "info,orrery_server=debug", "orrery=trace, error", ""] {
            assert_eq!(check_levels(good), Ok(()), "{good}");
        }
        for bad in ["nonsense", "inof,orrery_server=debug", "orrery_server"] {
            assert!(check_levels(bad).unwrap_err().contains("is not a level"), "{bad}");
        }
        for good in ["http://127.0.0.1:4318/v1/traces", "https://collector.example.com"] {
            assert!(is_valid_endpoint(good), "{good}");
        }
        for bad in ["not-a-url", "127.0.0.1:4318", "ftp://host/x", "http://", "/v1/traces", ""] {
            assert!(!is_valid_endpoint(bad), "{bad}");
        }
    }
}
