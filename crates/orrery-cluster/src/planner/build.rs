//! Steps for the difference between two states: the steps of each node and service alone. `edges`
//! orders the services among each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::document::ServiceAction;

use super::edges;
use super::error::PlanError;
use super::service_order::{ServiceDefinitions, ServiceOrder};
use super::state::{ClusterState, NodeState, ServiceState, latch_key};
use super::step::{Effect, Gate, Plan, PlanPolicy, ResourceKind, Restart, Step};

/// Reason for stopping or starting a service on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Added or removed permanently.
    Lasting,
    /// Stopped and started again.
    Cycle,
    /// Its machine is replaced.
    Replace,
}

/// A step of a service, by number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instance<'a> {
    pub(super) step: usize,
    pub(super) node: &'a str,
    pub(super) role: Role,
}

pub(super) type Instances<'a> = BTreeMap<&'a str, Vec<Instance<'a>>>;

pub(super) struct Builder<'a> {
    pub(super) services: &'a ServiceDefinitions<'a>,
    pub(super) old: &'a ClusterState,
    pub(super) target: &'a ClusterState,
    pub(super) old_order: &'a ServiceOrder<'a>,
    pub(super) new_order: &'a ServiceOrder<'a>,
    pub(super) policy: &'a PlanPolicy,
    /// Services that are down at some time, with all their dependents.
    pub(super) disrupted: BTreeSet<&'a str>,
    pub(super) steps: Vec<Step>,
    pub(super) groups: Vec<Vec<usize>>,
    gates: Vec<Gate>,
    /// Completed initializations, by node.
    latches: BTreeMap<&'a str, BTreeSet<String>>,
    pub(super) installs: Instances<'a>,
    pub(super) configures: Instances<'a>,
    pub(super) initializes: Instances<'a>,
    pub(super) starts: Instances<'a>,
    pub(super) stops: Instances<'a>,
    pub(super) removes: Instances<'a>,
    /// The first step of each chain that stops and starts a service.
    pub(super) cycles: Instances<'a>,
}

/// Plans the steps from one state to another.
///
/// # Errors
/// Services without a definition, without their requirements, or that wait for each other.
pub fn plan(
    services: &ServiceDefinitions<'_>,
    old: &ClusterState,
    new: &ClusterState,
    policy: &PlanPolicy,
) -> Result<Plan, PlanError> {
    let old_order = ServiceOrder::of_existing(services, &old.services())?;
    let new_order = if policy.is_compatible {
        ServiceOrder::of_existing(services, &new.services())?
    } else {
        ServiceOrder::new(services, &new.services())?
    };
    let target = effective(new, &new_order);
    let mut builder = Builder {
        services,
        old,
        target: &target,
        old_order: &old_order,
        new_order: &new_order,
        policy,
        disrupted: BTreeSet::new(),
        steps: Vec::new(),
        groups: Vec::new(),
        gates: Vec::new(),
        latches: BTreeMap::new(),
        installs: BTreeMap::new(),
        configures: BTreeMap::new(),
        initializes: BTreeMap::new(),
        starts: BTreeMap::new(),
        stops: BTreeMap::new(),
        removes: BTreeMap::new(),
        cycles: BTreeMap::new(),
    };
    builder.disrupted = builder.find_disrupted();
    builder.nodes();
    edges::add(&mut builder);
    let permits = builder.permits()?;
    let is_staged = policy.is_staged && !builder.is_rolling();
    let Builder { steps, groups, gates, latches, .. } = builder;
    let mut reached = target.clone();
    for (name, node) in &mut reached.nodes {
        let same = old.nodes.get(name).filter(|old| old.is_same_machine(node));
        node.latches = same.map(|old| old.latches.clone()).unwrap_or_default();
        node.latches.extend(latches.get(name.as_str()).cloned().unwrap_or_default());
    }
    let plan = Plan { steps, groups, gates, permits, target: reached, is_staged };
    super::sort::sorted(plan)
}

/// Stops services without a running instance of each dependency.
fn effective(new: &ClusterState, order: &ServiceOrder<'_>) -> ClusterState {
    let mut target = new.clone();
    let mut down: BTreeSet<&str> = BTreeSet::new();
    for name in order.sorted() {
        if order.direct(name).any(|dependency| down.contains(dependency)) {
            for node in target.nodes.values_mut() {
                if let Some(service) = node.services.get_mut(*name) {
                    service.running = false;
                }
            }
        }
        let mut nodes = target.nodes.values();
        if !nodes.any(|node| node.services.get(*name).is_some_and(|service| service.running)) {
            down.insert(name);
        }
    }
    target
}

impl<'a> Builder<'a> {
    pub(super) fn is_rolling(&self) -> bool {
        matches!(self.policy.restart, Restart::Rolling { .. })
    }

    /// Services that are restarted, moved to a replaced machine, or removed although others need
    /// them.
    fn find_disrupted(&self) -> BTreeSet<&'a str> {
        if self.is_rolling() {
            return BTreeSet::new();
        }
        let mut found: BTreeSet<&str> = BTreeSet::new();
        for (name, old) in &self.old.nodes {
            let Some(new) = self.target.nodes.get(name) else { continue };
            for (service, before) in &old.services {
                let is_replaced = !new.is_same_machine(old);
                let after = new.services.get(service);
                if is_replaced || after.is_some_and(|after| must_restart(before, after)) {
                    found.insert(service);
                }
            }
        }
        let kept = self.target.services();
        for service in self.old.services().difference(&kept) {
            let dependents = self.old_order.with_dependents(&BTreeSet::from([*service]));
            if dependents.iter().any(|dependent| kept.contains(dependent)) {
                found.insert(service);
            }
        }
        let mut all = self.old_order.with_dependents(&found);
        all.extend(self.new_order.with_dependents(&found));
        all
    }

    fn nodes(&mut self) {
        let (old, target) = (self.old, self.target);
        let names: BTreeSet<&'a String> = old.nodes.keys().chain(target.nodes.keys()).collect();
        for name in names {
            match (old.nodes.get(name), target.nodes.get(name)) {
                (Some(before), Some(after)) if before.is_same_machine(after) => {
                    self.update(name, before, after);
                }
                (Some(before), Some(after)) => {
                    let first = self.steps.len();
                    let delete = self.delete(name, before, Role::Replace);
                    let last = self.steps.len();
                    self.create(name, after, Some(delete));
                    if self.is_rolling() {
                        self.gate_replacement(name, before, first..last);
                    }
                }
                (None, Some(after)) => self.create(name, after, None),
                (Some(before), None) => {
                    self.delete(name, before, Role::Lasting);
                }
                (None, None) => {}
            }
        }
    }

    pub(super) fn push(
        &mut self,
        node: &str,
        kind: ResourceKind,
        service: Option<&str>,
        effect: Effect,
        requires: Option<usize>,
    ) -> usize {
        self.steps.push(Step {
            node: node.to_owned(),
            kind,
            service: service.map(str::to_owned),
            effect,
            once: None,
            requires: requires.into_iter().collect(),
            after: Vec::new(),
            gate: None,
        });
        self.steps.len() - 1
    }

    fn create(&mut self, name: &'a str, node: &'a NodeState, before: Option<usize>) {
        use Effect::Apply;
        let role = if before.is_some() { Role::Replace } else { Role::Lasting };
        let machine = self.push(name, ResourceKind::Machine, None, Apply, before);
        let reachable = self.push(name, ResourceKind::Reachable, None, Apply, Some(machine));
        let toolchain = self.push(name, ResourceKind::Toolchain, None, Apply, Some(reachable));
        for (service, state) in &node.services {
            let mut kinds = vec![ResourceKind::Installed, ResourceKind::Configured];
            if state.running {
                kinds.extend([ResourceKind::Initialized, ResourceKind::Running]);
            }
            self.add_chain(name, node, service, &kinds, role, Some(toolchain));
        }
    }

    /// Stops and removes the services of a machine, and deletes it. Returns the number of the last
    /// step.
    fn delete(&mut self, name: &'a str, node: &'a NodeState, role: Role) -> usize {
        let mut last = Vec::new();
        if !self.policy.is_compatible {
            for (service, state) in &node.services {
                let mut kinds = Vec::new();
                if state.running {
                    kinds.push(ResourceKind::Stopped);
                }
                kinds.push(ResourceKind::Removed);
                last.extend(self.add_chain(name, node, service, &kinds, role, None));
            }
        }
        let delete = self.push(name, ResourceKind::Machine, None, Effect::Remove, None);
        self.steps[delete].requires = last;
        delete
    }

    fn update(&mut self, name: &'a str, before: &'a NodeState, after: &'a NodeState) {
        let is_deployed = |(service, state): (&String, &ServiceState)| {
            before.services.get(service).is_none_or(|old| {
                (&old.install, &old.config, old.epoch)
                    != (&state.install, &state.config, state.epoch)
            })
        };
        let toolchain = after
            .services
            .iter()
            .any(is_deployed)
            .then(|| self.push(name, ResourceKind::Toolchain, None, Effect::Verify, None));
        for (service, state) in &before.services {
            if !after.services.contains_key(service) {
                let mut kinds = Vec::new();
                if state.running {
                    kinds.push(ResourceKind::Stopped);
                }
                kinds.push(ResourceKind::Removed);
                self.add_chain(name, before, service, &kinds, Role::Lasting, None);
            }
        }
        for (service, state) in &after.services {
            let Some(old) = before.services.get(service) else {
                let mut kinds = vec![ResourceKind::Installed, ResourceKind::Configured];
                if state.running {
                    kinds.extend([ResourceKind::Initialized, ResourceKind::Running]);
                }
                self.add_chain(name, after, service, &kinds, Role::Lasting, toolchain);
                continue;
            };
            let is_up = old.running && state.running;
            let is_restarted =
                is_up && (must_restart(old, state) || self.disrupted.contains(service.as_str()));
            let mut kinds = Vec::new();
            if is_restarted {
                kinds.push(ResourceKind::Quiesced);
            } else if old.running && !state.running {
                kinds.push(ResourceKind::Stopped);
            }
            if old.install != state.install {
                kinds.push(ResourceKind::Installed);
            }
            if (&old.install, &old.config) != (&state.install, &state.config) {
                kinds.push(ResourceKind::Configured);
            }
            if state.running && (!old.running || old.epoch != state.epoch) {
                kinds.push(ResourceKind::Initialized);
            }
            if state.running && (!old.running || is_restarted) {
                kinds.push(ResourceKind::Running);
            }
            let role = if is_restarted { Role::Cycle } else { Role::Lasting };
            self.add_chain(name, after, service, &kinds, role, toolchain);
        }
    }

    /// Adds consecutive steps of one service on one node. Kinds without an action of the service
    /// are skipped. Returns the number of the last step.
    fn add_chain(
        &mut self,
        name: &'a str,
        node: &'a NodeState,
        service: &'a str,
        kinds: &[ResourceKind],
        role: Role,
        first: Option<usize>,
    ) -> Option<usize> {
        let mut last = None;
        let mut start = None;
        for kind in kinds {
            let (action, instances) = match kind {
                ResourceKind::Installed => (ServiceAction::Install, &mut self.installs),
                ResourceKind::Configured => (ServiceAction::Configure, &mut self.configures),
                ResourceKind::Initialized => (ServiceAction::Initialize, &mut self.initializes),
                ResourceKind::Running => (ServiceAction::Start, &mut self.starts),
                ResourceKind::Removed => (ServiceAction::Remove, &mut self.removes),
                _ => (ServiceAction::Stop, &mut self.stops),
            };
            if !self.services.has_action(service, action) {
                continue;
            }
            let mut once = None;
            if *kind == ResourceKind::Initialized {
                let epoch = node.services.get(service).map_or(0, |state| state.epoch);
                let key = latch_key(name, node.incarnation, service, epoch);
                let old = self.old.nodes.get(name).filter(|old| old.is_same_machine(node));
                if old.is_some_and(|old| old.latches.contains(&key)) {
                    continue;
                }
                self.latches.entry(name).or_default().insert(key.clone());
                once = Some(key);
            }
            let instance = Instance { step: self.steps.len(), node: name, role };
            instances.entry(service).or_default().push(instance);
            let is_removal = matches!(kind, ResourceKind::Removed);
            let effect = if is_removal { Effect::Remove } else { Effect::Apply };
            let step = self.push(name, *kind, Some(service), effect, last.or(first));
            self.steps[step].once = once;
            start.get_or_insert(step);
            last = Some(step);
        }
        if let (Role::Cycle, Some(start), Some(last)) = (role, start, last) {
            let instance = Instance { step: start, node: name, role };
            self.cycles.entry(service).or_default().push(instance);
            if self.is_rolling() {
                self.steps[start].gate = Some(self.gates.len());
                let permits = BTreeMap::from([(service.to_owned(), last)]);
                self.gates.push(Gate { permits });
            }
        }
        last
    }

    /// Gates a replaced machine: it takes the permits of all its services at once, because two
    /// machines that take them one by one could deadlock.
    fn gate_replacement(
        &mut self,
        name: &str,
        before: &NodeState,
        removal: std::ops::Range<usize>,
    ) {
        let gate = self.gates.len();
        for step in removal.clone() {
            self.steps[step].gate = Some(gate);
        }
        let running = before.services.iter().filter(|(_, state)| state.running);
        let permits = running.map(|(service, _)| {
            let mut starts = self.starts.get(service.as_str()).into_iter().flatten();
            let start = starts.find(|start| start.node == name && start.role == Role::Replace);
            // A service that does not return is no longer counted once the machine is deleted.
            (service.clone(), start.map_or(removal.end - 1, |start| start.step))
        });
        let permits = permits.collect();
        self.gates.push(Gate { permits });
    }

    fn permits(&self) -> Result<BTreeMap<String, u32>, PlanError> {
        let Restart::Rolling { max_unavailable, default } = &self.policy.restart else {
            return Ok(BTreeMap::new());
        };
        let mut permits = BTreeMap::new();
        for service in self.gates.iter().flat_map(|gate| gate.permits.keys()) {
            let limit = max_unavailable.get(service).copied().unwrap_or(*default);
            if limit == 0 {
                return Err(PlanError::NothingUnavailable(service.clone()));
            }
            permits.insert(service.clone(), limit);
        }
        Ok(permits)
    }
}

/// True if a service that runs before and after cannot keep running in between.
fn must_restart(old: &ServiceState, new: &ServiceState) -> bool {
    let key = |state: &ServiceState| (state.generation, state.install.clone(), state.epoch);
    old.running && new.running && key(old) != key(new)
}
