//! How every conversation begins: the process is started, says hello, and is told what it is there for.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::process::{HostCommand, HostProcess, StartError, describe};
use crate::wire::{Reader, WireError, Writer, kind, parse};

/// The version of the protocol that is spoken here.
pub const PROTOCOL: u32 = 1;

/// What a host says first.
#[derive(Clone, Debug, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub language: String,
    pub version: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Compile,
    Handlers,
}

/// What a host is told first. Paths that are not UTF-8 cannot be sent.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "k", rename = "init")]
pub struct Init {
    pub role: Role,
    pub project: PathBuf,
    /// A UUID.
    pub environment: Option<String>,
    pub data: PathBuf,
    /// The directory of file contents.
    pub files: PathBuf,
    /// Contents that are not in the directory have to be asked for.
    pub fetch: bool,
    pub tests: bool,
    /// What goes to the end of the search path.
    pub path: Vec<PathBuf>,
    pub config: serde_json::Map<String, serde_json::Value>,
    /// In the order of loading.
    pub modules: Vec<ModuleCode>,
}

/// A module whose code a host loads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModuleCode {
    pub name: String,
    /// As Python imports it.
    pub package: String,
    pub code: PathBuf,
    pub root: PathBuf,
    pub version: String,
}

/// A module that could not be loaded, and why.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ModuleProblem {
    pub module: String,
    pub problems: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the host {name} speaks version {protocol} of the protocol; only {PROTOCOL} is known")]
    Protocol { name: String, protocol: u32 },
    #[error("the host {name} did not answer within {} seconds", limit.as_secs_f32())]
    Late { name: String, limit: Duration },
    /// It ended, or said something that is no part of the protocol.
    #[error("{}", .0)]
    Lost(Lost),
}

/// How a host was lost: why, how its process ended, and what it printed last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub name: String,
    pub reason: String,
    pub last_lines: Vec<String>,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the host {} was lost: {}", self.name, self.reason)?;
        if !self.last_lines.is_empty() {
            write!(f, "; its last output:\n{}", self.last_lines.join("\n"))?;
        }
        Ok(())
    }
}

impl Lost {
    /// Ends the process after an error of the wire and says all that is known about it.
    pub fn after(process: &HostProcess, error: &WireError) -> Self {
        let closed = matches!(error, WireError::Closed | WireError::Truncated);
        // A process that closes its socket ends in a moment, and how is what people want to know.
        let ended = process.wait(if closed { Duration::from_secs(1) } else { Duration::ZERO });
        let status = if closed { process.end() } else { process.kill() };
        let how = match status {
            Ok(status) if ended => describe(status),
            _ if closed => "it closed its connection and went on; it was ended".to_owned(),
            _ => "it was killed".to_owned(),
        };
        let reason = if closed { how } else { format!("{error}; {how}") };
        Lost { name: process.name().to_owned(), reason, last_lines: process.last_words() }
    }
}

/// A host that has said hello.
#[derive(Debug)]
pub struct Session {
    pub process: HostProcess,
    pub reader: Reader<UnixStream>,
    pub writer: Writer<UnixStream>,
    /// The same socket, to set time limits on and to shut it down.
    pub socket: UnixStream,
    pub hello: Hello,
}

impl Session {
    /// Starts a host and waits for its hello. Afterwards the socket has no time limits.
    ///
    /// # Errors
    /// If it does not start, does not speak, or speaks something else.
    pub fn open(command: &HostCommand, limit: Duration) -> Result<Self, SessionError> {
        let (process, socket) = HostProcess::start(command)?;
        let failed = |cause| StartError {
            name: command.name.clone(),
            program: command.program.clone(),
            cause,
        };
        let copy = || socket.try_clone().map_err(failed);
        let (reader, writer) = (Reader::new(copy()?), Writer::new(copy()?));
        let hello = Hello { protocol: 0, language: String::new(), version: String::new() };
        let mut session = Session { process, reader, writer, socket, hello };
        session.hello = session.expect("hello", limit)?;
        if session.hello.protocol != PROTOCOL {
            let protocol = session.hello.protocol;
            return Err(SessionError::Protocol { name: command.name.clone(), protocol });
        }
        Ok(session)
    }

    /// Waits for one message of a certain kind, for at most so long; pings are answered meanwhile.
    ///
    /// # Errors
    /// If something else comes, or nothing. The process has ended then.
    pub fn expect<T: serde::de::DeserializeOwned>(
        &mut self,
        wanted: &str,
        limit: Duration,
    ) -> Result<T, SessionError> {
        let received = self.receive(wanted, Instant::now() + limit);
        let received =
            received.and_then(|value| Ok(self.socket.set_read_timeout(None).map(|()| value)?));
        received.map_err(|error| match error {
            WireError::TimedOut => {
                let _ = self.process.end();
                SessionError::Late { name: self.process.name().to_owned(), limit }
            }
            error => SessionError::Lost(Lost::after(&self.process, &error)),
        })
    }

    fn receive<T: serde::de::DeserializeOwned>(
        &mut self,
        wanted: &str,
        until: Instant,
    ) -> Result<T, WireError> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WireError::TimedOut);
            }
            self.socket.set_read_timeout(Some(left))?;
            let line = self.reader.read_line()?;
            match &*kind(line)? {
                kind if kind == wanted => return parse(line),
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

#[derive(Deserialize)]
pub(crate) struct Ping {
    pub(crate) n: u64,
}

#[derive(Serialize)]
pub(crate) struct Pong {
    pub(crate) k: &'static str,
    pub(crate) n: u64,
}
