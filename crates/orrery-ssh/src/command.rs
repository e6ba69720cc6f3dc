//! Runs one command on an open connection to its end, with bounded output.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orrery_handlers::target::{ExecLimits, Output};
use russh::{ChannelMsg, Sig};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::privilege::{Elevation, MARK_WITHIN, take_mark};
use crate::session::{CommandChannel, Session, StartError};

/// Time in which the output of an ended command must end, too: a background process that it left
/// may hold the streams open for ever.
const OUTPUT_AFTER_EXIT: Duration = Duration::from_secs(1);
/// Time for the answer to the request to end a command.
const END_TIME: Duration = Duration::from_secs(1);
/// Time for the end of a process that is no longer wanted.
const KILL_TIME: Duration = Duration::from_secs(3);
/// Output of a command that ends another one, which prints nothing.
const KILL_OUTPUT_MAX: usize = 256 * 1024;
/// Type of the data on standard error.
const STDERR: u32 = 1;

/// Failure of a command.
#[derive(Debug)]
pub(crate) enum CommandError {
    Start(StartError),
    /// Cancelled before it was started.
    NotStarted,
    /// Cancelled after it was started.
    Cancelled,
    TimedOut,
    /// Its end was not seen.
    Lost(String),
    /// The login shell or `sudo` did not start it; the text is what they printed.
    NotPermitted(String),
}

/// A command with its input and limits.
pub(crate) struct Command {
    pub(crate) elevation: Elevation,
    pub(crate) script: String,
    pub(crate) input: Vec<u8>,
    pub(crate) limits: ExecLimits,
}

/// Output stream with a limit.
#[derive(Debug)]
struct Stream {
    bytes: Vec<u8>,
    limit: usize,
    dropped: u64,
}

impl Stream {
    fn new(limit: usize) -> Self {
        Stream { bytes: Vec::new(), limit, dropped: 0 }
    }

    fn push(&mut self, data: &[u8]) {
        let fits = data.len().min(self.limit - self.bytes.len());
        self.bytes.extend_from_slice(&data[..fits]);
        self.dropped += (data.len() - fits) as u64;
    }
}

/// Opens a channel. A cancelled caller returns at once; the channel is closed when it opens.
pub(crate) async fn open_channel(
    session: &Arc<Session>,
    cancel: &CancellationToken,
) -> Result<CommandChannel, CommandError> {
    let opener = Arc::clone(session);
    let mut opening = tokio::spawn(async move { opener.open().await });
    tokio::select! {
        biased;
        opened = &mut opening => match opened {
            Ok(opened) => opened.map_err(CommandError::Start),
            Err(_) => Err(CommandError::NotStarted),
        },
        () = cancel.cancelled() => {
            tokio::spawn(async move {
                if let Ok(Ok(channel)) = opening.await {
                    let _ = channel.write.close().await;
                }
            });
            Err(CommandError::NotStarted)
        }
    }
}

/// Asks for the start of a command and waits for the answer.
pub(crate) async fn request_start(
    session: &Session,
    channel: &mut CommandChannel,
    line: &str,
) -> Result<(), StartError> {
    let lost = |channel: &CommandChannel| StartError::Lost(channel.link.end_reason());
    if channel.write.exec(true, line).await.is_err() {
        return Err(lost(channel));
    }
    let limit = session.context().limits.channel;
    let answer = timeout(limit, async {
        loop {
            match channel.read.wait().await {
                Some(ChannelMsg::Success) => return Some(true),
                Some(ChannelMsg::Failure) => return Some(false),
                Some(ChannelMsg::WindowAdjusted { .. }) => {}
                // Data before the answer is against the protocol.
                Some(_) | None => return None,
            }
        }
    });
    match answer.await {
        Ok(Some(true)) => Ok(()),
        Ok(Some(false)) => {
            let _ = channel.write.close().await;
            Err(StartError::Refused("the machine refuses to run commands".to_owned()))
        }
        Ok(None) => Err(lost(channel)),
        Err(_) => {
            session.discard(&channel.link).await;
            Err(StartError::Lost(format!(
                "no answer within {} s while a command was started",
                limit.as_secs()
            )))
        }
    }
}

/// Runs a command to its end.
pub(crate) async fn run_command(
    session: Arc<Session>,
    command: Command,
    cancel: CancellationToken,
) -> Result<Output, CommandError> {
    let Command { elevation, script, input, limits } = command;
    let wrapped = elevation.wrap(&script);
    let input = [wrapped.input_prefix, input].concat();
    let mut channel = open_channel(&session, &cancel).await?;
    request_start(&session, &mut channel, &wrapped.line).await.map_err(CommandError::Start)?;
    let mut running = Running {
        stdout: Stream::new(limits.output_bytes),
        stderr: Stream::new(limits.output_bytes.saturating_add(MARK_WITHIN)),
        process: None,
        code: None,
    };
    let ended = running.follow(&session, &mut channel, input.into(), &limits, &cancel).await;
    session.touch();
    if ended.is_err() {
        let _ = timeout(END_TIME, running.await_process(&mut channel)).await;
    }
    let link = Arc::clone(&channel.link);
    let _ = timeout(END_TIME, channel.write.close()).await;
    // Its session is free for the command that ends it.
    drop(channel);
    if let Err(error) = ended {
        if let Some(process) = running.process {
            end_process(session, &elevation, process).await;
        }
        return Err(error);
    }
    let Running { stdout, mut stderr, process, code } = running;
    let Some(code) = code else {
        let reason = match link.is_closed() {
            true => link.end_reason(),
            false => "the command ended without an exit code".to_owned(),
        };
        return Err(CommandError::Lost(reason));
    };
    if process.is_none() {
        let refused = Output { code, stdout: stdout.bytes, stderr: stderr.bytes, truncated: false };
        return Err(CommandError::NotPermitted(refused.error_excerpt()));
    }
    let excess = stderr.bytes.len().saturating_sub(limits.output_bytes);
    stderr.bytes.truncate(limits.output_bytes);
    let truncated = stdout.dropped + stderr.dropped + excess as u64 > 0;
    Ok(Output { code, stdout: stdout.bytes, stderr: stderr.bytes, truncated })
}

/// Ends a process that is no longer wanted: closing its channel does not reach one that neither
/// reads nor writes. Bounded; the failure to do so changes nothing about the command's error.
pub(crate) async fn end_process(session: Arc<Session>, elevation: &Elevation, process: u32) {
    let wrapped = elevation.wrap_kill(process);
    let end = async {
        let Ok(mut channel) = open_channel(&session, &CancellationToken::new()).await else {
            return;
        };
        if request_start(&session, &mut channel, &wrapped.line).await.is_ok() {
            let _ = channel.write.data_bytes(wrapped.input_prefix).await;
            let _ = channel.write.eof().await;
            // Until it has signalled: the channel is closed by the machine afterwards.
            let mut printed = 0;
            while let Some(message) = channel.read.wait().await {
                match message {
                    ChannelMsg::Close | ChannelMsg::ExitStatus { .. } => break,
                    ChannelMsg::Data { data } | ChannelMsg::ExtendedData { data, .. } => {
                        printed += data.len();
                    }
                    _ => {}
                }
                // It is the machine that floods, not a command.
                if printed > KILL_OUTPUT_MAX {
                    tracing::warn!(destination = %session.address(), "disconnected a machine that floods");
                    return session.discard(&channel.link).await;
                }
            }
        }
        let _ = channel.write.close().await;
    };
    if timeout(KILL_TIME, end).await.is_err() {
        tracing::warn!(destination = %session.address(), process, "could not end a remote command");
    }
}

/// State of a running command.
struct Running {
    stdout: Stream,
    stderr: Stream,
    /// Process id; known once it has started.
    process: Option<u32>,
    code: Option<i32>,
}

impl Running {
    /// Writes the input and collects the output until the end.
    async fn follow(
        &mut self,
        session: &Session,
        channel: &mut CommandChannel,
        input: Bytes,
        limits: &ExecLimits,
        cancel: &CancellationToken,
    ) -> Result<(), CommandError> {
        let deadline = limits.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let dropped_max = session.context().limits.dropped_bytes;
        let CommandChannel { read, write, .. } = channel;
        let writing = async {
            let _ = write.data_bytes(input).await;
            let _ = write.eof().await;
        };
        tokio::pin!(writing);
        let (mut written, mut quiet_at) = (false, None);
        loop {
            tokio::select! {
                message = read.wait() => {
                    let Some(message) = message else { return Ok(()) };
                    if matches!(message, ChannelMsg::Close) {
                        return Ok(());
                    }
                    self.receive(message);
                    if self.stdout.dropped + self.stderr.dropped > dropped_max {
                        let reason = format!("it printed more than {dropped_max} bytes too many");
                        return Err(CommandError::Lost(reason));
                    }
                    if self.code.is_some() {
                        quiet_at = Some(Instant::now() + OUTPUT_AFTER_EXIT);
                    }
                }
                () = &mut writing, if !written => written = true,
                () = cancel.cancelled() => return Err(CommandError::Cancelled),
                () = until(deadline) => return Err(CommandError::TimedOut),
                () = until(quiet_at) => return Ok(()),
            }
        }
    }

    /// Waits for the process id of a command that was interrupted while it was being started.
    async fn await_process(&mut self, channel: &mut CommandChannel) {
        while self.process.is_none() {
            match channel.read.wait().await {
                Some(ChannelMsg::Close) | None => return,
                Some(message) => self.receive(message),
            }
        }
    }

    fn receive(&mut self, message: ChannelMsg) {
        match message {
            ChannelMsg::Data { data } => self.stdout.push(&data),
            ChannelMsg::ExtendedData { data, ext: STDERR } => {
                self.stderr.push(&data);
                if self.process.is_none() {
                    self.process = take_mark(&mut self.stderr.bytes);
                }
            }
            ChannelMsg::ExitStatus { exit_status } => {
                self.code = Some(i32::try_from(exit_status).unwrap_or(255));
            }
            ChannelMsg::ExitSignal { signal_name, .. } => {
                self.code = Some(128 + signal_number(&signal_name));
            }
            _ => {}
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

pub(crate) fn signal_number(signal: &Sig) -> i32 {
    match signal {
        Sig::HUP => 1,
        Sig::INT => 2,
        Sig::QUIT => 3,
        Sig::ILL => 4,
        Sig::ABRT => 6,
        Sig::FPE => 8,
        Sig::KILL => 9,
        Sig::USR1 => 10,
        Sig::SEGV => 11,
        Sig::PIPE => 13,
        Sig::ALRM => 14,
        Sig::TERM => 15,
        Sig::Custom(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_beyond_the_limit_is_counted_and_dropped() {
        let mut stream = Stream::new(4);
        stream.push(b"abc");
        stream.push(b"def");
        assert_eq!((&stream.bytes[..], stream.dropped), (&b"abcd"[..], 2));
    }
}
