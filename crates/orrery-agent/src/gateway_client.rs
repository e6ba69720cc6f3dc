//! Connections to a gateway, and HTTP requests outside of sessions.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::address::{GatewayAddress, InvalidAddress};
use crate::idle_timeout::{IdleTimeout, IdleTimeoutStream};
use crate::protocol::{Refusal, RefusalCode};

/// Timeout of a connection, and of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to wait for a connection before another address is tried.
pub(crate) const FAILOVER_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum size of a response, in bytes.
const RESPONSE_MAX: usize = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayRequestError {
    #[error(transparent)]
    Address(#[from] InvalidAddress),
    #[error("cannot reach the gateway {gateway}")]
    Unreachable { gateway: String, source: std::io::Error },
    #[error("{gateway} is not a gateway: it does not respond with TLS")]
    NoGateway { gateway: String },
    #[error("no secure connection to the gateway {gateway}")]
    Insecure { gateway: String, source: std::io::Error },
    #[error("the gateway {gateway} did not answer within {} s", REQUEST_TIMEOUT.as_secs())]
    Silent { gateway: String },
    #[error("lost the connection to the gateway {gateway}")]
    Broken { gateway: String, source: hyper::Error },
    #[error("refused by the gateway: {}", .0.reason)]
    Refused(Refusal),
    #[error("invalid response from the gateway {gateway}")]
    Unreadable { gateway: String, source: Box<dyn std::error::Error + Send + Sync> },
}

/// A TLS connection to a gateway.
pub(crate) type Connection = TlsStream<IdleTimeoutStream>;

/// Opens a connection.
pub(crate) async fn connect(
    gateway: &GatewayAddress,
    config: Arc<ClientConfig>,
) -> Result<Connection, GatewayRequestError> {
    let name = gateway.server_name()?;
    let opening = async {
        let unreachable =
            |source| GatewayRequestError::Unreachable { gateway: gateway.to_string(), source };
        let address = (gateway.host(), gateway.port());
        let connecting = tokio::time::timeout(FAILOVER_TIMEOUT, TcpStream::connect(address)).await;
        let timed_out = |_| Err(std::io::ErrorKind::TimedOut.into());
        let stream = connecting.unwrap_or_else(timed_out).map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let stream =
            IdleTimeoutStream::new(Box::new(stream), IdleTimeout::Received(REQUEST_TIMEOUT));
        let secured = TlsConnector::from(config).connect(name, stream).await;
        secured.map_err(|source| insecure(gateway, source))
    };
    let opened = tokio::time::timeout(REQUEST_TIMEOUT, opening).await;
    opened.unwrap_or_else(|_| Err(GatewayRequestError::Silent { gateway: gateway.to_string() }))
}

fn insecure(gateway: &GatewayAddress, source: std::io::Error) -> GatewayRequestError {
    let gateway = gateway.to_string();
    let cause = source.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidMessage(_)) => GatewayRequestError::NoGateway { gateway },
        _ => GatewayRequestError::Insecure { gateway, source },
    }
}

/// Sends a request and reads the response.
pub(crate) async fn post<Q: Serialize, A: DeserializeOwned>(
    gateway: &GatewayAddress,
    config: Arc<ClientConfig>,
    path: &str,
    request_body: &Q,
) -> Result<A, GatewayRequestError> {
    let body = serde_json::to_vec(request_body).map_err(|error| unreadable(gateway, error))?;
    request(gateway, config, Method::POST, path, body).await
}

/// Reads a document.
pub(crate) async fn get<A: DeserializeOwned>(
    gateway: &GatewayAddress,
    config: Arc<ClientConfig>,
    path: &str,
) -> Result<A, GatewayRequestError> {
    request(gateway, config, Method::GET, path, Vec::new()).await
}

async fn request<A: DeserializeOwned>(
    gateway: &GatewayAddress,
    config: Arc<ClientConfig>,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<A, GatewayRequestError> {
    let stream = connect(gateway, config).await?;
    let exchanged =
        tokio::time::timeout(REQUEST_TIMEOUT, exchange(gateway, stream, method, path, body)).await;
    let (status, body) = exchanged
        .unwrap_or_else(|_| Err(GatewayRequestError::Silent { gateway: gateway.to_string() }))?;
    if !status.is_success() {
        return Err(GatewayRequestError::Refused(refusal(status, &body)));
    }
    serde_json::from_slice(&body).map_err(|error| unreadable(gateway, error))
}

fn unreadable(
    gateway: &GatewayAddress,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> GatewayRequestError {
    GatewayRequestError::Unreadable { gateway: gateway.to_string(), source: source.into() }
}

async fn exchange(
    gateway: &GatewayAddress,
    stream: Connection,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<(StatusCode, Bytes), GatewayRequestError> {
    let broken = |source| GatewayRequestError::Broken { gateway: gateway.to_string(), source };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, gateway.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| unreadable(gateway, error))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(broken)?;
    let conversation = async move {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), RESPONSE_MAX).collect().await;
        let body = body.map_err(|error| unreadable(gateway, error))?.to_bytes();
        Ok((status, body))
    };
    tokio::pin!(conversation);
    tokio::select! {
        result = &mut conversation => result,
        ended = connection => {
            ended.map_err(broken)?;
            conversation.await
        }
    }
}

/// Returns the gateway's refusal, or one that is derived from the status.
pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> Refusal {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let code = match status {
            StatusCode::UNAUTHORIZED => RefusalCode::Token,
            StatusCode::FORBIDDEN => RefusalCode::Revoked,
            StatusCode::SERVICE_UNAVAILABLE => RefusalCode::Unavailable,
            _ => RefusalCode::Other,
        };
        Refusal { code, reason: format!("status {status}") }
    })
}
