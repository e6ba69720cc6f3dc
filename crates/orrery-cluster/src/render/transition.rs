//! The resources of a transition and their requirements.
//!
//! Requirements of the new state (chains on a node, installations and starts of dependencies) are
//! in every version. Those that a transition adds have these layers, so that there are no cycles:
//!
//! - Stops wait for stops only, against the dependencies.
//! - Instances of a rolling restart wait for earlier ones of their service, and for all instances
//!   of the dependencies.
//! - Removed instances wait for those that replace them and for the new configuration of their
//!   readers, unless the service is stopped anyway. Nothing waits for a removed instance, apart
//!   from other stops.
//! - On machines that are replaced one after the other, resources wait for their own node only.

use std::collections::{BTreeMap, BTreeSet};

use super::digest::Digests;
use super::draft::{Draft, Drafts, Kind, Source, State};
use super::rendering::RestartPolicy;
use super::view::View;
use crate::document::{Service, ServiceAction};
use crate::intent::IntentService;
use crate::planner::PlanError;

/// An intent with its digests.
#[derive(Clone, Copy)]
pub(super) struct Side<'v, 'i> {
    pub(super) view: &'v View<'i>,
    pub(super) digests: &'v Digests<'v, 'i>,
}

/// Resources of a service on a node, by number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain {
    installed: Option<u32>,
    quiesced: Option<u32>,
    configured: Option<u32>,
    initialized: Option<u32>,
    running: Option<u32>,
}

impl Chain {
    fn get_mut(&mut self, kind: Kind) -> &mut Option<u32> {
        match kind {
            Kind::Installed => &mut self.installed,
            Kind::Quiesced => &mut self.quiesced,
            Kind::Configured => &mut self.configured,
            Kind::Initialized => &mut self.initialized,
            _ => &mut self.running,
        }
    }

    /// The resource behind all others.
    fn last(&self) -> Option<u32> {
        self.running.or(self.initialized).or(self.configured).or(self.installed).or(self.quiesced)
    }
}

/// A service on a node of the new state.
struct Instance {
    node: usize,
    service: usize,
    chain: Chain,
    is_up: bool,
    /// Runs before and after, with another generation.
    cycles: bool,
    /// Runs before, and not after.
    goes_down: bool,
    /// Runs after, and not before or not with this generation.
    starts: bool,
    /// On a machine that replaces another one.
    is_replaced: bool,
    is_reinstalled: bool,
    is_reconfigured: bool,
}

/// A service on a node of the old state, removed in the new one.
struct Departure {
    /// Number in the old state.
    service: usize,
    was_up: bool,
    chain: Chain,
}

/// Kinds of resources that a service has on each node.
fn kinds(service: &Service) -> impl Iterator<Item = Kind> {
    use ServiceAction::{Configure, Initialize, Install, Remove, Start, Stop};
    let has = |action| service.action(action).is_some();
    let present = [
        (Kind::Installed, has(Install) || has(Remove)),
        (Kind::Quiesced, has(Stop)),
        (Kind::Configured, has(Configure)),
        (Kind::Initialized, has(Initialize)),
        (Kind::Running, has(Start) || has(Stop)),
    ];
    present.into_iter().filter(|(_, is_present)| *is_present).map(|(kind, _)| kind)
}

pub(super) struct Transition<'v, 'i> {
    old: Option<Side<'v, 'i>>,
    new: Side<'v, 'i>,
    restart: &'v RestartPolicy,
    pub(super) drafts: Drafts<'i>,
    instances: Vec<Instance>,
    /// Numbers of the instances of each node of the new state.
    of_node: Vec<std::ops::Range<usize>>,
    machines: Vec<u32>,
    departures: Vec<Departure>,
}

impl<'v, 'i> Transition<'v, 'i> {
    /// Collects all resources with their requirements.
    pub(super) fn build(
        old: Option<Side<'v, 'i>>,
        new: Side<'v, 'i>,
        restart: &'v RestartPolicy,
    ) -> Result<Drafts<'i>, PlanError> {
        let mut transition = Transition {
            old,
            new,
            restart,
            drafts: Drafts::default(),
            instances: Vec::new(),
            of_node: Vec::new(),
            machines: Vec::new(),
            departures: Vec::new(),
        };
        for node in 0..new.view.nodes.len() {
            transition.add_node(node);
        }
        if let Some(old) = old {
            transition.remove(old);
        }
        transition.follow_dependencies();
        if let Some(old) = old {
            transition.order_stops(old);
            transition.order_removals(old);
            transition.order_departures(old);
        }
        if transition.is_rolling() {
            transition.roll()?;
        }
        Ok(transition.drafts)
    }

    fn is_rolling(&self) -> bool {
        matches!(self.restart, RestartPolicy::Rolling { .. })
    }

    fn push(&mut self, kind: Kind, source: Source, node: usize, service: usize) -> u32 {
        self.drafts.push(Draft {
            kind,
            source,
            node,
            service,
            purged: source == Source::Old,
            has_undo: true,
            is_up: false,
            requires: Vec::new(),
            barrier: None,
        })
    }

    /// Adds a node of the new state with its services.
    fn add_node(&mut self, node: usize) {
        let view = self.new.view;
        let own = &view.nodes[node];
        let machine = self.push(Kind::Machine, Source::New, node, 0);
        let reachable = self.push(Kind::Reachable, Source::New, node, 0);
        let toolchain = self.push(Kind::Toolchain, Source::New, node, 0);
        self.drafts.require(reachable, machine);
        self.drafts.require(toolchain, reachable);
        self.machines.push(machine);
        let before = self.old.and_then(|old| {
            let number = *old.view.node_numbers.get(own.name)?;
            Some((old, number))
        });
        let is_same = before
            .is_some_and(|(old, number)| old.view.nodes[number].node.is_same_machine(own.node));
        let first = self.instances.len();
        for (service, state) in &own.services {
            let old = before.and_then(|(old, number)| {
                let service = *old.view.numbers.get(view.services[*service].name)?;
                let state = old.view.nodes[number].state(service)?;
                Some((old, number, service, state))
            });
            let mut instance = self.compare(node, *service, state, old.filter(|_| is_same));
            instance.is_replaced = before.is_some() && !is_same;
            instance.chain = self.add_chain(&instance, toolchain);
            if let Some((old, number, before, _)) = old {
                self.drop_actions(old, (number, before), *service, toolchain);
            }
            self.instances.push(instance);
        }
        self.of_node.push(first..self.instances.len());
    }

    fn compare(
        &self,
        node: usize,
        service: usize,
        state: &IntentService,
        old: Option<(Side<'v, 'i>, usize, usize, &IntentService)>,
    ) -> Instance {
        let view = self.new.view;
        let is_up = view.is_up(service, state);
        let was_up = old.is_some_and(|(old, _, service, state)| old.view.is_up(service, state));
        let generation = old.map(|(.., state)| state.generation);
        let cycles = was_up && is_up && generation != Some(state.generation);
        let digests = &self.new.digests.services[service];
        let is_reinstalled = old.is_none_or(|(old, _, number, _)| {
            old.digests.services[number].installed != digests.installed
        });
        let is_reconfigured = old.is_none_or(|(old, old_node, number, _)| {
            old.digests.configured(old_node, number) != self.new.digests.configured(node, service)
        });
        Instance {
            node,
            service,
            chain: Chain::default(),
            is_up,
            cycles,
            goes_down: was_up && !is_up,
            starts: is_up && (!was_up || cycles),
            is_replaced: false,
            is_reinstalled,
            is_reconfigured,
        }
    }

    /// Adds the resources of an instance, each behind those before it.
    fn add_chain(&mut self, instance: &Instance, toolchain: u32) -> Chain {
        let Instance { node, service, is_up, .. } = *instance;
        let mut chain = Chain::default();
        for kind in kinds(self.new.view.services[service].document) {
            let draft = self.push(kind, Source::New, node, service);
            self.drafts.all[draft as usize].is_up = is_up;
            self.drafts.require(draft, toolchain);
            *chain.get_mut(kind) = Some(draft);
        }
        let content = chain.configured.or(chain.installed);
        let mut follow = |draft: Option<u32>, before: [Option<u32>; 3]| {
            for before in before.into_iter().flatten() {
                if let Some(draft) = draft.filter(|draft| *draft != before) {
                    self.drafts.require(draft, before);
                }
            }
        };
        follow(chain.configured, [chain.installed, chain.quiesced, None]);
        follow(chain.initialized, [content, chain.quiesced, None]);
        if is_up {
            follow(chain.running, [content, chain.quiesced, chain.initialized]);
        }
        // Stopped or restarted services are down while their content changes.
        let stop = match instance {
            Instance { cycles: true, .. } => chain.quiesced,
            Instance { goes_down: true, .. } => chain.running,
            _ => None,
        };
        let is_reinstalled = stop.is_some() && instance.is_reinstalled;
        if is_reinstalled {
            follow(chain.installed, [stop, None, None]);
        }
        let is_reconfigured = instance.goes_down && instance.is_reconfigured;
        if is_reconfigured {
            follow(chain.configured, [stop, None, None]);
        }
        self.drafts.is_passing |= is_reinstalled || is_reconfigured;
        chain
    }

    /// Removes resources whose actions the service does not have any more.
    fn drop_actions(
        &mut self,
        old: Side<'v, 'i>,
        (node, before): (usize, usize),
        service: usize,
        toolchain: u32,
    ) {
        let now: Vec<Kind> = kinds(self.new.view.services[service].document).collect();
        for kind in kinds(old.view.services[before].document) {
            if !now.contains(&kind) {
                let draft = self.push(kind, Source::Old, node, before);
                self.drafts.all[draft as usize].has_undo = false;
                self.drafts.require(draft, toolchain);
            }
        }
    }

    /// Adds what the new state does not have, to be removed in reverse order.
    fn remove(&mut self, old: Side<'v, 'i>) {
        for (number, node) in old.view.nodes.iter().enumerate() {
            let kept = self.new.view.node_numbers.get(node.name).copied();
            let mut last: Vec<u32> = Vec::new();
            for (service, state) in &node.services {
                let name = old.view.services[*service].name;
                let stays = kept.is_some_and(|kept| {
                    let service = self.new.view.numbers.get(name);
                    service
                        .is_some_and(|service| self.new.view.nodes[kept].state(*service).is_some())
                });
                if stays {
                    continue;
                }
                let document = old.view.services[*service].document;
                let mut kinds: Vec<Kind> = kinds(document).collect();
                // The service is stopped first, and removed last.
                kinds.reverse();
                let (mut chain, mut before) = (Chain::default(), None);
                for kind in kinds {
                    let draft = self.push(kind, Source::Old, number, *service);
                    if let Some(before) = before {
                        self.drafts.require(draft, before);
                    }
                    *chain.get_mut(kind) = Some(draft);
                    before = Some(draft);
                }
                last.extend(before);
                let was_up = old.view.is_up(*service, state);
                self.departures.push(Departure { service: *service, was_up, chain });
            }
            if kept.is_none() {
                let toolchain = self.push(Kind::Toolchain, Source::Old, number, 0);
                self.drafts.all[toolchain as usize].requires = last;
                let reachable = self.push(Kind::Reachable, Source::Old, number, 0);
                self.drafts.require(reachable, toolchain);
                let machine = self.push(Kind::Machine, Source::Old, number, 0);
                self.drafts.require(machine, reachable);
            }
        }
    }

    /// Installations wait for those of dependencies, and starts and initializations for starts.
    fn follow_dependencies(&mut self) {
        let services = &self.new.view.services;
        let is_rolling = self.is_rolling();
        for instance in &self.instances {
            let service = &services[instance.service];
            let Chain { installed, initialized, running, .. } = instance.chain;
            if let Some(installed) = installed.filter(|_| service.has(ServiceAction::Install)) {
                self.drafts.add_member(State::Installed, service.name, installed);
            }
            if instance.is_up
                && let Some(running) = running.filter(|_| service.has(ServiceAction::Start))
            {
                self.drafts.add_member(State::Running, service.name, running);
            }
            if is_rolling && instance.is_replaced {
                continue;
            }
            if let Some(installed) = installed.filter(|_| service.has(ServiceAction::Install)) {
                for other in &service.installs_before {
                    self.drafts.wait(installed, State::Installed, services[*other].name);
                }
            }
            let running = running.filter(|_| service.has(ServiceAction::Start));
            for draft in [initialized, running].into_iter().flatten().filter(|_| instance.is_up) {
                for other in &service.starts_before {
                    self.drafts.wait(draft, State::Running, services[*other].name);
                }
            }
        }
        if is_rolling {
            self.follow_on_own_node();
        }
    }

    /// On a replaced machine, resources wait for dependencies on the same node only.
    fn follow_on_own_node(&mut self) {
        let services = &self.new.view.services;
        let mut edges = Vec::new();
        for instance in self.instances.iter().filter(|instance| instance.is_replaced) {
            let service = &services[instance.service];
            for other in &self.instances[self.of_node[instance.node].clone()] {
                if service.installs_before.contains(&other.service)
                    && service.has(ServiceAction::Install)
                    && let (Some(dependent), Some(required)) =
                        (instance.chain.installed, other.chain.installed)
                {
                    edges.push((dependent, required));
                }
                if service.starts_before.contains(&other.service)
                    && instance.is_up
                    && other.is_up
                    && let Some(required) = other.chain.running
                {
                    let running =
                        instance.chain.running.filter(|_| service.has(ServiceAction::Start));
                    let both = [instance.chain.initialized, running];
                    edges.extend(both.into_iter().flatten().map(|draft| (draft, required)));
                }
            }
        }
        self.drafts.is_passing |= self.instances.iter().any(|instance| instance.is_replaced);
        for (dependent, required) in edges {
            self.drafts.require(dependent, required);
        }
    }

    /// Services stop before the services that they need.
    fn order_stops(&mut self, old: Side<'v, 'i>) {
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
    fn order_removals(&mut self, old: Side<'v, 'i>) {
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
    fn order_departures(&mut self, old: Side<'v, 'i>) {
        let disrupted = self.disrupted(old);
        let mut leaving: BTreeMap<&'i str, Vec<u32>> = BTreeMap::new();
        for departure in self.departures.iter().filter(|departure| departure.was_up) {
            let name = old.view.services[departure.service].name;
            if let Some(stop) = departure.chain.running.filter(|_| !disrupted.contains(name)) {
                leaving.entry(name).or_default().push(stop);
            }
        }
        let new = self.new;
        for (name, stops) in leaving {
            let number = new.view.numbers.get(name);
            let reads = |service: usize| {
                let reads = &new.digests.services[service].reads;
                let direct = &new.view.services[service].direct;
                number.is_some_and(|number| direct.contains(number))
                    || reads.iter().any(|read| read.service() == Some(name))
            };
            let readers: Vec<bool> = (0..new.view.services.len()).map(reads).collect();
            for instance in self.instances.iter().filter(|instance| !instance.goes_down) {
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
            for stop in stops {
                self.drafts.wait(stop, State::Updated, name);
            }
        }
    }

    /// Services that are down at some time, with all their dependents.
    fn disrupted(&self, old: Side<'v, 'i>) -> BTreeSet<&'i str> {
        let is_rolling = self.is_rolling();
        let is_disrupted = |instance: &&Instance| {
            instance.goes_down || (!is_rolling && (instance.cycles || instance.is_replaced))
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

    /// Orders restarts and replaced machines so that few instances are down at the same time.
    fn roll(&mut self) -> Result<(), PlanError> {
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
