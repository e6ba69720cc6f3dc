//! Execution sites of agents with their caches, resolved at the first run of each agent.

use std::sync::Arc;

use orrery_handlers::TargetCache;
use orrery_scheduler::AgentIndex;

use crate::placement::{AgentContext, TargetResolver};

pub(crate) struct AgentSites {
    targets: Arc<dyn TargetResolver>,
    /// Each with the cache generation of its last use.
    contexts: Vec<Option<(u64, Arc<AgentContext>)>>,
    /// Grows whenever cached data about targets may be outdated.
    generation: u64,
}

impl AgentSites {
    pub(crate) fn new(targets: Arc<dyn TargetResolver>) -> Self {
        AgentSites { targets, contexts: Vec::new(), generation: 0 }
    }

    /// Returns the site and cache of an agent; resolves the site at its first run.
    pub(crate) fn get(&mut self, agent: AgentIndex, name: &str) -> Arc<AgentContext> {
        let at = agent.as_usize();
        if self.contexts.len() <= at {
            self.contexts.resize_with(at + 1, || None);
        }
        if let Some((used_in, context)) = &mut self.contexts[at] {
            debug_assert!(*used_in <= self.generation, "generations grow");
            if *used_in != self.generation {
                context.cache.clear();
                *used_in = self.generation;
            }
            return Arc::clone(context);
        }
        let site = self.targets.resolve(name);
        let context = Arc::new(AgentContext { site, cache: TargetCache::new() });
        self.contexts[at] = Some((self.generation, Arc::clone(&context)));
        context
    }

    /// Invalidates cached data about all targets.
    pub(crate) fn invalidate_caches(&mut self) {
        self.generation += 1;
    }

    /// Drops resolved sites: agents may have moved.
    pub(crate) fn invalidate_sites(&mut self) {
        self.contexts.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::placement::{ExecutionSite, NoTarget};
    use crate::test_support::scheduler;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl TargetResolver for Counted {
        fn resolve(&self, agent: &str) -> Result<ExecutionSite, NoTarget> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(NoTarget(agent.to_owned()))
        }

        fn sync(&self) {}
    }

    #[test]
    fn a_site_is_resolved_once_and_its_cache_cleared_when_outdated() {
        let targets = Arc::new(Counted::default());
        let mut sites = AgentSites::new(Arc::clone(&targets) as Arc<dyn TargetResolver>);
        let agent = scheduler(&["one"]).agent_of("a").unwrap();
        let context = sites.get(agent, "a");
        context.cache.get_or_query(|| Ok::<_, ()>(7u8)).unwrap();
        assert!(sites.get(agent, "a").cache.get::<u8>().is_some());
        sites.invalidate_caches();
        assert!(sites.get(agent, "a").cache.get::<u8>().is_none());
        assert_eq!(targets.0.load(Ordering::Relaxed), 1);
        sites.invalidate_sites();
        sites.get(agent, "a");
        assert_eq!(targets.0.load(Ordering::Relaxed), 2);
    }
}
