//! The host's side: does on this machine what the server asks for, with the rights of this process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orrery_handlers::target::{ContentDigest, Expected, Result, Tree};
use orrery_handlers::{Cause, LocalTarget, Moment, Operation, Permit, Stop, Target, TargetError};
use rustix::io::Errno;

use crate::wire::{WireError, Writer};

use super::channel::{Channel, Half, take_over};
use super::confines::Confines;
use super::message::{Answer, Call, ComparedOf, GroupOf, Reply, StatOf, UserOf, What};

/// How long what runs may take to end when the server is gone. A command that does not end is killed after two seconds.
const END_WITHIN: Duration = Duration::from_secs(5);
/// More bytes do not belong to one call. The server does not send more.
const BYTES_MAX: u64 = 4 << 30;

/// Serves until the other end of `control` is closed, within the confines of this process. Each connection that comes over it is served by
/// a thread of its own.
///
/// # Errors
/// If `control` fails.
pub fn serve(control: impl AsFd, confines: Confines) -> io::Result<()> {
    let target = Arc::new(Machine { target: LocalTarget::default(), confines });
    let stops = Arc::new(Stops::default());
    while let Some(stream) = take_over(control.as_fd())? {
        let (target, stops) = (Arc::clone(&target), Arc::clone(&stops));
        let refused = stream.try_clone();
        let thread = std::thread::Builder::new().name("target".to_owned());
        let served = thread.spawn(move || {
            Connection { channel: Channel::new(stream), target, stops, running: None }.serve();
        });
        if let (Err(_), Ok(stream)) = (served, refused) {
            // The limit of processes counts threads, too. Nothing was read yet, so nothing was begun.
            let error = exhausted(Operation::Run, "a thread");
            let reply = Reply::Failed(error.into());
            let _ = Channel::new(stream).send(&Answer { seq: 0, bytes: 0, reply }, &[]);
        }
    }
    let until = Instant::now() + END_WITHIN;
    while stops.cancel_all() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A shortage that passes. Handlers treat it as they treat one of file descriptors.
fn exhausted(operation: Operation, subject: &str) -> TargetError {
    let error = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
    TargetError::new(operation, subject, Cause::Io(error))
}

/// Everything that runs and can be cancelled.
#[derive(Default)]
struct Stops {
    next: AtomicU64,
    known: Mutex<BTreeMap<u64, Stop>>,
}

impl Stops {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Stop>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Knows of it until the answer is dropped.
    fn add(self: &Arc<Self>, stop: &Stop) -> Known {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, stop.clone());
        Known { stops: Arc::clone(self), number }
    }

    /// Cancels all, and says how many there are.
    fn cancel_all(&self) -> usize {
        let known = self.lock();
        known.values().for_each(Stop::cancel);
        known.len()
    }
}

struct Known {
    stops: Arc<Stops>,
    number: u64,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.stops.lock().remove(&self.number);
    }
}

/// A command or request that runs while the connection is listened to.
struct Running {
    seq: u64,
    stop: Stop,
    permit: Permit,
    thread: JoinHandle<()>,
}

/// The machine, as far as this process reaches.
struct Machine {
    target: LocalTarget,
    confines: Confines,
}

struct Connection {
    channel: Channel,
    target: Arc<Machine>,
    stops: Arc<Stops>,
    running: Option<Running>,
}

impl Connection {
    fn serve(mut self) {
        // Whatever ends the conversation, the server sees that it is over.
        while let Ok((call, bytes)) = self.channel.receive(|call: &Call| length(call.bytes)) {
            if self.take(call, bytes).is_err() {
                break;
            }
        }
        if let Some(running) = self.running.take() {
            running.stop.cancel();
            let _ = running.thread.join();
        }
    }

    fn take(&mut self, call: Call, bytes: Vec<u8>) -> std::result::Result<(), WireError> {
        let Call { seq, until, what, .. } = call;
        match what {
            What::Cancel => {
                if let Some(running) = self.running.as_ref().filter(|running| running.seq == seq) {
                    running.stop.cancel();
                }
                Ok(())
            }
            What::Extend => {
                let running = self.running.as_ref().filter(|running| running.seq == seq);
                if let (Some(running), Some(until)) = (running, until) {
                    running.permit.extend(Moment::from_nanoseconds(until));
                }
                Ok(())
            }
            What::Run { .. } | What::Request { .. } => self.begin(seq, until, what, bytes),
            what => {
                let (reply, bytes) = match permit(until).is_over() {
                    true => (Reply::Unauthorized, Vec::new()),
                    false => settle(self.target.look_or_change(what, &bytes)),
                };
                self.channel.send(&Answer { seq, bytes: bytes.len() as u64, reply }, &bytes)
            }
        }
    }

    /// Starts what may take long beside the conversation, so that it can be cancelled.
    fn begin(
        &mut self,
        seq: u64,
        until: Option<u64>,
        what: What,
        bytes: Vec<u8>,
    ) -> std::result::Result<(), WireError> {
        if let Some(former) = self.running.take() {
            // It has answered, or the server would not have asked for another one.
            let _ = former.thread.join();
        }
        let permit = permit(until);
        let stop = Stop::never().under(&permit);
        let (target, writer, own) = (Arc::clone(&self.target), self.channel.writer(), stop.clone());
        let known = self.stops.add(&stop);
        let thread = std::thread::Builder::new().name("command".to_owned());
        let thread = thread.spawn(move || {
            let _known = known;
            answer(writer, seq, target.act(what, bytes, &own));
        });
        match thread {
            Ok(thread) => self.running = Some(Running { seq, stop, permit, thread }),
            Err(_) => {
                answer(self.channel.writer(), seq, Err(exhausted(Operation::Run, "a thread")))
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

fn settle(done: Result<(Reply, Vec<u8>)>) -> (Reply, Vec<u8>) {
    done.unwrap_or_else(|error| (Reply::Failed(error.into()), Vec::new()))
}

fn answer(mut writer: Writer<Half>, seq: u64, done: Result<(Reply, Vec<u8>)>) {
    let (reply, bytes) = settle(done);
    // A server that is gone needs no answer.
    let _ = writer.send_with_bytes(&Answer { seq, bytes: bytes.len() as u64, reply }, &bytes);
}

impl Machine {
    fn act(&self, what: What, bytes: Vec<u8>, stop: &Stop) -> Result<(Reply, Vec<u8>)> {
        let done = self.confines.check(&what).and_then(|()| act(&self.target, what, bytes, stop));
        done.map_err(|error| self.confines.explain(error))
    }

    fn look_or_change(&self, what: What, bytes: &[u8]) -> Result<(Reply, Vec<u8>)> {
        let done = self.confines.check(&what);
        let done = done.and_then(|()| look_or_change(&self.target, what, bytes));
        done.map_err(|error| self.confines.explain(error))
    }
}

/// Runs a command or sends a request.
fn act(target: &LocalTarget, what: What, bytes: Vec<u8>, stop: &Stop) -> Result<(Reply, Vec<u8>)> {
    let within =
        |left: Option<Duration>| left.map_or_else(|| stop.clone(), |left| stop.within(left));
    match what {
        What::Run { mut command, time_left } => {
            command.input = bytes;
            let output = target.run(&command, &within(time_left))?;
            let stdout = output.stdout.len() as u64;
            let reply = Reply::Output { code: output.code, stdout, truncated: output.truncated };
            let mut bytes = output.stdout;
            bytes.extend_from_slice(&output.stderr);
            Ok((reply, bytes))
        }
        What::Request { mut request, has_body, time_left } => {
            request.body = has_body.then_some(bytes);
            let response = target.request(&request, &within(time_left))?;
            Ok((Reply::Response { status: response.status }, response.body))
        }
        what => look_or_change(target, what, &bytes),
    }
}

/// Does what takes no longer than the disk.
fn look_or_change(target: &LocalTarget, what: What, bytes: &[u8]) -> Result<(Reply, Vec<u8>)> {
    let reply = match what {
        What::Stat { path } => Reply::Stat(target.stat(&path)?.map(StatOf)),
        What::StatFollowing { path } => Reply::Stat(target.stat_following(&path)?.map(StatOf)),
        What::ReadFile { path, limit } => {
            let content = target.read_file(&path, limit)?;
            return Ok((Reply::Content(content.is_some()), content.unwrap_or_default()));
        }
        What::Digest { path, algorithm } => {
            Reply::Text(target.digest(&path, algorithm)?.map(|digest| digest.to_string()))
        }
        What::Compare { path, digest } => {
            let digest = digest.map(|text| text.parse::<ContentDigest>()).transpose();
            let digest = digest.map_err(|error| {
                TargetError::new(Operation::Read, &*path, Cause::Unexpected(error.to_string()))
            })?;
            let expected = digest.as_ref().map_or(Expected::Bytes(bytes), Expected::Digest);
            Reply::Compared(target.compare(&path, expected)?.map(ComparedOf))
        }
        What::WriteFile { path, ownership } => {
            target.write_file(&path, bytes, ownership)?;
            Reply::Done
        }
        What::SetAttributes { path, ownership } => {
            target.set_attributes(&path, ownership)?;
            Reply::Done
        }
        What::MakeDirectory { path, ownership } => {
            target.make_directory(&path, ownership)?;
            Reply::Done
        }
        What::MakeSymlink { path, leads_to } => {
            target.make_symlink(&path, &leads_to)?;
            Reply::Done
        }
        What::ReadLink { path } => Reply::Text(target.read_link(&path)?),
        What::RemoveFile { path } => Reply::Flag(target.remove_file(&path)?),
        What::RemoveDirectory { path, with_content } => {
            let tree = if with_content { Tree::WithContent } else { Tree::OnlyIfEmpty };
            Reply::Flag(target.remove_directory(&path, tree)?)
        }
        What::ListDirectory { path } => {
            let names = target.list_directory(&path)?;
            let mut bytes = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
            for name in names {
                bytes.extend_from_slice(name.as_bytes());
                bytes.push(0);
            }
            return Ok((Reply::Names, bytes));
        }
        What::Sync => {
            target.sync()?;
            Reply::Done
        }
        What::User(account) => Reply::User(target.user(account.name())?.map(UserOf)),
        What::Group(account) => Reply::Group(target.group(account.name())?.map(GroupOf)),
        What::SearchPath => Reply::Text(Some(target.search_path())),
        What::Which { command, search_path } => {
            Reply::Text(target.which(&command, search_path.as_deref())?)
        }
        What::Ping | What::Cancel | What::Extend => Reply::Done,
        What::Run { .. } | What::Request { .. } => {
            let cause = Cause::Unexpected("it was asked for in the wrong place".to_owned());
            return Err(TargetError::new(Operation::Run, "it", cause));
        }
    };
    Ok((reply, Vec::new()))
}
