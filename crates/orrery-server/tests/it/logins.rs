//! Logins during attempts to guess passwords.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orrery_server::{AuthSettings, ServerSettings};
use orrery_store::Store;
use serde_json::json;

use crate::support::{ADMIN_PASSWORD, Answer, Client, Served};

/// A server that trusts loopback as a proxy.
fn behind_a_proxy(store: Store) -> Served {
    let trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    let auth = AuthSettings { trusted_proxies, ..AuthSettings::default() };
    Served::with(store, ServerSettings { auth, ..ServerSettings::default() })
}

fn login_from(client: &Client, address: &str, name: &str, password: &str) -> Answer {
    let login = json!({"name": name, "password": password});
    client.send("POST", "/api/v1/login", &[("x-forwarded-for", address)], Some(&login))
}

/// One network with 200 logins in flight does not keep other networks from logging in within 2 s.
#[test]
fn a_flood_of_logins_from_one_network_keeps_no_other_out() {
    let served = behind_a_proxy(Store::in_memory().unwrap());
    let client = served.anonymous();
    // On a busy machine, a login is slow even without a flood.
    let alone = (100..105).map(|n| {
        let begun = Instant::now();
        let address = format!("203.0.113.{n}");
        assert_eq!(login_from(&client, &address, "admin", ADMIN_PASSWORD).status, 200);
        begun.elapsed()
    });
    // In one queue with the flood, a login would wait for about a hundred others on each core.
    let limit = (20 * alone.max().unwrap()).max(Duration::from_secs(2));
    let (is_over, tried) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..200 {
            let (client, is_over, tried) = (&client, &is_over, &tried);
            scope.spawn(move || {
                let mut count = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let name = format!("made-up-{thread}-{count}");
                    let status = login_from(client, "198.51.100.7", &name, "wrong").status;
                    assert!(matches!(status, 401 | 429), "{status}");
                    count += 1;
                    tried.fetch_add(1, Ordering::Relaxed);
                    // Half of `Retry-After`; the test's own threads need the cores as well.
                    std::thread::sleep(Duration::from_millis(if status == 429 { 500 } else { 0 }));
                }
            });
        }
        while tried.load(Ordering::Relaxed) < 200 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let answers: Vec<(u16, Duration)> = (0..20)
            .map(|n| {
                let begun = Instant::now();
                // A different unfamiliar network each time.
                let address = format!("203.0.113.{}", n + 1);
                let status = login_from(&client, &address, "admin", ADMIN_PASSWORD).status;
                (status, begun.elapsed())
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        let held = |(status, took): &(u16, Duration)| *status == 200 && *took < limit;
        assert!(answers.iter().all(held), "{answers:?}, at most {limit:?}");
    });
}

/// Failures from elsewhere do not lock an account out of a network from which it has logged in,
/// even after a restart of the server.
#[test]
fn a_familiar_network_stays_familiar_after_a_restart() {
    let store: Store = Store::in_memory().unwrap();
    let home = "203.0.113.5";
    {
        let served = behind_a_proxy(store.clone());
        assert_eq!(login_from(&served.anonymous(), home, "admin", ADMIN_PASSWORD).status, 200);
    }
    let served = behind_a_proxy(store);
    let client = served.anonymous();
    // Five free attempts from each of many networks, until the account must wait everywhere else.
    for network in 0..12 {
        for _ in 0..5 {
            login_from(&client, &format!("198.51.100.{network}"), "admin", "wrong");
        }
    }
    assert_eq!(login_from(&client, "198.51.100.99", "admin", ADMIN_PASSWORD).status, 429);
    assert_eq!(login_from(&client, home, "admin", ADMIN_PASSWORD).status, 200);
}

/// Unknown names are counted like existing ones: responses do not distinguish them.
#[test]
fn unknown_names_are_counted_like_known_ones() {
    let served = behind_a_proxy(Store::in_memory().unwrap());
    let client = served.anonymous();
    let answers = |name: &str, third: u8| -> Vec<u16> {
        let tries = (0..12).flat_map(|network| (0..6).map(move |_| network));
        let statuses = tries.map(|network| {
            login_from(&client, &format!("10.{third}.0.{network}"), name, "wrong").status
        });
        statuses.collect()
    };
    let (known, unknown) = (answers("admin", 1), answers("nobody-at-all", 2));
    assert_eq!(known, unknown);
    assert!(known.contains(&429) && known.contains(&401), "{known:?}");
}
