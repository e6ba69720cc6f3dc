//! Facts of a machine: the script that collects them, and their form as facts of the resource
//! `std::MachineFacts[MACHINE,name=MACHINE]`.
//!
//! Machines are not trusted: what they report is bounded and validated when it is read, by the
//! server and by the compiler.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{Attributes, Fact, InvalidId, Resource, ResourceId};

/// Entity of the resource whose facts are those of a machine.
pub const MACHINE_FACTS_ENTITY: &str = "std::MachineFacts";

/// Name of a fact that every machine has once it was reached.
pub const MACHINE_FACTS_PROBE: &str = "kernel";

/// Prints one fact a line, `name value`; what a machine does not offer is left out.
pub const MACHINE_FACTS_SCRIPT: &str = include_str!("machine_facts.sh");

/// Longest list and longest text that a machine may report.
const ITEMS_MAX: usize = 256;
const TEXT_MAX: usize = 256;

/// Facts of a machine. What it does not tell is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MachineFacts {
    /// Kernel name: `Linux`.
    pub kernel: Option<String>,
    pub kernel_release: Option<String>,
    /// Machine of `uname`: `x86_64`.
    pub arch: Option<String>,
    pub host_name: Option<String>,
    /// Identifier of the operating system: `debian`.
    pub os: Option<String>,
    pub os_version: Option<String>,
    /// Name of the operating system for people.
    pub os_name: Option<String>,
    /// User of the connection. Not a fact for models, like all that depends on it.
    pub user: Option<String>,
    pub uid: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub processors: Option<u32>,
    pub addresses: Vec<IpAddr>,
    pub mounts: Vec<MountFact>,
    /// Programs for privilege that are installed: `sudo`, `doas`.
    pub privilege_programs: Vec<String>,
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MountFact {
    pub path: String,
    pub size_bytes: u64,
    /// Not a fact for models: it always changes.
    pub free_bytes: u64,
}

impl MachineFacts {
    /// Parses the output of the script. A machine may print anything: unknown and oversized lines
    /// are skipped.
    pub fn parse(output: &str) -> Self {
        let mut facts = MachineFacts::default();
        for line in output.lines() {
            let Some((name, value)) = line.split_once(' ') else { continue };
            let text = || fits(value).then(|| value.to_owned());
            match name {
                "kernel" => facts.kernel = text(),
                "kernel_release" => facts.kernel_release = text(),
                "arch" => facts.arch = text(),
                "host_name" => facts.host_name = text(),
                "os" => facts.os = text(),
                "os_version" => facts.os_version = text(),
                "os_name" => facts.os_name = text(),
                "user" => facts.user = text(),
                "uid" => facts.uid = value.parse().ok(),
                "memory_kib" => {
                    facts.memory_bytes =
                        value.parse::<u64>().ok().and_then(|kib| kib.checked_mul(1024));
                }
                "processors" => facts.processors = value.parse().ok(),
                "address" if facts.addresses.len() < ITEMS_MAX => {
                    facts.addresses.extend(value.parse::<IpAddr>());
                }
                "mount" if facts.mounts.len() < ITEMS_MAX => {
                    facts.mounts.extend(text().as_deref().and_then(MountFact::parse));
                }
                "offers" if ["sudo", "doas"].contains(&value) => {
                    facts.privilege_programs.push(value.to_owned());
                }
                _ => {}
            }
        }
        facts.privilege_programs.truncate(2);
        facts
    }

    /// Facts for models, always all of them: what the machine does not tell is empty. Two reports
    /// of an unchanged machine are equal.
    pub fn to_facts(&self) -> Vec<Fact> {
        let mut addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let mut mounts: Vec<&MountFact> = self.mounts.iter().collect();
        mounts.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        mounts.dedup_by(|one, other| one.path == other.path);
        let mounts: Vec<Value> = mounts
            .iter()
            .map(|mount| json!({"path": mount.path, "size_bytes": mount.size_bytes}))
            .collect();
        let fact = |(name, _): &(&str, Kind)| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let value = match *name {
                "kernel" => text(&self.kernel),
                "kernel_release" => text(&self.kernel_release),
                "arch" => text(&self.arch),
                "host_name" => text(&self.host_name),
                "os" => text(&self.os),
                "os_version" => text(&self.os_version),
                "os_name" => text(&self.os_name),
                "memory_bytes" => {
                    self.memory_bytes.map(|bytes| bytes.to_string()).unwrap_or_default()
                }
                "processors" => self.processors.map(|count| count.to_string()).unwrap_or_default(),
                "addresses" => json!(addresses).to_string(),
                _ => json!(mounts).to_string(),
            };
            Fact { name: (*name).to_owned(), value, expires: true }
        };
        FACTS.iter().map(fact).collect()
    }
}

/// Form of a fact's value.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Number,
    /// A JSON list.
    Addresses,
    Mounts,
}

/// Facts for models, with the forms of their values.
const FACTS: [(&str, Kind); 11] = [
    ("addresses", Kind::Addresses),
    ("arch", Kind::Text),
    ("host_name", Kind::Text),
    ("kernel", Kind::Text),
    ("kernel_release", Kind::Text),
    ("memory_bytes", Kind::Number),
    ("mounts", Kind::Mounts),
    ("os", Kind::Text),
    ("os_name", Kind::Text),
    ("os_version", Kind::Text),
    ("processors", Kind::Number),
];

/// Converts stored facts of a machine to the object that models see, always with all keys. Missing
/// and invalid values are null, or empty lists.
pub fn machine_facts_object(facts: &BTreeMap<String, String>) -> Map<String, Value> {
    let value = |(name, kind): &(&str, Kind)| {
        let text = facts.get(*name).map_or("", String::as_str);
        let value = match kind {
            Kind::Text if text.is_empty() || !fits(text) => Value::Null,
            Kind::Text => Value::from(text),
            Kind::Number => text.parse::<i64>().ok().filter(|number| *number >= 0).into(),
            Kind::Addresses => items(text, |item| {
                item.as_str()?.parse::<IpAddr>().ok().map(|address| address.to_string().into())
            }),
            Kind::Mounts => items(text, |item| {
                let path = item["path"].as_str().filter(|path| fits(path))?;
                let size = item["size_bytes"].as_i64().filter(|size| *size >= 0)?;
                Some(json!({"path": path, "size_bytes": size}))
            }),
        };
        ((*name).to_owned(), value)
    };
    FACTS.iter().map(value).collect()
}

/// Valid items of a JSON list.
fn items(text: &str, valid: impl Fn(&Value) -> Option<Value>) -> Value {
    let parsed: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
    parsed.iter().filter_map(valid).take(ITEMS_MAX).collect()
}

fn fits(text: &str) -> bool {
    text.len() <= TEXT_MAX && !text.contains(char::is_control)
}

impl MountFact {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(3, ' ');
        let mut bytes = || words.next()?.parse::<u64>().ok()?.checked_mul(1024);
        let (size_bytes, free_bytes) = (bytes()?, bytes()?);
        let path = words.next()?.to_owned();
        Some(MountFact { path, size_bytes, free_bytes })
    }
}

impl ResourceId {
    /// Id of the resource with the facts of an agent's machine.
    ///
    /// # Errors
    /// If an agent cannot have this name.
    pub fn of_machine_facts(agent: &str) -> Result<Self, InvalidId> {
        ResourceId::new(MACHINE_FACTS_ENTITY, agent, "name", agent)
    }
}

impl Resource {
    /// The resource with the facts of an agent's machine, as the export of the entity writes it.
    ///
    /// # Errors
    /// If an agent cannot have this name.
    pub fn machine_facts(agent: &str) -> Result<Self, InvalidId> {
        let attributes = json!({
            "name": agent,
            "receive_events": true,
            "report_only": false,
            "send_event": true,
        });
        let attributes = match attributes {
            Value::Object(object) => Attributes::from_object(object),
            _ => Attributes::from_object(Map::new()),
        };
        Ok(Resource::new(ResourceId::of_machine_facts(agent)?, attributes, Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_parsed_and_odd_lines_skipped() {
        let facts = MachineFacts::parse(
            "kernel Linux\narch x86_64\nuid 0\nmemory_kib 2048\nprocessors 4\naddress 192.0.2.1\n\
             address 2001:db8::1\naddress nonsense\nmount 100 50 /srv/with space\nmount x y z\n\
             offers sudo\noffers rm\nos_name Debian GNU/Linux 12 (bookworm)\nnoise\nuser \u{7}bell\n",
        );
        assert_eq!(facts.kernel.as_deref(), Some("Linux"));
        assert_eq!((facts.uid, facts.memory_bytes), (Some(0), Some(2048 * 1024)));
        assert_eq!(facts.addresses.len(), 2);
        let mount = MountFact {
            path: "/srv/with space".to_owned(),
            size_bytes: 102_400,
            free_bytes: 51_200,
        };
        assert_eq!(facts.mounts, [mount]);
        assert_eq!(facts.privilege_programs, ["sudo"]);
        assert_eq!(facts.os_name.as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(facts.user, None);
    }

    #[test]
    fn a_machine_cannot_report_without_bound() {
        let flood = "address 192.0.2.1\noffers sudo\n".repeat(10_000);
        let facts = MachineFacts::parse(&flood);
        assert_eq!((facts.addresses.len(), facts.privilege_programs.len()), (256, 2));
    }

    fn as_map(facts: &[Fact]) -> BTreeMap<String, String> {
        facts.iter().map(|fact| (fact.name.clone(), fact.value.clone())).collect()
    }

    #[test]
    fn models_see_what_the_machine_reported() {
        let facts = MachineFacts::parse(
            "kernel Linux\nos debian\narch x86_64\nuser ada\nmemory_kib 2\nprocessors 4\n\
             address 192.0.2.9\naddress 192.0.2.1\nmount 2 1 /srv\nmount 3 1 /\n",
        );
        let object = Value::Object(machine_facts_object(&as_map(&facts.to_facts())));
        assert_eq!(
            object,
            json!({
                "addresses": ["192.0.2.1", "192.0.2.9"], "arch": "x86_64", "host_name": null,
                "kernel": "Linux", "kernel_release": null, "memory_bytes": 2048,
                "mounts": [
                    {"path": "/", "size_bytes": 3072}, {"path": "/srv", "size_bytes": 2048},
                ],
                "os": "debian", "os_name": null, "os_version": null, "processors": 4,
            })
        );
    }

    /// Free space and the order of lists are no change of a machine.
    #[test]
    fn an_unchanged_machine_has_equal_facts() {
        let parse = |text: &str| MachineFacts::parse(text).to_facts();
        let before = parse("kernel Linux\naddress 192.0.2.1\naddress 192.0.2.2\nmount 9 5 /\n");
        let after = parse("kernel Linux\naddress 192.0.2.2\naddress 192.0.2.1\nmount 9 4 /\n");
        assert_eq!(before, after);
        assert_ne!(before, parse("kernel Linux\naddress 192.0.2.1\nmount 9 5 /\n"));
    }

    #[test]
    fn stored_values_of_a_compromised_machine_are_validated() {
        let addresses = vec!["192.0.2.1"; 1000];
        let facts = [
            ("os", "x".repeat(TEXT_MAX + 1)),
            ("arch", "a\u{1b}[31m".to_owned()),
            ("processors", "-1".to_owned()),
            ("memory_bytes", "99999999999999999999".to_owned()),
            ("addresses", json!(addresses).to_string()),
            (
                "mounts",
                r#"[{"path": "/", "size_bytes": 1, "more": []}, {"path": 1}, 7]"#.to_owned(),
            ),
            ("other", "1".to_owned()),
        ];
        let facts = facts.map(|(name, value)| (name.to_owned(), value)).into();
        let object = machine_facts_object(&facts);
        for name in ["os", "arch", "processors", "memory_bytes", "kernel"] {
            assert_eq!(object[name], Value::Null, "{name}");
        }
        assert_eq!(object["addresses"].as_array().map(Vec::len), Some(ITEMS_MAX));
        assert_eq!(object["mounts"], json!([{"path": "/", "size_bytes": 1}]));
        assert!(!object.contains_key("other"));
    }

    #[test]
    fn the_resource_is_named_after_its_machine() {
        let resource = Resource::machine_facts("web1").unwrap();
        assert_eq!(resource.id.as_str(), "std::MachineFacts[web1,name=web1]");
        assert!(Resource::machine_facts("").is_err());
    }
}
