//! Resources that the available handlers can remove.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use orrery_base::lock::IgnorePoison;
use orrery_model::{
    DeployedResource, HandlerSupport, Inventory, MACHINE_FACTS_ENTITY, PathIndex, Placement,
    ResourceId, flatten_path, purged,
};

use crate::registry::Registry;

/// Native handlers, and Python handlers by their entities.
#[derive(Debug)]
pub struct HandlerCapabilities {
    native: Registry,
    hosted: BTreeSet<String>,
    inventory: Inventory,
    /// Directories of this machine; `None` if its agents are on another one.
    directories: Option<Directories>,
}

impl HandlerCapabilities {
    pub fn new(hosted: impl IntoIterator<Item = String>) -> Self {
        HandlerCapabilities {
            native: Registry::native(),
            hosted: hosted.into_iter().collect(),
            inventory: Inventory::default(),
            directories: None,
        }
    }

    /// Adds the inventory of agents, some of which may share a machine.
    #[must_use]
    pub fn with_inventory(self, inventory: Inventory) -> Self {
        HandlerCapabilities { inventory, ..self }
    }

    /// Resolves paths on this machine, for a process on the machine of local agents.
    #[must_use]
    pub fn on_this_machine(self) -> Self {
        HandlerCapabilities { directories: Some(Directories::default()), ..self }
    }

    fn is_local(&self, agent: &str) -> bool {
        matches!(self.inventory.placement_of(agent), Placement::Local(_))
    }
}

/// Cache of directories of this machine with resolved symbolic links.
#[derive(Debug, Default)]
struct Directories(Mutex<BTreeMap<PathBuf, PathBuf>>);

impl Directories {
    /// Resolves an absolute path except its last component, which a resource may replace.
    fn resolve_parents(&self, path: &Path) -> PathBuf {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => self.resolve(parent).join(name),
            _ => self.resolve(path),
        }
    }

    fn resolve(&self, directory: &Path) -> PathBuf {
        let cache = || self.0.lock().ignore_poison();
        if let Some(resolved) = cache().get(directory) {
            return resolved.clone();
        }
        let resolved = directory.canonicalize().unwrap_or_else(|_| {
            // A missing or unreadable component counts as no link.
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
        cache().insert(directory.to_owned(), resolved.clone());
        resolved
    }
}

impl HandlerSupport for HandlerCapabilities {
    fn handles(&self, entity: &str) -> bool {
        self.native.handler(entity).is_some() || self.hosted.contains(entity)
    }

    fn removes(&self, entity: &str) -> bool {
        entity != crate::exec::ENTITY
    }

    /// Resources that only configure the engine never exist beforehand.
    fn can_preexist(&self, entity: &str) -> bool {
        !matches!(
            entity,
            "std::AgentConfig"
                | MACHINE_FACTS_ENTITY
                | "std::testing::NullResource"
                | "std::testing::ScriptedResource"
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

/// Unmanaged resources to report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unmanaged {
    pub ids: Vec<ResourceId>,
    /// Number of them that a removal can purge.
    pub removable: usize,
}

impl Unmanaged {
    /// A resource that cannot be removed is reported once, when it becomes unmanaged: no action is
    /// needed. A resource that the model has under another id, of an agent on the same machine by
    /// `handlers`, is managed.
    pub fn new(
        remnants: &[DeployedResource],
        desired: &PathIndex<'_>,
        handlers: &dyn HandlerSupport,
    ) -> Self {
        let mut unmanaged = Unmanaged::default();
        for remnant in remnants.iter().filter(|remnant| remnant.leaves_a_trace()) {
            let DeployedResource { resource, was_managed, is_adopted, .. } = remnant;
            let id = &resource.id;
            if desired.has(id) {
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
    fn spellings_of_a_path_resolve_to_one() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("real/inner")).unwrap();
        symlink(root.join("real"), root.join("link")).unwrap();
        symlink(root.join("real/inner"), root.join("deep")).unwrap();
        symlink("real/file", root.join("alias")).unwrap();
        let root = root.display().to_string();
        let here = HandlerCapabilities::new([]).on_this_machine();
        let resolve = |path: &str| here.resolve_path("localhost", &format!("{root}{path}"));
        let file = format!("{root}/real/file");
        for path in ["/real/file", "/link/file", "/link/./file/", "/deep/../file", "//link//file"] {
            assert_eq!(resolve(path), file, "{path}");
        }
        // A missing path lies below an existing one.
        assert_eq!(resolve("/link/new/a/../b"), format!("{root}/real/new/b"));
        // A managed link is not its destination.
        assert_eq!(resolve("/alias"), format!("{root}/alias"));
        // Links of other machines are unknown here.
        assert_eq!(
            here.resolve_path("web1", &format!("{root}/link/file")),
            format!("{root}/link/file")
        );
        let elsewhere = HandlerCapabilities::new([]);
        assert_eq!(
            elsewhere.resolve_path("localhost", &format!("{root}/link/x/../file")),
            format!("{root}/link/file")
        );
    }
}
