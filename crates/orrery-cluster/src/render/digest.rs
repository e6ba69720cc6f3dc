//! Digests of everything that determines the result of an action.
//!
//! The digest of a configuration covers its text and, for each macro, only what it reads, so that
//! a changed node changes the digests of its readers and of nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::view::{NodeView, View};
use crate::document::{AutomatorAction, ServiceAction};
use crate::macros::{self, MacroRead};

/// Bytes of a digest.
const LENGTH: usize = 16;

/// Collects parts, each with its length, so that no two lists of parts look alike.
#[derive(Clone)]
pub(super) struct Parts(Sha256);

impl Parts {
    pub(super) fn new(kind: &str) -> Self {
        let mut parts = Parts(Sha256::new());
        parts.add(kind);
        parts
    }

    pub(super) fn add(&mut self, part: &str) {
        self.add_bytes(part.as_bytes());
    }

    pub(super) fn add_number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    pub(super) fn add_bytes(&mut self, part: &[u8]) {
        self.add_number(part.len() as u64);
        self.0.update(part);
    }

    pub(super) fn finish(self) -> String {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let digest = self.0.finalize();
        let digits = digest.iter().take(LENGTH).flat_map(|byte| [byte >> 4, byte & 15]);
        digits.map(|digit| HEX[usize::from(digit)] as char).collect()
    }
}

/// Digests that all instances of a service share, and its configuration.
pub(super) struct ServiceDigests {
    pub(super) installed: String,
    pub(super) quiesced: String,
    pub(super) initialized: String,
    pub(super) running: String,
    /// The sections of the configuration that the service gets, as canonical JSON.
    pub(super) config: String,
    /// What the macros of these sections read.
    pub(super) reads: BTreeSet<MacroRead>,
    configured: Parts,
    /// Digest of the configuration, if it is the same on all nodes.
    everywhere: Option<String>,
}

/// Digests of one intent.
pub(super) struct Digests<'v, 'i> {
    view: &'v View<'i>,
    pub(super) services: Vec<ServiceDigests>,
    /// Numbers of the nodes of each service, ascending.
    members: Vec<Vec<usize>>,
}

impl<'v, 'i> Digests<'v, 'i> {
    pub(super) fn new(view: &'v View<'i>) -> Self {
        let mut members = vec![Vec::new(); view.services.len()];
        for (number, node) in view.nodes.iter().enumerate() {
            for (service, _) in &node.services {
                members[*service].push(number);
            }
        }
        let mut digests = Digests { view, services: Vec::new(), members };
        let mut lists = BTreeMap::new();
        for service in 0..view.services.len() {
            let found = digests.of_service(service, &mut lists);
            digests.services.push(found);
        }
        digests
    }

    fn of_service(
        &self,
        service: usize,
        lists: &mut BTreeMap<(String, bool), String>,
    ) -> ServiceDigests {
        let resources = &self.view.intent.plugin_resources;
        let document = self.view.services[service].document;
        let start = |kind: &str, actions: &[ServiceAction]| {
            let mut parts = Parts::new(kind);
            for action in actions {
                match document.action(*action) {
                    Some(action) => add_action(&mut parts, action, resources),
                    None => parts.add("-"),
                }
            }
            parts
        };
        let installed = start("installed", &[ServiceAction::Install]).finish();
        let config = self.sections(service);
        let mut reads = BTreeSet::new();
        collect_reads(&Value::Object(config.clone()), &mut reads);
        let config = canonical(config);
        let mut configured = start("configured", &[ServiceAction::Configure]);
        configured.add(&installed);
        configured.add(&config);
        for read in &reads {
            self.add_shared(&mut configured, read, lists);
        }
        let is_own = |read: &MacroRead| {
            matches!(read, MacroRead::OwnHost | MacroRead::OwnAddress | MacroRead::Position { .. })
        };
        let everywhere = (!reads.iter().any(is_own)).then(|| configured.clone().finish());
        ServiceDigests {
            installed,
            quiesced: start("quiesced", &[ServiceAction::Stop]).finish(),
            initialized: start("initialized", &[ServiceAction::Initialize]).finish(),
            running: start("running", &[ServiceAction::Start, ServiceAction::Stop]).finish(),
            config,
            reads,
            configured,
            everywhere,
        }
    }

    /// The section of a service, and all sections that belong to no service of the cluster.
    fn sections(&self, service: usize) -> Map<String, Value> {
        let view = self.view;
        let own = view.services[service].name;
        let is_meant = |key: &String| key == own || !view.intent.services.contains_key(key);
        let config = view.intent.config.iter().filter(|(key, _)| is_meant(key));
        config.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Adds what a macro reads, unless it depends on the node.
    fn add_shared(
        &self,
        parts: &mut Parts,
        read: &MacroRead,
        lists: &mut BTreeMap<(String, bool), String>,
    ) {
        let (service, index, has_address) = match read {
            MacroRead::Owner => return parts.add(&self.view.intent.owner),
            MacroRead::Hosts { service, index } => (service, index, false),
            MacroRead::Addresses { service, index } => (service, index, true),
            MacroRead::Count { service } => {
                return parts.add_number(self.members(service).len() as u64);
            }
            MacroRead::OwnHost | MacroRead::OwnAddress | MacroRead::Position { .. } => return,
        };
        let members = self.members(service);
        match index {
            Some(index) => {
                let member = usize::try_from(*index).ok().and_then(|index| members.get(index));
                match member {
                    Some(member) => self.add_member(parts, *member, has_address),
                    None => parts.add("-"),
                }
            }
            None => {
                let list = lists.entry((service.clone(), has_address)).or_insert_with(|| {
                    let mut list = Parts::new("members");
                    for member in members {
                        self.add_member(&mut list, *member, has_address);
                    }
                    list.finish()
                });
                parts.add(list);
            }
        }
    }

    fn members(&self, service: &str) -> &[usize] {
        let number = self.view.numbers.get(service);
        number.map_or(&[], |number| self.members[*number].as_slice())
    }

    fn add_member(&self, parts: &mut Parts, member: usize, has_address: bool) {
        add_node(parts, &self.view.nodes[member], has_address);
    }

    /// Digest of the configuration of a service on a node.
    pub(super) fn configured(&self, node: usize, service: usize) -> String {
        let digests = &self.services[service];
        if let Some(digest) = &digests.everywhere {
            return digest.clone();
        }
        let mut parts = digests.configured.clone();
        for read in &digests.reads {
            match read {
                MacroRead::OwnHost => add_node(&mut parts, &self.view.nodes[node], false),
                MacroRead::OwnAddress => add_node(&mut parts, &self.view.nodes[node], true),
                MacroRead::Position { service } => {
                    let position = self.members(service).binary_search(&node);
                    parts.add_number(position.map_or(0, |position| position as u64 + 1));
                }
                _ => {}
            }
        }
        parts.finish()
    }
}

/// Adds the identity of a node. Its address is unknown, but changes with the machine only.
fn add_node(parts: &mut Parts, node: &NodeView<'_>, has_address: bool) {
    parts.add(node.name);
    parts.add_number(node.node.number);
    parts.add(&node.node.hostname);
    if has_address {
        parts.add_number(u64::from(node.node.incarnation));
    }
}

fn add_action(parts: &mut Parts, action: &AutomatorAction, resources: &BTreeMap<String, String>) {
    parts.add(&action.automator);
    let fields: BTreeMap<&String, &String> = action.fields.iter().collect();
    parts.add_number(fields.len() as u64);
    for (name, value) in fields {
        parts.add(name);
        parts.add(value);
    }
    for (name, digest) in used_resources(action, resources) {
        parts.add(name);
        parts.add(digest);
    }
}

/// Plug-in resources that the fields of an action name, alone or in a list.
pub(super) fn used_resources<'r>(
    action: &AutomatorAction,
    resources: &'r BTreeMap<String, String>,
) -> BTreeMap<&'r str, &'r str> {
    let is_break = |c: char| c.is_whitespace() || c == ',';
    let words: BTreeSet<&str> =
        action.fields.values().flat_map(|value| value.split(is_break)).collect();
    let is_used = |path: &str| {
        let name = path.split_once('/').map_or(path, |(_, name)| name);
        words.contains(path) || words.contains(name)
    };
    let used = resources.iter().filter(|(path, _)| is_used(path));
    used.map(|(path, digest)| (path.as_str(), digest.as_str())).collect()
}

fn collect_reads(value: &Value, reads: &mut BTreeSet<MacroRead>) {
    match value {
        // Operations refuse configurations with wrong macros; a wrong one reads nothing.
        Value::String(text) => reads.extend(macros::reads(text).unwrap_or_default()),
        Value::Array(items) => items.iter().for_each(|item| collect_reads(item, reads)),
        Value::Object(entries) => entries.values().for_each(|value| collect_reads(value, reads)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// JSON with sorted keys and without spaces.
pub(super) fn canonical(object: Map<String, Value>) -> String {
    let mut value = Value::Object(object);
    value.sort_all_objects();
    value.to_string()
}
