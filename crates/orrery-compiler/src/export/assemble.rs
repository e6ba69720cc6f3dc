//! Combines all drafts: duplicate ids, sets, requirements, and exclusions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use orrery_model::{Resource, ResourceId, ResourceType};
use orrery_syntax::ast::Loc;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::host::InstanceView;
use crate::program::EntityId;
use crate::report::Model;
use crate::source::Sources;
use crate::value::{InstanceId, UnknownId, Value};

use super::code::{
    self, ComputeOutcome, ComputeOutcomes, ComputeRequest, ModuleCodeError, RequirementView,
    ResourceClass, ResourceCode,
};
use super::draft::{DraftOutcome, Drafter};
use super::edges::Edges;
use super::model_types::ModelType;
use super::plan::Plans;
use super::problem::{Edge, ExportProblem, Subject};
use super::{ExportResult, ExportWarning, UnknownAttribute, sort_by_id};

/// Export outcome of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InstanceOutcome {
    /// Has nodes, or is not a resource.
    Plain,
    Unmanaged,
    Unidentified,
}

/// A future resource, or the remainder of a broken one.
struct Node {
    instance: InstanceId,
    plan: u32,
}

/// Reason for leaving out a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExclusionReason {
    NotExcluded,
    Broken,
    /// Requires this node, which is left out.
    Requires(u32),
}

pub(super) struct Assembly<'m, 'd> {
    pub(super) drafter: Drafter<'m>,
    plans: Plans<'m, 'd>,
    nodes: Vec<Node>,
    /// By node; `None` for broken nodes.
    pub(super) resources: Vec<Option<Resource>>,
    pub(super) left_out: Vec<ExclusionReason>,
    /// The first node of each instance, followed by the total number of nodes.
    first_node: Vec<u32>,
    outcomes: Vec<InstanceOutcome>,
    /// Nodes with a resource, by id.
    pub(super) order: Vec<u32>,
    /// Ids of nodes that lost their resource.
    known_ids: FxHashMap<u32, ResourceId>,
    edges: Edges,
    unknowns: Vec<(u32, Arc<str>, Option<UnknownId>)>,
    /// Problems of resources themselves; those of dependents are added at the end.
    pub(super) problems: Vec<ExportProblem>,
    pub(super) warnings: Vec<ExportWarning>,
    unmanaged: usize,
}

impl<'m, 'd> Assembly<'m, 'd> {
    pub(super) fn new(
        model: &'m Model,
        sources: &'m Sources,
        declarations: impl IntoIterator<Item = &'d ResourceType>,
        classes: &'d [ResourceClass],
    ) -> Self {
        Assembly {
            drafter: Drafter::new(model, sources),
            plans: Plans::new(model, declarations, classes),
            nodes: Vec::new(),
            resources: Vec::new(),
            left_out: Vec::new(),
            first_node: Vec::with_capacity(model.graph.instances.len() + 1),
            outcomes: Vec::with_capacity(model.graph.instances.len()),
            order: Vec::new(),
            known_ids: FxHashMap::default(),
            edges: Edges::with_capacity(0),
            unknowns: Vec::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            unmanaged: 0,
        }
    }

    /// Warns of declarations in the model for entities that it does not have.
    pub(super) fn warn_of_unknown_types(&mut self, own: &[ModelType]) {
        for unknown in own.iter().filter(|own| !own.is_known) {
            let entity = unknown.declaration.entity.as_ref().into();
            let source = self.drafter.location(unknown.instance).source;
            self.warnings.push(ExportWarning::UnknownDeclaredEntity { entity, source });
        }
    }

    /// Has the module code compute its fields.
    pub(super) fn compute_fields(
        &mut self,
        code: &mut dyn ResourceCode,
        view: &dyn InstanceView,
    ) -> Result<ComputeOutcomes, ModuleCodeError> {
        let model = self.drafter.model;
        let instances = &model.graph.instances;
        let mut wanted: Vec<(InstanceId, u32)> = Vec::new();
        for (number, of) in instances.iter().enumerate() {
            let instance = InstanceId(number as u32);
            wanted.extend(self.plans.for_entity(of.entity).map(|plan| (instance, plan)));
        }
        let plans = &self.plans.all;
        let item = |(instance, plan): (InstanceId, u32)| {
            Some((plan, code::item(model, instance, &plans[plan as usize])?))
        };
        let items: Vec<(u32, ComputeRequest<'_>)> = wanted.into_iter().filter_map(item).collect();
        code::compute_fields(code, view, &items)
    }

    pub(super) fn draft_all(&mut self, mut answers: ComputeOutcomes) {
        let instances = &self.drafter.model.graph.instances;
        let count =
            instances.iter().filter(|of| !self.plans.for_entity(of.entity).is_empty()).count();
        self.nodes.reserve_exact(count);
        self.resources.reserve_exact(count);
        let mut without_handler: BTreeMap<EntityId, (usize, InstanceId)> = BTreeMap::new();
        for (number, of) in instances.iter().enumerate() {
            let instance = InstanceId(number as u32);
            self.first_node.push(self.nodes.len() as u32);
            let plans = self.plans.for_entity(of.entity);
            if plans.is_empty() && self.plans.is_resource(of.entity) {
                without_handler.entry(of.entity).or_insert((0, instance)).0 += 1;
            }
            let mut outcome = InstanceOutcome::Plain;
            for plan in plans {
                let answer = answers.remove(&(instance, plan));
                outcome = self.draft(instance, plan, answer);
            }
            self.outcomes.push(outcome);
        }
        self.first_node.push(self.nodes.len() as u32);
        self.left_out.resize(self.nodes.len(), ExclusionReason::NotExcluded);
        for node in 0..self.nodes.len() {
            if self.resources[node].is_none() {
                self.left_out[node] = ExclusionReason::Broken;
            }
        }
        for (_, (count, first)) in without_handler {
            let entity = self.drafter.model.entity_name(first).into();
            let source = self.drafter.location(first).source;
            self.warnings.push(ExportWarning::NoHandler { entity, count, source });
        }
        self.order = sort_by_id::by_id(&self.resources);
        self.leave_out_duplicates();
    }

    fn draft(
        &mut self,
        instance: InstanceId,
        number: u32,
        answer: Option<ComputeOutcome>,
    ) -> InstanceOutcome {
        let plan = &self.plans.all[number as usize];
        let node = self.nodes.len() as u32;
        match self.drafter.draft(instance, plan, answer) {
            DraftOutcome::Resource(resource) => {
                let unknown = self.drafter.unknown_fields.drain(..);
                self.unknowns.extend(unknown.map(|field| (node, field.name, field.unknown)));
                self.resources.push(Some(resource));
            }
            DraftOutcome::Broken(problem, id) => {
                self.problems.push(*problem);
                self.known_ids.extend(id.map(|id| (node, id)));
                self.resources.push(None);
            }
            DraftOutcome::Unmanaged => {
                self.unmanaged += 1;
                return InstanceOutcome::Unmanaged;
            }
            DraftOutcome::Unidentified => {
                let entity = plan.entity.clone();
                let source = self.drafter.location(instance).source;
                self.warnings.push(ExportWarning::Unidentified { entity, source });
                return InstanceOutcome::Unidentified;
            }
        }
        self.nodes.push(Node { instance, plan: number });
        InstanceOutcome::Plain
    }

    fn leave_out_duplicates(&mut self) {
        let mut at = 0;
        while at < self.order.len() {
            let id = |at: usize| self.resources[self.order[at] as usize].as_ref().map(|r| &r.id);
            let same = (at..self.order.len()).take_while(|&other| id(other) == id(at)).count();
            if same > 1 {
                let nodes = self.order[at..at + same].to_vec();
                let mut subjects: Vec<Subject> =
                    nodes.iter().map(|&node| self.subject(node)).collect();
                subjects.sort_by(|one, other| sort_location(one).cmp(&sort_location(other)));
                for node in nodes {
                    self.left_out[node as usize] = ExclusionReason::Broken;
                }
                if let Some(id) = subjects[0].id.clone() {
                    self.problems.push(ExportProblem::DuplicateId { id, subjects });
                }
            }
            at += same;
        }
    }

    pub(super) fn subject(&mut self, node: u32) -> Subject {
        let Node { instance, plan } = self.nodes[node as usize];
        let id = match &self.resources[node as usize] {
            Some(resource) => Some(resource.id.clone()),
            None => self.known_ids.get(&node).cloned(),
        };
        self.drafter.subject(instance, &self.plans.all[plan as usize], id)
    }

    /// True if the id names a path that only one resource of a machine may manage.
    pub(super) fn manages_path(&self, node: u32) -> bool {
        self.plans.all[self.nodes[node as usize].plan as usize].declaration.is_path
    }

    pub(super) fn nodes_of(&self, instance: InstanceId) -> std::ops::Range<u32> {
        self.first_node[instance.index()]..self.first_node[instance.index() + 1]
    }

    /// Finds the requirements of each node: the nodes that its instance requires directly.
    pub(super) fn connect(&mut self) {
        let model = self.drafter.model;
        self.edges = Edges::with_capacity(self.nodes.len());
        for (number, node) in self.nodes.iter().enumerate() {
            let slot = self.plans.all[node.plan as usize].requires;
            let value = slot.and_then(|slot| model.graph.slot_value(node.instance, slot));
            let members = match value {
                Some(Value::List(list)) => model.graph.heap.items(list),
                _ => &[],
            };
            let (mut found, mut unmanaged, mut unidentified) = (false, false, false);
            for &member in members {
                let Value::Instance(member) = member else { continue };
                for target in self.nodes_of(member) {
                    found = true;
                    self.edges.push(target);
                }
                unmanaged |= self.outcomes[member.index()] == InstanceOutcome::Unmanaged;
                unidentified |= self.outcomes[member.index()] == InstanceOutcome::Unidentified;
            }
            self.edges.end_node();
            let lost = !members.is_empty() && !found && !unmanaged;
            if (lost || unidentified)
                && let Some(Resource { id, source, .. }) = &self.resources[number]
            {
                let (resource, source) = (id.clone(), source.clone());
                self.warnings.push(if unidentified {
                    ExportWarning::RequiresUnidentified { resource, source }
                } else {
                    ExportWarning::RequirementsLost { resource, source }
                });
            }
        }
    }

    /// Lets module code change the requirements of resources.
    pub(super) fn add_requirements(
        &mut self,
        code: &mut dyn ResourceCode,
        view: &dyn InstanceView,
    ) -> Result<(), ModuleCodeError> {
        let mut position = vec![u32::MAX; self.nodes.len()];
        for (&node, at) in self.order.iter().zip(0..) {
            position[node as usize] = at;
        }
        let mut resources = Vec::with_capacity(self.order.len());
        for &node in &self.order {
            let Some(resource) = &self.resources[node as usize] else { continue };
            let Node { instance, plan } = self.nodes[node as usize];
            let known = self.edges.targets(node).iter().map(|&target| position[target as usize]);
            resources.push(RequirementView {
                class: self.plans.all[plan as usize].class,
                instance,
                id: resource.id.as_str(),
                attributes: resource.attributes.as_str(),
                requires: known.filter(|&target| target != u32::MAX).collect(),
            });
        }
        let changed = code.require(view, &resources)?;
        if changed.is_empty() {
            return Ok(());
        }
        let by_id: FxHashMap<&str, u32> =
            resources.iter().zip(&self.order).map(|(of, &node)| (of.id, node)).collect();
        let mut replaced: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (at, ids) in changed {
            let Some(&node) = self.order.get(at) else { continue };
            let targets = ids.iter().map(|id| {
                by_id.get(id.as_str()).copied().ok_or_else(|| ModuleCodeError {
                    class: String::new(),
                    message: format!(
                        "a dependency manager lets {} require {id}, which is no resource",
                        resources[at].id
                    ),
                    field: None,
                    explicit: true,
                })
            });
            replaced.insert(node, targets.collect::<Result<_, _>>()?);
        }
        self.edges = self.edges.with_targets(&replaced);
        Ok(())
    }

    /// Completes the export once all requirements are known.
    pub(super) fn complete(mut self) -> ExportResult {
        self.leave_out_cycles();
        self.leave_out_dependents();
        let machines = self.machine_facts();
        let mut exported = self.finish();
        exported.add_missing(machines);
        tracing::debug!(
            resources = exported.resources.len(),
            problems = exported.problems.len(),
            notes = exported.warnings.len(),
            "exported"
        );
        exported
    }

    /// Resources with the facts of the machines that the model asked for.
    fn machine_facts(&mut self) -> Vec<Resource> {
        let model = self.drafter.model;
        let resource = |(machine, &loc): (&String, &Loc)| {
            let resource = Resource::machine_facts(machine).ok()?;
            let source = Some(self.drafter.location_of(loc).source);
            Some(Resource { source, ..resource })
        };
        model.graph.machines.iter().filter_map(resource).collect()
    }

    pub(super) fn leave_out_cycles(&mut self) {
        let cycles = self.edges.cycles();
        if cycles.is_empty() {
            return;
        }
        let model = self.drafter.model;
        let places = model.graph.requirement_locations(&model.program);
        for mut members in cycles {
            // By id, so that the choice among equal cycles does not depend on the evaluation order.
            let mut subjects: Vec<(Subject, u32)> =
                members.iter().map(|&node| (self.subject(node), node)).collect();
            subjects.sort_by(|(one, _), (other, _)| {
                (&one.id, sort_location(one)).cmp(&(&other.id, sort_location(other)))
            });
            members = subjects.iter().map(|&(_, node)| node).collect();
            for &node in &members {
                self.left_out[node as usize] = ExclusionReason::Broken;
            }
            let cycle = self.edges.shortest_cycle(&members);
            let next = cycle.iter().cycle().skip(1);
            let edges = cycle.iter().zip(next).map(|(&from, &to)| {
                let ends = [from, to].map(|node| self.nodes[node as usize].instance);
                let location = match places.get(&(ends[0], ends[1])) {
                    Some(&loc) => self.drafter.location_of(loc),
                    None => self.drafter.location(ends[0]),
                };
                Edge { from: self.subject(from), to: self.subject(to), location }
            });
            let edges = edges.collect();
            let shown: FxHashSet<u32> = cycle.iter().copied().collect();
            let others = subjects.into_iter().filter(|(_, node)| !shown.contains(node));
            let others = others.map(|(subject, _)| subject).collect();
            self.problems.push(ExportProblem::Cycle { edges, others });
        }
    }

    /// Leaves out all direct and indirect dependents of excluded nodes, nearest first.
    pub(super) fn leave_out_dependents(&mut self) {
        let broken = |(node, state): (usize, &ExclusionReason)| {
            (*state == ExclusionReason::Broken).then_some(node as u32)
        };
        let mut queue: VecDeque<u32> =
            self.left_out.iter().enumerate().filter_map(broken).collect();
        if queue.is_empty() {
            return;
        }
        let dependents = self.edges.reversed();
        while let Some(node) = queue.pop_front() {
            for &dependent in dependents.targets(node) {
                let state = &mut self.left_out[dependent as usize];
                if *state == ExclusionReason::NotExcluded {
                    *state = ExclusionReason::Requires(node);
                    queue.push_back(dependent);
                }
            }
        }
    }

    fn problems(&mut self) -> Vec<ExportProblem> {
        let mut problems = std::mem::take(&mut self.problems);
        problems.sort_by(|one, other| {
            let (one, other) = (&one.location().source, &other.location().source);
            (&one.file, one.line, one.column).cmp(&(&other.file, other.line, other.column))
        });
        let mut subjects: FxHashMap<u32, Arc<Subject>> = FxHashMap::default();
        // The node at the end of each chain of requirements.
        let mut causes: FxHashMap<u32, u32> = FxHashMap::default();
        for at in 0..self.order.len() {
            let node = self.order[at];
            let ExclusionReason::Requires(requires) = self.left_out[node as usize] else {
                continue;
            };
            let mut cause = requires;
            let mut passed = vec![node];
            while let ExclusionReason::Requires(next) = self.left_out[cause as usize] {
                if let Some(&known) = causes.get(&cause) {
                    cause = known;
                    break;
                }
                passed.push(cause);
                cause = next;
            }
            causes.extend(passed.into_iter().map(|node| (node, cause)));
            let mut shared = |node| {
                if let Some(known) = subjects.get(&node) {
                    return known.clone();
                }
                let made = Arc::new(self.subject(node));
                subjects.insert(node, made.clone());
                made
            };
            let (requires, cause) = (shared(requires), shared(cause));
            let resource = self.subject(node);
            problems.push(ExportProblem::RequiresLeftOut { resource, requires, cause });
        }
        problems
    }

    pub(super) fn finish(mut self) -> ExportResult {
        let problems = self.problems();
        let mut warnings = std::mem::take(&mut self.plans.warnings);
        warnings.append(&mut self.warnings);
        // Exported nodes come first, by id; the excluded ones follow.
        let left_out = &self.left_out;
        self.order.retain(|&node| left_out[node as usize] == ExclusionReason::NotExcluded);
        let mut place = vec![u32::MAX; self.nodes.len()];
        for (&node, rank) in self.order.iter().zip(0..) {
            place[node as usize] = rank;
        }
        let unknowns = self.unknowns(&place);
        self.fill(&place);
        let kept = self.order.len();
        let mut behind = kept as u32..;
        for place in place.iter_mut().filter(|place| **place == u32::MAX) {
            *place = behind.next().unwrap_or_default();
        }
        sort_by_id::arrange(&mut self.resources, place);
        self.resources.truncate(kept);
        // Taken in memory order: only the exported ones come first.
        let resources = self.resources.into_iter().map_while(|resource| resource).collect();
        ExportResult { resources, unknowns, problems, warnings, unmanaged: self.unmanaged }
    }

    /// Sets the requirements of all exported resources.
    fn fill(&mut self, place: &[u32]) {
        let mut targets: Vec<u32> = Vec::new();
        for &node in &self.order {
            targets.clear();
            targets.extend(self.edges.targets(node).iter().map(|&target| place[target as usize]));
            targets.sort_unstable();
            targets.dedup();
            let id = |&rank: &u32| {
                let target = self.order[rank as usize] as usize;
                self.resources[target].as_ref().map(|target| target.id.clone())
            };
            let requires: Vec<ResourceId> = targets.iter().filter_map(id).collect();
            if let Some(resource) = &mut self.resources[node as usize] {
                resource.requires = requires;
            }
        }
    }

    fn unknowns(&self, place: &[u32]) -> Vec<UnknownAttribute> {
        let heap = &self.drafter.model.graph.heap;
        let mut found: Vec<&(u32, Arc<str>, Option<UnknownId>)> =
            self.unknowns.iter().filter(|(node, ..)| place[*node as usize] != u32::MAX).collect();
        found.sort_by_key(|(node, name, _)| (place[*node as usize], name.clone()));
        let id = |node: u32| self.resources[node as usize].as_ref().map(|r| r.id.clone());
        let unknown = |(node, name, unknown): &(u32, Arc<str>, Option<UnknownId>)| {
            let source = unknown.and_then(|unknown| heap.unknown_source(unknown));
            Some(UnknownAttribute {
                resource: id(*node)?,
                attribute: name.clone(),
                fact_of: source.and_then(|of| self.nodes_of(of).next()).and_then(id),
            })
        };
        found.into_iter().filter_map(unknown).collect()
    }
}

/// Sort key of a subject: its location.
pub(super) fn sort_location(subject: &Subject) -> (&str, u32, u32) {
    let source = &subject.location.source;
    (&source.file, source.line, source.column)
}
