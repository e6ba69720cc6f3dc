//! A simulated cluster that refuses operations impossible on real machines: an independent judge of
//! plans.

use std::collections::{BTreeMap, BTreeSet};

use orrery_cluster::document::{Service, ServiceAction};
use orrery_cluster::planner::{ClusterState, Effect, Plan, ResourceKind, Step};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SimulatedCluster {
    pub(crate) machines: BTreeMap<String, Machine>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    identity: (u32, String, String),
    is_reachable: bool,
    has_toolchain: bool,
    installed: BTreeMap<String, String>,
    configured: BTreeMap<String, String>,
    /// With the generation.
    running: BTreeMap<String, u64>,
    /// Keys of initializations.
    latches: BTreeSet<String>,
}

pub(crate) struct Judge<'j> {
    pub(crate) services: &'j BTreeMap<String, Service>,
    pub(crate) old: &'j ClusterState,
    pub(crate) target: &'j ClusterState,
    /// Dependencies must run while a service does, except in a rolling restart.
    pub(crate) is_strict: bool,
}

impl Judge<'_> {
    fn has(&self, service: &str, action: ServiceAction) -> bool {
        self.services[service].action(action).is_some()
    }

    /// The simulated cluster for a state.
    pub(crate) fn cluster_of(&self, state: &ClusterState) -> SimulatedCluster {
        let mut cluster = SimulatedCluster::default();
        for (name, node) in &state.nodes {
            let mut machine = Machine {
                identity: (node.incarnation, node.hardware.clone(), node.image.clone()),
                is_reachable: true,
                has_toolchain: true,
                latches: node.latches.clone(),
                ..Machine::default()
            };
            for (service, state) in &node.services {
                if self.has(service, ServiceAction::Install) {
                    machine.installed.insert(service.clone(), state.install.clone());
                }
                if self.has(service, ServiceAction::Configure) {
                    machine.configured.insert(service.clone(), state.config.clone());
                }
                if self.has(service, ServiceAction::Start) && state.running {
                    machine.running.insert(service.clone(), state.generation);
                }
            }
            cluster.machines.insert(name.clone(), machine);
        }
        cluster
    }

    /// Applies a step, if the cluster allows it.
    pub(crate) fn apply(&self, cluster: &mut SimulatedCluster, step: &Step) -> Result<(), String> {
        let name = step.service.as_deref().unwrap_or_default();
        if step.effect == Effect::Verify {
            let machine = cluster.machines.get(&step.node).ok_or("no machine to verify")?;
            let is_good = match step.kind {
                ResourceKind::Toolchain => machine.has_toolchain,
                ResourceKind::Running => machine.running.contains_key(name),
                _ => false,
            };
            return if is_good { Ok(()) } else { Err("not in the state to verify".to_owned()) };
        }
        if step.kind == ResourceKind::Machine && step.effect == Effect::Apply {
            let node = &self.target.nodes[&step.node];
            let identity = (node.incarnation, node.hardware.clone(), node.image.clone());
            let machine = Machine { identity, ..Machine::default() };
            let known = cluster.machines.insert(step.node.clone(), machine);
            return if known.is_none() { Ok(()) } else { Err("the machine exists".to_owned()) };
        }
        let snapshot = cluster.clone();
        let machine = cluster.machines.get_mut(&step.node).ok_or("there is no machine")?;
        let wanted = self.target.nodes.get(&step.node).and_then(|node| node.services.get(name));
        let check = |is_good: bool, text: &str| if is_good { Ok(()) } else { Err(text.to_owned()) };
        match step.kind {
            ResourceKind::Machine => {
                check(machine.running.is_empty(), "services still run")?;
                cluster.machines.remove(&step.node);
            }
            ResourceKind::Reachable => machine.is_reachable = true,
            ResourceKind::Toolchain => {
                check(machine.is_reachable, "not reachable")?;
                machine.has_toolchain = true;
            }
            ResourceKind::Installed => {
                let wanted = wanted.ok_or("installed for nothing")?;
                check(machine.has_toolchain, "no toolchain")?;
                check(!machine.running.contains_key(name), "installed while it runs")?;
                self.check_installed(&snapshot, name, &step.node)?;
                machine.installed.insert(name.to_owned(), wanted.install.clone());
            }
            ResourceKind::Configured => {
                let wanted = wanted.ok_or("configured for nothing")?;
                let is_installed = machine.installed.get(name) == Some(&wanted.install);
                check(is_installed || !self.has(name, ServiceAction::Install), "not installed")?;
                let generation = machine.running.get(name);
                let is_current = generation.is_none_or(|running| *running == wanted.generation);
                check(is_current, "configured while it runs, although it is restarted")?;
                machine.configured.insert(name.to_owned(), wanted.config.clone());
            }
            ResourceKind::Initialized => {
                let wanted = wanted.ok_or("initialized for nothing")?;
                check(self.is_configured(machine, name, &wanted.config), "not configured")?;
                check(!machine.running.contains_key(name), "initialized while it runs")?;
                self.check_running(&snapshot, name, &step.node)?;
                let key = step.once.clone().ok_or("no key")?;
                check(machine.latches.insert(key), "initialized twice")?;
            }
            ResourceKind::Running => {
                let wanted = wanted.ok_or("started for nothing")?;
                check(self.is_configured(machine, name, &wanted.config), "not configured")?;
                check(!machine.running.contains_key(name), "it runs")?;
                self.check_running(&snapshot, name, &step.node)?;
                machine.running.insert(name.to_owned(), wanted.generation);
            }
            ResourceKind::Quiesced | ResourceKind::Stopped => {
                check(machine.running.remove(name).is_some(), "it does not run")?;
            }
            ResourceKind::Removed => {
                check(!machine.running.contains_key(name), "removed while it runs")?;
                machine.installed.remove(name);
                machine.configured.remove(name);
            }
        }
        if self.is_strict { self.check_dependencies(cluster) } else { Ok(()) }
    }

    fn is_configured(&self, machine: &Machine, name: &str, digest: &str) -> bool {
        !self.has(name, ServiceAction::Configure)
            || machine.configured.get(name).is_some_and(|known| known == digest)
    }

    fn providers<'s>(&self, name: &'s str, state: &'s ClusterState) -> Vec<&'s str> {
        let present = state.services();
        let provides =
            |other: &&str| self.services[*other].dependencies.provides.iter().any(|n| n == name);
        let providers: Vec<&str> = present.iter().copied().filter(provides).collect();
        if providers.is_empty() && present.contains(name) { vec![name] } else { providers }
    }

    /// Checks that the prerequisites of an installation are installed.
    fn check_installed(
        &self,
        cluster: &SimulatedCluster,
        name: &str,
        node: &str,
    ) -> Result<(), String> {
        for dependency in self.services[name].dependencies.install.names() {
            for other in self.providers(dependency, self.target) {
                if other == name || !self.has(other, ServiceAction::Install) {
                    continue;
                }
                for (on, state) in &self.target.nodes {
                    let machine = cluster.machines.get(on);
                    let is_there =
                        machine.is_some_and(|machine| machine.installed.contains_key(other));
                    let counts = self.is_strict || on == node;
                    if counts && state.services.contains_key(other) && !is_there {
                        return Err(format!("{other} is not installed on {on}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks that the prerequisites of a start run. In a rolling restart, other nodes may be in
    /// transition.
    fn check_running(
        &self,
        cluster: &SimulatedCluster,
        name: &str,
        node: &str,
    ) -> Result<(), String> {
        for dependency in self.services[name].dependencies.runtime.names() {
            for other in self.providers(dependency, self.target) {
                if other == name || !self.has(other, ServiceAction::Start) {
                    continue;
                }
                for (on, state) in &self.target.nodes {
                    let is_meant = state.services.get(other).is_some_and(|service| service.running);
                    let machine = cluster.machines.get(on);
                    let runs = machine.is_some_and(|machine| machine.running.contains_key(other));
                    if (self.is_strict || on == node) && is_meant && !runs {
                        return Err(format!("{other} does not run on {on}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks that each requirement of a running service has a running instance.
    fn check_dependencies(&self, cluster: &SimulatedCluster) -> Result<(), String> {
        let runs = |name: &str| cluster.machines.values().any(|m| m.running.contains_key(name));
        let running: BTreeSet<&String> =
            cluster.machines.values().flat_map(|machine| machine.running.keys()).collect();
        for name in running {
            for required in &self.services[name].dependencies.runtime.requires {
                let mut providers = self.providers(required, self.old);
                providers.extend(self.providers(required, self.target));
                let is_passive = |other: &&str| !self.has(other, ServiceAction::Start);
                if !providers.iter().any(|other| runs(other)) && !providers.iter().any(is_passive) {
                    return Err(format!("{name} runs without {required}"));
                }
            }
        }
        Ok(())
    }

    /// Number of instances of each service that are down but run before and after the plan.
    pub(crate) fn unavailable(&self, cluster: &SimulatedCluster) -> BTreeMap<String, u32> {
        let mut down = BTreeMap::new();
        for (node, before) in &self.old.nodes {
            let Some(after) = self.target.nodes.get(node) else { continue };
            for (service, state) in &before.services {
                let stays = after.services.get(service).is_some_and(|after| after.running);
                let machine = cluster.machines.get(node);
                let runs = machine.is_some_and(|machine| machine.running.contains_key(service));
                if state.running && stays && !runs && self.has(service, ServiceAction::Start) {
                    *down.entry(service.clone()).or_default() += 1;
                }
            }
        }
        down
    }

    /// Differences between the simulated cluster and the plan's target.
    pub(crate) fn check_end(&self, cluster: &SimulatedCluster, plan: &Plan) -> Result<(), String> {
        let mut cluster = cluster.clone();
        for (name, machine) in &mut cluster.machines {
            // Leftovers of services that cannot be removed.
            let node = plan.target.nodes.get(name);
            let stays = |service: &String| node.is_some_and(|n| n.services.contains_key(service));
            machine.installed.retain(|service, _| stays(service));
            machine.configured.retain(|service, _| stays(service));
        }
        let expected = self.cluster_of(&plan.target);
        if cluster == expected {
            Ok(())
        } else {
            Err(format!("{cluster:#?}\nexpected: {expected:#?}"))
        }
    }
}
