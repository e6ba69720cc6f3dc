//! How the instances of one entity become resources, worked out once: declarations name attributes,
//! plans know their slots.

use std::ops::Range;
use std::sync::Arc;

use orrery_model::ResourceType;
use orrery_syntax::Symbol;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{BlockId, ExprId, ExprKind, StmtKind};
use crate::program::{AttributeId, Definition, EntityId, Program};
use crate::report::Model;

use super::Note;
use super::code::ResourceClass;
use super::json;

/// What the attributes of every resource say about it rather than about its intent.
const RESERVED: [&str; 4] = ["id", "provides", "requires", "version"];

/// Something that every resource has, whether or not its entity declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    SendEvent,
    ReceiveEvents,
    ReportOnly,
}

const FLAGS: [(&str, Flag); 3] = [
    ("send_event", Flag::SendEvent),
    ("receive_events", Flag::ReceiveEvents),
    ("report_only", Flag::ReportOnly),
];

/// Fields of everything that descends from these entities.
const BASE_FIELDS: [(&str, &[&str]); 2] = [
    ("std::PurgeableResource", &["purged", "purge_on_delete"]),
    ("std::ManagedResource", &["managed"]),
];

#[derive(Debug)]
pub(super) enum FieldValue {
    Slot(u32),
    Flag(Flag, Option<u32>),
    /// A relation whose instances are written as objects with these attributes, by key.
    Part(u32, Vec<(Symbol, Vec<u8>)>),
    /// Only the code of the module can say.
    Computed,
    /// What the code collects while it computes the others.
    Collected,
}

/// Fields of everything that code exports; no attributes of the instance.
const COLLECTED: [&str; 2] = ["mutators", "references"];

#[derive(Debug)]
pub(super) struct Field {
    pub name: Arc<str>,
    /// Its name as it stands in the object.
    pub key: Vec<u8>,
    pub value: FieldValue,
}

#[derive(Debug)]
pub(super) struct Plan<'d> {
    pub declaration: &'d ResourceType,
    /// The declared entity: the type in the id. The instance's own entity may descend from it.
    pub entity: Arc<str>,
    pub managed: Option<u32>,
    pub requires: Option<u32>,
    pub id: Option<u32>,
    /// The class in the code of a module that it goes by, if it is one.
    pub class: Option<u32>,
    pub id_is_computed: bool,
    /// Why nothing can be exported by it.
    pub problem: Option<&'d str>,
    /// The names on the way to the agent; what no source mentions has no symbol.
    pub agent: Vec<(&'d str, Option<Symbol>)>,
    /// Sorted by name.
    pub fields: Vec<Field>,
}

/// Who says how instances of an entity become resources.
#[derive(Clone, Copy, Debug)]
struct Declared<'d> {
    declaration: &'d ResourceType,
    class: Option<&'d ResourceClass>,
}

/// The plans of an entity, which stand side by side: one in nearly all cases.
pub(super) type PlanNumbers = Range<u32>;

pub(super) struct Plans<'m, 'd> {
    program: &'m Program,
    requires: Option<AttributeId>,
    declared: FxHashMap<EntityId, Declared<'d>>,
    resource: Option<EntityId>,
    of: Vec<Option<PlanNumbers>>,
    pub all: Vec<Plan<'d>>,
    pub notes: Vec<Note>,
}

impl<'m, 'd> Plans<'m, 'd> {
    pub(super) fn new(
        model: &'m Model,
        declarations: impl IntoIterator<Item = &'d ResourceType>,
        classes: &'d [ResourceClass],
    ) -> Self {
        let program = &model.program;
        let native =
            declarations.into_iter().map(|declaration| Declared { declaration, class: None });
        let coded = classes
            .iter()
            .map(|class| Declared { declaration: &class.declaration, class: Some(class) });
        let found = |of: Declared<'d>| Some((entity_of(program, &of.declaration.entity)?, of));
        let mut declared: FxHashMap<EntityId, Declared<'d>> = native.filter_map(found).collect();
        // A class takes the place of what the program declares for the entity, and for descendants of it.
        let coded: Vec<(EntityId, Declared<'d>)> = coded.filter_map(found).collect();
        let replaced = coded.iter().map(|(entity, _)| *entity);
        let replaced: Vec<EntityId> = replaced.filter(|of| declared.contains_key(of)).collect();
        declared.retain(|&of, _| !replaced.iter().any(|&above| program.is_subtype(of, above)));
        declared.extend(coded);
        Plans {
            program,
            requires: model.graph.requires,
            declared,
            resource: entity_of(program, "std::Resource"),
            of: vec![None; program.entities.len()],
            all: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The plans for instances of an entity.
    pub(super) fn of(&mut self, entity: EntityId) -> PlanNumbers {
        if let Some(known) = &self.of[entity.index()] {
            return known.clone();
        }
        let first = self.all.len() as u32;
        for declaration in self.declarations(entity) {
            let plan = self.make(entity, declaration);
            self.all.push(plan);
        }
        let made = first..self.all.len() as u32;
        self.of[entity.index()] = Some(made.clone());
        made
    }

    /// Whether instances of the entity should have become resources: not if its implementations make others of them.
    pub(super) fn is_resource(&self, entity: EntityId) -> bool {
        self.resource.is_some_and(|resource| self.program.is_subtype(entity, resource))
            && !self.is_lowered(entity)
    }

    /// Whether an implementation of the entity creates instances.
    fn is_lowered(&self, entity: EntityId) -> bool {
        let program = self.program;
        let is_construct =
            |value: ExprId| matches!(program.expr(value).kind, ExprKind::Construct(_));
        let implementations = &program.entity(entity).implementations;
        let mut pending: Vec<BlockId> =
            implementations.iter().map(|&of| program.implementations[of as usize].body).collect();
        while let Some(block) = pending.pop() {
            for &stmt in &program.block(block).stmts {
                match program.stmt(stmt).kind {
                    StmtKind::Assign { value, .. }
                    | StmtKind::SetAttr { value, .. }
                    | StmtKind::Expr(value)
                        if is_construct(value) =>
                    {
                        return true;
                    }
                    StmtKind::For { body, .. } => pending.push(body),
                    StmtKind::If { then, otherwise, .. } => pending.extend([then, otherwise]),
                    _ => {}
                }
            }
        }
        false
    }

    /// The entity's own declaration, or that of the nearest declared ancestors: one that stands behind
    /// another does not count. (The reference exports such an instance once for each, and all but one
    /// without what they require: two resources that manage the same thing.)
    fn declarations(&self, entity: EntityId) -> SmallVec<[Declared<'d>; 1]> {
        let nearest = self.program.nearest(entity, |of| self.declared.contains_key(&of));
        nearest.iter().map(|of| self.declared[of]).collect()
    }

    fn make(&mut self, entity: EntityId, declared: Declared<'d>) -> Plan<'d> {
        let Declared { declaration, class } = declared;
        let symbol = |name: &str| self.program.interner.get(name);
        let of = self.program.entity(entity);
        let slot = |name: &str| symbol(name).and_then(|name| of.slot_of.get(&name).copied());
        let requires = self.requires.and_then(|requires| {
            of.slots.iter().position(|&slot| slot == requires).map(|slot| slot as u32)
        });
        let managed = self.descends(entity, "std::ManagedResource").then(|| slot("managed"));
        Plan {
            declaration,
            entity: declaration.entity.as_ref().into(),
            managed: managed.flatten(),
            requires,
            id: slot(&declaration.id_attribute),
            class: class.map(|class| class.number),
            id_is_computed: class.is_some_and(|class| computes(class, &declaration.id_attribute)),
            problem: class.and_then(|class| class.problem.as_deref()),
            agent: declaration.agent.split('.').map(|name| (name, symbol(name))).collect(),
            fields: match class {
                Some(class) => self.fields_of_class(entity, class),
                None => self.fields(entity, declaration),
            },
        }
    }

    fn descends(&self, entity: EntityId, ancestor: &str) -> bool {
        let ancestor = entity_of(self.program, ancestor);
        ancestor.is_some_and(|ancestor| self.program.is_subtype(entity, ancestor))
    }

    /// What a class of the code names; what is no attribute, only the code can say.
    fn fields_of_class(&self, entity: EntityId, class: &ResourceClass) -> Vec<Field> {
        let program = self.program;
        let of = program.entity(entity);
        let value = |name: &str| {
            let slot = program.interner.get(name).and_then(|name| of.slot_of.get(&name).copied());
            if computes(class, name) {
                return FieldValue::Computed;
            }
            if COLLECTED.contains(&name) {
                return FieldValue::Collected;
            }
            match (FLAGS.iter().find(|(flag, _)| *flag == name), slot) {
                (Some(&(_, flag)), slot) => FieldValue::Flag(flag, slot),
                (None, Some(slot)) => FieldValue::Slot(slot),
                (None, None) => FieldValue::Computed,
            }
        };
        let named = class.declaration.fields.iter().map(AsRef::as_ref);
        let mut names: Vec<&str> = named.chain(COLLECTED).collect();
        names.sort_unstable();
        names.dedup();
        let field =
            |name: &str| Field { name: name.into(), key: json::key(name), value: value(name) };
        names.into_iter().filter(|name| !RESERVED.contains(name)).map(field).collect()
    }

    fn fields(&mut self, entity: EntityId, declaration: &'d ResourceType) -> Vec<Field> {
        let program = self.program;
        let of = program.entity(entity);
        let slot = |name: &str| {
            let name = program.interner.get(name)?;
            of.slot_of.get(&name).copied()
        };
        let mut fields: Vec<Field> = Vec::new();
        let mut add = |name: &str, value: FieldValue| {
            if !RESERVED.contains(&name) && fields.iter().all(|field| *field.name != *name) {
                fields.push(Field { name: name.into(), key: json::key(name), value });
            }
        };
        for (name, flag) in FLAGS {
            add(name, FieldValue::Flag(flag, slot(name)));
        }
        let mut absent: Vec<String> = Vec::new();
        for part in declaration.parts.iter() {
            let Some(at) = slot(&part.relation) else {
                absent.push(part.relation.to_string());
                continue;
            };
            let target = program.slot(entity, at).relation.map(|end| program.entity(end.target));
            let mut attributes: Vec<(&str, Symbol)> = Vec::new();
            for name in part.attributes.iter() {
                let known = program.interner.get(name);
                let known = known
                    .filter(|name| target.is_some_and(|target| target.slot_of.contains_key(name)));
                match known {
                    Some(symbol) => attributes.push((name, symbol)),
                    None => absent.push(format!("{}.{name}", part.relation)),
                }
            }
            attributes.sort_unstable_by_key(|&(name, _)| name);
            attributes.dedup();
            let keyed = attributes.into_iter().map(|(name, symbol)| (symbol, json::key(name)));
            add(&part.relation, FieldValue::Part(at, keyed.collect()));
        }
        // An id attribute that is absent is a problem of each resource.
        if let Some(at) = slot(&declaration.id_attribute) {
            add(&declaration.id_attribute, FieldValue::Slot(at));
        }
        let base = BASE_FIELDS
            .iter()
            .filter(|(ancestor, _)| self.descends(entity, ancestor))
            .flat_map(|(_, names)| names.iter().copied());
        for name in declaration.fields.iter().map(AsRef::as_ref).chain(base) {
            match slot(name) {
                Some(at) => add(name, FieldValue::Slot(at)),
                None if FLAGS.iter().any(|(flag, _)| *flag == name) => {}
                None => absent.push(name.to_owned()),
            }
        }
        fields.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let name = program.text(of.name);
        self.notes.extend(
            absent.into_iter().map(|field| Note::FieldAbsent { entity: name.into(), field }),
        );
        fields
    }
}

fn computes(class: &ResourceClass, field: &str) -> bool {
    class.computed.iter().any(|computed| computed == field)
}

pub(super) fn entity_of(program: &Program, name: &str) -> Option<EntityId> {
    match program.find_definition(name) {
        Some(Definition::Entity(entity)) => Some(entity),
        _ => None,
    }
}
