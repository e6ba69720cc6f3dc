//! Stream of new changes: one task reads the change feed for all subscribers.

use std::time::Duration;

use orrery_store::{ChangeRecord, ChangeSeq};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OnceCell, broadcast};

use crate::services::{ServiceError, Services};

/// Poll interval, which bounds the delay of changes made by other processes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Changes buffered for a slow subscriber; one that lags further must read the store.
const BUFFER_MAX: usize = 2048;
const BATCH_MAX: usize = 500;

/// Broadcasts changes as they happen.
#[derive(Debug, Default)]
pub struct ChangeStream {
    sender: OnceCell<broadcast::Sender<ChangeRecord>>,
}

impl ChangeStream {
    /// Subscribes to changes from now on. The first subscriber starts the reading task. The start
    /// position is read before the subscription, so no change is lost between a subscriber's own
    /// read and the stream.
    pub async fn subscribe(
        &self,
        services: &Services,
    ) -> Result<broadcast::Receiver<ChangeRecord>, ServiceError> {
        let start = async || {
            let last = services.with_store(|store| store.changes().latest()).await?;
            let (sender, _) = broadcast::channel(BUFFER_MAX);
            tokio::spawn(run(services.clone(), sender.clone(), last));
            Ok::<_, ServiceError>(sender)
        };
        Ok(self.sender.get_or_try_init(start).await?.subscribe())
    }
}

/// Reads the feed on wake-ups and at intervals, while there are subscribers.
async fn run(services: Services, sender: broadcast::Sender<ChangeRecord>, mut last: ChangeSeq) {
    let mut wake_ups = services.wake_ups();
    loop {
        if sender.receiver_count() > 0 {
            match forward_changes(&services, &sender, last).await {
                Ok(seq) => last = seq,
                Err(error) => tracing::warn!(%error, "cannot read the change feed"),
            }
        }
        tokio::select! {
            () = services.stopping().cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            wake_up = wake_ups.recv() => {
                if wake_up == Err(RecvError::Closed) {
                    return;
                }
                // Coalesces wake-ups of many changes.
                tokio::time::sleep(Duration::from_millis(5)).await;
                while wake_ups.try_recv().is_ok() {}
            }
        }
    }
}

/// Broadcasts new changes and returns the new position. A new subscriber reads older changes from
/// the store.
async fn forward_changes(
    services: &Services,
    sender: &broadcast::Sender<ChangeRecord>,
    mut last: ChangeSeq,
) -> Result<ChangeSeq, ServiceError> {
    loop {
        let after = last;
        let notes =
            services.with_store(move |store| store.changes().list(after, None, BATCH_MAX)).await?;
        let more = notes.len() == BATCH_MAX;
        for note in notes {
            last = note.seq;
            // Fails only without subscribers.
            let _ = sender.send(note);
        }
        if !more {
            return Ok(last);
        }
    }
}
