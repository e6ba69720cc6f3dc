//! No process of a sandbox survives its end, however it ends.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{processes_with, users, wait_for};

/// A unique sleep duration in seconds.
fn mark(test: u32) -> String {
    format!("{}.{test}", 100_000 + std::process::id())
}

#[test]
fn nothing_survives_the_program() {
    for user in users() {
        let mark = mark(1);
        let script = format!(
            "setsid sleep {mark} & env -i setsid sh -c 'sleep {mark} & sleep {mark}' >/dev/null 2>&1 & \
             (trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM; sleep {mark}' &) ; sleep 0.3; echo done"
        );
        let started = Instant::now();
        let ended = user.run(&user.policy(), &script);
        assert_eq!(ended.out, "done\n", "{user:?}: {ended:?}");
        assert!(started.elapsed() < Duration::from_secs(20));
        assert_eq!(processes_with(&mark), 0, "{user:?}");
    }
}

#[test]
fn nothing_survives_a_killed_launcher() {
    for user in users() {
        let mark = mark(2);
        let mut command =
            user.command(&user.policy(), &format!("setsid sleep {mark} & sleep {mark}"));
        let mut child = command.spawn().unwrap();
        wait_for("the programs run", || processes_with(&mark) >= 2);
        child.kill().unwrap();
        child.wait().unwrap();
        wait_for("the programs end", || processes_with(&mark) == 0);
    }
}

#[test]
fn nothing_survives_the_parent_process() {
    for user in users() {
        let mark = mark(3);
        let command = user.command(
            &user.policy(),
            &format!("trap '' TERM HUP; setsid sleep {mark} & sleep {mark}"),
        );
        let mut server = Command::new("/bin/sh");
        server
            .args(["-c", "\"$@\" & wait", "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        server
            .env_clear()
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut server = server.current_dir("/").stdin(Stdio::null()).spawn().unwrap();
        wait_for("the programs run", || processes_with(&mark) >= 2);
        server.kill().unwrap();
        server.wait().unwrap();
        wait_for("the programs end", || processes_with(&mark) == 0);
    }
}

#[test]
fn a_terminated_program_can_clean_up() {
    for user in users() {
        let mut command = user.command(
            &user.policy(),
            "trap 'echo tidy; exit 7' TERM; echo ready; while :; do sleep 0.1; done",
        );
        let mut child = command.spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(&mut out, &mut ready).unwrap();
        Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
        assert_eq!(rest, "tidy\n", "{user:?}");
        assert_eq!(child.wait().unwrap().code(), Some(7), "{user:?}");
    }
}
