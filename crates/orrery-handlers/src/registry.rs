//! Which handler serves which entity, and how its instances become resources.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use orrery_model::ResourceType;

use crate::handler::Handler;

/// All kinds of resources that can be handled, by entity.
#[derive(Clone, Default)]
pub struct Registry {
    entries: BTreeMap<Cow<'static, str>, (ResourceType, Arc<dyn Handler>)>,
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
        self.entries.insert(declaration.entity.clone(), (declaration, handler));
    }

    /// The handler of an entity, by its full name.
    pub fn handler(&self, entity: &str) -> Option<&Arc<dyn Handler>> {
        self.entries.get(entity).map(|(_, handler)| handler)
    }

    pub fn declaration(&self, entity: &str) -> Option<&ResourceType> {
        self.entries.get(entity).map(|(declaration, _)| declaration)
    }

    /// All of them, sorted by entity: what the export needs.
    pub fn declarations(&self) -> impl Iterator<Item = &ResourceType> {
        self.entries.values().map(|(declaration, _)| declaration)
    }
}
