//! Invitations, remote agents, their sessions, gateways, and the installation's own secrets.

use std::time::Duration;

use orrery_model::{OfferedType, RequestId, Timestamp};
use orrery_store::{
    AgentConnectionRecord, ConnectionPhase, EnvironmentKey, GatewayHeartbeat, Holder, JoinOutcome,
    JoiningAgent, LeaseRequest, NewAgentSession, NewInvitationRecord, RemoteAgentRecord,
    SessionChange, Store, StoreError,
};
use serde_json::json;

use crate::support::{Backend, id_of};

super::list_cases![
    an_invitation_lets_one_machine_join_once,
    invitations_expire_and_name_the_served_agents,
    an_agent_is_served_by_one_remote_agent,
    a_revoked_remote_agent_keeps_its_names_unless_they_are_released,
    revoked_remote_agents_are_deleted_unless_their_agents_wait,
    the_newest_session_counts,
    sessions_are_recorded_together,
    a_gateway_without_heartbeat_has_no_sessions,
    sessions_need_a_registered_gateway,
    remote_agents_are_listed_in_the_order_in_which_they_joined,
    a_deleted_environment_takes_its_remote_agents_along,
    an_installation_secret_is_stored_once,
    round_trips_are_those_of_the_gateway_with_the_session,
    connections_are_valid_under_the_lease_of_their_report,
];

const NOW: Timestamp = Timestamp(1_000);
/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3_600);
const TOKEN: [u8; 32] = [7; 32];

fn invite(store: &Store, hash: [u8; 32], names: &[&str]) -> Result<(), StoreError> {
    let environment = store.environments().ensure_default().unwrap();
    let new = NewInvitationRecord {
        uuid: id_of(hash[0]),
        hash,
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        created: NOW,
        expires: Timestamp(2_000),
        token: None,
    };
    store.invitations().create(environment, &new)
}

fn joining(id: u8, key: u8, names: &[&str]) -> JoiningAgent {
    JoiningAgent {
        uuid: id_of(id),
        key: [key; 32],
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        facts: json!({"host": "web1"}),
        version: "0.1.0".to_owned(),
    }
}

fn join(store: &Store, hash: [u8; 32], joining: &JoiningAgent, at: i64) -> JoinOutcome {
    store.invitations().join(&hash, joining, Timestamp(at)).unwrap()
}

fn joined(join: JoinOutcome) -> RemoteAgentRecord {
    match join {
        JoinOutcome::Joined(agent) => *agent,
        other => panic!("{other:?}"),
    }
}

/// A remote agent for these names.
fn enrolled(store: &Store, id: u8, names: &[&str]) -> RemoteAgentRecord {
    invite(store, [id; 32], names).unwrap();
    joined(join(store, [id; 32], &joining(id, id, &[]), 1_100))
}

/// Records the heartbeat of a gateway; returns the number of ended sessions of others.
fn record_heartbeat(store: &Store, id: u8, alive_for: Duration) -> usize {
    let peer_address = format!("10.0.0.{id}:8889");
    let gateway = GatewayHeartbeat {
        uuid: id_of(id),
        address: "balancer.example.com:8889",
        peer_address: &peer_address,
        latencies: None,
    };
    store.gateways().record_heartbeat(&gateway, alive_for).unwrap()
}

/// A type that agents of these tests offer.
fn note() -> OfferedType {
    OfferedType {
        entity: "notes::Note".to_owned(),
        agent: "agent".to_owned(),
        id_attribute: "title".to_owned(),
        attributes: [("title".to_owned(), "string".to_owned())].into(),
    }
}

fn open(store: &Store, agent: u8, gateway: u8, boot: u8) -> Option<(i64, bool)> {
    record_heartbeat(store, gateway, LONG);
    let facts = json!({"host": "new"});
    let new = NewAgentSession {
        gateway: id_of(gateway),
        boot: id_of(boot),
        version: "0.2.0",
        facts: &facts,
        offered: &[note()],
    };
    let opened = store.remote_agents().open_session(id_of(agent), &new, Timestamp(1_200)).unwrap();
    opened.map(|opened| (opened.number, opened.from_another_process))
}

fn an_invitation_lets_one_machine_join_once(backend: Backend) {
    let store = backend.fresh();
    assert_eq!(join(&store, TOKEN, &joining(1, 1, &[]), 1_100), JoinOutcome::Unknown);
    invite(&store, TOKEN, &["web2", "web1"]).unwrap();
    let first = joined(join(&store, TOKEN, &joining(1, 1, &[]), 1_100));
    assert_eq!((first.uuid, first.names.clone()), (id_of(1), vec!["web1".into(), "web2".into()]));
    assert_eq!((first.joined, first.revoked, first.session), (Timestamp(1_100), None, 0));
    assert_eq!((first.facts.clone(), first.version.as_str()), (json!({"host": "web1"}), "0.1.0"));
    let again = joined(join(&store, TOKEN, &joining(2, 1, &[]), 1_150));
    assert_eq!(again, first, "the same key is the same agent");
    assert_eq!(join(&store, TOKEN, &joining(3, 9, &[]), 1_150), JoinOutcome::Used);
    let environment = store.environments().ensure_default().unwrap();
    store.remote_agents().revoke(environment, id_of(1), None, NOW).unwrap();
    assert_eq!(join(&store, TOKEN, &joining(1, 1, &[]), 1_160), JoinOutcome::Revoked);
}

fn invitations_expire_and_name_the_served_agents(backend: Backend) {
    let store = backend.fresh();
    invite(&store, TOKEN, &["web1", "web2"]).unwrap();
    let other = join(&store, TOKEN, &joining(1, 1, &["web1", "db1"]), 1_100);
    assert_eq!(other, JoinOutcome::NotInvited("db1".to_owned()));
    assert_eq!(join(&store, TOKEN, &joining(1, 1, &[]), 2_000), JoinOutcome::Expired);
    let agent = joined(join(&store, TOKEN, &joining(1, 1, &["web2"]), 1_999));
    assert_eq!(agent.names, ["web2"]);
    let environment = store.environments().ensure_default().unwrap();
    let served = store.remote_agents().served_names(environment).unwrap();
    assert_eq!(served.len(), 1);
    assert_eq!((served[0].name.as_str(), served[0].agent), ("web2", id_of(1)));
}

fn an_agent_is_served_by_one_remote_agent(backend: Backend) {
    let store = backend.fresh();
    invite(&store, [8; 32], &["web1"]).unwrap();
    enrolled(&store, 1, &["web1"]);
    let error = invite(&store, [9; 32], &["db1", "web1"]).unwrap_err();
    assert!(matches!(&error, StoreError::Conflict(text) if text.contains("\"web1\"")), "{error}");
    let taken = JoinOutcome::Taken { name: "web1".to_owned(), by: id_of(1) };
    assert_eq!(join(&store, [8; 32], &joining(2, 2, &[]), 1_100), taken);
    let environment = store.environments().ensure_default().unwrap();
    store.remote_agents().revoke(environment, id_of(1), None, NOW).unwrap();
    joined(join(&store, [8; 32], &joining(2, 2, &[]), 1_100));
    assert_eq!(store.remote_agents().served_names(environment).unwrap()[0].agent, id_of(2));
    assert!(store.remote_agents().get(id_of(1)).unwrap().names.is_empty());
}

fn a_revoked_remote_agent_keeps_its_names_unless_they_are_released(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let other = store.environments().create("p", "e").unwrap().key;
    enrolled(&store, 1, &["web1"]);
    open(&store, 1, 5, 5).unwrap();
    let error = store.remote_agents().revoke(other, id_of(1), None, NOW).unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    store.remote_agents().revoke(environment, id_of(1), None, Timestamp(1_300)).unwrap();
    store.remote_agents().revoke(environment, id_of(1), None, Timestamp(1_400)).unwrap();
    let served = store.remote_agents().served_names(environment).unwrap();
    assert_eq!((served.len(), served[0].revoked, served[0].gateway), (1, true, None));
    let agent = store.remote_agents().get(id_of(1)).unwrap();
    assert_eq!((agent.revoked, agent.gateway), (Some(Timestamp(1_300)), None));
    assert_eq!(open(&store, 1, 5, 5), None, "it gets no session");
    assert!(store.gateways().sessions(id_of(5)).unwrap().is_empty());
    store.remote_agents().revoke(environment, id_of(1), Some(id_of(8)), NOW).unwrap();
    assert!(store.remote_agents().served_names(environment).unwrap().is_empty());
    store.remote_agents().revoke(environment, id_of(1), Some(id_of(9)), NOW).unwrap();
    let requests = store.requests().open(environment).unwrap();
    let requests: Vec<_> =
        requests.iter().map(|one| (one.kind.name(), one.kind.payload())).collect();
    let repair = json!({"agents": ["web1"]});
    assert_eq!(
        requests,
        [("repair", repair.clone()), ("repair", repair)],
        "when it came, and when it went"
    );
}

fn revoked_remote_agents_are_deleted_unless_their_agents_wait(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let other = store.environments().create("p", "e").unwrap().key;
    for (id, name) in [(1, "released"), (2, "waits"), (3, "taken over"), (4, "late"), (5, "good")] {
        enrolled(&store, id, &[name]);
    }
    let revoke = |id: u8, release: Option<RequestId>, at: i64| {
        store.remote_agents().revoke(environment, id_of(id), release, Timestamp(at)).unwrap();
    };
    revoke(1, Some(id_of(11)), 1_300);
    revoke(2, None, 1_300);
    revoke(3, None, 1_300);
    revoke(4, Some(id_of(14)), 1_400);
    enrolled(&store, 6, &["taken over"]);
    let serving = |name: &str| {
        store
            .remote_agents()
            .serving(environment, name)
            .unwrap()
            .map(|agent| agent.uuid.into_bytes()[0])
    };
    let served = || ["released", "waits", "taken over", "late", "good"].map(serving);
    assert_eq!(served(), [None, Some(2), Some(6), None, Some(5)]);
    assert_eq!(store.remote_agents().serving(other, "good").unwrap(), None);

    assert_eq!(store.remote_agents().delete_revoked(other, Timestamp(1_400)).unwrap(), 0);
    assert_eq!(store.remote_agents().delete_revoked(environment, Timestamp(1_400)).unwrap(), 2);
    assert_eq!(served(), [None, Some(2), Some(6), None, Some(5)]);
    let remaining = store.remote_agents().list(environment, None, 10).unwrap();
    assert_eq!(
        remaining.iter().map(|agent| agent.uuid.into_bytes()[0]).collect::<Vec<_>>(),
        [2, 4, 5, 6]
    );
    // A machine that reconnects with its old key is not an agent any more.
    assert_eq!(open(&store, 1, 5, 5), None);
    assert_eq!(join(&store, [1; 32], &joining(1, 1, &[]), 1_500), JoinOutcome::Used);
}

fn the_newest_session_counts(backend: Backend) {
    let store = backend.fresh();
    assert_eq!(open(&store, 1, 5, 1), None, "the agent is unknown");
    enrolled(&store, 1, &["web1"]);
    assert_eq!(open(&store, 1, 5, 1), Some((1, false)));
    assert_eq!(open(&store, 1, 6, 1), Some((2, false)), "the same process came elsewhere");
    assert_eq!(open(&store, 1, 6, 2), Some((3, true)), "a second one has its key");
    assert!(store.gateways().sessions(id_of(5)).unwrap().is_empty());
    assert_eq!(store.gateways().sessions(id_of(6)).unwrap(), [(id_of(1), 3)]);
    store.remote_agents().close_session(id_of(1), 2, Timestamp(1_500)).unwrap();
    let agent = store.remote_agents().get(id_of(1)).unwrap();
    assert_eq!((agent.session, agent.gateway), (3, Some(id_of(6))), "an old end changes nothing");
    assert_eq!((agent.version.as_str(), agent.facts), ("0.2.0", json!({"host": "new"})));
    assert_eq!(agent.offered, [note()]);
    let environment = store.environments().ensure_default().unwrap();
    assert_eq!(store.remote_agents().served_names(environment).unwrap()[0].offered, [note()]);
    let seen = store.changes().latest().unwrap();
    store.remote_agents().close_session(id_of(1), 3, Timestamp(1_600)).unwrap();
    let agent = store.remote_agents().get(id_of(1)).unwrap();
    assert_eq!((agent.gateway, agent.seen), (None, Some(Timestamp(1_600))));
    let changes = store.changes().list(seen, None, 10).unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].kind, "remote_agent");
    assert_eq!(open(&store, 1, 6, 3), Some((4, false)), "no session was displaced");
}

/// Sessions that begin and end together are recorded all or none, in their order.
fn sessions_are_recorded_together(backend: Backend) {
    let store = backend.fresh();
    let facts = json!({});
    let session = |gateway: u8| NewAgentSession {
        gateway: id_of(gateway),
        boot: id_of(1),
        version: "",
        facts: &facts,
        offered: &[],
    };
    let begin =
        |agent, gateway| SessionChange::Open { agent: id_of(agent), session: session(gateway) };
    let end = |agent, number| SessionChange::Close { agent: id_of(agent), number };
    enrolled(&store, 1, &["web1"]);
    enrolled(&store, 2, &["web2"]);
    record_heartbeat(&store, 5, LONG);
    let changes = [begin(2, 5), begin(9, 5), begin(1, 5), end(2, 1), begin(1, 5)];
    let opened = store.remote_agents().record_sessions(&changes, NOW).unwrap();
    let numbers: Vec<_> = opened.iter().map(|one| one.as_ref().map(|one| one.number)).collect();
    assert_eq!(numbers, [Some(1), None, Some(1), None, Some(2)]);
    assert_eq!(store.gateways().sessions(id_of(5)).unwrap(), [(id_of(1), 2)]);
    let refused = store.remote_agents().record_sessions(&[begin(2, 5), begin(1, 6)], NOW);
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
    assert_eq!(store.gateways().sessions(id_of(5)).unwrap(), [(id_of(1), 2)]);
}

fn a_gateway_without_heartbeat_has_no_sessions(backend: Backend) {
    let store = backend.fresh();
    enrolled(&store, 1, &["web1"]);
    enrolled(&store, 2, &["web2"]);
    open(&store, 1, 5, 1).unwrap();
    open(&store, 2, 6, 1).unwrap();
    let known = store.gateways().list(LONG).unwrap();
    let of = |id: u8| known.iter().find(|gateway| gateway.uuid == id_of(id)).unwrap();
    assert_eq!(known.len(), 2);
    assert_eq!(of(5).address, "balancer.example.com:8889");
    assert_eq!(of(5).peer_address, "10.0.0.5:8889");
    // It is seen when its gateway is.
    assert_eq!(store.remote_agents().get(id_of(1)).unwrap().seen, Some(of(5).seen));
    assert_eq!(store.remote_agents().session(id_of(1)).unwrap().seen, Some(of(5).seen));
    let gateway = store.gateways().of_agent(id_of(1), LONG).unwrap().unwrap();
    assert_eq!(&gateway, of(5));
    // With a zero lifetime, every other gateway is dead.
    std::thread::sleep(Duration::from_millis(3));
    assert!(store.gateways().list(Duration::ZERO).unwrap().is_empty());
    assert_eq!(store.gateways().of_agent(id_of(1), Duration::ZERO).unwrap(), None);
    let latest = store.changes().latest().unwrap();
    assert_eq!(record_heartbeat(&store, 6, Duration::ZERO), 1);
    let changes = store.changes().list(latest, None, 10).unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].kind, "remote_agent");
    let agent = store.remote_agents().get(id_of(1)).unwrap();
    assert_eq!((agent.gateway, agent.seen), (None, Some(of(5).seen)), "it was seen no later");
    assert_eq!(store.remote_agents().get(id_of(2)).unwrap().gateway, Some(id_of(6)));
    assert_eq!(store.gateways().of_agent(id_of(1), LONG).unwrap(), None);
    store.gateways().delete(id_of(6)).unwrap();
    assert_eq!(store.remote_agents().session(id_of(2)).unwrap().gateway, None);
    assert!(store.gateways().list(LONG).unwrap().is_empty());
}

fn sessions_need_a_registered_gateway(backend: Backend) {
    let store = backend.fresh();
    enrolled(&store, 1, &["web1"]);
    let facts = json!({});
    let new = NewAgentSession {
        gateway: id_of(5),
        boot: id_of(1),
        version: "",
        facts: &facts,
        offered: &[],
    };
    let opened = store.remote_agents().open_session(id_of(1), &new, NOW);
    assert!(matches!(opened, Err(StoreError::Conflict(_))), "{opened:?}");
    assert_eq!(store.remote_agents().session(id_of(1)).unwrap().number, 0);
}

fn remote_agents_are_listed_in_the_order_in_which_they_joined(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    for id in 1..=3 {
        enrolled(&store, id, &[&format!("web{id}"), &format!("app{id}")]);
    }
    let page = store.remote_agents().list(environment, None, 2).unwrap();
    assert_eq!(page.iter().map(|agent| agent.uuid.into_bytes()[0]).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(page[1].names, ["app2", "web2"]);
    let last = (page[1].joined, page[1].uuid);
    let page = store.remote_agents().list(environment, Some(last), 2).unwrap();
    assert_eq!(page.iter().map(|agent| agent.uuid.into_bytes()[0]).collect::<Vec<_>>(), [3]);
    let other = store.environments().create("p", "e").unwrap().key;
    assert!(store.remote_agents().list(other, None, 9).unwrap().is_empty());
}

fn a_deleted_environment_takes_its_remote_agents_along(backend: Backend) {
    let store = backend.fresh();
    enrolled(&store, 1, &["web1"]);
    invite(&store, TOKEN, &["db1"]).unwrap();
    let environment = store.environments().list(None).unwrap().remove(0);
    while !store.environments().delete_contents(environment.key, NOW).unwrap() {}
    assert!(store.remote_agents().get(id_of(1)).is_ok(), "clearing keeps them");
    store.environments().delete(environment.uuid, NOW).unwrap();
    let error = store.remote_agents().get(id_of(1)).unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    assert_eq!(join(&store, TOKEN, &joining(2, 2, &[]), 1_100), JoinOutcome::Unknown);
}

fn an_installation_secret_is_stored_once(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let known = |_: &[u8]| true;
    let kept = store.secrets().put_own_if_absent("ca", b"first", &known, NOW).unwrap();
    assert_eq!(
        (kept.environment, &*kept.sealed),
        (Some(EnvironmentKey::INSTALLATION), &b"first"[..])
    );
    let again =
        store.secrets().put_own_if_absent("ca", b"second", &known, Timestamp(2_000)).unwrap();
    assert_eq!(again, kept, "the second caller gets the first value");
    for environment_or_all in [None, Some(environment)] {
        assert!(store.secrets().list(environment_or_all).unwrap().is_empty());
        assert!(store.secrets().get(environment_or_all, "ca").is_err());
        assert!(store.secrets().delete(environment_or_all, "ca", NOW).is_err());
    }
    assert_eq!(store.secrets().all().unwrap(), std::slice::from_ref(&kept));
    let foreign = |sealed: &[u8]| sealed != b"first";
    let error = store.secrets().put_own_if_absent("ca", b"third", &foreign, NOW).unwrap_err();
    assert!(matches!(error, StoreError::OtherKey), "{error}");
}

fn round_trips_are_those_of_the_gateway_with_the_session(backend: Backend) {
    let store = backend.fresh();
    enrolled(&store, 1, &["web1"]);
    enrolled(&store, 2, &["web2"]);
    open(&store, 1, 8, 1).unwrap();
    open(&store, 2, 9, 1).unwrap();
    let environment = store.environments().ensure_default().unwrap();
    assert!(store.gateways().latencies(environment).unwrap().is_empty());
    let latencies = [(id_of(1), Duration::from_micros(850)), (id_of(3), Duration::from_millis(2))];
    let heartbeat = GatewayHeartbeat {
        uuid: id_of(8),
        address: "",
        peer_address: "",
        latencies: Some(&latencies),
    };
    store.gateways().record_heartbeat(&heartbeat, LONG).unwrap();
    // A heartbeat without round trips keeps them.
    record_heartbeat(&store, 8, LONG);
    let found = store.gateways().latencies(environment).unwrap();
    assert_eq!(found.get(&id_of(1)), Some(&Duration::from_micros(850)));
    assert_eq!(found.get(&id_of(2)), None);
    store.gateways().delete(id_of(8)).unwrap();
    assert!(store.gateways().latencies(environment).unwrap().is_empty());
}

fn connections_are_valid_under_the_lease_of_their_report(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let acquire = || {
        let request =
            LeaseRequest { holder: Holder::this_process("test", NOW), now: NOW, expires: None };
        store.leases().acquire(environment, &request).unwrap()
    };
    let connection = AgentConnectionRecord {
        phase: ConnectionPhase::BackingOff,
        latency: Some(Duration::from_micros(1_500)),
        retry_at: Some(Timestamp(9_000)),
        problem: "connection refused".to_owned(),
    };
    let report = [("web1".to_owned(), Some(connection.clone()))];
    assert!(store.agents().record_connections(environment, &report).is_err(), "without a lease");
    let lease = acquire();
    store.under_lease(&lease).agents().record_connections(environment, &report).unwrap();
    let found = || store.agents().connections(environment).unwrap();
    assert_eq!(found().get("web1"), Some(&connection));
    store.leases().release(&lease).unwrap();
    assert!(found().is_empty(), "the engine has ended");
    let lease = acquire();
    assert!(found().is_empty(), "another engine has not reported yet");
    store.under_lease(&lease).agents().record_connections(environment, &report).unwrap();
    assert_eq!(found().len(), 1);
    let gone = [("web1".to_owned(), None)];
    store.under_lease(&lease).agents().record_connections(environment, &gone).unwrap();
    assert!(found().is_empty());
}
