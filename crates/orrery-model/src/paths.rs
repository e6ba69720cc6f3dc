//! Paths that identify resources: several spellings and agent names can mean one path of one
//! machine.

use std::collections::{BTreeMap, BTreeSet};

use crate::{HandlerSupport, Inventory, Placement, ResourceId};

/// Attribute that identifies resources by their path.
const PATH: &str = "path";

/// Returns a path as handlers use it: without repeated or trailing slashes.
pub fn normalize_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

/// Returns an absolute path as [`normalize_path`] does, and without `.` and `..`, ignoring symbolic
/// links.
pub fn flatten_path(path: &str) -> String {
    if !path.starts_with('/') {
        return normalize_path(path);
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Returns the canonical path that identifies a resource; `None` if none does.
pub(crate) fn identifying_path(id: &ResourceId, handlers: &dyn HandlerSupport) -> Option<String> {
    (id.attribute() == PATH).then(|| handlers.resolve_path(id.agent(), id.value()))
}

/// Index from entity and path to agents: a resource may get another id and keep its path.
pub struct PathIndex<'a> {
    paths: BTreeMap<(&'a str, String), Vec<&'a str>>,
    handlers: &'a dyn HandlerSupport,
}

impl<'a> PathIndex<'a> {
    /// Indexes the resources identified by a path. The handlers resolve spellings and machines.
    pub fn new(
        ids: impl IntoIterator<Item = &'a ResourceId>,
        handlers: &'a dyn HandlerSupport,
    ) -> Self {
        let mut paths: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
        for id in ids {
            if let Some(path) = identifying_path(id, handlers) {
                paths.entry((id.entity(), path)).or_default().push(id.agent());
            }
        }
        PathIndex { paths, handlers }
    }

    /// Returns true if the path of a resource is indexed for an agent of the same machine.
    pub fn has(&self, id: &ResourceId) -> bool {
        let path = identifying_path(id, self.handlers);
        let agents = path.and_then(|path| self.paths.get(&(id.entity(), path)));
        let mut agents = agents.into_iter().flatten();
        agents.any(|agent| self.handlers.is_one_machine(agent, id.agent()))
    }
}

/// A path that several resources of one machine manage: each would undo the others' changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathCollision<K> {
    pub path: String,
    pub resources: Vec<K>,
}

impl<K> PathCollision<K> {
    /// Returns the reasons that the agents of the colliding resources are one machine; empty for
    /// one agent.
    pub fn reasons<'a>(
        agents: impl IntoIterator<Item = &'a str>,
        inventory: &Inventory,
    ) -> Vec<String> {
        let agents: BTreeSet<&str> = agents.into_iter().collect();
        if agents.len() < 2 {
            return Vec::new();
        }
        agents.into_iter().map(|agent| inventory.placement_of(agent).reason(agent)).collect()
    }
}

/// The machine of an agent. The deploying machine has several names, any other that of its agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Machine<'a> {
    Own,
    Of(&'a str),
}

/// Returns the paths that several resources of one machine manage, sorted. Each resource has a key
/// and its id.
pub fn path_collisions<'a, K>(
    resources: impl IntoIterator<Item = (K, &'a ResourceId)>,
    inventory: &Inventory,
) -> Vec<PathCollision<K>> {
    let mut machines: BTreeMap<&str, Machine<'_>> = BTreeMap::new();
    let mut managed: BTreeMap<(String, Machine<'_>), Vec<K>> = BTreeMap::new();
    for (key, id) in resources {
        let machine = *machines.entry(id.agent()).or_insert_with_key(|agent| {
            match inventory.placement_of(agent) {
                Placement::Local(_) => Machine::Own,
                _ => Machine::Of(agent),
            }
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
    fn a_flat_path_has_no_detours() {
        for path in ["/a/b", "/a/./b/", "/a/c/../b", "/../a//b/.", "/c/../../a/b"] {
            assert_eq!(flatten_path(path), "/a/b");
        }
        assert_eq!(flatten_path("/a/.."), "/");
        assert_eq!(flatten_path("a//../b"), "a/../b");
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
