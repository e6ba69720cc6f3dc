//! The binary as a helper over a real SSH server: uploaded once, verified by its digest.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orrery_agent::helper::{RemoteMachine, connect};
use orrery_executor::{ConnectedMachine, Machines as _};
use orrery_handlers::run::Remote;
use orrery_handlers::target::Transport;
use orrery_handlers::{CancelToken, LocalSecrets};
use orrery_model::{OutcomeStatus, SshAddress};
use orrery_ssh::config::{ConfigFile, LocalUser, SshConfig};
use orrery_ssh::{ConnectionLimits, RouteSource, SshClient, SshMachines, SshRuntime};
use orrery_testing::TestSshd;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::helper::{binaries, binary, deploy, reason, wait_for};

/// A new client, as each deploy without a server has, and its helper.
fn helper(sshd: &TestSshd) -> (SshClient, Arc<dyn Remote>) {
    let text = format!(
        "IdentityFile {}\nUserKnownHostsFile {}\nGlobalKnownHostsFile none\n",
        sshd.identity(),
        sshd.known_hosts().display()
    );
    let file = ConfigFile { name: "config".to_owned(), text };
    let config = SshConfig::parse(&[file], &mut |_| Vec::new()).unwrap();
    let user = LocalUser {
        name: sshd.user().to_owned(),
        uid: 0,
        home: PathBuf::from(sshd.path("home")),
        host_name: "desk".to_owned(),
        agent_socket: None,
    };
    let runtime = SshRuntime::new(ConnectionLimits::default()).unwrap();
    let client =
        SshClient::new(runtime, RouteSource::of_user(config, user), Arc::new(LocalSecrets));
    let address = format!("ssh://127.0.0.1:{}", sshd.port());
    let transport: Arc<dyn Transport> =
        Arc::new(client.transport(&address.parse().unwrap()).unwrap());
    match connect(transport, &binaries(), None, &CancelToken::never()).unwrap() {
        RemoteMachine::Helper(remote) => (client, remote),
        RemoteMachine::Shell { .. } => panic!("no helper"),
    }
}

#[test]
fn a_helper_is_uploaded_once_over_ssh_and_replaced_if_it_was_changed() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let sshd = TestSshd::with_config(&format!("SetEnv XDG_CACHE_HOME={}", path("cache").display()));
    let uploaded = || {
        let entries = fs::read_dir(path("cache/orrery")).unwrap();
        let found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap()
    };
    let digest = |content: Vec<u8>| Sha256::digest(content);
    let genuine = digest(fs::read(binary()).unwrap());
    let converge = |content: &str| {
        let (_client, remote) = helper(&sshd);
        let id = format!("std::File[a,path={}]", path("f").display());
        let outcome = deploy(&*remote, &id, &format!(r#"{{"content":"{content}"}}"#)).outcome;
        assert_eq!(outcome.status, OutcomeStatus::Deployed, "{}", reason(&outcome));
        assert_eq!(fs::read_to_string(path("f")).unwrap(), content);
    };
    converge("first");
    let first = uploaded();
    assert_eq!(digest(fs::read(&first).unwrap()), genuine);
    let inode = fs::metadata(&first).unwrap().ino();

    converge("second");
    assert_eq!(uploaded(), first);
    assert_eq!(fs::metadata(&first).unwrap().ino(), inode, "it was uploaded again");

    // Another user of the account changes it: it is not started.
    let marker = path("started");
    fs::remove_file(&first).unwrap();
    fs::write(&first, format!("#!/bin/sh\ntouch {}\n", marker.display())).unwrap();
    fs::set_permissions(&first, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    converge("third");
    assert!(!marker.exists(), "a changed helper was started");
    assert_eq!(digest(fs::read(uploaded()).unwrap()), genuine);
}

/// A server that ends its session at the first commands: as a connection that breaks while the
/// helper starts. `losses` has a line for each.
fn losing(losses: usize, directory: &TempDir) -> TestSshd {
    let (cache, left) = (directory.path().join("cache"), directory.path().join("left"));
    fs::write(&left, "x\n".repeat(losses)).unwrap();
    let script = directory.path().join("session");
    // The server's process for the session is the parent of the login shell or of this script.
    let text = format!(
        "#!/bin/sh\nif [ -s {left} ]; then\n  sed -i 1d {left}\n  kill -9 $PPID\n  exit 1\nfi\nexec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n",
        left = left.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    TestSshd::with_config(&format!(
        "SetEnv XDG_CACHE_HOME={}\nForceCommand exec {}",
        cache.display(),
        script.display()
    ))
}

/// Machines with the helpers of these tests, and limits that let tests end soon.
fn machines(sshd: &TestSshd, limits: ConnectionLimits) -> (SshMachines, SshAddress) {
    let known_hosts = vec![sshd.known_hosts()];
    let user = LocalUser {
        name: sshd.user().to_owned(),
        uid: 0,
        home: PathBuf::from(sshd.path("home")),
        host_name: "desk".to_owned(),
        agent_socket: None,
    };
    let routes = RouteSource::isolated(user, known_hosts);
    let runtime = SshRuntime::new(limits).unwrap();
    let client = SshClient::new(runtime, routes, Arc::new(LocalSecrets));
    let machines = SshMachines::new(Arc::new(client)).with_helpers(binaries());
    let address = format!(
        "ssh://{}@127.0.0.1:{}?identity_secret=file:{}",
        sshd.user(),
        sshd.port(),
        sshd.identity()
    );
    (machines, address.parse().unwrap())
}

#[test]
fn a_connection_that_is_lost_while_the_helper_starts_is_made_again() {
    for losses in [1, 2] {
        let directory = TempDir::new().unwrap();
        let sshd = losing(losses, &directory);
        let (machines, address) = machines(&sshd, ConnectionLimits::default());
        let machine = machines.machine(&address).unwrap();
        let connected = machine.connect(&CancelToken::never()).unwrap();
        let ConnectedMachine::Helper(helper) = connected else { panic!("{losses}: no helper") };
        assert_eq!(sshd.log().matches("Accepted publickey").count(), losses + 1, "{}", sshd.log());
        let path = directory.path().join("f");
        let id = format!("std::File[a,path={}]", path.display());
        let outcome = deploy(&*helper, &id, r#"{"content":"x"}"#).outcome;
        assert_eq!(outcome.status, OutcomeStatus::Deployed, "{}", reason(&outcome));
        assert_eq!(fs::read_to_string(path).unwrap(), "x");
    }
}

/// A machine that goes away while the helper starts is not reached: nothing is remembered.
#[test]
fn a_machine_that_disappears_while_the_helper_starts_gets_one_when_it_is_back() {
    let directory = TempDir::new().unwrap();
    let mut sshd = losing(0, &directory);
    let (machines, address) = machines(&sshd, ConnectionLimits::default());
    let machine = machines.machine(&address).unwrap();
    // The machine stops in the start of the helper, whose digest it is about to check.
    let started = directory.path().join("started");
    let script = directory.path().join("session");
    let former = fs::read_to_string(&script).unwrap();
    let text = format!("#!/bin/sh\ntouch {}\nexec sleep 600\n", started.display());
    fs::write(&script, text).unwrap();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| machine.connect(&CancelToken::never()).map(drop));
        wait_for(|| started.exists());
        sshd.kill();
        let error = connecting.join().unwrap().unwrap_err();
        assert!(error.is_unavailable() && !error.reason.is_empty(), "{error}");
    });
    fs::write(&script, former).unwrap();
    sshd.restart();
    // After the pause of the connection's circuit breaker.
    wait_for(|| match machine.connect(&CancelToken::never()) {
        Ok(connected) => {
            assert!(matches!(connected, ConnectedMachine::Helper(_)), "no helper");
            true
        }
        Err(_) => false,
    });
}

#[test]
fn a_machine_without_a_helper_says_why_and_gets_one_when_it_can_run_it() {
    let directory = TempDir::new().unwrap();
    // Every start loses its connection, which looks like a machine that cannot run it.
    let sshd = losing(3, &directory);
    let limits = ConnectionLimits {
        helper_retry: Duration::from_millis(1),
        helper_retry_reconnected: Duration::from_millis(1),
        ..ConnectionLimits::default()
    };
    let (machines, address) = machines(&sshd, limits);
    let machine = machines.machine(&address).unwrap();
    let connected = machine.connect(&CancelToken::never()).unwrap();
    let ConnectedMachine::Target { target, no_helper } = connected else { panic!("a helper") };
    assert!(no_helper.contains("the connection was lost 3 times"), "{no_helper}");
    // Its shell works meanwhile.
    target
        .make_directory(directory.path().join("d").to_str().unwrap(), Default::default())
        .unwrap();
    assert!(directory.path().join("d").is_dir());
    wait_for(|| {
        let connected = machine.connect(&CancelToken::never()).unwrap();
        matches!(connected, ConnectedMachine::Helper(_))
    });
}

/// The reason of a machine that refuses is remembered for a while: it is not asked for each run.
#[test]
fn a_machine_that_refuses_the_helper_is_not_asked_for_every_run() {
    let directory = TempDir::new().unwrap();
    let sshd = losing(0, &directory);
    let open = directory.path().join("cache/orrery");
    fs::create_dir_all(&open).unwrap();
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let (machines, address) = machines(&sshd, ConnectionLimits::default());
    let machine = machines.machine(&address).unwrap();
    for _ in 0..2 {
        let connected = machine.connect(&CancelToken::never()).unwrap();
        let ConnectedMachine::Target { no_helper, .. } = connected else { panic!("a helper") };
        assert!(no_helper.contains("does not belong to this user alone"), "{no_helper}");
        // Although it could run one by now.
        fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    }
}
