//! State of the installation: engines, gateways, processes.

use std::collections::{BTreeMap, BTreeSet};

use orrery_gateway::HEARTBEAT_MAX_AGE;
use orrery_store::{EngineOverview, EnvironmentKey, EnvironmentRecord, GatewayRecord};

use crate::error::ServerError;
use crate::services::Services;

/// Processes, gateways and engines.
#[derive(Debug)]
pub(crate) struct Installation {
    pub(crate) gateways: Vec<GatewayRecord>,
    /// Number of environments of each process: host, id and command.
    pub(crate) processes: BTreeMap<(String, u32, String), u64>,
    /// Environments with a release, a lease or an open request; those with a problem first.
    pub(crate) engines: Vec<(EnvironmentRecord, EngineOverview)>,
}

/// Reads the engines of the environments that `is_visible` permits.
pub(crate) async fn read(
    services: &Services,
    is_visible: impl Fn(&EnvironmentRecord) -> bool + Send + 'static,
) -> Result<Installation, ServerError> {
    let read = services.with_store(|store| {
        Ok((
            store.environments().list(None)?,
            store.engine().overview()?,
            store.gateways().list(HEARTBEAT_MAX_AGE)?,
        ))
    });
    let (environments, overviews, gateways) = read.await?;
    let mut processes: BTreeMap<_, u64> = BTreeMap::new();
    for lease in overviews.iter().filter_map(|engine| engine.lease.as_ref()) {
        let holder = &lease.holder;
        let process = (holder.host.clone(), holder.pid, holder.command.clone());
        *processes.entry(process).or_default() += 1;
    }
    let mut visible: BTreeMap<EnvironmentKey, EnvironmentRecord> = environments
        .into_iter()
        .filter(|record| is_visible(record))
        .map(|record| (record.key, record))
        .collect();
    let mut engines: Vec<(EnvironmentRecord, EngineOverview)> = overviews
        .into_iter()
        .filter(|engine| {
            engine.lease.is_some() || engine.released.is_some() || engine.open_requests > 0
        })
        .filter_map(|engine| Some((visible.remove(&engine.environment)?, engine)))
        .collect();
    engines.sort_by_cached_key(|(record, engine)| {
        let is_behind = engine.released != engine.processed;
        let is_well = record.problem.is_empty() && (engine.lease.is_some() || record.halted);
        (is_well, !is_behind, record.project_name.clone(), record.name.clone())
    });
    debug_assert!(
        engines.iter().map(|(record, _)| record.key).collect::<BTreeSet<_>>().len()
            == engines.len(),
        "each environment has one engine"
    );
    Ok(Installation { gateways, processes, engines })
}
