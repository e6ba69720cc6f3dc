//! A client for servers, for programs that may wait: the command line and tests.
//!
//! [`Contexts`] and [`Choice`] say which server is meant, [`Client`] speaks to it, [`ClientError`] says what went wrong and what to
//! do. Whatever was lost on the way is sent again, with a key by which the server knows it.

mod contexts;
mod error;

use std::io::{Read as _, Write as _};
use std::time::Duration;

use orrery_model::SecretText;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{self, Method, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use uuid::Uuid;

use crate::{Environment, FileHashes, Page, Problem};

pub use contexts::{Choice, Context, Contexts, ContextsError, Target};
pub use error::ClientError;

/// How often something is tried, and how long is waited after the first time.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
const CONNECT_TIME: Duration = Duration::from_secs(10);
const ANSWER_TIME: Duration = Duration::from_secs(120);
/// A larger answer is not read.
const ANSWER_MAX: u64 = 512 << 20;
/// Larger bodies are sent compressed.
const COMPRESSED_FROM: usize = 8 << 10;
/// Hashes that are asked for at once.
const HASHES_MAX: usize = 5_000;

/// Speaks to one server as somebody.
#[derive(Clone, Debug)]
pub struct Client {
    base: String,
    token: Option<SecretText>,
    agent: ureq::Agent,
}

/// An answer that was understood so far.
struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Client {
    /// A client for a server that somebody chose. Nothing is sent yet.
    ///
    /// # Errors
    /// If the address or the certificates are not usable.
    pub fn new(target: &Target) -> Result<Self, ClientError> {
        let base = target.server.trim_end_matches('/').to_owned();
        if !base.starts_with("https://") && !base.starts_with("http://") {
            return Err(ClientError::Address(base));
        }
        // The first one installed stays, whoever asks.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let roots = match &target.ca_file {
            None => RootCerts::PlatformVerifier,
            Some(path) => {
                let failed =
                    |reason: String| ClientError::Certificates { path: path.clone(), reason };
                let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
                let all: Result<Vec<_>, _> = ureq::tls::parse_pem(&text)
                    .filter_map(|item| match item {
                        Ok(ureq::tls::PemItem::Certificate(one)) => Some(Ok(one)),
                        Ok(_) => None,
                        Err(error) => Some(Err(error)),
                    })
                    .collect();
                let all: Vec<Certificate<'static>> =
                    all.map_err(|error| failed(error.to_string()))?;
                if all.is_empty() {
                    return Err(failed("there is no certificate in it".to_owned()));
                }
                RootCerts::from(all)
            }
        };
        let tls = TlsConfig::builder().provider(TlsProvider::Rustls).root_certs(roots).build();
        let agent = ureq::Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIME))
            .timeout_recv_response(Some(ANSWER_TIME))
            .user_agent(concat!("orrery/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Client { base, token: target.token.clone(), agent: agent.into() })
    }

    /// The address of the server.
    pub fn server(&self) -> &str {
        &self.base
    }

    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.read(path, self.send(&Method::GET, path, None)?)
    }

    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.with_body(&Method::POST, path, body)
    }

    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.with_body(&Method::PUT, path, body)
    }

    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.with_body(&Method::PATCH, path, body)
    }

    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(&Method::DELETE, path, None).map(drop)
    }

    fn with_body<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        self.read(path, self.send(method, path, Some(("application/json", &body)))?)
    }

    /// All items of a list that comes in pages.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn all<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let sign = if path.contains('?') { '&' } else { '?' };
            let at = match &after {
                None => format!("{path}{sign}limit=1000"),
                Some(after) => format!("{path}{sign}limit=1000&after={}", segment(after)),
            };
            let page: Page<T> = self.get(&at)?;
            items.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(items),
            }
        }
    }

    /// An environment by its id, its name, or `project/name`.
    ///
    /// # Errors
    /// If there is none, or more than one of the name; or as `get`.
    pub fn environment(&self, name: &str) -> Result<Environment, ClientError> {
        if let Ok(id) = name.parse::<Uuid>() {
            return self.get(&format!("/api/v1/environments/{id}"));
        }
        let all: Vec<Environment> = self.all("/api/v1/environments")?;
        let (project, own) = match name.split_once('/') {
            Some((project, own)) => (Some(project), own),
            None => (None, name),
        };
        let is_meant = |one: &&Environment| {
            one.name == own && project.is_none_or(|project| one.project_name == project)
        };
        let mut found = all.iter().filter(is_meant);
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one.clone()),
            (Some(_), Some(_)) => Err(ClientError::SeveralEnvironments(name.to_owned())),
            (None, _) => {
                let names = all.iter().map(|one| format!("{}/{}", one.project_name, one.name));
                let known = names.take(10).collect::<Vec<_>>().join(", ");
                Err(ClientError::NoEnvironment { name: name.to_owned(), known })
            }
        }
    }

    /// Those of the hashes whose content the server does not have.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn missing_files(&self, hashes: &[String]) -> Result<Vec<String>, ClientError> {
        let mut missing = Vec::new();
        for some in hashes.chunks(HASHES_MAX) {
            let asked = FileHashes { hashes: some.to_vec() };
            let answer: FileHashes = self.post("/api/v1/files/missing", &asked)?;
            missing.extend(answer.hashes);
        }
        Ok(missing)
    }

    /// Sends the content of a file.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn put_file(&self, sha1: &str, content: &[u8]) -> Result<(), ClientError> {
        let path = format!("/api/v1/files/{sha1}");
        self.send(&Method::PUT, &path, Some(("application/octet-stream", content))).map(drop)
    }

    fn read<T: DeserializeOwned>(&self, path: &str, answer: Answer) -> Result<T, ClientError> {
        // An answer without a body is `null`.
        let body = if answer.body.is_empty() { b"null".as_slice() } else { &answer.body };
        serde_json::from_slice(body).map_err(|error| ClientError::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        })
    }

    /// Sends a request, again if it may have got lost.
    fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<(&str, &[u8])>,
    ) -> Result<Answer, ClientError> {
        let key = Uuid::new_v4().to_string();
        let compressed = body.filter(|(_, body)| body.len() >= COMPRESSED_FROM);
        let compressed = compressed.and_then(|(_, body)| compress(body).ok());
        let mut attempt = 0;
        loop {
            attempt += 1;
            let answer = self.try_once(method, path, body, compressed.as_deref(), &key);
            // What a server has done may be asked for again if it recognizes it.
            let again = attempt < ATTEMPTS && *method != Method::PATCH;
            match answer {
                Ok(answer) if answer.status == 503 && again => {}
                Ok(answer) if (200..300).contains(&answer.status) => return Ok(answer),
                Ok(answer) => return Err(self.refused(path, &answer)),
                Err(_) if again => {}
                Err(cause) => {
                    return Err(ClientError::Unreachable { server: self.base.clone(), cause });
                }
            }
            std::thread::sleep(PAUSE * 2_u32.pow(attempt - 1));
        }
    }

    fn try_once(
        &self,
        method: &Method,
        path: &str,
        body: Option<(&str, &[u8])>,
        compressed: Option<&[u8]>,
        key: &str,
    ) -> Result<Answer, String> {
        let mut builder =
            http::Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            builder = builder.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        if *method == Method::POST {
            builder = builder.header("idempotency-key", key);
        }
        if let Some((media_type, _)) = body {
            builder = builder.header(header::CONTENT_TYPE, media_type);
        }
        if compressed.is_some() {
            builder = builder.header(header::CONTENT_ENCODING, "gzip");
        }
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let bytes = compressed.or(body.map(|(_, body)| body));
        let answer = match bytes {
            Some(bytes) => {
                let request = builder.body(bytes).map_err(|error| text(&error))?;
                self.agent.run(request)
            }
            None => {
                let request = builder.body(()).map_err(|error| text(&error))?;
                self.agent.run(request)
            }
        };
        let answer = answer.map_err(|error| text(&error))?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        let reader = answer.into_body().into_reader();
        reader.take(ANSWER_MAX).read_to_end(&mut body).map_err(|error| text(&error))?;
        Ok(Answer { status, body })
    }

    fn refused(&self, path: &str, answer: &Answer) -> ClientError {
        let problem = serde_json::from_slice::<Problem>(&answer.body).ok();
        match (answer.status, problem) {
            (401, _) => {
                let known = self.token.is_some();
                ClientError::NotLoggedIn { server: self.base.clone(), known }
            }
            (_, Some(problem)) => ClientError::Refused(Box::new(problem)),
            (status, None) => {
                ClientError::NoServer { server: self.base.clone(), path: path.to_owned(), status }
            }
        }
    }
}

fn compress(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let level = flate2::Compression::fast();
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(body.len() / 4), level);
    encoder.write_all(body)?;
    encoder.finish()
}

/// A text as one part of a path, or as a value after the question mark.
pub fn segment(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            shown.push(byte.into());
        } else {
            shown.push_str(&format!("%{byte:02X}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths_are_escaped() {
        assert_eq!(segment("a/b c?é"), "a%2Fb%20c%3F%C3%A9");
        assert_eq!(segment("x-1.2_~"), "x-1.2_~");
    }

    #[test]
    fn an_address_is_one_of_the_web() {
        let target = Target { server: "localhost:8888".to_owned(), ..Target::default() };
        let error = Client::new(&target).unwrap_err().to_string();
        assert!(error.contains("localhost:8888") && error.contains("https://"), "{error}");
    }
}
