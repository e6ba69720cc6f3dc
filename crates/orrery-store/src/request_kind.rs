//! Kinds of requests to engines, with their parameters and results.
//!
//! The database keeps a kind as a name and its parameters as JSON, in a form that all versions of
//! the program share. A request that this version cannot read stays visible as
//! [`RequestKind::Unreadable`], and the engine refuses it.

use orrery_model::{DryRunId, RequestId, Status, Timestamp, VersionNumber};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::{ActionKey, EnvironmentKey};

/// Work that an engine is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestKind {
    /// Deploys resources that are not compliant; with `verify`, also checks the compliant ones.
    Deploy {
        selection: Selection,
        verify: bool,
    },
    /// Verifies resources and deploys those that are not compliant.
    Repair(Selection),
    /// Withdraws scheduled work.
    Cancel(Selection),
    /// Withdraws what another request waits for.
    CancelOperation {
        operation: RequestId,
    },
    /// Verifies resources whose files changed without a run. Agents without ids: all resources of
    /// theirs that can be watched.
    Drift(Selection),
    /// Reads the facts of resources again.
    Facts(Selection),
    DryRun {
        dry_run: DryRunId,
        version: VersionNumber,
    },
    /// Clears the environment; `resume` resumes it afterwards.
    Clear {
        resume: bool,
    },
    /// Deletes the environment.
    Delete,
    /// A request that this version of the program cannot read.
    Unreadable {
        kind: String,
        payload: Value,
        reason: String,
    },
}

/// Selection of resources; all given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Selection {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// Ids of resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<SelectionFilter>,
}

impl Selection {
    /// Selection of resources by their ids.
    pub fn of_ids<T: Into<String>>(ids: impl IntoIterator<Item = T>) -> Self {
        let ids = ids.into_iter().map(Into::into).collect();
        Selection { ids: Some(ids), ..Selection::default() }
    }

    /// Selection of all resources of some agents.
    pub fn of_agents<T: Into<String>>(agents: impl IntoIterator<Item = T>) -> Self {
        let agents = agents.into_iter().map(Into::into).collect();
        Selection { agents: Some(agents), ..Selection::default() }
    }
}

/// Conditions on resources, evaluated when an engine accepts the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SelectionFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "known_statuses")]
    pub statuses: Vec<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
}

/// Reads names of statuses, without those that this version does not know.
fn known_statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Status>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let is_named = |status: &Status| names.iter().any(|name| name == status.as_str());
    Ok(Status::ALL.into_iter().filter(is_named).collect())
}

#[derive(Serialize, Deserialize)]
struct StoredDeploy {
    #[serde(flatten)]
    selection: Selection,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    verify: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredCancel {
    operation: RequestId,
}

#[derive(Serialize, Deserialize)]
struct StoredDryRun {
    dry_run: DryRunId,
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct StoredClear {
    #[serde(default)]
    resume: bool,
}

impl RequestKind {
    pub(crate) const DRY_RUN: &str = "dry_run";
    pub(crate) const CLEAR: &str = "clear";
    /// Not a `cancel` with another payload: an older program would read that as all resources.
    const CANCEL_OPERATION: &str = "cancel_operation";

    /// Deploy of all resources that are not compliant.
    pub fn deploy_all() -> Self {
        RequestKind::Deploy { selection: Selection::default(), verify: false }
    }

    /// Name of the kind, as in the database and the API.
    pub fn name(&self) -> &str {
        match self {
            RequestKind::Deploy { .. } => "deploy",
            RequestKind::Repair(_) => "repair",
            RequestKind::Cancel(_) => "cancel",
            RequestKind::CancelOperation { .. } => Self::CANCEL_OPERATION,
            RequestKind::Drift(_) => "drift",
            RequestKind::Facts(_) => "facts",
            RequestKind::DryRun { .. } => Self::DRY_RUN,
            RequestKind::Clear { .. } => Self::CLEAR,
            RequestKind::Delete => "delete",
            RequestKind::Unreadable { kind, .. } => kind,
        }
    }

    /// Parameters of the request, as in the database and the API.
    pub fn payload(&self) -> Value {
        match self {
            RequestKind::Deploy { selection, verify } => {
                to_json(&StoredDeploy { selection: selection.clone(), verify: *verify })
            }
            RequestKind::Repair(selection)
            | RequestKind::Cancel(selection)
            | RequestKind::Drift(selection)
            | RequestKind::Facts(selection) => to_json(selection),
            RequestKind::CancelOperation { operation } => {
                to_json(&StoredCancel { operation: *operation })
            }
            RequestKind::DryRun { dry_run, version } => {
                to_json(&StoredDryRun { dry_run: *dry_run, version: version.0 })
            }
            RequestKind::Clear { resume } => to_json(&StoredClear { resume: *resume }),
            RequestKind::Delete => json!({}),
            RequestKind::Unreadable { payload, .. } => payload.clone(),
        }
    }

    /// The request with a stored name and stored parameters.
    pub fn from_stored(kind: &str, payload: Value) -> Self {
        let unreadable = |payload, reason| {
            let kind = kind.to_owned();
            RequestKind::Unreadable { kind, payload, reason }
        };
        let read = match kind {
            "deploy" => from_json(&payload).map(|StoredDeploy { selection, verify }| {
                RequestKind::Deploy { selection, verify }
            }),
            "repair" => from_json(&payload).map(RequestKind::Repair),
            "cancel" => from_json(&payload).map(RequestKind::Cancel),
            Self::CANCEL_OPERATION => from_json(&payload)
                .map(|StoredCancel { operation }| RequestKind::CancelOperation { operation }),
            "drift" => from_json(&payload).map(RequestKind::Drift),
            "facts" => from_json(&payload).map(RequestKind::Facts),
            Self::DRY_RUN => from_json(&payload).map(|StoredDryRun { dry_run, version }| {
                RequestKind::DryRun { dry_run, version: VersionNumber(version) }
            }),
            Self::CLEAR => {
                from_json(&payload).map(|StoredClear { resume }| RequestKind::Clear { resume })
            }
            "delete" => Ok(RequestKind::Delete),
            other => {
                let reason = format!("unknown kind of request: {other:?}");
                return unreadable(payload, reason);
            }
        };
        read.unwrap_or_else(|error| unreadable(payload, format!("invalid request: {error}")))
    }

    /// True for work that can be cancelled before its end.
    pub fn is_cancellable(&self) -> bool {
        matches!(
            self,
            RequestKind::Deploy { .. }
                | RequestKind::Repair(_)
                | RequestKind::Drift(_)
                | RequestKind::Facts(_)
        )
    }

    /// True for work that an engine schedules, as opposed to removals by the server.
    pub fn is_engine_work(&self) -> bool {
        !matches!(self.name(), "clear" | "delete")
    }

    pub fn is_dry_run(&self) -> bool {
        self.name() == Self::DRY_RUN
    }
}

pub(crate) fn to_json(value: &impl Serialize) -> Value {
    // Strings, numbers, lists and structs always have a JSON form.
    serde_json::to_value(value).unwrap_or_default()
}

fn from_json<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, serde_json::Error> {
    T::deserialize(value)
}

/// Progress of an unfinished request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgressRecord {
    /// Paused agents that the request waits for.
    pub paused_agents: Vec<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub runs: Option<RunProgress>,
}

/// Progress of the runs of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunProgress {
    /// Resources to run.
    pub total: usize,
    /// Of those, the resources that have run.
    pub done: usize,
    /// Some of the resources with a running handler.
    pub running: Vec<String>,
    /// Ended runs by outcome.
    #[serde(default, skip_serializing_if = "RunCounts::is_empty")]
    pub by_outcome: RunCounts,
}

/// Counts of ended runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunCounts {
    pub deployed: u64,
    /// Of those, the runs that changed something.
    pub changed: u64,
    pub failed: u64,
    pub skipped: u64,
    pub unavailable: u64,
    pub non_compliant: u64,
    pub cancelled: u64,
}

impl RunCounts {
    fn is_empty(&self) -> bool {
        *self == RunCounts::default()
    }
}

/// Result of a finished request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestResult {
    Failed {
        error: String,
    },
    Done(Option<RequestCounts>),
    /// Neither a version nor the engine has the resource any more.
    Forgotten,
    /// Result in a form that this version of the program does not write.
    Other(Value),
}

/// Counts of the resources that a finished request selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestCounts {
    pub matched: u64,
    pub deployed: u64,
    pub changed: u64,
    pub created: u64,
    pub updated: u64,
    pub purged: u64,
    pub failed: u64,
    pub skipped: u64,
    pub unavailable: u64,
    pub non_compliant: u64,
    pub cancelled: u64,
    /// Compliant resources, which were not run.
    #[serde(rename = "as_wanted")]
    pub compliant: u64,
    pub blocked: u64,
    pub withdrawn: u64,
    pub followed: u64,
    /// Names in the request that match nothing; the first few.
    pub unknown: Vec<String>,
}

impl RequestResult {
    /// The result in the form of the database and the API.
    pub fn to_json(&self) -> Value {
        match self {
            RequestResult::Failed { error } => json!({"error": error}),
            RequestResult::Done(None) => json!({"done": true}),
            RequestResult::Done(Some(counts)) => {
                let mut result = json!({"done": true});
                if let (Some(result), Value::Object(counts)) =
                    (result.as_object_mut(), to_json(counts))
                {
                    result.extend(counts);
                }
                result
            }
            RequestResult::Forgotten => json!({"done": true, "matched": 0, "forgotten": true}),
            RequestResult::Other(result) => result.clone(),
        }
    }

    pub(crate) fn from_json(result: Value) -> Self {
        if let Some(error) = result.get("error").and_then(Value::as_str) {
            return RequestResult::Failed { error: error.to_owned() };
        }
        if result == RequestResult::Forgotten.to_json() {
            return RequestResult::Forgotten;
        }
        let keys = result.as_object().map_or(0, serde_json::Map::len);
        if result["done"] == true && keys == 1 {
            return RequestResult::Done(None);
        }
        match from_json(&result) {
            Ok(counts) if result["done"] == true && result["unknown"].is_array() => {
                RequestResult::Done(Some(counts))
            }
            _ => RequestResult::Other(result),
        }
    }
}

/// Key of a request within one store; a later request has a greater key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey(pub i64);

#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    pub key: RequestKey,
    pub uuid: RequestId,
    pub environment: EnvironmentKey,
    pub kind: RequestKind,
    pub created: Timestamp,
    /// Time at which the engine accepted it.
    pub taken: Option<Timestamp>,
    pub finished: Option<Timestamp>,
    /// Progress, if any; `None` after the end.
    pub progress: Option<ProgressRecord>,
    /// Result; `None` before the end.
    pub result: Option<RequestResult>,
    /// The newest action when it was requested: all its actions have greater keys.
    pub latest_action: Option<ActionKey>,
    /// Name of the requesting caller, as in the audit log; `None` if a server requested it.
    pub actor: Option<String>,
}

impl RequestRecord {
    /// The result, or the progress before the end, in the form of the API.
    pub fn outcome_json(&self) -> Option<serde_json::Value> {
        let progress = || self.progress.as_ref().map(to_json);
        self.result.as_ref().map(RequestResult::to_json).or_else(progress)
    }
}

/// A request to be added.
#[derive(Clone, Copy, Debug)]
pub struct NewRequest<'a> {
    pub uuid: RequestId,
    pub kind: &'a RequestKind,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: &str, payload: &str) -> RequestKind {
        RequestKind::from_stored(kind, serde_json::from_str(payload).unwrap())
    }

    /// Rows as all earlier versions of the program wrote them.
    #[test]
    fn old_rows_are_read_and_written_alike() {
        let id = "6c4c3d0e-8a52-4c3c-9c3b-0d2c1c1b9a10";
        for (kind, payload) in [
            ("deploy", "{}"),
            ("deploy", r#"{"verify":true}"#),
            ("deploy", r#"{"agents":["a"],"ids":["x::Y[a,n=1]"],"verify":true}"#),
            ("repair", r#"{"filter":{"agent":"a","statuses":["failed"]}}"#),
            ("facts", r#"{"ids":["x::Y[a,n=1]"]}"#),
            ("cancel", r#"{"agents":[]}"#),
            ("cancel_operation", &format!(r#"{{"operation":"{id}"}}"#)),
            ("dry_run", &format!(r#"{{"dry_run":"{id}","version":3}}"#)),
            ("clear", r#"{"resume":false}"#),
            ("delete", "{}"),
        ] {
            let request = read(kind, payload);
            assert!(!matches!(request, RequestKind::Unreadable { .. }), "{request:?}");
            let expected: Value = serde_json::from_str(payload).unwrap();
            assert_eq!((request.name(), request.payload()), (kind, expected));
        }
    }

    #[test]
    fn absent_conditions_of_old_rows_are_no_conditions() {
        let payload = r#"{"filter":{"agent":null,"entity":"x::Y","value":null,"statuses":["failed","later"],"set":null}}"#;
        let RequestKind::Repair(selection) = read("repair", payload) else { panic!("{payload}") };
        let filter = selection.filter.unwrap();
        assert_eq!((filter.entity.as_deref(), filter.agent), (Some("x::Y"), None));
        assert_eq!(filter.statuses, [Status::Failed], "unknown names are left out");
    }

    #[test]
    fn requests_of_other_versions_stay_visible() {
        for (kind, payload, part) in
            [("dance", "{}", "dance"), ("deploy", r#"{"ids":3}"#, "invalid request")]
        {
            let request = read(kind, payload);
            let RequestKind::Unreadable { reason, .. } = &request else { panic!("{request:?}") };
            assert!(reason.contains(part), "{reason}");
            assert_eq!(request.name(), kind);
            assert_eq!(request.payload().to_string(), payload);
        }
    }

    #[test]
    fn results_are_read_and_written_alike() {
        let counts = RequestCounts { matched: 2, unknown: vec!["x".to_owned()], ..<_>::default() };
        for result in [
            RequestResult::Failed { error: "no".to_owned() },
            RequestResult::Done(None),
            RequestResult::Done(Some(counts)),
            RequestResult::Forgotten,
            RequestResult::Other(json!({"resources": 1})),
        ] {
            assert_eq!(RequestResult::from_json(result.to_json()), result);
        }
        let stored = r#"{"done":true,"matched":1,"as_wanted":1,"unknown":[]}"#;
        let result = RequestResult::from_json(serde_json::from_str(stored).unwrap());
        let RequestResult::Done(Some(counts)) = result else { panic!("{result:?}") };
        assert_eq!((counts.matched, counts.compliant), (1, 1));
    }

    #[test]
    fn progress_without_runs_is_read() {
        for (text, total) in [
            (r#"{"paused_agents":["a"]}"#, None),
            (r#"{"paused_agents":[],"total":3,"done":1,"running":["x"]}"#, Some(3)),
            (
                r#"{"paused_agents":[],"total":3,"done":1,"running":[],"by_outcome":{"deployed":1,"changed":1,"failed":0,"skipped":0,"unavailable":0,"non_compliant":0,"cancelled":0}}"#,
                Some(3),
            ),
        ] {
            let progress: ProgressRecord = serde_json::from_str(text).unwrap();
            assert_eq!(progress.runs.as_ref().map(|runs| runs.total), total);
            assert_eq!(to_json(&progress), serde_json::from_str::<Value>(text).unwrap());
        }
    }
}
