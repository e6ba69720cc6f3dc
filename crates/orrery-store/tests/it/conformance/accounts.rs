//! Accounts, sessions, tokens, roles, the audit log, secrets.

use orrery_model::Timestamp;
use orrery_store::{
    AuditFilter, AuditRecord, AuditVerification, NewAccount, RoleScope, SessionRecord, Store,
    StoreError, TokenRecord,
};

use crate::support::Backend;

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
const ADA: [u8; 16] = [1; 16];
const BOB: [u8; 16] = [2; 16];

fn account(uuid: [u8; 16], name: &str, admin: bool) -> NewAccount<'_> {
    NewAccount { uuid, name, password: Some("$hash"), issuer: None, admin }
}

fn create_account(store: &dyn Store, uuid: [u8; 16], name: &str, admin: bool) {
    store.records().create_account(&account(uuid, name, admin), NOW).unwrap();
}

fn begin_session(store: &dyn Store, hash: [u8; 32], account: [u8; 16], expires: i64) {
    let session = SessionRecord { account, created: NOW, expires: Timestamp(expires) };
    store.records().create_session(&hash, &session, None).unwrap();
}

fn is_open(store: &dyn Store, hash: [u8; 32], now: i64) -> bool {
    store.records().session(&hash, Timestamp(now)).unwrap().is_some()
}

fn the_first_account_is_created_once(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    assert!(records.has_no_accounts().unwrap());
    records.put_meta("ticket", "right").unwrap();
    let first = |ticket| {
        records.create_first_account(&account(ADA, "ada", true), Some(ticket), NOW).unwrap()
    };
    assert_eq!(first(("ticket", "wrong")), None);
    let created = first(("ticket", "right")).unwrap();
    assert_eq!((created.name.as_str(), created.admin, created.revision), ("ada", true, 1));
    assert_eq!(first(("ticket", "right")), None);
    assert_eq!(records.meta_value("ticket").unwrap(), None, "it is used up");
    let again = records.create_first_account(&account(BOB, "bob", true), None, NOW).unwrap();
    assert_eq!(again, None);
    let taken = records.create_account(&account(BOB, "ada", false), NOW).unwrap_err();
    assert!(matches!(taken, StoreError::Exists { .. }), "{taken}");
}

fn the_last_administrator_cannot_be_lost(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    create_account(&*store, ADA, "ada", true);
    create_account(&*store, BOB, "bob", false);
    let refused = |result: orrery_store::Result<()>| {
        let error = result.unwrap_err();
        assert!(matches!(error, StoreError::LastAdministrator(_)), "{error}");
    };
    refused(records.update_account(&ADA, None, Some(false), None, NOW).map(drop));
    refused(records.update_account(&ADA, None, None, Some(true), NOW).map(drop));
    refused(records.delete_account(&ADA, None, NOW).map(drop));
    let outdated = records.update_account(&BOB, Some(7), Some(true), None, NOW).unwrap_err();
    assert!(matches!(outdated, StoreError::Outdated { .. }), "{outdated}");
    records.update_account(&BOB, Some(1), Some(true), None, NOW).unwrap();
    records.delete_account(&ADA, None, NOW).unwrap();
    refused(records.delete_account(&BOB, None, NOW).map(drop));
    let names: Vec<String> =
        records.accounts("", 10).unwrap().into_iter().map(|account| account.name).collect();
    assert_eq!(names, ["bob"]);
}

fn sessions_end(backend: Backend) {
    let store = backend.fresh();
    create_account(&*store, ADA, "ada", true);
    create_account(&*store, BOB, "bob", false);
    begin_session(&*store, [1; 32], ADA, 2_000);
    assert!(is_open(&*store, [1; 32], 1_999));
    assert!(!is_open(&*store, [1; 32], 2_000));
    store.records().renew_session(&[1; 32], &[2; 32], Timestamp(3_000), Timestamp(1_500)).unwrap();
    assert!(!is_open(&*store, [1; 32], 1_600));
    assert!(is_open(&*store, [2; 32], 2_999));
    let late =
        store.records().renew_session(&[2; 32], &[3; 32], Timestamp(9_000), Timestamp(3_000));
    assert!(late.is_err());
    store.records().end_session(&[2; 32]).unwrap();
    assert!(!is_open(&*store, [2; 32], 1_600));
    begin_session(&*store, [4; 32], BOB, 9_000);
    store.records().update_account(&BOB, None, None, Some(true), NOW).unwrap();
    assert!(!is_open(&*store, [4; 32], 1_600), "disabling logs out");
    let session = SessionRecord { account: BOB, created: NOW, expires: Timestamp(9_000) };
    assert!(store.records().create_session(&[5; 32], &session, None).is_err());
}

fn a_new_password_ends_other_sessions(backend: Backend) {
    let store = backend.fresh();
    create_account(&*store, ADA, "ada", true);
    create_account(&*store, BOB, "bob", false);
    for (hash, account) in [([1; 32], ADA), ([2; 32], ADA), ([3; 32], BOB)] {
        begin_session(&*store, hash, account, 9_000);
    }
    store.records().set_password(&ADA, "$new", Some(&[1; 32]), NOW).unwrap();
    assert_eq!(store.records().account(&ADA).unwrap().password.as_deref(), Some("$new"));
    let open = [[1; 32], [2; 32], [3; 32]].map(|hash| is_open(&*store, hash, 1_500));
    assert_eq!(open, [true, false, true]);
    store.records().set_password(&ADA, "$newer", None, NOW).unwrap();
    assert!(!is_open(&*store, [1; 32], 1_500));
    let external =
        NewAccount { issuer: Some("corp"), password: None, ..account([7; 16], "eve", false) };
    store.records().create_account(&external, NOW).unwrap();
    assert!(store.records().set_password(&[7; 16], "$x", None, NOW).is_err());
}

fn roles_belong_to_scopes(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    create_account(&*store, ADA, "ada", false);
    let same_id = [9; 16];
    let (project, environment) = (RoleScope::Project(same_id), RoleScope::Environment(same_id));
    records.assign_role(&ADA, project, "viewer", NOW).unwrap();
    records.assign_role(&ADA, project, "viewer", NOW).unwrap();
    records.assign_role(&ADA, RoleScope::Everywhere, "operator", NOW).unwrap();
    let all = records.role_assignments(None).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(records.role_assignments(Some(project)).unwrap().len(), 1);
    assert_eq!(records.role_assignments(Some(environment)).unwrap(), []);
    let known = records.identity_named("ada").unwrap().unwrap();
    assert_eq!(known.roles.len(), 2);
    assert!(records.revoke_role(&ADA, environment, "viewer", NOW).is_err());
    records.revoke_role(&ADA, project, "viewer", NOW).unwrap();
    assert_eq!(records.role_assignments(Some(project)).unwrap(), []);
    assert!(records.assign_role(&BOB, project, "viewer", NOW).is_err(), "there is no such account");
}

fn token(uuid: [u8; 16], account: [u8; 16], created: i64) -> TokenRecord {
    TokenRecord {
        uuid,
        name: "ci".to_owned(),
        account,
        scope: RoleScope::Environment([8; 16]),
        grants: serde_json::json!({"role": "viewer"}),
        created: Timestamp(created),
        expires: Some(Timestamp(5_000)),
        revoked: None,
        last_used: None,
    }
}

fn tokens_are_found_by_hash_and_revoked(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    create_account(&*store, ADA, "ada", false);
    create_account(&*store, BOB, "bob", false);
    let (first, second) = (token([1; 16], ADA, 10), token([2; 16], ADA, 10));
    records.create_token(&[1; 32], &first).unwrap();
    records.create_token(&[2; 32], &second).unwrap();
    records.create_token(&[3; 32], &token([3; 16], BOB, 20)).unwrap();
    let (found, identity) = records.token_with_hash(&[1; 32]).unwrap().unwrap();
    assert_eq!((&found, identity.account.name.as_str()), (&first, "ada"));
    assert!(found.is_valid(Timestamp(4_999)) && !found.is_valid(Timestamp(5_000)));
    assert!(records.token_with_hash(&[9; 32]).unwrap().is_none());
    records.touch_tokens(&[([1; 16], Timestamp(50)), ([1; 16], Timestamp(40))]).unwrap();
    assert_eq!(records.token(&[1; 16]).unwrap().last_used, Some(Timestamp(50)));
    records.revoke_token(&[1; 16], Timestamp(60)).unwrap();
    records.revoke_token(&[1; 16], Timestamp(70)).unwrap();
    let (found, _) = records.token_with_hash(&[1; 32]).unwrap().unwrap();
    assert_eq!(found.revoked, Some(Timestamp(60)));
    assert!(!found.is_valid(Timestamp(61)));
    let ids = |tokens: Vec<TokenRecord>| tokens.iter().map(|one| one.uuid[0]).collect::<Vec<_>>();
    assert_eq!(ids(records.tokens(None, None, 10).unwrap()), [3, 2, 1]);
    assert_eq!(ids(records.tokens(Some(&ADA), None, 1).unwrap()), [2]);
    let after = Some((Timestamp(10), [2; 16]));
    assert_eq!(ids(records.tokens(Some(&ADA), after, 10).unwrap()), [1]);
    assert!(records.revoke_token(&[9; 16], NOW).is_err());
}

fn non_administrators_are_detected(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let only = |at: i64| records.has_only_administrators(Timestamp(at)).unwrap();
    assert!(only(1), "no account has rights");
    create_account(&*store, ADA, "ada", true);
    assert!(only(1));
    let grants = |role: &str| serde_json::json!({"role": role, "verbs": ["GET", "PUT"]});
    let viewer = token([1; 16], ADA, 10);
    let admin = TokenRecord {
        scope: RoleScope::Everywhere,
        grants: grants("admin"),
        ..token([2; 16], ADA, 10)
    };
    records.create_token(&[1; 32], &viewer).unwrap();
    records.create_token(&[2; 32], &admin).unwrap();
    assert!(only(1), "those change nothing, or are an administrator's own");
    for (number, scope, role) in [
        (3, RoleScope::Everywhere, "developer"),
        (4, RoleScope::Environment([8; 16]), "admin"),
        (5, RoleScope::Project([8; 16]), "operator"),
    ] {
        let limited = TokenRecord { scope, grants: grants(role), ..token([number; 16], ADA, 10) };
        records.create_token(&[number; 32], &limited).unwrap();
        assert!(!only(4_999), "{role}");
        assert!(only(5_000), "{role}: it has expired");
        records.revoke_token(&[number; 16], Timestamp(60)).unwrap();
        assert!(only(61), "{role}: it was revoked");
    }
    create_account(&*store, BOB, "bob", false);
    records.assign_role(&BOB, RoleScope::Everywhere, "viewer", NOW).unwrap();
    assert!(only(1), "it changes nothing");
    records.assign_role(&BOB, RoleScope::Project([8; 16]), "developer", NOW).unwrap();
    assert!(!only(1));
    records.update_account(&BOB, None, None, Some(true), NOW).unwrap();
    assert!(!only(1), "what a disabled account has made is still there");
    records.update_account(&BOB, None, Some(true), None, NOW).unwrap();
    assert!(only(1));
}

fn deleting_an_account_takes_all_with_it(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    create_account(&*store, ADA, "ada", false);
    begin_session(&*store, [1; 32], ADA, 9_000);
    records.create_token(&[2; 32], &token([1; 16], ADA, 10)).unwrap();
    records.assign_role(&ADA, RoleScope::Everywhere, "admin", NOW).unwrap();
    let created = records.account(&ADA).unwrap();
    records.set_password(&ADA, "another", Some(&[1; 32]), NOW).unwrap();
    let error = records.delete_account(&ADA, Some(created.revision), NOW).unwrap_err();
    assert!(matches!(error, StoreError::Outdated { .. }), "{error}");
    assert!(is_open(&*store, [1; 32], 1_500), "nothing is gone");
    let now = records.account(&ADA).unwrap();
    assert_eq!(records.delete_account(&ADA, Some(now.revision), NOW).unwrap().name, "ada");
    assert!(!is_open(&*store, [1; 32], 1_500));
    assert!(records.token_with_hash(&[2; 32]).unwrap().is_none());
    assert_eq!(records.role_assignments(None).unwrap(), []);
    assert!(records.delete_account(&ADA, None, NOW).is_err());
}

fn deleted_scopes_take_their_grants_along(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    create_account(&*store, ADA, "ada", false);
    let id = [9; 16];
    records.create_project(id, "shop", "", NOW).unwrap();
    records.assign_role(&ADA, RoleScope::Project(id), "admin", NOW).unwrap();
    let scoped = TokenRecord { scope: RoleScope::Project(id), ..token([1; 16], ADA, 10) };
    records.create_token(&[1; 32], &scoped).unwrap();
    records.delete_project(&id, None, Timestamp(77)).unwrap();
    assert_eq!(records.role_assignments(None).unwrap(), []);
    assert_eq!(records.token(&[1; 16]).unwrap().revoked, Some(Timestamp(77)));
}

fn entry(actor: &str, at: i64) -> AuditRecord {
    AuditRecord {
        at: Timestamp(at),
        actor: actor.to_owned(),
        address: "192.0.2.1".to_owned(),
        action: "POST /things".to_owned(),
        subject: "thing".to_owned(),
        environment: (at % 2 == 0).then_some([5; 16]),
        status: 201,
        detail: String::new(),
    }
}

fn retention_leaves_the_audit_log_a_chain(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let all: Vec<AuditRecord> = (1..=10).map(|at| entry("a", at)).collect();
    records.append_audit(&all).unwrap();
    let now = Timestamp(20);
    assert_eq!(records.expire_audit(Timestamp(1), 100, now).unwrap(), 0, "none is that old");
    assert_eq!(records.expire_audit(Timestamp(8), 3, now).unwrap(), 3, "a few at a time");
    assert_eq!(records.expire_audit(Timestamp(8), 100, now).unwrap(), 3);
    assert_eq!(records.expire_audit(Timestamp(8), 100, now).unwrap(), 0);
    let remaining = records.audit(&AuditFilter::default(), None, 100).unwrap();
    let ids: Vec<i64> = remaining.iter().map(|record| record.id).collect();
    assert_eq!(ids, [12, 11, 10, 9, 8, 7]);
    let good = AuditVerification::Good { id: 12, hash: remaining[0].hash };
    assert_eq!(records.verify_audit(None, 100).unwrap(), good);
    records.append_audit(&[entry("b", 21)]).unwrap();
    let verdict = records.verify_audit(None, 100).unwrap();
    assert!(matches!(verdict, AuditVerification::Good { id: 13, .. }), "{verdict:?}");
    assert_eq!(records.expire_audit(Timestamp(100), 100, now).unwrap(), 6, "all but the last");
    let verdict = records.verify_audit(None, 100).unwrap();
    assert!(matches!(verdict, AuditVerification::Good { id: 14, .. }), "{verdict:?}");
}

fn the_audit_log_is_a_chain(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let empty = records.verify_audit(None, 10).unwrap();
    assert_eq!(empty, AuditVerification::Good { id: 0, hash: [0; 32] });
    records.append_audit(&[entry("a", 1), entry("b", 2)]).unwrap();
    records.append_audit(&[entry("b", 2)]).unwrap();
    let all = records.audit(&AuditFilter::default(), None, 10).unwrap();
    assert_eq!(all.iter().map(|record| record.id).collect::<Vec<_>>(), [3, 2, 1]);
    assert_ne!(all[0].hash, all[1].hash, "equal entries have different seals");
    let head = AuditVerification::Good { id: 3, hash: all[0].hash };
    assert_eq!(records.verify_audit(None, 10).unwrap(), head);
    let half = AuditVerification::Good { id: 2, hash: all[1].hash };
    assert_eq!(records.verify_audit(None, 2).unwrap(), half);
    assert_eq!(records.verify_audit(Some((2, all[1].hash)), 10).unwrap(), head);
    let broken = records.verify_audit(Some((2, [7; 32])), 10).unwrap();
    assert!(matches!(broken, AuditVerification::Broken { id: 3, .. }), "{broken:?}");
}

fn audit_entries_are_filtered_and_paged(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let entries: Vec<AuditRecord> =
        (1..=6).map(|at| entry(if at <= 3 { "a" } else { "b" }, at)).collect();
    records.append_audit(&entries).unwrap();
    let ids = |filter: AuditFilter<'_>, before, limit| {
        let found = records.audit(&filter, before, limit).unwrap();
        found.into_iter().map(|record| record.id).collect::<Vec<_>>()
    };
    let all = AuditFilter::default();
    assert_eq!(ids(all, None, 2), [6, 5]);
    assert_eq!(ids(all, Some(5), 2), [4, 3]);
    assert_eq!(ids(AuditFilter { actor: Some("a"), ..all }, None, 10), [3, 2, 1]);
    assert_eq!(ids(AuditFilter { environment: Some(&[5; 16]), ..all }, None, 10), [6, 4, 2]);
    assert_eq!(ids(AuditFilter { action: Some("PUT /things"), ..all }, None, 10), [0_i64; 0]);
    let (since, until) = (Some(Timestamp(2)), Some(Timestamp(4)));
    assert_eq!(ids(AuditFilter { since, until, ..all }, None, 10), [3, 2]);
}

fn secrets_belong_to_scopes_and_are_resealed(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let environment = Some(store.default_environment().unwrap());
    assert_eq!(records.put_secret(environment, "db", b"one", &|_| true, NOW).unwrap(), 1);
    assert_eq!(records.put_secret(environment, "db", b"two", &|_| true, NOW).unwrap(), 2);
    assert_eq!(records.put_secret(None, "db", b"all", &|_| true, NOW).unwrap(), 1);
    assert_eq!(records.secret(environment, "db").unwrap().sealed, b"two");
    assert_eq!(records.secret(None, "db").unwrap().sealed, b"all");
    assert_eq!(records.secrets(environment).unwrap().len(), 1);
    let mut all = records.all_secrets().unwrap();
    assert_eq!(all.len(), 2);
    for secret in &mut all {
        secret.sealed = b"anew".to_vec();
    }
    records.put_secret(None, "db", b"meanwhile", &|_| true, NOW).unwrap();
    assert_eq!(records.reseal_secrets(&all).unwrap(), 1);
    assert_eq!(records.secret(None, "db").unwrap().sealed, b"meanwhile");
    assert_eq!(records.secret(environment, "db").unwrap().sealed, b"anew");
    records.delete_secret(environment, "db", NOW).unwrap();
    assert!(records.secret(environment, "db").is_err());
    assert!(records.delete_secret(environment, "db", NOW).is_err());
    // A process with another key, which may only replace the last secret sealed with the first.
    let mine = |sealed: &[u8]| sealed.starts_with(b"mine");
    let refused = records.put_secret(environment, "new", b"mine", &mine, NOW);
    assert!(matches!(refused, Err(StoreError::OtherKey)), "{refused:?}");
    assert!(records.secret(environment, "new").is_err());
    records.put_secret(None, "db", b"mine too", &mine, NOW).unwrap();
    records.put_secret(environment, "new", b"mine", &mine, NOW).unwrap();
}

fn meta_values_are_stored(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    assert_eq!(records.meta_value("a").unwrap(), None);
    records.put_meta("a", "1").unwrap();
    records.put_meta("a", "2").unwrap();
    assert_eq!(records.meta_value("a").unwrap().as_deref(), Some("2"));
}

/// Each account has a few networks of its own, the most recent ones, for 90 days.
fn networks_of_logins_are_familiar_for_90_days(backend: Backend) {
    const DAY: i64 = 86_400_000_000;
    let store = backend.fresh();
    let records = store.records();
    create_account(&*store, ADA, "ada", true);
    create_account(&*store, BOB, "bob", false);
    let log_in = |account: [u8; 16], network: &str, at: i64, n: u16| {
        let mut hash = [account[0]; 32];
        hash[..2].copy_from_slice(&n.to_be_bytes());
        let session =
            SessionRecord { account, created: Timestamp(at), expires: Timestamp(at + DAY) };
        records.create_session(&hash, &session, Some(network)).unwrap();
    };
    let is_known = |name: &str, network: &str, at: i64| {
        records.identity_at(name, network, Timestamp(at)).unwrap().1
    };
    log_in(ADA, "192.0.2.1", DAY, 0);
    assert!(is_known("ada", "192.0.2.1", 91 * DAY) && !is_known("ada", "192.0.2.1", 92 * DAY));
    assert!(!is_known("bob", "192.0.2.1", DAY) && !is_known("eve", "192.0.2.1", DAY));
    assert!(records.identity_at("eve", "192.0.2.1", NOW).unwrap().0.is_none());
    // An account with many networks displaces its own, never those of others.
    for n in 0..200 {
        log_in(BOB, &format!("2001:db8:{n:x}::/64"), DAY + i64::from(n), n + 1);
    }
    let kept = (0..200).filter(|n| is_known("bob", &format!("2001:db8:{n:x}::/64"), 2 * DAY));
    assert_eq!(kept.collect::<Vec<u16>>(), (136..200).collect::<Vec<u16>>());
    assert!(is_known("ada", "192.0.2.1", 2 * DAY));
    // A password set by its owner, in a session, keeps them; one set by an administrator does not.
    records.set_password(&ADA, "$new", Some(&[9; 32]), NOW).unwrap();
    assert!(is_known("ada", "192.0.2.1", 2 * DAY));
    records.set_password(&ADA, "$new", None, NOW).unwrap();
    assert!(!is_known("ada", "192.0.2.1", 2 * DAY));
    assert_eq!(records.expire_networks(Timestamp(100 * DAY)).unwrap(), 64);
}

/// Revoked and expired ones do not count, and are deleted after 90 days.
fn an_account_has_a_thousand_tokens_at_most(backend: Backend) {
    const DAY: i64 = 86_400_000_000;
    let store = backend.fresh();
    let records = store.records();
    create_account(&*store, ADA, "ada", false);
    create_account(&*store, BOB, "bob", false);
    let create = |n: u16, account: [u8; 16], at: i64| {
        let mut uuid = [account[0]; 16];
        uuid[..2].copy_from_slice(&n.to_be_bytes());
        let mut hash = [account[0]; 32];
        hash[..2].copy_from_slice(&n.to_be_bytes());
        let token = TokenRecord { expires: Some(Timestamp(at + DAY)), ..token(uuid, account, at) };
        records.create_token(&hash, &token).map(|()| uuid)
    };
    let first = create(0, ADA, 10).unwrap();
    for n in 1..1_000 {
        create(n, ADA, 10).unwrap();
    }
    let refused = create(1_000, ADA, 10).unwrap_err();
    assert!(matches!(refused, StoreError::Conflict(_)), "{refused}");
    assert!(refused.to_string().contains("revoke"), "{refused}");
    create(0, BOB, 10).unwrap();
    records.revoke_token(&first, Timestamp(11)).unwrap();
    create(1_000, ADA, 12).unwrap();
    // All have expired.
    create(1_001, ADA, 2 * DAY).unwrap();
    assert_eq!(records.tokens(Some(&ADA), None, 2_000).unwrap().len(), 1_002);
    create(1_002, ADA, 100 * DAY).unwrap();
    assert_eq!(records.tokens(Some(&ADA), None, 2_000).unwrap().len(), 1);
}
