//! Drift: changes of files that no run made, seen as they happen.
//!
//! Start from [`FileWatch`]. Every run of a handler that names a path tells it when it begins and
//! ends (`HandlerRun::run`); after a successful run the path is watched. A change is recognized by
//! the signature of the path, so neither a run's own writes nor lost events are mistaken.

mod file_watch;
mod signature;
mod watch_list;

use std::fmt;

use orrery_model::ResourceId;

pub use file_watch::{DriftSink, FileWatch};
pub use signature::PathSignature;

/// Watches the paths of resources.
pub trait DriftWatch: fmt::Debug + Send + Sync {
    /// State of a path before it is read.
    fn mark(&self, path: &str) -> RunMark;

    /// A run begins; until its end, changes of the path are those of the run.
    fn begin_run(&self, path: &str);

    /// The run has ended.
    ///
    /// # Errors
    /// If the path cannot be watched; reported once for each resource.
    fn end_run(
        &self,
        id: &ResourceId,
        path: &str,
        mark: RunMark,
        end: RunEnd,
    ) -> Result<(), WatchRefusal>;
}

/// State of a path at the beginning of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunMark(pub(crate) Option<PathSignature>);

/// End of a run, as far as a watch needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// The state of the resource is known: the run succeeded.
    pub succeeded: bool,
    /// The run may have changed the path.
    pub changed: bool,
}

/// Reason why a path is not watched. Its changes are found by the next verification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "changes of {path} are found by the next verification only, since it cannot be watched: {reason}"
)]
pub struct WatchRefusal {
    pub path: String,
    pub reason: String,
}
