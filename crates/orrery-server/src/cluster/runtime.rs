//! What engines of clusters need: plug-ins, slots of projects, and views of clusters.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use orrery_api::ClusterPlugins;
use orrery_base::lock::IgnorePoison;
use orrery_cluster::render::entity;
use orrery_handlers::Registry;
use orrery_model::{ProjectId, ResourceId};
use orrery_provisioner::automator::{ModelAutomator, ShellAutomator};
use orrery_provisioner::directory::{ClusterDirectory, ClusterView, DirectoryError, ViewNode};
use orrery_provisioner::dispatch::LocalDispatcher;
use orrery_provisioner::facts::NodeFacts;
use orrery_provisioner::handlers::{self, ActionLimits, ClusterServices};
use orrery_provisioner::installation::standard_plugins;
use orrery_provisioner::plugin::{PluginError, PluginKind, PluginResources};
use orrery_provisioner::plugins::Plugins;
use orrery_provisioner::provider::{Ec2Provider, InventoryProvider};
use orrery_provisioner::runner::Runner;
use orrery_provisioner::slots::{Slots, TenantSlotLimits};
use orrery_provisioner::ssh_access::SshMachineAccess;
use orrery_store::{ClusterRecord, EnvironmentKey, Store, StoreError};
use uuid::Uuid;

use super::intents;

/// Number of tasks that a server carries out at the same time.
pub(crate) const SLOTS: usize = 64;

/// Meta key: manifests of the plug-ins, for processes without the process role.
const MANIFESTS: &str = "cluster-plugins";

/// Plug-ins that act on other machines only: environments without the server's rights on its machine
/// have no others.
fn outward_plugins(data: &Path) -> std::io::Result<Plugins> {
    let ssh = SshMachineAccess::new(data.join("known_hosts"))?;
    let mut plugins = Plugins::default();
    plugins.add_provider(Arc::new(InventoryProvider::new(ssh.clone())));
    plugins.add_provider(Arc::new(Ec2Provider::new(data.join("python"), ssh)));
    plugins.add_automator(Arc::new(ShellAutomator::new()));
    plugins.add_automator(Arc::new(ModelAutomator::new()));
    Ok(plugins)
}

/// Manifests of the plug-ins: providers and automators.
pub(crate) fn manifests(store: &Store) -> Result<ClusterPlugins, StoreError> {
    let Some(text) = store.meta().get(MANIFESTS)? else { return Ok(ClusterPlugins::default()) };
    serde_json::from_str(&text).map_err(|error| StoreError::Unreadable(error.to_string()))
}

/// Publishes the manifests of the plug-ins in the store.
fn publish(store: &Store, plugins: &Plugins) -> Result<(), StoreError> {
    let mut all = ClusterPlugins::default();
    for manifest in plugins.manifests() {
        let schema = serde_json::to_value(manifest);
        let schema = schema.map_err(|error| StoreError::Unreadable(error.to_string()))?;
        match manifest.kind {
            PluginKind::Provider => all.providers.push(schema),
            PluginKind::Automator => all.automators.push(schema),
        }
    }
    let text = serde_json::to_string(&all);
    let text = text.map_err(|error| StoreError::Unreadable(error.to_string()))?;
    store.meta().put(MANIFESTS, &text)
}

/// Execution of tasks in this process, for the engines of all clusters.
pub(crate) struct ClusterRuntime {
    /// With the plug-ins that act on this machine.
    own_machine: ClusterServices,
    outward: ClusterServices,
    directory: Arc<StoredDirectory>,
    slots: Slots,
}

impl std::fmt::Debug for ClusterRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterRuntime")
    }
}

impl ClusterRuntime {
    /// Creates the runtime. Plug-ins keep their files below `data`.
    ///
    /// # Errors
    /// If the directory cannot be written, or the system has no threads left.
    pub(crate) fn new(store: &Store, data: &Path, slots: Slots) -> std::io::Result<Self> {
        std::fs::create_dir_all(data)?;
        let directory = Arc::new(StoredDirectory { store: store.clone(), views: Mutex::default() });
        let services = |plugins: Plugins| {
            let plugins = Arc::new(plugins);
            let resources = Arc::new(StoredResources(store.clone()));
            let runner = Arc::new(Runner::new(Arc::clone(&plugins), resources));
            ClusterServices {
                dispatcher: Arc::new(LocalDispatcher::new(runner, slots.clone())),
                directory: Arc::clone(&directory) as _,
                plugins,
                limits: ActionLimits::default(),
            }
        };
        let (own_machine, outward) =
            (services(standard_plugins(data)?), services(outward_plugins(data)?));
        Ok(ClusterRuntime { own_machine, outward, directory, slots })
    }

    /// Publishes the manifests of the plug-ins. Blocks on the store.
    pub(crate) fn publish(&self, store: &Store) {
        // Forms without manifests are worth less than a server that starts.
        if let Err(error) = publish(store, &self.own_machine.plugins) {
            tracing::warn!(%error, "the plug-ins of clusters were not published");
        }
    }

    /// Adds the handlers of clusters. Without the server's rights on its machine, there are no
    /// plug-ins that act on it.
    pub(crate) fn register(&self, registry: &mut Registry, has_own_machine: bool) {
        let services = if has_own_machine { &self.own_machine } else { &self.outward };
        handlers::register(registry, services.clone());
    }

    /// Forgets the view of a cluster whose intent has changed, and limits the slots of its project.
    pub(crate) fn update(&self, store: &Store, record: &ClusterRecord) -> Result<(), StoreError> {
        let workers = super::tenant_of(store, &record.project_name)?.workers;
        let cap = if workers == 0 { SLOTS } else { workers as usize };
        self.slots.set_limits(&tenant(record.project), TenantSlotLimits { floor: 0, cap });
        let mut views = self.directory.views.lock().ignore_poison();
        if views.get(&record.id).is_some_and(|view| view.intent != record.intent) {
            views.remove(&record.id);
        }
        Ok(())
    }
}

/// Contents of plug-in resources in the store.
struct StoredResources(Store);

impl PluginResources for StoredResources {
    fn content(&self, tenant: &str, digest: &str) -> Result<Option<Arc<[u8]>>, PluginError> {
        let unavailable = |reason: String| {
            PluginError::new(format!("cannot read the plug-in resource {digest}: {reason}"))
        };
        let project: Uuid = tenant.parse().map_err(|_| unavailable("no project".to_owned()))?;
        let found = self.0.plugin_resources().content(project.into(), digest);
        let found = found.map_err(|error| unavailable(error.to_string()))?;
        Ok(found.map(Into::into))
    }
}

/// A view and the revision of the intent that it shows.
struct CachedView {
    intent: i64,
    view: Arc<ClusterView>,
}

/// Views of clusters from stored intents and facts.
struct StoredDirectory {
    store: Store,
    views: Mutex<BTreeMap<String, CachedView>>,
}

impl StoredDirectory {
    fn read(&self, cluster: &str) -> Result<CachedView, StoreError> {
        let record = self.store.clusters().get(cluster)?;
        let intent = intents::read(&self.store, record.key, record.intent)?;
        let mut facts = node_facts(&self.store, record.environment)?;
        let nodes = intent.nodes.iter().map(|(name, node)| ViewNode {
            name: name.clone(),
            number: node.number,
            hostname: node.hostname.clone(),
            services: node.services.keys().cloned().collect(),
            facts: facts.remove(name).unwrap_or_default(),
        });
        let (tenant, nodes) = (tenant(record.project), nodes.collect());
        let view = ClusterView::new(cluster, &record.owner, &tenant, nodes).with_leaving(facts);
        Ok(CachedView { intent: record.intent, view: Arc::new(view) })
    }
}

/// Name of a project in tasks.
pub(crate) fn tenant(project: ProjectId) -> String {
    project.uuid().to_string()
}

/// Facts of the nodes of a cluster, by name of the node.
pub(crate) fn node_facts(
    store: &Store,
    environment: EnvironmentKey,
) -> Result<BTreeMap<String, NodeFacts>, StoreError> {
    let rows = store.parameters().facts_of_entity(environment, entity::REACHABLE)?;
    let mut pairs: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    for (id, name, value) in &rows {
        if let Ok(id) = id.parse::<ResourceId>() {
            pairs.entry(id.agent().to_owned()).or_default().push((name, value));
        }
    }
    Ok(pairs.into_iter().map(|(node, pairs)| (node, NodeFacts::from_pairs(pairs))).collect())
}

impl ClusterDirectory for StoredDirectory {
    fn view(&self, cluster: &str, refresh: bool) -> Result<Arc<ClusterView>, DirectoryError> {
        if !refresh && let Some(known) = self.views.lock().ignore_poison().get(cluster) {
            return Ok(Arc::clone(&known.view));
        }
        let read = self.read(cluster).map_err(|error| match error {
            StoreError::NotFound { .. } => DirectoryError::NotFound(cluster.to_owned()),
            error => DirectoryError::Unavailable {
                cluster: cluster.to_owned(),
                reason: error.to_string(),
            },
        })?;
        let view = Arc::clone(&read.view);
        self.views.lock().ignore_poison().insert(cluster.to_owned(), read);
        Ok(view)
    }
}
