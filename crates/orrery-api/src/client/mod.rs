//! The client of the API: blocking, typed, and patient where that is safe. The command line and the language's tools use
//! it; it knows how requests are made, not what they are about.
//!
//! What can be repeated without harm is repeated when the server is away for a moment: reading, putting and deleting by
//! themselves, and posting with an `Idempotency-Key`, so that the server does it once.

mod error;
mod events;
mod files;
mod pages;
mod path;

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// The server ends what takes longer than a minute; large answers take their time on the way.
const ANSWER_WITHIN: Duration = Duration::from_secs(180);
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// An answer of JSON that is longer is none of ours.
const ANSWER_MAX: u64 = 256 << 20;
/// Larger bodies are sent compressed.
const COMPRESSED_FROM: usize = 8 << 10;
/// How often something is tried, and how long the first pause is; each is twice as long as the one before.
const ATTEMPTS_MAX: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(150);
/// The longest pause that a server may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A server that needs so long to say that it is not available has tried for us: nobody waits for that again and again.
const REPEAT_WITHIN: Duration = Duration::from_secs(5);

/// Where a server is, and as whom it is asked.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// `https://orrery.example.com:8888`
    pub server: String,
    /// A session or a token.
    pub token: Option<SecretText>,
    /// Certificates that are trusted instead of those of the machine, as PEM.
    pub ca: Option<PathBuf>,
}

/// A server that can be asked.
#[derive(Clone, Debug)]
pub struct Client {
    agent: ureq::Agent,
    server: Arc<str>,
    token: Option<SecretText>,
    /// The certificates that are trusted instead of those of the machine, as PEM.
    ca: Arc<str>,
}

/// How often a request may be made.
#[derive(Clone, Debug)]
enum Repeating {
    /// As often as needed.
    Freely,
    /// Under this name, so that it is carried out once.
    Named(String),
    /// Only if it never reached the server.
    Never,
}

impl Client {
    /// # Errors
    /// If the address or the certificates are not usable. Nothing is sent yet.
    pub fn new(connection: &Connection) -> Result<Self, ClientError> {
        let server = path::server(&connection.server)?;
        // The first one installed stays, whoever asks.
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
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_global(Some(ANSWER_WITHIN))
            .user_agent(concat!("orrery/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let token = connection.token.clone();
        Ok(Client { agent, server: server.into(), token, ca: ca.into() })
    }

    /// Where the server is.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The parts of that: whether it is encrypted, the host and the port.
    pub fn place(&self) -> (bool, String, u16) {
        path::place(&self.server)
    }

    /// The certificates that are trusted instead of those of the machine, as PEM; empty if there are none.
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// The same server, asked as somebody else.
    #[must_use]
    pub fn with_token(mut self, token: Option<SecretText>) -> Self {
        self.token = token;
        self
    }

    /// # Errors
    /// What the server answers instead, or why it does not; so for all that follow.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.read(self.send(&Method::GET, path, None, &Repeating::Freely)?)
    }

    /// Like `get`, but that it is not there is an answer.
    pub fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, ClientError> {
        match self.get(path) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All items of a list, page by page as they are asked for.
    pub fn list<T: DeserializeOwned>(&self, path: &str) -> Pages<'_, T> {
        Pages::new(self, path)
    }

    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let named = Repeating::Named(Uuid::new_v4().to_string());
        self.read(self.send(&Method::POST, path, Some(&json(body)?), &named)?)
    }

    /// Posts without a body.
    pub fn act<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let named = Repeating::Named(Uuid::new_v4().to_string());
        self.read(self.send(&Method::POST, path, None, &named)?)
    }

    /// Posts what is answered with a secret: the server must not keep that answer for repetitions.
    pub fn post_once<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.read(self.send(&Method::POST, path, Some(&json(body)?), &Repeating::Never)?)
    }

    pub fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.read(self.send(&Method::PUT, path, Some(&json(body)?), &Repeating::Freely)?)
    }

    pub fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.read(self.send(&Method::PATCH, path, Some(&json(body)?), &Repeating::Freely)?)
    }

    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.read(self.send(&Method::DELETE, path, None, &Repeating::Freely)?)
    }

    /// Hints of changes, from now on or from the event that was seen last.
    pub fn events(&self, path: &str, last: Option<String>) -> Result<Events, ClientError> {
        Events::open(self, path, last)
    }

    /// Sends until there is an answer that is worth one.
    fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<&(&'static str, Vec<u8>)>,
        repeating: &Repeating,
    ) -> Result<Response<ureq::Body>, ClientError> {
        let compressed = body.filter(|(_, content)| content.len() >= COMPRESSED_FROM);
        let compressed = compressed
            .and_then(|(media_type, content)| Some((*media_type, compress(content).ok()?, true)));
        let body = compressed
            .or_else(|| body.map(|(media_type, content)| (*media_type, content.clone(), false)));
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            let last = attempt == ATTEMPTS_MAX;
            match self.send_once(method, path, body.as_ref(), repeating) {
                Ok(answer)
                    if answer.status() == http::StatusCode::SERVICE_UNAVAILABLE
                        && !last
                        && began.elapsed() < REPEAT_WITHIN =>
                {
                    pause = asked_pause(&answer).unwrap_or(pause).min(PAUSE_MAX);
                    // Such an answer says that nothing was done.
                }
                // Whether it was done is not known: only what may be repeated is.
                Ok(answer)
                    if answer.status() == http::StatusCode::GATEWAY_TIMEOUT
                        && !matches!(repeating, Repeating::Never)
                        && !last
                        && began.elapsed() < REPEAT_WITHIN => {}
                Err(error) if !last && is_worth_repeating(&error, repeating) => {}
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
        repeating: &Repeating,
    ) -> Result<Response<ureq::Body>, ureq::Error> {
        let mut builder = self.request(method, path);
        if let Repeating::Named(name) = repeating {
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
        let mut reader = answer.into_body().into_reader().take(ANSWER_MAX);
        reader
            .read_to_end(&mut text)
            .map_err(|error| ClientError::unreachable(&self.server, &ureq::Error::Io(error)))?;
        if !status.is_success() {
            return Err(match serde_json::from_slice::<Problem>(&text) {
                Ok(problem) => ClientError::refused(&self.server, problem, self.token.is_some()),
                Err(_) => ClientError::not_ours(&self.server, status.as_u16()),
            });
        }
        // An answer without a content reads as nothing.
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

/// How long the server wants to be left alone.
fn asked_pause(answer: &Response<ureq::Body>) -> Option<Duration> {
    let asked = answer.headers().get(http::header::RETRY_AFTER)?.to_str().ok()?;
    asked.parse().ok().map(Duration::from_secs)
}

fn is_worth_repeating(error: &ureq::Error, repeating: &Repeating) -> bool {
    let never_sent = match error {
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        ureq::Error::Timeout(ureq::Timeout::Connect) => true,
        _ => false,
    };
    let cut_off = matches!(error, ureq::Error::Io(_) | ureq::Error::Protocol(_));
    never_sent || cut_off && !matches!(repeating, Repeating::Never) && tls_error(error).is_none()
}

/// The error of TLS behind one of a request, such as an untrusted certificate; trying again does not help.
fn tls_error(error: &ureq::Error) -> Option<&rustls::Error> {
    let ureq::Error::Io(error) = error else { return None };
    error.get_ref()?.downcast_ref()
}

/// The certificates of a file, and its text.
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
