//! Search over resources, agents and versions of the environments that the caller may view.

use orrery_api::{SearchHit, SearchKind, SearchResult};
use orrery_model::{Pattern, Status};
use orrery_store::{EnvironmentRecord, ResourceQuery, Store, StoreError};
use uuid::Uuid;

use crate::access::Right;
use crate::auth::Caller;
use crate::error::ServerError;
use crate::services::Services;

/// Environments that one search reads.
const ENVIRONMENTS_MAX: usize = 20;
/// Pages of resources that one search reads in an environment. Each reads 10,000 names.
const PAGES_MAX: usize = 10;
/// Agents that one search reads in an environment.
const AGENTS_MAX: usize = 10_000;

/// Search for a text.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub(crate) text: String,
    /// Environment to search first.
    pub(crate) environment: Option<Uuid>,
    /// Empty for all.
    pub(crate) kinds: Vec<SearchKind>,
    /// Hits of each kind.
    pub(crate) limit: usize,
}

/// Searches in the environments that the caller may view.
pub(crate) async fn find(
    services: &Services,
    caller: &Caller,
    search: Search,
) -> Result<SearchResult, ServerError> {
    let all = services.with_store(|store| store.environments().list(None)).await?;
    let mut visible: Vec<EnvironmentRecord> = all
        .into_iter()
        .filter(|record| caller.may_in_environment(Right::View, record) && !record.deleting)
        .collect();
    // Stable: the others keep their order.
    visible.sort_by_key(|record| Some(record.uuid.uuid()) != search.environment);
    let answer = services
        .with_store(move |store| {
            let mut found = Found { complete: visible.len() <= ENVIRONMENTS_MAX, hits: Vec::new() };
            for environment in visible.iter().take(ENVIRONMENTS_MAX) {
                found.add(store, environment, &search)?;
            }
            // Kinds together, environments in their order.
            found.hits.sort_by_key(|hit| hit.kind);
            Ok(SearchResult { items: found.hits, complete: found.complete })
        })
        .await?;
    Ok(answer)
}

struct Found {
    hits: Vec<SearchHit>,
    complete: bool,
}

impl Found {
    fn missing(&self, search: &Search, kind: SearchKind) -> usize {
        if !search.kinds.is_empty() && !search.kinds.contains(&kind) {
            return 0;
        }
        let known = self.hits.iter().filter(|hit| hit.kind == kind).count();
        search.limit.saturating_sub(known)
    }

    fn add(
        &mut self,
        store: &Store,
        environment: &EnvironmentRecord,
        search: &Search,
    ) -> Result<(), StoreError> {
        let hit = |kind, id: String, name: String| SearchHit {
            kind,
            id,
            name,
            environment: environment.uuid.uuid(),
            environment_name: format!("{}/{}", environment.project_name, environment.name),
            status: None,
            paused: None,
        };
        let missing = self.missing(search, SearchKind::Resource);
        if missing > 0 {
            let (found, complete) = resources(store, environment, &search.text, missing)?;
            self.complete &= complete;
            self.hits.extend(found.into_iter().map(|(id, status)| SearchHit {
                status: Some(status),
                ..hit(SearchKind::Resource, id.clone(), id)
            }));
        }
        let missing = self.missing(search, SearchKind::Agent);
        if missing > 0 {
            let wanted = search.text.to_lowercase();
            let agents = store.agents().list(environment.key, "", AGENTS_MAX)?;
            self.complete &= agents.len() < AGENTS_MAX;
            let fitting =
                agents.into_iter().filter(|one| one.name.to_lowercase().contains(&wanted));
            self.hits.extend(fitting.take(missing).map(|agent| SearchHit {
                paused: Some(agent.paused),
                ..hit(SearchKind::Agent, agent.name.clone(), agent.name)
            }));
        }
        let missing = self.missing(search, SearchKind::Version);
        let number = search.text.strip_prefix('v').unwrap_or(&search.text);
        if missing > 0 && number.chars().all(|one| one.is_ascii_digit()) {
            let versions = store.versions().list(environment.key)?;
            let fitting = versions.iter().filter(|one| one.number.to_string() == number);
            self.hits.extend(fitting.take(missing).map(|version| {
                let number = version.number.to_string();
                let name = format!("Version {number}");
                hit(SearchKind::Version, number, name)
            }));
        }
        Ok(())
    }
}

/// Finds resources by a part of their identifying values; false if more may match.
fn resources(
    store: &Store,
    environment: &EnvironmentRecord,
    text: &str,
    limit: usize,
) -> Result<(Vec<(String, Status)>, bool), StoreError> {
    let query = ResourceQuery { value: Some(Pattern::new(text)), ..ResourceQuery::default() };
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let missing = limit - found.len();
        let page = store.resources().list(environment.key, &query, after.as_deref(), missing)?;
        found.extend(
            page.lines.into_iter().map(|line| (line.summary.id.to_string(), line.summary.status)),
        );
        after = page.next;
        if after.is_none() || found.len() >= limit {
            break;
        }
    }
    Ok((found, after.is_none()))
}
