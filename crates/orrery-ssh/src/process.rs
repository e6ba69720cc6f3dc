//! A running command with byte streams: blocking ends of a channel that a task serves.

use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::target::{
    Output, ProcessControl, RemoteProcess, TransportError, TransportErrorKind,
};
use russh::ChannelMsg;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::command::{end_process, signal_number};
use crate::privilege::{Elevation, take_mark};
use crate::session::{CommandChannel, Session};

/// Chunks between the blocking ends and the task.
const CHUNKS: usize = 8;
const CHUNK_BYTES: usize = 32 * 1024;
/// Retained end of standard error in bytes.
const ERROR_BYTES: usize = 16 * 1024;

/// End of a process.
#[derive(Clone, Debug)]
enum End {
    Exited(i32),
    Lost(String),
}

#[derive(Debug, Default)]
struct Status {
    end: Option<End>,
    /// Process id on the machine; known once it has started.
    process: Option<u32>,
    errors: Vec<u8>,
}

struct Shared {
    status: Mutex<Status>,
    ended: Condvar,
    killed: CancellationToken,
    destination: String,
}

/// Serves an open channel and returns its blocking ends.
pub(crate) fn serve(
    session: Arc<Session>,
    channel: CommandChannel,
    prefix: Vec<u8>,
    elevation: Elevation,
) -> RemoteProcess {
    let shared = Arc::new(Shared {
        status: Mutex::default(),
        ended: Condvar::new(),
        killed: CancellationToken::new(),
        destination: session.address(),
    });
    let (input, input_chunks) = mpsc::channel::<Bytes>(CHUNKS);
    let (output_chunks, output) = mpsc::channel::<Bytes>(CHUNKS);
    let task = Arc::clone(&shared);
    tokio::spawn(async move {
        let end = pump(channel, prefix, input_chunks, output_chunks, &task).await;
        session.touch();
        let process = {
            let mut status = task.status.lock().ignore_poison();
            let is_left = matches!(end, End::Lost(_));
            status.end = Some(end);
            status.process.filter(|_| is_left)
        };
        task.ended.notify_all();
        if let Some(process) = process
            && task.killed.is_cancelled()
        {
            end_process(session, &elevation, process).await;
        }
    });
    RemoteProcess {
        input: Box::new(Input(input)),
        output: Box::new(ProcessOutput {
            chunks: output,
            chunk: Bytes::new(),
            shared: Arc::clone(&shared),
        }),
        control: Box::new(Control(shared)),
    }
}

async fn pump(
    channel: CommandChannel,
    prefix: Vec<u8>,
    mut input: mpsc::Receiver<Bytes>,
    output: mpsc::Sender<Bytes>,
    shared: &Shared,
) -> End {
    let CommandChannel { mut read, write, link, .. } = channel;
    let writing = async {
        let _ = write.data_bytes(prefix).await;
        while let Some(chunk) = input.recv().await {
            if write.data_bytes(chunk).await.is_err() {
                return;
            }
        }
        let _ = write.eof().await;
    };
    tokio::pin!(writing);
    let (mut written, mut code) = (false, None);
    // Dropped with the end of the output, so that its reader sees it.
    let mut output = Some(output);
    let closed = loop {
        tokio::select! {
            biased;
            () = shared.killed.cancelled() => break false,
            () = &mut writing, if !written => written = true,
            message = read.wait() => match message {
                Some(ChannelMsg::Data { data }) => {
                    let Some(sender) = &output else { continue };
                    tokio::select! {
                        () = shared.killed.cancelled() => break false,
                        sent = sender.send(data) => if sent.is_err() { output = None },
                    }
                }
                Some(ChannelMsg::ExtendedData { data, .. }) => shared.add_errors(&data),
                Some(ChannelMsg::ExitStatus { exit_status }) => {
                    code = Some(i32::try_from(exit_status).unwrap_or(255));
                }
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                    code = Some(128 + signal_number(&signal_name));
                }
                Some(ChannelMsg::Eof) => output = None,
                Some(ChannelMsg::Close) | None => break true,
                Some(_) => {}
            },
        }
    };
    if !closed {
        // Its process id may still be on the way.
        let _ = timeout(Duration::from_secs(1), async {
            while !shared.has_process() {
                match read.wait().await {
                    Some(ChannelMsg::ExtendedData { data, .. }) => shared.add_errors(&data),
                    Some(ChannelMsg::Close) | None => return,
                    Some(_) => {}
                }
            }
        })
        .await;
        let _ = timeout(Duration::from_secs(1), write.close()).await;
    }
    match code {
        Some(code) => End::Exited(code),
        None if !closed => End::Lost("it was ended".to_owned()),
        None if link.is_closed() => End::Lost(link.end_reason()),
        None => End::Lost("it ended without an exit code".to_owned()),
    }
}

struct Input(mpsc::Sender<Bytes>);

impl Write for Input {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let chunk = &data[..data.len().min(CHUNK_BYTES)];
        if chunk.is_empty() {
            return Ok(0);
        }
        let sent = self.0.blocking_send(Bytes::copy_from_slice(chunk));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct ProcessOutput {
    chunks: mpsc::Receiver<Bytes>,
    chunk: Bytes,
    shared: Arc<Shared>,
}

impl Read for ProcessOutput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => self.chunk = chunk,
                None => return self.shared.output_end(),
            }
        }
        let length = buffer.len().min(self.chunk.len());
        self.chunk.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

impl Shared {
    /// Adds data of standard error, of which the end is retained.
    fn add_errors(&self, data: &[u8]) {
        let mut status = self.status.lock().ignore_poison();
        status.errors.extend_from_slice(data);
        if status.process.is_none() {
            status.process = take_mark(&mut status.errors);
        }
        let excess = status.errors.len().saturating_sub(ERROR_BYTES);
        status.errors.drain(..excess);
    }

    fn has_process(&self) -> bool {
        self.status.lock().ignore_poison().process.is_some()
    }

    /// Ends the output: normally, or with the loss of the connection.
    fn output_end(&self) -> io::Result<usize> {
        match &self.status.lock().ignore_poison().end {
            Some(End::Lost(reason)) => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, reason.clone()))
            }
            _ => Ok(0),
        }
    }
}

struct Control(Arc<Shared>);

impl ProcessControl for Control {
    fn error_excerpt(&self) -> String {
        let stderr = self.0.status.lock().ignore_poison().errors.clone();
        Output { stderr, ..Output::default() }.error_excerpt()
    }

    fn wait(&self, limit: Duration) -> Result<Option<i32>, TransportError> {
        let deadline = monotonic().checked_add(limit);
        let mut status = self.0.status.lock().ignore_poison();
        loop {
            match &status.end {
                Some(End::Exited(code)) => return Ok(Some(*code)),
                Some(End::Lost(reason)) => {
                    let (kind, destination) = (TransportErrorKind::Lost, &self.0.destination);
                    return Err(TransportError::new(kind, destination, reason));
                }
                None => {}
            }
            let left = deadline.map(|at| at.saturating_duration_since(monotonic()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let wait = left.unwrap_or(Duration::from_mins(1));
            status = self.0.ended.wait_timeout(status, wait).ignore_poison().0;
        }
    }

    fn kill(&self) {
        self.0.killed.cancel();
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.kill();
    }
}
