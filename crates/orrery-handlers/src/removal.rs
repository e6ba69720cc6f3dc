//! Which resources the handlers at hand can remove.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use orrery_model::{
    Handles, Inventory, PathIndex, Placement, Remnant, ResourceId, flatten_path, purged,
};

use crate::registry::Registry;

/// The handlers of this program, and those of other code by their entities.
#[derive(Debug)]
pub struct Abilities {
    native: Registry,
    hosted: BTreeSet<String>,
    inventory: Inventory,
    /// Directories of this machine; `None` if its agents are on another one.
    directories: Option<Directories>,
}

impl Abilities {
    pub fn new(hosted: impl IntoIterator<Item = String>) -> Self {
        Abilities {
            native: Registry::native(),
            hosted: hosted.into_iter().collect(),
            inventory: Inventory::default(),
            directories: None,
        }
    }

    /// The same with what is known of agents, some of which may be one machine.
    #[must_use]
    pub fn with_inventory(self, inventory: Inventory) -> Self {
        Abilities { inventory, ..self }
    }

    /// The same for a process that runs on the machine of local agents: paths are looked up there.
    #[must_use]
    pub fn on_this_machine(self) -> Self {
        Abilities { directories: Some(Directories::default()), ..self }
    }

    fn is_local(&self, agent: &str) -> bool {
        matches!(self.inventory.place(agent), Placement::Local(_))
    }
}

/// Directories of this machine without symbolic links, each looked up once.
#[derive(Debug, Default)]
struct Directories(Mutex<BTreeMap<PathBuf, PathBuf>>);

impl Directories {
    /// Resolves all of an absolute path but its last name, which a resource may replace.
    fn resolve_parents(&self, path: &Path) -> PathBuf {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => self.resolve(parent).join(name),
            _ => self.resolve(path),
        }
    }

    fn resolve(&self, directory: &Path) -> PathBuf {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known().get(directory) {
            return known.clone();
        }
        let resolved = directory.canonicalize().unwrap_or_else(|_| {
            // What does not exist, or cannot be seen, is no link as far as is known.
            match (directory.parent(), directory.file_name()) {
                (Some(parent), Some(name)) => self.resolve(parent).join(name),
                (Some(parent), None) => {
                    let mut resolved = self.resolve(parent);
                    resolved.pop();
                    resolved
                }
                (None, _) => directory.to_owned(),
            }
        });
        known().insert(directory.to_owned(), resolved.clone());
        resolved
    }
}

impl Handles for Abilities {
    fn handles(&self, entity: &str) -> bool {
        self.native.handler(entity).is_some() || self.hosted.contains(entity)
    }

    fn removes(&self, entity: &str) -> bool {
        entity != crate::exec::ENTITY
    }

    /// What only tells the engine something is never found in place.
    fn can_preexist(&self, entity: &str) -> bool {
        !matches!(
            entity,
            "std::AgentConfig" | "std::testing::NullResource" | "std::testing::ScriptedResource"
        )
    }

    fn is_one_machine(&self, agent: &str, other: &str) -> bool {
        agent == other || self.is_local(agent) && self.is_local(other)
    }

    fn resolve_path(&self, agent: &str, path: &str) -> String {
        match &self.directories {
            Some(directories) if path.starts_with('/') && self.is_local(agent) => {
                directories.resolve_parents(Path::new(path)).to_string_lossy().into_owned()
            }
            _ => flatten_path(path),
        }
    }
}

/// Resources that nothing manages any more, as far as people have to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unmanaged {
    pub ids: Vec<ResourceId>,
    /// How many of them a removal can purge.
    pub removable: usize,
}

impl Unmanaged {
    /// What cannot be removed is told of once, when it ceases to be managed: nothing has to be done about it. What the model still has
    /// under another id, of an agent that `handlers` knows to be the same machine, is managed.
    pub fn new(remnants: &[Remnant], wanted: &PathIndex<'_>, handlers: &dyn Handles) -> Self {
        let mut unmanaged = Unmanaged::default();
        for Remnant { resource, was_managed, is_adopted, .. } in remnants {
            let id = &resource.id;
            if wanted.has(id) {
                continue;
            }
            let can_go = purged(&resource.attributes).is_some()
                && handlers.removes(id.entity())
                && !(*is_adopted && handlers.can_preexist(id.entity()));
            unmanaged.removable += usize::from(can_go);
            if can_go || *was_managed {
                unmanaged.ids.push(id.clone());
            }
        }
        unmanaged
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn spellings_of_a_path_on_this_machine_are_one() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("real/inner")).unwrap();
        symlink(root.join("real"), root.join("link")).unwrap();
        symlink(root.join("real/inner"), root.join("deep")).unwrap();
        symlink("real/file", root.join("alias")).unwrap();
        let root = root.display().to_string();
        let here = Abilities::new([]).on_this_machine();
        let resolve = |path: &str| here.resolve_path("localhost", &format!("{root}{path}"));
        let file = format!("{root}/real/file");
        for path in ["/real/file", "/link/file", "/link/./file/", "/deep/../file", "//link//file"] {
            assert_eq!(resolve(path), file, "{path}");
        }
        // What is not there yet lies below what is.
        assert_eq!(resolve("/link/new/a/../b"), format!("{root}/real/new/b"));
        // A link that is managed is not what it leads to.
        assert_eq!(resolve("/alias"), format!("{root}/alias"));
        // Links of other machines are not known here.
        assert_eq!(
            here.resolve_path("web1", &format!("{root}/link/file")),
            format!("{root}/link/file")
        );
        let elsewhere = Abilities::new([]);
        assert_eq!(
            elsewhere.resolve_path("localhost", &format!("{root}/link/x/../file")),
            format!("{root}/link/file")
        );
    }
}
