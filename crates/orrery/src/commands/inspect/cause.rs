//! Cause of the last run of a resource, from the stored history, in the terms of plans.

use orrery_executor::ChangeCause;
use orrery_executor::runs_at_every_deploy;
use orrery_model::{ChangeKind, OutcomeStatus, VersionNumber};
use serde_json::{Value, json};

use super::deployment::{Deployment, ResourceView};
use super::view::{ActionView, ActionViewKind};
use super::{CliError, text};
use crate::commands::deploy::new_attributes::RUNS_ALWAYS;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cause {
    /// The first recorded run.
    First,
    /// The desired state had changed.
    Intent { from: VersionNumber, to: VersionNumber, attributes: Vec<String> },
    /// The version removes the resource.
    Removal { version: VersionNumber },
    /// The previous run had failed.
    Again { outcome: Option<OutcomeStatus> },
    /// The previous run succeeded, and the resource had drifted.
    Drift { attributes: Vec<String> },
    /// A requirement had changed.
    Dependency { changed: Vec<String> },
    /// A command without conditions.
    EveryDeploy,
    /// A command with satisfied conditions.
    Condition,
    /// A verification that logged something.
    Verified,
}

impl Cause {
    /// Cause of the latest deploy; `actions` are newest first.
    pub(crate) fn of_last(
        deployment: &dyn Deployment,
        resource: &ResourceView,
        actions: &[ActionView],
    ) -> Result<Option<Self>, CliError> {
        let mut deploys = actions.iter().filter(|action| action.kind == ActionViewKind::Deploy);
        let Some(last) = deploys.next() else { return Ok(None) };
        let Some(before) = deploys.next() else {
            // Older entries may have been deleted.
            let known = resource.last_success.is_some_and(|success| success < last.started);
            let cause = match known {
                true => Cause::without_intent(deployment, resource, last, None)?,
                false => Cause::First,
            };
            return Ok(Some(cause));
        };
        if before.version != last.version
            && let Some(attributes) =
                deployment.changed_attributes(&resource.id, before.version, last.version)?
        {
            // `purged` is added by the removal; the model does not have it.
            if resource.removal.is_some() && attributes == ["purged"] {
                return Ok(Some(Cause::Removal { version: last.version }));
            }
            return Ok(Some(Cause::Intent { from: before.version, to: last.version, attributes }));
        }
        Ok(Some(Cause::without_intent(deployment, resource, last, Some(before))?))
    }

    fn without_intent(
        deployment: &dyn Deployment,
        resource: &ResourceView,
        last: &ActionView,
        before: Option<&ActionView>,
    ) -> Result<Self, CliError> {
        let changes = &last.change.attributes;
        let only = |name: &str| !changes.is_empty() && changes.iter().all(|one| one.name == name);
        if only("reload") {
            let causes = changes.iter().filter_map(|change| change.desired.as_array()).flatten();
            let changed = causes.filter_map(|id| id.as_str().map(str::to_owned)).collect();
            return Ok(Cause::Dependency { changed });
        }
        if let Some(before) = before
            && before.outcome != Some(OutcomeStatus::Deployed)
        {
            return Ok(Cause::Again { outcome: before.outcome });
        }
        if last.change.kind == ChangeKind::NoChange {
            return Ok(Cause::Verified);
        }
        if only("executed") {
            let attributes = deployment.attributes(&resource.id)?.unwrap_or_default();
            return Ok(match runs_at_every_deploy(resource.id.entity(), &attributes) {
                true => Cause::EveryDeploy,
                false => Cause::Condition,
            });
        }
        let attributes = changes.iter().map(|change| change.name.clone());
        Ok(Cause::Drift { attributes: attributes.collect() })
    }

    pub(crate) fn as_text(&self) -> String {
        let of = |attributes: &[String]| {
            let names: Vec<&str> = attributes.iter().map(String::as_str).collect();
            if names.is_empty() { String::new() } else { format!(": {}", text::some_of(&names)) }
        };
        let word = ChangeCause::as_str;
        match self {
            Cause::First => format!("{}: not deployed before", word(ChangeCause::New)),
            Cause::Intent { to, attributes, .. } => {
                format!("{} in version {to}{}", word(ChangeCause::Model), of(attributes))
            }
            Cause::Removal { version } => format!("version {version} removes it"),
            Cause::Again { outcome } => {
                let outcome = outcome.map_or("interrupted", |outcome| outcome.as_str());
                format!("{}: the previous run was {outcome}", word(ChangeCause::Failed))
            }
            Cause::Drift { attributes } => {
                format!("{}{}", word(ChangeCause::Drift), of(attributes))
            }
            Cause::Dependency { changed } if changed.is_empty() => {
                format!("{}: a requirement changed", word(ChangeCause::Dependency))
            }
            Cause::Dependency { changed } => {
                format!("{}{} changed", word(ChangeCause::Dependency), of(changed))
            }
            Cause::EveryDeploy => RUNS_ALWAYS.to_owned(),
            Cause::Condition => word(ChangeCause::Condition).to_owned(),
            Cause::Verified => "verified, unchanged".to_owned(),
        }
    }

    pub(crate) fn as_json(&self) -> Value {
        let mut form = match self {
            Cause::First => json!({ "kind": "first" }),
            Cause::Intent { from, to, attributes } => {
                json!({ "kind": "intent", "from": from.0, "to": to.0, "attributes": attributes })
            }
            Cause::Removal { version } => json!({ "kind": "removal", "version": version.0 }),
            Cause::Again { outcome } => {
                let outcome = outcome.map(|outcome| outcome.as_str());
                json!({ "kind": "again", "outcome": outcome })
            }
            Cause::Drift { attributes } => json!({ "kind": "drift", "attributes": attributes }),
            Cause::Dependency { changed } => json!({ "kind": "dependency", "changed": changed }),
            Cause::EveryDeploy => json!({ "kind": "every_deploy" }),
            Cause::Condition => json!({ "kind": "condition" }),
            Cause::Verified => json!({ "kind": "verified" }),
        };
        form["text"] = self.as_text().into();
        form
    }
}
