//! Host keys and credentials that are refused, and those that are accepted.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use orrery_handlers::CancelToken;
use orrery_handlers::target::{Transport as _, TransportError, TransportErrorKind};
use orrery_ssh::{RouteSource, SshClient, SshRuntime};
use orrery_testing::{TestSshd, keygen};

use crate::support::{
    NamedSecrets, client, client_with_secrets, config_of, connected, exec, quick_limits, transport,
    user,
};

fn home(sshd: &TestSshd) -> PathBuf {
    PathBuf::from(sshd.path("home"))
}

/// Error of a connection with this configuration.
fn refused(sshd: &TestSshd, config: &str, options: &str) -> TransportError {
    let client = client(config, user(&home(sshd), sshd.user()), quick_limits());
    let error = exec(&transport(&client, sshd.port(), options), "true").unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::Unreachable, "{error}");
    assert!(!error.may_have_run());
    error
}

#[test]
fn an_unknown_host_key_is_refused_with_its_fingerprint_and_remedy() {
    let sshd = TestSshd::start();
    let empty = sshd.path("empty");
    fs::write(&empty, "").unwrap();
    let config = format!(
        "IdentityFile {}\nUserKnownHostsFile {empty}\nGlobalKnownHostsFile none\n",
        sshd.identity()
    );
    let error = refused(&sshd, &config, "");
    assert!(error.reason.contains("is unknown: ssh-ed25519 SHA256:"), "{error}");
    let help = error.help.unwrap();
    let scan = format!("ssh-keyscan -p {} 127.0.0.1 >> {empty}", sshd.port());
    assert!(help.contains(&scan), "{help}");
    assert!(!sshd.log().contains("Accepted"), "{}", sshd.log());
    // The remedy works.
    let added = Command::new("sh").args(["-c", &scan]).stderr(Stdio::null()).status().unwrap();
    assert!(added.success());
    let client = client(&config, user(&home(&sshd), sshd.user()), quick_limits());
    exec(&transport(&client, sshd.port(), ""), "true").unwrap();
}

#[test]
fn a_new_host_key_is_recorded_once_where_that_is_configured() {
    let sshd = TestSshd::start();
    let known = sshd.path("fresh/known_hosts");
    let config = format!(
        "IdentityFile {}\nUserKnownHostsFile {known}\nGlobalKnownHostsFile none\n",
        sshd.identity()
    );
    for _ in 0..2 {
        let client = client(&config, user(&home(&sshd), sshd.user()), quick_limits());
        let transport = transport(&client, sshd.port(), "?strict_host_key=accept-new");
        exec(&transport, "true").unwrap();
    }
    assert_eq!(fs::read_to_string(&known).unwrap(), sshd.known_hosts_line());
}

#[test]
fn a_changed_host_key_is_always_refused_with_file_and_line() {
    let mut sshd = TestSshd::start();
    let config = config_of(&sshd);
    let known = sshd.path("known_hosts");
    fs::write(&known, format!("# comment\n{}", sshd.known_hosts_line())).unwrap();
    sshd.kill();
    sshd.replace_host_key();
    sshd.restart();
    for options in ["", "?strict_host_key=accept-new"] {
        let error = refused(&sshd, &config, options);
        assert!(error.reason.contains("has changed"), "{error}");
        assert!(error.reason.contains(&format!("{known}:2")), "{error}");
        let help = error.help.unwrap();
        let remedy = format!("ssh-keygen -f {known} -R '[127.0.0.1]:{}'", sshd.port());
        assert!(help.contains(&remedy), "{help}");
    }
    assert!(!sshd.log().contains("Accepted"), "{}", sshd.log());
}

#[test]
fn a_revoked_host_key_is_refused() {
    let sshd = TestSshd::start();
    let config = config_of(&sshd);
    let line = sshd.known_hosts_line();
    let key = line.split_once(' ').unwrap().1;
    fs::write(sshd.path("known_hosts"), format!("{line}@revoked * {key}")).unwrap();
    let error = refused(&sshd, &config, "");
    assert!(error.reason.contains("is revoked by"), "{error}");
}

#[test]
fn a_host_certificate_counts_only_for_its_host_and_authority() {
    let sshd = TestSshd::start();
    keygen(&["-t", "ed25519", "-f", &sshd.path("ca")]);
    let sign = |principals: &str| {
        let status = Command::new("ssh-keygen")
            .args(["-q", "-s", &sshd.path("ca"), "-I", "host", "-h", "-n", principals])
            .arg(sshd.path("host_key.pub"))
            .status()
            .unwrap();
        assert!(status.success());
    };
    let ca = fs::read_to_string(sshd.path("ca.pub")).unwrap();
    let certificate = format!("HostCertificate {}", sshd.path("host_key-cert.pub"));
    for (principals, accepted) in [("127.0.0.1", true), ("other.example.org", false)] {
        sign(principals);
        let mut server = TestSshd::with_config("");
        server.kill();
        for name in ["host_key", "host_key.pub", "host_key-cert.pub"] {
            fs::copy(sshd.path(name), server.path(name)).unwrap();
        }
        let config = fs::read_to_string(server.path("config")).unwrap();
        fs::write(server.path("config"), format!("{certificate}\n{config}")).unwrap();
        server.restart();
        let config = config_of(&server);
        let known = format!("@cert-authority [127.0.0.1]:{} {ca}", server.port());
        fs::write(server.path("known_hosts"), known).unwrap();
        if accepted {
            let client = client(&config, user(&home(&server), server.user()), quick_limits());
            exec(&transport(&client, server.port(), ""), "true").unwrap();
        } else {
            let error = refused(&server, &config, "");
            assert!(error.reason.contains("not among its principals"), "{error}");
        }
    }
}

#[test]
fn a_key_that_is_not_authorized_is_refused_with_what_was_tried() {
    let sshd = TestSshd::start();
    let config = config_of(&sshd);
    let other = sshd.path("other");
    keygen(&["-t", "ed25519", "-f", &other]);
    let config = config.replace(&sshd.identity(), &other);
    let error = refused(&sshd, &config, "");
    assert!(error.reason.contains(&format!("refused: key {other}")), "{error}");
    assert!(error.reason.contains("the machine accepts publickey"), "{error}");
    assert!(error.help.unwrap().contains("authorized_keys"));
}

#[test]
fn missing_unprotected_and_encrypted_keys_are_said() {
    use std::os::unix::fs::PermissionsExt as _;
    let sshd = TestSshd::start();
    let config = config_of(&sshd);
    let missing = config.replace(&sshd.identity(), "/nowhere/key");
    let error = refused(&sshd, &missing, "");
    let reason = "cannot read the private key /nowhere/key: the file does not exist";
    assert!(error.reason.contains(reason), "{error}");
    assert!(error.help.unwrap().contains("`ssh-keygen -t ed25519 -f /nowhere/key`"));
    let open = sshd.path("open");
    fs::copy(sshd.identity(), &open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let error = refused(&sshd, &config.replace(&sshd.identity(), &open), "");
    assert!(error.reason.contains("is not protected: its mode is 644"), "{error}");
    assert_eq!(error.help.unwrap(), format!("run `chmod 600 {open}`"));
    let encrypted = sshd.path("encrypted");
    fs::copy(sshd.identity(), &encrypted).unwrap();
    let status = Command::new("ssh-keygen")
        .args(["-q", "-p", "-P", "", "-N", "correct horse", "-f", &encrypted])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let config = config.replace(&sshd.identity(), &encrypted);
    let error = refused(&sshd, &config, "");
    assert!(error.reason.contains("is encrypted"), "{error}");
    // With its passphrase it opens; with another one it says which secret is wrong.
    for (passphrase, accepted) in [("correct horse", true), ("wrong", false)] {
        let secrets = NamedSecrets(BTreeMap::from([("key-pass", passphrase.to_owned())]));
        let local = user(&home(&sshd), sshd.user());
        let client = client_with_secrets(&config, local, quick_limits(), secrets);
        let result = exec(&transport(&client, sshd.port(), "?passphrase_secret=key-pass"), "true");
        match accepted {
            true => assert!(result.unwrap().success()),
            false => assert!(result.unwrap_err().reason.contains("the secret key-pass")),
        }
    }
}

#[test]
fn a_public_key_as_identity_is_said_with_the_private_one() {
    let sshd = TestSshd::start();
    let config = config_of(&sshd);
    let public = format!("{}.pub", sshd.identity());
    let error = refused(&sshd, &config.replace(&sshd.identity(), &public), "");
    assert!(error.reason.contains(&format!("{public} is a public key")), "{error}");
    let remedy = format!("name the private key instead: {}", sshd.identity());
    assert_eq!(error.help.unwrap(), remedy);
    // Also as a secret, in other formats, and with any name.
    let openssh = fs::read_to_string(&public).unwrap();
    let exported = |format: &str| {
        let output =
            Command::new("ssh-keygen").args(["-e", "-m", format, "-f", &public]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for text in [openssh, exported("RFC4716")] {
        let secrets = NamedSecrets(BTreeMap::from([("key", text.clone())]));
        let local = user(&home(&sshd), sshd.user());
        let client = client_with_secrets(&config, local, quick_limits(), secrets);
        let transport = transport(&client, sshd.port(), "?identity_secret=key");
        let error = exec(&transport, "true").unwrap_err();
        assert!(error.reason.contains("key is a public key"), "{text}: {error}");
        let help = error.help.unwrap();
        assert!(help.contains("`orrery secret set key < FILE`"), "{help}");
    }
}

#[test]
fn a_key_may_be_a_secret_and_then_no_file_is_used() {
    let sshd = TestSshd::start();
    let key = fs::read_to_string(sshd.identity()).unwrap();
    let isolated = |secrets: NamedSecrets| {
        let runtime = SshRuntime::new(quick_limits()).unwrap();
        let local = user(&home(&sshd), sshd.user());
        let routes = RouteSource::isolated(local, vec![sshd.known_hosts()]);
        SshClient::new(runtime, routes, std::sync::Arc::new(secrets))
    };
    let client = isolated(NamedSecrets(BTreeMap::from([("key", key)])));
    exec(&transport(&client, sshd.port(), "?identity_secret=key"), "true").unwrap();
    // A model cannot use keys of the machine that runs this.
    let path = format!("?identity={}", sshd.identity());
    let error = exec(&transport(&client, sshd.port(), &path), "true").unwrap_err();
    assert!(error.reason.contains("does not count here"), "{error}");
    let error = exec(&transport(&client, sshd.port(), ""), "true").unwrap_err();
    assert!(error.reason.contains("there is no key, no SSH agent and no password"), "{error}");
    let client = isolated(NamedSecrets::default());
    let error = exec(&transport(&client, sshd.port(), "?identity_secret=key"), "true").unwrap_err();
    assert!(error.reason.contains("\"key\" not found"), "{error}");
}

#[test]
fn user_certificates_and_the_ssh_agent_authenticate() {
    let mut sshd = TestSshd::start();
    keygen(&["-t", "ed25519", "-f", &sshd.path("user_ca")]);
    keygen(&["-t", "ecdsa", "-f", &sshd.path("certified")]);
    let status = Command::new("ssh-keygen")
        .args(["-q", "-s", &sshd.path("user_ca"), "-I", "me", "-n", sshd.user()])
        .arg(sshd.path("certified.pub"))
        .status()
        .unwrap();
    assert!(status.success());
    sshd.kill();
    let config = fs::read_to_string(sshd.path("config")).unwrap();
    let trusted = format!("TrustedUserCAKeys {}\n{config}", sshd.path("user_ca.pub"));
    fs::write(sshd.path("config"), trusted).unwrap();
    sshd.restart();
    let config = config_of(&sshd).replace(&sshd.identity(), &sshd.path("certified"));
    let client = client(&config, user(&home(&sshd), sshd.user()), quick_limits());
    exec(&transport(&client, sshd.port(), ""), "true").unwrap();
    agent_authenticates(&sshd);
}

fn agent_authenticates(sshd: &TestSshd) {
    let socket = sshd.path("agent");
    let mut agent = Command::new("ssh-agent")
        .args(["-D", "-a", &socket])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    crate::support::wait_for("the agent listens", || PathBuf::from(&socket).exists());
    let add = |key: &str| {
        let status = Command::new("ssh-add")
            .args(["-q", key])
            .env("SSH_AUTH_SOCK", &socket)
            .status()
            .unwrap();
        assert!(status.success());
    };
    keygen(&["-t", "ed25519", "-f", &sshd.path("unrelated")]);
    add(&sshd.path("unrelated"));
    let reach = |config: &str| {
        let mut local = user(&home(sshd), sshd.user());
        local.agent_socket = Some(PathBuf::from(&socket));
        let client = client(config, local, quick_limits());
        exec(&transport(&client, sshd.port(), ""), "true")
    };
    // What is wrong with the configured key is said beside what the agent's keys got.
    let missing = reach(&config_of(sshd).replace(&sshd.identity(), "/nowhere/key"));
    // A public key selects that of the agent, which has more keys than a server accepts attempts.
    for number in 0..6 {
        let key = sshd.path(&format!("unrelated{number}"));
        keygen(&["-t", "ed25519", "-f", &key]);
        add(&key);
    }
    add(&sshd.identity());
    let public = format!("{}.pub", sshd.identity());
    let selected = reach(&config_of(sshd).replace(&sshd.identity(), &public));
    let removed = Command::new("ssh-add")
        .args(["-q", "-D"])
        .env("SSH_AUTH_SOCK", &socket)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(removed.success());
    add(&sshd.path("unrelated"));
    add(&sshd.identity());
    let config = config_of(sshd);
    let without_key: String = config.lines().skip(1).map(|line| format!("{line}\n")).collect();
    let result = reach(&without_key);
    agent.kill().unwrap();
    agent.wait().unwrap();
    result.unwrap();
    selected.unwrap();
    let error = missing.unwrap_err();
    assert!(
        error.reason.contains("refused: key") && error.reason.contains("/nowhere/key"),
        "{error}"
    );
}

/// The inner connection writes more than the tunnel allows at once, while its machine answers.
#[test]
fn large_files_go_through_a_jump_host() {
    let (gate, inner) = (TestSshd::start(), TestSshd::start());
    let known = gate.known_hosts_line() + &inner.known_hosts_line();
    fs::write(gate.path("both"), known).unwrap();
    let config = format!(
        "Host gate\nHostName 127.0.0.1\nPort {}\nIdentityFile {}\nHost *\nIdentityFile {}\nUserKnownHostsFile {}\nGlobalKnownHostsFile none\n",
        gate.port(),
        gate.identity(),
        inner.identity(),
        gate.path("both"),
    );
    let client = client(&config, user(&home(&gate), gate.user()), quick_limits());
    let through = transport(&client, inner.port(), "?jump=gate");
    let path = inner.path("large");
    let content: Vec<u8> = (0..=250).cycle().take(24 * 1024 * 1024).collect();
    let (sender, done) = std::sync::mpsc::channel();
    let (to, sent) = (path.clone(), content.clone());
    std::thread::spawn(move || {
        let uploaded = through.upload(&to, &sent, 0o600, &CancelToken::never());
        sender.send(uploaded).unwrap();
    });
    done.recv_timeout(Duration::from_secs(60)).expect("the upload stalls").unwrap();
    assert!(fs::read(path).unwrap() == content);
}

#[test]
fn jump_hosts_lead_to_a_machine_and_their_errors_name_them() {
    let (mut gate, inner) = (TestSshd::start(), TestSshd::start());
    let known = gate.known_hosts_line() + &inner.known_hosts_line();
    fs::write(gate.path("both"), known).unwrap();
    let config = format!(
        "Host gate\nHostName 127.0.0.1\nPort {}\nIdentityFile {}\nHost *\nIdentityFile {}\nUserKnownHostsFile {}\nGlobalKnownHostsFile none\n",
        gate.port(),
        gate.identity(),
        inner.identity(),
        gate.path("both"),
    );
    let local = user(&home(&gate), gate.user());
    let make = || client(&config, local.clone(), quick_limits());
    let client = make();
    let through = transport(&client, inner.port(), "?jump=gate");
    assert_eq!(exec(&through, "exit 8").unwrap().code, 8);
    assert_eq!(client.connections().len(), 2);
    assert_eq!(gate.log().matches("Accepted publickey").count(), 1);
    // Two machines behind it share the connection to the jump host.
    let options = format!("?jump=gate&identity={}", gate.identity());
    let other = transport(&client, gate.port(), &options);
    exec(&other, "true").unwrap();
    assert_eq!(gate.log().matches("Accepted publickey").count(), 2, "one is the inner connection");
    gate.kill();
    let error = exec(&transport(&make(), inner.port(), "?jump=gate"), "true").unwrap_err();
    assert!(
        error.reason.contains("jump host ") && error.reason.contains("cannot connect"),
        "{error}"
    );
}

#[test]
fn a_machine_that_refuses_is_not_asked_again_at_once() {
    let mut sshd = TestSshd::start();
    let (_client, transport) = connected(&sshd);
    sshd.kill();
    let error = exec(&transport, "true").unwrap_err();
    assert!(error.reason.starts_with("cannot connect"), "{error}");
    assert!(error.help.as_deref().unwrap().contains("start its SSH server"));
    let began = std::time::Instant::now();
    let again = exec(&transport, "true").unwrap_err();
    assert!(
        again.reason.contains("cannot connect") && again.reason.contains("next attempt in"),
        "{again}"
    );
    assert_eq!(again.help, error.help);
    assert!(began.elapsed().as_millis() < 500);
    let state = transport.state();
    assert!(matches!(state.circuit, orrery_ssh::Circuit::Open { failures: 1, .. }), "{state:?}");
}
