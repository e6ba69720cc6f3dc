//! Restarts and replaced machines, a few instances at a time.

use std::collections::{BTreeMap, BTreeSet};

use super::super::draft::State;
use super::{Instance, Transition};
use crate::planner::PlanError;

impl Transition<'_, '_> {
    /// Orders restarts and replaced machines so that few instances are down at the same time.
    pub(super) fn roll(&mut self) -> Result<(), PlanError> {
        let services = &self.new.view.services;
        let mut edges: Vec<(u32, u32)> = Vec::new();
        let limit = |service: usize| {
            let name = services[service].name;
            match self.restart.limit(name).unwrap_or(1) {
                0 => Err(PlanError::NothingUnavailable(name.to_owned())),
                limit => Ok(limit as usize),
            }
        };
        let mut replaced: Vec<usize> = Vec::new();
        let mut window = usize::MAX;
        let mut cycles: BTreeMap<usize, Vec<&Instance>> = BTreeMap::new();
        let mut moved: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        let mut reinstalled: BTreeSet<usize> = BTreeSet::new();
        for instance in &self.instances {
            if instance.is_replaced {
                window = window.min(limit(instance.service)?);
                if replaced.last() != Some(&instance.node) {
                    replaced.push(instance.node);
                }
                moved.entry(instance.service).or_default().extend(instance.chain.last());
            } else if instance.cycles {
                limit(instance.service)?;
                cycles.entry(instance.service).or_default().push(instance);
            }
            if instance.is_reinstalled {
                reinstalled.insert(instance.service);
            }
        }
        for (earlier, later) in replaced.iter().zip(replaced.iter().skip(window)) {
            let before = &self.instances[self.of_node[*earlier].clone()];
            let last = before.iter().filter_map(|instance| instance.chain.last());
            edges.extend(last.map(|last| (self.machines[*later], last)));
        }
        for (service, instances) in &cycles {
            let limit = limit(*service)?;
            let first = |instance: &Instance| instance.chain.quiesced.or(instance.chain.running);
            let starts = instances.iter().copied().filter_map(first);
            for (earlier, start) in instances.iter().zip(starts.clone().skip(limit)) {
                edges.extend(earlier.chain.last().map(|last| (start, last)));
            }
            for start in starts.take(limit) {
                edges.extend(moved.get(service).into_iter().flatten().map(|last| (start, *last)));
                for other in &services[*service].starts_before {
                    self.drafts.wait(start, State::Running, services[*other].name);
                }
                let installs = services[*service].installs_before.iter();
                for other in installs.filter(|other| reinstalled.contains(other)) {
                    self.drafts.wait(start, State::Installed, services[*other].name);
                }
            }
        }
        self.drafts.is_passing |= !cycles.is_empty() || !edges.is_empty();
        for (dependent, required) in edges {
            self.drafts.require(dependent, required);
        }
        Ok(())
    }
}
