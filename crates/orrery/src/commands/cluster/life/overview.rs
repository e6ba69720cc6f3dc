//! Lists of clusters, their details and leases.

use orrery_api::{
    Cluster, ClusterConnection, ClusterLayout, ClusterNode, ClusterStatus, ClusterUpdate,
};
use serde_json::json;

use super::{change, lookup};
use crate::cli::cluster_control::{ListClusters, RenewCluster};
use crate::cli::cluster_life::ClusterName;
use crate::commands::remote::table::{Table, moment, moment_or, properties};
use crate::commands::remote::{print_json, read_list, show_done, show_list};
use crate::error::CliError;
use crate::{Exit, output, style};

pub(super) fn list(options: &ListClusters) -> Result<Exit, CliError> {
    let remote = options.args.open()?;
    let found = lookup::clusters(&remote, options.project.as_deref(), options.all)?;
    let headings = ["NAME", "STATUS", "NODES", "TEMPLATE", "OWNER", "EXPIRES", "ID"];
    show_list(options.args.json, &found, Table::new("cluster", &headings), |one| {
        vec![
            format!("{}/{}", one.project_name, one.name),
            one.status.as_str().to_owned(),
            one.size.to_string(),
            one.template.clone(),
            one.owner.clone(),
            moment_or(one.expires.as_ref(), "never"),
            one.id.clone(),
        ]
    })
}

pub(super) fn show(of: &ClusterName) -> Result<Exit, CliError> {
    let found = lookup::find(of)?;
    let (client, cluster) = (&found.remote.client, &found.cluster);
    let is_gone = cluster.status == ClusterStatus::Terminated;
    let (layout, nodes, connection) = if is_gone {
        Default::default()
    } else {
        (
            client.cluster_layout(&cluster.id)?,
            read_list(client.cluster_nodes(&cluster.id), None)?,
            client.cluster_connection(&cluster.id)?,
        )
    };
    if of.args.json {
        return print_json(&json!({
            "cluster": cluster, "layout": layout, "nodes": nodes, "connection": connection,
        }));
    }
    describe(cluster)?;
    let ClusterLayout { groups } = &layout;
    if !groups.is_empty() && !output::print_styled(&format!("\n{}", change::layout_table(groups))) {
        return Ok(Exit::Error);
    }
    show_links(&connection)?;
    if nodes.is_empty() {
        return Ok(Exit::Done);
    }
    if !output::print_styled("\n") {
        return Ok(Exit::Error);
    }
    let mut table = Table::new("node", &["NODE", "STATE", "ADDRESS", "HARDWARE", "SERVICES"]);
    for node in &nodes {
        let address = node.facts.get("ip.access_v4").cloned().unwrap_or_default();
        table.row([&node.name, &state(node), &address, &node.hardwaretype, &services(node)]);
    }
    table.print()
}

fn describe(cluster: &Cluster) -> Result<Exit, CliError> {
    let operation = cluster.operation.as_ref().map(|operation| {
        let message = match operation.message.as_str() {
            "" => String::new(),
            message => format!(": {message}"),
        };
        let state = operation.state.as_str();
        format!("{} ({}), {state}{message}", operation.number, operation.kind.as_str())
    });
    let status = match cluster.message.as_str() {
        "" => cluster.status.as_str().to_owned(),
        message => format!("{}: {message}", cluster.status.as_str()),
    };
    properties(&[
        ("name", format!("{}/{}", cluster.project_name, cluster.name)),
        ("description", cluster.description.clone()),
        ("id", cluster.id.clone()),
        ("status", status),
        ("operation", operation.unwrap_or_default()),
        ("template", format!("{}, revision {}", cluster.template, cluster.template_revision)),
        ("provider", cluster.provider.clone()),
        ("owner", cluster.owner.clone()),
        ("nodes", cluster.size.to_string()),
        ("services", cluster.services.join(", ")),
        ("created", moment(&cluster.created)),
        ("expires", moment_or(cluster.expires.as_ref(), "never")),
        ("environment", cluster.environment.to_string()),
    ])
}

fn show_links(connection: &ClusterConnection) -> Result<Exit, CliError> {
    let links = connection.links.iter();
    let links = links.filter_map(|link| Some((link.label.as_str(), link.url.clone()?)));
    let links: Vec<(&str, String)> = links.collect();
    if links.is_empty() {
        return Ok(Exit::Done);
    }
    if !output::print_styled("\n") {
        return Ok(Exit::Error);
    }
    properties(&links)
}

/// `deployed`, or the number of resources that are not.
fn state(node: &ClusterNode) -> String {
    let counts = &node.counts;
    let open = counts.total.saturating_sub(counts.done + counts.failed);
    match (counts.failed, open) {
        (0, 0) => "deployed".to_owned(),
        (0, open) => format!("{open} open"),
        (failed, _) => format!("{failed} failed"),
    }
}

fn services(node: &ClusterNode) -> String {
    let names = node.services.iter().map(|service| match service.running {
        true => service.name.clone(),
        false => format!("{} (stopped)", service.name),
    });
    names.collect::<Vec<_>>().join(", ")
}

pub(super) fn renew(options: &RenewCluster) -> Result<Exit, CliError> {
    let found = lookup::find(&options.of)?;
    let lease_seconds = Some(options.lease.0 / 1000);
    let update = ClusterUpdate { lease_seconds, ..ClusterUpdate::default() };
    let cluster = found.remote.client.update_cluster(&found.cluster.id, &update)?;
    let text = match &cluster.expires {
        Some(expires) => format!("the lease of {} ends {}", found.name(), moment(expires)),
        None => format!("the lease of {} has no end", found.name()),
    };
    show_done(options.of.args.json, &cluster, &style::sanitize(&text))
}
