//! Records a run while it runs: stages, their output in pieces, and heartbeats.

use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_model::Timestamp;
use orrery_store::{CompileRun, StoreError};

use crate::context::CompileContext;
use crate::output_filter::{CredentialMask, MaskingStream};

/// Time without a heartbeat after which a run counts as dead.
pub(crate) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(15);
/// Heartbeat interval.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
/// Output is flushed at this size, or after this time.
const FLUSH_BYTES: usize = 32 << 10;
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum recorded output per stage.
const STAGE_BYTES_MAX: usize = 8 << 20;

pub(crate) fn later(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp(now.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}

/// Reason why a run cannot continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunInterruption {
    /// The server stops: the run must be repeated.
    #[error("the server is stopping")]
    Stopping,
    /// The run was cancelled, or another process took it over.
    #[error("the run lost its claim")]
    Lost,
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for RunInterruption {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::StaleEpoch { .. } => RunInterruption::Lost,
            other => RunInterruption::Store(other),
        }
    }
}

/// Recorder of one run.
pub(crate) struct Recorder<'a> {
    app: &'a CompileContext,
    run: CompileRun,
    stopping: &'a dyn Fn() -> bool,
    mask: CredentialMask,
    position: i64,
    open: Option<OpenStage>,
    alive_until: Instant,
    last_heartbeat: Instant,
    /// Set once the run cannot continue.
    interrupted: Option<RunInterruption>,
}

/// A stage in progress.
struct OpenStage {
    streams: [MaskingStream; 2],
    pieces: Vec<(bool, String)>,
    bytes: usize,
    written: usize,
    since: Instant,
    /// End of the output, for messages.
    tail: String,
}

const TAIL_BYTES: usize = 4 << 10;

impl<'a> Recorder<'a> {
    pub(crate) fn new(
        app: &'a CompileContext,
        run: CompileRun,
        stopping: &'a dyn Fn() -> bool,
        mask: CredentialMask,
    ) -> Self {
        let now = monotonic();
        Recorder {
            app,
            run,
            stopping,
            mask,
            position: 0,
            open: None,
            alive_until: now + HEARTBEAT_TIMEOUT,
            last_heartbeat: now,
            interrupted: None,
        }
    }

    pub(crate) fn mask(&self) -> &CredentialMask {
        &self.mask
    }

    /// Fails if the run cannot continue.
    pub(crate) fn check(&mut self) -> Result<(), RunInterruption> {
        if self.should_continue() { Ok(()) } else { Err(self.interruption()) }
    }

    fn interruption(&mut self) -> RunInterruption {
        self.interrupted.take().unwrap_or(RunInterruption::Lost)
    }

    /// True if the run can continue; sends heartbeats.
    pub(crate) fn should_continue(&mut self) -> bool {
        if self.interrupted.is_some() {
            return false;
        }
        if (self.stopping)() {
            self.interrupted = Some(RunInterruption::Stopping);
            return false;
        }
        if self.last_heartbeat.elapsed() >= HEARTBEAT_INTERVAL {
            let until = later(self.app.now(), HEARTBEAT_TIMEOUT);
            match self.app.store().compiles().renew(&self.run, until) {
                Ok(()) => {
                    self.last_heartbeat = monotonic();
                    self.alive_until = self.last_heartbeat + HEARTBEAT_TIMEOUT;
                }
                Err(error @ StoreError::StaleEpoch { .. }) => self.interrupted = Some(error.into()),
                // A short outage of the database must not lose the work.
                Err(error) if monotonic() >= self.alive_until => {
                    self.interrupted = Some(error.into());
                }
                Err(error) => tracing::warn!(%error, "heartbeat of a compile failed"),
            }
        }
        if let Err(error) = self.flush_if_due() {
            self.interrupted = Some(error);
        }
        self.interrupted.is_none()
    }

    pub(crate) fn begin(&mut self, name: &str, command: &str) -> Result<(), RunInterruption> {
        self.check()?;
        let (store, now) = (self.app.store(), self.app.now());
        store.compiles().begin_stage(&self.run, self.position, name, command, now)?;
        self.app.wake_up();
        self.open = Some(OpenStage {
            streams: [MaskingStream::new(self.mask.clone()), MaskingStream::new(self.mask.clone())],
            pieces: Vec::new(),
            bytes: 0,
            written: 0,
            since: monotonic(),
            tail: String::new(),
        });
        Ok(())
    }

    /// Records output of the stage.
    pub(crate) fn record_output(&mut self, error: bool, bytes: &[u8]) {
        let Some(open) = &mut self.open else { return };
        let text = open.streams[usize::from(error)].push(bytes);
        open.add(error, text);
        if let Err(error) = self.flush_if_due() {
            self.interrupted.get_or_insert(error);
        }
    }

    /// Records a line of the server itself.
    pub(crate) fn record_line(&mut self, error: bool, line: &str) {
        self.record_output(error, format!("{line}\n").as_bytes());
    }

    /// Returns the end of the stage's output so far.
    pub(crate) fn output_tail(&mut self) -> String {
        let Some(open) = &mut self.open else { return String::new() };
        open.drain();
        open.tail.clone()
    }

    pub(crate) fn end(&mut self, returncode: i64) -> Result<(), RunInterruption> {
        if let Some(open) = &mut self.open {
            open.drain();
        }
        self.flush()?;
        self.open = None;
        let (store, now) = (self.app.store(), self.app.now());
        store.compiles().end_stage(&self.run, self.position, returncode, now)?;
        self.app.wake_up();
        self.position += 1;
        Ok(())
    }

    fn flush_if_due(&mut self) -> Result<(), RunInterruption> {
        let due = self.open.as_ref().is_some_and(|open| {
            open.bytes >= FLUSH_BYTES || (open.bytes > 0 && open.since.elapsed() >= FLUSH_INTERVAL)
        });
        if due { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), RunInterruption> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let pieces = std::mem::take(&mut open.pieces);
        (open.bytes, open.since) = (0, monotonic());
        if pieces.is_empty() {
            return Ok(());
        }
        let (store, now) = (self.app.store(), self.app.now());
        store.compiles().add_output(&self.run, self.position, &pieces, now)?;
        self.app.wake_up();
        Ok(())
    }
}

impl OpenStage {
    fn add(&mut self, error: bool, text: String) {
        if text.is_empty() {
            return;
        }
        self.tail.push_str(&text);
        if self.tail.len() > 2 * TAIL_BYTES {
            let from = self.tail.ceil_char_boundary(self.tail.len() - TAIL_BYTES);
            self.tail.drain(..from);
        }
        if self.written > STAGE_BYTES_MAX {
            return;
        }
        self.written += text.len();
        let text = if self.written > STAGE_BYTES_MAX {
            "\n… (output truncated)\n".to_owned()
        } else {
            text
        };
        self.bytes += text.len();
        match self.pieces.last_mut() {
            Some((of, last)) if *of == error => last.push_str(&text),
            _ => self.pieces.push((error, text)),
        }
    }

    fn drain(&mut self) {
        for error in [false, true] {
            let text = self.streams[usize::from(error)].finish();
            self.add(error, text);
        }
    }
}
