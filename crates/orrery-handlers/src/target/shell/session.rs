//! Runs scripts over a transport, and probes the machine once per connection.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_base::lock::IgnorePoison;

use super::cause::{failure_cause, text_cause};
use super::read_ahead::ReadAheadCache;
use super::script::Script;
use crate::error::{Cause, TargetError, TargetVerb};
use crate::target::transport::{ExecLimits, Transport};
use crate::target::{Algorithm, CancelToken, Output, Result, TransportError, TransportErrorKind};

/// Time limit of one file operation, which may read or write a large file.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(600);
/// Limit of output that is not a part of the reply, such as a greeting of the login shell.
pub(super) const NOISE_MAX: usize = 64 * 1024;
/// Limit of replies without contents.
const REPLY_MAX: usize = 4 * 1024 * 1024;
/// Changed paths that are synced one by one; more are synced all together.
const SYNCED_PATHS_MAX: usize = 16;

/// Programs and abilities of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    pub(super) uid: u32,
    pub(super) path: String,
    pub(super) md5: bool,
    pub(super) sha1: bool,
    pub(super) sha256: bool,
    pub(super) curl: bool,
    /// Program that starts a command in a session of its own.
    pub(super) session: Option<String>,
    /// `mv` never moves into a directory.
    pub(super) exact_move: bool,
    /// Open files have names below /dev/fd.
    pub(super) open_files: bool,
}

impl Capabilities {
    fn parse(text: &str) -> Self {
        let mut found = Capabilities { uid: u32::MAX, ..Capabilities::default() };
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("uid", uid)) => found.uid = uid.parse().unwrap_or(u32::MAX),
                Some(("path", path)) => path.clone_into(&mut found.path),
                Some(("session", program)) => found.session = Some(program.to_owned()),
                Some(("tool", "md5sum")) => found.md5 = true,
                Some(("tool", "sha1sum")) => found.sha1 = true,
                Some(("tool", "sha256sum")) => found.sha256 = true,
                Some(("tool", "curl")) => found.curl = true,
                Some(("tool", "mv-t")) => found.exact_move = true,
                Some(("tool", "fd")) => found.open_files = true,
                _ => {}
            }
        }
        found
    }

    /// Program that prints a digest of its input, if there is one.
    pub(super) fn digest_program(&self, algorithm: Algorithm) -> Option<&'static str> {
        match algorithm {
            Algorithm::Md5 => self.md5.then_some("md5sum"),
            Algorithm::Sha1 => self.sha1.then_some("sha1sum"),
            Algorithm::Sha256 => self.sha256.then_some("sha256sum"),
        }
    }
}

/// Changes that are not known to survive a power loss.
#[derive(Debug, Default)]
pub(super) enum PendingSync {
    #[default]
    None,
    Paths(Vec<String>),
    /// Too many paths, or the unknown ones of a command.
    All,
}

/// The reply of a script.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) word: String,
    pub(super) body: Vec<u8>,
    /// The body is incomplete.
    pub(super) truncated: bool,
}

/// Shell sessions with one machine.
pub(super) struct Session {
    transport: Arc<dyn Transport>,
    /// With the number of the connection on which they were probed.
    capabilities: Mutex<Option<(u64, Arc<Capabilities>)>>,
    pub(super) pending_sync: Mutex<PendingSync>,
    pub(super) read_ahead: ReadAheadCache,
    /// Records of commands whose end is unknown. They are ended before anything else is done.
    abandoned: Mutex<Vec<String>>,
    /// Operations that may have changed something.
    changes: AtomicU64,
}

impl Session {
    pub(super) fn new(transport: Arc<dyn Transport>) -> Self {
        Session {
            transport,
            capabilities: Mutex::default(),
            pending_sync: Mutex::default(),
            read_ahead: ReadAheadCache::default(),
            abandoned: Mutex::default(),
            changes: AtomicU64::new(0),
        }
    }

    pub(super) fn changes_started(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Counts an operation that changes something, unless it was not started.
    pub(super) fn count_change(&self, failure: Option<&Cause>) {
        let is_started = match failure {
            Some(Cause::Transport(error)) => error.may_have_run(),
            _ => true,
        };
        if is_started {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// Returns what the machine offers; asks it once per connection.
    pub(super) fn capabilities(&self, operation: TargetVerb) -> Result<Arc<Capabilities>> {
        let generation = self.transport.generation();
        if let Some((probed, found)) = &*self.capabilities.lock().ignore_poison()
            && *probed == generation
        {
            return Ok(Arc::clone(found));
        }
        let script = Script::with_library().part(include_str!("scripts/probe.sh"));
        let reply = self.exchange(operation, "the shell", script, None, REPLY_MAX);
        let reply =
            reply.map_err(|error| TargetError { cause: before_start(error.cause), ..error })?;
        let found = Arc::new(Capabilities::parse(&String::from_utf8_lossy(&reply.body)));
        tracing::debug!(destination = self.transport.destination(), ?found, "probed the shell");
        // The first operation makes the connection.
        let generation = self.transport.generation();
        *self.capabilities.lock().ignore_poison() = Some((generation, Arc::clone(&found)));
        Ok(found)
    }

    /// A script for file operations, with what its functions need.
    pub(super) fn script(&self, operation: TargetVerb) -> Result<Script> {
        let capabilities = self.capabilities(operation)?;
        let rename = if capabilities.exact_move { "mv -fT" } else { "mv -f" };
        let script = Script::default()
            .set("me", &capabilities.uid.to_string())
            .set("move", rename)
            .set("verify", if capabilities.open_files { "1" } else { "" });
        Ok(script.part(super::script::LIBRARY))
    }

    /// Runs a script that reads.
    pub(super) fn call(
        &self,
        operation: TargetVerb,
        subject: &str,
        script: Script,
    ) -> Result<Reply> {
        self.exchange(operation, subject, script, None, REPLY_MAX)
    }

    /// Runs a script that changes something, after the call of `changing`. With `data`, the script
    /// reads it from its input.
    pub(super) fn change(
        &self,
        operation: TargetVerb,
        subject: &str,
        script: Script,
        data: Option<&[u8]>,
    ) -> Result<Reply> {
        let done = self.exchange(operation, subject, script, data, REPLY_MAX);
        self.count_change(done.as_ref().err().map(|error| &error.cause));
        done
    }

    /// Runs a script with a reply of any size up to a limit.
    pub(super) fn call_with_limit(
        &self,
        operation: TargetVerb,
        subject: &str,
        script: Script,
        limit: usize,
    ) -> Result<Reply> {
        self.exchange(operation, subject, script, None, limit)
    }

    fn exchange(
        &self,
        operation: TargetVerb,
        subject: &str,
        script: Script,
        data: Option<&[u8]>,
        limit: usize,
    ) -> Result<Reply> {
        let error = |cause| TargetError::new(operation, subject, cause);
        self.end_abandoned().map_err(error)?;
        let limits = ExecLimits {
            timeout: Some(OPERATION_TIMEOUT),
            output_bytes: limit.saturating_add(NOISE_MAX),
        };
        let nonce = nonce();
        let output = self.execute(&nonce, script, data, &limits, &CancelToken::never());
        parse_reply(&nonce, output.map_err(error)?).map_err(error)
    }

    /// Runs a script as it is. Its reply begins with the nonce.
    pub(super) fn execute(
        &self,
        nonce: &str,
        script: Script,
        data: Option<&[u8]>,
        limits: &ExecLimits,
        stop: &CancelToken,
    ) -> std::result::Result<Output, Cause> {
        // In braces: a part of a script is a syntax error, so a lost connection executes nothing.
        let text = format!("{{\nnonce={nonce}\n{}}}\n", script.as_str());
        let done = match data {
            None => self.transport.exec("eval \"$(cat)\"", text.as_bytes(), limits, stop),
            Some(data) => {
                // The shell reads no byte beyond the script: the rest is for the script.
                let command = format!(
                    "s= n='\n'; while IFS= read -r l && [ \"$l\" != '#{nonce}' ]; do s=$s$l$n; done; [ \"$l\" != '#{nonce}' ] || eval \"$s\""
                );
                let mut input = format!("{text}#{nonce}\n").into_bytes();
                input.extend_from_slice(data);
                self.transport.exec(&command, &input, limits, stop)
            }
        };
        done.map_err(Cause::from_transport)
    }

    /// Records that something on the machine is about to change.
    pub(super) fn changing(&self, paths: &[&str]) {
        self.read_ahead.invalidate();
        let mut pending = self.pending_sync.lock().ignore_poison();
        match &mut *pending {
            PendingSync::None => {
                *pending = PendingSync::Paths(paths.iter().map(|&path| path.to_owned()).collect());
            }
            PendingSync::Paths(known) => {
                for path in paths {
                    if !known.iter().any(|other| other == path) {
                        known.push((*path).to_owned());
                    }
                }
                if known.len() > SYNCED_PATHS_MAX {
                    *pending = PendingSync::All;
                }
            }
            PendingSync::All => {}
        }
    }

    /// Records that a command is about to run, which may change anything.
    pub(super) fn running(&self) {
        self.read_ahead.invalidate();
        *self.pending_sync.lock().ignore_poison() = PendingSync::All;
    }

    /// Records a command that may still run.
    pub(super) fn abandon(&self, record: String) {
        self.abandoned.lock().ignore_poison().push(record);
    }

    /// Ends commands that may still run after a lost connection or a cancellation. The operation
    /// that waits for this has not started.
    pub(super) fn end_abandoned(&self) -> std::result::Result<(), Cause> {
        let records = self.abandoned.lock().ignore_poison().clone();
        if records.is_empty() {
            return Ok(());
        }
        let script = Script::with_library()
            .set("records", &records.join(" "))
            .part(include_str!("scripts/kill.sh"));
        let limits = ExecLimits { timeout: Some(OPERATION_TIMEOUT), output_bytes: NOISE_MAX };
        let nonce = nonce();
        let output = self.execute(&nonce, script, None, &limits, &CancelToken::never());
        parse_reply(&nonce, output.map_err(before_start)?)?;
        self.abandoned.lock().ignore_poison().retain(|record| !records.contains(record));
        Ok(())
    }
}

/// Cause of a failed preparation: the operation itself has not started.
fn before_start(cause: Cause) -> Cause {
    match cause {
        Cause::Transport(error) if error.kind == TransportErrorKind::Lost => {
            Cause::Transport(TransportError { kind: TransportErrorKind::Unreachable, ..error })
        }
        other => other,
    }
}

/// Mark of a reply, which no other output contains.
pub(super) fn nonce() -> String {
    // Every state has random keys.
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

/// Position of the reply in an output, after its mark.
pub(super) fn find_reply(nonce: &str, output: &[u8]) -> Option<usize> {
    let mark = format!("\n@{nonce} ");
    let at = output.windows(mark.len()).position(|window| window == mark.as_bytes())?;
    Some(at + mark.len())
}

/// Splits the first line off.
pub(super) fn split_line(text: &[u8]) -> (String, &[u8]) {
    let end = text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len());
    let line = String::from_utf8_lossy(&text[..end]).into_owned();
    (line, text.get(end + 1..).unwrap_or_default())
}

pub(super) fn parse_reply(nonce: &str, output: Output) -> std::result::Result<Reply, Cause> {
    let Some(at) = find_reply(nonce, &output.stdout) else {
        return Err(text_cause(&output));
    };
    let (word, body) = split_line(&output.stdout[at..]);
    if let Some(failure) = word.strip_prefix('!') {
        return Err(failure_cause(failure, &String::from_utf8_lossy(body)));
    }
    if !output.success() {
        return Err(text_cause(&output));
    }
    let truncated = output.truncated;
    Ok(Reply { word, body: body.to_vec(), truncated })
}
