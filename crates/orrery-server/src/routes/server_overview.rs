//! State of the installation.

use axum::Json;
use axum::extract::State;
use orrery_api::{
    EngineProcess, EnvironmentEngine, EnvironmentLease, GatewayProcess, MaintenanceTaskStatus,
    ServerOverview,
};
use orrery_store::{EngineOverview, EnvironmentRecord, Holder, LeaseRecord};

use crate::access::Right;
use crate::app::server_overview;
use crate::auth::Caller;
use crate::error::ServerError;
use crate::state::ServerState;
use crate::task_status::TaskStatus;

use super::time;

/// Engines in one answer.
const ENGINES_MAX: usize = 500;

/// Returns the state of the installation: processes, engines with their leases, gateways and
/// maintenance.
#[utoipa::path(get, path = "/api/v1/server", tag = "health", operation_id = "server_overview",
    responses((status = 200, description = "The state", body = ServerOverview)))]
pub(super) async fn show(
    State(app): State<ServerState>,
    caller: Caller,
) -> Result<Json<ServerOverview>, ServerError> {
    let is_visible =
        move |record: &EnvironmentRecord| caller.may_in_environment(Right::View, record);
    let found = server_overview::read(&app, is_visible).await?;
    let now = app.now();
    let own = Holder::this_process("", now);
    let processes = found.processes.into_iter().map(|((host, pid, command), environments)| {
        let answering = host == own.host && pid == own.pid;
        EngineProcess { host, pid, command, environments, answering }
    });
    let gateways = found.gateways.into_iter().map(|gateway| GatewayProcess {
        id: gateway.uuid.uuid(),
        address: gateway.address,
        started: time(gateway.started),
        seen: time(gateway.seen),
    });
    let other_engines = found.engines.len().saturating_sub(ENGINES_MAX) as u64;
    Ok(Json(ServerOverview {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        isolation: app.settings().isolation.map(str::to_owned),
        own_machine: app.settings().own_machine.map(str::to_owned),
        now: time(now),
        processes: processes.collect(),
        gateways: gateways.collect(),
        engines: found.engines.into_iter().take(ENGINES_MAX).map(engine_view).collect(),
        other_engines,
        maintenance: app.tasks().all().iter().map(task_view).collect(),
    }))
}

fn engine_view((record, engine): (EnvironmentRecord, EngineOverview)) -> EnvironmentEngine {
    EnvironmentEngine {
        environment: record.uuid.uuid(),
        name: record.name,
        project_name: record.project_name,
        halted: record.halted,
        problem: record.problem,
        lease: engine.lease.map(|LeaseRecord { epoch, holder, expires }| EnvironmentLease {
            host: holder.host,
            pid: holder.pid,
            epoch,
            since: time(holder.since),
            expires: expires.map(time),
        }),
        active_version: engine.processed.map(|version| version.0),
        released_version: engine.released.map(|version| version.0),
        open_operations: engine.open_requests,
        oldest_operation: engine.oldest_request.map(time),
    }
}

fn task_view(status: &TaskStatus) -> MaintenanceTaskStatus {
    let (last_run, took) = status.last_run.unzip();
    MaintenanceTaskStatus {
        name: status.name.to_owned(),
        period_seconds: status.period.as_secs(),
        result: status.result.as_str().to_owned(),
        last_run: last_run.map(time),
        last_run_seconds: took.map(|took| took.as_secs_f64()),
        last_success: status.last_success.map(time),
        runs: status.runs,
        failures: status.failures,
    }
}
