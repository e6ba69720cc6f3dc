//! Packages: a machine in memory with tools that print the format of the real ones, written by
//! hand; and the real `dpkg-query`, where it exists.

use orrery_handlers::target::{Content, Output};
use orrery_handlers::{LocalTarget, MemoryTarget, Mode, Target};
use orrery_model::{ChangeKind, OutcomeStatus};

use crate::harness::{Agent, edits, reason, run, text};

/// Packages of the machine in memory, one per line: name, architecture, state and version.
const DATABASE: &str = "/var/packages";

/// Format of `dpkg-query --show` on Debian 12; the lines are examples.
const DPKG: &str = "adduser\tall\tinstalled\t3.134\n\
                    libc6\tamd64\tinstalled\t2.36-9+deb12u13\n\
                    libc6\ti386\tinstalled\t2.36-9+deb12u13\n\
                    nano\tamd64\tconfig-files\t7.2-1+deb12u1\n";

/// Format of `rpm --query --all`; the lines are made up.
const RPM: &str =
    "glibc\tx86_64\t2.41-3.fc42\nglibc\ti686\t2.41-3.fc42\nvim-minimal\tx86_64\t9.1.1227-1.fc42\n";

const UNKNOWN: &str = "Reading package lists...\nBuilding dependency tree...\n\
                       Reading state information...\nE: Unable to locate package cron\n";

pub(crate) fn prepare_apt(target: &MemoryTarget) {
    target.put(DATABASE, Content::File(DPKG.into()), 0o644);
    target.on("dpkg-query", |invocation| Output::new(0, &text(invocation.target, DATABASE), ""));
    target.on("apt-cache policy", |invocation| {
        let name = invocation.last();
        let installed = text(invocation.target, DATABASE)
            .lines()
            .find(|line| line.starts_with(&format!("{name}\t")))
            .and_then(|line| line.rsplit('\t').next())
            .unwrap_or("(none)")
            .to_owned();
        let answer = format!(
            "{name}:\n  Installed: {installed}\n  Candidate: 3.0pl1-163\n  Version table:\n     \
             3.0pl1-163 500\n        500 http://mirror.example.org/debian bookworm/main amd64 Packages\n"
        );
        Output::new(0, &answer, "")
    });
    target.on("apt-get", |invocation| {
        let database = text(invocation.target, DATABASE);
        let (name, words) = (invocation.last(), &invocation.command.arguments);
        let others: String = database
            .split_inclusive('\n')
            .filter(|line| !line.starts_with(&format!("{name}\t")))
            .collect();
        let (marker, says) = ("/var/updated", |word: &str| words.iter().any(|other| other == word));
        let new = if says("update") {
            invocation.target.put(marker, Content::File(Vec::new()), 0o644);
            database
        } else if says("install") {
            // The lists are missing at first, and then an older version is installed.
            if invocation.target.stat(marker).unwrap().is_none() {
                return Output::new(100, "", UNKNOWN);
            }
            let known = database.contains(&format!("{name}\t"));
            let version = if known { "3.0pl1-163" } else { "3.0pl1-162" };
            format!("{others}{name}\tamd64\tinstalled\t{version}\n")
        } else {
            others
        };
        invocation.target.put(DATABASE, Content::File(new.into()), 0o644);
        Output::default()
    });
}

pub(crate) fn prepare_dnf(target: &MemoryTarget) {
    target.put(DATABASE, Content::File(RPM.into()), 0o644);
    target.on("rpm", |invocation| Output::new(0, &text(invocation.target, DATABASE), ""));
    target.on("dnf --quiet check-update", |invocation| {
        if text(invocation.target, DATABASE).contains("cronie\tx86_64\t1.7.1-1.fc42") {
            Output::new(100, "\ncronie.x86_64    1.7.2-2.fc42    updates\n", "")
        } else {
            Output::default()
        }
    });
    let add = |database: &str, version: &str| {
        let others: String =
            database.split_inclusive('\n').filter(|line| !line.starts_with("cronie\t")).collect();
        format!("{others}cronie\tx86_64\t{version}\n")
    };
    edits(target, "dnf --assumeyes --quiet install", DATABASE, move |database, _| {
        if database.contains("cronie\t") {
            database.to_owned()
        } else {
            add(database, "1.7.1-1.fc42")
        }
    });
    edits(target, "dnf --assumeyes --quiet update", DATABASE, move |database, _| {
        add(database, "1.7.2-2.fc42")
    });
    edits(target, "dnf --assumeyes --quiet remove", DATABASE, |database, _| {
        database.split_inclusive('\n').filter(|line| !line.starts_with("cronie\t")).collect()
    });
}

#[test]
fn one_query_covers_all_packages() {
    for (prepare, query, names) in [
        (prepare_apt as fn(&MemoryTarget), "dpkg-query", ["adduser", "libc6", "libc6:i386"]),
        (prepare_dnf, "rpm", ["glibc", "glibc.i686", "vim-minimal"]),
    ] {
        let target = MemoryTarget::new();
        prepare(&target);
        let agent = Agent::new(&target);
        for name in names {
            let outcome =
                agent.deploy(&format!("std::Package[a,name={name}]"), r#"{"state":"installed"}"#);
            assert_eq!(outcome.change.kind, ChangeKind::NoChange, "{name}");
            assert_eq!(outcome.facts[0].name, "version");
        }
        let history = target.history();
        assert_eq!(history.len(), 1, "{history:?}");
        assert!(history[0].starts_with(query), "{history:?}");
    }
}

#[test]
fn a_removed_package_with_configuration_left_is_not_installed() {
    let target = MemoryTarget::new();
    prepare_apt(&target);
    let plan = run(&target, "std::Package[a,name=nano]", r#"{"state":"installed"}"#, Mode::DryRun);
    assert_eq!(plan.change.kind, ChangeKind::Created);
}

#[test]
fn package_lists_are_fetched_once_for_an_unknown_package() {
    let target = MemoryTarget::new();
    prepare_apt(&target);
    let agent = Agent::new(&target);
    let wanted = r#"{"state":"installed"}"#;
    assert_eq!(agent.deploy("std::Package[a,name=cron]", wanted).status, OutcomeStatus::Deployed);
    target.on("apt-get", |_| Output::new(100, "", UNKNOWN));
    let failed = agent.deploy("std::Package[a,name=nosuch]", wanted);
    assert_eq!(failed.status, OutcomeStatus::Failed);
    assert!(reason(&failed).contains("Unable to locate package"), "{}", reason(&failed));
    let updates = target.history().iter().filter(|line| line.ends_with(" update")).count();
    assert_eq!(updates, 1);
}

#[test]
fn names_that_would_be_options_are_refused() {
    let target = MemoryTarget::new();
    prepare_apt(&target);
    for name in ["--reinstall", "a b", "../x", "*"] {
        let id = format!("std::Package[a,name={name}]");
        let outcome = run(&target, &id, r#"{"state":"removed"}"#, Mode::Deploy);
        assert_eq!(outcome.status, OutcomeStatus::Failed, "{name}");
    }
    assert!(target.history().is_empty());
}

#[test]
fn a_machine_without_package_manager_is_an_error() {
    let outcome =
        run(&MemoryTarget::new(), "std::Package[a,name=x]", r#"{"state":"latest"}"#, Mode::DryRun);
    assert_eq!(outcome.status, OutcomeStatus::Failed);
    assert!(reason(&outcome).contains("no package manager"));
}

/// The real `dpkg-query`, where it exists.
#[test]
fn the_output_of_dpkg_query_is_parsed() {
    let target = LocalTarget::default();
    if target.which("dpkg-query", None).unwrap().is_none() {
        return;
    }
    let outcome =
        run(&target, "std::Package[a,name=dpkg]", r#"{"state":"installed"}"#, Mode::Deploy);
    assert_eq!(outcome.status, OutcomeStatus::Deployed, "{}", reason(&outcome));
    assert_eq!(outcome.change.kind, ChangeKind::NoChange);
    assert!(outcome.facts[0].value.starts_with(|c: char| c.is_ascii_digit()));
}
