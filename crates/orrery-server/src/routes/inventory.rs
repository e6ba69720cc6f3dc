//! Inventories of environments.

use axum::Json;
use axum::extract::State;
use orrery_api::{EnvironmentInventory, HostSetting, HostSummary, InventoryDocument, Page};
use orrery_model::{HostInventory, Inventory, InventoryHost};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::inventory::{self, StoredInventory};
use crate::auth::{Caller, WithAuditDetail};
use crate::error::ServerError;
use crate::extract::{
    Body, InEnvironment, Query, page_limit, parse_cursor as page_place, take_page,
};
use crate::placement;
use crate::state::ServerState;

fn view(stored: StoredInventory) -> Result<EnvironmentInventory, ServerError> {
    let StoredInventory { version, released, document } = stored;
    let hosts = HostInventory::resolve(&document).map_or(0, |hosts| hosts.hosts().count());
    let document: Option<InventoryDocument> = serde_json::from_value(document)
        .map_err(|error| ServerError::field("document", error.to_string()))?;
    Ok(EnvironmentInventory {
        version: version.map(|number| u64::from(number.0)),
        released,
        hosts: hosts as u64,
        document: document.unwrap_or_default(),
    })
}

/// Returns the inventory of the newest version.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/inventory", tag = "agents", operation_id = "inventory",
    params(("environment" = Uuid, Path)),
    responses((status = 200, description = "The inventory", body = EnvironmentInventory)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<EnvironmentInventory>, ServerError> {
    let stored = app.with_store(move |store| inventory::read(store, &environment)).await?;
    Ok(Json(view(stored)?))
}

/// Replaces the inventory. Stores a version with the resources of the newest one, and releases it if
/// the environment's `auto_deploy` requires it.
#[utoipa::path(put, path = "/api/v1/environments/{environment}/inventory", tag = "agents", operation_id = "put_inventory",
    params(("environment" = Uuid, Path)), request_body = InventoryDocument,
    responses((status = 200, description = "The stored inventory", body = EnvironmentInventory)))]
pub(super) async fn put(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Body(document): Body<InventoryDocument>,
) -> Result<WithAuditDetail<Json<EnvironmentInventory>>, ServerError> {
    let (of, limits) = (environment.clone(), app.settings().contents);
    let stored = inventory::put(&app, &caller, of, &document, limits).await?;
    let what = if stored.put.created { "stored" } else { "is the same" };
    let now = app.with_store(move |store| inventory::read(store, &environment)).await?;
    let now = view(now)?;
    let detail = format!("inventory {what}: version {}, {} hosts", stored.put.number.0, now.hosts);
    Ok(WithAuditDetail(detail, Json(now)))
}

/// Page of the list of hosts.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists the hosts of the newest version's inventory by name, with the placements of their agents.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/inventory/hosts", tag = "agents", operation_id = "inventory_hosts",
    params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page", body = Page<HostSummary>)))]
pub(super) async fn hosts(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<HostSummary>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let after: String = filter.after.as_deref().map(page_place).transpose()?.unwrap_or_default();
    let key = environment.key;
    let (found, known) =
        app.with_store(move |store| inventory::list_hosts(store, key, &after, limit + 1)).await?;
    let (found, next) = take_page(found, limit, |(name, _)| name.clone());
    let items = found.iter().map(|(name, host)| host_view(name, host, &known)).collect();
    Ok(Json(Page { items, next }))
}

fn host_view(name: &str, host: &InventoryHost, known: &Inventory) -> HostSummary {
    let setting = |(key, value): (&&'static str, &orrery_model::HostValue)| {
        let setting = HostSetting { value: value.value.clone(), source: value.source.to_string() };
        ((*key).to_owned(), setting)
    };
    HostSummary {
        name: name.to_owned(),
        groups: host.groups.clone(),
        address: host.address.to_string(),
        values: host.values.iter().map(setting).collect(),
        placement: placement::to_view(name, &known.placement_of(name)),
    }
}
