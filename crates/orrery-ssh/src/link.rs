//! One connection: TCP or a tunnel through a jump host, key exchange, host key, authentication.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::Secrets;
use russh::client::{self, Handle, Msg};
use russh::{ChannelStream, Preferred, SshId, compression};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::authenticate::authenticate;
use crate::config::LocalUser;
use crate::credentials::{Credentials, read_credentials};
use crate::error::ConnectError;
use crate::guarded_stream::{ByteStream, EXCEEDED, GuardedStream, StreamGuard};
use crate::host_key::HostKeyCheck;
use crate::limits::ConnectionLimits;
use crate::peer::{Peer, PeerError};
use crate::route::Hop;
use crate::tunnel::TunnelStream;

/// Bytes on the way to each channel; large enough for links with a long round trip.
const WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// Packets that wait for their reader. A slow reader holds up its own connection only.
const CHANNEL_PACKETS: usize = 16;

/// Inputs of an attempt to connect.
#[derive(Clone)]
pub(crate) struct ConnectContext {
    pub(crate) local: LocalUser,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) uses_own_keys: bool,
    pub(crate) limits: ConnectionLimits,
}

/// An authenticated connection. Dropping it closes it.
pub(crate) struct Link {
    pub(crate) handle: Handle<Peer>,
    pub(crate) generation: u64,
    pub(crate) connected_at: Instant,
    guard: StreamGuard,
    end: Arc<Mutex<Option<String>>>,
    /// Connection to the jump host, which lives as long as this one.
    _via: Option<Arc<Link>>,
}

impl Link {
    pub(crate) fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Reason for the end of the connection, for messages.
    pub(crate) fn end_reason(&self) -> String {
        let reason = self.end.lock().ignore_poison().clone();
        reason.unwrap_or_else(|| "the connection was lost".to_owned())
    }

    pub(crate) async fn close(&self) {
        let goodbye = self.handle.disconnect(russh::Disconnect::ByApplication, "", "");
        let _ = timeout(Duration::from_secs(1), goodbye).await;
        self.guard.close();
    }
}

/// Makes a connection, through a jump host if there is one.
pub(crate) async fn connect(
    hop: &Hop,
    via: Option<(Arc<Link>, String)>,
    context: &ConnectContext,
    generation: u64,
) -> Result<Link, ConnectError> {
    let limits = &context.limits;
    let (check, credentials) = read_inputs(hop, context).await?;
    let destination = &hop.destination;
    let connect_limit = destination.connect_timeout.unwrap_or(limits.connect);
    let stream = within("connecting", connect_limit, async {
        match &via {
            Some((link, name)) => {
                // All that a machine may send before its connection reads again.
                let unread_max = (limits.sessions + 1) * WINDOW_BYTES as usize;
                let stream = tunnel(link, name, &destination.host, destination.port).await?;
                Ok(Box::new(TunnelStream::new(stream, unread_max)) as Box<dyn ByteStream>)
            }
            None => dial(&destination.host, destination.port, connect_limit).await,
        }
    })
    .await?;
    let (stream, guard) = GuardedStream::new(stream, limits.unauthenticated_bytes);
    let end = Arc::default();
    let check = Arc::new(check);
    let config = Arc::new(protocol_config(&check, limits));
    let peer = Peer { check, end: Arc::clone(&end) };
    // As with OpenSSH, the configured time is that of the key exchange, too.
    let handshake_limit = destination.connect_timeout.unwrap_or(limits.handshake);
    let mut handle = within("exchanging keys", handshake_limit, async {
        client::connect_stream(config, stream, peer).await.map_err(handshake_error)
    })
    .await?;
    within("authenticating", limits.authentication, async {
        authenticate(&mut handle, &destination.user, credentials).await
    })
    .await
    .map_err(|error| match guard.is_exceeded() {
        // Not a refusal of the user.
        true => ConnectError::Protocol(EXCEEDED.to_owned()),
        false => error,
    })?;
    guard.set_authenticated();
    let connected_at = monotonic();
    Ok(Link { handle, generation, connected_at, guard, end, _via: via.map(|(link, _)| link) })
}

async fn within<T>(
    stage: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    timeout(limit, work).await.unwrap_or(Err(ConnectError::Timeout { stage, limit }))
}

/// Reads files and secrets, away from the threads of connections.
async fn read_inputs(
    hop: &Hop,
    context: &ConnectContext,
) -> Result<(HostKeyCheck, Credentials), ConnectError> {
    let (hop, context) = (hop.clone(), context.clone());
    let read = tokio::task::spawn_blocking(move || {
        let check = HostKeyCheck::read(&hop.destination)?;
        let own = context.uses_own_keys;
        let credentials = read_credentials(&hop, &context.local, &*context.secrets, own)?;
        Ok((check, credentials))
    });
    read.await.unwrap_or(Err(ConnectError::Closed))
}

/// Connects to the first address that answers. Each address has its part of the time.
async fn dial(host: &str, port: u16, limit: Duration) -> Result<Box<dyn ByteStream>, ConnectError> {
    let found = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<SocketAddr> = match found {
        Ok(addresses) => addresses.collect(),
        Err(source) => return Err(ConnectError::Resolve { host: host.to_owned(), source }),
    };
    let part = limit / u32::try_from(addresses.len()).unwrap_or(1).max(1);
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match timeout(part, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).map_err(|source| ConnectError::Connect { source })?;
                return Ok(Box::new(stream));
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::from(io::ErrorKind::TimedOut),
        }
    }
    match last.kind() {
        io::ErrorKind::TimedOut => Err(ConnectError::Timeout { stage: "connecting", limit }),
        _ => Err(ConnectError::Connect { source: last }),
    }
}

async fn tunnel(
    link: &Link,
    name: &str,
    host: &str,
    port: u16,
) -> Result<ChannelStream<Msg>, ConnectError> {
    let opened = link.handle.channel_open_direct_tcpip(host, port.into(), "127.0.0.1", 0).await;
    match opened {
        Ok(channel) => Ok(channel.into_stream()),
        Err(error) => {
            let reason = match error {
                russh::Error::ChannelOpenFailure(reason) => format!("{reason:?}"),
                other => other.to_string(),
            };
            Err(ConnectError::Tunnel { host: name.to_owned(), reason })
        }
    }
}

fn protocol_config(check: &HostKeyCheck, limits: &ConnectionLimits) -> client::Config {
    client::Config {
        client_id: SshId::Standard(Cow::Borrowed("SSH-2.0-Orrery")),
        window_size: WINDOW_BYTES,
        channel_buffer_size: CHANNEL_PACKETS,
        preferred: Preferred {
            key: Cow::Owned(check.algorithms()),
            host_key_certificates: Cow::Owned(check.certificate_algorithms()),
            // A compressed packet can be much larger than it seems.
            compression: Cow::Borrowed(&[compression::NONE]),
            ..Preferred::DEFAULT
        },
        keepalive_interval: Some(limits.keepalive),
        keepalive_max: limits.keepalives_max,
        // Nothing at all happens on a connection for so long only if its peer does not read.
        inactivity_timeout: Some(limits.keepalive * (limits.keepalives_max as u32 + 2)),
        nodelay: true,
        ..client::Config::default()
    }
}

fn handshake_error(error: PeerError) -> ConnectError {
    match error {
        PeerError::HostKey(error) => ConnectError::HostKey(error),
        PeerError::Protocol(russh::Error::IO(error)) => match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => ConnectError::ClosedEarly,
            _ => ConnectError::Protocol(error.to_string()),
        },
        PeerError::Protocol(russh::Error::HUP | russh::Error::Disconnect) => {
            ConnectError::ClosedEarly
        }
        PeerError::Protocol(russh::Error::NoCommonAlgo { kind, theirs, .. }) => {
            let theirs = theirs.join(", ");
            ConnectError::Protocol(format!("no common {kind:?} algorithm; it offers {theirs}"))
        }
        PeerError::Protocol(other) => ConnectError::Protocol(other.to_string()),
    }
}
