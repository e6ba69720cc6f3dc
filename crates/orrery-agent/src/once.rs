//! The helper: a process that runs commands from its standard input and ends with it.
//!
//! It speaks the messages of the agent protocol, one JSON document per line, over a channel that is
//! already protected, such as SSH. It keeps nothing: a sender that loses the channel starts another
//! helper, whose runs begin by reading the current state. Handlers that run when the input ends are
//! cancelled.

use std::io::{self, BufRead, Read as _, Write};
use std::sync::Arc;
use std::time::Duration;

use orrery_base::thread::spawn_named;
use orrery_handlers::target::Variables;
use orrery_handlers::{LocalTarget, Registry};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use uuid::Uuid;

use crate::protocol::{FromAgent, Hello, MESSAGE_MAX, Machine, PROTOCOL, ToAgent};
use crate::runner::{CommandScope, Limits, Runner, RunnerSetup};

/// Time for cancelled handlers to end: longer than a command has for its end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Runs commands until the end of the input.
///
/// # Errors
/// If the input is not a sequence of messages.
pub fn serve(input: impl BufRead, output: impl Write + Send + 'static) -> Result<(), HelperError> {
    let runner = Runner::start(RunnerSetup {
        scope: CommandScope::All,
        registry: Registry::native(),
        target: Arc::new(LocalTarget::default().with_variables(Variables::WithoutOwn)),
        policy: None,
        journal: None,
        limits: Limits { queued_max: 4096, ..Limits::default() },
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
    }));
    runner.attach(outbox.clone());
    let writer = spawn_named("helper-write", move || write_messages(outgoing, output));
    let writer = writer.map_err(HelperError::Thread)?;
    let ended = read_messages(input, &runner, |message| drop(outbox.send(message)));
    runner.close();
    runner.cancel_all();
    if !runner.wait(CANCEL_TIMEOUT) {
        tracing::warn!("some handlers did not end after the end of the input");
    }
    runner.detach();
    drop(outbox);
    if writer.join().is_err() {
        tracing::error!("writing of results failed");
    }
    ended
}

/// Passes messages to the runner until the end of the input. An incomplete last line is ignored:
/// its sender does not wait for it.
fn read_messages(
    mut input: impl BufRead,
    runner: &Runner,
    reply: impl Fn(FromAgent),
) -> Result<(), HelperError> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = MESSAGE_MAX as u64 + 1;
        input.by_ref().take(limit).read_until(b'\n', &mut line).map_err(HelperError::Read)?;
        if line.last() != Some(&b'\n') {
            if line.len() > MESSAGE_MAX {
                return Err(HelperError::Unreadable(format!("more than {MESSAGE_MAX} bytes")));
            }
            return Ok(());
        }
        let message = serde_json::from_slice(&line);
        match message.map_err(|error| HelperError::Unreadable(error.to_string()))? {
            ToAgent::Command(command) => runner.command(*command),
            ToAgent::Cancel { id } => runner.cancel(id),
            ToAgent::Announced { id } => runner.announced(id),
            ToAgent::Ping => reply(FromAgent::Pong),
            ToAgent::Refuse(refusal) => {
                tracing::warn!(reason = refusal.reason, "refused by the sender");
                return Ok(());
            }
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
