//! Queue of results and states for the store, and the state of its writer.

use orrery_model::{Change, Fact, LogLine, OutcomeStatus, ResourceState, Timestamp, VersionNumber};
use orrery_store::{ActionKind, ResourceKey, StartedAction};

use crate::effects::Effect;

/// A batch of this size is written at once.
pub(crate) const BATCH_SIZE: usize = 2_000;

/// State of the writer thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterState {
    /// No thread: it exits after an idle period.
    Absent,
    /// Waits for writes.
    Idle,
    /// Has writes and waits for more.
    Batching,
    Writing,
}

/// A queued write.
#[derive(Debug)]
pub(crate) enum Write {
    Processed {
        version: VersionNumber,
        states: Vec<(ResourceKey, ResourceState)>,
    },
    Result(ResourceRecord),
    /// A long run.
    Began(StartedAction),
}

/// New data of one resource; parts that are `None` or empty stay unchanged.
#[derive(Debug)]
pub(crate) struct ResourceRecord {
    pub(crate) resource: ResourceKey,
    pub(crate) state: Option<ResourceState>,
    pub(crate) action: Option<Action>,
    pub(crate) facts: Vec<Fact>,
    /// Result of an effect that must not be repeated.
    pub(crate) effect: Option<Effect>,
}

#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) kind: ActionKind,
    pub(crate) version: VersionNumber,
    pub(crate) started: Timestamp,
    pub(crate) finished: Timestamp,
    pub(crate) outcome: OutcomeStatus,
    pub(crate) change: Change,
    pub(crate) wants_absence: bool,
    pub(crate) log: Vec<LogLine>,
}

#[derive(Debug)]
pub(crate) struct WriteQueue {
    /// Nothing is persisted: for dry runs.
    discard: bool,
    writes: Vec<Write>,
    /// Number of writes ever queued, and of those persisted.
    queued: u64,
    persisted: u64,
    /// The queue has more than unchanged results.
    is_urgent: bool,
    writer: WriterState,
}

impl WriteQueue {
    /// An empty queue. If it discards, writes are dropped.
    pub(crate) fn new(discard: bool) -> Self {
        WriteQueue {
            discard,
            writes: Vec::new(),
            queued: 0,
            persisted: 0,
            is_urgent: false,
            writer: WriterState::Absent,
        }
    }

    pub(crate) fn discards(&self) -> bool {
        self.discard
    }

    pub(crate) fn push(&mut self, write: Write) {
        if !self.discard {
            self.writes.push(write);
            self.queued += 1;
        }
    }

    /// Requests that the queue is written soon, for a reader waits for it.
    pub(crate) fn mark_urgent(&mut self) {
        self.is_urgent = true;
    }

    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Number of writes ever queued.
    pub(crate) fn queued(&self) -> u64 {
        self.queued
    }

    /// Number of writes ever persisted.
    pub(crate) fn persisted(&self) -> u64 {
        self.persisted
    }

    pub(crate) fn writer(&self) -> WriterState {
        self.writer
    }

    pub(crate) fn set_writer(&mut self, writer: WriterState) {
        self.writer = writer;
    }

    /// Takes all writes as the batch that the writer writes next.
    pub(crate) fn take_batch(&mut self) -> Vec<Write> {
        debug_assert!(!self.writes.is_empty(), "a batch has writes");
        debug_assert_ne!(self.writer, WriterState::Writing, "there is one writer");
        self.writer = WriterState::Writing;
        self.is_urgent = false;
        std::mem::take(&mut self.writes)
    }

    /// Records that the batch is persisted.
    pub(crate) fn finish_batch(&mut self, count: usize) {
        debug_assert_eq!(self.writer, WriterState::Writing, "a batch was taken");
        self.writer = WriterState::Idle;
        self.persisted += count as u64;
        // A batch that failed for good is neither.
        debug_assert!(
            self.persisted + self.writes.len() as u64 <= self.queued,
            "what is persisted was queued"
        );
    }

    /// Returns true if the writer must be woken after a run. Waking it more often would cost as
    /// much as the run.
    pub(crate) fn must_wake_writer(&self, is_idle: bool) -> bool {
        let enough = self.writes.len() >= BATCH_SIZE || is_idle;
        match self.writer {
            WriterState::Idle | WriterState::Absent => {
                !self.writes.is_empty() && (self.is_urgent || enough)
            }
            WriterState::Batching => enough,
            WriterState::Writing => false,
        }
    }

    /// Returns true if everything is persisted.
    pub(crate) fn is_settled(&self) -> bool {
        self.writes.is_empty() && matches!(self.writer, WriterState::Absent | WriterState::Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processed(version: u32) -> Write {
        Write::Processed { version: VersionNumber(version), states: Vec::new() }
    }

    #[test]
    fn writes_are_counted_until_they_are_persisted() {
        let mut queue = WriteQueue::new(false);
        assert!(queue.is_settled());
        queue.push(processed(1));
        queue.push(processed(2));
        assert_eq!((queue.len(), queue.queued(), queue.persisted()), (2, 2, 0));
        let batch = queue.take_batch();
        queue.push(processed(3));
        assert!(!queue.is_settled());
        queue.finish_batch(batch.len());
        assert_eq!((queue.len(), queue.queued(), queue.persisted()), (1, 3, 2));
        let batch = queue.take_batch();
        queue.finish_batch(batch.len());
        assert!(queue.is_settled());
    }

    #[test]
    fn the_writer_is_woken_for_urgent_writes_full_batches_and_at_rest() {
        let mut queue = WriteQueue::new(false);
        assert!(!queue.must_wake_writer(true));
        queue.push(processed(1));
        assert!(!queue.must_wake_writer(false) && queue.must_wake_writer(true));
        queue.mark_urgent();
        assert!(queue.must_wake_writer(false));
        queue.set_writer(WriterState::Batching);
        assert!(!queue.must_wake_writer(false) && queue.must_wake_writer(true));
        (0..BATCH_SIZE as u32).for_each(|version| queue.push(processed(version)));
        assert!(queue.must_wake_writer(false));
        queue.take_batch();
        queue.push(processed(1));
        assert!(!queue.must_wake_writer(true), "it looks again when it has written");
    }

    #[test]
    fn a_dry_run_queues_nothing() {
        let mut queue = WriteQueue::new(true);
        queue.push(processed(1));
        assert!(queue.discards() && queue.is_empty() && queue.queued() == 0);
    }
}
