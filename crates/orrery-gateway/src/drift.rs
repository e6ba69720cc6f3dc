//! Drift that remote agents report: becomes a request to the engine of their environment.
//!
//! A report is a hint from a machine that may be hostile: it can only make the engine verify
//! resources of the agents that the machine serves, and only so often. An agent repeats what was
//! dropped.

use std::time::{Duration, Instant};

use orrery_agent::protocol::Drift;
use orrery_base::clock::monotonic;
use orrery_model::ResourceId;
use orrery_store::{NewRequest, RemoteAgentRecord, RequestKind, Selection};
use uuid::Uuid;

use super::GatewayState;

/// Resources of a report that are passed on.
const RESOURCES_MAX: usize = 1_000;
/// Verifications of an environment that may wait for its engine.
const WAITING_MAX: usize = 1_000;
/// Reports that a session may send at once, and the time after which it may send one more.
const BURST: u32 = 20;
const REFILL_EVERY: Duration = Duration::from_millis(500);

/// Rate limit of the reports of one session.
#[derive(Debug)]
pub(crate) struct DriftLimit {
    left: u32,
    refilled: Instant,
}

impl Default for DriftLimit {
    fn default() -> Self {
        DriftLimit { left: BURST, refilled: monotonic() }
    }
}

impl DriftLimit {
    /// Takes the right to one report; returns false if there is none.
    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.refilled);
        let refills = passed.as_millis() / REFILL_EVERY.as_millis();
        if let Ok(refills @ 1..) = u32::try_from(refills.min(BURST.into())) {
            self.left = (self.left + refills).min(BURST);
            self.refilled = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// Requests a verification of the reported resources.
pub(crate) async fn request_verification(
    gateway: &GatewayState,
    agent: &RemoteAgentRecord,
    limit: &mut DriftLimit,
    drift: Drift,
) {
    let id = agent.uuid.uuid();
    if !limit.take(monotonic()) {
        tracing::debug!(agent = %id, "too many reports of drift; one is dropped");
        return;
    }
    let Some(selection) = selection(&agent.names, drift) else { return };
    let (environment, now) = (agent.environment, gateway.services.now());
    let requested = gateway.services.change(move |store| {
        let kind = &RequestKind::Drift(selection.clone());
        // In a halted environment they wait, and agents repeat their reports.
        let open = store.requests().open(environment)?;
        let waiting: Vec<&RequestKind> = open
            .iter()
            .filter(|request| request.taken.is_none())
            .map(|request| &request.kind)
            .filter(|kind| matches!(kind, RequestKind::Drift(_)))
            .collect();
        if waiting.len() >= WAITING_MAX || waiting.contains(&kind) {
            return Ok(());
        }
        let request = NewRequest { uuid: Uuid::new_v4().into(), kind };
        store.requests().add(environment, &request, now).map(drop)
    });
    if let Err(error) = requested.await {
        tracing::warn!(agent = %id, %error, "drift not recorded; the agent repeats its report");
    }
}

/// Selects the reported resources among those of the agents that the machine serves.
fn selection(names: &[String], drift: Drift) -> Option<Selection> {
    let Drift { resources, unwatched } = drift;
    let agents = Some(names.to_vec());
    if unwatched {
        return Some(Selection { agents, ..Selection::default() });
    }
    let own = |id: &ResourceId| names.iter().any(|name| name == id.agent());
    let ids: Vec<String> = resources
        .iter()
        .filter(|id| own(id))
        .take(RESOURCES_MAX)
        .map(ResourceId::to_string)
        .collect();
    (!ids.is_empty()).then(|| Selection { agents, ids: Some(ids), ..Selection::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_reports_only_resources_of_its_agents() {
        let names = ["web1".to_owned()];
        let own: ResourceId = "std::File[web1,path=/a]".parse().unwrap();
        let other: ResourceId = "std::File[db1,path=/a]".parse().unwrap();
        let report = |resources: &[&ResourceId]| {
            let resources = resources.iter().map(|id| (*id).clone()).collect();
            selection(&names, Drift { resources, unwatched: false })
        };
        assert_eq!(report(&[&other]), None);
        let selected = report(&[&other, &own]).unwrap();
        assert_eq!(selected.ids, Some(vec![own.to_string()]));
        assert_eq!(selected.agents.as_deref(), Some(&names[..]));
        let all = selection(&names, Drift { unwatched: true, ..Drift::default() }).unwrap();
        assert_eq!((all.agents.as_deref(), all.ids), (Some(&names[..]), None));
        let many = vec![own; 5_000];
        let many = selection(&names, Drift { resources: many, unwatched: false }).unwrap();
        assert_eq!(many.ids.map(|ids| ids.len()), Some(RESOURCES_MAX));
    }

    #[test]
    fn reports_are_limited() {
        let mut limit = DriftLimit::default();
        let now = limit.refilled;
        assert_eq!((0..100).filter(|_| limit.take(now)).count(), BURST as usize);
        let later = now + REFILL_EVERY * 3;
        assert_eq!((0..100).filter(|_| limit.take(later)).count(), 3);
        let much_later = later + Duration::from_secs(3_600);
        assert_eq!((0..100).filter(|_| limit.take(much_later)).count(), BURST as usize);
    }
}
