//! Removal of a resource that is gone: when it was, and by which version.

use std::fmt::Write as _;

use orrery_model::{OutcomeStatus, Timestamp, VersionNumber};
use orrery_store::{Action, ActionKind};
use serde_json::{Value, json};

use super::source::{Deployment, Seen};
use super::{Trouble, json, text};
use crate::style;

/// How a resource went.
#[derive(Debug)]
pub(super) struct Removed {
    at: Option<Timestamp>,
    /// `None` if the log does not reach back to it.
    version: Option<VersionNumber>,
    /// What the version was for.
    about: String,
}

impl Removed {
    /// Reads it from the log, whose latest actions come first; `None` if the resource was not removed.
    pub(super) fn find(
        look: &dyn Deployment,
        resource: &Seen,
        actions: &[Action],
    ) -> Result<Option<Self>, Trouble> {
        if !resource.is_removed() {
            return Ok(None);
        }
        let is_removal = |action: &&Action| {
            action.kind == ActionKind::Deploy && action.outcome == Some(OutcomeStatus::Deployed)
        };
        // What is gone was last deployed by the run that removed it.
        let Some(action) = actions.iter().find(is_removal) else {
            let (at, about) = (resource.last_run_at, String::new());
            return Ok(Some(Removed { at, version: None, about }));
        };
        let versions = look.versions()?;
        let version = versions.iter().find(|version| version.number == action.version);
        Ok(Some(Removed {
            at: action.finished.or(Some(action.started)),
            version: Some(action.version),
            about: version.map(|version| text::about(&version.info)).unwrap_or_default(),
        }))
    }

    /// `2026-11-16 11:30:04Z (3 h ago), by version 4 (orrery destroy)`
    pub(super) fn as_text(&self) -> String {
        let mut line = match self.at {
            Some(at) => format!("{} ({})", text::moment(at), text::since(at)),
            None => "at an unknown time".to_owned(),
        };
        if let Some(version) = self.version {
            let _ = write!(line, ", by version {version}");
        }
        if !self.about.is_empty() {
            let _ = write!(line, " ({})", style::harmless(&self.about));
        }
        line
    }

    pub(super) fn as_json(&self) -> Value {
        json!({
            "at": json::time(self.at),
            "version": self.version.map(|version| version.0),
            "message": Some(&self.about).filter(|about| !about.is_empty()),
        })
    }
}
