//! The helper as a controlling process uses it: uploaded, verified, started, lost and replaced, on
//! this machine through a shell.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use orrery_agent::helper::{HelperBinaries, HelperBinary, RemoteMachine, connect};
use orrery_handlers::run::{HandlerRun, Purpose, Remote, RunContext, RunOutcome};
use orrery_handlers::target::{LocalShell, Transport, TransportErrorKind};
use orrery_handlers::{
    BeforeChange, CancelToken, HandlerError, LocalSecrets, NoContents, Registry, Target as _,
    TargetCache,
};
use orrery_model::{
    Attributes, ChangeKind, LogLevel, Outcome, OutcomeStatus, Resource, VersionNumber,
};
use orrery_testing::write_program;
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(30);

/// The binary without debug information, as it is installed.
pub(crate) fn binary() -> PathBuf {
    static STRIPPED: OnceLock<TempDir> = OnceLock::new();
    let directory = STRIPPED.get_or_init(|| {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("orrery-agent");
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&path).arg(env!("CARGO_BIN_EXE_orrery-agent"));
        if !strip.status().is_ok_and(|status| status.success()) {
            fs::copy(env!("CARGO_BIN_EXE_orrery-agent"), &path).unwrap();
        }
        directory
    });
    directory.path().join("orrery-agent")
}

pub(crate) fn binaries() -> Arc<HelperBinaries> {
    static BINARIES: OnceLock<Arc<HelperBinaries>> = OnceLock::new();
    let opened =
        || Arc::new(HelperBinaries::new(vec![HelperBinary::open(&binary(), "once").unwrap()]));
    Arc::clone(BINARIES.get_or_init(opened))
}

/// A machine with a cache directory of its own.
struct Machine {
    directory: TempDir,
    transport: Arc<LocalShell>,
}

impl Machine {
    fn new() -> Self {
        Machine::with_shell(LocalShell::default())
    }

    fn with_shell(shell: LocalShell) -> Self {
        let directory = TempDir::new().unwrap();
        let transport =
            Arc::new(shell.with_variable("XDG_CACHE_HOME", directory.path().to_str().unwrap()));
        Machine { directory, transport }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn connect(&self) -> RemoteMachine {
        let transport = Arc::clone(&self.transport) as Arc<dyn Transport>;
        connect(transport, &binaries(), None, &CancelToken::never()).unwrap()
    }

    fn helper(&self) -> Arc<dyn Remote> {
        match self.connect() {
            RemoteMachine::Helper(remote) => remote,
            RemoteMachine::Shell { .. } => panic!("no helper"),
        }
    }

    /// Names in the cache.
    fn cached(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("orrery")).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }
}

/// Runs the handler of a resource through a remote.
fn run(
    remote: &dyn Remote,
    (id, attributes): (&str, &str),
    stop: &CancelToken,
    before_change: Option<BeforeChange<'_>>,
) -> RunOutcome {
    let attributes = Attributes::parse(attributes).unwrap();
    let resource = Resource::new(id.parse().unwrap(), attributes, Vec::new());
    let run = HandlerRun {
        purpose: Purpose::Deploy,
        resource: &resource,
        version: VersionNumber(1),
        epoch: None,
        deployed_before: false,
        changed_dependencies: &[],
        reason: &"a test",
        stop,
        before_change,
        effects: None,
    };
    let context = RunContext {
        cache: &TargetCache::new(),
        contents: &NoContents,
        secrets: &LocalSecrets,
        clock: &orrery_handlers::clock::now,
        log_level: LogLevel::Debug,
        server: None,
    };
    run.run_remotely(&Registry::native(), remote, &context)
}

pub(crate) fn deploy(remote: &dyn Remote, id: &str, attributes: &str) -> RunOutcome {
    run(remote, (id, attributes), &CancelToken::never(), None)
}

pub(crate) fn reason(outcome: &Outcome) -> String {
    outcome.log.last().map(|line| line.message.clone()).unwrap_or_default()
}

pub(crate) fn wait_for(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < SOON, "it did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_helper_is_uploaded_once_and_converges_a_file() {
    let machine = Machine::new();
    let remote = machine.helper();
    // Start, upload, start.
    assert_eq!(machine.transport.round_trips(), 3);
    let (id, wanted) = (format!("std::File[a,path={}]", machine.path("f")), r#"{"content":"x"}"#);
    let created = deploy(&*remote, &id, wanted).outcome;
    assert_eq!(created.status, OutcomeStatus::Deployed, "{}", reason(&created));
    assert_eq!(created.change.kind, ChangeKind::Created);
    assert_eq!(fs::read_to_string(machine.path("f")).unwrap(), "x");
    let again = deploy(&*remote, &id, wanted).outcome;
    assert_eq!((again.status, again.change.kind), (OutcomeStatus::Deployed, ChangeKind::NoChange));
    let [cached] = &machine.cached()[..] else { panic!("{:?}", machine.cached()) };
    assert_eq!(fs::metadata(cached).unwrap().permissions().mode() & 0o7777, 0o700);
    drop(remote);
    // The next connection starts it in one round trip.
    let before = machine.transport.round_trips();
    let remote = machine.helper();
    assert_eq!(machine.transport.round_trips(), before + 1);
    assert_eq!(deploy(&*remote, &id, wanted).outcome.change.kind, ChangeKind::NoChange);
}

#[test]
fn commands_have_the_umask_of_the_login() {
    let machine = Machine::new();
    let remote = machine.helper();
    let file = machine.path("umask");
    let id = format!("exec::Run[a,command=sh -c 'umask > {file}']");
    assert_eq!(deploy(&*remote, &id, "{}").outcome.status, OutcomeStatus::Deployed);
    let login = std::process::Command::new("sh").args(["-c", "umask"]).output().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), String::from_utf8(login.stdout).unwrap());
}

#[test]
fn a_changed_file_in_the_cache_is_replaced_and_not_started() {
    let machine = Machine::new();
    drop(machine.helper());
    let cached = machine.cached().remove(0);
    let marker = machine.path("started");
    fs::write(&cached, format!("#!/bin/sh\ntouch {marker}\n")).unwrap();
    let remote = machine.helper();
    let id = format!("std::File[a,path={}]", machine.path("f"));
    assert_eq!(deploy(&*remote, &id, r#"{"content":"x"}"#).outcome.status, OutcomeStatus::Deployed);
    assert!(!Path::new(&marker).exists());
    assert_eq!(machine.cached(), [cached]);
}

#[test]
fn old_versions_are_removed() {
    let machine = Machine::new();
    fs::create_dir(machine.path("orrery")).unwrap();
    fs::set_permissions(machine.path("orrery"), fs::Permissions::from_mode(0o700)).unwrap();
    for (name, days) in [("helper-old", 9), ("upload-old", 8), ("helper-recent", 1)] {
        let path = machine.path(&format!("orrery/{name}"));
        let file = fs::File::create(path).unwrap();
        let age = Duration::from_secs(days * 24 * 3600 + 60);
        file.set_modified(std::time::SystemTime::now() - age).unwrap();
    }
    drop(machine.helper());
    let cached = machine.cached();
    assert_eq!(cached.len(), 2, "{cached:?}");
    assert!(cached.iter().any(|path| path.ends_with("helper-recent")));
}

#[test]
fn a_machine_that_cannot_run_a_helper_is_used_by_its_shell() {
    // A directory that others can write to, a file system without space, another platform.
    let open = Machine::new();
    fs::create_dir(open.path("orrery")).unwrap();
    fs::set_permissions(open.path("orrery"), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(open.connect(), RemoteMachine::Shell { .. }));
    assert!(open.cached().is_empty());

    let foreign = TempDir::new().unwrap();
    let uname = foreign.path().join("uname");
    write_program(&uname, "#!/bin/sh\necho Plan9 mips\n").unwrap();
    let path = format!("{}:{}", foreign.path().display(), std::env::var("PATH").unwrap());
    let machine = Machine::with_shell(LocalShell::default().with_variable("PATH", path));
    let RemoteMachine::Shell { target, .. } = machine.connect() else { panic!("no such helper") };
    target.make_directory(&machine.path("d"), Default::default()).unwrap();
    assert!(Path::new(&machine.path("d")).is_dir());

    let none = Arc::new(HelperBinaries::default());
    let transport = Arc::clone(&machine.transport) as Arc<dyn Transport>;
    let connected = connect(transport, &none, None, &CancelToken::never()).unwrap();
    assert!(matches!(connected, RemoteMachine::Shell { .. }));
}

#[test]
fn a_machine_that_is_not_reached_is_an_error() {
    let machine = Machine::new();
    machine.transport.fail_next(TransportErrorKind::Unreachable);
    let transport = Arc::clone(&machine.transport) as Arc<dyn Transport>;
    let error = connect(transport, &binaries(), None, &CancelToken::never()).unwrap_err();
    assert!(error.is_unavailable() && !error.may_have_run(), "{error}");
}

#[test]
fn a_change_waits_for_its_announcement() {
    let machine = Machine::new();
    let remote = machine.helper();
    let path = machine.path("f");
    let (id, wanted) = (format!("std::File[a,path={path}]"), r#"{"content":"x"}"#);
    let announced = AtomicUsize::new(0);
    let refuse = || Err(HandlerError::failed("no record"));
    let refused = run(&*remote, (&id, wanted), &CancelToken::never(), Some(BeforeChange(&refuse)));
    assert_eq!(refused.outcome.status, OutcomeStatus::Failed);
    assert!(reason(&refused.outcome).contains("no record") && !Path::new(&path).exists());
    let record = || {
        assert!(!Path::new(&path).exists());
        announced.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let done = run(&*remote, (&id, wanted), &CancelToken::never(), Some(BeforeChange(&record)));
    assert!(done.announced && Path::new(&path).exists());
    run(&*remote, (&id, wanted), &CancelToken::never(), Some(BeforeChange(&record)));
    assert_eq!(announced.load(Ordering::Relaxed), 1, "nothing to announce");
}

#[test]
fn a_cancelled_command_ends_on_the_machine() {
    let machine = Machine::new();
    let remote = machine.helper();
    let pid = machine.path("pid");
    let id = format!("exec::Run[a,command=sh -c 'echo $$ > {pid}; exec sleep 100']");
    let stop = CancelToken::never();
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&*remote, (&id, "{}"), &stop, None).outcome);
        wait_for(|| fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')));
        stop.cancel();
        running.join().unwrap()
    });
    assert_eq!(outcome.status, OutcomeStatus::Skipped, "{}", reason(&outcome));
    let pid = fs::read_to_string(&pid).unwrap();
    wait_for(|| !Path::new(&format!("/proc/{}", pid.trim())).exists());
}

/// The helper is killed in a command: the effect is unknown, its command is ended, and the next
/// command starts another helper.
#[test]
fn a_lost_helper_makes_the_effect_unknown_and_is_replaced() {
    let machine = Machine::new();
    let remote = machine.helper();
    let pid = machine.path("pid");
    let id = format!("exec::Run[a,command=sh -c 'echo $PPID > {pid}; exec sleep 100']");
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| deploy(&*remote, &id, "{}"));
        wait_for(|| fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')));
        let helper: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        let killed = Command::new("kill").args(["-9", &helper.to_string()]).status().unwrap();
        assert!(killed.success());
        running.join().unwrap()
    });
    assert!(outcome.unclear, "{}", reason(&outcome.outcome));
    assert_eq!(outcome.outcome.status, OutcomeStatus::Failed);
    let id = format!("std::File[a,path={}]", machine.path("f"));
    let next = deploy(&*remote, &id, r#"{"content":"x"}"#);
    assert_eq!(next.outcome.status, OutcomeStatus::Deployed, "{}", reason(&next.outcome));
    assert!(!next.unclear);
}

/// Resources that were verified in one exchange need no other one, until something may change.
#[test]
fn verified_resources_do_not_need_the_helper_again() {
    let machine = Machine::new();
    let remote = machine.helper();
    let pid = machine.path("pid");
    let run_id = format!("exec::Run[a,command=sh -c 'echo $PPID > {pid}']");
    assert_eq!(deploy(&*remote, &run_id, "{}").outcome.status, OutcomeStatus::Deployed);
    let helper = fs::read_to_string(&pid).unwrap().trim().to_owned();
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &helper]).status().unwrap().success());
    };
    let wanted = r#"{"content":"x"}"#;
    let resources: Vec<Resource> = (0..20)
        .map(|number| {
            let path = machine.path(&format!("f{number}"));
            // One of them differs.
            fs::write(&path, if number == 19 { "y" } else { "x" }).unwrap();
            let id = format!("std::File[a,path={path}]").parse().unwrap();
            Resource::new(id, Attributes::parse(wanted).unwrap(), Vec::new())
        })
        .collect();
    let stop = CancelToken::never();
    let verify = || {
        let dry_run = |resource| HandlerRun {
            purpose: Purpose::DryRun,
            resource,
            version: VersionNumber(1),
            epoch: None,
            deployed_before: false,
            changed_dependencies: &[],
            reason: &"a test",
            stop: &stop,
            before_change: None,
            effects: None,
        };
        let runs: Vec<_> = resources.iter().map(dry_run).collect();
        remote.verify(&runs, LogLevel::Debug);
    };
    verify();
    assert_eq!(remote.verify_max(&resources[0].id), 0);
    signal("-STOP");
    for resource in &resources[..19] {
        let outcome = deploy(&*remote, resource.id.as_str(), wanted).outcome;
        assert_eq!(outcome.change.kind, ChangeKind::NoChange);
    }
    signal("-CONT");
    // The one that differs is deployed.
    let outcome = deploy(&*remote, resources[19].id.as_str(), wanted).outcome;
    assert_eq!(outcome.change.kind, ChangeKind::Updated);
    assert!(remote.verify_max(&resources[0].id) > 0, "each result is used once");
    // After a change, nothing that was verified before is used.
    verify();
    assert_eq!(deploy(&*remote, &run_id, "{}").outcome.status, OutcomeStatus::Deployed);
    fs::write(machine.path("f0"), "z").unwrap();
    let outcome = deploy(&*remote, resources[0].id.as_str(), wanted).outcome;
    assert_eq!(outcome.change.kind, ChangeKind::Updated);
}

#[test]
fn an_idle_helper_is_ended_and_the_next_command_starts_another() {
    let machine = Machine::new();
    let transport = Arc::clone(&machine.transport) as Arc<dyn Transport>;
    let binary = HelperBinary::open(&binary(), "once").unwrap();
    let short = HelperBinaries::new(vec![binary]).with_idle_timeout(Duration::from_secs(1));
    let connected = connect(transport, &Arc::new(short), None, &CancelToken::never()).unwrap();
    let RemoteMachine::Helper(remote) = connected else { panic!("no helper") };
    let pids = machine.path("pids");
    // A run that takes longer than the timeout is not idle.
    let report = |seconds: &str| {
        let id = format!("exec::Run[a,command=sh -c 'echo $PPID >> {pids}; exec sleep {seconds}']");
        let outcome = deploy(&*remote, &id, "{}").outcome;
        assert_eq!(outcome.status, OutcomeStatus::Deployed, "{}", reason(&outcome));
        let pids = fs::read_to_string(&pids).unwrap();
        pids.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let first = report("1.5");
    // Ended, even if nothing has waited for it yet.
    let stat = format!("/proc/{}/stat", first[0]);
    wait_for(|| fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
    let second = report("0");
    assert_eq!(second.len(), 2);
    assert_ne!(second[0], second[1]);
}

/// A sender that disappeared without closing the channel.
#[test]
fn a_helper_without_messages_ends_by_itself() {
    let (input, sender) = std::os::unix::net::UnixStream::pair().unwrap();
    let input = std::io::BufReader::new(input);
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let idle_timeout = Duration::from_millis(200);
        let served = orrery_agent::once::serve(input, std::io::sink(), idle_timeout, None);
        ended.send(served.is_ok())
    });
    assert_eq!(end.recv_timeout(SOON), Ok(true));
    drop(sender);
}
