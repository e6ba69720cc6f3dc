//! The binary as a helper over a real SSH server: uploaded once, verified by its digest.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use orrery_agent::helper::{RemoteMachine, connect};
use orrery_handlers::run::Remote;
use orrery_handlers::target::Transport;
use orrery_handlers::{CancelToken, LocalSecrets};
use orrery_model::OutcomeStatus;
use orrery_ssh::config::{ConfigFile, LocalUser, SshConfig};
use orrery_ssh::{ConnectionLimits, RouteSource, SshClient, SshRuntime};
use orrery_testing::TestSshd;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::helper::{binaries, binary, deploy, reason};

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
        RemoteMachine::Shell(_) => panic!("no helper"),
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
