//! Target hosts: start, loss, end of the permit, and performance.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use orrery_handler_host::target_host::{SandboxBoundary, SandboxedTarget, TargetHost};
use orrery_handlers::target::{CommandLine, Ownership};
use orrery_handlers::{CancelToken, Cause, LocalTarget, Moment, Permit, Target};
use tempfile::TempDir;

/// Entry point of a target host process.
#[test]
#[ignore = "started by other tests, with a socket as its standard input"]
fn serve_as_target_host() {
    orrery_handler_host::target_host::serve(std::io::stdin(), SandboxBoundary::none()).unwrap();
}

fn command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "target_hosts::serve_as_target_host", "--ignored", "--nocapture"]);
    command
}

fn host() -> Arc<TargetHost> {
    TargetHost::new("of a test", Box::new(|| Ok(command())))
}

fn target() -> SandboxedTarget {
    SandboxedTarget::new(host(), None)
}

/// This machine through a target host that all tests share.
pub(crate) fn this_machine() -> SandboxedTarget {
    static HOST: OnceLock<Arc<TargetHost>> = OnceLock::new();
    SandboxedTarget::new(Arc::clone(HOST.get_or_init(host)), None)
}

/// Returns false once the process has closed all its sockets. Its first thread may be a zombie while
/// others still run.
fn is_alive(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z')) || threads > 1
}

/// Returns true once all threads are stopped. The signal stops them one after another; until then,
/// one may still answer.
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.flatten().all(|thread| {
        let state = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        state.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

fn wait_until(mut is_so: impl FnMut() -> bool, what: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(pid: u32, signal: &str) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn a_host_is_another_process_and_is_started_when_it_is_needed() {
    let target = target();
    assert_eq!(target.host().pid(), None);
    target.sync().unwrap();
    assert_eq!(target.host().pid(), None, "there was nothing to sync");
    let output = target.run(&CommandLine::shell("echo $PPID"), &CancelToken::never()).unwrap();
    let parent: u32 = output.stdout_text().trim().parse().unwrap();
    assert_ne!(parent, std::process::id());
    assert_eq!(target.host().pid(), Some(parent));
    let pid = target.host().pid().unwrap();
    drop(target);
    assert!(!is_alive(pid), "a host without a server stays");
}

/// A lost host is replaced. Read-only operations are repeated; others report an unknown effect.
#[test]
fn a_lost_host_is_replaced_and_its_effect_is_unknown() {
    let target = target();
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    target.write_file(&path("a"), b"1", Ownership::default()).unwrap();
    let first = target.host().pid().unwrap();
    signal(first, "-KILL");
    wait_until(|| !is_alive(first), "it was killed");
    assert_eq!(target.read_file(&path("a"), 9).unwrap().unwrap(), b"1");
    let second = target.host().pid().unwrap();
    assert_ne!(first, second);
    // An operation that was not begun is done by the next host.
    signal(second, "-KILL");
    wait_until(|| !is_alive(second), "it was killed");
    target.write_file(&path("a"), b"2", Ownership::default()).unwrap();
    target.sync().unwrap();
    // A command that ends its own host.
    let error = target
        .run(&CommandLine::shell("kill -9 $PPID; sleep 30"), &CancelToken::never())
        .expect_err("its effect is unknown");
    assert!(matches!(error.cause, Cause::Unexpected(_)) && error.cause.is_unclear(), "{error}");
    let told = error.to_string();
    assert!(told.contains("may have taken effect") && told.contains("SIGKILL"), "{told}");
    assert_eq!(target.read_file(&path("a"), 9).unwrap().unwrap(), b"2");
}

/// A frozen host is detected during any operation, and replaced.
#[test]
fn a_frozen_host_delays_no_other_call() {
    let target = target();
    target.stat("/tmp").unwrap();
    let pid = target.host().pid().unwrap();
    signal(pid, "-STOP");
    wait_until(|| is_stopped(pid), "it was stopped");
    let began = Instant::now();
    assert!(target.stat("/tmp").unwrap().is_some());
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    assert_ne!(target.host().pid(), Some(pid));
    wait_until(|| !is_alive(pid), "it was ended");
}

#[test]
fn a_host_that_cannot_be_started_reports_why_and_does_nothing() {
    let refused = TargetHost::new("none", Box::new(|| Err("no namespaces here".to_owned())));
    let error = SandboxedTarget::new(refused, None).stat("/tmp").unwrap_err();
    assert!(
        matches!(&error.cause, Cause::NoMachine(why) if why.contains("no namespaces")),
        "{error}"
    );
    let spawn = || {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo mount: permission denied >&2; exit 3"]);
        Ok(command)
    };
    let broken = SandboxedTarget::new(TargetHost::new("broken", Box::new(spawn)), None);
    let error = broken.write_file("/nowhere", b"", Ownership::default()).unwrap_err();
    let told = error.to_string();
    assert!(matches!(error.cause, Cause::NoMachine(_)), "{told}");
    assert!(told.contains("permission denied") && told.contains("exit status 3"), "{told}");
}

/// A host with only invalid answers harms neither this process nor its progress.
#[test]
fn a_host_with_invalid_answers_is_ended() {
    let spawn = || {
        let mut command = Command::new("python3");
        command.arg("-c").arg(LIAR);
        Ok(command)
    };
    let target = SandboxedTarget::new(TargetHost::new("liar", Box::new(spawn)), None);
    let error = target.write_file("/a", b"x", Ownership::default()).unwrap_err();
    assert!(matches!(error.cause, Cause::Unexpected(_)), "{error}");
    let error = target.read_file("/a", 10).unwrap_err();
    assert!(error.to_string().contains("longer than"), "{error}");
}

/// Answers pings correctly, and everything else with too many bytes.
const LIAR: &str = r#"
import array, json, socket, threading
control = socket.socket(fileno=0)
def serve(connection):
    lines = connection.makefile("rb")
    for line in lines:
        call = json.loads(line)
        lines.read(call.get("bytes", 0))
        if call["what"] == "ping":
            answer = {"seq": call["seq"], "reply": "done"}
        elif "write_file" in call["what"]:
            answer = {"seq": call["seq"], "reply": {"flag": True}}
        else:
            answer = {"seq": call["seq"], "bytes": 1 << 40, "reply": {"content": True}}
        connection.sendall(json.dumps(answer).encode() + b"\n")
while True:
    data, given, _, _ = socket.recv_fds(control, 1, 1)
    if not data:
        break
    threading.Thread(target=serve, args=(socket.socket(fileno=given[0]),), daemon=True).start()
"#;

fn ticking(ticks: &std::path::Path) -> CommandLine {
    CommandLine::shell(&format!("while :; do echo tick >> {}; sleep 0.05; done", ticks.display()))
}

fn count(ticks: &std::path::Path) -> usize {
    std::fs::read_to_string(ticks).unwrap_or_default().lines().count()
}

/// A server that runs a command with a permit of a second and a half.
#[test]
#[ignore = "started by another test"]
fn act_as_server() {
    let ticks = std::env::var_os("TICKS").unwrap();
    let target = target();
    target.stat("/tmp").unwrap();
    let permit = Permit::until(Moment::now().after(Duration::from_millis(1_500)));
    target.run(&ticking(ticks.as_ref()), &CancelToken::never().under(&permit)).unwrap_err();
}

/// The permit ends by the host's own clock as well: a frozen server cannot end it.
#[test]
fn a_host_stops_when_the_permit_of_a_frozen_server_ends() {
    let directory = TempDir::new().unwrap();
    let ticks = directory.path().join("ticks");
    let server = Killed(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "target_hosts::act_as_server", "--ignored"])
            .env("TICKS", &ticks)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    wait_until(|| count(&ticks) > 0, "it runs");
    signal(server.0.id(), "-STOP");
    std::thread::sleep(Duration::from_millis(500));
    let before = count(&ticks);
    assert!(before > 1, "the host goes on while the right lasts");
    std::thread::sleep(Duration::from_millis(1_500));
    let ended = count(&ticks);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(count(&ticks), ended, "the command goes on after the right to act has ended");
}

/// A process that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Renewals of the permit reach a running command, and its end cancels it. Nothing starts later.
#[test]
fn a_command_runs_as_long_as_the_permit_lasts() {
    let directory = TempDir::new().unwrap();
    let ticks = directory.path().join("ticks");
    let host = host();
    SandboxedTarget::new(Arc::clone(&host), None).stat("/tmp").unwrap();
    let permit = Permit::until(Moment::now().after(Duration::from_millis(400)));
    let stop = CancelToken::never().under(&permit);
    let target = SandboxedTarget::new(host, Some(permit.clone()));
    let count = || count(&ticks);
    let (host, running) = std::thread::scope(|scope| {
        let running = scope.spawn(|| target.run(&ticking(&ticks), &stop));
        wait_until(|| count() > 0, "it runs");
        // A renewal is sent to the host while the command runs.
        assert!(permit.extend(Moment::now().after(Duration::from_millis(1_500))));
        std::thread::sleep(Duration::from_millis(800));
        let after_first_end = count();
        std::thread::sleep(Duration::from_millis(300));
        assert!(count() > after_first_end, "it was renewed");
        (target.host().pid().unwrap(), running.join().unwrap())
    });
    let error = running.unwrap_err();
    assert!(matches!(error.cause, Cause::Cancelled), "{error}");
    let ended = count();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(count(), ended, "it goes on after the right to act has ended");
    assert!(is_alive(host), "only the command had to end");
    // Nothing new begins, neither here nor in the host.
    let path = directory.path().join("late").to_str().unwrap().to_owned();
    let late = target.write_file(&path, b"", Ownership::default()).unwrap_err();
    assert!(matches!(late.cause, Cause::Cancelled), "{late}");
    assert!(!directory.path().join("late").exists());
}

/// A closed host ends its running commands, also without a namespace.
#[test]
fn a_host_ends_its_commands_when_it_is_closed() {
    let directory = TempDir::new().unwrap();
    let pid_file = directory.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 300", pid_file.display());
    let target = target();
    std::thread::scope(|scope| {
        let running =
            scope.spawn(|| target.run(&CommandLine::shell(&script), &CancelToken::never()));
        let read = || std::fs::read_to_string(&pid_file).unwrap_or_default();
        wait_until(|| read().ends_with('\n'), "it runs");
        let pid: u32 = read().trim().parse().unwrap();
        assert!(is_alive(pid));
        target.host().close();
        assert!(!is_alive(pid), "the command goes on");
        let error = running.join().unwrap().unwrap_err();
        assert!(error.cause.is_unclear(), "{error}");
    });
}

#[test]
fn an_idle_host_is_ended() {
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let spawn = move || {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(command())
    };
    let idle = Duration::from_millis(1_200);
    let host = TargetHost::with_idle_time("idle", Box::new(spawn), idle);
    let target = SandboxedTarget::new(Arc::clone(&host), None);
    target.stat("/tmp").unwrap();
    let pid = host.pid().unwrap();
    // A long command counts as activity.
    target.run(&CommandLine::shell("sleep 2.5"), &CancelToken::never()).unwrap();
    assert_eq!(host.pid(), Some(pid));
    wait_until(|| host.pid().is_none() && !is_alive(pid), "it is ended");
    target.stat("/tmp").unwrap();
    assert_eq!(started.load(Ordering::Relaxed), 2);
}

/// Many concurrent handlers, each with a command that waits for all others.
#[test]
fn many_commands_run_at_once() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().to_str().unwrap();
    let target = target();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..60 {
            let target = &target;
            scope.spawn(move || {
                let script = format!(
                    "touch {path}/{number}; while [ $(ls {path} | wc -l) -lt 60 ]; do sleep 0.1; done"
                );
                let stop = CancelToken::never().within(Duration::from_secs(60));
                let output = target.run(&CommandLine::shell(&script), &stop).unwrap();
                assert!(output.success());
            });
        }
    });
    assert!(began.elapsed() < Duration::from_secs(60));
}

/// Benchmark: writes and checks many files in this process and through a host. Run by hand.
#[test]
#[ignore = "measures; run it with --ignored --nocapture"]
fn measure_many_files() {
    const FILES: usize = 10_000;
    for threads in [1, 4, 16] {
        for round in 0..2 {
            let local = LocalTarget::default();
            let sandboxed = target();
            sandboxed.stat("/tmp").unwrap();
            for (name, target) in
                [("in process", &local as &dyn Target), ("through a host", &sandboxed)]
            {
                let directory = TempDir::new().unwrap();
                let path = directory.path().to_str().unwrap();
                let began = Instant::now();
                std::thread::scope(|scope| {
                    for thread in 0..threads {
                        scope.spawn(move || {
                            for number in (thread..FILES).step_by(threads) {
                                let path = format!("{path}/{number}");
                                let content = format!("content of {number}\n");
                                let expected = orrery_handlers::target::ExpectedContent::Bytes(
                                    content.as_bytes(),
                                );
                                assert!(target.compare(&path, expected).unwrap().is_none());
                                let owner = Ownership { mode: Some(0o644), ..Ownership::default() };
                                target.write_file(&path, content.as_bytes(), owner).unwrap();
                            }
                        });
                    }
                });
                let took = began.elapsed();
                println!(
                    "round {round}, {threads} threads, {name}: {FILES} files in {took:?}, {:.1} µs each",
                    took.as_secs_f64() * 1e6 / FILES as f64
                );
            }
        }
    }
}
