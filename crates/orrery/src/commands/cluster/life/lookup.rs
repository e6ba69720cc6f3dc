//! Finds clusters by name.

use orrery_api::client::path;
use orrery_api::{Cluster, ClusterStatus, Project};
use orrery_model::similar_names::closest;

use crate::cli::cluster_life::ClusterName;
use crate::commands::remote::{projects, read_list};
use crate::error::CliError;
use crate::remote::Remote;
use crate::style;

/// Maximum number of clusters that an error lists.
const NAMES_MAX: usize = 10;

/// A cluster on a server.
pub(super) struct FoundCluster {
    pub(super) remote: Remote,
    pub(super) cluster: Cluster,
}

impl FoundCluster {
    /// Its name for messages.
    pub(super) fn name(&self) -> String {
        style::sanitize(&self.cluster.name)
    }
}

/// All clusters that the user sees, of one project or of all.
pub(super) fn clusters(
    remote: &Remote,
    project: Option<&str>,
    terminated: bool,
) -> Result<Vec<Cluster>, CliError> {
    let all = match project {
        Some(name) => vec![projects::find(remote, name)?],
        None => read_list(remote.client.list::<Project>(&path(&["projects"])), None)?,
    };
    let mut found = Vec::new();
    for project in all {
        let id = project.id.to_string();
        found.extend(read_list(remote.client.clusters(&id, terminated), None)?);
    }
    Ok(found)
}

/// The cluster with a name or an id. Of equal names, one that exists takes precedence.
pub(super) fn find(of: &ClusterName) -> Result<FoundCluster, CliError> {
    let remote = of.args.open()?;
    let (project, name) = match of.cluster.split_once('/') {
        Some((project, name)) => (Some(project), name),
        None => (None, of.cluster.as_str()),
    };
    let all = clusters(&remote, project, true)?;
    let mut named: Vec<&Cluster> = all.iter().filter(|one| one.name == name).collect();
    if named.iter().any(|one| one.status != ClusterStatus::Terminated) {
        named.retain(|one| one.status != ClusterStatus::Terminated);
    }
    if let Some(cluster) = all.iter().find(|one| one.id == name) {
        named = vec![cluster];
    }
    match named.as_slice() {
        [cluster] => Ok(FoundCluster { cluster: (*cluster).clone(), remote }),
        [] => {
            let error = CliError::new(format!("no cluster {}", style::sanitize(&of.cluster)));
            let known = all.iter().map(|one| one.name.as_str());
            Err(match closest(name, known) {
                Some(close) => error.help(format!("did you mean {}?", style::sanitize(close))),
                None => error.help("`orrery cluster list` lists the clusters"),
            })
        }
        several => {
            let names = several.iter().take(NAMES_MAX);
            let names = names.map(|one| match several[0].project == several[1].project {
                true => one.id.clone(),
                false => format!("{}/{}", one.project_name, one.name),
            });
            let names: Vec<String> = names.map(|name| style::sanitize(&name)).collect();
            let error =
                CliError::new(format!("there are several clusters {}", style::sanitize(name)));
            Err(error.help(format!("use one of {}", names.join(", "))))
        }
    }
}

/// The project of a new cluster: the named one, or the only one.
pub(in crate::commands::cluster) fn project_for(
    remote: &Remote,
    name: Option<&str>,
) -> Result<Project, CliError> {
    if let Some(name) = name {
        return projects::find(remote, name);
    }
    let mut all = read_list(remote.client.list::<Project>(&path(&["projects"])), Some(2))?;
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(CliError::new("there is no project").help("orrery project create NAME")),
        (Some(_), false) => {
            let error = CliError::new("there are several projects: say which one");
            Err(error.help("--project NAME; `orrery project list` lists them"))
        }
    }
}
