//! What a run says, written down while it runs: stages, their output in pieces, and that it is still alive.

use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_store::{CompileRun, StoreError};

use super::text::{Mask, Masked};
use crate::app::App;

/// A run that is not heard of for so long is believed to be dead.
pub(crate) const ALIVE_FOR: Duration = Duration::from_secs(15);
/// How often it says that it is alive.
const BEAT: Duration = Duration::from_secs(3);
/// Output is written down when there is so much of it, or after a moment.
const PIECE_BYTES: usize = 32 << 10;
const PIECE_TIME: Duration = Duration::from_millis(250);
/// More than this of one stage is not kept.
const STAGE_BYTES_MAX: usize = 8 << 20;

pub(crate) fn later(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp(now.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}

/// Why a run does not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Interrupted {
    /// The server ends: the run is to be done again.
    #[error("the server is stopping")]
    Stopping,
    /// Somebody cancelled it, or believes it dead.
    #[error("the run has lost its right")]
    Lost,
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for Interrupted {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::StaleEpoch { .. } => Interrupted::Lost,
            other => Interrupted::Store(other),
        }
    }
}

/// Writes down what one run says.
pub(crate) struct Recorder<'a> {
    app: &'a App,
    run: CompileRun,
    stopping: &'a dyn Fn() -> bool,
    mask: Mask,
    position: i64,
    open: Option<Open>,
    alive_until: Instant,
    last_beat: Instant,
    /// Why it does not go on, once that is known.
    interrupted: Option<Interrupted>,
}

/// A stage that has not ended.
struct Open {
    streams: [Masked; 2],
    pieces: Vec<(bool, String)>,
    bytes: usize,
    written: usize,
    since: Instant,
    /// The end of what it said, for messages.
    tail: String,
}

const TAIL_BYTES: usize = 4 << 10;

impl<'a> Recorder<'a> {
    pub(crate) fn new(
        app: &'a App,
        run: CompileRun,
        stopping: &'a dyn Fn() -> bool,
        mask: Mask,
    ) -> Self {
        let now = Instant::now();
        Recorder {
            app,
            run,
            stopping,
            mask,
            position: 0,
            open: None,
            alive_until: now + ALIVE_FOR,
            last_beat: now,
            interrupted: None,
        }
    }

    pub(crate) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Fails if the run is not to go on.
    pub(crate) fn check(&mut self) -> Result<(), Interrupted> {
        if self.go_on() { Ok(()) } else { Err(self.why()) }
    }

    fn why(&mut self) -> Interrupted {
        self.interrupted.take().unwrap_or(Interrupted::Lost)
    }

    /// Whether the run goes on; says now and then that it is alive.
    pub(crate) fn go_on(&mut self) -> bool {
        if self.interrupted.is_some() {
            return false;
        }
        if (self.stopping)() {
            self.interrupted = Some(Interrupted::Stopping);
            return false;
        }
        if self.last_beat.elapsed() >= BEAT {
            let until = later(self.app.now(), ALIVE_FOR);
            match self.app.store().records().keep_compile_alive(&self.run, until) {
                Ok(()) => {
                    self.last_beat = Instant::now();
                    self.alive_until = self.last_beat + ALIVE_FOR;
                }
                Err(error @ StoreError::StaleEpoch { .. }) => self.interrupted = Some(error.into()),
                // A database that is away for a moment is no reason to lose the work.
                Err(error) if Instant::now() >= self.alive_until => {
                    self.interrupted = Some(error.into());
                }
                Err(error) => tracing::warn!(%error, "a compile cannot say that it is alive"),
            }
        }
        if let Err(error) = self.flush_if_due() {
            self.interrupted = Some(error);
        }
        self.interrupted.is_none()
    }

    pub(crate) fn begin(&mut self, name: &str, command: &str) -> Result<(), Interrupted> {
        self.check()?;
        let (records, now) = (self.app.store().records(), self.app.now());
        records.begin_stage(&self.run, self.position, name, command, now)?;
        self.app.nudge();
        self.open = Some(Open {
            streams: [Masked::new(self.mask.clone()), Masked::new(self.mask.clone())],
            pieces: Vec::new(),
            bytes: 0,
            written: 0,
            since: Instant::now(),
            tail: String::new(),
        });
        Ok(())
    }

    /// What the stage wrote.
    pub(crate) fn said(&mut self, error: bool, bytes: &[u8]) {
        let Some(open) = &mut self.open else { return };
        let text = open.streams[usize::from(error)].push(bytes);
        open.add(error, text);
        if let Err(error) = self.flush_if_due() {
            self.interrupted.get_or_insert(error);
        }
    }

    /// A line of the server's own.
    pub(crate) fn say(&mut self, error: bool, line: &str) {
        self.said(error, format!("{line}\n").as_bytes());
    }

    /// The end of what the stage said so far.
    pub(crate) fn tail(&mut self) -> String {
        let Some(open) = &mut self.open else { return String::new() };
        open.drain();
        open.tail.clone()
    }

    pub(crate) fn end(&mut self, returncode: i64) -> Result<(), Interrupted> {
        if let Some(open) = &mut self.open {
            open.drain();
        }
        self.flush()?;
        self.open = None;
        let (records, now) = (self.app.store().records(), self.app.now());
        records.end_stage(&self.run, self.position, returncode, now)?;
        self.app.nudge();
        self.position += 1;
        Ok(())
    }

    fn flush_if_due(&mut self) -> Result<(), Interrupted> {
        let due = self.open.as_ref().is_some_and(|open| {
            open.bytes >= PIECE_BYTES || (open.bytes > 0 && open.since.elapsed() >= PIECE_TIME)
        });
        if due { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Interrupted> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let pieces = std::mem::take(&mut open.pieces);
        (open.bytes, open.since) = (0, Instant::now());
        if pieces.is_empty() {
            return Ok(());
        }
        let (records, now) = (self.app.store().records(), self.app.now());
        records.add_output(&self.run, self.position, &pieces, now)?;
        self.app.nudge();
        Ok(())
    }
}

impl Open {
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
            "\n… (the rest is not kept: it is too long)\n".to_owned()
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
