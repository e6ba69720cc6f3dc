//! The shell target: round trips, lost connections, hostile names, and missing programs. The tests
//! of all targets are in `this_machine.rs`, `commands.rs` and `laws.rs`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery_handlers::target::{
    Algorithm, CommandLine, ExecLimits, ExpectedContent, FileKind, LocalShell, Output, Ownership,
    RemoteProcess, RemovalMode, ShellTarget, Transport, TransportError, TransportErrorKind,
};
use orrery_handlers::{CancelToken, Cause, Mode, Registry, Target};
use orrery_model::{Attributes, ChangeKind, OutcomeStatus, ResourceId};
use orrery_testing::write_program;
use tempfile::TempDir;

use crate::harness::{Agent, reason};

const SOON: Duration = Duration::from_secs(20);

fn mode(mode: u32) -> Ownership {
    Ownership { mode: Some(mode), ..Ownership::default() }
}

fn scratch() -> (TempDir, String) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().to_str().unwrap().to_owned();
    (directory, path)
}

fn wait_for(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < SOON, "it did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Passes everything to a local shell, and changes or records what it is given.
struct Tapped {
    shell: LocalShell,
    /// Bytes of the input that arrive.
    input_max: Mutex<usize>,
    commands: Mutex<Vec<String>>,
}

impl Tapped {
    fn new() -> Arc<Self> {
        let (shell, input_max) = (LocalShell::default(), Mutex::new(usize::MAX));
        Arc::new(Tapped { shell, input_max, commands: Mutex::default() })
    }
}

impl Transport for Tapped {
    fn exec(
        &self,
        command: &str,
        input: &[u8],
        limits: &ExecLimits,
        stop: &CancelToken,
    ) -> Result<Output, TransportError> {
        self.commands.lock().unwrap().push(command.to_owned());
        let input = &input[..input.len().min(*self.input_max.lock().unwrap())];
        self.shell.exec(command, input, limits, stop)
    }

    fn start(&self, command: &str, stop: &CancelToken) -> Result<RemoteProcess, TransportError> {
        self.shell.start(command, stop)
    }

    fn upload(
        &self,
        path: &str,
        content: &[u8],
        mode: u32,
        stop: &CancelToken,
    ) -> Result<(), TransportError> {
        self.shell.upload(path, content, mode, stop)
    }

    fn destination(&self) -> &str {
        self.shell.destination()
    }

    fn generation(&self) -> u64 {
        self.shell.generation()
    }
}

#[test]
fn names_and_contents_are_never_interpreted() {
    let (_scratch, directory) = scratch();
    let target = ShellTarget::new(Arc::new(LocalShell::default()));
    let names = [
        "$(touch x)",
        "`id`",
        "it's",
        "a\"b",
        "back\\slash",
        "new\nline",
        "line\n",
        "-rf",
        "* ?",
        " blank ",
        "ünïcode",
        "a -> b",
        "#x",
        "~",
        "{a,b}",
        "!",
        ";ls",
        "&",
        "\t",
        "\u{1b}[1m",
    ];
    for name in names {
        let path = format!("{directory}/{name}");
        let content = format!("'$(id)'\0\n{name}");
        target.write_file(&path, content.as_bytes(), mode(0o640)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), content.as_bytes(), "{name:?}");
        let read = target.read_file(&path, 1000).unwrap().unwrap();
        assert_eq!(read, content.as_bytes(), "{name:?}");
        let compared = target.compare(&path, ExpectedContent::Bytes(content.as_bytes())).unwrap();
        let compared = compared.unwrap();
        assert!(compared.same && compared.stat.mode == 0o640, "{name:?}");
        assert_eq!(target.list_directory(&directory).unwrap(), [name]);
        assert!(target.remove_file(&path).unwrap() && !target.remove_file(&path).unwrap());
        target.make_symlink(&path, name).unwrap();
        target.make_symlink(&path, &format!("{name}{name}")).unwrap();
        let leads_to = target.read_link(&path).unwrap().unwrap();
        assert_eq!(leads_to, format!("{name}{name}"), "{name:?}");
        assert!(target.remove_file(&path).unwrap());
        target.make_directory(&path, mode(0o2710)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o2710);
        target.set_attributes(&path, mode(0o711)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o711);
        assert!(target.remove_directory(&path, RemovalMode::OnlyIfEmpty).unwrap());
        let echoed = CommandLine::new(["printf", "%s", name]);
        let output = target.run(&echoed.env("X", name), &CancelToken::never()).unwrap();
        assert_eq!(output.stdout_text(), name);
    }
    assert!(fs::read_dir(&directory).unwrap().next().is_none());
}

/// A hundred unchanged files with owners need a handful of round trips.
#[test]
fn unchanged_files_are_verified_in_a_handful_of_round_trips() {
    let (_scratch, directory) = scratch();
    let transport = Arc::new(LocalShell::default());
    let target = ShellTarget::new(Arc::clone(&transport) as Arc<dyn Transport>);
    let (user, group) = crate::commands::current_user(&orrery_handlers::LocalTarget::default());
    let agent = Agent::new(&target);
    let registry = Registry::native();
    let resources: Vec<(ResourceId, String)> = (0..100)
        .map(|number| {
            let below = format!("{directory}/d{}", number % 3);
            fs::create_dir_all(&below).unwrap();
            let path = format!("{below}/f{number}");
            fs::write(&path, format!("content {number}")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            let id = format!("std::File[a,path={path}]").parse().unwrap();
            let attributes = format!(
                r#"{{"content":"content {number}","owner":"{user}","group":"{group}","mode":644}}"#
            );
            (id, attributes)
        })
        .collect();
    let handler = registry.handler("std::File").unwrap();
    let reads: Vec<_> = resources
        .iter()
        .map(|(id, text)| handler.read_ahead(id, &Attributes::parse(text).unwrap()).unwrap())
        .collect();
    let pass = || {
        target.prefetch(&reads);
        for (id, attributes) in &resources {
            let outcome = agent.run(id.as_str(), attributes, Mode::Deploy);
            assert_eq!(outcome.status, OutcomeStatus::Deployed, "{}", reason(&outcome));
            assert_eq!(outcome.change.kind, ChangeKind::NoChange, "{id}");
        }
    };
    pass();
    assert!(transport.round_trips() <= 6, "{}", transport.round_trips());
    let before = transport.round_trips();
    pass();
    assert_eq!(transport.round_trips(), before + 1, "with known ids of user and group");
}

#[test]
fn a_state_that_was_read_ahead_is_used_once_and_not_after_a_change() {
    let (_scratch, directory) = scratch();
    let transport = Arc::new(LocalShell::default());
    let target = ShellTarget::new(Arc::clone(&transport) as Arc<dyn Transport>);
    let path = |name: &str| format!("{directory}/{name}");
    fs::write(path("a"), "one").unwrap();
    let (a, missing) = (path("a"), path("no/b"));
    let reads = [
        orrery_handlers::target::ReadAhead { path: &a, content: Some(Algorithm::Sha256) },
        orrery_handlers::target::ReadAhead { path: &missing, content: None },
    ];
    let same = |content: &[u8]| {
        target.compare(&a, ExpectedContent::Bytes(content)).unwrap().map(|compared| compared.same)
    };
    target.prefetch(&reads);
    let before = transport.round_trips();
    assert_eq!(target.stat(&missing).unwrap(), None);
    // A change by another process is not seen by the read that was ahead of it, but by the next.
    fs::write(&a, "two").unwrap();
    assert_eq!((same(b"one"), transport.round_trips()), (Some(true), before));
    assert_eq!((same(b"one"), same(b"two")), (Some(false), Some(true)));
    assert_eq!(transport.round_trips(), before + 2);
    // Any change through the target drops all states.
    target.prefetch(&reads);
    target.write_file(&path("other"), b"", mode(0o600)).unwrap();
    fs::write(&a, "six").unwrap();
    assert_eq!(same(b"two"), Some(false));
    target.prefetch(&reads);
    let change = CommandLine::new(["cp", &path("other"), &a]);
    target.run(&change, &CancelToken::never()).unwrap();
    assert_eq!(same(b"six"), Some(false));
}

#[test]
fn an_incomplete_script_does_nothing() {
    let (_scratch, directory) = scratch();
    let transport = Tapped::new();
    let target = ShellTarget::new(Arc::clone(&transport) as Arc<dyn Transport>);
    let path = |name: &str| format!("{directory}/{name}");
    fs::write(path("a"), "old").unwrap();
    assert!(target.stat(&path("a")).unwrap().is_some());
    // A part of any length, up to the first one that is the whole.
    let each_part = |step: usize, operation: &dyn Fn() -> bool| {
        let lengths = (1..100_000).step_by(step);
        let whole = lengths.into_iter().find(|&length| {
            *transport.input_max.lock().unwrap() = length;
            operation()
        });
        *transport.input_max.lock().unwrap() = usize::MAX;
        whole.unwrap()
    };
    each_part(61, &|| {
        let made = target.make_directory(&path("d"), mode(0o750)).is_ok();
        assert_eq!(fs::exists(path("d")).unwrap(), made);
        made
    });
    let length = each_part(211, &|| {
        let written = target.write_file(&path("a"), b"new", mode(0o600)).is_ok();
        let content = fs::read_to_string(path("a")).unwrap();
        assert_eq!(content, if written { "new" } else { "old" });
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        written
    });
    // A part of the content.
    *transport.input_max.lock().unwrap() = length + 50_000;
    let content = vec![b'x'; 100_000];
    let error = target.write_file(&path("a"), &content, mode(0o600)).unwrap_err();
    assert!(matches!(error.cause, Cause::Unexpected(_)), "{error}");
    assert_eq!(fs::read_to_string(path("a")).unwrap(), "new");
}

#[test]
fn secrets_do_not_appear_in_arguments() {
    let (_scratch, directory) = scratch();
    let transport = Tapped::new();
    let target = ShellTarget::new(Arc::clone(&transport) as Arc<dyn Transport>);
    target.write_file(&format!("{directory}/hunter2"), b"hunter2", mode(0o600)).unwrap();
    let mut command = CommandLine::shell("ps -ww -eo args | grep -c '[h]unter2'; cat; echo $KEY");
    command = command.env("KEY", "hunter2");
    command.input = b"hunter2\n".to_vec();
    let output = target.run(&command, &CancelToken::never()).unwrap();
    assert_eq!(output.stdout_text(), "0\nhunter2\nhunter2\n", "{}", output.stderr_text());
    let commands = transport.commands.lock().unwrap();
    assert!(commands.iter().all(|command| !command.contains("hunter2")), "{commands:?}");
}

#[test]
fn a_greeting_of_the_login_shell_is_not_a_reply() {
    let (_scratch, directory) = scratch();
    let greeting = format!("{directory}/greeting");
    let text = "#!/bin/sh\necho 'Welcome!'; echo '@ done' ; echo oops >&2; exec /bin/sh \"$@\"\n";
    write_program(Path::new(&greeting), text).unwrap();
    let target = ShellTarget::new(Arc::new(LocalShell::new(&[&greeting])));
    let path = format!("{directory}/a");
    target.write_file(&path, b"x", mode(0o600)).unwrap();
    assert_eq!(target.read_file(&path, 9).unwrap().unwrap(), b"x");
    let output = target.run(&CommandLine::new(["echo", "hi"]), &CancelToken::never()).unwrap();
    assert_eq!((output.stdout_text(), output.stderr_text()), ("hi\n".to_owned(), String::new()));
}

/// A machine without programs for digests, without `setsid`, and with the `mv` of POSIX.
#[test]
fn a_minimal_machine_is_enough() {
    let (_scratch, directory) = scratch();
    let bin = format!("{directory}/bin");
    fs::create_dir(&bin).unwrap();
    let local = orrery_handlers::LocalTarget::default();
    for program in ["cat", "chmod", "chown", "id", "ln", "ls", "mkdir", "rm", "rmdir", "sleep"] {
        let found = local.which(program, None).unwrap().unwrap();
        std::os::unix::fs::symlink(found, format!("{bin}/{program}")).unwrap();
    }
    let mv = local.which("mv", None).unwrap().unwrap();
    let text = format!(
        "#!/bin/sh\ncase $1 in *T*) echo 'mv: illegal option -- T' >&2; exit 1;; esac\nexec {mv} \"$@\"\n"
    );
    write_program(Path::new(&format!("{bin}/mv")), &text).unwrap();
    let target = ShellTarget::new(Arc::new(LocalShell::default().with_variable("PATH", &*bin)));
    let path = |name: &str| format!("{directory}/{name}");
    target.write_file(&path("a"), b"content", mode(0o600)).unwrap();
    for algorithm in [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256] {
        let digest = algorithm.digest(b"content");
        assert_eq!(target.digest(&path("a"), algorithm).unwrap(), Some(digest));
    }
    target.prefetch(&[orrery_handlers::target::ReadAhead {
        path: &path("a"),
        content: Some(Algorithm::Sha256),
    }]);
    let same = |content: &[u8]| {
        target.compare(&path("a"), ExpectedContent::Bytes(content)).unwrap().unwrap().same
    };
    assert!(same(b"content") && !same(b"c0ntent"));
    // A link to a directory is replaced, not followed.
    fs::create_dir(path("d")).unwrap();
    target.make_symlink(&path("l"), &path("d")).unwrap();
    target.make_symlink(&path("l"), "d").unwrap();
    assert_eq!(fs::read_link(path("l")).unwrap().to_str(), Some("d"));
    target.write_file(&path("l"), b"file", mode(0o600)).unwrap();
    assert_eq!(target.stat(&path("l")).unwrap().unwrap().kind, FileKind::File);
    assert!(fs::read_dir(path("d")).unwrap().next().is_none());
    let mut endless = CommandLine::new(["sleep", "100"]);
    endless.timeout = Some(Duration::from_millis(100));
    let error = target.run(&endless, &CancelToken::never()).unwrap_err();
    assert!(matches!(error.cause, Cause::TimedOut), "{error}");
}

/// A command that outlives its connection is ended before anything else is done.
#[test]
fn a_command_of_a_lost_connection_is_ended_first() {
    let (_scratch, directory) = scratch();
    let transport = Arc::new(LocalShell::default());
    let target = ShellTarget::new(Arc::clone(&transport) as Arc<dyn Transport>);
    let path = |name: &str| format!("{directory}/{name}");
    assert_eq!(target.stat(&path("a")).unwrap(), None);
    let script = format!(
        "echo $$ > {directory}/pid; trap '' TERM; while :; do echo x >> {directory}/log; sleep 0.02; done"
    );
    transport.lose_next(Duration::from_millis(700));
    let error = target.run(&CommandLine::shell(&script), &CancelToken::never()).unwrap_err();
    assert!(error.cause.is_unclear(), "{error}");
    // The target reconnected already, and ended it.
    let log = || fs::read_to_string(path("log")).unwrap().len();
    let length = log();
    let output = target.run(&CommandLine::new(["sleep", "0.2"]), &CancelToken::never()).unwrap();
    assert_eq!((output.code, log()), (0, length));
    let pid = fs::read_to_string(path("pid")).unwrap();
    wait_for(|| !fs::exists(format!("/proc/{}", pid.trim())).unwrap());
}

#[test]
fn a_machine_that_is_not_reached_did_nothing() {
    let (_scratch, directory) = scratch();
    let transport = Arc::new(LocalShell::default());
    let target = ShellTarget::new(Arc::clone(&transport) as Arc<dyn Transport>);
    transport.fail_next(TransportErrorKind::Unreachable);
    let error = target.run(&CommandLine::new(["true"]), &CancelToken::never()).unwrap_err();
    assert!(!error.cause.is_unclear() && matches!(error.cause, Cause::Transport(_)), "{error}");
    transport.fail_next(TransportErrorKind::Unreachable);
    let id = format!("std::File[a,path={directory}/a]");
    let outcome = Agent::new(&target).deploy(&id, r#"{"content":"x"}"#);
    assert_eq!(outcome.status, OutcomeStatus::Unavailable, "{}", reason(&outcome));
    let outcome = Agent::new(&target).deploy(&id, r#"{"content":"x"}"#);
    assert_eq!(outcome.status, OutcomeStatus::Deployed, "{}", reason(&outcome));
}

/// The causes of an ordinary user.
#[test]
fn permissions_are_reported_as_such() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (scratch, directory) = scratch();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = |name: &str| format!("{directory}/{name}");
    fs::write(path("a"), "x").unwrap();
    fs::set_permissions(path("a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(path("closed")).unwrap();
    fs::set_permissions(path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/bin/sh"];
    let target = ShellTarget::new(Arc::new(LocalShell::new(&user)));
    let denied = |what: &str, done: Result<(), orrery_handlers::TargetError>| {
        let error = done.expect_err(what);
        assert!(matches!(error.cause, Cause::PermissionDenied), "{what}: {error}");
    };
    denied("read", target.read_file(&path("a"), 9).map(drop));
    denied("write", target.write_file(&path("a"), b"y", mode(0o600)));
    denied("own", target.set_attributes(&path("a"), mode(0o666)));
    denied("directory", target.make_directory(&path("d"), mode(0o755)));
    denied("link", target.make_symlink(&path("l"), "x"));
    denied("remove", target.remove_file(&path("a")).map(drop));
    denied("below", target.stat(&path("closed/x")).map(drop));
    denied("list", target.list_directory(&path("closed")).map(drop));
    denied("write below", target.write_file(&path("closed/x"), b"", mode(0o600)));
    assert_eq!(fs::read_to_string(path("a")).unwrap(), "x");
    assert_eq!(target.stat(&path("a")).unwrap().unwrap().mode, 0o600);
}

#[test]
fn records_that_earlier_connections_left_are_removed() {
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let mut alive = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let unique = std::process::id();
    let record = |name: &str, content: &str| {
        let path = std::path::PathBuf::from(format!("/tmp/.orrery-run-{unique}{name}"));
        fs::write(&path, content).unwrap();
        path
    };
    let gone = record("gone", &format!("{}\n", ended.id()));
    let runs = record("runs", &format!("{}\n", alive.id()));
    let (fresh, old) = (record("fresh", ""), record("old", ""));
    let days = std::time::Duration::from_secs(3 * 24 * 3600);
    let file = fs::File::options().write(true).open(&old).unwrap();
    file.set_modified(std::time::SystemTime::now() - days).unwrap();
    let target = ShellTarget::new(Arc::new(LocalShell::default()));
    target.which("sh", None).unwrap();
    let left = [&gone, &old, &runs, &fresh].map(|path| path.exists());
    alive.kill().unwrap();
    alive.wait().unwrap();
    let _ = [runs, fresh].map(fs::remove_file);
    assert_eq!(left, [false, false, true, true]);
}
