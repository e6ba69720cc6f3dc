//! One connection after another is accepted; each then has its own task, its own handshake and its own deadlines, so that no peer can hold up another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use orrery_agent::watched::{Life, Watched};
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::gateway::{MutualTls, SILENCE_MAX};
use crate::tls::Tls;

/// So many connections at once.
const CONNECTIONS_MAX: usize = 8192;

/// A peer has this long to agree on encryption, and to send the head of a request.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HEAD: Duration = Duration::from_secs(30);

/// A connection on which nothing moves for so long is closed. Streams of events send something more often.
const IDLE: Duration = Duration::from_secs(300);

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
    stop: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Dropped when this function ends: whatever is still open then is cut off.
    let cut_off = CancellationToken::new();
    let _cut_off_at_end = cut_off.clone().drop_guard();
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = stop.cancelled() => break,
        };
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
        let (encryption, router) = (encryption.clone(), router.clone());
        let watcher = graceful.watcher();
        let (cut_off, stop) = (cut_off.clone(), stop.clone());
        tokio::spawn(async move {
            let _place = place;
            let work = async {
                let prepared = tokio::select! {
                    prepared = prepare(stream, &encryption) => prepared,
                    () = stop.cancelled() => None,
                };
                let Some((io, certificate)) = prepared else { return };
                let mut builder = auto::Builder::new(TokioExecutor::new());
                builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
                builder
                    .http2()
                    .timer(TokioTimer::new())
                    .keep_alive_interval(Duration::from_secs(30))
                    .max_concurrent_streams(256);
                let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(ConnectInfo::<SocketAddr>(peer));
                    if let Some(certificate) = certificate.clone() {
                        request.extensions_mut().insert(PeerCertificate(certificate));
                    }
                    router.clone().call(request.map(Body::new))
                });
                let io = TokioIo::new(io);
                let ended = if let Encryption::Mutual(_) = encryption {
                    let connection = builder.serve_connection_with_upgrades(io, service);
                    let mut connection = std::pin::pin!(connection);
                    tokio::select! {
                        ended = &mut connection => ended,
                        () = stop.cancelled() => {
                            connection.as_mut().graceful_shutdown();
                            connection.await
                        }
                    }
                } else {
                    let connection = builder.serve_connection(io, service);
                    watcher.watch(connection.into_owned()).await
                };
                if let Err(error) = ended {
                    tracing::debug!(%error, %peer, "a connection ended early");
                }
            };
            tokio::select! {
                () = work => {}
                () = cut_off.cancelled() => {}
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests that take too long are cut off");
    }
}

/// Agrees on encryption, and says who the other side is, if it told.
async fn prepare(
    stream: TcpStream,
    encryption: &Encryption,
) -> Option<(Watched, Option<CertificateDer<'static>>)> {
    // Answers are written whole; waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let config = match encryption {
        Encryption::Absent => {
            return Some((Watched::new(Box::new(stream), Life::Moves(IDLE)), None));
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
            let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let certificate = shown.map(|certificate| certificate.clone().into_owned());
            Some((Watched::new(Box::new(stream), life), certificate))
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a handshake failed");
            None
        }
        Err(_) => None,
    }
}
