//! Targets that are silent, drip or flood at any stage: each ends at its limit, with a reason that
//! names the stage, and delays no other.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orrery_handlers::CancelToken;
use orrery_handlers::target::{ExecLimits, Transport as _, TransportError, TransportErrorKind};
use orrery_ssh::{ConnectionLimits, SshTransport};
use orrery_testing::TestSshd;

use crate::hostile_server::{Fault, HostileServer};
use crate::support::{client, client_of, exec, quick_limits, transport, user};

/// Deadline of each stage.
const STAGE: Duration = Duration::from_secs(1);

fn limits() -> ConnectionLimits {
    limits_with(STAGE)
}

fn limits_with(stage: Duration) -> ConnectionLimits {
    ConnectionLimits {
        connect: stage,
        handshake: stage,
        authentication: stage,
        channel: stage,
        dropped_bytes: 2_000_000,
        ..quick_limits()
    }
}

fn connect_to(server: &HostileServer, limits: ConnectionLimits) -> SshTransport {
    let client = client(&server.config(), user(Path::new("/nonexistent"), "jo"), limits);
    transport(&client, server.port(), "")
}

fn error_of(fault: Fault) -> TransportError {
    let server = HostileServer::start(fault);
    let transport = connect_to(&server, limits());
    let began = Instant::now();
    let error = exec(&transport, "true").unwrap_err();
    let took = began.elapsed();
    assert!(took >= STAGE && took < Duration::from_secs(10), "{fault:?}: {took:?}: {error}");
    error
}

#[test]
fn silence_after_the_key_exchange_ends_at_the_deadline_of_its_stage() {
    for (fault, stage) in [
        (Fault::SilentAuthentication, "no answer within 1 s while authenticating"),
        (Fault::SilentOpen, "no answer within 1 s while a session was opened"),
        (Fault::SilentStart, "no answer within 1 s"),
    ] {
        let error = error_of(fault);
        assert!(error.reason.contains(stage), "{fault:?}: {error}");
    }
}

#[test]
fn a_command_that_never_ends_has_the_time_limit_of_its_caller() {
    let server = HostileServer::start(Fault::SilentCommand);
    let transport = connect_to(&server, limits());
    let exec_limits = ExecLimits { output_bytes: 1000, timeout: Some(STAGE) };
    let began = Instant::now();
    let error = transport.exec("true", b"", &exec_limits, &CancelToken::never()).unwrap_err();
    assert!(error.may_have_run(), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// The banner is the largest message of a machine before it has accepted the user.
#[test]
fn an_unauthenticated_machine_sends_a_limited_number_of_bytes() {
    const LINES: usize = 3000;
    let banner = tempfile::NamedTempFile::new().unwrap();
    let text = "authorized use only\n".repeat(LINES);
    std::fs::write(banner.path(), &text).unwrap();
    let sshd = TestSshd::with_config(&format!("Banner {}", banner.path().display()));
    let connect = |unauthenticated_bytes| {
        let limits = ConnectionLimits { unauthenticated_bytes, ..quick_limits() };
        exec(&transport(&client_of(&sshd, limits), sshd.port(), ""), "true")
    };
    connect(ConnectionLimits::default().unauthenticated_bytes).unwrap();
    let error = connect(text.len() as u64 / 2).unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::Unreachable, "{error}");
    assert_eq!(sshd.log().matches("Accepted publickey").count(), 1, "{}", sshd.log());
    assert!(error.reason.contains("it sent too much data before authentication"), "{error}");
}

#[test]
fn a_flood_on_either_stream_ends_the_command_within_its_limit() {
    for errors in [false, true] {
        let server = HostileServer::start(Fault::Flood { errors });
        let transport = connect_to(&server, limits());
        let exec_limits = ExecLimits { output_bytes: 1000, timeout: None };
        let error = transport.exec("true", b"", &exec_limits, &CancelToken::never()).unwrap_err();
        assert!(error.reason.contains("printed more than 2000000 bytes too many"), "{error}");
        // What is on the way when the limit is reached is a window of the channel and buffers.
        let sent = server.sent();
        assert!(sent < 32 * 1024 * 1024, "the client took {sent} bytes");
    }
}

/// Serves connections by a function on threads; returns the port.
fn raw_peer(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

fn read_to_end(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).unwrap_or(0) > 0 {}
}

/// Sends a byte at a time, each well within any timeout for silence.
fn drip(mut stream: TcpStream, bytes: &[u8]) {
    for byte in bytes.iter().cycle() {
        if stream.write_all(&[*byte]).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Peers that never get as far as a host key.
fn raw_peers() -> Vec<(&'static str, u16)> {
    let version = |mut stream: TcpStream| {
        let _ = stream.write_all(b"SSH-2.0-odd\r\n");
        stream
    };
    vec![
        ("silent", raw_peer(read_to_end)),
        ("silent after its version", raw_peer(move |stream| read_to_end(version(stream)))),
        ("dripping lines before its version", raw_peer(|stream| drip(stream, b"welcome\r\n"))),
        (
            "dripping a packet",
            raw_peer(move |stream| drip(version(stream), &[0, 0, 0x7f, 0xff, 4, 20, 1, 1, 1, 1])),
        ),
        (
            "flooding lines",
            raw_peer(|mut stream| while stream.write_all(b"welcome\r\n").is_ok() {}),
        ),
        (
            "flooding packets",
            raw_peer(move |stream| {
                let mut stream = version(stream);
                // SSH_MSG_IGNORE, which any peer may send at any time.
                let packet = [0, 0, 0, 12, 4, 2, 0, 0, 0, 2, b'x', b'x', 0, 0, 0, 0].repeat(512);
                while stream.write_all(&packet).is_ok() {}
            }),
        ),
        (
            "garbage",
            raw_peer(|mut stream| {
                let _ = stream.write_all(&[0xff; 4096]);
                read_to_end(stream);
            }),
        ),
        ("closing", raw_peer(drop)),
    ]
}

#[test]
fn peers_that_drip_end_at_the_deadline_of_the_stage() {
    for (name, port) in raw_peers() {
        let client = client("", user(Path::new("/nonexistent"), "jo"), limits());
        let began = Instant::now();
        let error = exec(&transport(&client, port, ""), "true").unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Unreachable, "{name}: {error}");
        // A connection that is closed at once is tried a few times.
        assert!(began.elapsed() < Duration::from_secs(8), "{name}: {:?}", began.elapsed());
    }
}

/// Resident memory of this process in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn twenty_hostile_targets_delay_no_good_one() {
    // Silent targets take their whole time, which is long beside a connection on a busy machine.
    let stage = Duration::from_secs(6);
    let sshd = TestSshd::start();
    let good = client_of(&sshd, limits_with(stage));
    let alone = Instant::now();
    exec(&transport(&good, sshd.port(), ""), "true").unwrap();
    let alone = alone.elapsed();
    let silent: Vec<HostileServer> = [
        Fault::SilentAuthentication,
        Fault::SilentOpen,
        Fault::SilentStart,
        Fault::Flood { errors: true },
    ]
    .map(HostileServer::start)
    .into();
    let mut hostile: Vec<SshTransport> =
        silent.iter().map(|server| connect_to(server, limits_with(stage))).collect();
    // One client for all, as in a deploy: they share its slots for handshakes.
    let shared = client_of(&sshd, limits_with(stage));
    let peers = raw_peers();
    hostile.extend(peers.iter().cycle().take(16).map(|(_, port)| transport(&shared, *port, "")));
    let before = memory();
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for transport in &hostile {
            let refused = &refused;
            scope.spawn(move || {
                let exec_limits = ExecLimits { output_bytes: 1000, timeout: None };
                let stop = CancelToken::never();
                transport.exec("true", b"", &exec_limits, &stop).unwrap_err();
                refused.fetch_add(1, Ordering::Relaxed);
            });
        }
        let began = Instant::now();
        exec(&transport(&shared, sshd.port(), ""), "true").unwrap();
        let beside = began.elapsed();
        let left = hostile.len() as u64 - refused.load(Ordering::Relaxed);
        eprintln!("alone {alone:?}, beside {left} hostile targets {beside:?}");
        assert!(beside < alone + stage / 2, "{beside:?} instead of {alone:?}");
    });
    assert_eq!(refused.load(Ordering::Relaxed), 20);
    let grown = memory().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB for 20 hostile targets");
}
