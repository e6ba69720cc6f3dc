//! The end of the change feed: one task reads it for all who listen.

use std::sync::OnceLock;
use std::time::Duration;

use orrery_store::{ChangeNote, ChangeSeq};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::app::App;

/// How long a change may go unnoticed that another process made.
const POLL: Duration = Duration::from_secs(1);
/// Changes that a slow listener may be behind before it has to read the store by itself.
const BUFFERED: usize = 2048;
const BATCH: usize = 500;

/// Gives changes out as they happen.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    sender: OnceLock<broadcast::Sender<ChangeNote>>,
}

impl Tail {
    /// Changes from now on. The first listener starts the task that reads them.
    pub(crate) fn listen(&self, app: &App) -> broadcast::Receiver<ChangeNote> {
        let sender = self.sender.get_or_init(|| {
            let (sender, _) = broadcast::channel(BUFFERED);
            tokio::spawn(follow(app.clone(), sender.clone()));
            sender
        });
        sender.subscribe()
    }
}

/// Reads the feed whenever somebody listens and something may have changed.
async fn follow(app: App, sender: broadcast::Sender<ChangeNote>) {
    let mut nudges = app.nudges();
    let mut last: Option<ChangeSeq> = None;
    loop {
        if sender.receiver_count() > 0 {
            match read_on(&app, &sender, last).await {
                Ok(seq) => last = Some(seq),
                Err(error) => tracing::warn!(%error, "the change feed cannot be read"),
            }
        } else {
            last = None;
        }
        tokio::select! {
            () = app.stopping().cancelled() => return,
            () = tokio::time::sleep(POLL) => {}
            nudge = nudges.recv() => {
                if nudge == Err(RecvError::Closed) {
                    return;
                }
                // Many changes at once are one reason to look.
                tokio::time::sleep(Duration::from_millis(5)).await;
                while nudges.try_recv().is_ok() {}
            }
        }
    }
}

/// Sends what is new, and answers how far it got. Whoever starts to listen reads what was before by itself.
async fn read_on(
    app: &App,
    sender: &broadcast::Sender<ChangeNote>,
    last: Option<ChangeSeq>,
) -> Result<ChangeSeq, crate::problem::ServerError> {
    let mut last = match last {
        Some(last) => last,
        None => app.with_store(|store| store.records().latest_change()).await?,
    };
    loop {
        let after = last;
        let notes =
            app.with_store(move |store| store.records().changes(after, None, BATCH)).await?;
        let more = notes.len() == BATCH;
        for note in notes {
            last = note.seq;
            // Without listeners there is nobody to tell.
            let _ = sender.send(note);
        }
        if !more {
            return Ok(last);
        }
    }
}
