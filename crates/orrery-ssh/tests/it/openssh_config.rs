//! The same configuration, resolved by OpenSSH's client and by this crate.

use std::path::PathBuf;
use std::process::Command;

use orrery_ssh::config::{ConfigFile, HostRequest, LocalUser, SshConfig};

const CASES: [&str; 12] = [
    "",
    "User jo\nPort 2222\n",
    "Host a\n User one\nHost *\n User two\n Port 7\n",
    "Host * !a\n User notme\nHost a b\n HostName %h.example.org\n",
    "Host=a\nUser = jo\nPort=\"99\"\n",
    "Host a?\n User x\nHost ?\n User y\n",
    "Host \"a\" 'b'\n User quoted\n",
    "host A\n user upper\nhost a\n user lower # comment\n",
    "IdentityFile /k/one\nHost a\n IdentityFile /k/two\n IdentityFile /k/one\n IdentitiesOnly yes\n",
    "ConnectTimeout 90\nHostKeyAlias fleet\nUserKnownHostsFile /x /y\n",
    "Host a\n ProxyJump ops@bastion:2200\nHost *\n ProxyJump other\n",
    "Match all\nUser matched\nHost b\nStrictHostKeyChecking accept-new\n",
];

/// Values of `ssh -G`, as text.
fn by_openssh(file: &str, host: &str) -> Vec<String> {
    let output = Command::new("ssh").args(["-G", "-F", file, "--", host]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut values: Vec<String> = text
        .lines()
        .filter(|line| KEYWORDS.contains(&line.split(' ').next().unwrap()))
        .filter(|line| !line.starts_with("identityfile ~/.ssh/id_"))
        .map(str::to_owned)
        .collect();
    values.sort();
    values
}

const KEYWORDS: [&str; 9] = [
    "hostname",
    "user",
    "port",
    "identityfile",
    "identitiesonly",
    "proxyjump",
    "hostkeyalias",
    "connecttimeout",
    "userknownhostsfile",
];

fn by_us(text: &str, host: &str, local: &LocalUser) -> Vec<String> {
    let file = ConfigFile { name: "config".to_owned(), text: text.to_owned() };
    let config = SshConfig::parse(&[file], &mut |_| Vec::new()).unwrap();
    let request = HostRequest { host: host.to_owned(), ..HostRequest::default() };
    let found = config.resolve(&request, local).unwrap();
    let known: Vec<String> =
        found.user_known_hosts.iter().map(|path| path.display().to_string()).collect();
    let mut values = vec![
        format!("hostname {}", found.host),
        format!("user {}", found.user),
        format!("port {}", found.port),
        format!("identitiesonly {}", if found.identities_only { "yes" } else { "no" }),
        format!(
            "connecttimeout {}",
            found.connect_timeout.map_or("none".to_owned(), |limit| limit.as_secs().to_string())
        ),
        format!("userknownhostsfile {}", known.join(" ")),
    ];
    values.extend(found.identities.iter().map(|path| format!("identityfile {}", path.display())));
    values.extend(found.host_key_alias.iter().map(|alias| format!("hostkeyalias {alias}")));
    let jump = |jump: &orrery_ssh::config::JumpHost| {
        let user = jump.user.as_ref().map_or(String::new(), |user| format!("{user}@"));
        let port = jump.port.map_or(String::new(), |port| format!(":{port}"));
        format!("proxyjump {user}{}{port}", jump.host)
    };
    values.extend(found.jumps.iter().map(jump));
    values.sort();
    values
}

#[test]
fn openssh_resolves_the_same_destination() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let path = path.to_str().unwrap();
    std::fs::write(path, "").unwrap();
    // The home directory of `-G` is that of the account, not of the environment.
    let defaults = by_openssh(path, "a");
    let value = |keyword: &str| {
        let line = defaults.iter().find(|line| line.starts_with(keyword)).unwrap();
        line.split(' ').nth(1).unwrap().to_owned()
    };
    let home = value("userknownhostsfile");
    let local = LocalUser {
        name: value("user"),
        uid: 0,
        home: PathBuf::from(home.strip_suffix("/.ssh/known_hosts").unwrap()),
        host_name: "desk".to_owned(),
        agent_socket: None,
    };
    for text in CASES {
        std::fs::write(path, text).unwrap();
        for host in ["a", "b", "ab", "A"] {
            let expected = by_openssh(path, host);
            assert_eq!(by_us(text, host, &local), expected, "{text}\nhost {host}");
        }
    }
}
