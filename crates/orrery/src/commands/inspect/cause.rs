//! Why a resource was last run, as far as what was kept tells, in the words of plans.

use orrery_executor::Cause as Planned;
use orrery_executor::runs_always;
use orrery_model::{ChangeKind, OutcomeStatus, VersionNumber};
use orrery_store::{Action, ActionKind};
use serde_json::{Value, json};

use super::source::{Deployment, Seen};
use super::{Trouble, text};
use crate::commands::deploy::new_attributes::RUNS_ALWAYS;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cause {
    /// Nothing was known of it before.
    First,
    /// What is wanted had changed since the run before.
    Intent { from: VersionNumber, to: VersionNumber, attributes: Vec<String> },
    /// The version was made to remove it.
    Removal { version: VersionNumber },
    /// The run before had not ended well.
    Again { outcome: Option<OutcomeStatus> },
    /// It had ended well before, and had changed since.
    Drift { attributes: Vec<String> },
    /// Something that it requires had changed.
    Dependency { changed: Vec<String> },
    /// A command that has no condition.
    EveryDeploy,
    /// A command whose conditions held.
    Condition,
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
            let cause = match known {
                true => Cause::without_intent(look, resource, last, None)?,
                false => Cause::First,
            };
            return Ok(Some(cause));
        };
        if before.version != last.version
            && let Some(attributes) =
                look.changed_attributes(&resource.id, before.version, last.version)?
        {
            // The model does not have what a removal purges.
            if resource.removal.is_some() && attributes == ["purged"] {
                return Ok(Some(Cause::Removal { version: last.version }));
            }
            return Ok(Some(Cause::Intent { from: before.version, to: last.version, attributes }));
        }
        Ok(Some(Cause::without_intent(look, resource, last, Some(before))?))
    }

    fn without_intent(
        look: &dyn Deployment,
        resource: &Seen,
        last: &Action,
        before: Option<&Action>,
    ) -> Result<Self, Trouble> {
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
            let attributes = look.attributes(&resource.id)?.unwrap_or_default();
            return Ok(match runs_always(resource.id.entity(), &attributes) {
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
        let word = Planned::as_str;
        match self {
            Cause::First => format!("{}: it was not deployed before", word(Planned::New)),
            Cause::Intent { to, attributes, .. } => {
                format!("{} in version {to}{}", word(Planned::Model), of(attributes))
            }
            Cause::Removal { version } => format!("version {version} removes it"),
            Cause::Again { outcome } => {
                let outcome = outcome.map_or("cut off", |outcome| outcome.as_str());
                format!("{}: the run before was {outcome}", word(Planned::Failed))
            }
            Cause::Drift { attributes } => format!("{}{}", word(Planned::Drift), of(attributes)),
            Cause::Dependency { changed } if changed.is_empty() => {
                format!("{}: something that it requires changed", word(Planned::Dependency))
            }
            Cause::Dependency { changed } => {
                format!("{}{} changed", word(Planned::Dependency), of(changed))
            }
            Cause::EveryDeploy => RUNS_ALWAYS.to_owned(),
            Cause::Condition => word(Planned::Condition).to_owned(),
            Cause::Verified => "verified: nothing had to change".to_owned(),
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
