//! Cluster documents of the installation and of projects, and previews of clusters.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{
    ClusterDocument, ClusterDocumentKind, DocumentChangeKind, DocumentChanges, DocumentsApplied,
    NewClusterDocument, Page, Problem, SolveAnswer, SolveRequest,
};
use orrery_cluster::document::DocumentKind;
use orrery_model::ProjectId;
use orrery_store::{ClusterDocumentRecord, DocumentFilter, DocumentName, Store, StoreError};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::access::Right;
use crate::auth::{Caller, WithAuditDetail};
use crate::cluster::{self, Author, Scope, content_of, kind_of, kind_to_api};
use crate::error::ServerError;
use crate::extract::{Body, IfMatch, Path, Query, etag, page_limit, parse_cursor, take_page};
use crate::state::ServerState;

use super::{parse_stored, time};

/// Maximum number of document names in an audit entry.
const AUDITED_NAMES_MAX: usize = 20;

/// Filter of the list of documents.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListFilter {
    /// Kind.
    #[param(value_type = Option<ClusterDocumentKind>)]
    kind: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Revision {
    /// Number of a revision; default: the newest.
    revision: Option<i64>,
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Section {
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Settings of providers may be credentials and are for administrators.
const FOR_ADMINISTRATORS: &str = "provisioner";

fn document_view(
    caller: &Caller,
    record: ClusterDocumentRecord,
) -> Result<ClusterDocument, StoreError> {
    let mut content = content_of(&record);
    let project = record.project.map(Uuid::from);
    let is_partly_hidden = record.kind == DocumentKind::Provider.id()
        && !has_right(caller, Right::Administer, project);
    if let (true, Some(Value::Object(fields))) = (is_partly_hidden, &mut content) {
        fields.shift_remove(FOR_ADMINISTRATORS);
    }
    Ok(ClusterDocument {
        kind: parse_stored("kind of a document", &record.kind)?,
        name: record.name,
        project,
        revision: record.revision,
        content,
        created: time(record.created),
        changed: time(record.changed),
        changed_by: record.changed_by,
    })
}

fn has_right(caller: &Caller, right: Right, scope: Scope) -> bool {
    match scope {
        Some(project) => caller.may_in_project(right, &project),
        None => caller.may_everywhere(right),
    }
}

/// Quotas of tenants are visible with the right to see all tenants.
fn is_visible(caller: &Caller, kind: &str) -> bool {
    kind != DocumentKind::Tenant.id() || caller.may_everywhere(Right::View)
}

async fn list(
    app: ServerState,
    caller: Caller,
    scope: Scope,
    filter: ListFilter,
) -> Result<Json<Page<ClusterDocument>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let after: Option<(String, String)> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let kind = filter.kind.as_deref().map(kind_of).transpose()?;
    let found = app
        .with_store(move |store| {
            let filter = DocumentFilter {
                project: scope.map(Into::into),
                kind: kind.as_ref().map(DocumentKind::id),
                after: after.as_ref().map(|(kind, name)| (kind.as_str(), name.as_str())),
            };
            store.cluster_documents().list(&filter, limit + 1)
        })
        .await?;
    let (found, next) = take_page(found, limit, |one| (one.kind.clone(), one.name.clone()));
    let visible = found.into_iter().filter(|one| is_visible(&caller, &one.kind));
    let items = visible.map(|one| document_view(&caller, one)).collect::<Result<_, _>>()?;
    Ok(Json(Page { items, next }))
}

/// Finds a document in a project, then in the installation.
async fn find<T: Send + 'static>(
    app: &ServerState,
    scope: Scope,
    look: impl Fn(&Store, Option<ProjectId>) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, ServerError> {
    let found = app.with_store(move |store| {
        let own = look(store, scope.map(Into::into));
        match own {
            Err(StoreError::NotFound { .. }) if scope.is_some() => look(store, None),
            own => own,
        }
    });
    Ok(found.await?)
}

async fn show(
    app: ServerState,
    caller: Caller,
    scope: Scope,
    (kind, name): (String, String),
    revision: Option<i64>,
) -> Result<(HeaderMap, Json<ClusterDocument>), ServerError> {
    let kind = kind_of(&kind)?;
    if !is_visible(&caller, kind.id()) {
        return Err(ServerError::NotFound { kind: kind.noun(), name });
    }
    let found = find(&app, scope, move |records, project| {
        records
            .cluster_documents()
            .get(DocumentName { project, kind: kind.id(), name: &name }, revision)
    })
    .await?;
    Ok((etag(found.revision), Json(document_view(&caller, found)?)))
}

async fn put(
    app: ServerState,
    caller: Caller,
    scope: Scope,
    (kind, name): (String, String),
    expected: Option<i64>,
    content: Box<RawValue>,
) -> Result<WithAuditDetail<(StatusCode, HeaderMap, Json<ClusterDocument>)>, ServerError> {
    let known = kind_of(&kind)?;
    let given: Value = serde_json::from_str(content.get()).unwrap_or_default();
    let inner = given.get("tenant").filter(|_| known == DocumentKind::Tenant).unwrap_or(&given);
    if let Some(other) = inner.get("name").filter(|other| other.as_str() != Some(&*name)) {
        let reason = format!("is {other} in the document, and {name} in the address");
        return Err(ServerError::field("name", reason));
    }
    let kind = kind_to_api(known);
    let document = NewClusterDocument { kind, content, revision: expected };
    let author = Author { name: caller.name.clone(), scope };
    let changes = DocumentChanges { documents: vec![document], dry_run: false };
    let applied = cluster::apply(&app, &author, changes).await?;
    let change = applied.documents.into_iter().next();
    let change = change.ok_or_else(|| ServerError::Internal("no change".to_owned()))?;
    let revision = change.revision;
    let kept = find(&app, scope, move |records, project| {
        let name = DocumentName { project, kind: known.id(), name: &name };
        records.cluster_documents().get(name, Some(revision))
    })
    .await?;
    let status = match change.change {
        DocumentChangeKind::Created => StatusCode::CREATED,
        DocumentChangeKind::Updated | DocumentChangeKind::Unchanged => StatusCode::OK,
    };
    let detail = format!("{} {}: revision {revision}", change.kind, change.name);
    Ok(WithAuditDetail(detail, (status, etag(revision), Json(document_view(&caller, kept)?))))
}

async fn delete(
    app: ServerState,
    caller: Caller,
    scope: Scope,
    (kind, name): (String, String),
    expected: Option<i64>,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    let kind = kind_of(&kind)?;
    let author = Author { name: caller.name.clone(), scope };
    let revision = cluster::delete(&app, &author, kind, &name, expected).await?;
    let detail = format!("{} {name} deleted: revision {revision}", kind.id());
    Ok(WithAuditDetail(detail, StatusCode::NO_CONTENT))
}

async fn history(
    app: ServerState,
    caller: Caller,
    scope: Scope,
    (kind, name): (String, String),
    section: Section,
) -> Result<Json<Page<ClusterDocument>>, ServerError> {
    let limit = page_limit(section.limit)?;
    let before: Option<i64> = section.after.as_deref().map(parse_cursor).transpose()?;
    let kind = kind_of(&kind)?;
    if !is_visible(&caller, kind.id()) {
        return Err(ServerError::NotFound { kind: kind.noun(), name });
    }
    let found = find(&app, scope, move |records, project| {
        let name = DocumentName { project, kind: kind.id(), name: &name };
        records.cluster_documents().history(name, before, limit + 1)
    })
    .await?;
    let (found, next) = take_page(found, limit, |one| one.revision);
    let items = found.into_iter().map(|one| document_view(&caller, one));
    Ok(Json(Page { items: items.collect::<Result<_, _>>()?, next }))
}

async fn apply(
    app: ServerState,
    caller: Caller,
    scope: Scope,
    changes: DocumentChanges,
) -> Result<WithAuditDetail<Json<DocumentsApplied>>, ServerError> {
    let author = Author { name: caller.name, scope };
    let applied = cluster::apply(&app, &author, changes).await?;
    let changed = applied.documents.iter();
    let changed = changed.filter(|one| one.change != DocumentChangeKind::Unchanged);
    let names: Vec<String> = changed.map(|one| format!("{}/{}", one.kind, one.name)).collect();
    let mut detail = match applied.applied {
        true => format!("{} documents changed", names.len()),
        false => format!("dry run: {} documents would change", names.len()),
    };
    if !names.is_empty() {
        let first: Vec<&str> = names.iter().take(AUDITED_NAMES_MAX).map(String::as_str).collect();
        detail += &format!(": {}", first.join(", "));
    }
    Ok(WithAuditDetail(detail, Json(applied)))
}

/// Lists the cluster documents of the installation.
#[utoipa::path(get, path = "/api/v1/cluster-documents", tag = "cluster documents", params(ListFilter),
    responses((status = 200, body = Page<ClusterDocument>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list_shared(
    State(app): State<ServerState>,
    caller: Caller,
    Query(filter): Query<ListFilter>,
) -> Result<Json<Page<ClusterDocument>>, ServerError> {
    list(app, caller, None, filter).await
}

/// Returns a cluster document of the installation, current or at a revision.
#[utoipa::path(get, path = "/api/v1/cluster-documents/{kind}/{name}", tag = "cluster documents", params(("kind" = String, Path), ("name" = String, Path), Revision),
    responses((status = 200, body = ClusterDocument), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get_shared(
    State(app): State<ServerState>,
    caller: Caller,
    Path((kind, name)): Path<(String, String)>,
    Query(Revision { revision }): Query<Revision>,
) -> Result<(HeaderMap, Json<ClusterDocument>), ServerError> {
    show(app, caller, None, (kind, name), revision).await
}

/// Stores a cluster document of the installation as a new revision. All documents must be
/// consistent afterwards.
#[utoipa::path(put, path = "/api/v1/cluster-documents/{kind}/{name}", tag = "cluster documents", params(("kind" = String, Path), ("name" = String, Path)), request_body = Object,
    responses((status = 200, description = "Changed or unchanged", body = ClusterDocument), (status = 201, body = ClusterDocument), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put_shared(
    State(app): State<ServerState>,
    caller: Caller,
    Path((kind, name)): Path<(String, String)>,
    IfMatch(expected): IfMatch,
    Body(content): Body<Box<RawValue>>,
) -> Result<WithAuditDetail<(StatusCode, HeaderMap, Json<ClusterDocument>)>, ServerError> {
    put(app, caller, None, (kind, name), expected, content).await
}

/// Deletes a cluster document of the installation without references from others. Its history
/// remains.
#[utoipa::path(delete, path = "/api/v1/cluster-documents/{kind}/{name}", tag = "cluster documents", params(("kind" = String, Path), ("name" = String, Path)),
    responses((status = 204, description = "Deleted"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete_shared(
    State(app): State<ServerState>,
    caller: Caller,
    Path((kind, name)): Path<(String, String)>,
    IfMatch(expected): IfMatch,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    delete(app, caller, None, (kind, name), expected).await
}

/// Lists all revisions of a cluster document of the installation, newest first. A deletion is a
/// revision without content.
#[utoipa::path(get, path = "/api/v1/cluster-documents/{kind}/{name}/history", tag = "cluster documents", params(("kind" = String, Path), ("name" = String, Path), Section),
    responses((status = 200, body = Page<ClusterDocument>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn history_shared(
    State(app): State<ServerState>,
    caller: Caller,
    Path((kind, name)): Path<(String, String)>,
    Query(section): Query<Section>,
) -> Result<Json<Page<ClusterDocument>>, ServerError> {
    history(app, caller, None, (kind, name), section).await
}

/// Stores cluster documents of the installation, all or none of them. A dry run validates them and
/// returns the changes.
#[utoipa::path(post, path = "/api/v1/cluster-documents/apply", tag = "cluster documents", request_body = DocumentChanges,
    responses((status = 200, body = DocumentsApplied), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn apply_shared(
    State(app): State<ServerState>,
    caller: Caller,
    Body(changes): Body<DocumentChanges>,
) -> Result<WithAuditDetail<Json<DocumentsApplied>>, ServerError> {
    apply(app, caller, None, changes).await
}

/// Previews a cluster with the documents of the installation: its nodes, its cost and the plan that
/// would create it, or a set of contradicting rules. Stores nothing and touches no machine.
#[utoipa::path(post, path = "/api/v1/cluster-documents/solve", tag = "cluster documents", request_body = SolveRequest,
    responses((status = 200, body = SolveAnswer), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn solve_shared(
    State(app): State<ServerState>,
    Body(request): Body<SolveRequest>,
) -> Result<Json<SolveAnswer>, ServerError> {
    cluster::solve(&app, None, request).await.map(Json)
}

/// Lists the cluster documents visible to a project: its own, and those of the installation that it
/// does not override.
#[utoipa::path(get, path = "/api/v1/projects/{project}/cluster-documents", tag = "cluster documents", params(("project" = Uuid, Path), ListFilter),
    responses((status = 200, body = Page<ClusterDocument>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list_own(
    State(app): State<ServerState>,
    caller: Caller,
    Path(project): Path<Uuid>,
    Query(filter): Query<ListFilter>,
) -> Result<Json<Page<ClusterDocument>>, ServerError> {
    list(app, caller, Some(project), filter).await
}

/// Returns a cluster document visible to a project, current or at a revision.
#[utoipa::path(get, path = "/api/v1/projects/{project}/cluster-documents/{kind}/{name}", tag = "cluster documents", params(("project" = Uuid, Path), ("kind" = String, Path), ("name" = String, Path), Revision),
    responses((status = 200, body = ClusterDocument), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get_own(
    State(app): State<ServerState>,
    caller: Caller,
    Path((project, kind, name)): Path<(Uuid, String, String)>,
    Query(Revision { revision }): Query<Revision>,
) -> Result<(HeaderMap, Json<ClusterDocument>), ServerError> {
    show(app, caller, Some(project), (kind, name), revision).await
}

/// Stores a cluster document of a project as a new revision. All documents must be consistent
/// afterwards.
#[utoipa::path(put, path = "/api/v1/projects/{project}/cluster-documents/{kind}/{name}", tag = "cluster documents", params(("project" = Uuid, Path), ("kind" = String, Path), ("name" = String, Path)), request_body = Object,
    responses((status = 200, description = "Changed or unchanged", body = ClusterDocument), (status = 201, body = ClusterDocument), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put_own(
    State(app): State<ServerState>,
    caller: Caller,
    Path((project, kind, name)): Path<(Uuid, String, String)>,
    IfMatch(expected): IfMatch,
    Body(content): Body<Box<RawValue>>,
) -> Result<WithAuditDetail<(StatusCode, HeaderMap, Json<ClusterDocument>)>, ServerError> {
    put(app, caller, Some(project), (kind, name), expected, content).await
}

/// Deletes a cluster document of a project without references from others. Its history remains.
#[utoipa::path(delete, path = "/api/v1/projects/{project}/cluster-documents/{kind}/{name}", tag = "cluster documents", params(("project" = Uuid, Path), ("kind" = String, Path), ("name" = String, Path)),
    responses((status = 204, description = "Deleted"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete_own(
    State(app): State<ServerState>,
    caller: Caller,
    Path((project, kind, name)): Path<(Uuid, String, String)>,
    IfMatch(expected): IfMatch,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    delete(app, caller, Some(project), (kind, name), expected).await
}

/// Lists all revisions of a cluster document visible to a project, newest first. A deletion is a
/// revision without content.
#[utoipa::path(get, path = "/api/v1/projects/{project}/cluster-documents/{kind}/{name}/history", tag = "cluster documents", params(("project" = Uuid, Path), ("kind" = String, Path), ("name" = String, Path), Section),
    responses((status = 200, body = Page<ClusterDocument>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn history_own(
    State(app): State<ServerState>,
    caller: Caller,
    Path((project, kind, name)): Path<(Uuid, String, String)>,
    Query(section): Query<Section>,
) -> Result<Json<Page<ClusterDocument>>, ServerError> {
    history(app, caller, Some(project), (kind, name), section).await
}

/// Stores cluster documents of a project, all or none of them. A dry run validates them and returns
/// the changes.
#[utoipa::path(post, path = "/api/v1/projects/{project}/cluster-documents/apply", tag = "cluster documents", params(("project" = Uuid, Path)), request_body = DocumentChanges,
    responses((status = 200, body = DocumentsApplied), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn apply_own(
    State(app): State<ServerState>,
    caller: Caller,
    Path(project): Path<Uuid>,
    Body(changes): Body<DocumentChanges>,
) -> Result<WithAuditDetail<Json<DocumentsApplied>>, ServerError> {
    apply(app, caller, Some(project), changes).await
}

/// Previews a cluster with the documents visible to a project: its nodes, its cost and the plan
/// that would create it, or a set of contradicting rules. Stores nothing and touches no machine.
#[utoipa::path(post, path = "/api/v1/projects/{project}/cluster-documents/solve", tag = "cluster documents", params(("project" = Uuid, Path)), request_body = SolveRequest,
    responses((status = 200, body = SolveAnswer), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn solve_own(
    State(app): State<ServerState>,
    Path(project): Path<Uuid>,
    Body(request): Body<SolveRequest>,
) -> Result<Json<SolveAnswer>, ServerError> {
    cluster::solve(&app, Some(project), request).await.map(Json)
}
