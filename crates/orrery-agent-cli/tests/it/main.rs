//! Tests of the binary as a user sees it. Sessions and commands are tested in `orrery-agent`.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod helper;
mod hostile_helper;
mod over_sshd;

use std::process::{Command, Output};

fn agent(state: &std::path::Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery-agent"));
    command.args(arguments).env_remove("ORRERY_AGENT_TOKEN").env("ORRERY_AGENT_STATE", state);
    command.stdin(std::process::Stdio::null()).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_machine_that_has_not_joined_is_told_to() {
    let state = tempfile::TempDir::new().unwrap();
    let given = state.path().join("given").display().to_string();
    let output = agent(state.path(), &["run", "--state", &given]);
    assert_eq!(output.status.code(), Some(1));
    let next = format!("join with a token first: orrery-agent join GATEWAY --state {given}");
    assert!(errors(&output).contains(&next), "{}", errors(&output));
    assert!(output.stdout.is_empty());
    let errors = errors(&agent(state.path(), &["run"]));
    assert!(errors.trim().ends_with("orrery-agent join GATEWAY"), "from its variable: {errors}");
}

#[test]
fn an_unreachable_gateway_is_reported() {
    let state = tempfile::TempDir::new().unwrap();
    let key = "A".repeat(43);
    let token = format!("orrj_{key}.{}", "0".repeat(32));
    // Nothing listens on the port of a listener that is gone.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let output = agent(state.path(), &["join", &format!("127.0.0.1:{port}"), &token]);
    assert_eq!(output.status.code(), Some(1));
    let errors = errors(&output);
    assert!(errors.contains(&format!("cannot reach the gateway 127.0.0.1:{port}")), "{errors}");
}

#[test]
fn a_bad_token_and_a_bad_log_filter_are_refused() {
    let state = tempfile::TempDir::new().unwrap();
    assert_eq!(agent(state.path(), &["join", "127.0.0.1:1", "nonsense"]).status.code(), Some(1));
    assert_eq!(agent(state.path(), &["run", "--log", "a=b=c"]).status.code(), Some(1));
}

/// The helper ends with its input, and cancels what it runs.
#[test]
fn a_helper_ends_with_its_input_and_ends_its_commands() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let scratch = tempfile::TempDir::new().unwrap();
    let pid = scratch.path().join("pid");
    let mut helper = Command::new(env!("CARGO_BIN_EXE_orrery-agent"));
    helper.arg("once").stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut helper = helper.spawn().unwrap();
    let mut output = BufReader::new(helper.stdout.take().unwrap()).lines();
    assert!(output.next().unwrap().unwrap().starts_with(r#"{"hello":"#));
    let id = uuid();
    let command = format!(
        r#"{{"command":{{"id":"{id}","environment":"{id}","epoch":null,"seq":1,"what":"deploy","resource":{{"id":"exec::Run[a,command=sh -c 'echo $$ > {}; exec sleep 100']","attributes":"{{}}","version":1,"flags":{{"undefined":false,"send_event":true,"receive_events":true,"report_only":false}}}},"deployed_before":false,"reason":"a test","wants_announcement":false,"deadline_ms":null,"log_level":"info"}}}}"#,
        pid.display()
    );
    let mut input = helper.stdin.take().unwrap();
    writeln!(input, "{command}").unwrap();
    let begin = std::time::Instant::now();
    while !std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')) {
        assert!(begin.elapsed().as_secs() < 20);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // A part of another command is not executed.
    write!(input, "{}", &command[..command.len() / 2]).unwrap();
    drop(input);
    assert!(helper.wait().unwrap().success());
    let command = format!("/proc/{}", std::fs::read_to_string(&pid).unwrap().trim());
    assert!(!std::path::Path::new(&command).exists());
    let said: Vec<String> = output.map(Result::unwrap).collect();
    assert!(said[0].starts_with(r#"{"accepted":"#), "{said:?}");
    assert!(said[1].contains(r#""status":"skipped""#), "{said:?}");
    assert_eq!(said.len(), 2, "{said:?}");
}

fn uuid() -> &'static str {
    "00000000-0000-0000-0000-000000000007"
}
