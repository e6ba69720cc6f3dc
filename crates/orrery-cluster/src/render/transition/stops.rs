//! The order of stops and removals in a transition.

use std::collections::{BTreeMap, BTreeSet};

use super::super::draft::State;
use super::super::rendering::RestartPolicy;
use super::{Instance, Side, Transition};
use crate::document::ServiceAction;

impl<'i> Transition<'_, 'i> {
    /// Services stop before the services that they need.
    pub(super) fn order_stops(&mut self, old: Side<'_, 'i>) {
        let is_rolling = self.is_rolling();
        let mut stops: Vec<(usize, u32)> = Vec::new();
        for instance in &self.instances {
            let stop = match instance {
                Instance { cycles: true, chain, .. } if !is_rolling => chain.quiesced,
                Instance { goes_down: true, chain, .. } => chain.running,
                _ => None,
            };
            let name = self.new.view.services[instance.service].name;
            let number = old.view.numbers.get(name);
            stops.extend(number.copied().zip(stop));
        }
        for departure in self.departures.iter().filter(|departure| departure.was_up) {
            stops.extend(departure.chain.running.map(|stop| (departure.service, stop)));
        }
        let services = &old.view.services;
        stops.retain(|(service, _)| services[*service].has(ServiceAction::Stop));
        let dependents = reversed(services.iter().map(|service| service.stops_before.as_slice()));
        for (service, stop) in stops {
            self.drafts.add_member(State::Stopped, services[service].name, stop);
            for dependent in &dependents[service] {
                self.drafts.wait(stop, State::Stopped, services[*dependent].name);
            }
        }
    }

    /// Services are removed before the services that they need.
    pub(super) fn order_removals(&mut self, old: Side<'_, 'i>) {
        let services = &old.view.services;
        let dependents = reversed(services.iter().map(|service| service.removes_before.as_slice()));
        for departure in &self.departures {
            let service = &services[departure.service];
            let removed = departure.chain.installed.filter(|_| service.has(ServiceAction::Remove));
            let Some(removed) = removed else { continue };
            self.drafts.add_member(State::Removed, service.name, removed);
            for dependent in &dependents[departure.service] {
                self.drafts.wait(removed, State::Removed, services[*dependent].name);
            }
        }
    }

    /// A removed instance stops when those that replace it run and its readers are configured
    /// without it, unless the service is stopped anyway.
    pub(super) fn order_departures(&mut self, old: Side<'_, 'i>) {
        let disrupted = self.disrupted(old);
        let mut departing: BTreeMap<&'i str, Vec<u32>> = BTreeMap::new();
        for departure in self.departures.iter().filter(|departure| departure.was_up) {
            let name = old.view.services[departure.service].name;
            if let Some(stop) = departure.chain.running.filter(|_| !disrupted.contains(name)) {
                departing.entry(name).or_default().push(stop);
            }
        }
        let new = self.new;
        for (name, leaving) in departing {
            let number = new.view.numbers.get(name);
            let reads = |service: usize| {
                let reads = &new.digests.services[service].reads;
                let direct = &new.view.services[service].direct;
                number.is_some_and(|number| direct.contains(number))
                    || reads.iter().any(|read| read.service() == Some(name))
            };
            let readers: Vec<bool> = (0..new.view.services.len()).map(reads).collect();
            let stops =
                |instance: &&Instance| instance.goes_down && instance.chain.running.is_some();
            for instance in self.instances.iter().filter(|instance| !stops(instance)) {
                let is_reader = readers[instance.service];
                if (is_reader || Some(&instance.service) == number) && instance.starts {
                    let running = instance.chain.running;
                    running.into_iter().for_each(|draft| {
                        self.drafts.add_member(State::Updated, name, draft);
                    });
                }
                if is_reader && instance.is_reconfigured {
                    let configured = instance.chain.configured;
                    configured.into_iter().for_each(|draft| {
                        self.drafts.add_member(State::Updated, name, draft);
                    });
                }
            }
            for stop in leaving {
                self.drafts.wait(stop, State::Updated, name);
            }
        }
    }

    /// Services that are down at some time, with all their dependents.
    fn disrupted(&self, old: Side<'_, 'i>) -> BTreeSet<&'i str> {
        let cycles = self.instances.iter().any(|instance| instance.cycles);
        let is_together = match self.restart {
            RestartPolicy::None => cycles,
            RestartPolicy::Together => true,
            RestartPolicy::Rolling { .. } => false,
        };
        let is_disrupted = |instance: &&Instance| {
            instance.goes_down || (is_together && (instance.cycles || instance.is_moved))
        };
        let found = self.instances.iter().filter(is_disrupted);
        let found: BTreeSet<&str> =
            found.map(|instance| self.new.view.services[instance.service].name).collect();
        let mut all = BTreeSet::new();
        for view in [old.view, self.new.view] {
            let numbers = found.iter().filter_map(|name| view.numbers.get(name)).copied().collect();
            let names = view.with_dependents(&numbers);
            all.extend(names.into_iter().map(|service| view.services[service].name));
        }
        all
    }
}

/// For each number, those whose lists contain it.
fn reversed<'l>(lists: impl ExactSizeIterator<Item = &'l [usize]>) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new(); lists.len()];
    for (number, list) in lists.enumerate() {
        for other in list {
            all[*other].push(number);
        }
    }
    all
}
