//! One session: a WebSocket over mutual TLS, from the first word to its end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;

use crate::address::GatewayAddress;
use crate::asking::{AskError, connect, refusal};
use crate::protocol::{FromAgent, Hello, MESSAGE_MAX, Refusal, SESSION_PATH, ToAgent, Welcome};
use crate::running::Runner;

/// How long the gateway may take to answer a greeting, or to take a message.
const WITHIN: Duration = Duration::from_secs(30);
/// How many heartbeats may be missed.
const SILENCE: u32 = 3;
/// How long commands may go on after the agent was asked to end, and how long after they were told to.
const DRAIN_WITHIN: Duration = Duration::from_secs(20);
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

/// Why a session ended that nobody asked to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("the connection to the gateway broke")]
    Broken(#[source] Box<tungstenite::Error>),
    #[error("the gateway closed the connection")]
    Closed,
    #[error("the gateway was silent for {0} s")]
    Silent(u64),
    #[error("the gateway said something that cannot be understood")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<tungstenite::Error> for SessionError {
    fn from(error: tungstenite::Error) -> Self {
        SessionError::Broken(Box::new(error))
    }
}

/// How a session ended.
#[derive(Debug)]
pub(crate) enum End {
    /// As it was asked to; everything that was taken in is answered, or told to end.
    Stopped,
    Refused(Refusal),
    Lost {
        error: SessionError,
        welcomed: bool,
    },
}

/// Opens a session, and serves it until it ends.
pub(crate) async fn serve(
    gateway: &GatewayAddress,
    config: Arc<ClientConfig>,
    hello: Hello,
    runner: &Runner,
    stop: &CancellationToken,
) -> End {
    let opened = tokio::select! {
        opened = Session::open(gateway, config, hello) => opened,
        () = stop.cancelled() => {
            drain(runner.clone()).await;
            return End::Stopped;
        }
    };
    let mut session = match opened {
        Ok(Opened::Welcome(session)) => session,
        Ok(Opened::Refused(refusal)) => return End::Refused(refusal),
        Err(error) => return End::Lost { error, welcomed: false },
    };
    let (outbox, outgoing) = unbounded_channel();
    runner.attach(outbox);
    let end = session.talk(runner, outgoing, stop).await;
    runner.detach();
    match end {
        Ok(end) => end,
        Err(error) => End::Lost { error, welcomed: true },
    }
}

/// Lets what was taken in come to its end.
pub(crate) async fn drain(runner: Runner) {
    let ended = tokio::task::spawn_blocking(move || {
        runner.close();
        if !runner.wait(DRAIN_WITHIN) {
            tracing::warn!("commands that take too long are told to end");
            runner.cancel_all();
            if !runner.wait(CANCEL_WITHIN) {
                tracing::warn!(
                    "some commands did not end; they are looked at again when they are repeated"
                );
            }
        }
    });
    if ended.await.is_err() {
        tracing::error!("the commands did not end properly");
    }
}

enum Opened {
    Welcome(Box<Session>),
    Refused(Refusal),
}

struct Session {
    socket: WebSocketStream<TlsStream<TcpStream>>,
    silence_max: Duration,
}

impl Session {
    async fn open(
        gateway: &GatewayAddress,
        config: Arc<ClientConfig>,
        hello: Hello,
    ) -> Result<Opened, SessionError> {
        let silent = |_| SessionError::Silent(WITHIN.as_secs());
        let stream = connect(gateway, config).await?;
        let limits = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_MAX))
            .max_frame_size(Some(MESSAGE_MAX));
        let url = format!("wss://{gateway}{SESSION_PATH}");
        let shaking = client_async_with_config(url, stream, Some(limits));
        let socket = match timeout(WITHIN, shaking).await.map_err(silent)? {
            Ok((socket, _)) => socket,
            Err(tungstenite::Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                return Ok(Opened::Refused(refusal(response.status(), body)));
            }
            Err(error) => return Err(error.into()),
        };
        let mut session = Session { socket, silence_max: WITHIN };
        session.send(&FromAgent::Hello(hello)).await?;
        loop {
            let message = timeout(WITHIN, session.socket.next()).await.map_err(silent)?;
            match read(message.ok_or(SessionError::Closed)??).await? {
                None => {}
                Some(ToAgent::Welcome(welcome)) => {
                    session.silence_max = silence(&welcome);
                    tracing::info!(%gateway, agent = %welcome.agent, session = welcome.session, "connected");
                    return Ok(Opened::Welcome(Box::new(session)));
                }
                Some(ToAgent::Refuse(refusal)) => return Ok(Opened::Refused(refusal)),
                Some(ToAgent::Ping) => session.send(&FromAgent::Pong).await?,
                Some(_) => return Err(SessionError::Unreadable("no welcome".into())),
            }
        }
    }

    async fn talk(
        &mut self,
        runner: &Runner,
        mut outgoing: UnboundedReceiver<FromAgent>,
        stop: &CancellationToken,
    ) -> Result<End, SessionError> {
        let mut heard = Instant::now();
        let draining = async {
            stop.cancelled().await;
            tracing::info!("the agent ends; what it was asked for comes to its end first");
            drain(runner.clone()).await;
        };
        tokio::pin!(draining);
        loop {
            tokio::select! {
                message = self.socket.next() => {
                    heard = Instant::now();
                    match read(message.ok_or(SessionError::Closed)??).await? {
                        Some(ToAgent::Ping) => self.send(&FromAgent::Pong).await?,
                        Some(ToAgent::Refuse(refusal)) => return Ok(End::Refused(refusal)),
                        Some(message) => receive(runner, message).await,
                        None => {}
                    }
                }
                Some(message) = outgoing.recv() => self.send(&message).await?,
                () = sleep_until(heard + self.silence_max) => {
                    return Err(SessionError::Silent(self.silence_max.as_secs()));
                }
                () = &mut draining => {
                    while let Ok(message) = outgoing.try_recv() {
                        self.send(&message).await?;
                    }
                    // All is said; whether the gateway hears the farewell does not matter.
                    let _ = timeout(CANCEL_WITHIN, self.socket.close(None)).await;
                    return Ok(End::Stopped);
                }
            }
        }
    }

    async fn send(&mut self, message: &FromAgent) -> Result<(), SessionError> {
        let text = serde_json::to_string(message)
            .map_err(|error| SessionError::Unreadable(error.into()))?;
        let sent = timeout(WITHIN, self.socket.send(Message::text(text))).await;
        sent.map_err(|_| SessionError::Silent(WITHIN.as_secs()))??;
        Ok(())
    }
}

fn silence(welcome: &Welcome) -> Duration {
    Duration::from_secs(u64::from(welcome.heartbeat_seconds.max(1) * SILENCE))
}

/// What a message says; `None` if it is only a sign of life.
async fn read(message: Message) -> Result<Option<ToAgent>, SessionError> {
    let unreadable = |error| SessionError::Unreadable(error);
    match message {
        Message::Text(text) => {
            // With the contents of files in it, this takes a while.
            let reading = tokio::task::spawn_blocking(move || serde_json::from_str(&text));
            let read = reading.await.map_err(|error| unreadable(error.into()))?;
            read.map(Some).map_err(|error: serde_json::Error| unreadable(error.into()))
        }
        Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(None),
        Message::Close(_) => Err(SessionError::Closed),
        Message::Binary(_) => Err(unreadable("a message that is no text".into())),
    }
}

/// Passes a message on. It may wait for the disk.
async fn receive(runner: &Runner, message: ToAgent) {
    let runner = runner.clone();
    let received = tokio::task::spawn_blocking(move || match message {
        ToAgent::Command(command) => runner.command(*command),
        ToAgent::Cancel { id } => runner.cancel(id),
        ToAgent::Announced { id } => runner.announced(id),
        ToAgent::Welcome(_) | ToAgent::Refuse(_) | ToAgent::Ping => {}
    });
    if received.await.is_err() {
        tracing::error!("a message could not be handled");
    }
}
