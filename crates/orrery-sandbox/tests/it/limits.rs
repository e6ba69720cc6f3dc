//! Resource limits of sandboxed programs.

use std::time::{Duration, Instant};

use orrery_sandbox::{LIMIT_EXCEEDED, MESSAGE_PREFIX, SandboxLimits};

use crate::support::{few, processes_with, users, wait_for};

#[test]
fn processes_are_limited() {
    for user in users() {
        let mark = format!("{}.9", 200_000 + std::process::id());
        let mut policy = user.policy();
        policy.limits = few();
        // A shell that cannot fork ends, so a subshell meets the limit.
        let script = format!(
            "(i=0; while [ $i -lt 300 ]; do (exec sleep {mark}) & i=$((i+1)); done); exec sleep 60"
        );
        let mut child = user.command(&policy, &script).spawn().unwrap();
        let mut most = 0;
        wait_for("processes are started", || processes_with(&mark) >= 20);
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            most = most.max(processes_with(&mark));
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // The script, and forked shells before their exec, also have the mark among their
        // arguments.
        assert!((20..=60).contains(&most), "{user:?}: {most}");
    }
}

#[test]
fn a_fork_bomb_is_reported() {
    for user in users() {
        let mut policy = user.policy();
        policy.limits = few();
        let ended = user.run(&policy, "bomb() { bomb | bomb & }; bomb; sleep 1; echo alive");
        let text = format!("{}{}", ended.out, ended.err);
        assert!(
            text.contains("Cannot fork") || text.contains("limit of 60 processes"),
            "{user:?}: {ended:?}"
        );
    }
}

/// Script with one process of large memory.
const HUNGRY: &str = "head -c 400m /dev/zero | tail | wc -c";

#[test]
fn memory_of_one_process_is_limited() {
    for user in users() {
        let mut policy = user.policy();
        assert_eq!(user.print(&policy, "head -c 40m /dev/zero | tail | wc -c").trim(), "41943040");
        policy.limits = SandboxLimits { memory: Some(64 << 20), ..few() };
        let ended = user.run(&policy, HUNGRY);
        assert_ne!(ended.out.trim(), "419430400", "{user:?}: {ended:?}");
    }
}

#[test]
fn memory_of_all_processes_together_is_limited() {
    for user in users() {
        let mut policy = user.policy();
        policy.limits = SandboxLimits { memory: Some(64 << 20), ..few() };
        let one = "(sleep 60 | (head -c 40m /dev/zero; cat) | tail) & ";
        let started = Instant::now();
        let ended = user.run(&policy, &format!("{} sleep 30", one.repeat(8)));
        assert!(
            ended.err.contains(&format!("{MESSAGE_PREFIX}Out of memory")),
            "{user:?}: {ended:?}"
        );
        assert!(ended.err.contains("64 MiB"), "{user:?}: {ended:?}");
        assert!(started.elapsed() < Duration::from_secs(55));
    }
}

#[test]
fn temporary_files_are_limited() {
    for user in users() {
        let mut policy = user.policy();
        policy.limits = few();
        let ended = user.run(&policy, "head -c 12m /dev/zero > /tmp/a; head -c 12m /dev/zero > /var/tmp/b; stat -c %s /tmp/a /var/tmp/b");
        let sizes: Vec<u64> = ended.out.lines().map(|line| line.parse().unwrap()).collect();
        assert!(
            ended.err.contains("No space left") || !matches!(user, crate::support::User::Root),
            "{user:?}: {ended:?}"
        );
        assert!(sizes.iter().all(|size| *size <= 16 << 20), "{user:?}: {ended:?}");
        policy.limits.file_size = 1 << 20;
        let ended =
            user.run(&policy, "trap '' XFSZ; head -c 5m /dev/zero > /tmp/a; stat -c %s /tmp/a");
        assert_eq!(ended.out.trim(), "1048576", "{user:?}: {ended:?}");
    }
}

#[test]
fn disks_are_limited() {
    for user in users() {
        let dir = tempfile::tempdir().unwrap();
        user.own(dir.path());
        let mut policy = user.policy();
        policy.writable = vec![dir.path().to_owned()];
        policy.limits = SandboxLimits { disk: Some(20 << 20), ..few() };
        policy.set("OUT", dir.path());
        let script = "i=0; while [ $i -lt 60 ]; do head -c 1m /dev/urandom > $OUT/$i; i=$((i+1)); sleep 0.05; done; chmod 0 $OUT; sleep 30";
        let ended = user.run(&policy, script);
        assert_eq!(ended.code, Some(i32::from(LIMIT_EXCEEDED)), "{user:?}: {ended:?}");
        assert!(ended.err.contains("20 MiB of disk"), "{user:?}: {ended:?}");
    }
}

#[test]
fn descriptors_are_limited() {
    for user in users() {
        let mut policy = user.policy();
        policy.limits = SandboxLimits { descriptors: 64, ..few() };
        assert_eq!(user.print(&policy, "ulimit -n; ulimit -c").trim(), "64\n0");
    }
}
