//! Logs and traces of a server: structured lines on standard error, and spans for a collector if there is one.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// How often it is told that traces are lost.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object a line, for programs.
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("the log filter {filter:?} is not understood: {reason}")]
    Filter { filter: String, reason: String },
    #[error(
        "{endpoint:?} is no address of a collector; write it as http://127.0.0.1:4318/v1/traces, with http or https"
    )]
    Address { endpoint: String },
    #[error("traces cannot be sent to {endpoint}")]
    Traces { endpoint: String, source: opentelemetry_otlp::ExporterBuildError },
    #[error("logging was set up twice")]
    Twice,
}

/// What was begun; spans that wait are sent when it is dropped.
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take()
            && let Err(error) = provider.shutdown()
        {
            eprintln!("orrery: the last traces were not sent: {error}");
        }
    }
}

/// Sets up logs, and traces if `collector` names where they go: an address that takes OTLP over HTTP.
///
/// # Errors
/// If the filter or the address is not usable.
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

/// A word alone is a level. Were it taken as the name of a part, a misspelt level would silence the log.
fn check_levels(filter: &str) -> Result<(), String> {
    // Filters of spans have commas of their own; whoever writes them knows what they mean.
    if filter.contains('[') {
        return Ok(());
    }
    for part in filter.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        if !part.contains('=') && part.parse::<tracing_subscriber::filter::LevelFilter>().is_err() {
            return Err(format!(
                "{part:?} is no level; levels are off, error, warn, info, debug and trace, and a part of the program is \
                 named with its level: info,orrery_server=debug"
            ));
        }
    }
    Ok(())
}

/// Whether spans can be sent there. Nobody would notice if they could not.
fn is_address(endpoint: &str) -> bool {
    let Ok(parsed) = endpoint.parse::<axum::http::Uri>() else { return false };
    let host = parsed.host().is_some_and(|host| !host.is_empty());
    host && matches!(parsed.scheme_str(), Some("http" | "https"))
}

fn provider(endpoint: &str) -> Result<SdkTracerProvider, TelemetryError> {
    if !is_address(endpoint) {
        return Err(TelemetryError::Address { endpoint: endpoint.to_owned() });
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Client::default())
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint)
        .with_timeout(Duration::from_secs(5))
        .build()
        .map_err(|source| TelemetryError::Traces { endpoint: endpoint.to_owned(), source })?;
    let resource = Resource::builder().with_service_name("orrery").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

/// The HTTP client that the program has anyway. Spans are sent from a thread of their own, which may block.
#[derive(Debug)]
struct Client {
    agent: ureq::Agent,
    /// When it was last told that the collector does not take traces, if it does not.
    told: Mutex<Option<Instant>>,
}

impl Default for Client {
    fn default() -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(5)))
            .http_status_as_error(false)
            .build();
        Client { agent: config.into(), told: Mutex::default() }
    }
}

impl Client {
    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let answer = self.agent.run(Request::from_parts(parts, body.to_vec()))?;
        let (parts, mut body) = answer.into_parts();
        Ok(Response::from_parts(parts, body.read_to_vec()?.into()))
    }

    /// Says in the log that traces are lost, now and then; and once that they are not any more.
    fn tell(&self, collector: &str, trouble: Option<String>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match (trouble, *told) {
            (Some(_), Some(at)) if at.elapsed() < TELL_EVERY => {}
            (Some(reason), _) => {
                *told = Some(Instant::now());
                tracing::warn!(collector, reason, "traces cannot be sent (--traces)");
            }
            (None, Some(_)) => {
                *told = None;
                tracing::info!(collector, "traces are sent again");
            }
            (None, None) => {}
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let collector = request.uri().to_string();
        let answer = self.send(request);
        let trouble = match &answer {
            Err(error) => Some(error.to_string()),
            Ok(answer) if !answer.status().is_success() => {
                Some(format!("it answers with the status {}", answer.status()))
            }
            Ok(_) => None,
        };
        self.tell(&collector, trouble);
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
            assert!(check_levels(bad).unwrap_err().contains("is no level"), "{bad}");
        }
        for good in ["http://127.0.0.1:4318/v1/traces", "https://collector.example.com"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["not-a-url", "127.0.0.1:4318", "ftp://host/x", "http://", "/v1/traces", ""] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}
