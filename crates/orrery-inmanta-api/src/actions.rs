//! Actions on resources and their log lines.

use orrery_model::{Change, EnvironmentId, LogLevel, LogLine, OutcomeStatus, ResourceId};
use orrery_server::ServerError;
use orrery_store::{Action, ActionKey, ActionKind, StoreError};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::paging::{Form, Key, ListDefinition, ListItem, ListRequest};
use crate::request::{InmantaRequest, bad_request};
use crate::response::{ApiResult, escaped, maybe_time, plain, time};

/// Maximum number of actions to read for a page.
const ACTIONS_READ_MAX: usize = 10_000;
/// Number of actions to read at a time.
const AT_ONCE: usize = 1_000;
const LIMIT_MAX: usize = 1_000;

const LEVELS: [(&str, LogLevel); 6] = [
    ("TRACE", LogLevel::Debug),
    ("DEBUG", LogLevel::Debug),
    ("INFO", LogLevel::Info),
    ("WARNING", LogLevel::Warning),
    ("ERROR", LogLevel::Error),
    ("CRITICAL", LogLevel::Critical),
];

pub(crate) fn action_name(kind: ActionKind) -> &'static str {
    match kind {
        ActionKind::Deploy => "deploy",
        ActionKind::DryRun => "dryrun",
        ActionKind::GetFacts => "getfact",
        ActionKind::Other => "other",
    }
}

/// Converts the number of an action to a UUID, which clients expect.
fn action_uuid(key: ActionKey) -> Uuid {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&key.0.to_be_bytes());
    bytes[..8].copy_from_slice(b"\0action\0");
    Uuid::from_bytes(bytes)
}

fn action_key(id: &Uuid) -> Option<ActionKey> {
    let bytes = id.as_bytes();
    let number = <[u8; 8]>::try_from(&bytes[8..]).ok()?;
    (bytes[..8] == *b"\0action\0").then(|| ActionKey(i64::from_be_bytes(number)))
}

fn message(line: &LogLine) -> Value {
    json!({
        "msg": line.message,
        "args": [],
        "level": line.level.as_str().to_uppercase(),
        "kwargs": line.values,
        "timestamp": time(line.at),
    })
}

/// Returns the changes of an action by attribute.
pub(crate) fn attribute_changes(change: &Change) -> Map<String, Value> {
    let one = |name: &str, current: &Value, desired: &Value| {
        (name.to_owned(), json!({"current": current, "desired": desired}))
    };
    let changes = change.attributes.iter();
    changes.map(|change| one(&change.name, &change.current, &change.desired)).collect()
}

fn status(outcome: Option<OutcomeStatus>) -> Value {
    match outcome {
        None => Value::Null,
        Some(OutcomeStatus::SkippedForDependency) => json!("skipped"),
        Some(outcome) => json!(outcome.as_str()),
    }
}

pub(crate) fn action_json(environment: EnvironmentId, id: &str, action: &Action) -> Value {
    let versioned = format!("{id},v={}", action.version);
    let changes = attribute_changes(&action.change);
    let changes = if changes.is_empty() { Value::Null } else { json!({&versioned: changes}) };
    json!({
        "environment": environment.uuid().to_string(),
        "version": action.version.0,
        "resource_version_ids": [versioned],
        "action_id": action_uuid(action.key),
        "action": action_name(action.kind),
        "started": time(action.started),
        "finished": maybe_time(action.finished),
        "messages": action.log.iter().map(message).collect::<Vec<_>>(),
        "status": status(action.outcome),
        "changes": changes,
        "change": action.change.kind.as_str(),
        "send_event": null,
    })
}

fn level(name: &str) -> Result<LogLevel, ServerError> {
    let found = LEVELS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found
        .map(|(_, level)| *level)
        .ok_or_else(|| bad_request(format!("there is no log level {name:?}")))
}

const LOGS: ListDefinition = ListDefinition {
    columns: &[("timestamp", Form::Time)],
    descending: true,
    filters: &["action", "timestamp", "message", "minimal_log_level"],
    with_ids: false,
    others: &[],
};

/// Lists the log lines of a resource.
pub(crate) async fn logs(request: InmantaRequest) -> ApiResult {
    let wanted = ListRequest::parse(&request, &LOGS)?;
    let least = match wanted.filter("minimal_log_level") {
        Some([name]) => level(name)?,
        None => LogLevel::Debug,
        Some(_) => return Err(bad_request("Filter minimal_log_level must be given once.")),
    };
    let id = request.path_text("rid").to_owned();
    let actions = request
        .with_store(move |store, key| {
            let mut found: Vec<Action> = Vec::new();
            loop {
                let before = found.last().map(|action| action.key);
                let part = store.actions().of_resource(key, &id, before, AT_ONCE)?;
                let is_last = part.len() < AT_ONCE;
                found.extend(part);
                if is_last || found.len() >= ACTIONS_READ_MAX {
                    return Ok(found);
                }
            }
        })
        .await?;
    let mut items = Vec::new();
    for action in &actions {
        if !wanted.matches("action", action_name(action.kind)) {
            continue;
        }
        for (at, line) in action.log.iter().enumerate() {
            let key = Key::Time(line.at);
            let fits = line.level >= least
                && wanted.contains("message", &line.message)
                && wanted.in_ranges("timestamp", Form::Time, &key)?;
            if !fits {
                continue;
            }
            let mut shown = message(line);
            shown["action_id"] = json!(action_uuid(action.key));
            shown["action"] = json!(action_name(action.kind));
            items.push(ListItem { key, id: format!("{:020}.{at:06}", action.key.0), shown });
        }
    }
    wanted.page(items)
}

/// Selection of actions.
struct Selection {
    entity: Option<String>,
    agent: Option<String>,
    attribute: Option<(String, String)>,
    level: Option<LogLevel>,
    without: Vec<String>,
}

impl Selection {
    fn read(request: &InmantaRequest) -> Result<Self, ServerError> {
        let text = |name: &str| Ok::<_, ServerError>(request.text(name)?.map(str::to_owned));
        let attribute = match (text("attribute")?, text("attribute_value")?) {
            (Some(name), Some(value)) => Some((name, value)),
            (None, None) => None,
            _ => return Err(bad_request("attribute and attribute_value must be given together")),
        };
        Ok(Selection {
            entity: text("resource_type")?,
            agent: text("agent")?,
            attribute,
            level: text("log_severity")?.as_deref().map(level).transpose()?,
            without: request.texts("exclude_changes")?.unwrap_or_default(),
        })
    }

    fn matches(&self, id: &ResourceId, action: &Action) -> bool {
        let attribute = self.attribute.as_ref();
        self.entity.as_deref().is_none_or(|entity| entity == id.entity())
            && self.agent.as_deref().is_none_or(|agent| agent == id.agent())
            && attribute.is_none_or(|(name, value)| name == id.attribute() && value == id.value())
            && self.level.is_none_or(|level| action.log.iter().any(|line| line.level >= level))
            && !self.without.iter().any(|kind| kind == action.change.kind.as_str())
    }
}

/// Lists the actions in an environment, newest first.
pub(crate) async fn list(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[
        "resource_type",
        "agent",
        "attribute",
        "attribute_value",
        "log_severity",
        "limit",
        "action_id",
        "first_timestamp",
        "last_timestamp",
        "exclude_changes",
    ])?;
    let selection = Selection::read(&request)?;
    let limit = match request.number("limit")?.unwrap_or(0) {
        0 => LIMIT_MAX,
        limit => match usize::try_from(limit) {
            Ok(limit) if limit <= LIMIT_MAX => limit,
            _ => {
                return Err(bad_request(format!(
                    "limit parameter can not exceed {LIMIT_MAX}, got {limit}."
                )));
            }
        },
    };
    let (first, last) = (request.time("first_timestamp")?, request.time("last_timestamp")?);
    if first.is_some() && last.is_some() {
        return Err(bad_request("Only one of first_timestamp and last_timestamp may be given."));
    }
    let bound = request.uuid("action_id")?;
    if bound.is_some() && first.is_none() && last.is_none() {
        return Err(bad_request("action_id needs first_timestamp or last_timestamp."));
    }
    let bound = match bound {
        None => None,
        Some(id) => Some(action_key(&id).ok_or_else(|| bad_request("there is no such action"))?),
    };
    let environment = request.environment()?.uuid;
    let mut found = request
        .with_store(move |store, key| {
            let mut found: Vec<(ResourceId, Action)> = Vec::new();
            let (mut before, mut looked_at) = (None, 0);
            loop {
                let part = store.actions().recent(key, before, AT_ONCE)?;
                looked_at += part.len();
                let is_last = part.len() < AT_ONCE;
                before = part.last().map(|(_, action)| action.key);
                for (id, action) in part {
                    let id: ResourceId = id
                        .parse()
                        .map_err(|_| StoreError::Unreadable(format!("a resource {id:?}")))?;
                    let place = (action.started, action.key);
                    let later = first.is_none_or(|first| match bound {
                        Some(bound) => place > (first, bound),
                        None => action.started > first,
                    });
                    let earlier = last.is_none_or(|last| match bound {
                        Some(bound) => place < (last, bound),
                        None => action.started < last,
                    });
                    if later && earlier && selection.matches(&id, &action) {
                        found.push((id, action));
                    }
                }
                // With a lower bound, the page consists of the actions next to it, which come last.
                let is_full = first.is_none() && found.len() > limit;
                if is_last || is_full || looked_at >= ACTIONS_READ_MAX {
                    break;
                }
            }
            found.sort_by_key(|(_, action)| std::cmp::Reverse((action.started, action.key)));
            Ok(found)
        })
        .await?;
    let mut links = Map::new();
    let more = found.len() > limit;
    if first.is_some() {
        found.drain(..found.len().saturating_sub(limit));
    } else {
        found.truncate(limit);
    }
    let link = |bound: &str, action: &Action| {
        let mut query = vec![format!("limit={limit}")];
        for name in ["resource_type", "agent", "attribute", "attribute_value", "log_severity"] {
            if let Some(value) = request.value(name).and_then(Value::as_str) {
                query.push(format!("{name}={}", escaped(value)));
            }
        }
        query.push(format!("{bound}={}", escaped(&time(action.started))));
        query.push(format!("action_id={}", action_uuid(action.key)));
        json!(format!("{}?{}", request.path, query.join("&")))
    };
    if let (Some((_, newest)), Some((_, oldest))) = (found.first(), found.last()) {
        if more || first.is_some() {
            links.insert("next".to_owned(), link("last_timestamp", oldest));
        }
        if last.is_some() || (first.is_some() && more) {
            links.insert("prev".to_owned(), link("first_timestamp", newest));
        }
    }
    let shown: Vec<Value> =
        found.iter().map(|(id, action)| action_json(environment, id.as_str(), action)).collect();
    let mut content = json!({ "data": shown });
    if !links.is_empty() {
        content["links"] = Value::Object(links);
    }
    plain(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_actions_lead_back_to_them() {
        let id = action_uuid(ActionKey(77));
        assert_eq!(action_key(&id), Some(ActionKey(77)));
        assert_eq!(action_key(&Uuid::nil()), None);
    }
}
