//! Execution of a plan: the steps that may start, and the effects of a finished step.

use std::collections::{BTreeMap, BTreeSet};

use super::step::Plan;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waiting,
    Started,
    Finished,
    Failed,
}

/// A plan during execution. At most one step runs on a node at a time.
#[derive(Clone, Debug)]
pub struct Execution<'p> {
    plan: &'p Plan,
    progress: Vec<Progress>,
    /// Number of unfinished steps of each group.
    group_left: Vec<usize>,
    groups_of: Vec<Vec<usize>>,
    permits: BTreeMap<&'p str, u32>,
    open_gates: BTreeSet<usize>,
    /// The gate and service of the permit that a step releases.
    releases: BTreeMap<usize, Vec<(usize, &'p str)>>,
    busy: BTreeSet<&'p str>,
    /// The stage of each step, and the number of unfinished steps of each stage; with barriers
    /// only.
    levels: Option<(Vec<usize>, Vec<usize>)>,
}

impl<'p> Execution<'p> {
    pub fn new(plan: &'p Plan) -> Self {
        let mut groups_of = vec![Vec::new(); plan.steps.len()];
        for (group, steps) in plan.groups.iter().enumerate() {
            for step in steps {
                groups_of[*step].push(group);
            }
        }
        let mut releases: BTreeMap<usize, Vec<(usize, &str)>> = BTreeMap::new();
        for (number, gate) in plan.gates.iter().enumerate() {
            for (service, last) in &gate.permits {
                releases.entry(*last).or_default().push((number, service));
            }
        }
        let levels = plan.is_staged.then(|| {
            let levels = plan.levels();
            let mut left = vec![0; levels.iter().max().map_or(0, |last| last + 1)];
            for level in &levels {
                left[*level] += 1;
            }
            (levels, left)
        });
        Execution {
            plan,
            progress: vec![Progress::Waiting; plan.steps.len()],
            group_left: plan.groups.iter().map(Vec::len).collect(),
            groups_of,
            permits: plan.permits.iter().map(|(name, count)| (name.as_str(), *count)).collect(),
            open_gates: BTreeSet::new(),
            releases,
            busy: BTreeSet::new(),
            levels,
        }
    }

    /// Numbers of the steps that may start now.
    pub fn ready(&self) -> Vec<usize> {
        (0..self.plan.steps.len()).filter(|step| self.is_ready(*step)).collect()
    }

    pub fn is_ready(&self, id: usize) -> bool {
        let step = &self.plan.steps[id];
        let is_finished = |step: &usize| self.progress[*step] == Progress::Finished;
        let is_admitted = |gate: usize| {
            let mut permits = self.plan.gates[gate].permits.keys();
            self.open_gates.contains(&gate) || permits.all(|name| self.has_permit(name))
        };
        self.progress[id] == Progress::Waiting
            && !self.busy.contains(step.node.as_str())
            && step.requires.iter().all(is_finished)
            && step.after.iter().all(|group| self.group_left[*group] == 0)
            && step.gate.is_none_or(is_admitted)
            && self.is_stage_open(id)
    }

    fn is_stage_open(&self, id: usize) -> bool {
        self.levels
            .as_ref()
            .is_none_or(|(levels, left)| left[..levels[id]].iter().all(|count| *count == 0))
    }

    fn has_permit(&self, service: &str) -> bool {
        self.permits.get(service).is_none_or(|left| *left > 0)
    }

    /// Starts a ready step. Returns false if it is not ready.
    pub fn start(&mut self, id: usize) -> bool {
        if !self.is_ready(id) {
            return false;
        }
        let step = &self.plan.steps[id];
        if let Some(gate) = step.gate
            && self.open_gates.insert(gate)
        {
            for name in self.plan.gates[gate].permits.keys() {
                if let Some(left) = self.permits.get_mut(name.as_str()) {
                    *left -= 1;
                }
            }
        }
        self.busy.insert(&step.node);
        self.progress[id] = Progress::Started;
        true
    }

    /// Ends a started step. A failed step blocks its dependents and keeps its permit, so that no
    /// further instance of the service is stopped.
    pub fn finish(&mut self, id: usize, is_good: bool) {
        if self.progress[id] != Progress::Started {
            return;
        }
        let step = &self.plan.steps[id];
        self.busy.remove(step.node.as_str());
        if !is_good {
            self.progress[id] = Progress::Failed;
            return;
        }
        self.progress[id] = Progress::Finished;
        for group in &self.groups_of[id] {
            self.group_left[*group] -= 1;
        }
        if let Some((levels, left)) = &mut self.levels {
            left[levels[id]] -= 1;
        }
        for (gate, service) in self.releases.get(&id).into_iter().flatten() {
            if self.open_gates.contains(gate)
                && let Some(left) = self.permits.get_mut(service)
            {
                *left += 1;
            }
        }
    }

    pub fn is_finished(&self) -> bool {
        self.progress.iter().all(|progress| *progress == Progress::Finished)
    }
}
