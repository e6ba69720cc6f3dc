//! Plug-in resources of a project: upload, staging, sync and deletion.

use orrery_base::hex::to_hex;
use orrery_model::ProjectId;
use orrery_store::{PluginResourceName, PluginResourceRecord};
use sha2::{Digest as _, Sha256};

use crate::error::ServerError;
use crate::services::Services;

/// Maximum size of a content.
const CONTENT_MAX: usize = 64 << 20;
const NAME_MAX: usize = 255;

/// Owned name of a plug-in resource.
#[derive(Clone, Debug)]
pub(crate) struct ResourcePath {
    pub(crate) project: ProjectId,
    pub(crate) plugin: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl ResourcePath {
    fn name(&self) -> PluginResourceName<'_> {
        PluginResourceName {
            project: self.project,
            plugin: &self.plugin,
            kind: &self.kind,
            name: &self.name,
        }
    }

    /// Names are parts of paths on nodes.
    fn check(&self) -> Result<(), ServerError> {
        for (field, text) in [("plugin", &self.plugin), ("type", &self.kind), ("name", &self.name)]
        {
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            let is_name = (1..=NAME_MAX).contains(&text.len())
                && text.chars().all(is_allowed)
                && !text.starts_with('.');
            if !is_name {
                let reason = format!(
                    "must have 1 to {NAME_MAX} letters, digits, dots, hyphens and underscores, and not begin with a dot"
                );
                return Err(ServerError::field(field, reason));
            }
        }
        Ok(())
    }
}

/// Stores a new version, which is staged.
pub(crate) async fn upload(
    services: &Services,
    by: &str,
    path: ResourcePath,
    content: Vec<u8>,
) -> Result<PluginResourceRecord, ServerError> {
    path.check()?;
    if content.len() > CONTENT_MAX {
        return Err(ServerError::TooLarge("the limit here is 64 MiB".to_owned()));
    }
    let (by, now) = (by.to_owned(), services.now());
    let stored = services.change(move |store| {
        let digest = to_hex(&Sha256::digest(&content));
        store.plugin_resources().put(path.name(), (&digest, &content), &by, now)
    });
    Ok(stored.await?)
}

/// Stages or recalls a version.
pub(crate) async fn stage(
    services: &Services,
    path: ResourcePath,
    version: i64,
    staged: bool,
) -> Result<PluginResourceRecord, ServerError> {
    let now = services.now();
    let changed = services
        .change(move |store| store.plugin_resources().stage(path.name(), version, staged, now));
    Ok(changed.await?)
}

/// Makes the staged versions live.
pub(crate) async fn sync(
    services: &Services,
    project: ProjectId,
) -> Result<Vec<PluginResourceRecord>, ServerError> {
    let now = services.now();
    Ok(services.change(move |store| store.plugin_resources().sync(project, now)).await?)
}

/// Deletes a version that is neither live nor staged.
pub(crate) async fn delete(
    services: &Services,
    path: ResourcePath,
    version: i64,
) -> Result<PluginResourceRecord, ServerError> {
    let now = services.now();
    let deleted =
        services.change(move |store| store.plugin_resources().delete(path.name(), version, now));
    Ok(deleted.await?)
}
