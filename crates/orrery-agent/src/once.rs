//! The helper: a process that runs commands from its standard input and ends with it.
//!
//! It speaks the messages of the agent protocol, one JSON document per line, over a channel that is
//! already protected, such as SSH. It keeps nothing: a sender that loses the channel starts another
//! helper, whose runs begin by reading the current state. Handlers that run when the input ends are
//! cancelled. A helper without messages and runs for a time ends too: its sender may have
//! disappeared without closing the channel.

use std::io::{self, BufRead, Read as _, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use orrery_base::thread::spawn_named;
use orrery_handlers::drift::FileWatch;
use orrery_handlers::target::Variables;
use orrery_handlers::{LocalTarget, Registry};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use uuid::Uuid;

use crate::code_runner::CodeRunner;
use crate::protocol::{FromAgent, Hello, MESSAGE_MAX, Machine, PROTOCOL, ToAgent};
use crate::runner::{CommandScope, Limits, Runner, RunnerSetup};

/// Time for cancelled handlers to end: longer than a command has for its end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Time without messages and runs after which a helper ends. Senders end idle helpers earlier.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Messages that are read ahead of the runner.
const READ_AHEAD: usize = 16;

/// Reason why a helper cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelperError {
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    #[error("cannot read commands")]
    Read(#[source] io::Error),
    #[error("cannot read a message: {0}")]
    Unreadable(String),
}

/// Runs commands until the end of the input, or until nothing happened for `idle_timeout`. Without a
/// `code_runner`, only native handlers run.
///
/// # Errors
/// If the input is not a sequence of messages.
pub fn serve(
    input: impl BufRead + Send + 'static,
    output: impl Write + Send + 'static,
    idle_timeout: Duration,
    code_runner: Option<Arc<dyn CodeRunner>>,
) -> Result<(), HelperError> {
    let runs_python = code_runner.is_some();
    let watch = Arc::new(FileWatch::default());
    let target = LocalTarget::default().with_variables(Variables::WithoutOwn);
    let runner = Runner::start(RunnerSetup {
        scope: CommandScope::All,
        registry: Registry::native(),
        target: Arc::new(target.with_watch(Arc::clone(&watch) as _)),
        watch: Some(watch),
        policy: None,
        journal: None,
        limits: Limits { queued_max: 4096, ..Limits::default() },
        code_runner: code_runner.clone(),
    });
    let runner = runner.map_err(HelperError::Thread)?;
    let (outbox, outgoing) = unbounded_channel();
    let _ = outbox.send(FromAgent::Hello(Hello {
        protocol: PROTOCOL,
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        boot: Uuid::new_v4(),
        running: Vec::new(),
        machine: Machine::current(),
        types: Vec::new(),
        python: runs_python,
    }));
    runner.attach(outbox.clone());
    let writer = spawn_named("helper-write", move || write_messages(outgoing, output));
    let writer = writer.map_err(HelperError::Thread)?;
    let (sender, messages) = sync_channel(READ_AHEAD);
    // Ends with the input. After a timeout it waits for input until the process ends.
    spawn_named("helper-read", move || read_messages(input, &sender))
        .map_err(HelperError::Thread)?;
    let reply = |message| drop(outbox.send(message));
    let ended = pass_messages(&messages, &runner, idle_timeout, reply);
    runner.close();
    runner.cancel_all();
    if !runner.wait(CANCEL_TIMEOUT) {
        tracing::warn!("some handlers did not end after the end of the input");
    }
    if let Some(code_runner) = &code_runner {
        code_runner.close();
    }
    runner.detach();
    drop(outbox);
    if writer.join().is_err() {
        tracing::error!("writing of results failed");
    }
    ended
}

/// Reads messages until the end of the input. An incomplete last line is ignored: its sender does
/// not wait for it.
fn read_messages(mut input: impl BufRead, messages: &SyncSender<Result<ToAgent, HelperError>>) {
    loop {
        let message = read_message(&mut input);
        let is_last = !matches!(message, Ok(Some(_)));
        let Some(message) = message.transpose() else { return };
        if messages.send(message).is_err() || is_last {
            return;
        }
    }
}

fn read_message(input: &mut impl BufRead) -> Result<Option<ToAgent>, HelperError> {
    let mut line = Vec::new();
    let limit = MESSAGE_MAX as u64 + 1;
    input.by_ref().take(limit).read_until(b'\n', &mut line).map_err(HelperError::Read)?;
    if line.last() != Some(&b'\n') {
        if line.len() > MESSAGE_MAX {
            return Err(HelperError::Unreadable(format!("more than {MESSAGE_MAX} bytes")));
        }
        return Ok(None);
    }
    let message = serde_json::from_slice(&line);
    message.map(Some).map_err(|error| HelperError::Unreadable(error.to_string()))
}

/// Passes messages to the runner until the last one, or until nothing happened for a time.
fn pass_messages(
    messages: &Receiver<Result<ToAgent, HelperError>>,
    runner: &Runner,
    idle_timeout: Duration,
    reply: impl Fn(FromAgent),
) -> Result<(), HelperError> {
    loop {
        let message = match messages.recv_timeout(idle_timeout) {
            Ok(message) => message?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) if !runner.active_commands().is_empty() => continue,
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!(?idle_timeout, "no message from the sender; the helper ends");
                return Ok(());
            }
        };
        match message {
            ToAgent::Command(command) => runner.command(*command),
            ToAgent::Cancel { id } => runner.cancel(id),
            ToAgent::Announced { id } => runner.announced(id),
            ToAgent::Reply(answer) => runner.reply(*answer),
            ToAgent::Ping => reply(FromAgent::Pong),
            ToAgent::Refuse(refusal) => {
                tracing::warn!(reason = refusal.reason, "refused by the sender");
                return Ok(());
            }
            ToAgent::Welcome(welcome) if welcome.drift => runner.report_drift(),
            ToAgent::Welcome(_) => {}
        }
    }
}

/// Writes messages until all senders are gone. Those that wait share one write.
fn write_messages(mut outgoing: UnboundedReceiver<FromAgent>, output: impl Write) {
    let mut output = io::BufWriter::new(output);
    while let Some(message) = outgoing.blocking_recv() {
        let mut waiting = Some(message);
        while let Some(message) = waiting {
            if let Err(error) = write_message(&message, &mut output) {
                tracing::warn!(%error, "cannot write a result; the sender is gone");
                return;
            }
            waiting = outgoing.try_recv().ok();
        }
        if let Err(error) = output.flush() {
            tracing::warn!(%error, "cannot write results; the sender is gone");
            return;
        }
    }
}

fn write_message(message: &FromAgent, output: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *output, message)?;
    output.write_all(b"\n")
}
