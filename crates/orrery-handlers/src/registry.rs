//! Handlers by entity, and the declarations of their resource types.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use orrery_model::{Reach, ResourceType};

use crate::handler::Handler;

/// Resource types and their handlers, by entity.
#[derive(Clone, Default)]
pub struct Registry {
    entries: BTreeMap<Cow<'static, str>, Entry>,
}

#[derive(Clone)]
struct Entry {
    /// `None` for Python handlers, which declare it themselves.
    declaration: Option<ResourceType>,
    handler: Arc<dyn Handler>,
    /// A Python handler that uses the files and programs of its agent's machine.
    uses_machine: bool,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.keys()).finish()
    }
}

impl Registry {
    pub fn new() -> Self {
        Registry::default()
    }

    /// All native handlers.
    pub fn native() -> Self {
        let mut registry = Registry::new();
        crate::register_all(&mut registry);
        registry
    }

    /// Adds a resource type; the last one of an entity wins.
    pub fn register(&mut self, declaration: ResourceType, handler: Arc<dyn Handler>) {
        let entity = declaration.entity.clone();
        let entry = Entry { declaration: Some(declaration), handler, uses_machine: false };
        self.entries.insert(entity, entry);
    }

    /// Adds a Python handler, which declares its resource type itself; overrides an earlier entry.
    pub fn register_hosted(&mut self, entity: String, handler: Arc<dyn Handler>) {
        let entry = Entry { declaration: None, handler, uses_machine: false };
        self.entries.insert(entity.into(), entry);
    }

    /// Marks a Python handler as one that uses the files and programs of its agent's machine.
    pub fn mark_machine_user(&mut self, entity: &str) {
        if let Some(entry) = self.entries.get_mut(entity) {
            entry.uses_machine = entry.declaration.is_none();
        }
    }

    /// Returns true for a Python handler that is known to use its agent's machine.
    pub fn uses_machine(&self, entity: &str) -> bool {
        self.entries.get(entity).is_some_and(|entry| entry.uses_machine)
    }

    /// Returns the handler of an entity, by its full name.
    pub fn handler(&self, entity: &str) -> Option<&Arc<dyn Handler>> {
        self.entries.get(entity).map(|entry| &entry.handler)
    }

    pub fn declaration(&self, entity: &str) -> Option<&ResourceType> {
        self.entries.get(entity).and_then(|entry| entry.declaration.as_ref())
    }

    /// Returns true if the entity is known to act on its agent's machine. Python handlers find out
    /// when they request the machine.
    pub fn acts_on_machine(&self, entity: &str) -> bool {
        self.declaration(entity).is_some_and(|declared| declared.reach == Reach::Machine)
    }

    /// All native declarations, sorted by entity, for the export.
    pub fn declarations(&self) -> impl Iterator<Item = &ResourceType> {
        self.entries.values().filter_map(|entry| entry.declaration.as_ref())
    }
}
