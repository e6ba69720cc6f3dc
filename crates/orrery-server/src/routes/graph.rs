//! The dependency graph.

use axum::Json;
use axum::extract::State;
use orrery_api::{GraphDirection, ResourceGraph};
use orrery_store::StoreError;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::operations::parse_statuses;
use crate::error::ServerError;
use crate::extract::{InEnvironment, Query};
use crate::graph::{self, DrawnPart, GraphFilter, GraphQuery};
use crate::services::ServiceError;
use crate::state::ServerState;

use super::{parse_filter, parse_pattern};

/// Resources that a graph draws by default, and at most.
const LIMIT: u32 = 300;
const LIMIT_MAX: u32 = 500;
/// Neighbours of one resource, by default and at most.
const PER_PARENT: u32 = 12;
const PER_PARENT_MAX: u32 = 25;
/// Levels of neighbours.
const DEPTH_MAX: u32 = 4;

/// Part of the graph to draw.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Groups by `type`, `agent` or `set`, or `none` for resources. By default, a small environment
    /// shows all resources; a large one those that are not deployed with the paths to their causes,
    /// or groups.
    group: Option<String>,
    /// Name of the group whose members are shown; empty for the shared set.
    open: Option<String>,
    /// Id of the resource whose neighbours are shown.
    focus: Option<String>,
    /// Levels of neighbours. By default 1.
    #[param(minimum = 1, maximum = 4)]
    depth: Option<u32>,
    /// Neighbours: `both`, `requires` or `provides`. By default `both`.
    direction: Option<String>,
    /// Maximum number of resources that are drawn. By default 300.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// Maximum number of neighbours of one resource, and of siblings that are drawn one by one. By
    /// default 12.
    #[param(minimum = 1, maximum = 25)]
    per_parent: Option<u32>,
    /// Agent.
    agent: Option<String>,
    /// Type, such as `std::File`.
    r#type: Option<String>,
    /// Part of the identifying value; with `*` or `?`, a pattern for the whole value. In any case.
    value: Option<String>,
    /// Any of these statuses, separated by commas: `failed,skipped`; or none of these: `!deployed`.
    status: Option<String>,
    /// Name of a resource set.
    set: Option<String>,
}

/// Checks a number against its limits.
fn bounded(
    name: &str,
    given: Option<u32>,
    (default, max): (u32, u32),
) -> Result<usize, ServerError> {
    let given = given.unwrap_or(default);
    if !(1..=max).contains(&given) {
        let text = format!("{name}: {given} is not between 1 and {max}");
        return Err(ServerError::rule("bad-filter", text));
    }
    Ok(usize::try_from(given).unwrap_or(usize::MAX))
}

fn parse(filter: Filter) -> Result<GraphQuery, ServerError> {
    let statuses = parse_statuses(filter.status.as_deref().unwrap_or_default())
        .map_err(|reason| ServerError::rule("bad-filter", format!("status: {reason}")))?;
    let direction = parse_filter("direction", filter.direction.as_deref())?;
    Ok(GraphQuery {
        group: parse_filter("group", filter.group.as_deref())?,
        open: filter.open,
        focus: filter.focus,
        depth: bounded("depth", filter.depth, (1, DEPTH_MAX))?,
        direction: direction.unwrap_or(GraphDirection::Both),
        limit: bounded("limit", filter.limit, (LIMIT, LIMIT_MAX))?,
        per_parent: bounded("per_parent", filter.per_parent, (PER_PARENT, PER_PARENT_MAX))?,
        filter: GraphFilter {
            agent: filter.agent,
            entity: filter.r#type,
            set: filter.set,
            value: parse_pattern(filter.value.as_deref()),
            statuses,
        },
    })
}

/// Draws a part of the dependency graph: resources or groups with coordinates, requirements on the
/// left, and the number of resources that are left out.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/graph", tag = "resources", operation_id = "graph", params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "The drawing", body = ResourceGraph)))]
pub(super) async fn show(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<ResourceGraph>, ServerError> {
    let query = parse(filter)?;
    let graph = app.graph_cache().get(&app, environment.key).await?;
    // Milliseconds of work in a large environment.
    let draw = move || {
        let Some(part) = DrawnPart::choose(&graph, &query) else {
            let focus = query.focus.clone().unwrap_or_default();
            return Err(ServiceError::from(StoreError::NoResource(focus)));
        };
        Ok(graph::draw(&graph, &part, &query))
    };
    Ok(Json(app.with_store(move |_| Ok(draw())).await??))
}
