//! One session: a WebSocket over mutual TLS, from the first word to its end.

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
use crate::asking::{AskError, Connection, connect, refusal};
use crate::protocol::{FromAgent, Hello, MESSAGE_MAX, Refusal, SESSION_PATH, ToAgent, Welcome};
use crate::running::Runner;
use crate::watched::Life;

/// How long the gateway may take to answer a greeting.
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

impl SessionError {
    /// What broke a session in which the gateway may be silent for so long.
    fn of(error: tungstenite::Error, silence_max: Duration) -> Self {
        match error {
            tungstenite::Error::Io(error) if error.kind() == ErrorKind::TimedOut => {
                SessionError::Silent(silence_max.as_secs())
            }
            error => error.into(),
        }
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
    let session = match opened {
        Ok(Opened::Welcome(session)) => session,
        Ok(Opened::Refused(refusal)) => return End::Refused(refusal),
        Err(error) => return End::Lost { error, welcomed: false },
    };
    let (outbox, outgoing) = unbounded_channel();
    let pongs = outbox.downgrade();
    runner.attach(outbox);
    let end = session.talk(runner, pongs, outgoing, stop).await;
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

type Socket = WebSocketStream<Connection>;

struct Session {
    socket: Socket,
    silence_max: Duration,
}

impl Session {
    async fn open(
        gateway: &GatewayAddress,
        config: Arc<ClientConfig>,
        hello: Hello,
    ) -> Result<Opened, SessionError> {
        let stream = connect(gateway, config).await?;
        let greeted = timeout(WITHIN, Session::greet(gateway, stream, hello)).await;
        greeted.unwrap_or_else(|_| Err(SessionError::Silent(WITHIN.as_secs())))
    }

    async fn greet(
        gateway: &GatewayAddress,
        stream: Connection,
        hello: Hello,
    ) -> Result<Opened, SessionError> {
        let limits = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_MAX))
            .max_frame_size(Some(MESSAGE_MAX));
        let url = format!("wss://{gateway}{SESSION_PATH}");
        let mut socket = match client_async_with_config(url, stream, Some(limits)).await {
            Ok((socket, _)) => socket,
            Err(tungstenite::Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                return Ok(Opened::Refused(refusal(response.status(), body)));
            }
            Err(error) => return Err(error.into()),
        };
        socket.send(text_of(&FromAgent::Hello(hello))?).await?;
        loop {
            let message = socket.next().await.ok_or(SessionError::Closed)??;
            match read(message).await? {
                None => {}
                Some(ToAgent::Welcome(welcome)) => {
                    let silence_max = silence(&welcome);
                    socket.get_mut().get_mut().0.set_life(Life::Heard(silence_max));
                    tracing::info!(%gateway, agent = %welcome.agent, session = welcome.session, "connected");
                    return Ok(Opened::Welcome(Box::new(Session { socket, silence_max })));
                }
                Some(ToAgent::Refuse(refusal)) => return Ok(Opened::Refused(refusal)),
                Some(ToAgent::Ping) => socket.send(text_of(&FromAgent::Pong)?).await?,
                Some(_) => return Err(SessionError::Unreadable("no welcome".into())),
            }
        }
    }

    /// Listens and speaks at the same time: a long answer on a slow line keeps nobody from hearing what comes.
    async fn talk(
        self: Box<Self>,
        runner: &Runner,
        pongs: WeakUnboundedSender<FromAgent>,
        outgoing: UnboundedReceiver<FromAgent>,
        stop: &CancellationToken,
    ) -> Result<End, SessionError> {
        let Session { socket, silence_max } = *self;
        let (writer, reader) = socket.split();
        let listening = listen(reader, silence_max, runner, pongs);
        let speaking = speak(writer, silence_max, outgoing);
        let draining = async {
            stop.cancelled().await;
            tracing::info!("the agent ends; what it was asked for comes to its end first");
            drain(runner.clone()).await;
        };
        tokio::pin!(listening, speaking, draining);
        let mut drained = false;
        loop {
            tokio::select! {
                end = &mut listening => return if drained { Ok(End::Stopped) } else { end },
                spoken = &mut speaking => return spoken.map(|()| End::Stopped),
                () = &mut draining, if !drained => {
                    drained = true;
                    // Nothing more will be said; who speaks ends after what is left.
                    runner.detach();
                }
            }
        }
    }
}

/// Takes in what the gateway says, until the session is over.
async fn listen(
    mut reader: SplitStream<Socket>,
    silence_max: Duration,
    runner: &Runner,
    pongs: WeakUnboundedSender<FromAgent>,
) -> Result<End, SessionError> {
    loop {
        let message = reader.next().await.ok_or(SessionError::Closed)?;
        match read(message.map_err(|error| SessionError::of(error, silence_max))?).await? {
            Some(ToAgent::Ping) => {
                if let Some(outbox) = pongs.upgrade() {
                    // If nobody sends it any more, the session is about to end.
                    let _ = outbox.send(FromAgent::Pong);
                }
            }
            Some(ToAgent::Refuse(refusal)) => return Ok(End::Refused(refusal)),
            Some(message) => receive(runner, message).await,
            None => {}
        }
    }
}

/// Sends what there is to say, and closes the connection after the last of it. However long a message takes, as long as something moves.
async fn speak(
    mut writer: SplitSink<Socket, Message>,
    silence_max: Duration,
    mut outgoing: UnboundedReceiver<FromAgent>,
) -> Result<(), SessionError> {
    while let Some(message) = outgoing.recv().await {
        let sent = writer.send(text_of(&message)?).await;
        sent.map_err(|error| SessionError::of(error, silence_max))?;
    }
    // All is said; whether the gateway hears the farewell does not matter.
    let _ = timeout(CANCEL_WITHIN, writer.close()).await;
    Ok(())
}

fn text_of(message: &FromAgent) -> Result<Message, SessionError> {
    let text = serde_json::to_string(message);
    text.map(Message::text).map_err(|error| SessionError::Unreadable(error.into()))
}

fn silence(welcome: &Welcome) -> Duration {
    Duration::from_secs(u64::from(welcome.heartbeat_seconds.max(1).saturating_mul(SILENCE)))
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
