//! Handlers that run elsewhere: what a remote place is told, and what becomes of its answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use orrery_handlers::{Contents, HandlerError, Registry, Secrets};
use orrery_model::{LogLevel, Outcome, OutcomeStatus, Resource, SecretText, Timestamp};

use crate::resolving::{self, Hidden};
use crate::task::{Performed, Task, ended};

/// More bytes of contents do not fit into one order.
const CONTENTS_MAX: usize = 40 * 1024 * 1024;

/// A place elsewhere where handlers run.
pub trait Remote: Send + Sync {
    /// Has an order carried out, and waits for what it came to; no longer than the task's `stop` allows. Where the task wants
    /// announcements, the closure is called here before anything is changed there; it may be called again when the run was lost and is repeated.
    ///
    /// # Errors
    /// If it was not carried out, or if nobody knows.
    fn run(&self, order: &Order<'_>) -> Result<Performed, RemoteError>;
}

/// A task with all that is needed to run it, so that nothing has to be asked for.
pub struct Order<'a> {
    pub task: Task<'a>,
    /// Of the lease under which it is given; `None` for dry runs.
    pub epoch: Option<u64>,
    /// Contents that the resource names, by their digests, as far as they are known.
    pub contents: BTreeMap<String, Arc<[u8]>>,
    /// Secrets of the server's store that the resource refers to, by their names.
    pub secrets: BTreeMap<String, SecretText>,
    /// Lines of handlers below it are not wanted.
    pub log_level: LogLevel,
}

impl fmt::Debug for Order<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Order({:?})", self.task)
    }
}

/// Why there is no answer from a remote place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// Nothing was done.
    #[error("{}", not_connected(agent, *last_seen))]
    NotConnected { agent: String, last_seen: Option<Timestamp> },
    /// Nothing was done; it may be tried again soon.
    #[error("the remote agent {agent} has too much to do")]
    Busy { agent: String },
    /// Nothing was done.
    #[error("the remote agent refuses: another server acts for the environment by now")]
    Fenced,
    /// Nothing was done.
    #[error("the remote agent refuses: {reason}")]
    Rejected { reason: String },
    /// Whoever asked no longer wants it, and it ended without an answer.
    #[error("the run was cancelled")]
    Cancelled,
    /// It may have been done, in part or whole.
    #[error(
        "{reason}: it may have been done nevertheless; the next run begins with looking at what is there"
    )]
    Unknown { reason: String },
}

fn not_connected(agent: &str, last_seen: Option<Timestamp>) -> String {
    let seen = match last_seen {
        Some(at) => format!("it was last seen at {at}"),
        None => "it has never been seen".to_owned(),
    };
    format!(
        "the remote agent {agent} is not connected; {seen}; see that `orrery agent run` runs on its machine"
    )
}

impl RemoteError {
    fn status(&self) -> OutcomeStatus {
        match self {
            RemoteError::NotConnected { .. } => OutcomeStatus::Unavailable,
            RemoteError::Busy { .. } | RemoteError::Cancelled => OutcomeStatus::Skipped,
            RemoteError::Fenced | RemoteError::Rejected { .. } | RemoteError::Unknown { .. } => {
                OutcomeStatus::Failed
            }
        }
    }

    fn outcome(&self) -> Outcome {
        let status = self.status();
        let level =
            if status == OutcomeStatus::Skipped { LogLevel::Warning } else { LogLevel::Error };
        ended(status, level, self.to_string())
    }
}

/// What the resources of an engine need of it.
#[derive(Clone, Copy)]
pub(crate) struct Depot<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) contents: &'a dyn Contents,
    pub(crate) secrets: &'a dyn Secrets,
    pub(crate) epoch: Option<u64>,
    pub(crate) log_level: LogLevel,
}

/// Has a task run elsewhere. Whatever happens, there is an outcome, and no secret of the store is in it.
pub(crate) fn run(task: Task<'_>, remote: &dyn Remote, depot: &Depot<'_>) -> Performed {
    let (order, hidden) = match order(task, depot) {
        Ok(order) => order,
        Err(outcome) => return outcome.into(),
    };
    match remote.run(&order) {
        Ok(mut performed) => {
            if let Some(hidden) = hidden {
                performed.outcome = hidden.hide(performed.outcome);
            }
            performed
        }
        Err(error) => {
            let unclear = matches!(error, RemoteError::Unknown { .. });
            Performed { unclear, ..error.outcome().into() }
        }
    }
}

/// What the remote place is told, and what it must not tell; or why it cannot be asked.
fn order<'a>(task: Task<'a>, depot: &Depot<'_>) -> Result<(Order<'a>, Option<Hidden>), Outcome> {
    let resource = task.resource;
    let entity = resource.id.entity();
    // Handlers in the code of modules have no declaration here.
    let native = depot.registry.declaration(entity).and(depot.registry.handler(entity));
    let handler = native.ok_or_else(|| {
        let text = format!(
            "{entity} is handled by the code of a module, and remote agents run the handlers of this program only; give the resource to an agent that is not remote"
        );
        ended(OutcomeStatus::Unavailable, LogLevel::Error, text)
    })?;
    let failed = |text: String| ended(OutcomeStatus::Failed, LogLevel::Error, text);
    let stored = resolving::stored_secrets(&resource.attributes, depot.secrets)
        .map_err(|error| failed(error.to_string()))?;
    let (secrets, hidden) =
        stored.map_or_else(Default::default, |stored| (stored.secrets, Some(stored.hidden)));
    let contents = contents(resource, &**handler, depot.contents)
        .map_err(|error| failed(error.to_string()))?;
    let size: usize = contents.values().map(|content| content.len()).sum();
    if size > CONTENTS_MAX {
        return Err(failed(format!(
            "its content has {size} bytes; remote agents take up to {CONTENTS_MAX}"
        )));
    }
    let Depot { epoch, log_level, .. } = *depot;
    Ok((Order { task, epoch, contents, secrets, log_level }, hidden))
}

/// The contents that a run may ask for. One that is not there may not be needed: the run will see.
fn contents(
    resource: &Resource,
    handler: &dyn orrery_handlers::Handler,
    contents: &dyn Contents,
) -> Result<BTreeMap<String, Arc<[u8]>>, HandlerError> {
    let mut found = BTreeMap::new();
    for digest in handler.named_contents(&resource.attributes) {
        if let Some(content) = contents.content(&digest)? {
            found.insert(digest.to_string(), content);
        }
    }
    Ok(found)
}
