//! Cause and risk of a planned change, in the same terms for local and server plans.

use std::fmt;

use orrery_model::{Change, ChangeKind, OutcomeStatus, Resource, ResourceState};
use serde_json::{Map, Value};

/// Conditions of a command. A command without any of them runs at every deploy.
const GUARDS: [&str; 5] = ["creates", "once", "onlyif", "reload_only", "unless"];

/// Returns true if a command runs at every deploy, because it has no condition.
pub fn runs_at_every_deploy(entity: &str, attributes: &Map<String, Value>) -> bool {
    let is_empty =
        |value: &Value| matches!(value, Value::Null | Value::Bool(false)) || *value == "";
    entity == "exec::Run" && GUARDS.iter().all(|name| attributes.get(*name).is_none_or(is_empty))
}

/// Returns true if the last run did not deploy the resource. One that only reports what it finds has
/// not failed.
fn has_failed(state: &ResourceState) -> bool {
    state.last_run_compliant == Some(false)
        && state.last_outcome != Some(OutcomeStatus::NonCompliant)
}

/// Cause of a planned change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeCause {
    /// Never deployed.
    New,
    /// The model differs from the last deploy.
    Model,
    /// Deployed with this intent, and different now.
    Drift,
    /// The last deploy of this intent failed.
    Failed,
    /// A requirement changes.
    Dependency,
    /// A command without a condition.
    EveryDeploy,
    /// A command with conditions that hold.
    Condition,
    /// Never deployed, and exists.
    Existing,
    /// To be removed, and edited since its deploy.
    Edited,
}

impl ChangeCause {
    /// Derives the cause from the resource, its state and the change.
    pub fn for_change(resource: &Resource, state: Option<&ResourceState>, change: &Change) -> Self {
        let only = |name: &str| {
            !change.attributes.is_empty() && change.attributes.iter().all(|one| one.name == name)
        };
        let (only_reload, only_run) = (only("reload"), only("executed"));
        match state.and_then(|state| state.last_deployed) {
            _ if only_reload => ChangeCause::Dependency,
            _ if change.kind == ChangeKind::Purged && !change.attributes.is_empty() => {
                ChangeCause::Edited
            }
            None if change.kind == ChangeKind::Updated && !only_run => ChangeCause::Existing,
            None => ChangeCause::New,
            Some(deployed) if deployed != resource.hash => ChangeCause::Model,
            Some(_) if state.is_some_and(has_failed) => ChangeCause::Failed,
            Some(_) if only_run => {
                let attributes = resource.attributes.read().unwrap_or_default();
                match runs_at_every_deploy(resource.id.entity(), &attributes) {
                    true => ChangeCause::EveryDeploy,
                    false => ChangeCause::Condition,
                }
            }
            Some(_) => ChangeCause::Drift,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            ChangeCause::New => "new",
            ChangeCause::Model => "changed in the model",
            ChangeCause::Drift => "drift",
            ChangeCause::Failed => "failed before",
            ChangeCause::Dependency => "dependency",
            ChangeCause::EveryDeploy => "runs at every deploy",
            ChangeCause::Condition => "its condition holds",
            ChangeCause::Existing => "exists already",
            ChangeCause::Edited => "edited since it was deployed",
        }
    }
}

/// Risk of a planned change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// Nothing is interrupted or lost.
    Low,
    /// A command runs, a service restarts, a package is installed, or a manual edit is overwritten.
    Medium,
    /// Something is removed, or content of other origin is overwritten.
    High,
}

impl Risk {
    /// Derives the risk from the change and its cause.
    pub fn for_change(resource: &Resource, change: &Change, cause: ChangeCause) -> Self {
        let acts = ["exec::Run", "std::Service", "std::Package", "http::Request"];
        let reloads = change.attributes.iter().any(|attribute| attribute.name == "reload");
        let overwrites = change.kind == ChangeKind::Updated
            && change.attributes.iter().any(|one| one.name == "content" || one.name == "type");
        match change.kind {
            ChangeKind::Purged => Risk::High,
            _ if overwrites && cause == ChangeCause::Existing => Risk::High,
            _ if overwrites && cause == ChangeCause::Drift => Risk::Medium,
            _ if reloads || acts.contains(&resource.id.entity()) => Risk::Medium,
            _ => Risk::Low,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::High => "high",
        }
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_without_a_condition_is_recognized() {
        let run = |attributes: Value| {
            runs_at_every_deploy("exec::Run", attributes.as_object().expect("an object"))
        };
        assert!(run(json!({"creates": "", "unless": "", "once": false, "reload_only": false})));
        for guard in [json!({"creates": "/x"}), json!({"once": true}), json!({"onlyif": "true"})] {
            assert!(!run(guard));
        }
        assert!(!runs_at_every_deploy("std::File", &Map::new()));
    }
}
