//! HTTP requests from this machine.

use std::io::Read;
use std::sync::OnceLock;
use std::time::Duration;

use ureq::Agent;
use ureq::http;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

use crate::error::{Cause, TargetError, TargetVerb};
use crate::target::{CancelCause, CancelToken, Request, Response, Result};

/// HTTP client, created on first use; reuses connections.
#[derive(Debug, Default)]
pub(super) struct Client {
    agent: OnceLock<Agent>,
}

impl Client {
    pub(super) fn send(&self, request: &Request, stop: &CancelToken) -> Result<Response> {
        let error = |cause| TargetError::new(TargetVerb::Request, &*request.url, cause);
        let timeout = match (stop.reason(), stop.remaining()) {
            (Some(CancelCause::Cancelled), _) => return Err(error(Cause::Cancelled)),
            (Some(CancelCause::DeadlinePassed), _) => return Err(error(Cause::TimedOut)),
            (None, Some(remaining)) => remaining.min(request.timeout),
            (None, None) => request.timeout,
        };
        let timeout = timeout.max(Duration::from_millis(1));
        let mut builder = http::Request::builder().method(&*request.method).uri(&*request.url);
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let prepared = builder
            .body(request.body.clone().unwrap_or_default())
            .map_err(|found| error(Cause::Unexpected(found.to_string())))?;
        let agent = self.agent.get_or_init(new_agent);
        let prepared = agent.configure_request(prepared).timeout_global(Some(timeout)).build();
        let answer = agent.run(prepared).map_err(|found| error(cause(found)))?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        let limit = u64::try_from(request.body_limit).unwrap_or(u64::MAX);
        answer
            .into_body()
            .into_reader()
            .take(limit)
            .read_to_end(&mut body)
            .map_err(|found| error(Cause::from_io(found)))?;
        Ok(Response { status, body })
    }
}

fn new_agent() -> Agent {
    // The first installed provider stays.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::PlatformVerifier)
        .build();
    Agent::config_builder()
        .tls_config(tls)
        // The handler judges the status.
        .http_status_as_error(false)
        .max_redirects(0)
        .allow_non_standard_methods(true)
        .user_agent(concat!("orrery/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

fn cause(error: ureq::Error) -> Cause {
    match error {
        ureq::Error::Io(error) => Cause::from_io(error),
        ureq::Error::Timeout(_) => Cause::TimedOut,
        other => Cause::Unexpected(other.to_string()),
    }
}
