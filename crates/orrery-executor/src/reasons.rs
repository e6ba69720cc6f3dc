//! Why a plan would change a resource, and how much can go wrong: the same words wherever the plan is made.

use std::fmt;

use orrery_model::{Change, ChangeKind, Resource, ResourceState};
use serde_json::{Map, Value};

/// Conditions of a command. One that has none of them runs at every deploy.
const GUARDS: [&str; 5] = ["creates", "once", "onlyif", "reload_only", "unless"];

/// Whether a command runs at every deploy, since nothing says when it is done.
pub fn runs_always(entity: &str, attributes: &Map<String, Value>) -> bool {
    let is_empty =
        |value: &Value| matches!(value, Value::Null | Value::Bool(false)) || *value == "";
    entity == "exec::Run" && GUARDS.iter().all(|name| attributes.get(*name).is_none_or(is_empty))
}

/// Why something would be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was never deployed.
    New,
    /// The model wants something else than what was deployed last.
    Model,
    /// It was deployed as it is wanted, and is not so any more.
    Drift,
    /// It was tried as it is wanted, and did not end well.
    Failed,
    /// Something that it requires changes.
    Dependency,
    /// A command that has no condition.
    EveryDeploy,
    /// A command whose conditions hold.
    Condition,
    /// It was never deployed, and exists.
    Existing,
    /// It would be removed, and is not as it was deployed any more.
    Edited,
}

impl Cause {
    /// Why a resource of which this is known would be changed like this.
    pub fn of(resource: &Resource, state: Option<&ResourceState>, change: &Change) -> Self {
        let only = |name: &str| {
            !change.attributes.is_empty() && change.attributes.iter().all(|one| one.name == name)
        };
        let (only_reload, only_run) = (only("reload"), only("executed"));
        match state.and_then(|state| state.last_deployed) {
            _ if only_reload => Cause::Dependency,
            _ if change.kind == ChangeKind::Purged && !change.attributes.is_empty() => {
                Cause::Edited
            }
            None if change.kind == ChangeKind::Updated && !only_run => Cause::Existing,
            None => Cause::New,
            Some(deployed) if deployed != resource.hash => Cause::Model,
            Some(_) if state.is_some_and(|state| state.last_run_compliant == Some(false)) => {
                Cause::Failed
            }
            Some(_) if only_run => {
                let attributes = resource.attributes.read().unwrap_or_default();
                match runs_always(resource.id.entity(), &attributes) {
                    true => Cause::EveryDeploy,
                    false => Cause::Condition,
                }
            }
            Some(_) => Cause::Drift,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Cause::New => "new",
            Cause::Model => "changed in the model",
            Cause::Drift => "drift",
            Cause::Failed => "failed before",
            Cause::Dependency => "dependency",
            Cause::EveryDeploy => "runs at every deploy",
            Cause::Condition => "its condition holds",
            Cause::Existing => "exists already",
            Cause::Edited => "edited since it was deployed",
        }
    }
}

/// How much can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// Nothing is interrupted or lost.
    Low,
    /// Something runs, restarts or is installed, or what was edited by hand is overwritten.
    Medium,
    /// Something is removed, or what other hands made is overwritten.
    High,
}

impl Risk {
    /// The risk of such a change, made for this cause.
    pub fn of(resource: &Resource, change: &Change, cause: Cause) -> Self {
        let acts = ["exec::Run", "std::Service", "std::Package", "http::Request"];
        let reloads = change.attributes.iter().any(|attribute| attribute.name == "reload");
        let overwrites = change.kind == ChangeKind::Updated
            && change.attributes.iter().any(|one| one.name == "content" || one.name == "type");
        match change.kind {
            ChangeKind::Purged => Risk::High,
            _ if overwrites && cause == Cause::Existing => Risk::High,
            _ if overwrites && cause == Cause::Drift => Risk::Medium,
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
    fn a_command_without_a_condition_is_recognised() {
        let run = |attributes: Value| {
            runs_always("exec::Run", attributes.as_object().expect("an object"))
        };
        assert!(run(json!({"creates": "", "unless": "", "once": false, "reload_only": false})));
        for guard in [json!({"creates": "/x"}), json!({"once": true}), json!({"onlyif": "true"})] {
            assert!(!run(guard));
        }
        assert!(!runs_always("std::File", &Map::new()));
    }
}
