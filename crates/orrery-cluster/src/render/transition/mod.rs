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

mod rolling;
mod stops;

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
    /// Ran on the machine that is replaced.
    is_moved: bool,
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
            instance.is_moved = instance.is_replaced
                && old.is_some_and(|(old, _, service, state)| old.view.is_up(service, state));
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
            is_moved: false,
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
}
