//! One connection after another is accepted; each then has its own task, its own handshake and its own deadlines, so that no peer can hold up another.

mod places;

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
use orrery_agent::watched::{Life, Watched};
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::gateway::{MutualTls, SILENCE_MAX};
use crate::tls::{HTTP2, Tls};

use places::InFlight;
pub(crate) use places::{Place, PlaceLimits, Places};

/// A peer has this long to agree on encryption, and then to send the head of its first request.
const HANDSHAKE: Duration = Duration::from_secs(10);
const FIRST: Duration = Duration::from_secs(10);

/// Pause between the answer to a request and the head of the next one.
const NEXT: Duration = Duration::from_secs(30);

/// A connection on which nothing moves for so long is closed. Streams of events send something more often.
const IDLE: Duration = Duration::from_secs(300);

/// Memory for what one peer has sent and no handler has read.
const BUFFER_MAX: usize = 32 * 1024;
const WINDOW_OF_STREAM: u32 = 64 * 1024;
const WINDOW_OF_CONNECTION: u32 = 128 * 1024;
const STREAMS_MAX: u32 = 64;

/// How long requests that are under way may take when the server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// How connections are encrypted.
#[derive(Clone)]
pub(crate) enum Encryption {
    Absent,
    Present(Tls),
    /// Both sides show certificates; connections may become WebSockets.
    Mutual(Arc<MutualTls>),
}

/// The certificate that the other side showed, which was checked against the authority.
#[derive(Clone, Debug)]
pub(crate) struct PeerCertificate(pub(crate) CertificateDer<'static>);

/// Serves connections until `stop`, and then those that are open to their end. What became a WebSocket is not waited for.
pub(crate) async fn serve(
    listener: TcpListener,
    encryption: Encryption,
    router: Router,
    places: Arc<Places>,
    stop: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    // Dropped when this function ends: whatever is still open then is cut off.
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
                // Too many open files, or a peer that is gone again: others may have more luck.
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Accepted all the same: a queue of connections that nobody takes would keep others waiting.
        let Some(place) = places.take(peer.ip()) else {
            tracing::debug!(%peer, "a connection is closed: known clients have all places");
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
                let Some(Prepared { io, certificate, is_http2 }) = prepared else { return };
                place.ready();
                if certificate.is_some() {
                    place.become_known();
                }
                let builder = builder(is_http2);
                let own = Arc::clone(&place);
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
                        let held = |body| Answering { body, _in_flight: in_flight };
                        Ok::<_, std::convert::Infallible>(answer.map(held))
                    }
                });
                let io = TokioIo::new(io);
                let ended = if let Encryption::Mutual(_) = encryption {
                    let connection = builder.serve_connection_with_upgrades(io, service);
                    let mut connection = std::pin::pin!(connection);
                    tokio::select! {
                        ended = &mut connection => ended,
                        () = place.overdue(FIRST, NEXT) => return,
                        () = stop.cancelled() => {
                            connection.as_mut().graceful_shutdown();
                            connection.await
                        }
                    }
                } else {
                    let connection = builder.serve_connection(io, service);
                    let at_rest = async {
                        stop.cancelled().await;
                        place.at_rest().await;
                    };
                    tokio::select! {
                        ended = watcher.watch(connection.into_owned()) => ended,
                        () = place.overdue(FIRST, NEXT) => return,
                        () = at_rest => return,
                    }
                };
                if let Err(error) = ended {
                    tracing::debug!(%error, %peer, "a connection ended early");
                }
            };
            tokio::select! {
                () = work => {}
                () = place.evicted() => {}
                () = cut_off.cancelled() => {}
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests that take too long are cut off");
    }
}

/// HTTP/2 is spoken where both sides agreed on it, and nowhere else: a peer that begins with its preface is not asked for anything by HTTP/1.
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

/// A body of an answer, with the note that its request is under way.
struct Answering {
    body: Body,
    _in_flight: InFlight,
}

impl HttpBody for Answering {
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

/// A connection on which requests can be made.
struct Prepared {
    io: Watched,
    certificate: Option<CertificateDer<'static>>,
    is_http2: bool,
}

/// Agrees on encryption, and says who the other side is, if it told.
async fn prepare(stream: TcpStream, encryption: &Encryption) -> Option<Prepared> {
    // Answers are written whole; waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let config = match encryption {
        Encryption::Absent => {
            let io = Watched::new(Box::new(stream), Life::Moves(IDLE));
            return Some(Prepared { io, certificate: None, is_http2: false });
        }
        Encryption::Present(tls) => tls.config(),
        Encryption::Mutual(tls) => tls.config().await?,
    };
    let life = match encryption {
        Encryption::Mutual(_) => Life::Heard(SILENCE_MAX),
        _ => Life::Moves(IDLE),
    };
    let handshake = TlsAcceptor::from(config).accept(stream);
    match tokio::time::timeout(HANDSHAKE, handshake).await {
        Ok(Ok(stream)) => {
            let session = stream.get_ref().1;
            let shown = session.peer_certificates().and_then(|chain| chain.first());
            let certificate = shown.map(|certificate| certificate.clone().into_owned());
            let is_http2 = session.alpn_protocol() == Some(HTTP2);
            Some(Prepared { io: Watched::new(Box::new(stream), life), certificate, is_http2 })
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a handshake failed");
            None
        }
        Err(_) => None,
    }
}
