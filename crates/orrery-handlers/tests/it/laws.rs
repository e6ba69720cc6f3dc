//! The laws of all handlers: a dry run changes nothing; a second deploy changes nothing; a read
//! returns what was deployed; purging removes; after a fault anywhere, the next run converges.

use orrery_handlers::target::{Fault, FaultyTarget};
use orrery_handlers::{MemoryTarget, Mode, Target};
use orrery_model::{ChangeKind, OutcomeStatus};
use tempfile::TempDir;

use crate::harness::{changed, reason, run};
use crate::{accounts, commands, packages, requests, services};

crate::on_every_machine!(every_resource_converges_on_this_machine);

/// A resource to create, update and purge.
struct Case {
    prepare: fn(&MemoryTarget),
    id: &'static str,
    wanted: &'static str,
    /// Other attributes of the same resource, for an update.
    other: Option<&'static str>,
    /// Attributes that purge it.
    purged: Option<&'static str>,
}

const FILE: Case = Case {
    prepare: |_| {},
    id: "std::File[a,path=$dir/f]",
    wanted: r#"{"content":"one\n","owner":"$user","group":"$group","mode":644}"#,
    other: Some(r#"{"content":"two\n","owner":"$user","group":"$group","mode":"0600"}"#),
    purged: Some(r#"{"content":"","owner":"$user","group":"$group","mode":644,"purged":true}"#),
};

const DIRECTORY: Case = Case {
    prepare: |_| {},
    id: "std::Directory[a,path=$dir/d]",
    wanted: r#"{"owner":"$user","group":"$group","mode":755}"#,
    other: Some(r#"{"owner":"$user","group":"$group","mode":700}"#),
    purged: Some(r#"{"owner":"$user","group":"$group","mode":755,"purged":true}"#),
};

const SYMLINK: Case = Case {
    prepare: |_| {},
    id: "std::Symlink[a,target=$dir/l]",
    wanted: r#"{"source":"/etc/passwd"}"#,
    other: Some(r#"{"source":"relative"}"#),
    purged: Some(r#"{"source":"/etc/passwd","purged":true}"#),
};

const RUN: Case = Case {
    prepare: commands::prepare,
    id: "exec::Run[a,command=touch $dir/made]",
    wanted: r#"{"creates":"$dir/made"}"#,
    other: None,
    purged: None,
};

/// Cases for a directory of this machine.
const ANYWHERE: [Case; 4] = [FILE, DIRECTORY, SYMLINK, RUN];

/// Cases for a machine in memory with the needed tools.
const IN_MEMORY: [Case; 8] = [
    Case {
        prepare: packages::prepare_apt,
        id: "std::Package[a,name=cron]",
        wanted: r#"{"state":"installed"}"#,
        other: Some(r#"{"state":"latest"}"#),
        purged: Some(r#"{"state":"removed"}"#),
    },
    Case {
        prepare: packages::prepare_dnf,
        id: "std::Package[a,name=cronie]",
        wanted: r#"{"state":"installed"}"#,
        other: Some(r#"{"state":"latest"}"#),
        purged: Some(r#"{"state":"removed"}"#),
    },
    Case {
        prepare: services::prepare_systemd,
        id: "std::Service[a,name=cron]",
        wanted: r#"{"state":"running","onboot":true}"#,
        other: Some(r#"{"state":"stopped","onboot":false}"#),
        purged: None,
    },
    Case {
        prepare: services::prepare_sysv,
        id: "std::Service[a,name=cron]",
        wanted: r#"{"state":"running","onboot":true}"#,
        other: Some(r#"{"state":"stopped","onboot":false}"#),
        purged: None,
    },
    Case {
        prepare: accounts::prepare,
        id: "user::User[a,name=flo]",
        wanted: r#"{"group":"adm","groups":["jo"],"homedir":"/home/flo","shell":"/bin/sh"}"#,
        other: Some(
            r#"{"group":"jo","groups":["adm","root"],"homedir":"/srv","shell":"/bin/bash"}"#,
        ),
        purged: Some(r#"{"group":"adm","homedir":"/home/flo","shell":"/bin/sh","purged":true}"#),
    },
    Case {
        prepare: accounts::prepare,
        id: "user::Group[a,name=staff]",
        wanted: r#"{"system":true}"#,
        other: None,
        purged: Some(r#"{"system":true,"purged":true}"#),
    },
    Case {
        prepare: |target| {
            target.put("/etc/cron.d", orrery_handlers::target::Content::Directory, 0o755);
        },
        id: "cron::Cronjob[a,name=backup]",
        wanted: r#"{"user":"jo","schedule":"0 3 * * *","command":"/usr/bin/backup","env_vars":{"A":"b c"}}"#,
        other: Some(r#"{"user":"jo","schedule":"@daily","command":"/usr/bin/backup"}"#),
        purged: Some(r#"{"user":"jo","schedule":"@daily","command":"x","purged":true}"#),
    },
    Case {
        prepare: requests::prepare,
        id: "http::Request[a,name=thing]",
        wanted: requests::DESIRED,
        other: Some(requests::OTHER),
        purged: Some(requests::PURGED),
    },
];

/// A machine in memory prepared for a case; `$dir` is a directory there.
fn machine(case: &Case) -> MemoryTarget {
    let target = MemoryTarget::new();
    (case.prepare)(&target);
    target
}

fn in_memory(text: &str) -> String {
    text.replace("$dir", "/srv").replace("$user", "root").replace("$group", "root")
}

fn all() -> impl Iterator<Item = Case> {
    ANYWHERE.into_iter().chain(IN_MEMORY)
}

/// Runs a case through its life cycle, with the laws that need no access to the target.
fn live(target: &dyn Target, case: &Case, fill: &dyn Fn(&str) -> String) {
    let id = fill(case.id);
    let step = |attributes: &str, mode: Mode| run(target, &id, &fill(attributes), mode);
    let expect = |attributes: &str, kind: &[ChangeKind]| {
        let plan = step(attributes, Mode::DryRun);
        assert_eq!(plan.status, OutcomeStatus::Deployed, "{id}: {}", reason(&plan));
        assert!(kind.contains(&plan.change.kind), "{id}: {:?}", plan.change);
        let done = step(attributes, Mode::Deploy);
        assert_eq!(done.status, OutcomeStatus::Deployed, "{id}: {}", reason(&done));
        assert_eq!(done.change, plan.change, "{id}: the plan was not what was done");
        for mode in [Mode::Deploy, Mode::DryRun, Mode::ReportOnly] {
            let again = step(attributes, mode);
            assert_eq!(again.status, OutcomeStatus::Deployed, "{id}: {}", reason(&again));
            assert_eq!(again.change.kind, ChangeKind::NoChange, "{id}: {:?}", changed(&again));
        }
    };
    expect(case.wanted, &[ChangeKind::Created, ChangeKind::Updated]);
    if let Some(other) = case.other {
        let report = step(other, Mode::ReportOnly);
        assert_eq!(report.status, OutcomeStatus::NonCompliant, "{id}");
        assert!(!report.change.attributes.is_empty(), "{id}");
        expect(other, &[ChangeKind::Updated]);
        expect(case.wanted, &[ChangeKind::Updated, ChangeKind::NoChange]);
    }
    if let Some(purged) = case.purged {
        let report = step(purged, Mode::ReportOnly);
        assert_eq!(
            (report.status, changed(&report)),
            (OutcomeStatus::NonCompliant, vec!["purged"])
        );
        expect(purged, &[ChangeKind::Purged]);
        expect(case.wanted, &[ChangeKind::Created]);
    }
}

#[test]
fn every_resource_converges_and_a_second_run_does_nothing() {
    for case in all() {
        live(&machine(&case), &case, &in_memory);
    }
}

fn every_resource_converges_on_this_machine(target: &dyn Target) {
    let directory = TempDir::new().unwrap();
    let (user, group) = commands::current_user(target);
    for case in ANYWHERE {
        live(target, &case, &|text| {
            text.replace("$dir", directory.path().to_str().unwrap())
                .replace("$user", &user)
                .replace("$group", &group)
        });
    }
}

#[test]
fn a_dry_run_and_a_report_change_nothing() {
    for case in all() {
        for mode in [Mode::DryRun, Mode::ReportOnly] {
            let target = machine(&case);
            let before = target.snapshot();
            let outcome = run(&target, &in_memory(case.id), &in_memory(case.wanted), mode);
            assert_ne!(outcome.status, OutcomeStatus::Failed, "{}: {}", case.id, reason(&outcome));
            assert!(
                outcome.change.kind != ChangeKind::NoChange
                    || !outcome.change.attributes.is_empty(),
                "{}: nothing to see",
                case.id
            );
            assert_eq!(target.snapshot(), before, "{}", case.id);
        }
    }
}

#[test]
fn after_any_fault_the_next_run_converges() {
    for case in all() {
        let id = in_memory(case.id);
        let mut lives = vec![vec![case.wanted]];
        lives.extend(case.other.map(|other| vec![case.wanted, other]));
        lives.extend(case.purged.map(|purged| vec![case.wanted, purged]));
        for life in lives {
            let (last, earlier) = life.split_last().unwrap();
            let begin = || {
                let target = machine(&case);
                for attributes in earlier {
                    run(&target, &id, &in_memory(attributes), Mode::Deploy);
                }
                target
            };
            let undisturbed = begin();
            run(&undisturbed, &id, &in_memory(last), Mode::Deploy);
            for fault in [Fault::Before, Fault::After] {
                for operation in 0.. {
                    let target = begin();
                    let faulty = FaultyTarget::new(&target, operation, fault);
                    let broken = run(&faulty, &id, &in_memory(last), Mode::Deploy);
                    if !faulty.failed() {
                        break;
                    }
                    assert_eq!(
                        broken.status,
                        OutcomeStatus::Failed,
                        "{id}: a fault of operation {operation} was not noticed"
                    );
                    let mended = run(&target, &id, &in_memory(last), Mode::Deploy);
                    assert_eq!(mended.status, OutcomeStatus::Deployed, "{id}: {}", reason(&mended));
                    assert_eq!(target.snapshot(), undisturbed.snapshot(), "{id} at {operation}");
                }
            }
        }
    }
}

#[test]
fn invalid_attributes_are_an_outcome_and_not_a_panic() {
    for case in all() {
        let target = machine(&case);
        let bad = r#"{"state":7,"mode":"rwx","source":[],"system":3,"creates":1,"method":[]}"#;
        let outcome = run(&target, &in_memory(case.id), bad, Mode::Deploy);
        assert_eq!(outcome.status, OutcomeStatus::Unavailable, "{}", case.id);
        assert!(!reason(&outcome).is_empty());
    }
}

#[test]
fn a_cancelled_run_does_nothing() {
    for case in all() {
        let target = machine(&case);
        let before = target.snapshot();
        let agent = crate::harness::Agent::new(&target);
        agent.stop.cancel();
        let outcome = agent.deploy(&in_memory(case.id), &in_memory(case.wanted));
        assert_eq!(outcome.status, OutcomeStatus::Skipped, "{}", case.id);
        assert_eq!(target.snapshot(), before);
    }
}
