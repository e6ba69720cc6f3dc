//! Discovered resources: stored and deleted.

use orrery_model::ResourceId;
use orrery_store::{EnvironmentKey, EnvironmentRecord, NewDiscovered, StoreError};
use serde_json::Value;

use crate::error::ServerError;
use crate::services::Services;

use super::environments::check_not_deleting;

/// Maximum number of resources in a request.
pub(crate) const UPLOADED_MAX: usize = 10_000;

/// A discovered resource to store.
#[derive(Clone, Debug)]
pub struct DiscoveredDraft {
    pub id: String,
    pub attributes: Value,
    /// Resource with the handler that found it.
    pub discovery_resource: Option<String>,
}

/// Part of a draft that is no resource id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidDraft {
    pub(crate) index: usize,
    pub(crate) part: &'static str,
    pub(crate) reason: String,
}

/// Checks the ids of drafts.
pub(crate) fn check(drafts: &[DiscoveredDraft]) -> Result<(), InvalidDraft> {
    for (index, draft) in drafts.iter().enumerate() {
        let parts =
            [("id", Some(&draft.id)), ("discovery_resource", draft.discovery_resource.as_ref())];
        for (part, text) in parts {
            if let Some(Err(error)) = text.map(|text| text.parse::<ResourceId>()) {
                return Err(InvalidDraft { index, part, reason: error.to_string() });
            }
        }
    }
    Ok(())
}

/// Stores discovered resources and replaces known ones.
pub async fn put(
    services: &Services,
    environment: &EnvironmentRecord,
    drafts: Vec<DiscoveredDraft>,
) -> Result<(), ServerError> {
    check_not_deleting(environment)?;
    let (key, now) = (environment.key, services.now());
    services
        .change(move |store| {
            let found: Vec<NewDiscovered<'_>> = drafts
                .iter()
                .map(|draft| NewDiscovered {
                    name: &draft.id,
                    attributes: &draft.attributes,
                    discovery_resource: draft.discovery_resource.as_deref().unwrap_or(""),
                })
                .collect();
            store.discovered().put(key, &found, now)
        })
        .await?;
    Ok(())
}

/// Deletes a discovered resource.
pub async fn delete(
    services: &Services,
    environment: EnvironmentKey,
    id: String,
) -> Result<(), ServerError> {
    let now = services.now();
    services.change(move |store| store.discovered().delete(environment, &id, now)).await?;
    Ok(())
}

/// Deletes discovered resources; missing ones are fine.
pub async fn delete_all(
    services: &Services,
    environment: EnvironmentKey,
    ids: Vec<String>,
) -> Result<(), ServerError> {
    let now = services.now();
    services
        .change(move |store| {
            for id in &ids {
                match store.discovered().delete(environment, id, now) {
                    Ok(()) | Err(StoreError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
        .await?;
    Ok(())
}
