//! The end of the change feed: one task reads it for all who listen.

use std::time::Duration;

use orrery_store::{ChangeNote, ChangeSeq};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OnceCell, broadcast};

use crate::app::App;
use crate::problem::ServerError;

/// How long a change may go unnoticed that another process made.
const POLL: Duration = Duration::from_secs(1);
/// Changes that a slow listener may be behind before it has to read the store by itself.
const BUFFERED: usize = 2048;
const BATCH: usize = 500;

/// Gives changes out as they happen.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    sender: OnceCell<broadcast::Sender<ChangeNote>>,
}

impl Tail {
    /// Changes from now on. The first listener starts the task that reads them; where it starts is known before anybody listens, so
    /// that nothing falls between what a listener reads by itself and what it is sent.
    pub(crate) async fn listen(
        &self,
        app: &App,
    ) -> Result<broadcast::Receiver<ChangeNote>, ServerError> {
        let start = async || {
            let last = app.with_store(|store| store.records().latest_change()).await?;
            let (sender, _) = broadcast::channel(BUFFERED);
            tokio::spawn(follow(app.clone(), sender.clone(), last));
            Ok::<_, ServerError>(sender)
        };
        Ok(self.sender.get_or_try_init(start).await?.subscribe())
    }
}

/// Reads the feed whenever somebody listens and something may have changed.
async fn follow(app: App, sender: broadcast::Sender<ChangeNote>, mut last: ChangeSeq) {
    let mut nudges = app.nudges();
    loop {
        if sender.receiver_count() > 0 {
            match read_on(&app, &sender, last).await {
                Ok(seq) => last = seq,
                Err(error) => tracing::warn!(%error, "the change feed cannot be read"),
            }
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
    mut last: ChangeSeq,
) -> Result<ChangeSeq, ServerError> {
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
