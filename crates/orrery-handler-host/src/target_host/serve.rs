//! The host's side: executes the server's operations on this machine, with the privileges of this
//! process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_handlers::target::{ContentDigest, ExpectedContent, RemovalMode, Result};
use orrery_handlers::{
    CancelToken, Cause, LocalTarget, Moment, Permit, Target, TargetError, TargetVerb,
};
use rustix::io::Errno;

use orrery_host::framing::{WireError, Writer};

use super::channel::{Channel, SocketHalf, receive_connection};
use super::message::{Answer, Call, ComparedOf, GroupOf, Reply, StatOf, TargetOperation, UserOf};
use super::sandbox_boundary::SandboxBoundary;

/// Grace period of running commands when the server is gone. A command that does not end is killed
/// after two seconds.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Maximum bytes of one call. The server sends no more.
const BYTES_MAX: u64 = 4 << 30;

/// Serves until the other end of `control` is closed, within the sandbox of this process. Each
/// connection gets a thread of its own.
///
/// # Errors
/// Fails if `control` fails.
pub fn serve(control: impl AsFd, confines: SandboxBoundary) -> io::Result<()> {
    let target = Arc::new(Machine { target: LocalTarget::default(), confines });
    let stops = Arc::new(CancelTokens::default());
    while let Some(stream) = receive_connection(control.as_fd())? {
        let (target, stops) = (Arc::clone(&target), Arc::clone(&stops));
        let refused = stream.try_clone();
        let served = spawn_named("target", move || {
            Connection { channel: Channel::new(stream), target, stops, running: None }.serve();
        });
        if let (Err(_), Ok(stream)) = (served, refused) {
            // The process limit includes threads. Nothing was read yet, so nothing was begun.
            let error = exhausted(TargetVerb::Run, "a thread");
            let reply = Reply::Failed(error.into());
            let _ = Channel::new(stream).send(&Answer { seq: 0, bytes: 0, reply }, &[]);
        }
    }
    let until = monotonic() + END_WITHIN;
    while stops.cancel_all() > 0 && monotonic() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A temporary shortage, which handlers treat like one of file descriptors.
fn exhausted(operation: TargetVerb, subject: &str) -> TargetError {
    let error = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
    TargetError::new(operation, subject, Cause::Io(error))
}

/// Cancel tokens of all running operations.
#[derive(Default)]
struct CancelTokens {
    next: AtomicU64,
    registered: Mutex<BTreeMap<u64, CancelToken>>,
}

impl CancelTokens {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, CancelToken>> {
        self.registered.lock().ignore_poison()
    }

    /// Registers a token until the guard is dropped.
    fn add(self: &Arc<Self>, stop: &CancelToken) -> CancelGuard {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, stop.clone());
        CancelGuard { stops: Arc::clone(self), number }
    }

    /// Cancels all. Returns their number.
    fn cancel_all(&self) -> usize {
        let registered = self.lock();
        registered.values().for_each(CancelToken::cancel);
        registered.len()
    }
}

struct CancelGuard {
    stops: Arc<CancelTokens>,
    number: u64,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.stops.lock().remove(&self.number);
    }
}

/// A running command or request, while the connection is read.
struct Running {
    seq: u64,
    stop: CancelToken,
    permit: Permit,
    thread: JoinHandle<()>,
}

/// The machine, as visible to this process.
struct Machine {
    target: LocalTarget,
    confines: SandboxBoundary,
}

struct Connection {
    channel: Channel,
    target: Arc<Machine>,
    stops: Arc<CancelTokens>,
    running: Option<Running>,
}

impl Connection {
    fn serve(mut self) {
        // The server sees the end of the connection, whatever its cause.
        while let Ok((call, bytes)) = self.channel.receive(|call: &Call| length(call.bytes)) {
            if self.handle_call(call, bytes).is_err() {
                break;
            }
        }
        if let Some(running) = self.running.take() {
            running.stop.cancel();
            let _ = running.thread.join();
        }
    }

    fn handle_call(&mut self, call: Call, bytes: Vec<u8>) -> std::result::Result<(), WireError> {
        let Call { seq, until, what, .. } = call;
        match what {
            TargetOperation::Cancel => {
                if let Some(running) = self.running.as_ref().filter(|running| running.seq == seq) {
                    running.stop.cancel();
                }
                Ok(())
            }
            TargetOperation::Extend => {
                let running = self.running.as_ref().filter(|running| running.seq == seq);
                if let (Some(running), Some(until)) = (running, until) {
                    running.permit.extend(Moment::from_nanoseconds(until));
                }
                Ok(())
            }
            TargetOperation::Run { .. } | TargetOperation::Request { .. } => {
                self.begin(seq, until, what, bytes)
            }
            what => {
                let (reply, bytes) = match permit(until).is_over() {
                    true => (Reply::Unauthorized, Vec::new()),
                    false => to_reply(self.target.apply_file_operation(what, &bytes)),
                };
                self.channel.send(&Answer { seq, bytes: bytes.len() as u64, reply }, &bytes)
            }
        }
    }

    /// Starts a long operation on another thread, so that it can be cancelled.
    fn begin(
        &mut self,
        seq: u64,
        until: Option<u64>,
        what: TargetOperation,
        bytes: Vec<u8>,
    ) -> std::result::Result<(), WireError> {
        if let Some(former) = self.running.take() {
            // It has answered already: the server sends one operation at a time.
            let _ = former.thread.join();
        }
        let permit = permit(until);
        let stop = CancelToken::never().under(&permit);
        let (target, writer, own) = (Arc::clone(&self.target), self.channel.writer(), stop.clone());
        let registered = self.stops.add(&stop);
        let thread = spawn_named("command", move || {
            let _known = registered;
            answer(writer, seq, target.execute(what, bytes, &own));
        });
        match thread {
            Ok(thread) => self.running = Some(Running { seq, stop, permit, thread }),
            Err(_) => {
                answer(self.channel.writer(), seq, Err(exhausted(TargetVerb::Run, "a thread")));
            }
        }
        Ok(())
    }
}

fn length(bytes: u64) -> std::result::Result<usize, WireError> {
    usize::try_from(bytes.min(BYTES_MAX + 1))
        .ok()
        .filter(|bytes| *bytes as u64 <= BYTES_MAX)
        .ok_or(WireError::TooLong)
}

fn permit(until: Option<u64>) -> Permit {
    until.map_or_else(Permit::unlimited, |end| Permit::until(Moment::from_nanoseconds(end)))
}

fn to_reply(done: Result<(Reply, Vec<u8>)>) -> (Reply, Vec<u8>) {
    done.unwrap_or_else(|error| (Reply::Failed(error.into()), Vec::new()))
}

fn answer(mut writer: Writer<SocketHalf>, seq: u64, done: Result<(Reply, Vec<u8>)>) {
    let (reply, bytes) = to_reply(done);
    // Ignores a lost server.
    let _ = writer.send_with_bytes(&Answer { seq, bytes: bytes.len() as u64, reply }, &bytes);
}

impl Machine {
    fn execute(
        &self,
        what: TargetOperation,
        bytes: Vec<u8>,
        stop: &CancelToken,
    ) -> Result<(Reply, Vec<u8>)> {
        let done = self
            .confines
            .check(&what)
            .and_then(|()| execute_operation(&self.target, what, bytes, stop));
        done.map_err(|error| self.confines.explain(error))
    }

    fn apply_file_operation(
        &self,
        what: TargetOperation,
        bytes: &[u8],
    ) -> Result<(Reply, Vec<u8>)> {
        let done = self.confines.check(&what);
        let done = done.and_then(|()| apply_file_operation(&self.target, what, bytes));
        done.map_err(|error| self.confines.explain(error))
    }
}

/// Runs a command or sends a request.
fn execute_operation(
    target: &LocalTarget,
    what: TargetOperation,
    bytes: Vec<u8>,
    stop: &CancelToken,
) -> Result<(Reply, Vec<u8>)> {
    let within =
        |left: Option<Duration>| left.map_or_else(|| stop.clone(), |left| stop.within(left));
    match what {
        TargetOperation::Run { mut command, time_left } => {
            command.input = bytes;
            let output = target.run(&command, &within(time_left))?;
            let stdout = output.stdout.len() as u64;
            let reply = Reply::Output { code: output.code, stdout, truncated: output.truncated };
            let mut bytes = output.stdout;
            bytes.extend_from_slice(&output.stderr);
            Ok((reply, bytes))
        }
        TargetOperation::Request { mut request, has_body, time_left } => {
            request.body = has_body.then_some(bytes);
            let response = target.request(&request, &within(time_left))?;
            Ok((Reply::Response { status: response.status }, response.body))
        }
        what => apply_file_operation(target, what, &bytes),
    }
}

/// Executes a file operation, bounded by the disk.
fn apply_file_operation(
    target: &LocalTarget,
    what: TargetOperation,
    bytes: &[u8],
) -> Result<(Reply, Vec<u8>)> {
    let reply = match what {
        TargetOperation::Stat { path } => Reply::Stat(target.stat(&path)?.map(StatOf)),
        TargetOperation::StatFollowing { path } => {
            Reply::Stat(target.stat_following(&path)?.map(StatOf))
        }
        TargetOperation::ReadFile { path, limit } => {
            let content = target.read_file(&path, limit)?;
            return Ok((Reply::Content(content.is_some()), content.unwrap_or_default()));
        }
        TargetOperation::Digest { path, algorithm } => {
            Reply::Text(target.digest(&path, algorithm)?.map(|digest| digest.to_string()))
        }
        TargetOperation::Compare { path, digest } => {
            let digest = digest.map(|text| text.parse::<ContentDigest>()).transpose();
            let digest = digest.map_err(|error| {
                TargetError::new(TargetVerb::Read, &*path, Cause::Unexpected(error.to_string()))
            })?;
            let expected =
                digest.as_ref().map_or(ExpectedContent::Bytes(bytes), ExpectedContent::Digest);
            Reply::Compared(target.compare(&path, expected)?.map(ComparedOf))
        }
        TargetOperation::WriteFile { path, ownership } => {
            target.write_file(&path, bytes, ownership)?;
            Reply::Done
        }
        TargetOperation::SetAttributes { path, ownership } => {
            target.set_attributes(&path, ownership)?;
            Reply::Done
        }
        TargetOperation::MakeDirectory { path, ownership } => {
            target.make_directory(&path, ownership)?;
            Reply::Done
        }
        TargetOperation::MakeSymlink { path, leads_to } => {
            target.make_symlink(&path, &leads_to)?;
            Reply::Done
        }
        TargetOperation::ReadLink { path } => Reply::Text(target.read_link(&path)?),
        TargetOperation::RemoveFile { path } => Reply::Flag(target.remove_file(&path)?),
        TargetOperation::RemoveDirectory { path, with_content } => {
            let tree =
                if with_content { RemovalMode::WithContent } else { RemovalMode::OnlyIfEmpty };
            Reply::Flag(target.remove_directory(&path, tree)?)
        }
        TargetOperation::ListDirectory { path } => {
            let names = target.list_directory(&path)?;
            let mut bytes = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
            for name in names {
                bytes.extend_from_slice(name.as_bytes());
                bytes.push(0);
            }
            return Ok((Reply::Names, bytes));
        }
        TargetOperation::Sync => {
            target.sync()?;
            Reply::Done
        }
        TargetOperation::User(account) => Reply::User(target.user(account.name())?.map(UserOf)),
        TargetOperation::Group(account) => Reply::Group(target.group(account.name())?.map(GroupOf)),
        TargetOperation::SearchPath => Reply::Text(Some(target.search_path())),
        TargetOperation::Which { command, search_path } => {
            Reply::Text(target.which(&command, search_path.as_deref())?)
        }
        TargetOperation::Ping | TargetOperation::Cancel | TargetOperation::Extend => Reply::Done,
        TargetOperation::Run { .. } | TargetOperation::Request { .. } => {
            let cause = Cause::Unexpected("the operation is not a file operation".to_owned());
            return Err(TargetError::new(TargetVerb::Run, "it", cause));
        }
    };
    Ok((reply, Vec::new()))
}
