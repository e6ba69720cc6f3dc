//! Peers that answer garbage, flood, stall or never answer: each is contained by a limit, and
//! delays only itself.

use std::io::{Read as _, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use orrery_handlers::CancelToken;
use orrery_handlers::target::{ExecLimits, Transport as _, TransportError, TransportErrorKind};
use orrery_ssh::ConnectionLimits;
use orrery_testing::TestSshd;

use crate::support::{client, client_of, exec, quick_limits, transport, user};

/// Starts a peer that serves every connection by a function; returns its port.
fn peer(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        connect: Duration::from_secs(2),
        handshake: Duration::from_secs(1),
        ..quick_limits()
    }
}

/// Error of a connection to a peer, and the time until it.
fn error_of(port: u16) -> (TransportError, Duration) {
    let client = client("", user(Path::new("/nonexistent"), "jo"), limits());
    let began = Instant::now();
    let error = exec(&transport(&client, port, ""), "true").unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::Unreachable, "{error}");
    assert!(error.help.is_some(), "{error}");
    (error, began.elapsed())
}

const VERSION: &[u8] = b"SSH-2.0-odd\r\n";

#[test]
fn garbage_instead_of_a_version_is_refused() {
    let port = peer(|mut stream| {
        let _ = stream.write_all(&[0xff; 4096]);
        let _ = stream.read(&mut [0; 1024]);
    });
    let (error, took) = error_of(port);
    assert!(
        error.reason.contains("does not speak SSH") || error.reason.contains("closed"),
        "{error}"
    );
    assert!(took < Duration::from_secs(4));
}

#[test]
fn an_endless_banner_is_cut() {
    let port = peer(|mut stream| while stream.write_all(b"welcome to this machine\r\n").is_ok() {});
    let (error, took) = error_of(port);
    assert!(took < Duration::from_secs(4), "{error}");
    let port = peer(|mut stream| while stream.write_all(&[b'x'; 512]).is_ok() {});
    let (error, took) = error_of(port);
    assert!(took < Duration::from_secs(4), "{error}");
}

#[test]
fn a_peer_that_never_answers_ends_at_the_deadline_and_is_let_go() {
    let (sender, gone) = std::sync::mpsc::channel();
    let port = peer(move |mut stream| {
        let _ = stream.write_all(VERSION);
        // Reads until this side closes the connection.
        let mut buffer = [0; 1024];
        while stream.read(&mut buffer).unwrap_or(0) > 0 {}
        let _ = sender.send(());
    });
    let (error, took) = error_of(port);
    assert!(error.reason.contains("no answer within 1 s while exchanging keys"), "{error}");
    assert!(took < Duration::from_secs(4));
    gone.recv_timeout(Duration::from_secs(5)).expect("the connection is closed at the deadline");
}

#[test]
fn the_configured_time_limit_is_that_of_the_key_exchange_too() {
    let port = peer(|mut stream| {
        let _ = stream.write_all(VERSION);
        while stream.read(&mut [0; 1024]).unwrap_or(0) > 0 {}
    });
    let slow = ConnectionLimits { handshake: Duration::from_secs(60), ..limits() };
    let client = client("", user(Path::new("/nonexistent"), "jo"), slow);
    let began = Instant::now();
    let transport = transport(&client, port, "?connect_timeout=1");
    let error = exec(&transport, "true").unwrap_err();
    assert!(error.reason.contains("no answer within 1 s while exchanging keys"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_huge_packet_is_refused_before_it_is_read() {
    let port = peer(|mut stream| {
        let _ = stream.write_all(VERSION);
        let _ = stream.write_all(&[0x7f, 0xff, 0xff, 0xff]);
        while stream.write_all(&[0; 8 * 1024]).is_ok() {}
    });
    let (error, took) = error_of(port);
    assert!(error.reason.contains("does not speak SSH"), "{error}");
    assert!(took < Duration::from_secs(4));
}

#[test]
fn a_flood_before_authentication_is_cut() {
    let port = peer(|mut stream| {
        let _ = stream.write_all(VERSION);
        // SSH_MSG_IGNORE, which any peer may send at any time.
        let mut packet = vec![0, 0, 0, 12, 4, 2, 0, 0, 0, 2, b'x', b'x', 0, 0, 0, 0];
        packet = packet.repeat(1024);
        while stream.write_all(&packet).is_ok() {}
    });
    let (error, took) = error_of(port);
    assert!(took < Duration::from_secs(4), "{error}");
}

#[test]
fn a_flood_of_output_ends_the_command_and_not_the_connection() {
    let sshd = TestSshd::start();
    let limits = ConnectionLimits { dropped_bytes: 2_000_000, ..quick_limits() };
    let client = client_of(&sshd, limits);
    let transport = transport(&client, sshd.port(), "");
    let stop = CancelToken::never();
    let exec_limits = ExecLimits { output_bytes: 1000, timeout: None };
    let error = transport.exec("yes", b"", &exec_limits, &stop).unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::Lost, "{error}");
    assert!(error.reason.contains("printed more than 2000000 bytes too many"), "{error}");
    assert_eq!(exec(&transport, "exit 4").unwrap().code, 4);
    assert_eq!(transport.generation(), 1);
}

#[test]
fn a_dead_peer_delays_only_itself() {
    let silent = peer(|mut stream| {
        let mut buffer = [0; 1024];
        while stream.read(&mut buffer).unwrap_or(0) > 0 {}
    });
    let sshd = TestSshd::start();
    let client =
        client_of(&sshd, ConnectionLimits { handshake: Duration::from_secs(3), ..limits() });
    let (dead, good) = (transport(&client, silent, ""), transport(&client, sshd.port(), ""));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| exec(&dead, "true").unwrap_err());
        let began = Instant::now();
        for _ in 0..5 {
            exec(&good, "true").unwrap();
        }
        assert!(!waiting.is_finished(), "five commands took {:?}", began.elapsed());
        waiting.join().unwrap();
    });
}

/// A machine that stops answering, as behind a cut link, is noticed by keepalive messages.
#[test]
fn a_machine_that_freezes_is_noticed() {
    let sshd = TestSshd::start();
    let proxy = orrery_testing::Proxy::new((Ipv4Addr::LOCALHOST, sshd.port()).into());
    let config = crate::support::config_of(&sshd);
    let known =
        sshd.known_hosts_line().replace(&sshd.port().to_string(), &proxy.port().to_string());
    std::fs::write(sshd.path("known_hosts"), known).unwrap();
    let limits = ConnectionLimits { keepalive: Duration::from_millis(200), ..quick_limits() };
    let client = client(&config, user(Path::new(&sshd.path("home")), sshd.user()), limits);
    let transport = transport(&client, proxy.port(), "");
    exec(&transport, "true").unwrap();
    let mark = sshd.path("mark");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| exec(&transport, &format!("touch {mark}; sleep 600")));
        crate::support::wait_for("it starts", || Path::new(&mark).exists());
        proxy.stall();
        let error = running.join().unwrap().unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Lost, "{error}");
        assert!(error.reason.contains("does not answer any more"), "{error}");
    });
}
