//! Paths that identify resources: several spellings and several agent names can mean one path of one machine.

use std::collections::BTreeMap;

use crate::ResourceId;

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
}
