//! Accounts, sessions, tokens, roles, the audit log, secrets.

use orrery_model::{AccountId, Timestamp, TokenId};
use orrery_store::{
    AuditFilter, AuditRecord, AuditVerification, NewAccount, RoleScope, SessionRecord, Store,
    StoreError, TokenRecord,
};

use crate::support::{Backend, id_of};

super::list_cases![
    the_first_account_is_created_once,
    the_last_administrator_cannot_be_lost,
    sessions_end,
    a_new_password_ends_other_sessions,
    roles_belong_to_scopes,
    tokens_are_found_by_hash_and_revoked,
    non_administrators_are_detected,
    deleting_an_account_takes_all_with_it,
    deleted_scopes_take_their_grants_along,
    the_audit_log_is_a_chain,
    retention_leaves_the_audit_log_a_chain,
    audit_entries_are_filtered_and_paged,
    secrets_belong_to_scopes_and_are_resealed,
    meta_values_are_stored,
    networks_of_logins_are_familiar_for_90_days,
    an_account_has_a_thousand_tokens_at_most,
];

const NOW: Timestamp = Timestamp(1_000);
const ADA: AccountId = id_of(1);
const BOB: AccountId = id_of(2);

fn account(uuid: AccountId, name: &str, admin: bool) -> NewAccount<'_> {
    NewAccount { uuid, name, password: Some("$hash"), issuer: None, admin }
}

fn create_account(store: &Store, uuid: AccountId, name: &str, admin: bool) {
    store.accounts().create(&account(uuid, name, admin), NOW).unwrap();
}

fn begin_session(store: &Store, hash: [u8; 32], account: AccountId, expires: i64) {
    let session = SessionRecord { account, created: NOW, expires: Timestamp(expires) };
    store.accounts().create_session(&hash, &session, None).unwrap();
}

fn is_open(store: &Store, hash: [u8; 32], now: i64) -> bool {
    store.accounts().session(&hash, Timestamp(now)).unwrap().is_some()
}

fn the_first_account_is_created_once(backend: Backend) {
    let store = backend.fresh();
    assert!(store.accounts().is_empty().unwrap());
    store.meta().put("ticket", "right").unwrap();
    let first = |ticket| {
        store.accounts().create_first(&account(ADA, "ada", true), Some(ticket), NOW).unwrap()
    };
    assert_eq!(first(("ticket", "wrong")), None);
    let created = first(("ticket", "right")).unwrap();
    assert_eq!((created.name.as_str(), created.admin, created.revision), ("ada", true, 1));
    assert_eq!(first(("ticket", "right")), None);
    assert_eq!(store.meta().get("ticket").unwrap(), None, "it is used up");
    let again = store.accounts().create_first(&account(BOB, "bob", true), None, NOW).unwrap();
    assert_eq!(again, None);
    let taken = store.accounts().create(&account(BOB, "ada", false), NOW).unwrap_err();
    assert!(matches!(taken, StoreError::Exists { .. }), "{taken}");
}

fn the_last_administrator_cannot_be_lost(backend: Backend) {
    let store = backend.fresh();
    create_account(&store, ADA, "ada", true);
    create_account(&store, BOB, "bob", false);
    let refused = |result: orrery_store::Result<()>| {
        let error = result.unwrap_err();
        assert!(matches!(error, StoreError::LastAdministrator(_)), "{error}");
    };
    refused(store.accounts().update(ADA, None, Some(false), None, NOW).map(drop));
    refused(store.accounts().update(ADA, None, None, Some(true), NOW).map(drop));
    refused(store.accounts().delete(ADA, None, NOW).map(drop));
    let outdated = store.accounts().update(BOB, Some(7), Some(true), None, NOW).unwrap_err();
    assert!(matches!(outdated, StoreError::Outdated { .. }), "{outdated}");
    store.accounts().update(BOB, Some(1), Some(true), None, NOW).unwrap();
    store.accounts().delete(ADA, None, NOW).unwrap();
    refused(store.accounts().delete(BOB, None, NOW).map(drop));
    let names: Vec<String> =
        store.accounts().list("", 10).unwrap().into_iter().map(|account| account.name).collect();
    assert_eq!(names, ["bob"]);
}

fn sessions_end(backend: Backend) {
    let store = backend.fresh();
    create_account(&store, ADA, "ada", true);
    create_account(&store, BOB, "bob", false);
    begin_session(&store, [1; 32], ADA, 2_000);
    assert!(is_open(&store, [1; 32], 1_999));
    assert!(!is_open(&store, [1; 32], 2_000));
    store.accounts().renew_session(&[1; 32], &[2; 32], Timestamp(3_000), Timestamp(1_500)).unwrap();
    assert!(!is_open(&store, [1; 32], 1_600));
    assert!(is_open(&store, [2; 32], 2_999));
    let late =
        store.accounts().renew_session(&[2; 32], &[3; 32], Timestamp(9_000), Timestamp(3_000));
    assert!(late.is_err());
    store.accounts().end_session(&[2; 32]).unwrap();
    assert!(!is_open(&store, [2; 32], 1_600));
    begin_session(&store, [4; 32], BOB, 9_000);
    store.accounts().update(BOB, None, None, Some(true), NOW).unwrap();
    assert!(!is_open(&store, [4; 32], 1_600), "disabling logs out");
    let session = SessionRecord { account: BOB, created: NOW, expires: Timestamp(9_000) };
    assert!(store.accounts().create_session(&[5; 32], &session, None).is_err());
}

fn a_new_password_ends_other_sessions(backend: Backend) {
    let store = backend.fresh();
    create_account(&store, ADA, "ada", true);
    create_account(&store, BOB, "bob", false);
    for (hash, account) in [([1; 32], ADA), ([2; 32], ADA), ([3; 32], BOB)] {
        begin_session(&store, hash, account, 9_000);
    }
    store.accounts().set_password(ADA, "$new", Some(&[1; 32]), NOW).unwrap();
    assert_eq!(store.accounts().get(ADA).unwrap().password.as_deref(), Some("$new"));
    let open = [[1; 32], [2; 32], [3; 32]].map(|hash| is_open(&store, hash, 1_500));
    assert_eq!(open, [true, false, true]);
    store.accounts().set_password(ADA, "$newer", None, NOW).unwrap();
    assert!(!is_open(&store, [1; 32], 1_500));
    let external =
        NewAccount { issuer: Some("corp"), password: None, ..account(id_of(7), "eve", false) };
    store.accounts().create(&external, NOW).unwrap();
    assert!(store.accounts().set_password(id_of(7), "$x", None, NOW).is_err());
}

fn roles_belong_to_scopes(backend: Backend) {
    let store = backend.fresh();
    create_account(&store, ADA, "ada", false);
    let (project, environment) = (RoleScope::Project(id_of(9)), RoleScope::Environment(id_of(9)));
    store.accounts().assign_role(ADA, project, "viewer", NOW).unwrap();
    store.accounts().assign_role(ADA, project, "viewer", NOW).unwrap();
    store.accounts().assign_role(ADA, RoleScope::Everywhere, "operator", NOW).unwrap();
    let all = store.accounts().role_assignments(None).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(store.accounts().role_assignments(Some(project)).unwrap().len(), 1);
    assert_eq!(store.accounts().role_assignments(Some(environment)).unwrap(), []);
    let known = store.accounts().identity_named("ada").unwrap().unwrap();
    assert_eq!(known.roles.len(), 2);
    assert!(store.accounts().revoke_role(ADA, environment, "viewer", NOW).is_err());
    store.accounts().revoke_role(ADA, project, "viewer", NOW).unwrap();
    assert_eq!(store.accounts().role_assignments(Some(project)).unwrap(), []);
    assert!(
        store.accounts().assign_role(BOB, project, "viewer", NOW).is_err(),
        "there is no such account"
    );
}

fn token(uuid: TokenId, account: AccountId, created: i64) -> TokenRecord {
    TokenRecord {
        uuid,
        name: "ci".to_owned(),
        account,
        scope: RoleScope::Environment(id_of(8)),
        grants: serde_json::json!({"role": "viewer"}),
        created: Timestamp(created),
        expires: Some(Timestamp(5_000)),
        revoked: None,
        last_used: None,
    }
}

fn tokens_are_found_by_hash_and_revoked(backend: Backend) {
    let store = backend.fresh();
    create_account(&store, ADA, "ada", false);
    create_account(&store, BOB, "bob", false);
    let (first, second) = (token(id_of(1), ADA, 10), token(id_of(2), ADA, 10));
    store.tokens().create(&[1; 32], &first).unwrap();
    store.tokens().create(&[2; 32], &second).unwrap();
    store.tokens().create(&[3; 32], &token(id_of(3), BOB, 20)).unwrap();
    let (found, identity) = store.tokens().with_hash(&[1; 32]).unwrap().unwrap();
    assert_eq!((&found, identity.account.name.as_str()), (&first, "ada"));
    assert!(found.is_valid(Timestamp(4_999)) && !found.is_valid(Timestamp(5_000)));
    assert!(store.tokens().with_hash(&[9; 32]).unwrap().is_none());
    store.tokens().touch(&[(id_of(1), Timestamp(50)), (id_of(1), Timestamp(40))]).unwrap();
    assert_eq!(store.tokens().get(id_of(1)).unwrap().last_used, Some(Timestamp(50)));
    store.tokens().revoke(id_of(1), Timestamp(60)).unwrap();
    store.tokens().revoke(id_of(1), Timestamp(70)).unwrap();
    let (found, _) = store.tokens().with_hash(&[1; 32]).unwrap().unwrap();
    assert_eq!(found.revoked, Some(Timestamp(60)));
    assert!(!found.is_valid(Timestamp(61)));
    let ids = |tokens: Vec<TokenRecord>| {
        tokens.iter().map(|one| one.uuid.into_bytes()[0]).collect::<Vec<_>>()
    };
    assert_eq!(ids(store.tokens().list(None, None, 10).unwrap()), [3, 2, 1]);
    assert_eq!(ids(store.tokens().list(Some(ADA), None, 1).unwrap()), [2]);
    let after = Some((Timestamp(10), id_of(2)));
    assert_eq!(ids(store.tokens().list(Some(ADA), after, 10).unwrap()), [1]);
    assert!(store.tokens().revoke(id_of(9), NOW).is_err());
}

fn non_administrators_are_detected(backend: Backend) {
    let store = backend.fresh();
    let only = |at: i64| store.accounts().has_only_administrators(Timestamp(at)).unwrap();
    assert!(only(1), "no account has rights");
    create_account(&store, ADA, "ada", true);
    assert!(only(1));
    let grants = |role: &str| serde_json::json!({"role": role, "verbs": ["GET", "PUT"]});
    let viewer = token(id_of(1), ADA, 10);
    let admin = TokenRecord {
        scope: RoleScope::Everywhere,
        grants: grants("admin"),
        ..token(id_of(2), ADA, 10)
    };
    store.tokens().create(&[1; 32], &viewer).unwrap();
    store.tokens().create(&[2; 32], &admin).unwrap();
    assert!(only(1), "those change nothing, or are an administrator's own");
    for (number, scope, role) in [
        (3, RoleScope::Everywhere, "developer"),
        (4, RoleScope::Environment(id_of(8)), "admin"),
        (5, RoleScope::Project(id_of(8)), "operator"),
    ] {
        let limited = TokenRecord { scope, grants: grants(role), ..token(id_of(number), ADA, 10) };
        store.tokens().create(&[number; 32], &limited).unwrap();
        assert!(!only(4_999), "{role}");
        assert!(only(5_000), "{role}: it has expired");
        store.tokens().revoke(id_of(number), Timestamp(60)).unwrap();
        assert!(only(61), "{role}: it was revoked");
    }
    create_account(&store, BOB, "bob", false);
    store.accounts().assign_role(BOB, RoleScope::Everywhere, "viewer", NOW).unwrap();
    assert!(only(1), "it changes nothing");
    store.accounts().assign_role(BOB, RoleScope::Project(id_of(8)), "developer", NOW).unwrap();
    assert!(!only(1));
    store.accounts().update(BOB, None, None, Some(true), NOW).unwrap();
    assert!(!only(1), "what a disabled account has made is still there");
    store.accounts().update(BOB, None, Some(true), None, NOW).unwrap();
    assert!(only(1));
}

fn deleting_an_account_takes_all_with_it(backend: Backend) {
    let store = backend.fresh();
    create_account(&store, ADA, "ada", false);
    begin_session(&store, [1; 32], ADA, 9_000);
    store.tokens().create(&[2; 32], &token(id_of(1), ADA, 10)).unwrap();
    store.accounts().assign_role(ADA, RoleScope::Everywhere, "admin", NOW).unwrap();
    let created = store.accounts().get(ADA).unwrap();
    store.accounts().set_password(ADA, "another", Some(&[1; 32]), NOW).unwrap();
    let error = store.accounts().delete(ADA, Some(created.revision), NOW).unwrap_err();
    assert!(matches!(error, StoreError::Outdated { .. }), "{error}");
    assert!(is_open(&store, [1; 32], 1_500), "nothing is gone");
    let now = store.accounts().get(ADA).unwrap();
    assert_eq!(store.accounts().delete(ADA, Some(now.revision), NOW).unwrap().name, "ada");
    assert!(!is_open(&store, [1; 32], 1_500));
    assert!(store.tokens().with_hash(&[2; 32]).unwrap().is_none());
    assert_eq!(store.accounts().role_assignments(None).unwrap(), []);
    assert!(store.accounts().delete(ADA, None, NOW).is_err());
}

fn deleted_scopes_take_their_grants_along(backend: Backend) {
    let store = backend.fresh();
    create_account(&store, ADA, "ada", false);
    let id = id_of(9);
    store.projects().create(id, "shop", "", NOW).unwrap();
    store.accounts().assign_role(ADA, RoleScope::Project(id), "admin", NOW).unwrap();
    let scoped = TokenRecord { scope: RoleScope::Project(id), ..token(id_of(1), ADA, 10) };
    store.tokens().create(&[1; 32], &scoped).unwrap();
    store.projects().delete(id, None, Timestamp(77)).unwrap();
    assert_eq!(store.accounts().role_assignments(None).unwrap(), []);
    assert_eq!(store.tokens().get(id_of(1)).unwrap().revoked, Some(Timestamp(77)));
}

fn entry(actor: &str, at: i64) -> AuditRecord {
    AuditRecord {
        at: Timestamp(at),
        actor: actor.to_owned(),
        address: "192.0.2.1".to_owned(),
        action: "POST /things".to_owned(),
        subject: "thing".to_owned(),
        environment: (at % 2 == 0).then_some(id_of(5)),
        status: 201,
        detail: String::new(),
    }
}

fn retention_leaves_the_audit_log_a_chain(backend: Backend) {
    let store = backend.fresh();
    let all: Vec<AuditRecord> = (1..=10).map(|at| entry("a", at)).collect();
    store.audit().append(&all).unwrap();
    let now = Timestamp(20);
    assert_eq!(store.audit().expire(Timestamp(1), 100, now).unwrap(), 0, "none is that old");
    assert_eq!(store.audit().expire(Timestamp(8), 3, now).unwrap(), 3, "a few at a time");
    assert_eq!(store.audit().expire(Timestamp(8), 100, now).unwrap(), 3);
    assert_eq!(store.audit().expire(Timestamp(8), 100, now).unwrap(), 0);
    let remaining = store.audit().list(&AuditFilter::default(), None, 100).unwrap();
    let ids: Vec<i64> = remaining.iter().map(|record| record.id).collect();
    assert_eq!(ids, [12, 11, 10, 9, 8, 7]);
    let good = AuditVerification::Good { id: 12, hash: remaining[0].hash };
    assert_eq!(store.audit().verify(None, 100).unwrap(), good);
    store.audit().append(&[entry("b", 21)]).unwrap();
    let verdict = store.audit().verify(None, 100).unwrap();
    assert!(matches!(verdict, AuditVerification::Good { id: 13, .. }), "{verdict:?}");
    assert_eq!(store.audit().expire(Timestamp(100), 100, now).unwrap(), 6, "all but the last");
    let verdict = store.audit().verify(None, 100).unwrap();
    assert!(matches!(verdict, AuditVerification::Good { id: 14, .. }), "{verdict:?}");
}

fn the_audit_log_is_a_chain(backend: Backend) {
    let store = backend.fresh();
    let empty = store.audit().verify(None, 10).unwrap();
    assert_eq!(empty, AuditVerification::Good { id: 0, hash: [0; 32] });
    store.audit().append(&[entry("a", 1), entry("b", 2)]).unwrap();
    store.audit().append(&[entry("b", 2)]).unwrap();
    let all = store.audit().list(&AuditFilter::default(), None, 10).unwrap();
    assert_eq!(all.iter().map(|record| record.id).collect::<Vec<_>>(), [3, 2, 1]);
    assert_ne!(all[0].hash, all[1].hash, "equal entries have different seals");
    let head = AuditVerification::Good { id: 3, hash: all[0].hash };
    assert_eq!(store.audit().verify(None, 10).unwrap(), head);
    let half = AuditVerification::Good { id: 2, hash: all[1].hash };
    assert_eq!(store.audit().verify(None, 2).unwrap(), half);
    assert_eq!(store.audit().verify(Some((2, all[1].hash)), 10).unwrap(), head);
    let broken = store.audit().verify(Some((2, [7; 32])), 10).unwrap();
    assert!(matches!(broken, AuditVerification::Broken { id: 3, .. }), "{broken:?}");
}

fn audit_entries_are_filtered_and_paged(backend: Backend) {
    let store = backend.fresh();
    let entries: Vec<AuditRecord> =
        (1..=6).map(|at| entry(if at <= 3 { "a" } else { "b" }, at)).collect();
    store.audit().append(&entries).unwrap();
    let ids = |filter: AuditFilter<'_>, before, limit| {
        let found = store.audit().list(&filter, before, limit).unwrap();
        found.into_iter().map(|record| record.id).collect::<Vec<_>>()
    };
    let all = AuditFilter::default();
    assert_eq!(ids(all, None, 2), [6, 5]);
    assert_eq!(ids(all, Some(5), 2), [4, 3]);
    assert_eq!(ids(AuditFilter { actor: Some("a"), ..all }, None, 10), [3, 2, 1]);
    assert_eq!(ids(AuditFilter { environment: Some(id_of(5)), ..all }, None, 10), [6, 4, 2]);
    assert_eq!(ids(AuditFilter { action: Some("PUT /things"), ..all }, None, 10), [0_i64; 0]);
    let (since, until) = (Some(Timestamp(2)), Some(Timestamp(4)));
    assert_eq!(ids(AuditFilter { since, until, ..all }, None, 10), [3, 2]);
}

fn secrets_belong_to_scopes_and_are_resealed(backend: Backend) {
    let store = backend.fresh();
    let environment = Some(store.environments().ensure_default().unwrap());
    assert_eq!(store.secrets().put(environment, "db", b"one", &|_| true, NOW).unwrap(), 1);
    assert_eq!(store.secrets().put(environment, "db", b"two", &|_| true, NOW).unwrap(), 2);
    assert_eq!(store.secrets().put(None, "db", b"all", &|_| true, NOW).unwrap(), 1);
    assert_eq!(store.secrets().get(environment, "db").unwrap().sealed, b"two");
    assert_eq!(store.secrets().get(None, "db").unwrap().sealed, b"all");
    assert_eq!(store.secrets().list(environment).unwrap().len(), 1);
    let mut all = store.secrets().all().unwrap();
    assert_eq!(all.len(), 2);
    for secret in &mut all {
        secret.sealed = b"anew".to_vec();
    }
    store.secrets().put(None, "db", b"meanwhile", &|_| true, NOW).unwrap();
    assert_eq!(store.secrets().reseal(&all).unwrap(), 1);
    assert_eq!(store.secrets().get(None, "db").unwrap().sealed, b"meanwhile");
    assert_eq!(store.secrets().get(environment, "db").unwrap().sealed, b"anew");
    store.secrets().delete(environment, "db", NOW).unwrap();
    assert!(store.secrets().get(environment, "db").is_err());
    assert!(store.secrets().delete(environment, "db", NOW).is_err());
    // A process with another key, which may only replace the last secret sealed with the first.
    let mine = |sealed: &[u8]| sealed.starts_with(b"mine");
    let refused = store.secrets().put(environment, "new", b"mine", &mine, NOW);
    assert!(matches!(refused, Err(StoreError::OtherKey)), "{refused:?}");
    assert!(store.secrets().get(environment, "new").is_err());
    store.secrets().put(None, "db", b"mine too", &mine, NOW).unwrap();
    store.secrets().put(environment, "new", b"mine", &mine, NOW).unwrap();
}

fn meta_values_are_stored(backend: Backend) {
    let store = backend.fresh();
    assert_eq!(store.meta().get("a").unwrap(), None);
    store.meta().put("a", "1").unwrap();
    store.meta().put("a", "2").unwrap();
    assert_eq!(store.meta().get("a").unwrap().as_deref(), Some("2"));
}

/// Each account has a few networks of its own, the most recent ones, for 90 days.
fn networks_of_logins_are_familiar_for_90_days(backend: Backend) {
    const DAY: i64 = 86_400_000_000;
    let store = backend.fresh();
    create_account(&store, ADA, "ada", true);
    create_account(&store, BOB, "bob", false);
    let log_in = |account: AccountId, network: &str, at: i64, n: u16| {
        let mut hash = [account.into_bytes()[0]; 32];
        hash[..2].copy_from_slice(&n.to_be_bytes());
        let session =
            SessionRecord { account, created: Timestamp(at), expires: Timestamp(at + DAY) };
        store.accounts().create_session(&hash, &session, Some(network)).unwrap();
    };
    let is_known = |name: &str, network: &str, at: i64| {
        store.accounts().identity_at(name, network, Timestamp(at)).unwrap().1
    };
    log_in(ADA, "192.0.2.1", DAY, 0);
    assert!(is_known("ada", "192.0.2.1", 91 * DAY) && !is_known("ada", "192.0.2.1", 92 * DAY));
    assert!(!is_known("bob", "192.0.2.1", DAY) && !is_known("eve", "192.0.2.1", DAY));
    assert!(store.accounts().identity_at("eve", "192.0.2.1", NOW).unwrap().0.is_none());
    // An account with many networks displaces its own, never those of others.
    for n in 0..200 {
        log_in(BOB, &format!("2001:db8:{n:x}::/64"), DAY + i64::from(n), n + 1);
    }
    let kept = (0..200).filter(|n| is_known("bob", &format!("2001:db8:{n:x}::/64"), 2 * DAY));
    assert_eq!(kept.collect::<Vec<u16>>(), (136..200).collect::<Vec<u16>>());
    assert!(is_known("ada", "192.0.2.1", 2 * DAY));
    // A password set by its owner, in a session, keeps them; one set by an administrator does not.
    store.accounts().set_password(ADA, "$new", Some(&[9; 32]), NOW).unwrap();
    assert!(is_known("ada", "192.0.2.1", 2 * DAY));
    store.accounts().set_password(ADA, "$new", None, NOW).unwrap();
    assert!(!is_known("ada", "192.0.2.1", 2 * DAY));
    assert_eq!(store.accounts().expire_networks(Timestamp(100 * DAY)).unwrap(), 64);
}

/// Revoked and expired ones do not count, and are deleted after 90 days.
fn an_account_has_a_thousand_tokens_at_most(backend: Backend) {
    const DAY: i64 = 86_400_000_000;
    let store = backend.fresh();
    create_account(&store, ADA, "ada", false);
    create_account(&store, BOB, "bob", false);
    let create = |n: u16, account: AccountId, at: i64| {
        let mut uuid = [account.into_bytes()[0]; 16];
        uuid[..2].copy_from_slice(&n.to_be_bytes());
        let mut hash = [account.into_bytes()[0]; 32];
        hash[..2].copy_from_slice(&n.to_be_bytes());
        let token = TokenRecord {
            expires: Some(Timestamp(at + DAY)),
            ..token(TokenId::from_bytes(uuid), account, at)
        };
        store.tokens().create(&hash, &token).map(|()| TokenId::from_bytes(uuid))
    };
    let first = create(0, ADA, 10).unwrap();
    for n in 1..1_000 {
        create(n, ADA, 10).unwrap();
    }
    let refused = create(1_000, ADA, 10).unwrap_err();
    assert!(matches!(refused, StoreError::Conflict(_)), "{refused}");
    assert!(refused.to_string().contains("revoke"), "{refused}");
    create(0, BOB, 10).unwrap();
    store.tokens().revoke(first, Timestamp(11)).unwrap();
    create(1_000, ADA, 12).unwrap();
    // All have expired.
    create(1_001, ADA, 2 * DAY).unwrap();
    assert_eq!(store.tokens().list(Some(ADA), None, 2_000).unwrap().len(), 1_002);
    create(1_002, ADA, 100 * DAY).unwrap();
    assert_eq!(store.tokens().list(Some(ADA), None, 2_000).unwrap().len(), 1);
}
