//! Tests of placements.

use proptest::prelude::*;

use super::*;

fn inventory() -> Inventory {
    let address = |name: &str, address: &str| (name.to_owned(), address.to_owned());
    Inventory {
        addresses: BTreeMap::from([
            address("by-ssh", "ssh://root@192.0.2.1:22?python=python3"),
            address("by-model", "local:"),
            address("lab-ssh", "ssh://root@192.0.2.2"),
        ]),
        project_patterns: vec!["lab-*".to_owned()],
        environment_patterns: vec!["node?".to_owned()],
        enrolled: BTreeMap::from([
            ("webserver1".to_owned(), Enrolment::Active),
            ("gone".to_owned(), Enrolment::Revoked),
            ("node1".to_owned(), Enrolment::Active),
        ]),
        ..Inventory::default()
    }
    .on_host("box.example.org")
}

fn unknown(similar: Option<&str>) -> Placement {
    Placement::Unknown { similar: similar.map(str::to_owned) }
}

#[test]
fn an_agent_is_this_machine_only_if_declared() {
    let inventory = inventory();
    for (agent, locality) in [
        ("localhost", Locality::OwnName),
        ("internal", Locality::OwnName),
        ("box", Locality::HostName),
        ("BOX.example.org", Locality::HostName),
        ("by-model", Locality::Model),
        ("lab-3", Locality::Project),
        ("node2", Locality::Environment),
    ] {
        assert_eq!(inventory.placement_of(agent), Placement::Local(locality), "{agent}");
    }
    for agent in ["", "box.example.com", "web2", "lab", "node22"] {
        assert_eq!(inventory.placement_of(agent).as_str(), "unknown", "{agent}");
    }
    assert_eq!(Inventory::all_local().placement_of("x"), Placement::Local(Locality::Project));
    assert_eq!(Inventory::default().placement_of("box"), unknown(None));
}

#[test]
fn an_enrolled_or_addressed_agent_is_never_this_machine() {
    let inventory = inventory();
    assert_eq!(inventory.placement_of("webserver1"), Placement::Remote);
    assert_eq!(inventory.placement_of("node1"), Placement::Remote, "whatever a pattern says");
    assert_eq!(inventory.placement_of("gone"), Placement::Revoked);
    assert_eq!(inventory.placement_of("lab-ssh").as_str(), "ssh", "whatever a pattern says");
    let mut enrolled = inventory;
    enrolled.enrolled.insert("localhost".to_owned(), Enrolment::Revoked);
    assert!(!enrolled.placement_of("localhost").has_machine());
}

#[test]
fn a_misspelt_name_is_recognized_and_a_neighbour_is_not() {
    let inventory = inventory();
    assert_eq!(inventory.placement_of("webserevr1"), unknown(Some("webserver1")));
    assert_eq!(inventory.placement_of("webserver2"), unknown(None), "another machine");
    assert_eq!(inventory.placement_of("localhots"), unknown(Some("localhost")));
}

#[test]
fn remedies_fit_the_program_that_deploys() {
    let nowhere = unknown(Some("web1"));
    let help = |deployer| nowhere.help("wbe1", deployer).unwrap();
    assert!(help(Deployer::Command).starts_with("did you mean web1?"));
    assert!(help(Deployer::Command).contains("`orrery.local_agents` in project.yml"));
    assert!(help(Deployer::Server).contains("`orrery agent invite wbe1`"));
    assert!(help(Deployer::Server).contains("setting local_agents"));
    let ssh = inventory().placement_of("by-ssh");
    assert!(ssh.reason("a").ends_with("ssh://root@192.0.2.1:22"), "{}", ssh.reason("a"));
    assert_eq!(ssh.help("a", Deployer::Command), None);
    assert_eq!(Placement::Remote.help("a", Deployer::Server), None);
}

const NAMES: [&str; 5] = ["a", "ab", "localhost", "box", "web1"];
const ADDRESSES: [&str; 5] = ["local:", "none:", "ssh://h1", "ssh://u@h2:22", "?"];

fn hosts(of: &[(usize, usize)]) -> Arc<HostInventory> {
    let hosts: serde_json::Map<String, serde_json::Value> = of
        .iter()
        .map(|(name, address)| {
            let address = ADDRESSES[address % 4];
            (NAMES[*name].to_owned(), serde_json::json!({ "address": address }))
        })
        .collect();
    Arc::new(HostInventory::resolve(&serde_json::json!({ "hosts": hosts })).unwrap())
}

/// Pairs of name and address.
fn pairs() -> impl Strategy<Value = Vec<(usize, usize)>> {
    proptest::collection::vec((0..NAMES.len(), 0..ADDRESSES.len()), 0..4)
}

/// Order of the strength of a placement's source.
fn strength(placement: &Placement) -> u32 {
    match placement {
        Placement::Provisioned | Placement::Local(Locality::EnvironmentAddress) => 0,
        Placement::Ssh { source, .. }
        | Placement::Nowhere(source)
        | Placement::Invalid { source, .. } => match source {
            AddressSource::Environment(_) => 0,
            AddressSource::Model => 1,
            AddressSource::Inventory => 2,
        },
        Placement::Remote | Placement::Revoked => 3,
        Placement::Local(Locality::Model) => 4,
        Placement::Local(Locality::Inventory) => 5,
        Placement::Local(Locality::OwnName) => 6,
        Placement::Local(Locality::HostName) => 7,
        Placement::Local(Locality::Project) => 8,
        Placement::Local(Locality::Environment) => 9,
        Placement::Unknown { .. } => 10,
    }
}

prop_compose! {
    fn any_inventory()(setting in pairs(), model in pairs(), file in pairs(),
        enrolled in proptest::collection::vec((0..NAMES.len(), any::<bool>()), 0..3),
        own in any::<bool>(), project in any::<bool>(), environment in any::<bool>()) -> Inventory {
        let map = |of: &[(usize, usize)]| of.iter()
            .map(|(name, address)| (NAMES[*name].to_owned(), ADDRESSES[*address].to_owned()))
            .collect::<BTreeMap<_, _>>();
        let inventory = Inventory {
            environment_addresses: map(&setting),
            addresses: map(&model),
            hosts: hosts(&file),
            enrolled: enrolled.into_iter().map(|(name, active)| {
                let state = if active { Enrolment::Active } else { Enrolment::Revoked };
                (NAMES[name].to_owned(), state)
            }).collect(),
            project_patterns: if project { vec!["a*".to_owned()] } else { Vec::new() },
            environment_patterns: if environment { vec!["*b*".to_owned()] } else { Vec::new() },
            ..Inventory::default()
        };
        if own { inventory.on_host("box.example.org") } else { inventory }
    }
}

/// Placements by each source alone.
fn alone(of: &Inventory, agent: &str) -> Vec<Placement> {
    let empty = Inventory::default;
    [
        Inventory { environment_addresses: of.environment_addresses.clone(), ..empty() },
        Inventory { addresses: of.addresses.clone(), ..empty() },
        Inventory { hosts: Arc::clone(&of.hosts), ..empty() },
        Inventory { enrolled: of.enrolled.clone(), ..empty() },
        Inventory { host_names: of.host_names.clone(), ..empty() },
        Inventory { project_patterns: of.project_patterns.clone(), ..empty() },
        Inventory { environment_patterns: of.environment_patterns.clone(), ..empty() },
    ]
    .iter()
    .map(|one| one.placement_of(agent))
    .collect()
}

/// Placement without the enrolment that a stronger source overrides.
fn without_enrolment(placement: Placement) -> Placement {
    match placement {
        Placement::Ssh { address, source, .. } => {
            Placement::Ssh { address, source, enrolment: None }
        }
        Placement::Unknown { .. } => Placement::Unknown { similar: None },
        other => other,
    }
}

proptest! {
    #[test]
    fn the_strongest_source_wins(inventory in any_inventory(), agent in 0..NAMES.len()) {
        let agent = NAMES[agent];
        let found = inventory.placement_of(agent);
        let strongest = alone(&inventory, agent).into_iter().min_by_key(strength).unwrap();
        prop_assert_eq!(without_enrolment(found), without_enrolment(strongest));
    }

    #[test]
    fn an_agent_with_another_machine_never_becomes_local(
        inventory in any_inventory(), agent in 0..NAMES.len(),
    ) {
        let agent = NAMES[agent];
        let declared = alone(&inventory, agent);
        let is_elsewhere = |placement: &Placement| strength(placement) <= 3;
        if let Placement::Local(locality) = inventory.placement_of(agent) {
            let by_setting = locality == Locality::EnvironmentAddress;
            prop_assert!(by_setting || !declared.iter().any(is_elsewhere));
        }
    }

    #[test]
    fn every_reason_names_its_source(inventory in any_inventory(), agent in 0..NAMES.len()) {
        let placement = inventory.placement_of(NAMES[agent]);
        let reason = placement.reason(NAMES[agent]);
        let word = match strength(&placement) {
            0 => "agent_placements",
            1 | 4 => "std::AgentConfig",
            2 | 5 => "the inventory",
            3 => "remote agent",
            6 => "its name",
            7 => "host name",
            8 => "project.yml",
            9 => "setting local_agents",
            _ => "not known",
        };
        prop_assert!(reason.contains(word), "{}", reason);
        prop_assert_eq!(placement.help(NAMES[agent], Deployer::Server).is_none(), placement.has_machine());
    }
}

#[test]
fn the_most_specific_pattern_of_the_setting_applies() {
    let entries = [
        ("*", "none:"),
        ("web*", "ssh://deploy@{agent}.example.org"),
        ("w*", "none:"),
        ("web1", "local:"),
        ("we??", "none:"),
    ];
    let expect = |inventory: &Inventory| {
        let at = |agent: &str| inventory.placement_of(agent);
        assert_eq!(at("web1"), Placement::Local(Locality::EnvironmentAddress));
        assert_eq!(at("web2").address().as_deref(), Some("ssh://deploy@web2.example.org"));
        assert_eq!(at("x"), Placement::Nowhere(AddressSource::Environment("*".to_owned())));
        assert_eq!(at("web b").as_str(), "unknown", "its name is no host name");
    };
    let of = |entry: &(&str, &str)| (entry.0.to_owned(), entry.1.to_owned());
    let environment_addresses: BTreeMap<_, _> = entries.iter().map(of).collect();
    expect(&Inventory { environment_addresses, ..Inventory::default() });
    let environment_addresses: BTreeMap<_, _> = entries.iter().rev().map(of).collect();
    expect(&Inventory { environment_addresses, ..Inventory::default() });
}

#[test]
fn a_conflict_with_a_remote_agent_is_shown() {
    let mut inventory = inventory();
    inventory.enrolled.insert("by-ssh".to_owned(), Enrolment::Active);
    let placement = inventory.placement_of("by-ssh");
    assert_eq!(placement.as_str(), "ssh");
    assert!(placement.reason("by-ssh").contains("remote agent that serves it is not used"));
    inventory.enrolled.insert("by-model".to_owned(), Enrolment::Active);
    assert_eq!(inventory.placement_of("by-model"), Placement::Remote);
}

#[test]
fn an_agent_without_a_machine_has_three_remedies() {
    for deployer in [Deployer::Command, Deployer::Server] {
        let help = unknown(None).help("web1", deployer).unwrap();
        for remedy in
            ["orrery agent invite web1", "inventory.yml", "std::AgentConfig", "local_agents"]
        {
            assert!(help.contains(remedy), "{help}");
        }
    }
}

/// The warning of an invitation agrees with the placement after the machine has joined.
#[test]
fn an_invitation_says_what_joining_does() {
    let mut inventory = inventory();
    inventory.addresses.insert("nowhere".to_owned(), "none:".to_owned());
    inventory.addresses.insert("broken".to_owned(), "ssh://".to_owned());
    inventory.environment_addresses.insert("here".to_owned(), "local:".to_owned());
    for agent in
        ["by-ssh", "by-model", "lab-3", "node2", "box", "localhost", "nowhere", "broken", "here"]
    {
        let said = inventory.placement_of(agent).on_invitation(agent).unwrap();
        let mut joined = inventory.clone();
        joined.enrolled.insert(agent.to_owned(), Enrolment::Active);
        let is_used = joined.placement_of(agent) == Placement::Remote;
        assert_eq!(said.contains("are applied on its machine instead"), is_used, "{said}");
        assert_eq!(said.contains("remove the address from"), !is_used, "{said}");
    }
    for agent in ["web2", "gone", "webserver1"] {
        assert_eq!(inventory.placement_of(agent).on_invitation(agent), None, "{agent}");
    }
}
