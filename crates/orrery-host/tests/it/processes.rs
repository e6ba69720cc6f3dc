//! Start and end of processes, with shell scripts as hosts.

use std::time::{Duration, Instant};

use orrery_host::handshake::{HandshakeError, HostSession};
use orrery_host::process::{HostCommand, HostProcess, describe};

const SOON: Duration = Duration::from_secs(10);

/// A host that is a shell script.
fn script(text: &str) -> HostCommand {
    HostCommand {
        name: "test".to_owned(),
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), text.into()],
        ..HostCommand::default()
    }
}

/// A host that sends hello before it does something else.
fn greeting(then: &str) -> HostCommand {
    let hello = r#"{"k":"hello","protocol":1,"language":"sh","version":"1","pid":1}"#;
    script(&format!("echo '{hello}' >&$ORRERY_HOST_FD; {then}"))
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn the_socket_is_where_it_should_be_and_nowhere_else() {
    let text = r#"
        fds=; socket=$(readlink /proc/$$/fd/3)
        for fd in /proc/$$/fd/*; do [ "$(readlink $fd)" = "$socket" ] && fds="$fds${fd##*/} "; done
        input=$(readlink /proc/$$/fd/0)
        printf '{"k":"fds","stdin":"%s","fds":"%s"}\n' "$input" "$fds" >&$ORRERY_HOST_FD"#;
    let mut session = HostSession::open(&greeting(text), SOON).unwrap();
    assert_eq!(session.hello.language, "sh");
    let answer: serde_json::Value = session.expect("fds", SOON).unwrap();
    assert_eq!(answer["stdin"], "/dev/null");
    assert_eq!(answer["fds"], "3 ");
}

#[test]
fn captured_output_is_bounded() {
    let text = "echo early; i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); done; \
                head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 3";
    let (process, _socket) = HostProcess::start(&script(text)).unwrap();
    assert!(process.wait(SOON));
    let words = process.final_output();
    assert_eq!(words.len(), 50);
    assert!(words.contains(&"line 99".to_owned()));
    assert!(words.iter().any(|line| line.len() == 2000), "a long line is cut");
    let status = process.end().unwrap();
    assert_eq!(describe(status), "it ended with the exit status 3");
    assert_eq!(process.end().unwrap(), status, "it stays as it ended");
}

#[test]
fn a_process_that_ignores_sigterm_is_killed_with_its_children() {
    let text = "trap '' TERM; sleep 300 & echo child $!; while :; do sleep 1; done";
    let (process, _socket) = HostProcess::start(&script(text)).unwrap();
    let started = Instant::now();
    let child = loop {
        let line = process
            .last_lines()
            .into_iter()
            .find_map(|line| line.strip_prefix("child ").and_then(|pid| pid.parse::<u32>().ok()));
        if let Some(pid) = line {
            break pid;
        }
        assert!(started.elapsed() < SOON, "it never spoke");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(is_alive(child) && !process.has_ended());
    let status = process.end().unwrap();
    assert_eq!(describe(status), "it was ended by the signal 9 (SIGKILL)");
    let until = Instant::now() + SOON;
    while is_alive(child) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!is_alive(child));
    assert!(!is_alive(process.pid()));
}

#[test]
fn a_dropped_host_is_ended() {
    let (process, _socket) = HostProcess::start(&script("sleep 300")).unwrap();
    let pid = process.pid();
    drop(process);
    assert!(!is_alive(pid));
}

#[test]
fn memory_is_limited_from_the_start() {
    let mut command = script("exec python3 -c 'b = bytearray(1 << 30); print(len(b))'");
    command.memory_max = Some(256 << 20);
    let (process, _socket) = HostProcess::start(&command).unwrap();
    assert!(process.wait(SOON));
    let words = process.final_output().join("\n");
    assert!(words.contains("MemoryError"), "{words}");
}

#[test]
fn the_handshake_is_checked() {
    let open =
        |command: HostCommand, limit| HostSession::open(&command, limit).unwrap_err().to_string();
    let error = open(script("echo 'no such module' >&2; exit 7"), SOON);
    assert!(error.contains("exit status 7") && error.contains("no such module"), "{error}");
    let error = open(script("echo nonsense >&3; sleep 300"), SOON);
    assert!(error.contains("violates the protocol"), "{error}");
    let error = open(script(r#"echo '{"k":"report"}' >&3; sleep 300"#), SOON);
    assert!(error.contains("\"report\""), "{error}");
    let other = r#"echo '{"k":"hello","protocol":2,"language":"x","version":"1"}' >&3; sleep 300"#;
    assert!(open(script(other), SOON).contains("version 2 of the protocol"));
    let error = open(script("sleep 300"), Duration::from_millis(100));
    assert!(error.contains("did not answer within 0.1 seconds"), "{error}");
    let error = open(script("exec 3>&-; sleep 300"), SOON);
    assert!(error.contains("closed its connection"), "{error}");
    let mut missing = script("");
    missing.program = "/nowhere/python".into();
    assert!(open(missing, SOON).contains("exit status 127"));
    let mut nowhere = script("");
    nowhere.directory = Some("/nowhere".into());
    assert!(matches!(HostSession::open(&nowhere, SOON), Err(HandshakeError::Start(_))));
}
