//! The dependency graph of an environment in memory, and its cache.
//!
//! Reading it costs a pass over all resources. A graph stays valid while the change feed has no later
//! change of its environment, and in any case for a multiple of its own cost, as in `count_cache`.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_model::{ResourceId, Status, Timestamp};
use orrery_store::{ChangeSeq, EnvironmentKey, GraphResource, ResourceKey, Store, StoreError};
use rustc_hash::FxHashMap;

use crate::causes;
use crate::error::ServerError;
use crate::services::Services;

/// Validity of a graph after a change, as a multiple of its cost.
const VALIDITY_FACTOR: u32 = 4;
/// Maximum age of a graph after a change.
const VALIDITY_MAX: Duration = Duration::from_secs(5);
/// Resources in all cached graphs, of about 200 bytes each. The least recently used ones go first.
const CACHED_RESOURCES_MAX: usize = 400_000;

/// Index of a resource in its graph, in the order of ids.
pub(crate) type Index = u32;

/// A resource of a graph.
#[derive(Debug)]
pub(crate) struct Vertex {
    pub(crate) id: Box<str>,
    pub(crate) status: Status,
    /// Indexes into the names.
    pub(crate) entity: u32,
    pub(crate) agent: u32,
    /// The empty name stands for the shared set.
    pub(crate) set: u32,
}

/// Neighbours of all resources in one direction.
#[derive(Debug, Default)]
struct Adjacency {
    starts: Vec<u32>,
    targets: Vec<Index>,
}

impl Adjacency {
    fn new(nodes: usize, edges: impl Iterator<Item = (Index, Index)> + Clone) -> Self {
        let mut starts = vec![0_u32; nodes + 1];
        for (from, _) in edges.clone() {
            starts[from as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut targets = vec![0; starts.last().map_or(0, |end| *end as usize)];
        for (from, to) in edges {
            targets[next[from as usize] as usize] = to;
            next[from as usize] += 1;
        }
        Adjacency { starts, targets }
    }

    fn of(&self, node: Index) -> &[Index] {
        let at = node as usize;
        &self.targets[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

/// The dependency graph of an environment at one time.
#[derive(Debug)]
pub(crate) struct DependencyGraph {
    /// All changes up to this one are included.
    pub(crate) position: ChangeSeq,
    pub(crate) at: Timestamp,
    pub(crate) vertices: Vec<Vertex>,
    names: Vec<Box<str>>,
    requires: Adjacency,
    provides: Adjacency,
}

impl DependencyGraph {
    fn read(store: &Store, environment: EnvironmentKey, at: Timestamp) -> Result<Self, StoreError> {
        // Before the resources: a change meanwhile is read again at worst.
        let position = store.changes().latest()?;
        let mut resources: Vec<GraphResource<ResourceKey>> = Vec::new();
        store.resources().visit_graph(environment, &mut |resource| resources.push(resource))?;
        Ok(Self::new(position, at, resources))
    }

    /// Builds a graph from resources in the order of their ids.
    pub(crate) fn new<K: Eq + Hash>(
        position: ChangeSeq,
        at: Timestamp,
        resources: Vec<GraphResource<K>>,
    ) -> Self {
        let mut numbers: FxHashMap<Box<str>, u32> = FxHashMap::default();
        let mut names: Vec<Box<str>> = Vec::new();
        let mut number = |name: &str| match numbers.get(name) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(names.len()).unwrap_or(u32::MAX);
                names.push(name.into());
                numbers.insert(name.into(), number);
                number
            }
        };
        let mut indexes: FxHashMap<K, Index> = FxHashMap::default();
        let mut vertices = Vec::with_capacity(resources.len());
        let mut keys = Vec::with_capacity(resources.len());
        for resource in resources {
            let Ok(id) = resource.name.parse::<ResourceId>() else { continue };
            indexes.insert(resource.key, u32::try_from(vertices.len()).unwrap_or(u32::MAX));
            keys.push(resource.requires);
            vertices.push(Vertex {
                id: resource.name.into(),
                status: resource.status,
                entity: number(id.entity()),
                agent: number(id.agent()),
                set: number(resource.set.as_deref().unwrap_or_default()),
            });
        }
        let mut edges: Vec<(Index, Index)> = Vec::new();
        for (at, required) in (0..).zip(&keys) {
            // Requirements that are orphans have no place in the model any more.
            edges.extend(required.iter().filter_map(|key| Some((at, *indexes.get(key)?))));
        }
        edges.sort_unstable();
        edges.dedup();
        let requires = Adjacency::new(vertices.len(), edges.iter().copied());
        let provides = Adjacency::new(vertices.len(), edges.iter().map(|(at, to)| (*to, *at)));
        DependencyGraph { position, at, vertices, names, requires, provides }
    }

    pub(crate) fn vertex(&self, index: Index) -> &Vertex {
        &self.vertices[index as usize]
    }

    pub(crate) fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    pub(crate) fn requires(&self, index: Index) -> &[Index] {
        self.requires.of(index)
    }

    pub(crate) fn provides(&self, index: Index) -> &[Index] {
        self.provides.of(index)
    }

    /// Returns the requirement that explains the wait of a resource best, if it waits for one.
    pub(crate) fn cause(&self, index: Index) -> Option<Index> {
        if !causes::leads_on(self.vertex(index).status) {
            return None;
        }
        let bad = self.requires(index).iter().copied();
        bad.filter_map(|to| Some((causes::rank(self.vertex(to).status)?, to)))
            .min()
            .map(|(_, to)| to)
    }

    /// Finds a resource by its id.
    pub(crate) fn find(&self, id: &str) -> Option<Index> {
        // The order of a database is not always that of bytes.
        let found = self.vertices.iter().position(|vertex| &*vertex.id == id)?;
        u32::try_from(found).ok()
    }
}

#[derive(Clone)]
struct Cached {
    graph: Arc<DependencyGraph>,
    until: Instant,
}

type Slot = Arc<tokio::sync::Mutex<Option<Cached>>>;

struct Entry {
    slot: Slot,
    resources: usize,
    used: Instant,
}

/// Latest graphs by environment.
#[derive(Default)]
pub(crate) struct GraphCache {
    entries: Mutex<HashMap<EnvironmentKey, Entry>>,
}

impl GraphCache {
    fn slot(&self, environment: EnvironmentKey) -> Slot {
        let mut entries = self.entries.lock().ignore_poison();
        let entry = entries.entry(environment).or_insert_with(|| Entry {
            slot: Slot::default(),
            resources: 0,
            used: monotonic(),
        });
        entry.used = monotonic();
        Arc::clone(&entry.slot)
    }

    /// Notes the size of a graph, and drops others if all together are too large.
    fn note_size(&self, environment: EnvironmentKey, resources: usize) {
        let mut entries = self.entries.lock().ignore_poison();
        if let Some(entry) = entries.get_mut(&environment) {
            entry.resources = resources;
        }
        loop {
            let total: usize = entries.values().map(|entry| entry.resources).sum();
            let others = entries.iter().filter(|(key, _)| **key != environment);
            let oldest = others.min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
            match oldest {
                Some(oldest) if total > CACHED_RESOURCES_MAX => drop(entries.remove(&oldest)),
                _ => return,
            }
        }
    }

    /// Returns the graph of an environment. Concurrent callers wait for the same one.
    pub(crate) async fn get(
        &self,
        services: &Services,
        environment: EnvironmentKey,
    ) -> Result<Arc<DependencyGraph>, ServerError> {
        let slot = self.slot(environment);
        let mut cached = slot.lock().await;
        if let Some(known) = cached.as_mut() {
            if known.until > monotonic() {
                return Ok(Arc::clone(&known.graph));
            }
            let position = known.graph.position;
            let changed =
                services.with_store(move |store| has_changed(store, environment, position)).await?;
            if !changed {
                return Ok(Arc::clone(&known.graph));
            }
        }
        let (begun, at) = (monotonic(), services.now());
        let graph =
            services.with_store(move |store| DependencyGraph::read(store, environment, at)).await?;
        let graph = Arc::new(graph);
        let validity = (begun.elapsed() * VALIDITY_FACTOR).min(VALIDITY_MAX);
        self.note_size(environment, graph.vertices.len());
        *cached = Some(Cached { graph: Arc::clone(&graph), until: monotonic() + validity });
        Ok(graph)
    }
}

/// True if an environment has changes after a position, or may have had some.
fn has_changed(
    store: &Store,
    environment: EnvironmentKey,
    position: ChangeSeq,
) -> Result<bool, StoreError> {
    let changes = store.changes();
    Ok(position < changes.oldest()? || !changes.list(position, Some(environment), 1)?.is_empty())
}
