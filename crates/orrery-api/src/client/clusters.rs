//! Calls of the cluster API.

use super::{Client, ClientError, Pages, path, query};
use crate::{
    AbortPolicy, AbortRequest, Cluster, ClusterChangeAnswer, ClusterConnection, ClusterLayout,
    ClusterNode, ClusterOperation, ClusterOperationRequest, ClusterPlugins, ClusterUpdate,
    NewCluster, Page, PluginResource, WorkerList,
};

fn cluster_path(id: &str, more: &[&str]) -> String {
    let mut parts = vec!["clusters", id];
    parts.extend(more);
    path(&parts)
}

/// Every call fails if the server refuses or cannot be reached.
impl Client {
    /// Clusters of a project by name; with `terminated`, also deleted ones.
    pub fn clusters(&self, project: &str, terminated: bool) -> Pages<'_, Cluster> {
        let all = path(&["projects", project, "clusters"]);
        self.list(&query(&all, &[("terminated", terminated.then_some("true"))])).large()
    }

    /// # Errors
    /// As `get`. The same holds for all methods below.
    pub fn create_cluster(
        &self,
        project: &str,
        new: &NewCluster,
    ) -> Result<ClusterChangeAnswer, ClientError> {
        self.post(&path(&["projects", project, "clusters"]), new)
    }

    /// A cluster by its id.
    pub fn cluster(&self, id: &str) -> Result<Cluster, ClientError> {
        self.get(&cluster_path(id, &[]))
    }

    /// Changes the description or the lease.
    pub fn update_cluster(&self, id: &str, update: &ClusterUpdate) -> Result<Cluster, ClientError> {
        self.patch(&cluster_path(id, &[]), update)
    }

    /// Requests the deletion of a cluster.
    pub fn delete_cluster(&self, id: &str) -> Result<ClusterChangeAnswer, ClientError> {
        self.delete(&cluster_path(id, &[]))
    }

    /// Requests an operation, or its plan.
    pub fn operate_cluster(
        &self,
        id: &str,
        request: &ClusterOperationRequest,
    ) -> Result<ClusterChangeAnswer, ClientError> {
        self.post(&cluster_path(id, &["operations"]), request)
    }

    /// Operations of a cluster, newest first.
    pub fn cluster_operations(&self, id: &str) -> Pages<'_, ClusterOperation> {
        self.list(&cluster_path(id, &["operations"])).large()
    }

    /// An operation with its progress.
    pub fn cluster_operation(
        &self,
        id: &str,
        number: i64,
    ) -> Result<ClusterOperation, ClientError> {
        self.get(&cluster_path(id, &["operations", &number.to_string()]))
    }

    /// Pauses an operation.
    pub fn pause_cluster(&self, id: &str, number: i64) -> Result<ClusterOperation, ClientError> {
        self.post_empty(&cluster_path(id, &["operations", &number.to_string(), "pause"]))
    }

    /// Resumes a paused operation, or a failed creation or deletion.
    pub fn resume_cluster(&self, id: &str, number: i64) -> Result<ClusterOperation, ClientError> {
        self.post_empty(&cluster_path(id, &["operations", &number.to_string(), "resume"]))
    }

    /// Aborts an operation.
    pub fn abort_cluster(
        &self,
        id: &str,
        number: i64,
        policy: AbortPolicy,
    ) -> Result<ClusterChangeAnswer, ClientError> {
        let abort = cluster_path(id, &["operations", &number.to_string(), "abort"]);
        self.post(&abort, &AbortRequest { policy })
    }

    /// Nodes of a cluster by number.
    pub fn cluster_nodes(&self, id: &str) -> Pages<'_, ClusterNode> {
        self.list(&cluster_path(id, &["nodes"])).large()
    }

    /// Groups of identical nodes.
    pub fn cluster_layout(&self, id: &str) -> Result<ClusterLayout, ClientError> {
        self.get(&cluster_path(id, &["layout"]))
    }

    /// Addresses and links of a cluster.
    pub fn cluster_connection(&self, id: &str) -> Result<ClusterConnection, ClientError> {
        self.get(&cluster_path(id, &["connection"]))
    }

    /// Plug-ins of the server.
    pub fn cluster_plugins(&self) -> Result<ClusterPlugins, ClientError> {
        self.get(&path(&["cluster-plugins"]))
    }

    /// Workers of the installation.
    pub fn workers(&self) -> Result<WorkerList, ClientError> {
        self.get(&path(&["workers"]))
    }

    /// Versions of the plug-in resources of a project.
    pub fn plugin_resources(&self, project: &str) -> Result<Page<PluginResource>, ClientError> {
        self.get(&path(&["projects", project, "plugin-resources"]))
    }

    /// Uploads and stages a version of a plug-in resource: plug-in, type and name.
    pub fn upload_plugin_resource(
        &self,
        project: &str,
        resource: [&str; 3],
        content: Vec<u8>,
    ) -> Result<PluginResource, ClientError> {
        let mut parts = vec!["projects", project, "plugin-resources"];
        parts.extend(resource);
        self.put_bytes(&path(&parts), content)
    }

    /// Makes the staged versions of a project live.
    pub fn sync_plugin_resources(
        &self,
        project: &str,
    ) -> Result<Page<PluginResource>, ClientError> {
        self.post_empty(&path(&["projects", project, "plugin-resources", "sync"]))
    }
}
