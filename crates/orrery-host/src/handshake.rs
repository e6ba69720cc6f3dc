//! Start of every host connection: start of the process, hello, init.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use serde::{Deserialize, Serialize};

use crate::framing::{Reader, WireError, Writer, kind, parse};
use crate::process::{HostCommand, HostProcess, StartError, describe};

/// Version of the protocol.
pub const PROTOCOL: u32 = 1;

/// First message of a host.
#[derive(Clone, Debug, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub language: String,
    pub version: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HostRole {
    Compile,
    Handlers,
}

/// First message to a host. Paths that are not UTF-8 cannot be sent.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "k", rename = "init")]
pub struct Init {
    pub role: HostRole,
    pub project: PathBuf,
    /// A UUID.
    pub environment: Option<String>,
    pub data: PathBuf,
    /// Directory of file contents.
    pub files: PathBuf,
    /// True if the host must request contents that are missing in the directory.
    pub fetch: bool,
    pub tests: bool,
    /// Directories for the end of the search path.
    pub path: Vec<PathBuf>,
    pub config: serde_json::Map<String, serde_json::Value>,
    /// In load order.
    pub modules: Vec<ModuleCode>,
}

/// A module to load in a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModuleCode {
    pub name: String,
    /// Python import path.
    pub package: String,
    pub code: PathBuf,
    pub root: PathBuf,
    pub version: String,
}

/// A module that could not be loaded, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ModuleProblem {
    pub module: String,
    pub problems: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the host {name} speaks version {protocol} of the protocol; only {PROTOCOL} is known")]
    Protocol { name: String, protocol: u32 },
    #[error("the host {name} did not answer within {} seconds", limit.as_secs_f32())]
    Late { name: String, limit: Duration },
    /// The host ended, or violated the protocol.
    #[error("{}", .0)]
    Lost(LostHost),
}

/// Loss of a host: reason, exit status and last output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostHost {
    pub name: String,
    pub reason: String,
    pub last_lines: Vec<String>,
}

impl std::fmt::Display for LostHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the host {} was lost: {}", self.name, self.reason)?;
        if !self.last_lines.is_empty() {
            write!(f, "; its last output:\n{}", self.last_lines.join("\n"))?;
        }
        Ok(())
    }
}

impl LostHost {
    /// Ends the process after a connection error and collects the details.
    pub fn from_error(process: &HostProcess, error: &WireError) -> Self {
        let closed = matches!(error, WireError::Closed | WireError::Truncated);
        // A process that closes its socket ends soon; its exit status is the useful reason.
        let ended = process.wait(if closed { Duration::from_secs(1) } else { Duration::ZERO });
        let status = if closed { process.end() } else { process.kill() };
        let how = match status {
            Ok(status) if ended => describe(status),
            _ if closed => "it closed its connection and kept running; it was ended".to_owned(),
            _ => "it was killed".to_owned(),
        };
        let reason = if closed { how } else { format!("{error}; {how}") };
        LostHost { name: process.name().to_owned(), reason, last_lines: process.final_output() }
    }
}

/// A host after its hello.
#[derive(Debug)]
pub struct HostSession {
    pub process: HostProcess,
    pub reader: Reader<UnixStream>,
    pub writer: Writer<UnixStream>,
    /// The same socket, for time limits and shutdown.
    pub socket: UnixStream,
    pub hello: Hello,
}

impl HostSession {
    /// Starts a host and waits for its hello. Afterwards the socket has no time limit.
    ///
    /// # Errors
    /// Fails if the host does not start, sends no hello, or violates the protocol.
    pub fn open(command: &HostCommand, limit: Duration) -> Result<Self, HandshakeError> {
        let (process, socket) = HostProcess::start(command)?;
        let failed = |cause| StartError {
            name: command.name.clone(),
            program: command.program.clone(),
            cause,
        };
        let copy = || socket.try_clone().map_err(failed);
        let (reader, writer) = (Reader::new(copy()?), Writer::new(copy()?));
        let hello = Hello { protocol: 0, language: String::new(), version: String::new() };
        let mut session = HostSession { process, reader, writer, socket, hello };
        session.hello = session.expect("hello", limit)?;
        if session.hello.protocol != PROTOCOL {
            let protocol = session.hello.protocol;
            return Err(HandshakeError::Protocol { name: command.name.clone(), protocol });
        }
        Ok(session)
    }

    /// Waits for one message of a kind, within a limit; answers pings meanwhile.
    ///
    /// # Errors
    /// Fails on any other message, or none. The process has ended then.
    pub fn expect<T: serde::de::DeserializeOwned>(
        &mut self,
        expected_kind: &str,
        limit: Duration,
    ) -> Result<T, HandshakeError> {
        let received = self.receive(expected_kind, monotonic() + limit);
        let received =
            received.and_then(|value| Ok(self.socket.set_read_timeout(None).map(|()| value)?));
        received.map_err(|error| match error {
            WireError::TimedOut => {
                let _ = self.process.end();
                HandshakeError::Late { name: self.process.name().to_owned(), limit }
            }
            error => HandshakeError::Lost(LostHost::from_error(&self.process, &error)),
        })
    }

    fn receive<T: serde::de::DeserializeOwned>(
        &mut self,
        expected_kind: &str,
        until: Instant,
    ) -> Result<T, WireError> {
        loop {
            let left = until.saturating_duration_since(monotonic());
            if left.is_zero() {
                return Err(WireError::TimedOut);
            }
            self.socket.set_read_timeout(Some(left))?;
            let line = self.reader.read_line()?;
            match &*kind(line)? {
                kind if kind == expected_kind => return parse(line),
                "ping" => {
                    let ping: Ping = parse(line)?;
                    self.writer.send(&Pong { k: "pong", n: ping.n })?;
                }
                "pong" => {}
                other => return Err(WireError::unexpected(other)),
            }
        }
    }
}

/// Liveness check of a peer.
#[derive(Debug, Deserialize)]
pub struct Ping {
    pub n: u64,
}

/// Answer to a [`Ping`], with its number.
#[derive(Debug, Serialize)]
pub struct Pong {
    pub k: &'static str,
    pub n: u64,
}
