//! Services: a machine in memory with tools that print the format of the real ones, written by
//! hand.

use orrery_handlers::target::{Content, Output};
use orrery_handlers::{MemoryTarget, Mode};
use orrery_model::{ChangeKind, OutcomeStatus};

use crate::harness::{Agent, changed, reason, run, text};

/// State of the service `cron` of the machine in memory: two words.
const STATE: &str = "/var/cron";

fn with_cron(target: &MemoryTarget) {
    target.put(STATE, Content::File("inactive disabled".into()), 0o644);
}

/// Replaces one of the two words.
fn set(target: &MemoryTarget, at: usize, word: &str) -> Output {
    let state = text(target, STATE);
    let mut words: Vec<&str> = state.split(' ').collect();
    words[at] = word;
    target.put(STATE, Content::File(words.join(" ").into()), 0o644);
    Output::default()
}

/// Format of `systemctl show` with these properties; made up.
fn systemctl_show(target: &MemoryTarget, id: &str) -> String {
    let state = text(target, STATE);
    let (active, enabled) = state.split_once(' ').unwrap();
    match id {
        "cron.service" => format!(
            "Id=cron.service\nNames=cron.service crond.service\nLoadState=loaded\n\
             ActiveState={active}\nUnitFileState={enabled}\nNeedDaemonReload=no\n"
        ),
        "dbus.service" => "Id=dbus.service\nNames=dbus.service\nLoadState=loaded\n\
                           ActiveState=active\nUnitFileState=static\nNeedDaemonReload=no\n"
            .to_owned(),
        other => format!(
            "Id={other}\nNames={other}\nLoadState=not-found\nActiveState=inactive\n\
             UnitFileState=\nNeedDaemonReload=no\n"
        ),
    }
}

pub(crate) fn prepare_systemd(target: &MemoryTarget) {
    with_cron(target);
    target.put("/run/systemd", Content::Directory, 0o755);
    target.put("/run/systemd/system", Content::Directory, 0o755);
    target.on("systemctl show", |invocation| {
        let text = match invocation.last() {
            "*.service" => ["cron.service", "dbus.service"]
                .map(|id| systemctl_show(invocation.target, id))
                .join("\n"),
            one => systemctl_show(invocation.target, one),
        };
        Output::new(0, &text, "")
    });
    target.on("systemctl start", |invocation| set(invocation.target, 0, "active"));
    target.on("systemctl restart", |invocation| set(invocation.target, 0, "active"));
    target.on("systemctl stop", |invocation| set(invocation.target, 0, "inactive"));
    target.on("systemctl enable", |invocation| set(invocation.target, 1, "enabled"));
    target.on("systemctl disable", |invocation| set(invocation.target, 1, "disabled"));
    target.on("systemctl daemon-reload", |_| Output::default());
}

pub(crate) fn prepare_sysv(target: &MemoryTarget) {
    with_cron(target);
    target.put("/etc/init.d", Content::Directory, 0o755);
    target.put("/etc/init.d/cron", Content::File("#!/bin/sh\n".into()), 0o755);
    target.put("/etc/rc3.d", Content::Directory, 0o755);
    target.on("/etc/init.d/cron status", |invocation| {
        if text(invocation.target, STATE).starts_with("active") {
            Output::new(0, "cron is running.\n", "")
        } else {
            Output::new(3, "cron is not running ... failed!\n", "")
        }
    });
    target.on("/etc/init.d/cron start", |invocation| set(invocation.target, 0, "active"));
    target.on("/etc/init.d/cron stop", |invocation| set(invocation.target, 0, "inactive"));
    target.on("update-rc.d cron defaults", |_| Output::default());
    target.on("update-rc.d cron enable", |invocation| {
        let link = Content::Symlink("../init.d/cron".to_owned());
        invocation.target.put("/etc/rc3.d/S01cron", link, 0o777);
        Output::default()
    });
    target.on("update-rc.d cron disable", |invocation| {
        orrery_handlers::Target::remove_file(invocation.target, "/etc/rc3.d/S01cron").unwrap();
        Output::default()
    });
}

const RUNNING: &str = r#"{"state":"running","onboot":true}"#;
const STOPPED: &str = r#"{"state":"stopped","onboot":false}"#;

fn ready() -> MemoryTarget {
    let target = MemoryTarget::new();
    prepare_systemd(&target);
    target
}

#[test]
fn one_query_covers_all_loaded_services() {
    let target = ready();
    set(&target, 0, "active");
    set(&target, 1, "enabled");
    let agent = Agent::new(&target);
    for name in ["cron", "cron.service", "crond", "dbus"] {
        let outcome = agent.deploy(&format!("std::Service[a,name={name}]"), RUNNING);
        assert_eq!(outcome.change.kind, ChangeKind::NoChange, "{name}");
    }
    assert_eq!(target.history().len(), 1, "{:?}", target.history());
}

#[test]
fn a_missing_service_fails_only_if_desired() {
    let target = ready();
    let id = "std::Service[a,name=nosuch]";
    let failed = run(&target, id, RUNNING, Mode::Deploy);
    assert_eq!(failed.status, OutcomeStatus::Failed);
    assert!(reason(&failed).contains("no service nosuch"));
    assert_eq!(run(&target, id, STOPPED, Mode::Deploy).change.kind, ChangeKind::NoChange);
    // Its package may be part of the same plan.
    assert_eq!(run(&target, id, RUNNING, Mode::DryRun).change.kind, ChangeKind::Updated);
}

#[test]
fn a_running_service_restarts_after_a_change_of_a_requirement() {
    let target = ready();
    let mut agent = Agent::new(&target);
    agent.changed_dependencies = vec!["std::File[a,path=/etc/crontab]".parse().unwrap()];
    let id = "std::Service[a,name=cron]";

    let started = agent.deploy(id, RUNNING);
    assert_eq!(changed(&started), ["state", "onboot"]);
    assert!(!target.history().iter().any(|line| line.contains("restart")), "just started");

    let plan = agent.run(id, RUNNING, Mode::DryRun);
    assert_eq!((plan.change.kind, changed(&plan)), (ChangeKind::Updated, vec!["reload"]));
    assert!(!target.history().iter().any(|line| line.contains("restart")), "only a plan");

    let restarted = agent.deploy(id, RUNNING);
    assert_eq!(restarted.change, plan.change);
    assert_eq!(target.history().last().unwrap(), "systemctl restart -- cron.service");

    let stopped = agent.deploy(id, STOPPED);
    assert_eq!(changed(&stopped), ["state", "onboot"]);
}

#[test]
fn a_changed_unit_is_read_again_before_it_is_started() {
    let target = ready();
    target.on("systemctl show", |invocation| {
        let text = systemctl_show(invocation.target, "cron.service");
        Output::new(0, &text.replace("Reload=no", "Reload=yes"), "")
    });
    run(&target, "std::Service[a,name=cron]", RUNNING, Mode::Deploy);
    let history = target.history();
    let at = |text: &str| history.iter().position(|line| line.contains(text)).unwrap();
    assert!(at("daemon-reload") < at("start --"), "{history:?}");
}

#[test]
fn a_failed_start_refers_to_the_journal() {
    let target = ready();
    target.on("systemctl start", |_| {
        Output::new(
            1,
            "",
            "Job for cron.service failed because the control process exited with error code.\n",
        )
    });
    let failed = run(&target, "std::Service[a,name=cron]", RUNNING, Mode::Deploy);
    assert_eq!(failed.status, OutcomeStatus::Failed);
    assert!(reason(&failed).contains("control process exited"));
    let hint = failed.log.last().unwrap().values["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("journalctl"), "{hint}");
}

#[test]
fn a_machine_without_init_system_is_an_error() {
    let failed = run(&MemoryTarget::new(), "std::Service[a,name=cron]", RUNNING, Mode::DryRun);
    assert_eq!(failed.status, OutcomeStatus::Failed);
    assert!(reason(&failed).contains("no init system"));
}
