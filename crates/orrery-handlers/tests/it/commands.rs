//! `exec::Run`, and commands on this machine.

use std::time::{Duration, Instant};

use orrery_handlers::target::{CommandLine, Content, Output};
use orrery_handlers::{CancelToken, Cause, MemoryTarget, Mode, Target};
use orrery_model::{ChangeKind, OutcomeStatus};
use tempfile::TempDir;

use crate::harness::{Agent, changed, reason, run};

crate::on_every_machine!(
    commands_get_environment_directory_and_arguments,
    programs_are_found_only_in_the_search_path,
    a_program_can_be_relative_to_its_directory,
    a_timed_out_command_is_ended_with_its_children,
    a_cancelled_command_ends_soon,
    a_daemon_that_keeps_the_output_open_is_not_waited_for,
    input_is_given_and_output_is_kept_up_to_a_limit,
    a_process_that_was_killed_has_a_code,
    invalid_directories_of_the_search_path_are_skipped,
);

/// Adds the command `touch` to a machine in memory.
pub(crate) fn prepare(target: &MemoryTarget) {
    target.on("touch", |invocation| {
        invocation.target.put(invocation.last(), Content::File(Vec::new()), 0o644);
        Output::default()
    });
    target.on("true", |_| Output::default());
    target.on("false", |_| Output::new(1, "", "no luck\n"));
}

/// Names of the user and group of this process.
pub(crate) fn current_user(target: &dyn Target) -> (String, String) {
    let ask = |option: &str| {
        let output = target.run(&CommandLine::new(["id", option]), &CancelToken::never()).unwrap();
        output.stdout_text().trim().to_owned()
    };
    (ask("-un"), ask("-gn"))
}

fn machine() -> MemoryTarget {
    let target = MemoryTarget::new();
    prepare(&target);
    target
}

#[test]
fn conditions_decide_if_a_command_runs() {
    for (attributes, runs) in [
        ("{}", true),
        (r#"{"onlyif":"true"}"#, true),
        (r#"{"onlyif":"false"}"#, false),
        (r#"{"onlyif":"nosuchcommand"}"#, false),
        (r#"{"unless":"true"}"#, false),
        (r#"{"unless":"false"}"#, true),
        (r#"{"unless":"nosuchcommand"}"#, true),
        (r#"{"creates":"/etc/passwd"}"#, false),
        (r#"{"creates":"/etc/nosuch"}"#, true),
        (r#"{"onlyif":"true","unless":"true"}"#, false),
        (r#"{"reload_only":true}"#, false),
        (r#"{"purged":true}"#, false),
        (r#"{"once":true}"#, true),
    ] {
        let target = machine();
        let outcome = run(&target, "exec::Run[a,command=touch /srv/x]", attributes, Mode::Deploy);
        assert_eq!(outcome.status, OutcomeStatus::Deployed, "{attributes}: {}", reason(&outcome));
        assert_eq!(outcome.change.kind == ChangeKind::Updated, runs, "{attributes}");
        assert_eq!(target.stat("/srv/x").unwrap().is_some(), runs, "{attributes}");
    }
}

#[test]
fn a_once_command_is_not_repeated() {
    let target = machine();
    let mut agent = Agent::new(&target);
    agent.deployed_before = true;
    agent.changed_dependencies = vec!["std::File[a,path=/x]".parse().unwrap()];
    let outcome = agent.deploy("exec::Run[a,command=touch /srv/x]", r#"{"once":true}"#);
    assert_eq!(
        (outcome.status, outcome.change.kind),
        (OutcomeStatus::Deployed, ChangeKind::NoChange)
    );
    assert!(target.history().is_empty(), "{:?}", target.history());
    // But a reload on changes is.
    let reload = r#"{"once":true,"reload":"touch /srv/reloaded"}"#;
    assert_eq!(changed(&agent.deploy("exec::Run[a,command=touch /srv/x]", reload)), ["reload"]);
    assert_eq!(target.history(), ["touch /srv/reloaded"]);
}

#[test]
fn a_command_is_repeated_on_changes_but_not_twice_in_one_run() {
    let target = machine();
    let mut agent = Agent::new(&target);
    agent.changed_dependencies = vec!["std::File[a,path=/x]".parse().unwrap()];
    let id = "exec::Run[a,command=touch /srv/x]";
    agent.deploy(id, "{}");
    assert_eq!(target.history(), ["touch /srv/x"]);
    let outcome = agent.deploy(id, r#"{"creates":"/srv/x"}"#);
    assert_eq!(changed(&outcome), ["reload"]);
    let outcome = agent.deploy(id, r#"{"creates":"/srv/x","reload":"true"}"#);
    assert_eq!(changed(&outcome), ["reload"]);
    assert_eq!(target.history(), ["touch /srv/x", "touch /srv/x", "true"]);
}

#[test]
fn a_failed_command_reports_its_error() {
    let target = machine();
    for (attributes, status) in [
        ("{}", OutcomeStatus::Failed),
        (r#"{"skip_on_fail":true}"#, OutcomeStatus::Skipped),
        (r#"{"returns":[0,1]}"#, OutcomeStatus::Deployed),
    ] {
        let outcome = run(&target, "exec::Run[a,command=false]", attributes, Mode::Deploy);
        assert_eq!(outcome.status, status, "{attributes}");
        if status != OutcomeStatus::Deployed {
            assert_eq!(reason(&outcome), "false exited with code 1: no luck");
        }
    }
    let missing = run(&target, "exec::Run[a,command=nosuchcommand]", "{}", Mode::Deploy);
    assert_eq!(reason(&missing), "cannot run nosuchcommand: command not found");
    let unclosed = run(&target, "exec::Run[a,command=echo 'x]", "{}", Mode::Deploy);
    assert!(reason(&unclosed).contains("cannot parse the command"));
}

fn commands_get_environment_directory_and_arguments(target: &dyn Target) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().to_str().unwrap();
    let attributes = serde_json::json!({
        "cwd": path, "environment": {"NAME": "it's", "NUMBER": 7}, "creates": format!("{path}/out"),
    });
    let id = r#"exec::Run[a,command=sh -c 'printf "%s %s %s" "$NAME" "$NUMBER" "$PWD" > out']"#;
    let outcome = run(target, id, &attributes.to_string(), Mode::Deploy);
    assert_eq!(outcome.status, OutcomeStatus::Deployed, "{}", reason(&outcome));
    let written = std::fs::read_to_string(directory.path().join("out")).unwrap();
    assert_eq!(written, format!("it's 7 {path}"));
}

fn programs_are_found_only_in_the_search_path(target: &dyn Target) {
    let mut command = CommandLine::new(["true"]);
    assert!(target.run(&command, &CancelToken::never()).unwrap().success());
    command.search_path = Some("/nosuch".to_owned());
    let error = target.run(&command, &CancelToken::never()).unwrap_err();
    assert!(matches!(error.cause, Cause::CommandNotFound));
    let command = CommandLine::new(["true"]).env("PATH", "/nosuch");
    let error = target.run(&command, &CancelToken::never()).unwrap_err();
    assert!(matches!(error.cause, Cause::CommandNotFound));
}

fn a_program_can_be_relative_to_its_directory(target: &dyn Target) {
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("script");
    orrery_testing::write_program(&script, "#!/bin/sh\necho $0\n").unwrap();
    let mut command = CommandLine::new(["./script"]);
    let error = target.run(&command, &CancelToken::never()).unwrap_err();
    assert!(matches!(error.cause, Cause::CommandNotFound), "{error}");
    command.directory = Some(directory.path().to_str().unwrap().to_owned());
    let output = target.run(&command, &CancelToken::never()).unwrap();
    assert_eq!(output.stdout_text().trim(), script.to_str().unwrap());
}

fn a_timed_out_command_is_ended_with_its_children(target: &dyn Target) {
    let directory = TempDir::new().unwrap();
    let late = directory.path().join("late");
    // The grandchild would write; it ignores SIGTERM.
    let script = format!("(trap '' TERM; sleep 4; touch {}) & sleep 100", late.display());
    let mut command = CommandLine::shell(&script);
    command.timeout = Some(Duration::from_millis(200));
    let begin = Instant::now();
    let error = target.run(&command, &CancelToken::never()).unwrap_err();
    assert!(matches!(error.cause, Cause::TimedOut), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(4));
    std::thread::sleep(Duration::from_millis(4200).saturating_sub(begin.elapsed()));
    assert!(!late.exists());
}

fn a_cancelled_command_ends_soon(target: &dyn Target) {
    let stop = CancelToken::never();
    let begin = Instant::now();
    let error = std::thread::scope(|scope| {
        let running =
            scope.spawn(|| target.run(&CommandLine::new(["sleep", "100"]), &stop).unwrap_err());
        std::thread::sleep(Duration::from_millis(100));
        stop.cancel();
        running.join().unwrap()
    });
    assert!(matches!(error.cause, Cause::Cancelled), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

fn a_daemon_that_keeps_the_output_open_is_not_waited_for(target: &dyn Target) {
    let begin = Instant::now();
    let output =
        target.run(&CommandLine::shell("sleep 5 & echo started"), &CancelToken::never()).unwrap();
    assert_eq!((output.code, output.stdout_text().trim()), (0, "started"));
    assert!(begin.elapsed() < Duration::from_secs(4));
}

fn input_is_given_and_output_is_kept_up_to_a_limit(target: &dyn Target) {
    let mut command = CommandLine::new(["cat"]);
    command.input = vec![b'x'; 1_000_000];
    command.output_limit = 2_000_000;
    let output = target.run(&command, &CancelToken::never()).unwrap();
    assert_eq!((output.stdout.len(), output.truncated), (1_000_000, false));
    command.output_limit = 10;
    let output = target.run(&command, &CancelToken::never()).unwrap();
    assert_eq!((output.stdout.len(), output.truncated), (10, true));
    // A program that does not read its input does not fail.
    command.arguments = vec!["true".to_owned()];
    assert!(target.run(&command, &CancelToken::never()).unwrap().success());
}

fn a_process_that_was_killed_has_a_code(target: &dyn Target) {
    let output = target.run(&CommandLine::shell("kill -9 $$"), &CancelToken::never()).unwrap();
    assert_eq!(output.code, 128 + 9);
}

fn invalid_directories_of_the_search_path_are_skipped(target: &dyn Target) {
    let directory = TempDir::new().unwrap();
    let place = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(place("file"), "").unwrap();
    std::os::unix::fs::symlink("circle", place("circle")).unwrap();
    std::fs::create_dir(place("closed")).unwrap();
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    std::fs::set_permissions(place("closed"), closed).unwrap();
    let [file, circle, closed] = ["file", "circle", "closed"].map(place);
    let path = format!(".:bin::{file}:{circle}:{closed}:/no/such:/usr/bin:/bin");
    let found = target.which("sh", Some(&path)).unwrap().unwrap();
    assert!(found.ends_with("/bin/sh"), "{found}");
    assert_eq!(target.which("no-such-command", Some(&path)).unwrap(), None);
}
