//! Commands, streams and uploads on a real server.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use orrery_handlers::CancelToken;
use orrery_handlers::target::{ExecLimits, InterruptCause, Transport as _, TransportErrorKind};
use orrery_testing::TestSshd;

use crate::support::{client_of, connected, exec, exec_with, quick_limits, transport, wait_for};

#[test]
fn a_command_returns_its_output_and_exit_code() {
    let sshd = TestSshd::start();
    let (client, transport) = connected(&sshd);
    let output = exec_with(&transport, "cat; echo problem >&2; exit 7", b"in\0put").unwrap();
    assert_eq!((output.code, &output.stdout[..]), (7, &b"in\0put"[..]));
    assert_eq!(output.stderr, b"problem\n");
    let killed = exec(&transport, "kill -9 $$").unwrap();
    assert_eq!(killed.code, 128 + 9);
    // One connection serves all of it.
    let states = client.connections();
    assert_eq!(states.len(), 1);
    assert!(states[0].connected_for.is_some() && states[0].problem.is_none(), "{states:?}");
    assert_eq!(transport.generation(), 1);
    let accepted = sshd.log().matches("Accepted publickey").count();
    assert_eq!(accepted, 1, "{}", sshd.log());
}

#[test]
fn output_beyond_the_limit_is_dropped_and_the_command_goes_on() {
    let sshd = TestSshd::start();
    let (_client, transport) = connected(&sshd);
    let limits = ExecLimits { output_bytes: 1000, timeout: None };
    let stop = CancelToken::never();
    let command = "head -c 3000000 /dev/zero; exit 3";
    let output = transport.exec(command, b"", &limits, &stop).unwrap();
    assert_eq!((output.code, output.stdout.len(), output.truncated), (3, 1000, true));
}

#[test]
fn large_input_arrives_complete() {
    let sshd = TestSshd::start();
    let (_client, transport) = connected(&sshd);
    let input: Vec<u8> = (0..9_000_000u32).map(|at| (at % 251) as u8).collect();
    let output = exec_with(&transport, "cksum; wc -c </dev/null", &input).unwrap();
    let text = output.stdout_text();
    assert!(text.contains(" 9000000"), "{text}");
    // A command that does not read its input ends nevertheless.
    assert_eq!(exec_with(&transport, "exit 4", &input).unwrap().code, 4);
}

#[test]
fn a_time_limit_ends_the_command_and_says_that_it_may_have_run() {
    let sshd = TestSshd::start();
    let (_client, transport) = connected(&sshd);
    let mark = sshd.path("mark");
    exec(&transport, "true").unwrap();
    let limits = ExecLimits { timeout: Some(Duration::from_secs(2)), ..ExecLimits::default() };
    let command = format!("echo $$ > {mark}; exec sleep 600");
    let error = transport.exec(&command, b"", &limits, &CancelToken::never()).unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::Interrupted(InterruptCause::TimedOut));
    assert!(error.may_have_run());
    let pid = std::fs::read_to_string(&mark).unwrap();
    let process = format!("/proc/{}", pid.trim());
    wait_for("the remote process ends", || !std::path::Path::new(&process).exists());
    // The connection is still good.
    assert_eq!(exec(&transport, "exit 5").unwrap().code, 5);
    assert_eq!(transport.generation(), 1);
}

#[test]
fn a_cancelled_command_ends_soon() {
    let sshd = TestSshd::start();
    let (_client, transport) = connected(&sshd);
    let stop = CancelToken::never();
    let mark = sshd.path("mark");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let command = format!("touch {mark}; sleep 600");
            transport.exec(&command, b"", &ExecLimits::default(), &stop)
        });
        wait_for("it starts", || std::path::Path::new(&mark).exists());
        let began = Instant::now();
        stop.cancel();
        let error = running.join().unwrap().unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Interrupted(InterruptCause::Cancelled));
        assert!(began.elapsed() < Duration::from_secs(5));
    });
    let error = transport.exec("touch no", b"", &ExecLimits::default(), &stop).unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::NotStarted(InterruptCause::Cancelled));
    assert!(!error.may_have_run());
}

#[test]
fn a_background_process_does_not_hold_the_command() {
    let sshd = TestSshd::start();
    let (_client, transport) = connected(&sshd);
    let began = Instant::now();
    let output = exec(&transport, "sleep 30 & echo started").unwrap();
    assert_eq!((output.code, output.stdout_text().as_str()), (0, "started\n"));
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_started_process_has_streams_and_ends_when_dropped() {
    let sshd = TestSshd::start();
    let (_client, transport) = connected(&sshd);
    let stop = CancelToken::never();
    let mut process = transport
        .start(
            "echo $$; while read -r line; do echo \"got $line\"; done; echo end >&2; exit 6",
            &stop,
        )
        .unwrap();
    let line = |output: &mut dyn std::io::Read| {
        let (mut text, mut byte) = (String::new(), [0]);
        while output.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            text.push(char::from(byte[0]));
        }
        text
    };
    line(&mut process.output);
    for word in ["one", "two"] {
        process.input.write_all(format!("{word}\n").as_bytes()).unwrap();
        assert_eq!(line(&mut process.output), format!("got {word}"));
    }
    assert_eq!(process.control.wait(Duration::ZERO).unwrap(), None);
    process.input = Box::new(std::io::sink());
    let mut rest = String::new();
    process.output.read_to_string(&mut rest).unwrap();
    assert_eq!(process.control.wait(Duration::from_secs(20)).unwrap(), Some(6));
    assert_eq!(process.control.error_excerpt(), "end");
    let mut held = transport.start("echo $$; exec sleep 600", &stop).unwrap();
    let pid = line(&mut held.output);
    drop(held);
    let path = format!("/proc/{pid}");
    wait_for("the process ends", || !std::path::Path::new(&path).exists());
}

#[test]
fn an_upload_creates_a_file_with_its_mode_and_never_replaces_one() {
    let sshd = TestSshd::start();
    let (_client, transport) = connected(&sshd);
    let (path, stop) = (sshd.path("it's new"), CancelToken::never());
    let content = vec![7; 3_000_000];
    transport.upload(&path, &content, 0o750, &stop).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), content);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o7777, 0o750);
    let error = transport.upload(&path, b"other", 0o600, &stop).unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::Upload);
    assert_eq!(std::fs::read(&path).unwrap(), content);
}

#[test]
fn more_commands_than_the_server_allows_at_once_wait_for_their_turn() {
    let sshd = TestSshd::with_config("MaxSessions 3");
    let (client, transport) = connected(&sshd);
    std::thread::scope(|scope| {
        for number in 0..12 {
            let transport = &transport;
            scope.spawn(move || {
                let output = exec(transport, &format!("sleep 0.1; echo {number}")).unwrap();
                assert_eq!(output.stdout_text(), format!("{number}\n"));
            });
        }
    });
    assert_eq!(client.connections().len(), 1);
    assert_eq!(sshd.log().matches("Accepted publickey").count(), 1, "{}", sshd.log());
}

#[test]
fn an_idle_connection_is_closed_and_made_again() {
    let sshd = TestSshd::start();
    let limits =
        orrery_ssh::ConnectionLimits { idle: Duration::from_millis(200), ..quick_limits() };
    let client = client_of(&sshd, limits);
    let transport = transport(&client, sshd.port(), "");
    exec(&transport, "true").unwrap();
    wait_for("the connection is closed", || transport.state().connected_for.is_none());
    assert_eq!(exec(&transport, "exit 9").unwrap().code, 9);
    assert_eq!(transport.generation(), 2);
}

#[test]
fn a_lost_connection_is_unknown_for_what_ran_and_is_made_again() {
    let mut sshd = TestSshd::start();
    let (_client, transport) = connected(&sshd);
    let mark = sshd.path("mark");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| exec(&transport, &format!("touch {mark}; sleep 600")));
        wait_for("it starts", || std::path::Path::new(&mark).exists());
        sshd.kill();
        let error = running.join().unwrap().unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Lost, "{error}");
        assert!(error.may_have_run() && error.is_unavailable());
    });
    let error = exec(&transport, "true").unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::Unreachable, "{error}");
    assert!(!error.may_have_run());
    sshd.restart();
    transport.ping(&CancelToken::never()).unwrap();
    assert_eq!(exec(&transport, "exit 3").unwrap().code, 3);
    assert_eq!(transport.generation(), 2);
}

#[test]
fn a_ping_measures_a_round_trip() {
    let sshd = TestSshd::start();
    let (_client, transport) = connected(&sshd);
    assert_eq!(transport.state().latency, None);
    let latency = transport.ping(&CancelToken::never()).unwrap();
    assert!(latency < Duration::from_secs(5));
    assert_eq!(transport.state().latency, Some(latency));
}
