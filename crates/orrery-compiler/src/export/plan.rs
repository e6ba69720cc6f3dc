//! Export plans: how instances of one entity become resources, computed once per entity.
//! Declarations name attributes, plans know their slots.

use std::ops::Range;
use std::sync::Arc;

use orrery_model::ResourceType;
use orrery_syntax::Symbol;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{BlockId, ExprId, ExprKind, StmtKind};
use crate::program::{AttributeId, Definition, EntityId, Program};
use crate::report::Model;

use super::ExportWarning;
use super::code::ResourceClass;
use super::json;

/// Metadata attributes of every resource, which are not part of its intent.
const RESERVED: [&str; 4] = ["id", "provides", "requires", "version"];

/// An attribute that every resource has, declared or not.
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

/// Fields of all descendants of these entities.
const BASE_FIELDS: [(&str, &[&str]); 2] = [
    ("std::PurgeableResource", &["purged", "purge_on_delete"]),
    ("std::ManagedResource", &["managed"]),
];

#[derive(Debug)]
pub(super) enum FieldValue {
    Slot(u32),
    Flag(Flag, Option<u32>),
    /// A relation; its instances are serialized as objects with these attributes, by key.
    Part(u32, Vec<(Symbol, Vec<u8>)>),
    /// Computed by module code only.
    Computed,
    /// Collected by the code while it computes the others.
    Collected,
}

/// Fields of everything that code exports; not attributes of the instance.
const COLLECTED: [&str; 2] = ["mutators", "references"];

#[derive(Debug)]
pub(super) struct Field {
    pub name: Arc<str>,
    /// The object key of the field.
    pub key: Vec<u8>,
    pub value: FieldValue,
}

#[derive(Debug)]
pub(super) struct Plan<'d> {
    pub declaration: &'d ResourceType,
    /// The declared entity: the type in the id. The instance's own entity may be a descendant.
    pub entity: Arc<str>,
    pub managed: Option<u32>,
    pub requires: Option<u32>,
    pub id: Option<u32>,
    /// The class in module code that defines it, if any.
    pub class: Option<u32>,
    pub id_is_computed: bool,
    /// Reason why it cannot export anything.
    pub problem: Option<&'d str>,
    /// The path to the agent; names that no source mentions have no symbol.
    pub agent: Vec<(&'d str, Option<Symbol>)>,
    /// Sorted by name.
    pub fields: Vec<Field>,
}

/// The definition of how instances of an entity become resources.
#[derive(Clone, Copy, Debug)]
struct DeclarationSource<'d> {
    declaration: &'d ResourceType,
    class: Option<&'d ResourceClass>,
}

/// The plans of an entity, stored consecutively: nearly always one.
pub(super) type PlanNumbers = Range<u32>;

pub(super) struct Plans<'m, 'd> {
    program: &'m Program,
    requires: Option<AttributeId>,
    declared: FxHashMap<EntityId, DeclarationSource<'d>>,
    resource: Option<EntityId>,
    of: Vec<Option<PlanNumbers>>,
    pub all: Vec<Plan<'d>>,
    pub warnings: Vec<ExportWarning>,
}

impl<'m, 'd> Plans<'m, 'd> {
    pub(super) fn new(
        model: &'m Model,
        declarations: impl IntoIterator<Item = &'d ResourceType>,
        classes: &'d [ResourceClass],
    ) -> Self {
        let program = &model.program;
        let native = declarations
            .into_iter()
            .map(|declaration| DeclarationSource { declaration, class: None });
        let coded = classes
            .iter()
            .map(|class| DeclarationSource { declaration: &class.declaration, class: Some(class) });
        let found =
            |of: DeclarationSource<'d>| Some((entity_of(program, &of.declaration.entity)?, of));
        let mut declared: FxHashMap<EntityId, DeclarationSource<'d>> =
            native.filter_map(found).collect();
        // A class replaces the built-in declaration for the entity and its descendants.
        let coded: Vec<(EntityId, DeclarationSource<'d>)> = coded.filter_map(found).collect();
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
            warnings: Vec::new(),
        }
    }

    /// The plans for instances of an entity.
    pub(super) fn for_entity(&mut self, entity: EntityId) -> PlanNumbers {
        if let Some(known) = &self.of[entity.index()] {
            return known.clone();
        }
        let first = self.all.len() as u32;
        for declaration in self.declarations(entity) {
            let plan = self.build_plan(entity, declaration);
            self.all.push(plan);
        }
        let made = first..self.all.len() as u32;
        self.of[entity.index()] = Some(made.clone());
        made
    }

    /// True if instances of the entity should become resources: false if its implementations create
    /// other instances.
    pub(super) fn is_resource(&self, entity: EntityId) -> bool {
        self.resource.is_some_and(|resource| self.program.is_subtype(entity, resource))
            && !self.is_lowered(entity)
    }

    /// True if an implementation of the entity creates instances.
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

    /// The entity's own declaration, or those of the nearest declared ancestors; declarations
    /// behind another one do not count. (The reference compiler exports such an instance once for
    /// each, all but one without requirements: two resources that manage the same object.)
    fn declarations(&self, entity: EntityId) -> SmallVec<[DeclarationSource<'d>; 1]> {
        let nearest = self.program.nearest(entity, |of| self.declared.contains_key(&of));
        nearest.iter().map(|of| self.declared[of]).collect()
    }

    fn build_plan(&mut self, entity: EntityId, declared: DeclarationSource<'d>) -> Plan<'d> {
        let DeclarationSource { declaration, class } = declared;
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

    /// Fields named by a class of the code; those that are not attributes are computed by the code.
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
        // A missing id attribute is a problem of each resource.
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
        self.warnings.extend(
            absent
                .into_iter()
                .map(|field| ExportWarning::FieldAbsent { entity: name.into(), field }),
        );
        fields
    }
}

fn computes(class: &ResourceClass, field: &str) -> bool {
    class.computed.iter().any(|computed| computed == field)
}

/// True for attributes that every resource has, and those that are not part of its intent.
pub(super) fn is_metadata(name: &str) -> bool {
    RESERVED.contains(&name) || FLAGS.iter().any(|(flag, _)| *flag == name)
}

pub(super) fn entity_of(program: &Program, name: &str) -> Option<EntityId> {
    match program.find_definition(name) {
        Some(Definition::Entity(entity)) => Some(entity),
        _ => None,
    }
}
