//! Resources agent by agent. The store keeps them by id, which begins with the type; those of one agent are quickly found all
//! the same, so that a page of this order is put together from the pages of agents.

use orrery_store::{EnvironmentKey, ResourceLine, ResourceQuery, Store, StoreError};

/// Agents that one page looks at.
const AGENTS_LOOKED_AT: usize = 200;

/// Where a page ends: at an agent, and at one of its resources unless all of them were listed.
pub(super) type Place = (String, Option<String>);

/// Lists resources in the order of their agents, or against it, and in the same direction by id for each.
pub(super) fn list(
    store: &dyn Store,
    environment: EnvironmentKey,
    query: &ResourceQuery,
    after: Option<Place>,
    limit: usize,
) -> Result<(Vec<ResourceLine>, Option<Place>), StoreError> {
    let mut agents: Vec<String> = match &query.agent {
        Some(agent) => vec![agent.clone()],
        None => store.agents(environment)?.into_iter().map(|agent| agent.name).collect(),
    };
    agents.sort_unstable();
    if query.descending {
        agents.reverse();
    }
    let (begin, mut within) = after.unzip();
    let mut within = within.take().flatten();
    if let Some(begin) = begin {
        agents.retain(|agent| match agent.cmp(&begin) {
            std::cmp::Ordering::Equal => within.is_some(),
            order => (order == std::cmp::Ordering::Less) == query.descending,
        });
        // The agent is gone, and so are its resources.
        within = within.filter(|_| agents.first() == Some(&begin));
    }
    let mut lines: Vec<ResourceLine> = Vec::new();
    for (looked_at, agent) in (1..).zip(&agents) {
        let own = ResourceQuery { agent: Some(agent.clone()), ..query.clone() };
        let left = limit - lines.len();
        let after = within.take();
        let page = store.records().list_resources(environment, &own, after.as_deref(), left)?;
        lines.extend(page.lines);
        if page.next.is_some() {
            return Ok((lines, Some((agent.clone(), page.next))));
        }
        let is_last = looked_at == agents.len();
        if !is_last && (lines.len() == limit || looked_at == AGENTS_LOOKED_AT) {
            return Ok((lines, Some((agent.clone(), None))));
        }
    }
    Ok((lines, None))
}
