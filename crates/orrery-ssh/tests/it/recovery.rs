//! Machines that are lost and return: when an attempt to reach them again is due, what it finds, and
//! what it leaves to others.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_model::SshAddress;
use orrery_ssh::{Circuit, ConnectionLimits, SshMachines};
use orrery_testing::TestSshd;

use crate::support::{client, client_of, config_of, exec, quick_limits, user, wait_for};

fn address(port: u16) -> SshAddress {
    format!("ssh://127.0.0.1:{port}").parse().unwrap()
}

#[test]
fn a_lost_machine_is_tried_again_and_its_return_is_counted() {
    let mut sshd = TestSshd::start();
    let client = Arc::new(client_of(&sshd, quick_limits()));
    let address = address(sshd.port());
    let transport = client.transport(&address).unwrap();
    let machines = SshMachines::new(client);
    assert_eq!(transport.state().attempt_due, None, "nothing was needed yet");
    exec(&transport, "true").unwrap();
    let state = transport.state();
    assert_eq!((state.attempt_due, state.recoveries), (None, 0));
    sshd.kill();
    wait_for("the loss is seen", || transport.state().attempt_due.is_some());
    assert!(machines.probe(&address));
    wait_for("the attempt fails", || transport.state().problem.is_some());
    assert!(matches!(transport.state().circuit, Circuit::Open { failures: 1, .. }));
    sshd.restart();
    wait_for("it is reached again", || {
        let state = transport.state();
        if state.attempt_due.is_some() {
            machines.probe(&address);
        }
        state.connected_for.is_some()
    });
    let state = transport.state();
    assert_eq!((state.recoveries, state.problem), (1, None));
    assert_eq!(state.attempt_due, None);
    exec(&transport, "true").unwrap();
    assert_eq!(transport.state().recoveries, 1);
}

/// A connection that this side closes, because it is unused, is not lost.
#[test]
fn an_idle_connection_is_not_lost() {
    let sshd = TestSshd::start();
    let limits = ConnectionLimits { idle: Duration::from_millis(200), ..quick_limits() };
    let client = client_of(&sshd, limits);
    let transport = client.transport(&address(sshd.port())).unwrap();
    exec(&transport, "true").unwrap();
    wait_for("it is closed", || transport.state().connected_for.is_none());
    assert_eq!(transport.state().attempt_due, None);
    exec(&transport, "true").unwrap();
    assert_eq!(transport.state().recoveries, 0);
}

/// Servers ban addresses that fail to authenticate again and again.
#[test]
fn a_machine_that_refuses_the_key_is_left_alone() {
    let (sshd, other) = (TestSshd::start(), TestSshd::start());
    let config = config_of(&sshd).replace(&sshd.identity(), &other.identity());
    let client = client(&config, user(Path::new(&sshd.path("home")), sshd.user()), quick_limits());
    let transport = client.transport(&address(sshd.port())).unwrap();
    let error = exec(&transport, "true").unwrap_err();
    assert!(error.reason.contains("authentication failed"), "{error}");
    wait_for("another attempt would be allowed", || {
        !matches!(transport.state().circuit, Circuit::Open { .. })
    });
    let state = transport.state();
    assert!(state.problem.is_some() && state.attempt_due.is_none(), "{state:?}");
}

#[test]
fn attempts_to_reach_dead_machines_leave_room_for_the_others() {
    let sshd = TestSshd::start();
    let limits = ConnectionLimits { probes: 2, handshakes: 3, ..quick_limits() };
    let client = Arc::new(client_of(&sshd, limits));
    let machines = SshMachines::new(Arc::clone(&client));
    // Peers that accept and never answer.
    let dead: Vec<TcpListener> =
        (0..8).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    let began = Instant::now();
    let tried: Vec<bool> = dead
        .iter()
        .map(|peer| machines.probe(&address(peer.local_addr().unwrap().port())))
        .collect();
    assert_eq!(tried.iter().filter(|tried| **tried).count(), 2, "{tried:?}");
    exec(&client.transport(&address(sshd.port())).unwrap(), "true").unwrap();
    assert!(began.elapsed() < quick_limits().handshake, "it waited: {:?}", began.elapsed());
    // Both attempts were made, and their slots are free when they have ended.
    let mut first = dead[0].accept().unwrap().0;
    assert!(first.read(&mut [0; 4]).unwrap() > 0);
    drop(first);
    wait_for("a slot is free", || machines.probe(&address(sshd.port())));
}
