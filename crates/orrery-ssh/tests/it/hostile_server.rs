//! A server that speaks SSH correctly up to one point, where it is silent, or floods.

use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use orrery_testing::keygen;
use russh::server::{Auth, Config, Handler, Msg, Session, VerifiedPublicKey, run_stream};
use russh::{Channel, ChannelId, server::ChannelOpenHandle};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// Point at which the server misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Never answers the authentication.
    SilentAuthentication,
    /// Never answers the opening of a session.
    SilentOpen,
    /// Never answers the start of a command.
    SilentStart,
    /// Starts commands that never print or end.
    SilentCommand,
    /// Prints without end, on standard output or standard error.
    Flood { errors: bool },
}

/// A running server. It accepts every key.
pub(crate) struct HostileServer {
    directory: tempfile::TempDir,
    port: u16,
    sent: Arc<AtomicU64>,
    _runtime: Runtime,
}

impl HostileServer {
    pub(crate) fn start(fault: Fault) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        keygen(&["-t", "ed25519", "-f", &path("host_key")]);
        keygen(&["-t", "ed25519", "-f", &path("identity")]);
        let key = russh::keys::load_secret_key(path("host_key"), None).unwrap();
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(Config { keys: vec![key], ..Config::default() });
        let sent = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&sent);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream = CountedStream { stream, sent: Arc::clone(&counter) };
                let config = Arc::clone(&config);
                tokio::spawn(async move {
                    if let Ok(session) = run_stream(config, stream, Peer { fault }).await {
                        let _ = session.await;
                    }
                });
            }
        });
        HostileServer { directory, port, sent, _runtime: runtime }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Configuration of a client that trusts its host key at the first connection.
    pub(crate) fn config(&self) -> String {
        let directory = self.directory.path().display();
        format!(
            "IdentityFile {directory}/identity\nUserKnownHostsFile {directory}/known_hosts\n\
             GlobalKnownHostsFile none\nStrictHostKeyChecking accept-new\n"
        )
    }

    /// Bytes that clients have accepted.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// A connection that counts the bytes it sends.
struct CountedStream {
    stream: TcpStream,
    sent: Arc<AtomicU64>,
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, data);
        if let Poll::Ready(Ok(count)) = poll {
            self.sent.fetch_add(count as u64, Ordering::Relaxed);
        }
        poll
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

struct Peer {
    fault: Fault,
}

impl Handler for Peer {
    type Error = russh::Error;

    async fn auth_publickey(
        &mut self,
        _user: &str,
        _key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        if self.fault == Fault::SilentAuthentication {
            std::future::pending::<()>().await;
        }
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        if self.fault == Fault::SilentOpen {
            std::future::pending::<()>().await;
        }
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        if self.fault == Fault::SilentStart {
            std::future::pending::<()>().await;
        }
        session.channel_success(channel)?;
        let handle = session.handle();
        let fault = self.fault;
        // The mark of a command that has started.
        assert!(String::from_utf8_lossy(command).contains("orrery-command-started"));
        tokio::spawn(async move {
            let started = "orrery-command-started 77\n";
            let _ = handle.extended_data(channel, 1, started).await;
            match fault {
                Fault::Flood { errors } => loop {
                    let chunk = "x".repeat(32 * 1024);
                    let sent = match errors {
                        true => handle.extended_data(channel, 1, chunk).await.is_ok(),
                        false => handle.data(channel, chunk).await.is_ok(),
                    };
                    if !sent {
                        return;
                    }
                },
                _ => std::future::pending().await,
            }
        });
        Ok(())
    }
}
