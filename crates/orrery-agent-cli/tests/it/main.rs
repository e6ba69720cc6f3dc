//! Tests of the binary as a user sees it. Sessions and commands are tested in `orrery-agent`.

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
    let output = agent(state.path(), &["run"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("join with a token first"), "{}", errors(&output));
    assert!(output.stdout.is_empty());
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
