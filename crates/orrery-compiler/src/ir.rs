//! The program in the evaluator's form: names resolved, constants folded, blocks in the order of
//! emission. Built once per definition by `lower`, never per instance.

use orrery_syntax::Symbol;
use orrery_syntax::ast::{BinaryOp, Loc};

use crate::program::{AttributeId, EntityId, NamespaceId, TypeId};
use crate::value::{StrId, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExprId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StmtId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId(pub u32);

/// Storage of a variable, relative to a frame.
#[derive(Clone, Copy, Debug)]
pub enum Var {
    /// A cell of the frame `hops` levels up.
    Local { hops: u16, slot: u16 },
    /// A top-level variable of a file: its cell is fixed before the run.
    Global(u32),
    /// An attribute of the instance `hops` frames up; `fallback` if its entity lacks it. `certain`:
    /// every instance that this code runs for has it.
    Instance { hops: u16, certain: bool, name: Symbol, fallback: Option<u32> },
    /// `self` in an implementation.
    SelfInstance { hops: u16 },
    /// `self` in the constraint of a typedef.
    SelfValue,
    /// Undefined variable: an error when it is executed.
    Missing,
    /// The namespace is not imported.
    MissingNamespace,
}

impl Var {
    /// True if the variable may turn out to be undefined.
    pub fn may_be_missing(self) -> bool {
        match self {
            Var::Local { .. } | Var::Global(_) | Var::SelfInstance { .. } => false,
            Var::Instance { certain, fallback, .. } => !certain && fallback.is_none(),
            Var::SelfValue | Var::Missing | Var::MissingNamespace => true,
        }
    }
}

#[derive(Debug)]
pub struct Expr {
    pub kind: ExprKind,
    pub loc: Loc,
    /// Number of results of other units that this expression reads.
    pub temps: u32,
    /// True if emitting it starts units or may fail; false for most expressions.
    pub emits: bool,
    /// True if it reads variables directly, so that its unit may have to wait for them.
    pub reads: bool,
}

#[derive(Debug)]
pub enum ExprKind {
    Const(Value),
    /// An element that a comprehension's guard removes.
    Nothing,
    /// Matches `self` of a typedef against a Python regular expression.
    Regex(u32),
    /// `member`: the variable of a comprehension, which is forwarded without its own step.
    Var {
        var: Var,
        name: Symbol,
        member: bool,
        cache: SlotCache,
    },
    Attr {
        base: ExprId,
        name: Symbol,
        cache: SlotCache,
    },
    Call(Box<Call>),
    Construct(Box<Construct>),
    IndexLookup(Box<IndexLookup>),
    ShortIndexLookup(Box<ShortIndexLookup>),
    Lookup {
        base: ExprId,
        key: ExprId,
    },
    List(Box<[ExprId]>),
    Dict(Box<[(StrId, ExprId)]>),
    Comprehension(Box<Comprehension>),
    Not(ExprId),
    Binary {
        op: BinaryOp,
        left: ExprId,
        right: ExprId,
    },
    /// `and`, `or`: the right side is emitted only if it is needed.
    Lazy {
        or: bool,
        left: ExprId,
        right: ExprId,
    },
    Conditional {
        condition: ExprId,
        then: ExprId,
        otherwise: ExprId,
    },
    Defined {
        base: Option<ExprId>,
        var: Var,
        name: Symbol,
    },
    Format(Box<Format>),
    FString(Box<Format>),
}

impl ExprKind {
    /// The expressions that a call, constructor or lookup evaluates, in order.
    pub fn parts(&self) -> &[ExprId] {
        match self {
            ExprKind::Call(call) => &call.parts,
            ExprKind::Construct(construct) => &construct.parts,
            ExprKind::IndexLookup(lookup) => &lookup.parts,
            ExprKind::ShortIndexLookup(lookup) => &lookup.parts,
            _ => &[],
        }
    }

    /// True if another unit computes it, so that its reader waits for a result.
    pub fn is_temp(&self) -> bool {
        matches!(
            self,
            ExprKind::Attr { .. }
                | ExprKind::Call(_)
                | ExprKind::IndexLookup(_)
                | ExprKind::ShortIndexLookup(_)
                | ExprKind::Comprehension(_)
                | ExprKind::Lazy { .. }
                | ExprKind::Conditional { .. }
                | ExprKind::Defined { .. }
        )
    }
}

/// Inline cache: entity and slot at which an attribute was last found. Most code sees a single
/// entity.
#[derive(Debug, Default)]
pub struct SlotCache(pub std::cell::Cell<(u32, u32)>);

impl SlotCache {
    pub fn new() -> Self {
        SlotCache(std::cell::Cell::new((u32::MAX, 0)))
    }
}

#[derive(Debug)]
pub struct Format {
    pub text: Box<str>,
    /// Text to replace (or field name) and the placeholder.
    pub parts: Box<[(Box<str>, ExprId)]>,
    /// The text split into literals and parts, if that is possible at compile time.
    pub segments: Option<Box<[Segment]>>,
}

/// A format specification; common ones are parsed in advance.
#[derive(Debug)]
pub enum Spec {
    None,
    /// `04d` and the like: an integer padded with zeroes.
    Zeroes(usize, Box<str>),
    Other(Box<str>),
}

/// A literal and the part that follows it.
#[derive(Debug)]
pub struct Segment {
    pub literal: Box<str>,
    /// Number of the part and its format.
    pub part: Option<(u32, Spec)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    String,
    Int,
    Float,
    Number,
    Bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Callee {
    Plugin(u32),
    Cast(Cast),
}

#[derive(Debug)]
pub struct Call {
    pub name: Symbol,
    pub callee: Callee,
    pub positional: Box<[ExprId]>,
    pub keyword: Box<[(Symbol, ExprId)]>,
    pub spread: Box<[ExprId]>,
    /// All parts in the order of evaluation.
    pub parts: Box<[ExprId]>,
    pub namespace: NamespaceId,
}

#[derive(Debug)]
pub struct Construct {
    pub class: Symbol,
    pub entity: EntityId,
    /// Arguments for attributes that are part of an index, by slot (defaults included).
    pub direct: Box<[(u32, ExprId)]>,
    /// All other arguments and defaults in the order of their assignment; the flag marks a default.
    pub indirect: Box<[(u32, ExprId, bool)]>,
    pub spread: Box<[ExprId]>,
    /// Slots of the arguments that are written in the call, in their order.
    pub written: Box<[u32]>,
    /// The owner's reference, which is awaited a second time if it needs its own step.
    pub owner: Option<ExprId>,
    /// Expressions evaluated before the instance exists, in order.
    pub parts: Box<[ExprId]>,
}

#[derive(Debug)]
pub struct IndexLookup {
    pub class: Symbol,
    pub entity: EntityId,
    pub query: Box<[(Symbol, ExprId)]>,
    pub spread: Box<[ExprId]>,
    /// All evaluated expressions, in order.
    pub parts: Box<[ExprId]>,
}

#[derive(Debug)]
pub struct ShortIndexLookup {
    pub base: ExprId,
    pub relation: Symbol,
    pub query: Box<[(Symbol, ExprId)]>,
    pub spread: Box<[ExprId]>,
    /// All evaluated expressions, in order.
    pub parts: Box<[ExprId]>,
}

#[derive(Debug)]
pub struct Comprehension {
    pub variable: Symbol,
    pub iterable: ExprId,
    /// The value, or `guard ? value : nothing`.
    pub element: ExprId,
    pub guard: Option<ExprId>,
    /// Value for an unknown member: itself, if the guard accepts it.
    pub unknown: ExprId,
    pub value: ExprId,
    /// Name of the variable in the program's table of frames.
    pub names: u32,
}

/// An attribute that a block may assign to: it must not be frozen before the block has run.
#[derive(Clone, Debug)]
pub struct Promise {
    pub base: ExprId,
    pub name: Symbol,
}

#[derive(Debug)]
pub struct Block {
    /// In the order of emission.
    pub stmts: Box<[StmtId]>,
    /// Number of variables in the block's frame; without any there is no frame.
    pub locals: u32,
    /// Their names in the program's table.
    pub names: u32,
}

#[derive(Debug)]
pub struct Stmt {
    pub kind: StmtKind,
    pub loc: Loc,
}

#[derive(Debug)]
pub enum StmtKind {
    Assign { target: Var, name: Symbol, value: ExprId },
    SetAttr { base: ExprId, name: Symbol, append: bool, value: ExprId },
    For { variable: Symbol, iterable: ExprId, body: BlockId, promises: Box<[Promise]> },
    If { condition: ExprId, then: BlockId, otherwise: BlockId, promises: Box<[Promise]> },
    Expr(ExprId),
}

/// An expression between the ends of a relation.
#[derive(Debug)]
pub struct Annotation {
    pub relation: AttributeId,
    pub value: ExprId,
    /// `Relation(A, B)`
    pub statement: Box<str>,
    pub loc: Loc,
}

/// One `implement` statement.
#[derive(Debug)]
pub struct Implement {
    pub entity: EntityId,
    pub implementations: Box<[u32]>,
    pub parents: bool,
    /// `None`: always.
    pub when: Option<ExprId>,
    pub namespace: NamespaceId,
    pub loc: Loc,
}

#[derive(Debug)]
pub struct Implementation {
    pub name: Symbol,
    pub entity: EntityId,
    pub body: BlockId,
    pub namespace: NamespaceId,
    pub loc: Loc,
}

/// A typedef: its base and the constraint on top of it.
#[derive(Debug)]
pub struct Typedef {
    pub name: Symbol,
    pub base: TypeId,
    pub constraint: ExprId,
    pub namespace: NamespaceId,
    pub loc: Loc,
}
