//! What has to be done from time to time for each environment: measuring, asking for facts that grow old, forgetting what is old,
//! emptying what is to go. The process role calls these; each of them can be cut off and called again.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_model::{ResourceId, Status, Timestamp};
use orrery_store::{ChangeSeq, EnvironmentRecord, Lease, MetricRecord, Store, StoreError};

use uuid::Uuid;

use crate::app::App;
use crate::routes::parameters::FACT_RENEWAL;
use crate::settings::EnvironmentSettings;

pub(crate) const RESOURCE_COUNT: &str = "resource.resource_count";
pub(crate) const AGENT_COUNT: &str = "resource.agent_count";
pub(crate) const COMPILE_TIME: &str = "orchestrator.compile_time";
pub(crate) const COMPILE_WAITING_TIME: &str = "orchestrator.compile_waiting_time";

/// What is measured.
pub(crate) const NAMES: [&str; 4] =
    [RESOURCE_COUNT, AGENT_COUNT, COMPILE_TIME, COMPILE_WAITING_TIME];

/// Those that have a value at any time, not only when something happens.
pub(crate) const GAUGES: [&str; 2] = [RESOURCE_COUNT, AGENT_COUNT];

/// How long finished requests to engines can be looked at.
const REQUESTS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long remote agents that were revoked can be looked at.
const REVOKED_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Entries of the audit log that are forgotten in one transaction, and how many of those in one turn.
const FORGOTTEN_AT_ONCE: usize = 10_000;
const FORGOTTEN_PARTS: usize = 50;
/// How long repeated requests are answered as before.
const REPEATABLE_KEPT: Duration = Duration::from_secs(24 * 3600);

/// Measures an environment. `since` is when it was measured before.
pub(crate) fn sample(
    store: &dyn Store,
    environment: &EnvironmentRecord,
    since: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    let records = store.records();
    let key = environment.key;
    let metric = |name: &str, category: &str, count: i64, value: i64| MetricRecord {
        name: name.to_owned(),
        category: category.to_owned(),
        at: now,
        count,
        value,
    };
    let mut metrics = Vec::new();
    let counts = store.count_statuses(key)?;
    for status in Status::ALL {
        let count = counts.get(&status).copied().unwrap_or(0);
        let count = i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(1000);
        metrics.push(metric(RESOURCE_COUNT, status.as_str(), 1, count));
    }
    let has_engine = store.lease_holder(key)?.is_some();
    let agents = store.agents(key)?;
    let paused = agents.iter().filter(|agent| agent.paused).count();
    let rest = agents.len() - paused;
    let (up, down) = if has_engine { (rest, 0) } else { (0, rest) };
    for (category, count) in [("paused", paused), ("up", up), ("down", down)] {
        let count = i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(1000);
        metrics.push(metric(AGENT_COUNT, category, 1, count));
    }
    let (count, took, waited) = records.compile_times(key, since, now)?;
    if count > 0 {
        // Seconds in thousandths.
        metrics.push(metric(COMPILE_TIME, "", count, took / 1000));
        metrics.push(metric(COMPILE_WAITING_TIME, "", count, waited / 1000));
    }
    records.add_metrics(key, &metrics)
}

/// Forgets what is too old in an environment: logs, versions, notifications, measurements, requests, revoked remote agents. In a halted
/// one everything stays as it is, so that people can look at it.
pub(crate) fn tidy_up(
    store: &dyn Store,
    environment: &EnvironmentRecord,
    settings: &EnvironmentSettings,
    now: Timestamp,
) -> Result<(), StoreError> {
    if environment.halted {
        return Ok(());
    }
    let key = environment.key;
    let records = store.records();
    // The one that is deployed is kept in any case, and does not count.
    let keep = usize::try_from(settings.available_versions_to_keep).unwrap_or(usize::MAX);
    store.keep_versions(key, keep.saturating_add(1))?;
    records.forget_logs(key, now - settings.action_logs_retention)?;
    records.forget_notifications(key, now - settings.notification_retention)?;
    if let Some(retention) = settings.metrics_retention {
        records.forget_metrics(key, now - retention)?;
    }
    records.forget_requests(key, now - REQUESTS_KEPT)?;
    records.forget_dry_runs(key)?;
    records.forget_revoked_agents(key, now - REVOKED_KEPT)?;
    Ok(())
}

/// Forgets what is too old and belongs to no environment.
pub(crate) fn tidy_up_server(
    store: &dyn Store,
    audit_retention: Option<Duration>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let records = store.records();
    records.forget_repeatable(now - REPEATABLE_KEPT)?;
    records.forget_familiar(now)?;
    if let Some(retention) = audit_retention {
        // In parts, between which others can append.
        for _ in 0..FORGOTTEN_PARTS {
            if records.forget_audit(now - retention, FORGOTTEN_AT_ONCE, now)? == 0 {
                break;
            }
        }
    }
    Ok(())
}

/// Resources that one request asks for their facts.
const ASKED_AT_ONCE: usize = 1_000;

/// Asks for facts that expire before they do. Answers how many resources are asked.
pub(crate) fn renew_facts(store: &dyn Store, now: Timestamp) -> Result<usize, StoreError> {
    let mut asked = 0;
    for (environment, mut ids) in store.records().old_facts(now - FACT_RENEWAL)? {
        // Requests for agents that do nothing would only gather.
        let paused: BTreeSet<String> = store
            .agents(environment)?
            .into_iter()
            .filter(|agent| agent.paused)
            .map(|agent| agent.name)
            .collect();
        let is_paused = |id: &ResourceId| paused.contains(id.agent());
        ids.retain(|id| id.parse().is_ok_and(|id| !is_paused(&id)));
        for ids in ids.chunks(ASKED_AT_ONCE) {
            let (id, payload) = (Uuid::new_v4().into_bytes(), serde_json::json!({"ids": ids}));
            store.records().add_request(environment, id, "facts", &payload, now)?;
            asked += ids.len();
        }
    }
    Ok(asked)
}

/// How often environments are measured in which something happens.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(60);
/// How often what is old is forgotten. Then all environments are measured.
const TIDY_EVERY: Duration = Duration::from_secs(3600);
/// How long a gauge is what it was: nobody who is looked after goes unmeasured for longer.
pub(crate) const GAUGE_LASTS: Duration =
    Duration::from_secs(TIDY_EVERY.as_secs() + 2 * SAMPLE_EVERY.as_secs());

/// A thread that does all this when it is due.
#[derive(Debug)]
pub(crate) struct Upkeep {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Upkeep {
    pub(crate) fn start(app: App) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("upkeep".to_owned()).spawn(move || {
            let mut seen = ChangeSeq::default();
            while stopped.recv_timeout(pause(app.now())) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = take_turns(&app, &mut seen) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "environments cannot be looked after now");
                }
            }
        })?;
        Ok(Upkeep { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the upkeep of environments crashed");
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Until the next full minute: all servers look at the same times.
fn pause(now: Timestamp) -> Duration {
    let past = now.0.rem_euclid(micros(SAMPLE_EVERY));
    Duration::from_micros(u64::try_from(micros(SAMPLE_EVERY) - past).unwrap_or(0))
}

/// Does what is due, unless another server of this installation did. Environments in which nothing changed since the place
/// `seen` in the change feed are as they were measured before; they are measured only when all are tidied up.
fn take_turns(app: &App, seen: &mut ChangeSeq) -> Result<(), StoreError> {
    let (store, now) = (&**app.store(), app.now());
    let turn = |every: Duration| Timestamp(now.0.div_euclid(micros(every)) * micros(every));
    let sampling = store.records().take_turn("sample", turn(SAMPLE_EVERY))?;
    let tidying = store.records().take_turn("tidy up", turn(TIDY_EVERY))?;
    if store.records().take_turn("renew facts", turn(FACT_RENEWAL))? && renew_facts(store, now)? > 0
    {
        app.nudge();
    }
    if tidying {
        tidy_up_server(store, app.settings().audit_retention, now)?;
    }
    if tidying {
        let collected =
            store.records().collect_contents(now - app.settings().contents.grace, now)?;
        if collected.deleted > 0 {
            let (deleted, bytes) = (collected.deleted, collected.bytes);
            tracing::info!(deleted, bytes, "contents that nothing referred to are deleted");
        }
    }
    if !sampling && !tidying {
        return Ok(());
    }
    let latest = store.records().latest_change()?;
    let changed = store.records().changed_environments(*seen)?;
    *seen = latest;
    for environment in store.records().list_environments(None)? {
        if !tidying && !changed.contains(&environment.key) {
            continue;
        }
        let done = look_after(store, &environment, (sampling, tidying), turn(SAMPLE_EVERY));
        if let Err(error) = done {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, environment = environment.name, "it cannot be looked after now");
        }
    }
    Ok(())
}

fn look_after(
    store: &dyn Store,
    environment: &EnvironmentRecord,
    (sampling, tidying): (bool, bool),
    now: Timestamp,
) -> Result<(), StoreError> {
    if environment.deleting {
        return Ok(());
    }
    if sampling {
        sample(store, environment, now - SAMPLE_EVERY, now)?;
    }
    if tidying {
        let settings =
            EnvironmentSettings::from_records(&store.records().settings(environment.key)?);
        tidy_up(store, environment, &settings, now)?;
    }
    Ok(())
}

/// Empties an environment, and deletes it if it is marked so. The engine must have let go of it.
pub(crate) fn erase(
    store: &dyn Store,
    lease: &Lease,
    environment: &EnvironmentRecord,
    now: Timestamp,
) -> Result<(), StoreError> {
    let records = store.records().under(lease);
    while !records.erase_contents(environment.key, now)? {}
    if environment.deleting {
        records.erase_environment(&environment.uuid, now)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use orrery_model::{AttributeHash, ResourceState};
    use orrery_store::{
        Holder, Joining, LeaseRequest, NewInvitation, NewParameter, NewVersion, ParameterSource,
        ResultRecord, Scope, SqliteStore,
    };

    use super::*;

    fn resource(agent: &str, name: &str) -> orrery_model::Resource {
        let id = ResourceId::new("t::R", agent, "name", name).unwrap();
        let attributes = orrery_model::Attributes::parse("{}").unwrap();
        orrery_model::Resource::new(id, attributes, Vec::new())
    }

    #[test]
    fn revoked_remote_agents_are_kept_for_a_month() {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
        let (records, key) = (store.records(), store.default_environment().unwrap());
        let (hash, agent) = ([1; 32], [2; 16]);
        let invitation = NewInvitation {
            uuid: [3; 16],
            hash,
            names: vec!["web1".to_owned()],
            created: Timestamp(0),
            expires: Timestamp(9),
            token: None,
        };
        records.create_invitation(key, &invitation).unwrap();
        let joining = Joining {
            uuid: agent,
            key: [4; 32],
            names: Vec::new(),
            facts: serde_json::json!({}),
            version: String::new(),
        };
        records.join(&hash, &joining, Timestamp(1)).unwrap();
        let tidy_up_after = |days: u64| {
            let environment = records.environment_of(key).unwrap();
            let settings = EnvironmentSettings::from_map(&std::collections::BTreeMap::new());
            let now = Timestamp(1) + Duration::from_secs(days * 24 * 3600);
            tidy_up(&*store, &environment, &settings, now).unwrap();
            records.remote_agent(&agent).is_ok()
        };
        assert!(tidy_up_after(400), "it may be away for long");
        records.revoke_remote_agent(key, &agent, Some([5; 16]), Timestamp(1)).unwrap();
        assert!(tidy_up_after(30));
        assert!(!tidy_up_after(31));
    }

    /// One request for all that are old enough; nothing is asked of agents that are paused, nor for what does not expire.
    #[test]
    fn facts_are_renewed_before_they_expire() {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
        let (records, key) = (store.records(), store.default_environment().unwrap());
        let resources =
            [resource("a", "1"), resource("a", "2"), resource("a", "3"), resource("b", "4")];
        let version = NewVersion {
            number: None,
            base: None,
            made_at: Timestamp(1),
            info: &serde_json::Value::Null,
            scope: Scope::All,
            resources: &resources,
            unknowns: &[],
            released: true,
            only_if_changed: false,
            lease: None,
            project: None,
        };
        let keys = store.put_version(key, &version).unwrap().keys;
        let holder = Holder::this_process("test", Timestamp(1));
        let request = LeaseRequest { holder, now: Timestamp(1), expires: None };
        let lease = store.acquire_lease(key, &request).unwrap();
        let state = ResourceState::new(AttributeHash([1; 16]), false);
        for ((resource, key_of), expires) in
            resources.iter().zip(keys).zip([true, false, true, true])
        {
            let record =
                ResultRecord { resource: key_of, state: Some(&state), action: None, facts: &[] };
            store.record_results(&lease, &[record]).unwrap();
            let new = NewParameter {
                name: "size",
                value: "1",
                resource: Some(resource.id.as_str()),
                source: ParameterSource::Fact,
                expires,
                metadata: None,
            };
            records.put_parameter(key, &new, Timestamp(1), &|_, _| Ok(())).unwrap();
        }
        store.set_paused(key, Some("b"), true).unwrap();
        assert_eq!(renew_facts(&*store, Timestamp(1) + FACT_RENEWAL).unwrap(), 0);
        assert_eq!(renew_facts(&*store, Timestamp(2) + FACT_RENEWAL).unwrap(), 2);
        let open = records.open_requests(key).unwrap();
        assert_eq!(open.len(), 1);
        let ids = [resources[0].id.as_str(), resources[2].id.as_str()];
        assert_eq!(
            (open[0].kind.as_str(), &open[0].payload),
            ("facts", &serde_json::json!({"ids": ids}))
        );
    }
}
