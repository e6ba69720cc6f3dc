//! Which handler serves which entity, and how its instances become resources.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use orrery_model::{Reach, ResourceType};

use crate::handler::Handler;

/// All kinds of resources that can be handled, by entity.
#[derive(Clone, Default)]
pub struct Registry {
    entries: BTreeMap<Cow<'static, str>, Entry>,
}

#[derive(Clone)]
struct Entry {
    /// `None` if code that is not in this program says it.
    declaration: Option<ResourceType>,
    handler: Arc<dyn Handler>,
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

    /// All handlers of this program.
    pub fn native() -> Self {
        let mut registry = Registry::new();
        crate::register_all(&mut registry);
        registry
    }

    /// Adds a kind of resource; the last one for an entity wins.
    pub fn register(&mut self, declaration: ResourceType, handler: Arc<dyn Handler>) {
        let entity = declaration.entity.clone();
        self.entries.insert(entity, Entry { declaration: Some(declaration), handler });
    }

    /// Has an entity served by a handler whose code says itself how instances become resources; it wins over one that
    /// was registered before.
    pub fn serve(&mut self, entity: String, handler: Arc<dyn Handler>) {
        self.entries.insert(entity.into(), Entry { declaration: None, handler });
    }

    /// The handler of an entity, by its full name.
    pub fn handler(&self, entity: &str) -> Option<&Arc<dyn Handler>> {
        self.entries.get(entity).map(|entry| &entry.handler)
    }

    pub fn declaration(&self, entity: &str) -> Option<&ResourceType> {
        self.entries.get(entity).and_then(|entry| entry.declaration.as_ref())
    }

    /// Whether instances of an entity are known to act on their agent's machine. Handlers in the code of modules find out when they
    /// ask for it.
    pub fn acts_on_machine(&self, entity: &str) -> bool {
        self.declaration(entity).is_some_and(|declared| declared.reach == Reach::Machine)
    }

    /// All that are declared here, sorted by entity: what the export needs.
    pub fn declarations(&self) -> impl Iterator<Item = &ResourceType> {
        self.entries.values().filter_map(|entry| entry.declaration.as_ref())
    }
}
