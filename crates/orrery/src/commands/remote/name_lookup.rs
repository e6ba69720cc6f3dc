//! Names of projects and environments by id.

use std::collections::BTreeMap;

use orrery_api::client::path;
use orrery_api::{Environment, Project};
use uuid::Uuid;

use super::read_list;
use crate::remote::Remote;

/// Names by id, as far as visible to the caller.
#[derive(Debug, Default)]
pub(super) struct NameLookup(BTreeMap<Uuid, String>);

impl NameLookup {
    /// Fetches the names if there are any ids. Without the right to read names, ids are shown.
    pub(super) fn fetch(
        remote: &Remote,
        ids: impl Iterator<Item = (Option<Uuid>, Option<Uuid>)>,
    ) -> Self {
        let (projects, environments): (Vec<_>, Vec<_>) = ids.unzip();
        let mut names = BTreeMap::new();
        if projects.iter().any(Option::is_some) {
            let found = read_list(remote.client.list::<Project>(&path(&["projects"])), None);
            names.extend(found.unwrap_or_default().into_iter().map(|one| (one.id, one.name)));
        }
        if environments.iter().any(Option::is_some) {
            let pages = remote.client.list::<Environment>(&path(&["environments"]));
            let found = read_list(pages, None).unwrap_or_default();
            names.extend(
                found.into_iter().map(|one| (one.id, format!("{}/{}", one.project_name, one.name))),
            );
        }
        NameLookup(names)
    }

    /// Scope of a role or token, in words.
    pub(super) fn describe(&self, project: Option<Uuid>, environment: Option<Uuid>) -> String {
        let name = |id: Uuid| self.0.get(&id).cloned().unwrap_or_else(|| id.to_string());
        match (environment, project) {
            (Some(id), _) => format!("environment {}", name(id)),
            (None, Some(id)) => format!("project {}", name(id)),
            (None, None) => "everywhere".to_owned(),
        }
    }
}
