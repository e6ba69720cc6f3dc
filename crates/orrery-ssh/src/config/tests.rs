//! Resolution of destinations: tables, and a property of the first value.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn local() -> LocalUser {
    LocalUser {
        name: "me".to_owned(),
        uid: 1000,
        home: PathBuf::from("/home/me"),
        host_name: "desk.example.org".to_owned(),
        agent_socket: None,
    }
}

fn file(text: &str) -> ConfigFile {
    ConfigFile { name: "config".to_owned(), text: text.to_owned() }
}

fn parse(text: &str) -> SshConfig {
    SshConfig::parse(&[file(text)], &mut |_| Vec::new()).unwrap()
}

fn to(host: &str) -> HostRequest {
    HostRequest { host: host.to_owned(), ..HostRequest::default() }
}

fn resolve(text: &str, host: &str) -> Destination {
    parse(text).resolve(&to(host), &local()).unwrap()
}

#[test]
fn defaults_are_those_of_openssh() {
    let found = resolve("", "web1");
    assert_eq!(found.address(), "me@web1:22");
    assert_eq!(found.host_keys, HostKeyPolicy::Known);
    assert_eq!(found.host_key_name(), "web1");
    assert_eq!(found.user_known_hosts[0], PathBuf::from("/home/me/.ssh/known_hosts"));
    assert!(found.identities.is_empty() && found.jumps.is_empty() && !found.identities_only);
}

#[test]
fn values_of_matching_sections_are_used() {
    let text = "\
User everyone
Host web* !web9
    HostName %h.example.org
    Port 2222
    IdentityFile ~/.ssh/%r@%h
    IdentityFile /keys/two
    User ignored
    StrictHostKeyChecking accept-new
    ConnectTimeout 1m30s
Host *
    Port 22
    IdentityFile /keys/three
    HostKeyAlias Fleet
    UserKnownHostsFile /a /b
";
    let found = resolve(text, "web1");
    assert_eq!(found.address(), "everyone@web1.example.org:2222");
    let files: Vec<_> = found.identities.iter().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(files, ["/home/me/.ssh/everyone@web1.example.org", "/keys/two", "/keys/three"]);
    assert_eq!(found.host_keys, HostKeyPolicy::AcceptNew);
    assert_eq!(found.connect_timeout, Some(Duration::from_secs(90)));
    assert_eq!(found.host_key_name(), "fleet");
    assert_eq!(found.user_known_hosts, [PathBuf::from("/a"), PathBuf::from("/b")]);
    assert_eq!(resolve(text, "web9").address(), "everyone@web9:22");
}

#[test]
fn the_request_wins_over_the_files() {
    let config = parse("User file\nPort 1\nHostName file\nProxyJump file\nIdentityFile /file\n");
    let request = HostRequest {
        host: "web1".to_owned(),
        address: Some("192.0.2.1".to_owned()),
        user: Some("asked".to_owned()),
        port: Some(2),
        identities: vec!["/asked".to_owned()],
        jumps: Some(Vec::new()),
        ..HostRequest::default()
    };
    let found = config.resolve(&request, &local()).unwrap();
    assert_eq!(found.address(), "asked@192.0.2.1:2");
    assert_eq!(found.identities, [PathBuf::from("/asked"), PathBuf::from("/file")]);
    assert!(found.jumps.is_empty());
}

#[test]
fn errors_name_the_line() {
    for (text, expected) in [
        ("\nPort 0", "config:2: Port is not a number from 1 to 65535"),
        ("Port 1 2", "config:1: port has more than one value"),
        ("User \"x", "config:1: a quotation mark is missing"),
        ("IdentitiesOnly maybe", "config:1: identitiesonly is neither yes nor no"),
        ("ProxyJump a,,b", "config:1: ProxyJump: \"\" is not [user@]host[:port]"),
        ("ProxyCommand nc %h %p", "config:1: ProxyCommand is not supported: use ProxyJump"),
        ("HostName %x", "web1:0: \"%x\" has the unknown token %x"),
        ("HostName -oProxyCommand=x", "web1:0: the host name \"-oproxycommand=x\" is not valid"),
        ("User a;b", "web1:0: the user name \"a;b\" is not valid"),
        (
            "IdentityFile ~other/x",
            "web1:0: \"~other/x\": home directories of other users are not supported",
        ),
    ] {
        let found = SshConfig::parse(&[file(text)], &mut |_| Vec::new())
            .and_then(|config| config.resolve(&to("web1"), &local()));
        assert_eq!(found.unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn an_unsupported_match_is_reported_once_and_skipped() {
    let config = parse("Match exec true\nUser a\nMatch host x\nUser b\nMatch all\nUser c\n");
    assert_eq!(config.warnings().len(), 1);
    assert_eq!(
        config.warnings()[0].to_string(),
        "config:1: Match is not supported; its section is skipped"
    );
    assert_eq!(config.resolve(&to("x"), &local()).unwrap().user, "c");
}

#[test]
fn included_files_keep_the_condition_of_their_line() {
    let files: HashMap<&str, &str> = HashMap::from([
        ("top", "User top\nHost web1\nPort 1\n"),
        ("inner", "Host *\nPort 7\n"),
        ("loop", "Include loop\n"),
    ]);
    let mut include = |pattern: &str| -> Vec<ConfigFile> {
        let text = files.get(pattern).copied();
        let included =
            text.map(|text| ConfigFile { name: pattern.to_owned(), text: text.to_owned() });
        included.into_iter().collect()
    };
    let text = "Include top missing\nPort 2\nHost db\nInclude inner\nUser db\n";
    let config = SshConfig::parse(&[file(text)], &mut include).unwrap();
    let place = |host: &str| config.resolve(&to(host), &local()).unwrap().address();
    assert_eq!(place("web1"), "top@web1:1");
    // `Port 2` precedes the section, and `Host *` of the included file is inside of `Host db`.
    assert_eq!(place("other"), "top@other:2");
    let config = SshConfig::parse(&[file("Host db\nInclude inner\n")], &mut include).unwrap();
    assert_eq!(config.resolve(&to("db"), &local()).unwrap().port, 7);
    assert_eq!(config.resolve(&to("web"), &local()).unwrap().port, 22);
    let error = SshConfig::parse(&[file("Include loop")], &mut include).unwrap_err();
    assert!(error.reason.contains("nested"), "{error}");
}

#[test]
fn a_route_has_the_jump_hosts_in_order() {
    let config = parse(
        "Host inside\nProxyJump ops@b:2200,c\nHost b\nProxyJump a\nHost c\nProxyJump ignored\n\
         Host x\nProxyJump y\nHost y\nProxyJump x\n",
    );
    let route = |host: &str| config.route(&to(host), &local());
    let places: Vec<_> = route("inside").unwrap().iter().map(Destination::address).collect();
    assert_eq!(places, ["me@a:22", "ops@b:2200", "me@c:22", "me@inside:22"]);
    assert!(route("x").unwrap_err().reason.contains("loop"));
}

#[test]
fn jump_hosts_are_parsed() {
    let jump = |host: &str, user: Option<&str>, port| {
        Some(JumpHost { host: host.to_owned(), user: user.map(str::to_owned), port })
    };
    for (text, expected) in [
        ("a", jump("a", None, None)),
        ("jo@a:22", jump("a", Some("jo"), Some(22))),
        ("ssh://jo@a:22/", jump("a", Some("jo"), Some(22))),
        ("[2001:db8::1]:22", jump("2001:db8::1", None, Some(22))),
        ("2001:db8::1", jump("2001:db8::1", None, None)),
        ("", None),
        ("@a", None),
        ("a:port", None),
        ("[a", None),
    ] {
        assert_eq!(JumpHost::parse(text), expected, "{text}");
    }
}

/// Patterns of a section and its settings.
type Section = (Vec<String>, Vec<(usize, u16)>);

fn sections() -> impl Strategy<Value = Vec<Section>> {
    let pattern = prop::sample::select(vec!["*", "a", "b", "!a", "a*", "?", "!b*", "ab"]);
    let patterns = prop::collection::vec(pattern.prop_map(str::to_owned), 1..4);
    let settings = prop::collection::vec((0_usize..3, 1_u16..100), 0..4);
    prop::collection::vec((patterns, settings), 0..8)
}

fn render(sections: &[Section]) -> String {
    let mut text = String::new();
    for (patterns, settings) in sections {
        text.push_str(&format!("Host {}\n", patterns.join(" ")));
        for (keyword, value) in settings {
            text.push_str(&match keyword {
                0 => format!("  Port {value}\n"),
                1 => format!("  User u{value}\n"),
                _ => format!("  HostName h{value}\n"),
            });
        }
    }
    text
}

proptest! {
    /// A section after the first value of a keyword never changes it.
    #[test]
    fn the_first_value_wins(sections in sections(), host in "[ab]{1,3}") {
        let text = render(&sections);
        let found = resolve(&text, &host);
        let holds = |patterns: &[String]| {
            let parsed: Vec<Pattern> = patterns.iter().map(|text| Pattern::parse(text)).collect();
            matches_list(&parsed, &host)
        };
        let first = |wanted: usize| {
            sections.iter().filter(|(patterns, _)| holds(patterns)).flat_map(|(_, all)| all)
                .find(|(keyword, _)| *keyword == wanted).map(|(_, value)| *value)
        };
        prop_assert_eq!(found.port, first(0).unwrap_or(22));
        prop_assert_eq!(found.user, first(1).map_or("me".to_owned(), |value| format!("u{value}")));
        prop_assert_eq!(found.host, first(2).map_or(host.clone(), |value| format!("h{value}")));
    }

    /// Any text is a configuration or an error, and never a panic.
    #[test]
    fn any_text_is_parsed(text in "(?s).{0,200}") {
        if let Ok(config) = SshConfig::parse(&[file(&text)], &mut |_| Vec::new()) {
            let _ = config.route(&to("a"), &local());
        }
        crate::known_hosts::KnownHosts::default().add_file("kh", &text);
    }
}
