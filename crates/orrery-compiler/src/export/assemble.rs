//! All drafts together: ids that are there twice, sets, requirements, and what is left out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use orrery_model::{Resource, ResourceId, ResourceType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::host::View;
use crate::program::EntityId;
use crate::report::Model;
use crate::source::Sources;
use crate::value::{InstanceId, UnknownId, Value};

use super::code::{self, Answer, Answers, Code, CodeError, Item, Required, ResourceClass};
use super::draft::{Drafted, Drafter};
use super::edges::Edges;
use super::plan::Plans;
use super::problem::{Edge, Problem, Subject};
use super::{Exported, Note, Unknown, order};

/// What became of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It has nodes, or is no resource at all.
    Plain,
    Unmanaged,
    Unidentified,
}

/// A resource to be, or what is left of a broken one.
struct Node {
    instance: InstanceId,
    plan: u32,
}

/// Why a node is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOut {
    No,
    Broken,
    /// It requires this node, which is left out.
    Requires(u32),
}

pub(super) struct Assembly<'m, 'd> {
    pub(super) drafter: Drafter<'m>,
    plans: Plans<'m, 'd>,
    nodes: Vec<Node>,
    /// By node; `None` for those that are broken beyond their id.
    pub(super) resources: Vec<Option<Resource>>,
    pub(super) left_out: Vec<LeftOut>,
    /// The first node of each instance, and at last how many nodes there are.
    first_node: Vec<u32>,
    fates: Vec<Fate>,
    /// Nodes with a resource, by id.
    pub(super) order: Vec<u32>,
    /// Ids of nodes that have no resource any more.
    known_ids: FxHashMap<u32, ResourceId>,
    edges: Edges,
    unknowns: Vec<(u32, Arc<str>, Option<UnknownId>)>,
    /// Problems of resources themselves; those of dependents are made at the end.
    pub(super) problems: Vec<Problem>,
    pub(super) notes: Vec<Note>,
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
            fates: Vec::with_capacity(model.graph.instances.len()),
            order: Vec::new(),
            known_ids: FxHashMap::default(),
            edges: Edges::with_capacity(0),
            unknowns: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
            unmanaged: 0,
        }
    }

    /// Has the code compute what only it can.
    pub(super) fn ask(
        &mut self,
        code: &mut dyn Code,
        view: &dyn View,
    ) -> Result<Answers, CodeError> {
        let model = self.drafter.model;
        let instances = &model.graph.instances;
        let mut wanted: Vec<(InstanceId, u32)> = Vec::new();
        for (number, of) in instances.iter().enumerate() {
            let instance = InstanceId(number as u32);
            wanted.extend(self.plans.of(of.entity).map(|plan| (instance, plan)));
        }
        let plans = &self.plans.all;
        let item = |(instance, plan): (InstanceId, u32)| {
            Some((plan, code::item(model, instance, &plans[plan as usize])?))
        };
        let items: Vec<(u32, Item<'_>)> = wanted.into_iter().filter_map(item).collect();
        code::ask(code, view, &items)
    }

    pub(super) fn draft_all(&mut self, mut answers: Answers) {
        let instances = &self.drafter.model.graph.instances;
        let count = instances.iter().filter(|of| !self.plans.of(of.entity).is_empty()).count();
        self.nodes.reserve_exact(count);
        self.resources.reserve_exact(count);
        let mut without_handler: BTreeMap<EntityId, (usize, InstanceId)> = BTreeMap::new();
        for (number, of) in instances.iter().enumerate() {
            let instance = InstanceId(number as u32);
            self.first_node.push(self.nodes.len() as u32);
            let plans = self.plans.of(of.entity);
            if plans.is_empty() && self.plans.is_resource(of.entity) {
                without_handler.entry(of.entity).or_insert((0, instance)).0 += 1;
            }
            let mut fate = Fate::Plain;
            for plan in plans {
                let answer = answers.remove(&(instance, plan));
                fate = self.draft(instance, plan, answer);
            }
            self.fates.push(fate);
        }
        self.first_node.push(self.nodes.len() as u32);
        self.left_out.resize(self.nodes.len(), LeftOut::No);
        for node in 0..self.nodes.len() {
            if self.resources[node].is_none() {
                self.left_out[node] = LeftOut::Broken;
            }
        }
        for (_, (count, first)) in without_handler {
            let entity = self.drafter.model.entity_name(first).into();
            let source = self.drafter.site(first).source;
            self.notes.push(Note::NoHandler { entity, count, source });
        }
        self.order = order::by_id(&self.resources);
        self.leave_out_duplicates();
    }

    fn draft(&mut self, instance: InstanceId, number: u32, answer: Option<Answer>) -> Fate {
        let plan = &self.plans.all[number as usize];
        let node = self.nodes.len() as u32;
        match self.drafter.draft(instance, plan, answer) {
            Drafted::Resource(resource) => {
                let unknown = self.drafter.unknown_fields.drain(..);
                self.unknowns.extend(unknown.map(|field| (node, field.name, field.unknown)));
                self.resources.push(Some(resource));
            }
            Drafted::Broken(problem, id) => {
                self.problems.push(*problem);
                self.known_ids.extend(id.map(|id| (node, id)));
                self.resources.push(None);
            }
            Drafted::Unmanaged => {
                self.unmanaged += 1;
                return Fate::Unmanaged;
            }
            Drafted::Unidentified => {
                let entity = plan.entity.clone();
                let source = self.drafter.site(instance).source;
                self.notes.push(Note::Unidentified { entity, source });
                return Fate::Unidentified;
            }
        }
        self.nodes.push(Node { instance, plan: number });
        Fate::Plain
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
                subjects.sort_by(|one, other| place(one).cmp(&place(other)));
                for node in nodes {
                    self.left_out[node as usize] = LeftOut::Broken;
                }
                if let Some(id) = subjects[0].id.clone() {
                    self.problems.push(Problem::DuplicateId { id, subjects });
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

    /// Whether its id names a path of which one resource of a machine decides.
    pub(super) fn manages_path(&self, node: u32) -> bool {
        self.plans.all[self.nodes[node as usize].plan as usize].declaration.is_path
    }

    pub(super) fn nodes_of(&self, instance: InstanceId) -> std::ops::Range<u32> {
        self.first_node[instance.index()]..self.first_node[instance.index() + 1]
    }

    /// Finds what each node requires: whatever its instance requires directly and is a node too.
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
                unmanaged |= self.fates[member.index()] == Fate::Unmanaged;
                unidentified |= self.fates[member.index()] == Fate::Unidentified;
            }
            self.edges.end_node();
            let lost = !members.is_empty() && !found && !unmanaged;
            if (lost || unidentified)
                && let Some(Resource { id, source, .. }) = &self.resources[number]
            {
                let (resource, source) = (id.clone(), source.clone());
                self.notes.push(if unidentified {
                    Note::RequiresUnidentified { resource, source }
                } else {
                    Note::RequirementsLost { resource, source }
                });
            }
        }
    }

    /// Lets the code of modules change what resources require.
    pub(super) fn add_requirements(
        &mut self,
        code: &mut dyn Code,
        view: &dyn View,
    ) -> Result<(), CodeError> {
        let mut position = vec![u32::MAX; self.nodes.len()];
        for (&node, at) in self.order.iter().zip(0..) {
            position[node as usize] = at;
        }
        let mut resources = Vec::with_capacity(self.order.len());
        for &node in &self.order {
            let Some(resource) = &self.resources[node as usize] else { continue };
            let Node { instance, plan } = self.nodes[node as usize];
            let known = self.edges.of(node).iter().map(|&target| position[target as usize]);
            resources.push(Required {
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
                by_id.get(id.as_str()).copied().ok_or_else(|| CodeError {
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
        self.edges = self.edges.replaced(&replaced);
        Ok(())
    }

    /// What is left to do once all requirements are known.
    pub(super) fn complete(mut self) -> Exported {
        self.leave_out_circles();
        self.leave_out_dependents();
        let exported = self.finish();
        tracing::debug!(
            resources = exported.resources.len(),
            problems = exported.problems.len(),
            notes = exported.notes.len(),
            "exported"
        );
        exported
    }

    pub(super) fn leave_out_circles(&mut self) {
        let circles = self.edges.circles();
        if circles.is_empty() {
            return;
        }
        let model = self.drafter.model;
        let places = model.graph.requirement_places(&model.program);
        for mut members in circles {
            // By id, so that the choice among equal circles does not hang on how the model is evaluated.
            let mut subjects: Vec<(Subject, u32)> =
                members.iter().map(|&node| (self.subject(node), node)).collect();
            subjects.sort_by(|(one, _), (other, _)| {
                (&one.id, place(one)).cmp(&(&other.id, place(other)))
            });
            members = subjects.iter().map(|&(_, node)| node).collect();
            for &node in &members {
                self.left_out[node as usize] = LeftOut::Broken;
            }
            let circle = self.edges.shortest_circle(&members);
            let next = circle.iter().cycle().skip(1);
            let edges = circle.iter().zip(next).map(|(&from, &to)| {
                let ends = [from, to].map(|node| self.nodes[node as usize].instance);
                let site = match places.get(&(ends[0], ends[1])) {
                    Some(&loc) => self.drafter.site_of(loc),
                    None => self.drafter.site(ends[0]),
                };
                Edge { from: self.subject(from), to: self.subject(to), site }
            });
            let edges = edges.collect();
            let shown: FxHashSet<u32> = circle.iter().copied().collect();
            let others = subjects.into_iter().filter(|(_, node)| !shown.contains(node));
            let others = others.map(|(subject, _)| subject).collect();
            self.problems.push(Problem::Cycle { edges, others });
        }
    }

    /// Leaves out what requires something that is left out, near or far: nearest first.
    pub(super) fn leave_out_dependents(&mut self) {
        let broken =
            |(node, state): (usize, &LeftOut)| (*state == LeftOut::Broken).then_some(node as u32);
        let mut queue: VecDeque<u32> =
            self.left_out.iter().enumerate().filter_map(broken).collect();
        if queue.is_empty() {
            return;
        }
        let dependents = self.edges.reversed();
        while let Some(node) = queue.pop_front() {
            for &dependent in dependents.of(node) {
                let state = &mut self.left_out[dependent as usize];
                if *state == LeftOut::No {
                    *state = LeftOut::Requires(node);
                    queue.push_back(dependent);
                }
            }
        }
    }

    fn problems(&mut self) -> Vec<Problem> {
        let mut problems = std::mem::take(&mut self.problems);
        problems.sort_by(|one, other| {
            let (one, other) = (&one.site().source, &other.site().source);
            (&one.file, one.line, one.column).cmp(&(&other.file, other.line, other.column))
        });
        let mut subjects: FxHashMap<u32, Arc<Subject>> = FxHashMap::default();
        // The node at the end of each chain of requirements.
        let mut causes: FxHashMap<u32, u32> = FxHashMap::default();
        for at in 0..self.order.len() {
            let node = self.order[at];
            let LeftOut::Requires(requires) = self.left_out[node as usize] else { continue };
            let mut cause = requires;
            let mut passed = vec![node];
            while let LeftOut::Requires(next) = self.left_out[cause as usize] {
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
            problems.push(Problem::RequiresLeftOut { resource, requires, cause });
        }
        problems
    }

    pub(super) fn finish(mut self) -> Exported {
        let problems = self.problems();
        let mut notes = std::mem::take(&mut self.plans.notes);
        notes.append(&mut self.notes);
        // Those that stay come first, by id; behind them, whatever is left out.
        let left_out = &self.left_out;
        self.order.retain(|&node| left_out[node as usize] == LeftOut::No);
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
        order::arrange(&mut self.resources, place);
        self.resources.truncate(kept);
        // Taken as they lie in memory: only what is there comes first.
        let resources = self.resources.into_iter().map_while(|resource| resource).collect();
        Exported { resources, unknowns, problems, notes, unmanaged: self.unmanaged }
    }

    /// Gives all that stay their requirements.
    fn fill(&mut self, place: &[u32]) {
        let mut targets: Vec<u32> = Vec::new();
        for &node in &self.order {
            targets.clear();
            targets.extend(self.edges.of(node).iter().map(|&target| place[target as usize]));
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

    fn unknowns(&self, place: &[u32]) -> Vec<Unknown> {
        let heap = &self.drafter.model.graph.heap;
        let mut found: Vec<&(u32, Arc<str>, Option<UnknownId>)> =
            self.unknowns.iter().filter(|(node, ..)| place[*node as usize] != u32::MAX).collect();
        found.sort_by_key(|(node, name, _)| (place[*node as usize], name.clone()));
        let id = |node: u32| self.resources[node as usize].as_ref().map(|r| r.id.clone());
        let unknown = |(node, name, unknown): &(u32, Arc<str>, Option<UnknownId>)| {
            let source = unknown.and_then(|unknown| heap.unknown_source(unknown));
            Some(Unknown {
                resource: id(*node)?,
                attribute: name.clone(),
                fact_of: source.and_then(|of| self.nodes_of(of).next()).and_then(id),
            })
        };
        found.into_iter().filter_map(unknown).collect()
    }
}

/// Where a subject stands, to be compared.
pub(super) fn place(subject: &Subject) -> (&str, u32, u32) {
    let source = &subject.site.source;
    (&source.file, source.line, source.column)
}
