//! Operations: the next intent of a cluster, its resources and its plan, computed on a snapshot.

use orrery_api::{
    ClusterOperationKind, ClusterOperationRequest, ClusterPlan, NewCluster, RestartMode,
};
use orrery_cluster::document::Catalog;
use orrery_cluster::intent::{self, ClusterIntent, HardwareChange, IntentError};
use orrery_cluster::render::{
    self, RenderError, RenderPolicy, Rendering, RestartPolicy, with_restarts,
};
use orrery_cluster::solver::{LayoutRequest, MAX_SIZE, SearchLimits};
use orrery_store::{ClusterRecord, Store, StoreError};
use serde_json::Value;

use super::intents::{self, ClusterState};
use super::plans;
use crate::error::ServerError;

/// Maximum number of services in a request.
const SERVICES_MAX: usize = 1_000;

/// An operation that is ready to be stored.
#[derive(Debug)]
pub(crate) struct ComputedOperation {
    pub(crate) kind: ClusterOperationKind,
    pub(crate) request: Value,
    pub(crate) intent: ClusterIntent,
    pub(crate) rendering: Rendering,
    pub(crate) plan: ClusterPlan,
}

fn unsuitable(text: impl ToString) -> ServerError {
    ServerError::rule("unsuitable-request", text.to_string())
}

fn refused(error: &IntentError) -> ServerError {
    let mut text = error.to_string();
    if let IntentError::Resize(resize) = error
        && let Some(advice) = resize.advice()
    {
        text += &format!("; {advice}");
    }
    unsuitable(text)
}

fn not_rendered(error: &RenderError) -> ServerError {
    unsuitable(error)
}

/// Renders and plans a change of intents. `old` includes everything that may exist.
pub(crate) fn compute(
    (kind, request): (ClusterOperationKind, Value),
    old: Option<&ClusterIntent>,
    new: &ClusterIntent,
    policy: &RenderPolicy,
) -> Result<ComputedOperation, ServerError> {
    let failed = |error: RenderError| not_rendered(&error);
    let intent = with_restarts(old, new, &policy.restart).map_err(failed)?;
    let rendering = render::render(old, &intent, policy).map_err(failed)?;
    let plan = render::plan(old, &intent, policy).map_err(failed)?;
    let plan = plans::describe(old, &intent, &plan, &rendering);
    Ok(ComputedOperation { kind, request, intent, rendering, plan })
}

/// Computes the creation of a cluster.
pub(crate) fn create(
    catalog: &Catalog,
    (id, owner): (&str, &str),
    new: &NewCluster,
    digests: std::collections::BTreeMap<String, String>,
    limits: SearchLimits<'_>,
) -> Result<ComputedOperation, ServerError> {
    check_size(new.size)?;
    check_services(new.services.as_deref())?;
    let mut wanted = LayoutRequest::new(new.template.clone(), new.size);
    wanted.provider.clone_from(&new.provider);
    wanted.hardware.clone_from(&new.hardwaretype);
    wanted.image.clone_from(&new.imagetype);
    wanted.services.clone_from(&new.services);
    let cluster = intent::ClusterRequest {
        cluster: id.to_owned(),
        name: new.name.clone(),
        owner: owner.to_owned(),
        request: wanted,
        dns_suffix: new.dns_suffix.clone(),
        config: new.config.clone(),
    };
    let first = intent::create(catalog, &cluster, limits).map_err(|error| refused(&error))?;
    let first = first.with_plugin_resources(digests);
    let request = serde_json::to_value(new).unwrap_or_default();
    compute((ClusterOperationKind::Create, request), None, &first, &RenderPolicy::default())
}

fn check_size(size: u32) -> Result<(), ServerError> {
    if (1..=MAX_SIZE).contains(&size) {
        return Ok(());
    }
    Err(ServerError::field("size", format!("must be 1 to {MAX_SIZE}")))
}

fn check_services(services: Option<&[String]>) -> Result<(), ServerError> {
    match services {
        Some(services) if services.len() > SERVICES_MAX => {
            Err(ServerError::field("services", format!("must not be more than {SERVICES_MAX}")))
        }
        _ => Ok(()),
    }
}

/// Fields of a request that belong to its kind.
#[derive(Clone, Copy, Default)]
struct Fields {
    size: bool,
    services: bool,
    node: bool,
    hardwaretype: bool,
    config: bool,
    restart: bool,
}

fn fields(kind: ClusterOperationKind) -> Fields {
    use ClusterOperationKind as Kind;
    let restart = Fields { restart: true, ..Fields::default() };
    match kind {
        Kind::Resize => Fields { size: true, ..restart },
        Kind::AddServices | Kind::RemoveServices | Kind::Restart => {
            Fields { services: true, ..restart }
        }
        Kind::Start | Kind::Stop => Fields { services: true, ..Fields::default() },
        Kind::ChangeHardware => {
            Fields { services: true, node: true, hardwaretype: true, ..restart }
        }
        Kind::Reconfigure => Fields { config: true, ..restart },
        Kind::Replace => Fields { node: true, ..restart },
        Kind::Update | Kind::Revert => restart,
        Kind::Create | Kind::Delete => Fields::default(),
    }
}

/// Refuses fields that do not belong to the kind of a request.
pub(crate) fn check(request: &ClusterOperationRequest) -> Result<(), ServerError> {
    let kind = request.kind;
    if kind == ClusterOperationKind::Create {
        let reason = "must not be create: POST to the clusters of a project";
        return Err(ServerError::field("kind", reason));
    }
    let allowed = fields(kind);
    let has_limit = request.max_unavailable.is_some();
    for (name, is_given, is_allowed) in [
        ("size", request.size.is_some(), allowed.size),
        ("services", request.services.is_some(), allowed.services),
        ("node", request.node.is_some(), allowed.node),
        ("hardwaretype", request.hardwaretype.is_some(), allowed.hardwaretype),
        ("config", request.config.is_some(), allowed.config),
        ("restart", request.restart.is_some(), allowed.restart),
        ("max_unavailable", has_limit, request.restart == Some(RestartMode::Rolling)),
    ] {
        if is_given && !is_allowed {
            let context = if name == "max_unavailable" {
                "a restart other than rolling"
            } else {
                kind.as_str()
            };
            return Err(ServerError::field(name, format!("does not belong to {context}")));
        }
    }
    if request.max_unavailable == Some(0) {
        return Err(ServerError::field("max_unavailable", "must be at least 1"));
    }
    check_services(request.services.as_deref())
}

/// Restarts that a request asks for.
pub(crate) fn policy(request: &ClusterOperationRequest) -> RenderPolicy {
    use ClusterOperationKind as Kind;
    let default = match request.kind {
        Kind::Reconfigure | Kind::Restart => RestartMode::Together,
        _ => RestartMode::None,
    };
    let restart = match request.restart.unwrap_or(default) {
        RestartMode::None => RestartPolicy::None,
        RestartMode::Together => RestartPolicy::Together,
        RestartMode::Rolling => RestartPolicy::Rolling {
            max_unavailable: std::collections::BTreeMap::new(),
            default: request.max_unavailable.unwrap_or(1),
        },
    };
    RenderPolicy { restart }
}

/// Policy of a stored operation. One of a newer program gets the default.
pub(crate) fn stored_policy(request: &Value) -> RenderPolicy {
    let request = serde_json::from_value::<ClusterOperationRequest>(request.clone());
    request.map(|request| policy(&request)).unwrap_or_default()
}

fn required<T: Clone>(name: &str, given: Option<&T>) -> Result<T, ServerError> {
    given.cloned().ok_or_else(|| ServerError::field(name, "is required"))
}

/// What operations read beside the cluster.
pub(crate) struct OperationInputs<'a> {
    pub(crate) catalog: &'a Catalog,
    /// The intent before the last operation; `None` if there was none.
    pub(crate) previous: Option<ClusterIntent>,
    /// Digests of the live plug-in resources.
    pub(crate) digests: std::collections::BTreeMap<String, String>,
}

/// Computes an operation on a cluster.
pub(crate) fn operate(
    state: &ClusterState,
    request: &ClusterOperationRequest,
    inputs: OperationInputs<'_>,
    limits: SearchLimits<'_>,
) -> Result<ComputedOperation, ServerError> {
    let next = next_intent(state, request, inputs, limits)?;
    let told = serde_json::to_value(request).unwrap_or_default();
    compute((request.kind, told), Some(&state.existing), &next, &policy(request))
}

fn next_intent(
    state: &ClusterState,
    request: &ClusterOperationRequest,
    inputs: OperationInputs<'_>,
    limits: SearchLimits<'_>,
) -> Result<ClusterIntent, ServerError> {
    use ClusterOperationKind as Kind;
    let OperationInputs { catalog, previous, digests } = inputs;
    let (intent, named) = (&state.intent, request.services.clone().unwrap_or_default());
    let next = match request.kind {
        Kind::Create => return Err(ServerError::field("kind", "must not be create")),
        Kind::Resize => {
            let size = required("size", request.size.as_ref())?;
            check_size(size)?;
            intent.resize(size, limits)
        }
        Kind::AddServices => {
            required("services", request.services.as_ref().filter(|names| !names.is_empty()))?;
            let next = intent.add_services(catalog, &named, limits);
            next.map(|next| next.with_plugin_resources(digests))
        }
        Kind::RemoveServices => {
            required("services", request.services.as_ref().filter(|names| !names.is_empty()))?;
            intent.remove_services(&named)
        }
        Kind::ChangeHardware => {
            let hardwaretype = Some(required("hardwaretype", request.hardwaretype.as_ref())?);
            let nodes = request.node.iter().cloned().collect();
            let change = HardwareChange { nodes, services: named, hardwaretype, imagetype: None };
            intent.change_hardware(catalog, &change)
        }
        Kind::Reconfigure => {
            let config = required("config", request.config.as_ref())?;
            let next = intent.reconfigure(config);
            next.map(|next| next.with_plugin_resources(digests))
        }
        Kind::Start => intent.start(&named),
        Kind::Stop => intent.stop(&named),
        Kind::Restart => intent.restart(&named),
        Kind::Update => intent.update(catalog).map(|next| next.with_plugin_resources(digests)),
        Kind::Replace => intent.replace(&required("node", request.node.as_ref())?),
        Kind::Revert => Ok(reverted(intent, previous)),
        Kind::Delete => Ok(intent.delete()),
    };
    next.map_err(|error| refused(&error))
}

/// The intent before the last operation. Numbers do not run backwards: a name never stands for an
/// earlier machine. Without one, nothing is wanted.
fn reverted(current: &ClusterIntent, previous: Option<ClusterIntent>) -> ClusterIntent {
    let Some(mut next) = previous else { return current.delete() };
    next.next_number = next.next_number.max(current.next_number);
    next.serial = current.serial + 1;
    for (name, node) in &mut next.nodes {
        let Some(now) = current.nodes.get(name) else { continue };
        node.incarnation = node.incarnation.max(now.incarnation);
        for (service, state) in &mut node.services {
            if let Some(now) = now.services.get(service) {
                // The configuration changes back: a restart is due where one was.
                state.generation = match state.generation == now.generation {
                    true => now.generation,
                    false => now.generation + 1,
                };
                state.epoch = state.epoch.max(now.epoch);
            }
        }
    }
    next
}

/// Reads the intent before the last operation of a cluster.
pub(crate) fn previous_intent(
    store: &Store,
    record: &ClusterRecord,
) -> Result<Option<ClusterIntent>, StoreError> {
    let last = store.cluster_operations().list(record.key, None, 1)?;
    match last.first().map(|last| last.base) {
        Some(base) if base > 0 => intents::read(store, record.key, base).map(Some),
        _ => Ok(None),
    }
}
