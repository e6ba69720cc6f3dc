//! Blocking, typed client of the API, with retries where they are safe.
//!
//! The command line and the language tools use it. It knows the form of requests, not their
//! meaning.
//!
//! Idempotent requests are retried while the server is unavailable: GET, PUT, PATCH and DELETE as
//! they are, POST with an `Idempotency-Key`, so that the server executes it once.

mod clusters;
mod error;
mod events;
mod files;
mod pages;
mod path;

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_model::SecretText;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{self, Method, Response};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use uuid::Uuid;

pub use error::ClientError;
pub use events::{Event, Events};
pub use pages::Pages;
pub use path::{path, query};

use crate::Problem;

/// Overall timeout. The server ends requests after a minute; large responses need time to transfer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(180);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a JSON response.
const RESPONSE_MAX: u64 = 256 << 20;
/// Bodies of at least this size are sent compressed.
const COMPRESSION_THRESHOLD: usize = 8 << 10;
/// Maximum number of attempts. The pause between them doubles, from `FIRST_PAUSE`.
const ATTEMPTS_MAX: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(150);
/// Maximum pause between attempts, also for `Retry-After`.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// No retries after this time: a server that takes so long to report unavailability has already
/// retried itself.
const RETRY_WITHIN: Duration = Duration::from_secs(5);

/// Address of a server and credentials for it.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// `https://orrery.example.com:8888`
    pub server: String,
    /// Session or API token.
    pub token: Option<SecretText>,
    /// File with PEM certificates that replace the trust store of the machine.
    pub ca: Option<PathBuf>,
}

/// Connection settings and HTTP agent for one server.
#[derive(Clone, Debug)]
pub struct Client {
    agent: ureq::Agent,
    server: Arc<str>,
    token: Option<SecretText>,
    /// PEM certificates that replace the trust store of the machine.
    ca: Arc<str>,
}

/// Retry policy of a request.
#[derive(Clone, Debug)]
enum RetryPolicy {
    /// Retries freely: the request is idempotent.
    Idempotent,
    /// Retries with this idempotency key.
    WithKey(String),
    /// Retries only if the request never reached the server.
    OnlyUnsent,
}

impl Client {
    /// # Errors
    /// If the address or the certificates are not usable. Nothing is sent yet.
    pub fn new(connection: &Connection) -> Result<Self, ClientError> {
        let server = path::parse_server(&connection.server)?;
        // Fails if a provider is installed already, which then stays.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let (roots, ca) = match &connection.ca {
            Some(file) => {
                let (found, pem) = certificates(file)?;
                (RootCerts::Specific(Arc::new(found)), pem)
            }
            None => (RootCerts::PlatformVerifier, String::new()),
        };
        let tls = TlsConfig::builder().provider(TlsProvider::Rustls).root_certs(roots).build();
        let agent = ureq::Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(RESPONSE_TIMEOUT))
            .user_agent(concat!("orrery/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let token = connection.token.clone();
        Ok(Client { agent, server: server.into(), token, ca: ca.into() })
    }

    /// Address of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Parts of the address: TLS, host and port.
    pub fn endpoint(&self) -> (bool, String, u16) {
        path::split_address(&self.server)
    }

    /// PEM certificates that replace the trust store of the machine; empty if there are none.
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// Returns a client for the same server with other credentials.
    #[must_use]
    pub fn with_token(mut self, token: Option<SecretText>) -> Self {
        self.token = token;
        self
    }

    /// # Errors
    /// If the server refuses or cannot be reached. The same holds for all methods below.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.read(self.send(&Method::GET, path, None, &RetryPolicy::Idempotent)?)
    }

    /// Like `get`, but returns `None` if the object does not exist.
    pub fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, ClientError> {
        match self.get(path) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Iterates over all items of a list. Pages are fetched on demand.
    pub fn list<T: DeserializeOwned>(&self, path: &str) -> Pages<'_, T> {
        Pages::new(self, path)
    }

    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let with_key = RetryPolicy::WithKey(Uuid::new_v4().to_string());
        self.read(self.send(&Method::POST, path, Some(&json(body)?), &with_key)?)
    }

    /// Sends a POST request without a body.
    pub fn post_empty<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let with_key = RetryPolicy::WithKey(Uuid::new_v4().to_string());
        self.read(self.send(&Method::POST, path, None, &with_key)?)
    }

    /// Sends a POST request with a secret in its response, without an idempotency key: the
    /// server must not store that response.
    pub fn post_once<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.read(self.send(&Method::POST, path, Some(&json(body)?), &RetryPolicy::OnlyUnsent)?)
    }

    pub fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.read(self.send(&Method::PUT, path, Some(&json(body)?), &RetryPolicy::Idempotent)?)
    }

    /// Sends a PUT request with bytes.
    pub fn put_bytes<T: DeserializeOwned>(
        &self,
        path: &str,
        content: Vec<u8>,
    ) -> Result<T, ClientError> {
        let body = ("application/octet-stream", content);
        self.read(self.send(&Method::PUT, path, Some(&body), &RetryPolicy::Idempotent)?)
    }

    pub fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.read(self.send(&Method::PATCH, path, Some(&json(body)?), &RetryPolicy::Idempotent)?)
    }

    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.read(self.send(&Method::DELETE, path, None, &RetryPolicy::Idempotent)?)
    }

    /// Opens the event stream, from now or after the last event received.
    pub fn events(&self, path: &str, last: Option<String>) -> Result<Events, ClientError> {
        Events::open(self, path, last)
    }

    /// Sends a request, with retries.
    fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<&(&'static str, Vec<u8>)>,
        retry: &RetryPolicy,
    ) -> Result<Response<ureq::Body>, ClientError> {
        let compressed = body.filter(|(_, content)| content.len() >= COMPRESSION_THRESHOLD);
        let compressed = compressed
            .and_then(|(media_type, content)| Some((*media_type, compress(content).ok()?, true)));
        let body = compressed
            .or_else(|| body.map(|(media_type, content)| (*media_type, content.clone(), false)));
        let began = monotonic();
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            let last = attempt == ATTEMPTS_MAX;
            match self.send_once(method, path, body.as_ref(), retry) {
                Ok(answer)
                    if answer.status() == http::StatusCode::SERVICE_UNAVAILABLE
                        && !last
                        && began.elapsed() < RETRY_WITHIN =>
                {
                    pause = retry_after(&answer).unwrap_or(pause).min(PAUSE_MAX);
                    // This status means that nothing was executed.
                }
                // The outcome is unknown: only idempotent requests are retried.
                Ok(answer)
                    if answer.status() == http::StatusCode::GATEWAY_TIMEOUT
                        && !matches!(retry, RetryPolicy::OnlyUnsent)
                        && !last
                        && began.elapsed() < RETRY_WITHIN => {}
                Err(error) if !last && is_retryable(&error, retry) => {}
                Ok(answer) => return Ok(answer),
                Err(error) => return Err(ClientError::unreachable(&self.server, &error)),
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
            attempt += 1;
        }
    }

    fn send_once(
        &self,
        method: &Method,
        path: &str,
        body: Option<&(&'static str, Vec<u8>, bool)>,
        retry: &RetryPolicy,
    ) -> Result<Response<ureq::Body>, ureq::Error> {
        let mut builder = self.request(method, path);
        if let RetryPolicy::WithKey(name) = retry {
            builder = builder.header("idempotency-key", name);
        }
        match body {
            Some((media_type, content, is_compressed)) => {
                builder = builder.header(http::header::CONTENT_TYPE, *media_type);
                if *is_compressed {
                    builder = builder.header(http::header::CONTENT_ENCODING, "gzip");
                }
                self.agent.run(builder.body(content.as_slice())?)
            }
            None => self.agent.run(builder.body(())?),
        }
    }

    fn request(&self, method: &Method, path: &str) -> http::request::Builder {
        let builder = http::Request::builder().method(method.clone());
        let builder = builder.uri(format!("{}{path}", self.server));
        let builder =
            builder.header(http::header::ACCEPT, "application/json, application/problem+json");
        match &self.token {
            Some(token) => {
                builder.header(http::header::AUTHORIZATION, format!("Bearer {}", token.expose()))
            }
            None => builder,
        }
    }

    fn read<T: DeserializeOwned>(&self, answer: Response<ureq::Body>) -> Result<T, ClientError> {
        let status = answer.status();
        let mut text = Vec::new();
        let mut reader = answer.into_body().into_reader().take(RESPONSE_MAX);
        reader
            .read_to_end(&mut text)
            .map_err(|error| ClientError::unreachable(&self.server, &ureq::Error::Io(error)))?;
        if !status.is_success() {
            return Err(match serde_json::from_slice::<Problem>(&text) {
                Ok(problem) => ClientError::refused(&self.server, problem, self.token.is_some()),
                Err(_) => ClientError::not_orrery(&self.server, status.as_u16()),
            });
        }
        // An empty body deserializes as `()`.
        let text = if text.is_empty() { b"null".as_slice() } else { &text };
        serde_json::from_slice(text)
            .map_err(|source| ClientError::Unexpected { server: self.server.to_string(), source })
    }
}

fn compress(content: &[u8]) -> std::io::Result<Vec<u8>> {
    let level = flate2::Compression::fast();
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(content.len() / 4), level);
    encoder.write_all(content)?;
    encoder.finish()
}

fn json(body: &impl Serialize) -> Result<(&'static str, Vec<u8>), ClientError> {
    let body = serde_json::to_vec(body).map_err(|source| ClientError::Unwritable { source })?;
    Ok(("application/json", body))
}

/// Parses `Retry-After`.
fn retry_after(answer: &Response<ureq::Body>) -> Option<Duration> {
    let asked = answer.headers().get(http::header::RETRY_AFTER)?.to_str().ok()?;
    asked.parse().ok().map(Duration::from_secs)
}

fn is_retryable(error: &ureq::Error, retry: &RetryPolicy) -> bool {
    let never_sent = match error {
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        ureq::Error::Timeout(ureq::Timeout::Connect) => true,
        _ => false,
    };
    let cut_off = matches!(error, ureq::Error::Io(_) | ureq::Error::Protocol(_));
    never_sent || cut_off && !matches!(retry, RetryPolicy::OnlyUnsent) && tls_error(error).is_none()
}

/// Returns the TLS error behind a failed request, such as an untrusted certificate. Retries do not
/// help then.
fn tls_error(error: &ureq::Error) -> Option<&rustls::Error> {
    let ureq::Error::Io(error) = error else { return None };
    error.get_ref()?.downcast_ref()
}

/// Reads the certificates of a PEM file; returns its text as well.
fn certificates(
    file: &std::path::Path,
) -> Result<(Vec<Certificate<'static>>, String), ClientError> {
    let unusable = |reason: String| ClientError::Certificates { file: file.to_owned(), reason };
    let pem = std::fs::read(file).map_err(|error| unusable(error.to_string()))?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        let item = item.map_err(|error| unusable(error.to_string()))?;
        if let PemItem::Certificate(certificate) = item {
            found.push(certificate.to_owned());
        }
    }
    if found.is_empty() {
        return Err(unusable("it holds no certificate in PEM form".to_owned()));
    }
    Ok((found, String::from_utf8_lossy(&pem).into_owned()))
}
