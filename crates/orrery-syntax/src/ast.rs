//! The typed tree that the compiler reads: one file's definitions and statements, sugar removed,
//! escapes decoded, every node with its source location.
//!
//! It is lowered once per file from the lossless tree (`lower`); nothing here keeps trivia.

use orrery_python::Int;

use crate::interner::Symbol;

/// Index of a source file in the compiler's file table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A source location, as messages show it: `file:line` or, where `column` is set, `file:line:col`.
/// `start..end` are byte offsets of the anchoring token or phrase; lines are computed when needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loc {
    pub file: FileId,
    pub start: u32,
    pub end: u32,
    pub column: bool,
}

/// An identifier in the source.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub symbol: Symbol,
    pub loc: Loc,
}

/// A possibly qualified name, `a::b::c`. `symbol` is the whole text with blanks around `::` removed.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub symbol: Symbol,
    pub loc: Loc,
}

/// A parsed file. Definitions keep their source order within their own list; `items` keeps the
/// order over all kinds.
#[derive(Debug, Default)]
pub struct File {
    pub docstring: Option<Box<str>>,
    pub items: Vec<Item>,
}

#[derive(Debug)]
pub enum Item {
    Import(Import),
    Entity(Entity),
    Implementation(Implementation),
    Implement(Implement),
    Relation(Relation),
    Typedef(Typedef),
    Index(Index),
    Stmt(Stmt),
}

/// `import a::b as c`
#[derive(Debug)]
pub struct Import {
    pub path: Path,
    pub alias: Option<Name>,
    pub loc: Loc,
}

#[derive(Debug)]
pub struct Entity {
    pub name: Name,
    pub parents: Vec<Path>,
    pub docstring: Option<Box<str>>,
    pub attributes: Vec<Attribute>,
    pub loc: Loc,
}

/// The type of an attribute, `ns::t[]?`. `dict` is the keyword form.
#[derive(Clone, Copy, Debug)]
pub struct TypeRef {
    /// The element's type name; `dict` for the keyword.
    pub path: Path,
    pub list: bool,
    pub nullable: bool,
}

#[derive(Debug)]
pub struct Attribute {
    pub ty: TypeRef,
    pub name: Name,
    pub default: Default,
    pub loc: Loc,
}

#[derive(Debug)]
pub enum Default {
    /// Nothing written: no default, and an inherited one is removed.
    None,
    /// `= undef`
    Undef,
    /// Must turn out to be a constant; the compiler checks that.
    Value(Expr),
}

#[derive(Debug)]
pub struct Implementation {
    pub name: Name,
    pub entity: Path,
    pub docstring: Option<Box<str>>,
    pub body: Vec<Stmt>,
    pub loc: Loc,
}

#[derive(Debug)]
pub enum ImplementationRef {
    Named(Path),
    Parents(Loc),
}

/// `implement E using a, parents when c`
#[derive(Debug)]
pub struct Implement {
    pub entity: Path,
    pub using: Vec<ImplementationRef>,
    /// `None` is the literal `true`.
    pub when: Option<Expr>,
    pub docstring: Option<Box<str>>,
    pub loc: Loc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arity {
    pub low: u32,
    /// `None`: unbounded.
    pub high: Option<u32>,
}

/// `left.name [arity] -- right.inverse [arity]`: `name` becomes an attribute of `left` with type `right`.
#[derive(Debug)]
pub struct Relation {
    pub left: Path,
    pub name: Name,
    pub arity: Arity,
    pub right: Path,
    pub inverse: Option<(Name, Arity)>,
    pub annotations: Vec<Expr>,
    pub docstring: Option<Box<str>>,
    pub loc: Loc,
}

#[derive(Debug)]
pub struct Typedef {
    pub name: Name,
    pub base: Path,
    /// Either an expression over `self`, or `ExprKind::Regex`.
    pub constraint: Expr,
    pub docstring: Option<Box<str>>,
    pub loc: Loc,
}

#[derive(Debug)]
pub struct Index {
    pub entity: Path,
    pub attributes: Vec<Name>,
    pub loc: Loc,
}

/// Statements of a block stand in *source* order; the compiler reverses where the language does.
#[derive(Debug)]
pub enum Stmt {
    Assign(Assign),
    For(For),
    If(If),
    Expr(Expr),
}

#[derive(Debug)]
pub struct Assign {
    pub target: AssignmentTarget,
    /// `+=`
    pub append: bool,
    pub value: Expr,
    pub loc: Loc,
}

#[derive(Debug)]
pub enum AssignmentTarget {
    /// `x` or (an error later) `ns::x`
    Variable(Path),
    /// `base.attribute`, base being a reference
    Attribute { base: Expr, attribute: Name },
}

#[derive(Debug)]
pub struct For {
    pub variable: Name,
    pub iterable: Expr,
    pub body: Vec<Stmt>,
    pub loc: Loc,
}

/// `elif` is an `If` alone in `otherwise`.
#[derive(Debug)]
pub struct If {
    pub condition: Expr,
    pub then: Vec<Stmt>,
    pub otherwise: Vec<Stmt>,
    pub loc: Loc,
}

#[derive(Debug)]
pub struct Expr {
    pub kind: ExprKind,
    pub loc: Loc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    Equal,
    NotEqual,
    Less,
    Greater,
    LessEqual,
    GreaterEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    In,
    And,
    Or,
}

#[derive(Debug)]
pub enum ExprKind {
    Null,
    Bool(bool),
    Int(Int),
    Float(f64),
    /// Any string form without interpolation, escapes decoded.
    String(Box<str>),
    /// `/…/` after `matching`; the pattern is in Python's dialect, checked already.
    Regex(Box<str>),
    /// A plain or multi-line string with `{{ref}}`: text is replaced globally, in this order.
    Interpolation {
        text: Box<str>,
        parts: Vec<Interpolated>,
    },
    /// `f"…"`: `text` is a Python format string with escapes decoded; `parts` the collected fields.
    FString {
        text: Box<str>,
        parts: Vec<Interpolated>,
    },
    /// `x` or `ns::x`
    Variable(Path),
    /// `base.attribute`, base being `Variable` or `Attribute`
    Attribute {
        base: Box<Expr>,
        attribute: Name,
    },
    /// A plugin call or cast.
    Call {
        function: Path,
        args: Vec<Arg>,
    },
    Construct {
        class: Path,
        args: Vec<Arg>,
    },
    /// `Class[a=b]`
    IndexLookup {
        class: Path,
        args: Vec<Arg>,
    },
    /// `base.relation[a=b]`
    ShortIndexLookup {
        base: Box<Expr>,
        relation: Name,
        args: Vec<Arg>,
    },
    /// `base[key]` on a dict
    Lookup {
        base: Box<Expr>,
        key: Box<Expr>,
    },
    List(Vec<Expr>),
    /// Keys are unique already. The location of a key is the key token's.
    Dict(Vec<(Box<str>, Loc, Expr)>),
    /// One `for` level; several nest with the outermost first, the guard on the innermost.
    Comprehension {
        value: Box<Expr>,
        variable: Name,
        iterable: Box<Expr>,
        guard: Option<Box<Expr>>,
    },
    Not(Box<Expr>),
    Binary {
        op: BinaryOp,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Conditional {
        condition: Box<Expr>,
        then: Box<Expr>,
        otherwise: Box<Expr>,
    },
    /// `name is defined` (base none) or `base.name is defined`
    IsDefined {
        base: Option<Box<Expr>>,
        name: Name,
    },
}

#[derive(Debug)]
pub enum Arg {
    Positional(Expr),
    Keyword(Name, Expr),
    /// `**e`
    Spread(Expr),
}

/// One reference inside a string.
#[derive(Debug)]
pub struct Interpolated {
    /// For `{{ a.b }}`: the whole matched text with braces and blanks.
    /// For f-strings: the field name as `str.format` sees it (blanks included).
    pub text: Box<str>,
    /// `Variable` or `Attribute`.
    pub reference: Expr,
}
