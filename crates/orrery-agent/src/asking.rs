//! Connections to a gateway, and the requests that are no session.

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
use crate::protocol::{Refusal, RefusalCode};
use crate::watched::{Life, Watched};

/// How long a connection may take, and a request.
const WITHIN: Duration = Duration::from_secs(30);

/// No answer is longer.
const ANSWER_MAX: usize = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    #[error(transparent)]
    Address(#[from] InvalidAddress),
    #[error("the gateway {gateway} cannot be reached")]
    Unreachable { gateway: String, source: std::io::Error },
    #[error("{gateway} is no gateway: what it answers is not TLS")]
    NoGateway { gateway: String },
    #[error("no secure connection to the gateway {gateway}")]
    Insecure { gateway: String, source: std::io::Error },
    #[error("the gateway {gateway} did not answer within {} s", WITHIN.as_secs())]
    Silent { gateway: String },
    #[error("the connection to the gateway {gateway} broke")]
    Broken { gateway: String, source: hyper::Error },
    #[error("the gateway refuses: {}", .0.reason)]
    Refused(Refusal),
    #[error("what the gateway {gateway} answers cannot be understood")]
    Unreadable { gateway: String, source: Box<dyn std::error::Error + Send + Sync> },
}

/// An encrypted connection to a gateway.
pub(crate) type Connection = TlsStream<Watched>;

/// Opens a connection.
pub(crate) async fn connect(
    gateway: &GatewayAddress,
    config: Arc<ClientConfig>,
) -> Result<Connection, AskError> {
    let name = gateway.server_name()?;
    let opening = async {
        let unreachable = |source| AskError::Unreachable { gateway: gateway.to_string(), source };
        let address = (gateway.host(), gateway.port());
        let stream = TcpStream::connect(address).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let stream = Watched::new(Box::new(stream), Life::Heard(WITHIN));
        let secured = TlsConnector::from(config).connect(name, stream).await;
        secured.map_err(|source| insecure(gateway, source))
    };
    let opened = tokio::time::timeout(WITHIN, opening).await;
    opened.unwrap_or_else(|_| Err(AskError::Silent { gateway: gateway.to_string() }))
}

fn insecure(gateway: &GatewayAddress, source: std::io::Error) -> AskError {
    let gateway = gateway.to_string();
    let cause = source.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidMessage(_)) => AskError::NoGateway { gateway },
        _ => AskError::Insecure { gateway, source },
    }
}

/// Sends a request, and reads the answer.
pub(crate) async fn post<Q: Serialize, A: DeserializeOwned>(
    gateway: &GatewayAddress,
    config: Arc<ClientConfig>,
    path: &str,
    question: &Q,
) -> Result<A, AskError> {
    let stream = connect(gateway, config).await?;
    let asked = tokio::time::timeout(WITHIN, exchange(gateway, stream, path, question)).await;
    let (status, body) =
        asked.unwrap_or_else(|_| Err(AskError::Silent { gateway: gateway.to_string() }))?;
    if !status.is_success() {
        return Err(AskError::Refused(refusal(status, &body)));
    }
    serde_json::from_slice(&body).map_err(|error| unreadable(gateway, error))
}

fn unreadable(
    gateway: &GatewayAddress,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> AskError {
    AskError::Unreadable { gateway: gateway.to_string(), source: source.into() }
}

async fn exchange<Q: Serialize>(
    gateway: &GatewayAddress,
    stream: Connection,
    path: &str,
    question: &Q,
) -> Result<(StatusCode, Bytes), AskError> {
    let broken = |source| AskError::Broken { gateway: gateway.to_string(), source };
    let body = serde_json::to_vec(question).map_err(|error| unreadable(gateway, error))?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(HOST, gateway.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| unreadable(gateway, error))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(broken)?;
    let talking = async move {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
        let body = body.map_err(|error| unreadable(gateway, error))?.to_bytes();
        Ok((status, body))
    };
    tokio::pin!(talking);
    tokio::select! {
        talked = &mut talking => talked,
        ended = connection => {
            ended.map_err(broken)?;
            talking.await
        }
    }
}

/// What the gateway says, or what its status means if it says nothing that can be understood.
pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> Refusal {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let code = match status {
            StatusCode::UNAUTHORIZED => RefusalCode::Token,
            StatusCode::FORBIDDEN => RefusalCode::Revoked,
            StatusCode::SERVICE_UNAVAILABLE => RefusalCode::Unavailable,
            _ => RefusalCode::Other,
        };
        Refusal { code, reason: format!("it answers with {status}") }
    })
}
