//! Tests of the inventory.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn resolve(document: Value) -> HostInventory {
    HostInventory::resolve(&document).unwrap()
}

fn address(of: &HostInventory, name: &str) -> String {
    of.get(name).unwrap().address.to_string()
}

fn refused(document: Value) -> String {
    let problems = HostInventory::resolve(&document).unwrap_err();
    let text = |problem: &InventoryProblem| {
        format!("{problem} {}", problem.help().unwrap_or_default()).trim().to_owned()
    };
    problems.iter().map(text).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_host_beats_its_groups_and_those_beat_the_defaults() {
    let inventory = resolve(json!({
        "defaults": {"user": "deploy", "identity": "~/.ssh/id", "sudo": true, "strict_host_key": "yes"},
        "groups": {
            "web": {"hosts": ["web1", "web2", "web[3..9].example.org"], "user": "www"},
            "all": {"groups": ["web"], "hosts": ["db1"], "user": "ops", "port": 2200},
        },
        "hosts": {"web1": {"address": "192.0.2.11", "port": 2222}, "lone": null},
    }));
    assert_eq!(inventory.hosts().count(), 11);
    let options = "?identity=%7E/.ssh/id&strict_host_key=yes&sudo=true".replace("%7E", "~");
    assert_eq!(address(&inventory, "web1"), format!("ssh://www@192.0.2.11:2222{options}"));
    assert_eq!(
        address(&inventory, "web4.example.org"),
        format!("ssh://www@web4.example.org:2200{options}")
    );
    assert_eq!(address(&inventory, "db1"), format!("ssh://ops@db1:2200{options}"));
    assert_eq!(address(&inventory, "lone"), format!("ssh://deploy@lone{options}"));
    let web1 = inventory.get("web1").unwrap();
    assert_eq!(web1.groups, ["all", "web"]);
    let source = |key| web1.values[key].source.to_string();
    assert_eq!(
        ["address", "user", "port", "sudo"].map(source),
        ["host", "group web", "host", "defaults"]
    );
    assert_eq!(inventory.get("db1").unwrap().values["address"].source, HostValueSource::Name);
}

#[test]
fn groups_that_disagree_are_named() {
    let groups = json!({
        "web": {"hosts": ["a"], "user": "www"},
        "lab": {"hosts": ["a"], "user": "lab"},
    });
    let text = refused(json!({"groups": groups}));
    assert_eq!(
        text,
        "groups.lab.user: groups web and lab give host a a different user: www and lab \
         give a its own user under hosts, or nest one group in the other"
    );
    resolve(json!({"groups": groups, "hosts": {"a": {"user": "root"}}}));
    let nested = json!({"groups": {
        "web": {"hosts": ["a"], "user": "www", "groups": ["lab"]},
        "lab": {"hosts": ["a"], "user": "lab"},
    }});
    assert_eq!(address(&resolve(nested), "a"), "ssh://lab@a");
}

#[test]
fn problems_have_path_reason_and_help() {
    for (document, expected) in [
        (json!([]), "expected a mapping, but it is a list"),
        (json!({"host": {}}), "host: unknown key \"host\" did you mean hosts?"),
        (
            json!({"hosts": {"a": {"usr": "x"}}}),
            "hosts.a.usr: unknown key \"usr\" did you mean user?",
        ),
        (
            json!({"hosts": {"a": {"qqqq": 1}}}),
            "hosts.a.qqqq: unknown key \"qqqq\" expected one of address, port,",
        ),
        (json!({"hosts": {"a": {"port": 0}}}), "hosts.a.port: \"0\" is no port"),
        (json!({"hosts": {"a": {"user": []}}}), "hosts.a.user: expected a text, a number"),
        (json!({"hosts": {"a b": null}}), "hosts.a b: \"a b\" is no name of a host"),
        (
            json!({"hosts": {"a": {"address": "x y"}}}),
            "hosts.a.address: \"x y\" is no name or address",
        ),
        (
            json!({"hosts": {"a": {"address": "local:", "user": "x"}}}),
            "hosts.a.user: local: is not reached",
        ),
        (json!({"hosts": {"a": {"jump": "a"}}}), "hosts.a.jump: the hosts that a is reached"),
        (json!({"groups": {"g": {"hosts": "a"}}}), "groups.g.hosts: expected a list of names"),
        (
            json!({"groups": {"g": {"hosts": ["a[2..1]"]}}}),
            "groups.g.hosts[0]: \"a[2..1]\" is no range",
        ),
        (json!({"groups": {"g": {"hosts": ["x*"]}}}), "groups.g.hosts[0]: \"x*\" matches no host"),
        (json!({"groups": {"g": {"address": "a"}}}), "groups.g.address: unknown key"),
        (
            json!({"groups": {"g": {"groups": ["web"]}, "wbe": {}}}),
            "groups.g.groups[0]: there is no group \"web\" did you mean wbe?",
        ),
        (
            json!({"groups": {"g": {"groups": ["h"]}, "h": {"groups": ["g"]}}}),
            "groups.g: group g contains itself",
        ),
        (
            json!({"hosts": {"a": {"sudo": "perhaps"}}}),
            "hosts.a.sudo: sudo must be true, false or doas",
        ),
    ] {
        let text = refused(document.clone());
        assert!(text.starts_with(expected), "{document}: {text}");
    }
}

#[test]
fn several_problems_are_reported_together() {
    let text = refused(json!({"hosts": {"a": {"usr": 1, "port": "x"}}, "grups": {}}));
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn hosts_on_the_way_have_their_own_values() {
    let inventory = resolve(json!({
        "defaults": {"user": "deploy", "jump": "bastion"},
        "hosts": {
            "bastion": {"address": "198.51.100.1", "user": "ops"},
            "inner": {"address": "10.0.0.1"},
            "far": {"jump": "inner"},
            "other": {"jump": "x@gate:2222"},
        },
    }));
    assert_eq!(address(&inventory, "bastion"), "ssh://ops@198.51.100.1");
    assert_eq!(address(&inventory, "inner"), "ssh://deploy@10.0.0.1?jump=ops%40198.51.100.1");
    assert_eq!(
        address(&inventory, "far"),
        "ssh://deploy@far?jump=ops%40198.51.100.1,deploy%4010.0.0.1"
    );
    assert_eq!(address(&inventory, "other"), "ssh://deploy@other?jump=x%40gate:2222");
    let cycle = json!({"hosts": {"a": {"jump": "b"}, "b": {"jump": "c"}, "c": {"jump": "b"}}});
    assert!(refused(cycle).contains("lead back"));
}

#[test]
fn patterns_select_declared_hosts() {
    let inventory = resolve(json!({
        "groups": {"all": {"hosts": ["*"], "port": 22}, "web": {"hosts": ["web[1..2]"]}},
        "hosts": {"db1": null},
    }));
    assert_eq!(inventory.get("db1").unwrap().groups, ["all"]);
    assert_eq!(inventory.get("web2").unwrap().groups, ["all", "web"]);
    assert!(inventory.get("web3").is_none());
}

#[test]
fn explicit_addresses_are_kept() {
    let inventory = resolve(json!({
        "defaults": {"user": "deploy", "port": 22},
        "hosts": {
            "a": {"address": "ssh://root@192.0.2.1:2222?sudo=doas", "sudo": false},
            "b": {"address": "local:"},
            "c": {"address": "none:"},
            "d": {"address": "2001:db8::1"},
        },
    }));
    assert_eq!(address(&inventory, "a"), "ssh://root@192.0.2.1:2222?sudo=doas");
    assert_eq!(address(&inventory, "b"), "local:");
    assert_eq!(address(&inventory, "c"), "none:");
    assert_eq!(address(&inventory, "d"), "ssh://deploy@[2001:db8::1]:22");
}

/// Documents of a few keys and values, right and wrong.
fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..70_000u32).prop_map(Value::from),
        prop_oneof!["[a-c*]", Just("a[1..3]".to_owned()), Just("local:".to_owned())]
            .prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("hosts"),
        Just("groups"),
        Just("defaults"),
        Just("user"),
        Just("jump"),
        Just("address"),
        Just("a"),
        Just("b"),
        Just("port"),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::vec((key.clone(), inner), 0..4).prop_map(|entries| {
                let entries = entries.into_iter().map(|(key, value)| (key.to_owned(), value));
                Value::Object(entries.collect())
            }),
        ]
    })
}

proptest! {
    /// Any document is resolved or refused, always the same way.
    #[test]
    fn any_document_has_an_answer(document in documents()) {
        let one = HostInventory::resolve(&document);
        prop_assert_eq!(&one, &HostInventory::resolve(&document));
        if let Err(problems) = one {
            prop_assert!(!problems.is_empty());
        }
    }
}
