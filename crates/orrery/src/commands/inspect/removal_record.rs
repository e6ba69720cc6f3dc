//! Time and version of a resource's removal.

use std::fmt::Write as _;

use orrery_model::{OutcomeStatus, Timestamp, VersionNumber};
use serde_json::{Value, json};

use super::deployment::{Deployment, ResourceView};
use super::view::{ActionView, ActionViewKind};
use super::{CliError, json, text};
use crate::style;

/// Removal of a resource.
#[derive(Debug)]
pub(super) struct RemovalRecord {
    at: Option<Timestamp>,
    /// `None` if the log does not reach back.
    version: Option<VersionNumber>,
    /// Message of the version.
    about: String,
}

impl RemovalRecord {
    /// Finds the removal in the log, newest first; `None` if the resource was not removed.
    pub(super) fn find(
        deployment: &dyn Deployment,
        resource: &ResourceView,
        actions: &[ActionView],
    ) -> Result<Option<Self>, CliError> {
        if !resource.is_removed() {
            return Ok(None);
        }
        let is_removal = |action: &&ActionView| {
            action.kind == ActionViewKind::Deploy && action.outcome == Some(OutcomeStatus::Deployed)
        };
        // The last deploy of a removed resource is its removal.
        let Some(action) = actions.iter().find(is_removal) else {
            let (at, about) = (resource.last_run_at, String::new());
            return Ok(Some(RemovalRecord { at, version: None, about }));
        };
        let versions = deployment.versions()?;
        let version = versions.iter().find(|version| version.number == action.version);
        Ok(Some(RemovalRecord {
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
            let _ = write!(line, " ({})", style::sanitize(&self.about));
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
