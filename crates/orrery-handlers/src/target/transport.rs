//! Connections to other machines over which programs are started.
//!
//! A [`Transport`] is the boundary between the client that reaches a machine and the targets that
//! act on it. It connects at the first use and again after a loss, so callers never connect
//! themselves. Every error says if the command may have run: only then is its effect unknown.

use std::fmt;
use std::io::{Read, Write};
use std::time::Duration;

use super::{CancelCause, CancelToken, CommandLine, Output};
use crate::transport_error::{InterruptCause, TransportError};

/// Limits of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecLimits {
    /// Time from the start of the command; waiting for a connection does not count.
    pub timeout: Option<Duration>,
    /// Limit of each output stream in bytes; the rest is read and dropped.
    pub output_bytes: usize,
}

impl Default for ExecLimits {
    fn default() -> Self {
        ExecLimits { timeout: None, output_bytes: CommandLine::OUTPUT_LIMIT_DEFAULT }
    }
}

/// A connection to another machine over which programs are started.
///
/// Commands run with the privilege that the destination is configured for (`sudo`, `doas`), and
/// with `/bin/sh`, whatever the login shell of the remote user is.
pub trait Transport: Send + Sync {
    /// Runs a shell command until it ends. `stop` or the time limit ends it and closes its streams.
    ///
    /// # Errors
    /// If it was not started, or its end was not seen. A command that fails is an output.
    fn exec(
        &self,
        command: &str,
        input: &[u8],
        limits: &ExecLimits,
        stop: &CancelToken,
    ) -> Result<Output, TransportError>;

    /// Starts a shell command whose standard input and output are streams. `stop` limits the wait
    /// for the connection and the start, not the process.
    ///
    /// # Errors
    /// If it was not started.
    fn start(&self, command: &str, stop: &CancelToken) -> Result<RemoteProcess, TransportError>;

    /// Writes a new file by streaming, for large contents. A failure may leave a partial file. The
    /// file belongs to the remote user unless commands run with privilege.
    ///
    /// # Errors
    /// If the file exists, or is not written completely.
    fn upload(
        &self,
        path: &str,
        content: &[u8],
        mode: u32,
        stop: &CancelToken,
    ) -> Result<(), TransportError>;

    /// Name of the machine for messages: `user@host:port`.
    fn destination(&self) -> &str;

    /// Number of the current connection; it grows with each reconnection. Processes and files of
    /// an earlier connection may be gone.
    fn generation(&self) -> u64;
}

/// A running program on another machine. Dropping it closes its streams and ends it.
pub struct RemoteProcess {
    /// Standard input; dropping it sends the end of the input.
    pub input: Box<dyn Write + Send>,
    /// Standard output; ends with the process or the connection.
    pub output: Box<dyn Read + Send>,
    pub control: Box<dyn ProcessControl>,
}

impl fmt::Debug for RemoteProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteProcess")
    }
}

/// State of a running program. Dropping it ends the program.
pub trait ProcessControl: Send + Sync {
    /// Last lines of standard error.
    fn error_excerpt(&self) -> String;

    /// Waits for the end and returns the exit code; `None` after the limit. A lost connection is an
    /// error.
    fn wait(&self, limit: Duration) -> Result<Option<i32>, TransportError>;

    /// Ends the program: closes its channel, so that it gets SIGPIPE or the end of its input, and
    /// asks the server to signal it.
    fn kill(&self);
}

impl From<CancelCause> for InterruptCause {
    fn from(cause: CancelCause) -> Self {
        match cause {
            CancelCause::Cancelled => InterruptCause::Cancelled,
            CancelCause::DeadlinePassed => InterruptCause::TimedOut,
        }
    }
}
