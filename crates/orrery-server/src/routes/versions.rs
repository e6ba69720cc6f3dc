//! Versions: upload, list, comparison, release, roll-back and deletion.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use orrery_api::{
    AttributeChange, DifferenceCounts, DifferenceKind, KeptResource, Page, ReleaseRequest,
    RemovalPlan, ReservedVersion, ResourceDifference, SourceLocation, Transitioning, Unknown,
    UnmanagedResources, VersionReleased, VersionResource, VersionStatus, VersionStored,
    VersionSummary, VersionUpload,
};
use orrery_handlers::Unmanaged;
use orrery_model::{Removal, Resource, RetainReason, VersionNumber};
use orrery_store::{EnvironmentRecord, ResourceFilter};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app;
use crate::app::versions::{self, PushedVersion, VersionFilter, VersionState};
use crate::auth::{Caller, WithAuditDetail};
use crate::error::ServerError;
use crate::extract::{
    Body, InEnvironment, Path, Query, encode_cursor, page_limit, parse_cursor, take_page,
};
use crate::state::ServerState;
use crate::versions::{UploadBody, version_info};

use super::{environments, operations, parse_filter, parse_pattern, permitted_actions, time};

fn summarize(
    caller: &Caller,
    environment: &EnvironmentRecord,
    state: VersionState,
) -> VersionSummary {
    let path = version_path(environment, state.info.number);
    let offered = state.actions(environment);
    let actions = offered.map(|name| (name.to_owned(), format!("{path}/{name}"))).collect();
    let actions = permitted_actions(caller, environment, actions);
    let VersionState { info: version, status, is_ahead } = state;
    let (transitioning, message) = match (status, version.released) {
        (VersionStatus::Candidate, true) if environment.halted => {
            (Transitioning::Yes, "waiting: the environment is halted")
        }
        (VersionStatus::Candidate, true) if !environment.problem.is_empty() => {
            (Transitioning::Error, &*environment.problem)
        }
        (VersionStatus::Candidate, true) => {
            (Transitioning::Yes, "waiting for the engine to accept it")
        }
        (VersionStatus::Candidate, false) if !is_ahead => {
            (Transitioning::No, "not released: a newer version is")
        }
        _ => (Transitioning::No, ""),
    };
    VersionSummary {
        number: version.number.0,
        created: time(version.made_at),
        status,
        released: version.released,
        released_at: version.released_at.map(time),
        info: version.info,
        total: version.total,
        added: version.added,
        changed: version.changed,
        removed: version.removed,
        transitioning,
        transitioning_message: message.to_owned(),
        actions,
    }
}

fn version_path(environment: &EnvironmentRecord, number: VersionNumber) -> String {
    format!("{}/versions/{number}", environments::path_of(environment))
}

type StoredResponse = WithAuditDetail<(StatusCode, HeaderMap, Json<VersionStored>)>;

fn stored_response(
    caller: &Caller,
    environment: &EnvironmentRecord,
    pushed: PushedVersion,
) -> StoredResponse {
    let PushedVersion { stored, state, unmanaged } = pushed;
    let asked = stored.asked;
    let answer = VersionStored {
        version: summarize(caller, environment, state),
        created_now: stored.put.created,
        operation: asked.map(|asked| operations::operation_view(environment, asked)),
        unmanaged: unmanaged_view(&unmanaged),
        removal: stored.removal.map(removal_plan),
        rebound_from: stored.rebound_from,
    };
    let mut headers = HeaderMap::new();
    if let Ok(location) = HeaderValue::from_str(&version_path(environment, stored.put.number)) {
        headers.insert(header::LOCATION, location);
    }
    let status = if answer.created_now { StatusCode::CREATED } else { StatusCode::OK };
    let what = if answer.created_now { "stored" } else { "is the same" };
    let mut detail = audit_text(&answer.version, what);
    if let Some(project) = &answer.rebound_from {
        detail += &format!(", rebound from the project {project:?}");
    }
    if let Some(removal) = &answer.removal {
        detail += &format!(", {} of them to be removed", removal.removed.len());
    }
    WithAuditDetail(detail, (status, headers, Json(answer)))
}

fn unmanaged_view(unmanaged: &Unmanaged) -> UnmanagedResources {
    let Unmanaged { ids, removable } = unmanaged;
    UnmanagedResources {
        total: ids.len() as u64,
        removable: *removable as u64,
        ids: ids.iter().take(UnmanagedResources::IDS_MAX).map(ToString::to_string).collect(),
    }
}

fn removal_plan(removal: Removal) -> RemovalPlan {
    let kept = removal.kept.iter().map(|kept| KeptResource {
        id: kept.id.to_string(),
        reason: kept.reason.to_string(),
        adopted: kept.reason == RetainReason::Adopted,
    });
    RemovalPlan {
        removed: removal.removed.iter().map(ToString::to_string).collect(),
        kept: kept.collect(),
    }
}

/// Formats a version for the audit log.
fn audit_text(version: &VersionSummary, what: &str) -> String {
    let released = if version.released { ", released" } else { "" };
    format!("version {} {what}: {} resources{released}", version.number, version.total)
}

/// Stores a version, full or partial. Releases it if the upload or the environment's `auto_deploy`
/// requires it.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/versions", tag = "versions", params(("environment" = Uuid, Path)),
    request_body = VersionUpload,
    responses((status = 201, description = "Stored", body = VersionStored), (status = 200, description = "Unchanged: the newest version", body = VersionStored)))]
pub(super) async fn upload(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    UploadBody(upload): UploadBody,
) -> Result<StoredResponse, ServerError> {
    let mut pushed = versions::push(&app, &caller, environment.clone(), upload).await?;
    attribute(&app, &caller, &mut pushed).await?;
    Ok(stored_response(&caller, &environment, pushed))
}

/// Records the caller of the operation that was created with a version.
async fn attribute(
    app: &ServerState,
    caller: &Caller,
    pushed: &mut PushedVersion,
) -> Result<(), ServerError> {
    if let Some(asked) = pushed.stored.asked.take() {
        pushed.stored.asked = Some(app::operations::attribute(app, asked, &caller.name).await?);
    }
    Ok(())
}

/// Reserves a number for a later version.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/versions/reserve", tag = "versions", params(("environment" = Uuid, Path)),
    responses((status = 201, description = "The number", body = ReservedVersion)))]
pub(super) async fn reserve(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<(StatusCode, Json<ReservedVersion>), ServerError> {
    let number = versions::reserve(&app, environment).await?;
    Ok((StatusCode::CREATED, Json(ReservedVersion { number: number.0 })))
}

/// Filter of the list of versions.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Status.
    #[param(value_type = Option<VersionStatus>)]
    status: Option<String>,
    /// Released, or not.
    released: Option<bool>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists versions, newest first.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/versions", tag = "versions", params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page", body = Page<VersionSummary>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<VersionSummary>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let before: Option<u32> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let status: Option<VersionStatus> = parse_filter("status", filter.status.as_deref())?;
    let wanted =
        VersionFilter { status, released: filter.released, before: before.map(VersionNumber) };
    let key = environment.key;
    let found = app.with_store(move |store| versions::list(store, key, wanted, limit + 1)).await?;
    let (found, next) = take_page(found, limit, |state| state.info.number.0);
    let items = found.into_iter().map(|state| summarize(&caller, &environment, state)).collect();
    Ok(Json(Page { items, next }))
}

/// Returns a version.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/versions/{number}", tag = "versions",
    params(("environment" = Uuid, Path), ("number" = u32, Path)),
    responses((status = 200, description = "The version", body = VersionSummary)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, number)): Path<(Uuid, u32)>,
) -> Result<Json<VersionSummary>, ServerError> {
    let (key, number) = (environment.key, VersionNumber(number));
    let found = app.with_store(move |store| versions::get(store, key, number)).await?;
    Ok(Json(summarize(&caller, &environment, found)))
}

/// Filter of the resources of a version.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ResourcesFilter {
    /// Agent.
    agent: Option<String>,
    /// Type, such as `std::File`.
    r#type: Option<String>,
    /// Part of the identifying value; with `*` or `?`, a pattern for the whole value. In any case.
    value: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists the resources of a version by id.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/versions/{number}/resources", tag = "versions",
    params(("environment" = Uuid, Path), ("number" = u32, Path), ResourcesFilter),
    responses((status = 200, description = "A page", body = Page<VersionResource>)))]
pub(super) async fn resources(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, number)): Path<(Uuid, u32)>,
    Query(filter): Query<ResourcesFilter>,
) -> Result<Json<Page<VersionResource>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let after: Option<String> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let wanted = ResourceFilter {
        agent: filter.agent,
        entity: filter.r#type,
        value: parse_pattern(filter.value.as_deref()),
        statuses: Vec::new(),
    };
    let (found, next) = app
        .with_store(move |store| {
            let number = VersionNumber(number);
            let after = after.as_deref();
            store.versions().resources(environment.key, number, &wanted, after, limit)
        })
        .await?;
    let items = found
        .into_iter()
        .map(|resource| VersionResource {
            id: resource.id,
            attributes: serde_json::from_str(&resource.attributes).unwrap_or_default(),
            requires: resource.requires,
            set: resource.set,
            undefined: resource.undefined,
        })
        .collect();
    Ok(Json(Page { items, next: next.as_ref().map(encode_cursor) }))
}

/// Lists the unknowns of a version.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/versions/{number}/unknowns", tag = "versions",
    params(("environment" = Uuid, Path), ("number" = u32, Path)),
    responses((status = 200, description = "All items", body = Page<Unknown>)))]
pub(super) async fn unknowns(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, number)): Path<(Uuid, u32)>,
) -> Result<Json<Page<Unknown>>, ServerError> {
    let found = app
        .with_store(move |store| {
            version_info(store, environment.key, VersionNumber(number))?;
            store.versions().unknowns(environment.key, VersionNumber(number))
        })
        .await?;
    let items = found
        .into_iter()
        .map(|(unknown, resolved)| Unknown {
            name: unknown.name,
            resource: unknown.resource.map(|id| id.to_string()),
            source: unknown.source,
            resolved,
        })
        .collect();
    Ok(Json(Page { items, next: None }))
}

fn differences(before: Option<&Resource>, after: Option<&Resource>) -> Vec<AttributeChange> {
    let of = |side: Option<&Resource>| {
        side.map(|resource| resource.attributes.to_object()).unwrap_or_default()
    };
    let (before, after) = (of(before), of(after));
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let changes = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    changes
        .map(|name| AttributeChange {
            name: name.clone(),
            current: before.get(name).cloned().unwrap_or(Value::Null),
            desired: after.get(name).cloned().unwrap_or(Value::Null),
        })
        .collect()
}

fn difference_kind(found: &orrery_store::ResourceDiff) -> DifferenceKind {
    match (&found.before, &found.after) {
        (None, _) => DifferenceKind::Added,
        (_, None) => DifferenceKind::Deleted,
        _ => DifferenceKind::Modified,
    }
}

fn difference(found: orrery_store::ResourceDiff) -> ResourceDifference {
    let status = difference_kind(&found);
    let (before, after) = (found.before.as_ref(), found.after.as_ref());
    let only = |here: Option<&Resource>, there: Option<&Resource>| {
        let there = there.map(|resource| &resource.requires[..]).unwrap_or_default();
        let here = here.map(|resource| &resource.requires[..]).unwrap_or_default();
        here.iter().filter(|id| !there.contains(id)).map(ToString::to_string).collect()
    };
    ResourceDifference {
        id: found.id.to_string(),
        status,
        changes: differences(before, after),
        requires_added: only(after, before),
        requires_removed: only(before, after),
        source: after.or(before).and_then(|side| side.source.as_ref()).map(|source| {
            SourceLocation {
                file: source.file.to_string(),
                line: source.line,
                column: source.column,
            }
        }),
    }
}

/// Returns the number of differences between two versions.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/versions/{from}/compare/{to}/counts", tag = "versions", operation_id = "compare_counts",
    params(("environment" = Uuid, Path), ("from" = u32, Path), ("to" = u32, Path)),
    responses((status = 200, description = "The counts", body = DifferenceCounts)))]
pub(super) async fn compare_counts(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, from, to)): Path<(Uuid, u32, u32)>,
) -> Result<Json<DifferenceCounts>, ServerError> {
    let (from, to) = (VersionNumber(from), VersionNumber(to));
    let counts = app.with_store(move |store| {
        let mut counts = DifferenceCounts::default();
        store.versions().diff(environment.key, from, to, &mut |each| {
            let of = match difference_kind(&each) {
                DifferenceKind::Added => &mut counts.added,
                DifferenceKind::Modified => &mut counts.modified,
                DifferenceKind::Deleted => &mut counts.deleted,
            };
            *of += 1;
        })?;
        Ok(counts)
    });
    Ok(Json(counts.await?))
}

/// Filter of the differences between two versions.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DifferenceFilter {
    /// Kind of the differences.
    #[param(value_type = Option<DifferenceKind>)]
    status: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists the differences between two versions by resource id.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/versions/{from}/compare/{to}", tag = "versions",
    params(("environment" = Uuid, Path), ("from" = u32, Path), ("to" = u32, Path), DifferenceFilter),
    responses((status = 200, description = "A page", body = Page<ResourceDifference>)))]
pub(super) async fn compare(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, from, to)): Path<(Uuid, u32, u32)>,
    Query(part): Query<DifferenceFilter>,
) -> Result<Json<Page<ResourceDifference>>, ServerError> {
    let limit = page_limit(part.limit)?;
    let kind: Option<DifferenceKind> = parse_filter("status", part.status.as_deref())?;
    let after: Option<String> = part.after.as_deref().map(parse_cursor).transpose()?;
    let found = app
        .with_store(move |store| {
            let (from, to) = (VersionNumber(from), VersionNumber(to));
            let mut found = Vec::new();
            store.versions().diff(environment.key, from, to, &mut |each| {
                let is_later = after.as_ref().is_none_or(|after| each.id.as_str() > after.as_str());
                let is_kind = kind.is_none_or(|kind| kind == difference_kind(&each));
                if is_later && is_kind && found.len() <= limit {
                    found.push(difference(each));
                }
            })?;
            Ok(found)
        })
        .await?;
    let (items, next) = take_page(found, limit, |each| each.id.clone());
    Ok(Json(Page { items, next }))
}

/// Releases a version: makes it the desired state. With `deploy` or `verify`, creates that
/// operation in the same step; the version may be released already.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/versions/{number}/release", tag = "versions",
    params(("environment" = Uuid, Path), ("number" = u32, Path)), request_body = ReleaseRequest,
    responses((status = 200, description = "Released", body = VersionReleased)))]
pub(super) async fn release(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, number)): Path<(Uuid, u32)>,
    request: Option<Body<ReleaseRequest>>,
) -> Result<WithAuditDetail<Json<VersionReleased>>, ServerError> {
    let request = request.map(|Body(request)| request).unwrap_or_default();
    let (state, asked) =
        versions::release(&app, &environment, VersionNumber(number), request).await?;
    let asked = match asked {
        Some(asked) => Some(app::operations::attribute(&app, asked, &caller.name).await?),
        None => None,
    };
    let found = VersionReleased {
        version: summarize(&caller, &environment, state),
        operation: asked.map(|asked| operations::operation_view(&environment, asked)),
    };
    let total = found.version.total;
    Ok(WithAuditDetail(format!("version {number} released: {total} resources"), Json(found)))
}

/// Rolls back: stores the content of an old version as a new one and releases it. With `deploy` or
/// `verify`, creates that operation in the same step.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/versions/{number}/roll-back", tag = "versions",
    params(("environment" = Uuid, Path), ("number" = u32, Path)), request_body = ReleaseRequest,
    responses((status = 201, description = "The new version", body = VersionStored)))]
pub(super) async fn roll_back(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, number)): Path<(Uuid, u32)>,
    request: Option<Body<ReleaseRequest>>,
) -> Result<StoredResponse, ServerError> {
    let request = request.map(|Body(request)| request).unwrap_or_default();
    let mut pushed =
        versions::roll_back(&app, &environment, VersionNumber(number), request).await?;
    attribute(&app, &caller, &mut pushed).await?;
    let WithAuditDetail(detail, stored) = stored_response(&caller, &environment, pushed);
    Ok(WithAuditDetail(format!("{detail}, as version {number}"), stored))
}

/// Deletes a version that is not in use.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/versions/{number}", tag = "versions",
    params(("environment" = Uuid, Path), ("number" = u32, Path)),
    responses((status = 204, description = "Deleted")))]
pub(super) async fn delete(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, number)): Path<(Uuid, u32)>,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    versions::delete(&app, environment.key, VersionNumber(number)).await?;
    Ok(WithAuditDetail(format!("version {number} deleted"), StatusCode::NO_CONTENT))
}
