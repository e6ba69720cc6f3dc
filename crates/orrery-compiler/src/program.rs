//! The definitions of a set of files: namespaces, types, entities and code. Filled by `define` and
//! `lower`, read-only during evaluation.

use orrery_python::PyRegex;
use orrery_syntax::ast::Loc;
use orrery_syntax::{Interner, Symbol};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::host::Signature;
use crate::ids::ids;
use crate::ir::{
    Annotation, Block, BlockId, Expr, ExprId, Implement, Implementation, Stmt, StmtId, Typedef,
};
use crate::source::Sources;
use crate::value::Value;

ids! { NamespaceId, EntityId, AttributeId, TypeId }

/// Meaning of a name in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    Entity(EntityId),
    Typedef(u32),
    Implementation(u32),
    Plugin(u32),
}

/// One file's namespace.
#[derive(Debug)]
pub struct Namespace {
    /// Full name, `m::sub`.
    pub name: Symbol,
    pub parent: Option<NamespaceId>,
    /// Visible names of other namespaces: import name or alias.
    pub imports: FxHashMap<Symbol, NamespaceId>,
    pub definitions: FxHashMap<Symbol, Definition>,
    /// Top-level variables and their cells.
    pub variables: FxHashMap<Symbol, u32>,
    pub file: orrery_syntax::ast::FileId,
    /// The module has plugins that this program cannot run itself.
    pub foreign_plugins: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    Any,
    Null,
    String,
    Int,
    Float,
    Number,
    Bool,
    /// `list` with literal members only
    List,
    /// `dict` with literal members only
    Dict,
    /// A plugin's `list`: any members
    AnyList,
    /// A plugin's `dict`: any values
    AnyDict,
    ListOf(TypeId),
    /// A plugin's `dict[string, T]`
    DictOf(TypeId),
    /// A plugin's choice between types
    Union(Box<[TypeId]>),
    /// A plugin's `Reference[T]`
    Reference(TypeId),
    Nullable(TypeId),
    Typedef(u32),
    Entity(EntityId),
}

/// Primitive types by name.
const PRIMITIVES: [(&str, Type); 7] = [
    ("string", Type::String),
    ("int", Type::Int),
    ("float", Type::Float),
    ("number", Type::Number),
    ("bool", Type::Bool),
    ("list", Type::List),
    ("dict", Type::Dict),
];

impl Type {
    /// The primitive type of a name.
    pub fn primitive(name: &str) -> Option<Type> {
        PRIMITIVES.iter().find(|(of, _)| *of == name).map(|(_, ty)| ty.clone())
    }

    pub fn primitives() -> impl Iterator<Item = Type> {
        PRIMITIVES.into_iter().map(|(_, ty)| ty)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct RelationEnd {
    pub low: u32,
    pub high: Option<u32>,
    pub target: EntityId,
    pub inverse: Option<AttributeId>,
    /// Position in the precedence policy, if a rule names it first.
    pub precedence: Option<u32>,
    /// True if it appears on the left side of a rule.
    pub held_back: bool,
}

impl RelationEnd {
    pub fn is_single(&self) -> bool {
        self.low >= 1 && self.high == Some(1)
    }

    pub fn is_optional(&self) -> bool {
        self.low == 0 && self.high == Some(1)
    }
}

#[derive(Debug)]
pub struct Attribute {
    pub name: Symbol,
    /// The entity that declares it.
    pub entity: EntityId,
    pub ty: TypeId,
    pub relation: Option<RelationEnd>,
    pub loc: Loc,
}

#[derive(Debug)]
pub struct Entity {
    /// `m::Name`
    pub name: Symbol,
    /// `Name`
    pub short: Symbol,
    pub namespace: NamespaceId,
    pub parents: Vec<EntityId>,
    pub children: Vec<EntityId>,
    /// All ancestors, itself included; sorted.
    pub ancestors: Vec<EntityId>,
    pub own: Vec<AttributeId>,
    /// Own defaults: `None` removes an inherited one.
    pub own_defaults: Vec<(Symbol, Option<Value>)>,
    /// Declarations of attributes with a default, for messages.
    pub declarations: Vec<(Symbol, String, Loc)>,
    /// All attributes and relations in the order of an instance's cells.
    pub slots: Vec<AttributeId>,
    pub slot_of: FxHashMap<Symbol, u32>,
    /// Effective defaults, in order.
    pub defaults: Vec<(Symbol, Value)>,
    pub own_indexes: Vec<u32>,
    /// Own and inherited.
    pub indexes: Vec<u32>,
    /// For each index: the slots of its attributes, and true if integers are converted to floats
    /// there.
    pub index_slots: Vec<Vec<(u32, bool)>>,
    /// Slots of relations that may be complete from the start.
    pub open_slots: Vec<u32>,
    pub own_implements: Vec<u32>,
    /// Implement statements of a new instance: own ones and, with `parents`, those of the parents.
    pub implements: Vec<u32>,
    /// All implementations among them: an instance has one bit for each.
    pub implementations: Vec<u32>,
    pub loc: Loc,
}

#[derive(Debug)]
pub struct Index {
    pub entity: EntityId,
    /// Sorted by text.
    pub attributes: Vec<Symbol>,
    pub loc: Loc,
}

/// A plugin and the types of its parameters and result, where they are checked.
#[derive(Debug)]
pub struct Plugin {
    pub signature: Signature,
    /// The namespace of the plugin, if it is loaded.
    pub namespace: Option<NamespaceId>,
    pub param_types: Vec<Option<TypeId>>,
    pub result_type: Option<TypeId>,
}

#[derive(Debug, Default)]
pub struct Program {
    pub interner: Interner,
    pub sources: Sources,
    pub namespaces: Vec<Namespace>,
    pub namespace_of: FxHashMap<Symbol, NamespaceId>,
    pub entities: Vec<Entity>,
    pub attributes: Vec<Attribute>,
    pub types: Vec<Type>,
    pub type_of: FxHashMap<Type, TypeId>,
    pub typedefs: Vec<Typedef>,
    pub implementations: Vec<Implementation>,
    pub implements: Vec<Implement>,
    pub indexes: Vec<Index>,
    /// By the host's numbers.
    pub plugins: Vec<Plugin>,
    pub exprs: Vec<Expr>,
    pub stmts: Vec<Stmt>,
    pub blocks: Vec<Block>,
    /// Names of the variables in frames, by frame number; for templates.
    pub frame_names: Vec<Box<[Symbol]>>,
    pub regexes: Vec<(Box<str>, PyRegex)>,
    /// Top-level code, in the order of emission.
    pub toplevel: Vec<(NamespaceId, BlockId)>,
    /// Number of cells for top-level variables.
    pub globals: u32,
    /// Relation annotations that must not be unknown.
    pub annotations: Vec<Annotation>,
}

impl Program {
    pub fn text(&self, symbol: Symbol) -> &str {
        self.interner.text(symbol)
    }

    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.exprs[id.0 as usize]
    }

    pub fn stmt(&self, id: StmtId) -> &Stmt {
        &self.stmts[id.0 as usize]
    }

    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    pub fn entity(&self, id: EntityId) -> &Entity {
        &self.entities[id.index()]
    }

    pub fn attribute(&self, id: AttributeId) -> &Attribute {
        &self.attributes[id.index()]
    }

    pub fn ty(&self, id: TypeId) -> &Type {
        &self.types[id.index()]
    }

    pub fn intern_type(&mut self, ty: Type) -> TypeId {
        if let Some(&id) = self.type_of.get(&ty) {
            return id;
        }
        let id = TypeId(u32::try_from(self.types.len()).expect("invariant: few types"));
        self.types.push(ty.clone());
        self.type_of.insert(ty, id);
        id
    }

    /// True if `entity` equals `ancestor` or descends from it.
    pub fn is_subtype(&self, entity: EntityId, ancestor: EntityId) -> bool {
        entity == ancestor || self.entity(entity).ancestors.binary_search(&ancestor).is_ok()
    }

    /// The entity itself, if it matches, otherwise its nearest matching ancestors.
    pub(crate) fn nearest(
        &self,
        entity: EntityId,
        wanted: impl Fn(EntityId) -> bool,
    ) -> SmallVec<[EntityId; 4]> {
        let mut found: SmallVec<[EntityId; 4]> = SmallVec::new();
        for &ancestor in self.entity(entity).ancestors.iter().chain([&entity]) {
            if !found.contains(&ancestor) && wanted(ancestor) {
                found.push(ancestor);
            }
        }
        let all = found.clone();
        let hidden =
            |of: EntityId| all.iter().any(|&other| other != of && self.is_subtype(other, of));
        found.retain(|of| !hidden(*of));
        found
    }

    /// The attribute behind a slot of an entity's instances.
    pub fn slot(&self, entity: EntityId, slot: u32) -> &Attribute {
        self.attribute(self.entity(entity).slots[slot as usize])
    }

    /// A type in messages.
    pub fn type_name(&self, id: TypeId) -> String {
        match self.ty(id) {
            Type::Any => "any".into(),
            Type::Null => "null".into(),
            Type::String => "string".into(),
            Type::Int => "int".into(),
            Type::Float => "float".into(),
            Type::Number => "number".into(),
            Type::Bool => "bool".into(),
            Type::List | Type::AnyList => "list".into(),
            Type::Dict | Type::AnyDict => "dict".into(),
            Type::ListOf(inner) => format!("{}[]", self.type_name(*inner)),
            Type::DictOf(inner) => format!("dict[string, {}]", self.type_name(*inner)),
            Type::Union(members) => {
                let members: Vec<String> = members.iter().map(|&ty| self.type_name(ty)).collect();
                format!("Union[{}]", members.join(","))
            }
            Type::Reference(inner) => format!("Reference[{}]", self.type_name(*inner)),
            Type::Nullable(inner) => format!("{}?", self.type_name(*inner)),
            Type::Typedef(typedef) => {
                let typedef = &self.typedefs[*typedef as usize];
                let namespace = &self.namespaces[typedef.namespace.index()];
                format!("{}::{}", self.text(namespace.name), self.text(typedef.name))
            }
            Type::Entity(entity) => self.text(self.entity(*entity).name).into(),
        }
    }

    /// Finds a type by its full name.
    pub fn find_definition(&self, full: &str) -> Option<Definition> {
        let (namespace, name) = full.rsplit_once("::")?;
        let namespace = self.namespace_of.get(&self.interner.get(namespace)?)?;
        let name = self.interner.get(name)?;
        self.namespaces[namespace.index()].definitions.get(&name).copied()
    }
}
