//! Paths that identify resources: several spellings and several agent names can mean one path of one machine.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Inventory, Placement, ResourceId};

/// Attribute that identifies resources by their path.
const PATH: &str = "path";

/// Returns a path as handlers use it, without repeated slashes and without those at its end.
pub fn normalize_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

/// Entity and path of a resource that is identified by its path.
fn path_key(id: &ResourceId) -> Option<(&str, String)> {
    (id.attribute() == PATH).then(|| (id.entity(), normalize_path(id.value())))
}

/// Paths of resources with their agents, by entity: a resource may get another id and keep its path.
#[derive(Clone, Debug, Default)]
pub struct PathIndex<'a>(BTreeMap<(&'a str, String), Vec<&'a str>>);

impl<'a> PathIndex<'a> {
    /// Indexes the resources that are identified by a path.
    pub fn new(ids: impl IntoIterator<Item = &'a ResourceId>) -> Self {
        let mut paths: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
        for id in ids {
            if let Some(key) = path_key(id) {
                paths.entry(key).or_default().push(id.agent());
            }
        }
        PathIndex(paths)
    }

    /// Whether the path of a resource is indexed for an agent that `is_one_machine` equates with its own.
    pub fn has(&self, id: &ResourceId, is_one_machine: impl Fn(&str, &str) -> bool) -> bool {
        let agents = path_key(id).and_then(|key| self.0.get(&key));
        agents.into_iter().flatten().any(|agent| is_one_machine(agent, id.agent()))
    }
}

/// A path that several resources of one machine manage: each would undo what the others did.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathCollision<K> {
    pub path: String,
    pub resources: Vec<K>,
}

impl<K> PathCollision<K> {
    /// Reasons for which the agents of the colliding resources are one machine; none if they have one agent.
    pub fn reasons<'a>(
        agents: impl IntoIterator<Item = &'a str>,
        inventory: &Inventory,
    ) -> Vec<String> {
        let agents: BTreeSet<&str> = agents.into_iter().collect();
        if agents.len() < 2 {
            return Vec::new();
        }
        agents.into_iter().map(|agent| inventory.place(agent).reason(agent)).collect()
    }
}

/// The machine of an agent: the deploying one is known by several names, any other by that of its agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Machine<'a> {
    Own,
    Of(&'a str),
}

/// Finds the paths that several resources of one machine manage, in the order of paths. Each resource comes with a key and its id.
pub fn path_collisions<'a, K>(
    resources: impl IntoIterator<Item = (K, &'a ResourceId)>,
    inventory: &Inventory,
) -> Vec<PathCollision<K>> {
    let mut machines: BTreeMap<&str, Machine<'_>> = BTreeMap::new();
    let mut managed: BTreeMap<(String, Machine<'_>), Vec<K>> = BTreeMap::new();
    for (key, id) in resources {
        let machine =
            *machines.entry(id.agent()).or_insert_with_key(|agent| match inventory.place(agent) {
                Placement::Local(_) => Machine::Own,
                _ => Machine::Of(agent),
            });
        managed.entry((normalize_path(id.value()), machine)).or_default().push(key);
    }
    let several = managed.into_iter().filter(|(_, resources)| resources.len() > 1);
    several.map(|((path, _), resources)| PathCollision { path, resources }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_path_are_one() {
        for path in ["/a/b", "//a//b", "/a/b/", "/a/b//"] {
            assert_eq!(normalize_path(path), "/a/b");
        }
        assert_eq!(normalize_path("a//b"), "a/b");
        assert_eq!(normalize_path("//"), "/");
        assert_ne!(normalize_path("/a/b"), normalize_path("a/b"));
    }

    #[test]
    fn names_of_one_machine_collide() {
        let ids: Vec<ResourceId> = [
            "fs::File[localhost,path=/a]",
            "fs::File[box,path=//a]",
            "fs::File[web1,path=/a]",
            "fs::Directory[web1,path=/a/]",
            "fs::File[web2,path=/a]",
            "fs::File[localhost,path=/b]",
        ]
        .iter()
        .map(|id| id.parse().unwrap())
        .collect();
        let find = |inventory: &Inventory| -> Vec<Vec<usize>> {
            let found = path_collisions(ids.iter().enumerate(), inventory);
            assert!(found.iter().all(|collision| collision.path == "/a"));
            found.into_iter().map(|collision| collision.resources).collect()
        };
        let inventory = Inventory::default().on_host("box");
        assert_eq!(find(&inventory), [vec![0, 1], vec![2, 3]]);
        assert_eq!(find(&Inventory::default().on_host("other")), [vec![2, 3]]);
        let reasons = PathCollision::<()>::reasons(["localhost", "box", "box"], &inventory);
        assert_eq!(reasons.len(), 2);
        assert!(PathCollision::<()>::reasons(["box", "box"], &inventory).is_empty());
    }
}
