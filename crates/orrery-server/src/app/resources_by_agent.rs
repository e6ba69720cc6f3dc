//! Resources by agent. The store sorts by id, which begins with the type, but finds the resources
//! of one agent quickly: a page consists of pages of several agents.

use orrery_store::{EnvironmentKey, ResourceLine, ResourceQuery, Store, StoreError};

/// Maximum number of agents to read for a page.
const AGENTS_READ_MAX: usize = 200;

/// Cursor: an agent, and one of its resources unless all were listed.
pub(crate) type AgentCursor = (String, Option<String>);

/// Lists resources by agent and id, ascending or descending.
pub(crate) fn list(
    store: &Store,
    environment: EnvironmentKey,
    query: &ResourceQuery,
    after: Option<AgentCursor>,
    limit: usize,
) -> Result<(Vec<ResourceLine>, Option<AgentCursor>), StoreError> {
    let mut agents: Vec<String> = match &query.agent {
        Some(agent) => vec![agent.clone()],
        None if !query.agents.is_empty() => query.agents.clone(),
        None => store.agents().states(environment)?.into_iter().map(|agent| agent.name).collect(),
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
        // The agent was removed, with its resources.
        within = within.filter(|_| agents.first() == Some(&begin));
    }
    let mut lines: Vec<ResourceLine> = Vec::new();
    for (read, agent) in (1..).zip(&agents) {
        let own = ResourceQuery { agent: Some(agent.clone()), agents: Vec::new(), ..query.clone() };
        let left = limit - lines.len();
        let after = within.take();
        let page = store.resources().list(environment, &own, after.as_deref(), left)?;
        lines.extend(page.lines);
        if page.next.is_some() {
            return Ok((lines, Some((agent.clone(), page.next))));
        }
        let is_last = read == agents.len();
        if !is_last && (lines.len() == limit || read == AGENTS_READ_MAX) {
            return Ok((lines, Some((agent.clone(), None))));
        }
    }
    Ok((lines, None))
}
