//! Nodes of clusters: their services, facts and addresses.

use std::collections::BTreeMap;

use orrery_api::{
    ClusterConnection, ClusterLink, ClusterNode, ClusterNodeService, NodeConnection, ProgressCounts,
};
use orrery_cluster::intent::{ClusterIntent, IntentNode};
use orrery_cluster::macros::{self, MacroContext};
use orrery_model::Status;
use orrery_provisioner::facts::NodeFacts;
use orrery_store::{ClusterRecord, EnvironmentKey, ResourceQuery, Store, StoreError};

use crate::cluster;

/// A page of nodes in the order of their numbers, after a number.
pub(crate) fn nodes(
    store: &Store,
    id: &str,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<ClusterNode>, StoreError> {
    let (record, intent) = read(store, id)?;
    let mut facts = cluster::node_facts(store, record.environment)?;
    let page = intent.nodes_by_number().into_iter();
    let page = page.filter(|(_, node)| after.is_none_or(|after| node.number > after)).take(limit);
    let mut found = Vec::with_capacity(limit.min(intent.nodes.len()));
    for (name, node) in page {
        let facts = facts.remove(name).unwrap_or_default();
        found.push(node_view(store, &record, (name, node), &facts)?);
    }
    Ok(found)
}

fn read(store: &Store, id: &str) -> Result<(ClusterRecord, ClusterIntent), StoreError> {
    let record = store.clusters().get(id)?;
    let intent = cluster::read_intent(store, record.key, record.intent)?;
    Ok((record, intent))
}

fn node_view(
    store: &Store,
    record: &ClusterRecord,
    (name, node): (&str, &IntentNode),
    facts: &NodeFacts,
) -> Result<ClusterNode, StoreError> {
    let (counts, statuses) = statuses(store, record.environment, name)?;
    let services = node.services.iter().map(|(service, state)| ClusterNodeService {
        name: service.clone(),
        running: state.running,
        status: statuses.get(service).copied().unwrap_or(Status::Available).as_str().to_owned(),
    });
    let facts = facts.to_facts().into_iter().map(|fact| (fact.name, fact.value));
    Ok(ClusterNode {
        name: name.to_owned(),
        number: node.number,
        incarnation: node.incarnation,
        hostname: node.hostname.clone(),
        hardwaretype: node.hardwaretype.clone(),
        imagetype: node.imagetype.clone(),
        machine: format!("orr-{}-{}-{}", record.id, node.number, node.incarnation),
        facts: facts.collect(),
        services: services.collect(),
        counts,
    })
}

/// Statuses from bad to good.
const WORST_FIRST: [Status; 5] =
    [Status::Failed, Status::Unavailable, Status::NonCompliant, Status::Skipped, Status::Deploying];

/// Counts of the resources of a node, and the worst status of each of its services.
fn statuses(
    store: &Store,
    environment: EnvironmentKey,
    node: &str,
) -> Result<(ProgressCounts, BTreeMap<String, Status>), StoreError> {
    const RESOURCES_MAX: usize = 10_000;
    let query = ResourceQuery { agent: Some(node.to_owned()), ..ResourceQuery::default() };
    let lines = store.resources().list(environment, &query, None, RESOURCES_MAX)?.lines;
    let badness =
        |status: Status| {
            WORST_FIRST.iter().position(|one| *one == status).unwrap_or(
                if status == Status::Deployed { WORST_FIRST.len() + 1 } else { WORST_FIRST.len() },
            )
        };
    let mut counts = ProgressCounts::default();
    let mut worst: BTreeMap<String, Status> = BTreeMap::new();
    for line in &lines {
        let status = line.summary.status;
        cluster::count(&mut counts, status, 1);
        if let Some(service) = cluster::service_of(&line.summary.id) {
            let known = worst.entry(service).or_insert(status);
            if badness(status) < badness(*known) {
                *known = status;
            }
        }
    }
    Ok((counts, worst))
}

/// Addresses of the nodes, and the links of the template.
pub(crate) fn connection(store: &Store, id: &str) -> Result<ClusterConnection, StoreError> {
    let (record, intent) = read(store, id)?;
    let facts = cluster::node_facts(store, record.environment)?;
    let known = |name: &String| facts.get(name).cloned().unwrap_or_default();
    let nodes = intent.nodes_by_number();
    let macro_nodes: Vec<macros::Node> = nodes
        .iter()
        .map(|(name, node)| macros::Node {
            id: (*name).clone(),
            number: node.number,
            hostname: Some(node.hostname.clone()),
            addresses: known(name).addresses,
            services: node.services.keys().cloned().collect(),
        })
        .collect();
    let context = MacroContext { owner: &record.owner, nodes: &macro_nodes, this: None };
    let links = intent.template.links.iter().map(|link| {
        let url = serde_json::Value::String(link.url.clone());
        let expanded = macros::expand_value(&url, &context).ok();
        let url = expanded.and_then(|value| value.as_str().map(str::to_owned));
        ClusterLink { label: link.label.clone().unwrap_or_else(|| link.url.clone()), url }
    });
    let links = links.collect();
    let nodes = nodes.into_iter().map(|(name, node)| {
        let facts = known(name);
        NodeConnection {
            node: name.clone(),
            hostname: node.hostname.clone(),
            address: facts.access_address().map(str::to_owned),
            ssh_port: facts.ssh_port,
            ssh_user: facts.ssh_user.clone().unwrap_or_else(|| node.ssh_user.clone()),
            host_key: facts.ssh_host_key,
        }
    });
    Ok(ClusterConnection { nodes: nodes.collect(), links })
}

/// Groups of identical nodes.
pub(crate) fn layout(store: &Store, id: &str) -> Result<Vec<orrery_api::LayoutGroup>, StoreError> {
    Ok(cluster::layout(&read(store, id)?.1))
}
