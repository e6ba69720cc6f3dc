//! Notifications.

use orrery_model::EnvironmentId;
use orrery_server::app::notifications::{self, NotificationMarks};
use orrery_store::{NotificationFilter, NotificationRecord};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::paging::{Form, Key, ListDefinition, ListItem, ListRequest};
use crate::request::{InmantaRequest, bad_request};
use crate::response::{ApiResult, data, time};

const AT_ONCE: usize = 1_000;
const LISTED_MAX: usize = 100_000;

fn notification_json(environment: EnvironmentId, record: &NotificationRecord) -> Value {
    let uri = match record.compile {
        Some(compile) => format!("/api/v2/compilereport/{}", compile.uuid()),
        None => record.uri.clone(),
    };
    json!({
        "id": record.uuid.uuid(),
        "environment": environment.uuid(),
        "created": time(record.created),
        "title": record.title,
        "message": record.message,
        "severity": record.severity,
        "uri": if uri.is_empty() { Value::Null } else { json!(uri) },
        "compile_id": record.compile.map(Uuid::from),
        "read": record.read,
        "cleared": record.cleared,
    })
}

const NOTIFICATIONS: ListDefinition = ListDefinition {
    columns: &[("created", Form::Time)],
    descending: true,
    filters: &["read", "cleared", "severity", "title", "message"],
    with_ids: true,
    others: &[],
};

pub(crate) async fn list(request: InmantaRequest) -> ApiResult {
    let wanted = ListRequest::parse(&request, &NOTIFICATIONS)?;
    let (read, cleared) = (wanted.flag("read")?, wanted.flag("cleared")?);
    let environment = request.environment()?.uuid;
    let found = request
        .with_store(move |store, key| {
            let filter = NotificationFilter { read, cleared, severity: None };
            let mut found: Vec<NotificationRecord> = Vec::new();
            loop {
                let after = found.last().map(|last| (last.created, last.uuid));
                let part = store.notifications().list(key, &filter, after, AT_ONCE)?;
                let is_last = part.len() < AT_ONCE;
                found.extend(part);
                if is_last || found.len() >= LISTED_MAX {
                    return Ok(found);
                }
            }
        })
        .await?;
    let fits = |one: &&NotificationRecord| {
        wanted.contains("title", &one.title)
            && wanted.contains("message", &one.message)
            && wanted.matches("severity", &one.severity)
    };
    let items = found.iter().filter(fits).map(|one| ListItem {
        key: Key::Time(one.created),
        id: one.uuid.uuid().to_string(),
        shown: notification_json(environment, one),
    });
    wanted.page(items.collect())
}

pub(crate) async fn get(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let id = request.path_uuid("notification_id")?;
    let environment = request.environment()?.uuid;
    let found =
        request.with_store(move |store, key| store.notifications().get(key, id.into())).await?;
    data(notification_json(environment, &found))
}

pub(crate) async fn update(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["read", "cleared"])?;
    let id = request.path_uuid("notification_id")?;
    let (read, cleared) = (request.flag("read")?, request.flag("cleared")?);
    if read.is_none() && cleared.is_none() {
        return Err(bad_request(
            "At least one of {read, cleared} should be specified for a valid update.",
        ));
    }
    let environment = request.environment()?.uuid;
    let marks = NotificationMarks { read, cleared };
    let changed = notifications::mark(&request.app, request.key()?, id.into(), marks).await?;
    data(notification_json(environment, &changed))
}
