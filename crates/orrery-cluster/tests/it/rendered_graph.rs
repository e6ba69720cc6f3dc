//! Rendered resources as a graph, for tests.

use std::collections::{BTreeMap, BTreeSet};

use orrery_cluster::render::{Rendering, entity};
use orrery_model::{Resource, ResourceId};
use serde_json::Value;

pub(crate) struct RenderedGraph {
    pub(crate) resources: BTreeMap<ResourceId, Resource>,
}

impl RenderedGraph {
    pub(crate) fn new(rendering: &Rendering) -> Self {
        let mut resources = BTreeMap::new();
        for (name, set) in &rendering.sets {
            for resource in set {
                assert_eq!(resource.set.as_deref(), Some(name.as_str()), "the set is named");
                let known = resources.insert(resource.id.clone(), resource.clone());
                assert!(known.is_none(), "{} is rendered twice", resource.id.as_str());
            }
        }
        let graph = RenderedGraph { resources };
        for resource in graph.resources.values() {
            for required in &resource.requires {
                assert!(
                    graph.resources.contains_key(required),
                    "{} requires {}, which is missing",
                    resource.id.as_str(),
                    required.as_str()
                );
            }
        }
        graph
    }

    pub(crate) fn id(&self, entity: &str, node: &str, service: Option<&str>) -> ResourceId {
        let value = service.map_or(node.to_owned(), |service| format!("{node}/{service}"));
        ResourceId::new(entity, node, "name", &value).expect("a resource id")
    }

    pub(crate) fn attribute(&self, id: &ResourceId, name: &str) -> Value {
        let object = self.resources[id].attributes.to_object();
        object.get(name).cloned().unwrap_or(Value::Null)
    }

    /// The resource that performs an action of the planner.
    pub(crate) fn of_action(
        &self,
        node: &str,
        action: &str,
        service: Option<&str>,
    ) -> Option<ResourceId> {
        let entity = match action {
            "CREATE" | "DELETE" => entity::MACHINE,
            "CONFIRM" => entity::REACHABLE,
            "BOOTSTRAP" => entity::TOOLCHAIN,
            "INSTALL" | "REMOVE" => entity::INSTALLED,
            "CONFIGURE" => entity::CONFIGURED,
            "INITIALIZE" => entity::INITIALIZED,
            "START" => entity::RUNNING,
            "STOP" => {
                let running = self.id(entity::RUNNING, node, service);
                let stops = self.resources.contains_key(&running)
                    && self.attribute(&running, "running") == Value::Bool(false);
                if stops { entity::RUNNING } else { entity::QUIESCED }
            }
            other => panic!("the action {other} is not known"),
        };
        let id = self.id(entity, node, service);
        self.resources.contains_key(&id).then_some(id)
    }

    /// Resources that the engine deploys after those of another version.
    pub(crate) fn changed(&self, before: Option<&RenderedGraph>) -> BTreeSet<ResourceId> {
        let is_changed = |resource: &&Resource| {
            let known = before.and_then(|before| before.resources.get(&resource.id));
            known.is_none_or(|known| known.hash != resource.hash)
        };
        self.resources.values().filter(is_changed).map(|resource| resource.id.clone()).collect()
    }

    /// Direct and indirect requirements of each resource, through resources of a set only.
    pub(crate) fn closure(
        &self,
        within: &BTreeSet<ResourceId>,
    ) -> BTreeMap<ResourceId, BTreeSet<ResourceId>> {
        let mut all: BTreeMap<ResourceId, BTreeSet<ResourceId>> = BTreeMap::new();
        for id in self.sorted() {
            let mut before = BTreeSet::new();
            for required in self.resources[&id].requires.iter().filter(|id| within.contains(*id)) {
                before.insert(required.clone());
                before.extend(all[required].iter().cloned());
            }
            all.insert(id, before);
        }
        all
    }

    /// All resources, each after its requirements.
    pub(crate) fn sorted(&self) -> Vec<ResourceId> {
        let mut left: BTreeMap<&ResourceId, usize> = BTreeMap::new();
        let mut next: BTreeMap<&ResourceId, Vec<&ResourceId>> = BTreeMap::new();
        for resource in self.resources.values() {
            left.insert(&resource.id, resource.requires.len());
            for required in &resource.requires {
                next.entry(required).or_default().push(&resource.id);
            }
        }
        let ready = left.iter().filter(|(_, count)| **count == 0);
        let mut ready: Vec<&ResourceId> = ready.map(|(id, _)| *id).collect();
        let mut sorted = Vec::new();
        while let Some(id) = ready.pop() {
            sorted.push(id.clone());
            for dependent in next.get(id).into_iter().flatten() {
                let count = left.get_mut(dependent).expect("a resource");
                *count -= 1;
                if *count == 0 {
                    ready.push(dependent);
                }
            }
        }
        assert_eq!(sorted.len(), self.resources.len(), "the requirements have a cycle");
        sorted
    }
}
