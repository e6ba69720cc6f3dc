//! Why a resource was last run, as far as what was kept tells: a new intent, drift, or another attempt.

use orrery_model::{ChangeKind, OutcomeStatus, VersionNumber};
use orrery_store::{Action, ActionKind};
use serde_json::{Value, json};

use super::source::{Deployment, Seen};
use super::{Trouble, text};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cause {
    /// Nothing was known of it before.
    First,
    /// What is wanted had changed since the run before.
    Intent { from: VersionNumber, to: VersionNumber, attributes: Vec<String> },
    /// The run before had not ended well.
    Again { outcome: Option<OutcomeStatus> },
    /// It had ended well before, and was no longer as wanted.
    Drift { attributes: Vec<String> },
    /// It was looked at, and there was something to tell.
    Verified,
}

impl Cause {
    /// The cause of the latest deploy; `actions` are the latest first.
    pub(crate) fn of_last(
        look: &dyn Deployment,
        resource: &Seen,
        actions: &[Action],
    ) -> Result<Option<Self>, Trouble> {
        let mut deploys = actions.iter().filter(|action| action.kind == ActionKind::Deploy);
        let Some(last) = deploys.next() else { return Ok(None) };
        let Some(before) = deploys.next() else {
            // Older entries may have been forgotten.
            let known = resource.last_success.is_some_and(|success| success < last.started);
            return Ok(Some(if known { Cause::without_intent(last, None) } else { Cause::First }));
        };
        if before.version != last.version
            && let Some(attributes) =
                look.changed_attributes(&resource.id, before.version, last.version)?
        {
            return Ok(Some(Cause::Intent { from: before.version, to: last.version, attributes }));
        }
        Ok(Some(Cause::without_intent(last, Some(before))))
    }

    fn without_intent(last: &Action, before: Option<&Action>) -> Self {
        if let Some(before) = before
            && before.outcome != Some(OutcomeStatus::Deployed)
        {
            return Cause::Again { outcome: before.outcome };
        }
        if last.change.kind == ChangeKind::NoChange {
            return Cause::Verified;
        }
        let attributes = last.change.attributes.iter().map(|change| change.name.clone());
        Cause::Drift { attributes: attributes.collect() }
    }

    pub(crate) fn as_text(&self) -> String {
        let of = |attributes: &[String]| {
            let names: Vec<&str> = attributes.iter().map(String::as_str).collect();
            if names.is_empty() { String::new() } else { format!(": {}", text::some_of(&names)) }
        };
        match self {
            Cause::First => "it was new".to_owned(),
            Cause::Intent { to, attributes, .. } => {
                format!("version {to} changed it{}", of(attributes))
            }
            Cause::Again { outcome: Some(outcome) } => {
                format!("it was tried again, the run before was {}", outcome.as_str())
            }
            Cause::Again { outcome: None } => {
                "it was tried again, the run before was cut off".to_owned()
            }
            Cause::Drift { attributes } => {
                format!("it was no longer as wanted{}", of(attributes))
            }
            Cause::Verified => "it was verified".to_owned(),
        }
    }

    pub(crate) fn as_json(&self) -> Value {
        let mut form = match self {
            Cause::First => json!({ "kind": "first" }),
            Cause::Intent { from, to, attributes } => {
                json!({ "kind": "intent", "from": from.0, "to": to.0, "attributes": attributes })
            }
            Cause::Again { outcome } => {
                let outcome = outcome.map(|outcome| outcome.as_str());
                json!({ "kind": "again", "outcome": outcome })
            }
            Cause::Drift { attributes } => json!({ "kind": "drift", "attributes": attributes }),
            Cause::Verified => json!({ "kind": "verified" }),
        };
        form["text"] = self.as_text().into();
        form
    }
}
