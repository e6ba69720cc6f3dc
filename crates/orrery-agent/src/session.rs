//! One session: a WebSocket over mutual TLS, from the handshake to its end.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use rustls::ClientConfig;
use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;

use crate::address::GatewayAddress;
use crate::gateway_client::{Connection, GatewayRequestError, connect, refusal};
use crate::idle_timeout::IdleTimeout;
use crate::protocol::{FromAgent, Hello, MESSAGE_MAX, Refusal, SESSION_PATH, ToAgent, Welcome};
use crate::runner::Runner;

/// Timeout of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of heartbeats that may be missed.
const MISSED_HEARTBEATS_MAX: u32 = 3;
/// Size above which a message is parsed on a blocking thread.
const LARGE_MIN: usize = 64 * 1024;
/// Time for commands to end after the agent is stopped, and after they are cancelled.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Unexpected end of a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    #[error(transparent)]
    Gateway(#[from] GatewayRequestError),
    #[error("lost the connection to the gateway")]
    Broken(#[source] Box<tungstenite::Error>),
    #[error("the gateway closed the connection")]
    Closed,
    #[error("no data from the gateway for {0} s")]
    Silent(u64),
    #[error("invalid message from the gateway")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<tungstenite::Error> for SessionError {
    fn from(error: tungstenite::Error) -> Self {
        SessionError::Broken(Box::new(error))
    }
}

impl SessionError {
    /// Maps a socket error of a session with this idle limit.
    fn from_socket(error: tungstenite::Error, idle_limit: Duration) -> Self {
        match error {
            tungstenite::Error::Io(error) if error.kind() == ErrorKind::TimedOut => {
                SessionError::Silent(idle_limit.as_secs())
            }
            error => error.into(),
        }
    }
}

/// End of a session.
#[derive(Debug)]
pub(crate) enum SessionEnd {
    /// Stopped as requested; all admitted commands are reported or cancelled.
    Stopped,
    Refused(Refusal),
    Lost {
        error: SessionError,
        welcomed: bool,
    },
}

/// Opens a session and serves it until it ends. `on_welcome` is called when it is open, and when the
/// gateway reports other addresses.
pub(crate) async fn serve(
    gateway: &GatewayAddress,
    config: Arc<ClientConfig>,
    hello: Hello,
    runner: &Runner,
    on_welcome: impl Fn(&Welcome),
    stop: &CancellationToken,
) -> SessionEnd {
    let opened = tokio::select! {
        opened = GatewaySession::open(gateway, config, hello) => opened,
        () = stop.cancelled() => {
            drain(runner.clone()).await;
            return SessionEnd::Stopped;
        }
    };
    let reports_drift;
    let session = match opened {
        Ok(OpenOutcome::Welcome(welcome, session)) => {
            on_welcome(&welcome);
            reports_drift = welcome.drift;
            session
        }
        Ok(OpenOutcome::Refused(refusal)) => return SessionEnd::Refused(refusal),
        Err(error) => return SessionEnd::Lost { error, welcomed: false },
    };
    let (outbox, outgoing) = unbounded_channel();
    let pongs = outbox.downgrade();
    runner.attach(outbox);
    if reports_drift {
        runner.report_drift();
    }
    let end = session.run(runner, pongs, outgoing, &on_welcome, stop).await;
    runner.detach();
    match end {
        Ok(end) => end,
        Err(error) => SessionEnd::Lost { error, welcomed: true },
    }
}

/// Waits for the admitted commands, then cancels the rest.
pub(crate) async fn drain(runner: Runner) {
    let ended = tokio::task::spawn_blocking(move || {
        runner.close();
        if !runner.wait(DRAIN_TIMEOUT) {
            tracing::warn!("cancelling commands that exceed the drain timeout");
            runner.cancel_all();
            if !runner.wait(CANCEL_TIMEOUT) {
                tracing::warn!(
                    "some commands did not end; they start with a read when they are repeated"
                );
            }
        }
    });
    if ended.await.is_err() {
        tracing::error!("draining commands failed");
    }
}

enum OpenOutcome {
    Welcome(Welcome, Box<GatewaySession>),
    Refused(Refusal),
}

type Socket = WebSocketStream<Connection>;

struct GatewaySession {
    socket: Socket,
    idle_limit: Duration,
}

impl GatewaySession {
    async fn open(
        gateway: &GatewayAddress,
        config: Arc<ClientConfig>,
        hello: Hello,
    ) -> Result<OpenOutcome, SessionError> {
        let stream = connect(gateway, config).await?;
        let welcomed =
            timeout(HANDSHAKE_TIMEOUT, GatewaySession::handshake(gateway, stream, hello)).await;
        welcomed.unwrap_or_else(|_| Err(SessionError::Silent(HANDSHAKE_TIMEOUT.as_secs())))
    }

    async fn handshake(
        gateway: &GatewayAddress,
        stream: Connection,
        hello: Hello,
    ) -> Result<OpenOutcome, SessionError> {
        let limits = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_MAX))
            .max_frame_size(Some(MESSAGE_MAX));
        let url = format!("wss://{gateway}{SESSION_PATH}");
        let mut socket = match client_async_with_config(url, stream, Some(limits)).await {
            Ok((socket, _)) => socket,
            Err(tungstenite::Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                return Ok(OpenOutcome::Refused(refusal(response.status(), body)));
            }
            Err(error) => return Err(error.into()),
        };
        socket.send(encode(&FromAgent::Hello(hello))?).await?;
        loop {
            let message = socket.next().await.ok_or(SessionError::Closed)??;
            match decode(message).await? {
                None => {}
                Some(ToAgent::Welcome(welcome)) => {
                    let idle_limit = idle_limit(&welcome);
                    socket
                        .get_mut()
                        .get_mut()
                        .0
                        .set_idle_timeout(IdleTimeout::Received(idle_limit));
                    tracing::info!(%gateway, agent = %welcome.agent, session = welcome.session, "connected");
                    let session = Box::new(GatewaySession { socket, idle_limit });
                    return Ok(OpenOutcome::Welcome(welcome, session));
                }
                Some(ToAgent::Refuse(refusal)) => return Ok(OpenOutcome::Refused(refusal)),
                Some(ToAgent::Ping) => socket.send(encode(&FromAgent::Pong)?).await?,
                Some(_) => return Err(SessionError::Unreadable("expected `welcome`".into())),
            }
        }
    }

    /// Receives and sends concurrently: a long result on a slow link does not delay received
    /// messages.
    async fn run(
        self: Box<Self>,
        runner: &Runner,
        pongs: WeakUnboundedSender<FromAgent>,
        outgoing: UnboundedReceiver<FromAgent>,
        on_welcome: &impl Fn(&Welcome),
        stop: &CancellationToken,
    ) -> Result<SessionEnd, SessionError> {
        let GatewaySession { socket, idle_limit } = *self;
        let (writer, reader) = socket.split();
        let receiving = receive_loop(reader, idle_limit, runner, pongs, on_welcome);
        let sending = send_loop(writer, idle_limit, outgoing);
        let draining = async {
            stop.cancelled().await;
            tracing::info!("stopping; waiting for running commands");
            drain(runner.clone()).await;
        };
        tokio::pin!(receiving, sending, draining);
        let mut drained = false;
        loop {
            tokio::select! {
                end = &mut receiving => return if drained { Ok(SessionEnd::Stopped) } else { end },
                sent = &mut sending => return sent.map(|()| SessionEnd::Stopped),
                () = &mut draining, if !drained => {
                    drained = true;
                    // Nothing more will be sent; the send loop ends after the rest.
                    runner.detach();
                }
            }
        }
    }
}

/// Receives messages of the gateway until the session ends.
async fn receive_loop(
    mut reader: SplitStream<Socket>,
    idle_limit: Duration,
    runner: &Runner,
    pongs: WeakUnboundedSender<FromAgent>,
    on_welcome: &impl Fn(&Welcome),
) -> Result<SessionEnd, SessionError> {
    loop {
        let message = reader.next().await.ok_or(SessionError::Closed)?;
        match decode(message.map_err(|error| SessionError::from_socket(error, idle_limit))?).await?
        {
            Some(ToAgent::Ping) => {
                if let Some(outbox) = pongs.upgrade() {
                    // If the receiver is gone, the session is about to end.
                    let _ = outbox.send(FromAgent::Pong);
                }
            }
            Some(ToAgent::Refuse(refusal)) => return Ok(SessionEnd::Refused(refusal)),
            Some(ToAgent::Welcome(welcome)) => on_welcome(&welcome),
            Some(message) => dispatch(runner, message).await,
            None => {}
        }
    }
}

/// Sends queued messages, and closes the connection after the last one. A message may take any time
/// as long as bytes move.
async fn send_loop(
    mut writer: SplitSink<Socket, Message>,
    idle_limit: Duration,
    mut outgoing: UnboundedReceiver<FromAgent>,
) -> Result<(), SessionError> {
    while let Some(message) = outgoing.recv().await {
        let sent = writer.send(encode(&message)?).await;
        sent.map_err(|error| SessionError::from_socket(error, idle_limit))?;
    }
    // Everything is sent; a failed close does not matter.
    let _ = timeout(CANCEL_TIMEOUT, writer.close()).await;
    Ok(())
}

fn encode(message: &FromAgent) -> Result<Message, SessionError> {
    let text = serde_json::to_string(message);
    text.map(Message::text).map_err(|error| SessionError::Unreadable(error.into()))
}

fn idle_limit(welcome: &Welcome) -> Duration {
    Duration::from_secs(u64::from(
        welcome.heartbeat_seconds.max(1).saturating_mul(MISSED_HEARTBEATS_MAX),
    ))
}

/// Decodes a message; `None` for a mere heartbeat.
async fn decode(message: Message) -> Result<Option<ToAgent>, SessionError> {
    let unreadable = |error| SessionError::Unreadable(error);
    match message {
        // An idle agent should wake up no other thread for a heartbeat.
        Message::Text(text) if text.len() < LARGE_MIN => {
            serde_json::from_str(&text).map(Some).map_err(|error| unreadable(error.into()))
        }
        Message::Text(text) => {
            // Parsing takes a while with file contents in the message.
            let reading = tokio::task::spawn_blocking(move || serde_json::from_str(&text));
            let read = reading.await.map_err(|error| unreadable(error.into()))?;
            read.map(Some).map_err(|error: serde_json::Error| unreadable(error.into()))
        }
        Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(None),
        Message::Close(_) => Err(SessionError::Closed),
        Message::Binary(_) => Err(unreadable("not a text message".into())),
    }
}

/// Passes a message to the runner. May block on the disk.
async fn dispatch(runner: &Runner, message: ToAgent) {
    let runner = runner.clone();
    let received = tokio::task::spawn_blocking(move || match message {
        ToAgent::Command(command) => runner.command(*command),
        ToAgent::Cancel { id } => runner.cancel(id),
        ToAgent::Announced { id } => runner.announced(id),
        ToAgent::Reply(answer) => runner.reply(*answer),
        ToAgent::Welcome(_) | ToAgent::Refuse(_) | ToAgent::Ping => {}
    });
    if received.await.is_err() {
        tracing::error!("handling a message failed");
    }
}
