//! Listener: each accepted connection has its own task, handshake and deadlines, so that no peer
//! can block another.

mod slots;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use orrery_agent::idle_timeout::{IdleTimeout, IdleTimeoutStream};
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::tls::{HTTP2, Tls};

use slots::InFlight;
pub use slots::{ConnectionSlot, ConnectionSlots, SlotLimits};

/// Timeout of the TLS handshake, and of the head of the first request.
const HANDSHAKE: Duration = Duration::from_secs(10);
const FIRST: Duration = Duration::from_secs(10);

/// Timeout between a response and the head of the next request.
const NEXT: Duration = Duration::from_secs(30);

/// Idle timeout of a connection. Event streams send keep-alives more often.
const IDLE: Duration = Duration::from_secs(300);

/// Buffer for unread data of one peer.
const BUFFER_MAX: usize = 32 * 1024;
const WINDOW_OF_STREAM: u32 = 64 * 1024;
const WINDOW_OF_CONNECTION: u32 = 128 * 1024;
const STREAMS_MAX: u32 = 64;

/// Grace period for requests in progress when the server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// Encryption of connections.
#[derive(Clone)]
pub enum Encryption {
    Absent,
    Present(Tls),
    /// Mutual TLS; connections may be upgraded to WebSockets.
    Mutual {
        configs: Arc<dyn TlsConfigs>,
        /// Time without received bytes after which a connection ends.
        silence_max: Duration,
    },
}

/// TLS configurations that change at run time.
#[async_trait::async_trait]
pub trait TlsConfigs: Send + Sync {
    /// Configuration for a new connection; `None` if none can be served.
    async fn server_config(self: Arc<Self>) -> Option<Arc<rustls::ServerConfig>>;
}

/// Verified client certificate.
#[derive(Clone, Debug)]
pub struct PeerCertificate(pub CertificateDer<'static>);

/// Serves connections until `stop`, then drains the open ones. Does not wait for WebSockets.
pub async fn serve(
    listener: TcpListener,
    encryption: Encryption,
    router: Router,
    slots: Arc<ConnectionSlots>,
    stop: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    // Dropped when this function returns: closes all remaining connections.
    let cut_off = CancellationToken::new();
    let _cut_off_at_end = cut_off.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many open files, or the peer disconnected: the next connection may succeed.
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Accepted nevertheless: a full backlog would block other clients.
        let Some(slot) = slots.take(peer.ip()) else {
            tracing::debug!(%peer, "a connection is closed: authenticated clients hold all slots");
            continue;
        };
        let (encryption, router) = (encryption.clone(), router.clone());
        let watcher = graceful.watcher();
        let (cut_off, stop) = (cut_off.clone(), stop.clone());
        tokio::spawn(async move {
            let work = async {
                let prepared = tokio::select! {
                    prepared = prepare(stream, &encryption) => prepared,
                    () = stop.cancelled() => None,
                };
                let Some(ReadyConnection { io, certificate, is_http2 }) = prepared else { return };
                slot.ready();
                if certificate.is_some() {
                    slot.mark_authenticated();
                }
                let builder = builder(is_http2);
                let own = Arc::clone(&slot);
                let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
                    let in_flight = own.begin_request();
                    request.extensions_mut().insert(ConnectInfo::<SocketAddr>(peer));
                    request.extensions_mut().insert(Arc::clone(&own));
                    if let Some(certificate) = certificate.clone() {
                        request.extensions_mut().insert(PeerCertificate(certificate));
                    }
                    let answer = router.clone().call(request.map(Body::new));
                    async move {
                        let answer = answer.await?;
                        let held = |body| InFlightBody { body, _in_flight: in_flight };
                        Ok::<_, std::convert::Infallible>(answer.map(held))
                    }
                });
                let io = TokioIo::new(io);
                let ended = if let Encryption::Mutual { .. } = encryption {
                    let connection = builder.serve_connection_with_upgrades(io, service);
                    let mut connection = std::pin::pin!(connection);
                    tokio::select! {
                        ended = &mut connection => ended,
                        () = slot.overdue(FIRST, NEXT) => return,
                        () = stop.cancelled() => {
                            connection.as_mut().graceful_shutdown();
                            connection.await
                        }
                    }
                } else {
                    let connection = builder.serve_connection(io, service);
                    let at_rest = async {
                        stop.cancelled().await;
                        slot.at_rest().await;
                    };
                    tokio::select! {
                        ended = watcher.watch(connection.into_owned()) => ended,
                        () = slot.overdue(FIRST, NEXT) => return,
                        () = at_rest => return,
                    }
                };
                if let Err(error) = ended {
                    tracing::debug!(%error, %peer, "a connection ended early");
                }
            };
            tokio::select! {
                () = work => {}
                () = slot.evicted() => {}
                () = cut_off.cancelled() => {}
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("closing connections with unfinished requests");
    }
}

/// Speaks HTTP/2 only if both sides negotiated it.
fn builder(is_http2: bool) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(NEXT).max_buf_size(BUFFER_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30))
        .initial_stream_window_size(WINDOW_OF_STREAM)
        .initial_connection_window_size(WINDOW_OF_CONNECTION)
        .max_concurrent_streams(STREAMS_MAX);
    if is_http2 { builder.http2_only() } else { builder.http1_only() }
}

/// Response body that keeps its request marked as in flight.
struct InFlightBody {
    body: Body,
    _in_flight: InFlight,
}

impl HttpBody for InFlightBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection ready for requests.
struct ReadyConnection {
    io: IdleTimeoutStream,
    certificate: Option<CertificateDer<'static>>,
    is_http2: bool,
}

/// Performs the TLS handshake, and returns the client certificate if there is one.
async fn prepare(stream: TcpStream, encryption: &Encryption) -> Option<ReadyConnection> {
    // Responses are written at once; Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let config = match encryption {
        Encryption::Absent => {
            let io = IdleTimeoutStream::new(Box::new(stream), IdleTimeout::AnyTraffic(IDLE));
            return Some(ReadyConnection { io, certificate: None, is_http2: false });
        }
        Encryption::Present(tls) => tls.config(),
        Encryption::Mutual { configs, .. } => Arc::clone(configs).server_config().await?,
    };
    let life = match encryption {
        Encryption::Mutual { silence_max, .. } => IdleTimeout::Received(*silence_max),
        _ => IdleTimeout::AnyTraffic(IDLE),
    };
    let handshake = TlsAcceptor::from(config).accept(stream);
    match tokio::time::timeout(HANDSHAKE, handshake).await {
        Ok(Ok(stream)) => {
            let session = stream.get_ref().1;
            let shown = session.peer_certificates().and_then(|chain| chain.first());
            let certificate = shown.map(|certificate| certificate.clone().into_owned());
            let is_http2 = session.alpn_protocol() == Some(HTTP2);
            Some(ReadyConnection {
                io: IdleTimeoutStream::new(Box::new(stream), life),
                certificate,
                is_http2,
            })
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a handshake failed");
            None
        }
        Err(_) => None,
    }
}
