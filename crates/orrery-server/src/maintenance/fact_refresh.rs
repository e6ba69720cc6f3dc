//! Requests refreshes of facts before they expire.

use std::collections::BTreeSet;
use std::time::Duration;

use orrery_model::{ResourceId, Timestamp};
use orrery_store::{NewRequest, RequestKind, Selection, Store, StoreError};
use uuid::Uuid;

use crate::app::parameters::FACT_RENEWAL;
use crate::services::Services;

use super::{MaintenanceTask, Turn};

/// Resources per fact request.
const RESOURCES_PER_REQUEST: usize = 1_000;

/// Requests refreshes of facts in all environments.
pub(super) struct FactRefresh;

impl MaintenanceTask for FactRefresh {
    fn name(&self) -> &'static str {
        "fact-refresh"
    }

    fn period(&self) -> Duration {
        FACT_RENEWAL
    }

    fn claim_key(&self) -> &'static str {
        "renew facts"
    }

    fn run(&mut self, services: &Services, turn: Turn) -> Result<(), StoreError> {
        if request_fact_refresh(services.store(), turn.now)? > 0 {
            services.wake_up();
        }
        Ok(())
    }
}

/// Requests a refresh of facts that are about to expire. Returns the number of resources.
fn request_fact_refresh(store: &Store, now: Timestamp) -> Result<usize, StoreError> {
    let mut requested = 0;
    for (environment, mut ids) in store.parameters().stale_facts(now - FACT_RENEWAL)? {
        // Requests for paused agents would only pile up.
        let paused: BTreeSet<String> = store
            .agents()
            .states(environment)?
            .into_iter()
            .filter(|agent| agent.paused)
            .map(|agent| agent.name)
            .collect();
        let is_paused = |id: &ResourceId| paused.contains(id.agent());
        ids.retain(|id| id.parse().is_ok_and(|id| !is_paused(&id)));
        for ids in ids.chunks(RESOURCES_PER_REQUEST) {
            let kind = &RequestKind::Facts(Selection::of_ids(ids.iter().cloned()));
            let request = NewRequest { uuid: Uuid::new_v4().into(), kind };
            store.requests().add(environment, &request, now)?;
            requested += ids.len();
        }
    }
    Ok(requested)
}

#[cfg(test)]
mod tests {

    use orrery_model::{AttributeHash, ResourceState};
    use orrery_store::{
        Holder, LeaseRequest, NewParameter, NewVersion, ParameterSource, PutScope, ResultRecord,
        Store,
    };

    use super::*;

    fn resource(agent: &str, name: &str) -> orrery_model::Resource {
        let id = ResourceId::new("t::R", agent, "name", name).unwrap();
        let attributes = orrery_model::Attributes::parse("{}").unwrap();
        orrery_model::Resource::new(id, attributes, Vec::new())
    }

    /// One request covers all facts that are old enough. Paused agents and facts that do not expire
    /// are left out.
    #[test]
    fn facts_are_renewed_before_they_expire() {
        let store: Store = Store::in_memory().unwrap();
        let key = store.environments().ensure_default().unwrap();
        let resources =
            [resource("a", "1"), resource("a", "2"), resource("a", "3"), resource("b", "4")];
        let version = NewVersion {
            number: None,
            base: None,
            made_at: Timestamp(1),
            info: &serde_json::Value::Null,
            scope: PutScope::All,
            resources: &resources,
            unknowns: &[],
            released: true,
            only_if_changed: false,
            lease: None,
            project: None,
        };
        let keys = store.versions().put(key, &version).unwrap().keys;
        let holder = Holder::this_process("test", Timestamp(1));
        let request = LeaseRequest { holder, now: Timestamp(1), expires: None };
        let lease = store.leases().acquire(key, &request).unwrap();
        let state = ResourceState::new(AttributeHash([1; 16]), false);
        for ((resource, key_of), expires) in
            resources.iter().zip(keys).zip([true, false, true, true])
        {
            let record =
                ResultRecord { resource: key_of, state: Some(&state), action: None, facts: &[] };
            store.engine().record_results(&lease, &[record]).unwrap();
            let new = NewParameter {
                name: "size",
                value: "1",
                resource: Some(resource.id.as_str()),
                source: ParameterSource::Fact,
                expires,
                metadata: None,
            };
            store
                .parameters()
                .put(key, &new, Timestamp(1), orrery_store::OnParameterChanged::Nothing)
                .unwrap();
        }
        store.agents().set_paused(key, Some("b"), true).unwrap();
        assert_eq!(request_fact_refresh(&store, Timestamp(1) + FACT_RENEWAL).unwrap(), 0);
        assert_eq!(request_fact_refresh(&store, Timestamp(2) + FACT_RENEWAL).unwrap(), 2);
        let open = store.requests().open(key).unwrap();
        assert_eq!(open.len(), 1);
        let ids = [resources[0].id.as_str(), resources[2].id.as_str()];
        assert_eq!(open[0].kind, RequestKind::Facts(Selection::of_ids(ids)));
    }
}
