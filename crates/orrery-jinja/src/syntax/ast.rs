//! Syntax tree of a template.

use std::cell::OnceCell;
use std::rc::Rc;

use orrery_python::Int;

use super::free_names::FreeNames;
use crate::source::TemplateSource;

/// A parsed template.
#[derive(Debug)]
pub struct Template {
    pub(crate) source: Rc<TemplateSource>,
    pub(crate) body: Vec<Stmt>,
    /// Blocks by name, at any nesting level.
    pub(crate) blocks: Vec<Rc<Block>>,
    /// Free names, looked up when the template begins; likewise in every frame below.
    pub(crate) loads: OnceCell<FreeNames>,
}

#[derive(Debug)]
pub(crate) struct Block {
    /// The template that contains it.
    pub(crate) source: Rc<TemplateSource>,
    pub(crate) name: Rc<str>,
    pub(crate) scoped: bool,
    pub(crate) required: bool,
    pub(crate) body: Vec<Stmt>,
    pub(crate) loads: OnceCell<FreeNames>,
}

#[derive(Debug)]
pub(crate) enum Stmt {
    Data(Rc<str>),
    Output(Vec<Expr>),
    For(Rc<For>),
    If { branches: Vec<(Expr, Vec<Stmt>)>, otherwise: Vec<Stmt> },
    Macro(Rc<str>, Rc<MacroDef>),
    Call { call: Expr, body: Rc<MacroDef> },
    Filter { filter: Expr, body: Vec<Stmt>, loads: OnceCell<FreeNames> },
    Set { target: Target, value: Expr },
    SetBlock { target: Target, filter: Option<Expr>, body: Vec<Stmt>, loads: OnceCell<FreeNames> },
    With { values: Vec<(Target, Expr)>, body: Vec<Stmt>, loads: OnceCell<FreeNames> },
    Block(Rc<Block>),
    Extends { template: Expr },
    Include { template: Expr, ignore_missing: bool, with_context: bool },
    Import { template: Expr, target: Rc<str>, with_context: bool },
    FromImport { template: Expr, names: Vec<(Rc<str>, Rc<str>)>, with_context: bool, line: usize },
    Autoescape { enabled: Expr, body: Vec<Stmt>, loads: OnceCell<FreeNames> },
}

#[derive(Debug)]
pub(crate) struct For {
    pub(crate) target: Target,
    pub(crate) iterable: Expr,
    pub(crate) test: Option<Expr>,
    pub(crate) recursive: bool,
    pub(crate) body: Vec<Stmt>,
    pub(crate) otherwise: Vec<Stmt>,
    pub(crate) loads: OnceCell<FreeNames>,
    pub(crate) test_loads: OnceCell<FreeNames>,
    pub(crate) otherwise_loads: OnceCell<FreeNames>,
}

#[derive(Debug)]
pub(crate) struct MacroDef {
    pub(crate) params: Vec<Rc<str>>,
    /// Defaults of the last parameters.
    pub(crate) defaults: Vec<Expr>,
    pub(crate) body: Vec<Stmt>,
    /// Special names that the body mentions.
    pub(crate) uses_varargs: bool,
    pub(crate) uses_kwargs: bool,
    pub(crate) uses_caller: bool,
    pub(crate) loads: OnceCell<FreeNames>,
}

#[derive(Debug)]
pub(crate) enum Target {
    Name(Rc<str>),
    Tuple(Vec<Target>),
    /// `namespace.attribute`.
    Attribute(Rc<str>, Rc<str>),
}

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
    /// Height of the expression tree, itself included.
    pub(crate) height: usize,
}

impl Expr {
    pub(crate) fn new(kind: Kind, line: usize) -> Expr {
        let height = 1 + kind.height();
        Expr { kind, line, height }
    }
}

impl Kind {
    /// Height of the highest subexpression.
    fn height(&self) -> usize {
        let highest = |exprs: &[Expr]| exprs.iter().map(|expr| expr.height).max().unwrap_or(0);
        match self {
            Kind::None
            | Kind::Bool(_)
            | Kind::Int(_)
            | Kind::Float(_)
            | Kind::Str(_)
            | Kind::Name(_) => 0,
            Kind::Tuple(parts) | Kind::List(parts) | Kind::Concat(parts) => highest(parts),
            Kind::Dict(entries) => {
                let heights = entries.iter().map(|(key, value)| key.height.max(value.height));
                heights.max().unwrap_or(0)
            }
            Kind::Attribute(value, _)
            | Kind::Not(value)
            | Kind::Negative(value)
            | Kind::Positive(value) => value.height,
            Kind::Item(left, right)
            | Kind::Binary(_, left, right)
            | Kind::And(left, right)
            | Kind::Or(left, right) => left.height.max(right.height),
            Kind::Slice(parts) => parts.iter().flatten().map(|part| part.height).max().unwrap_or(0),
            Kind::Call(function, args) => function.height.max(args.height()),
            Kind::Filter { value, args, .. } => {
                args.height().max(value.as_ref().map_or(0, |value| value.height))
            }
            Kind::Test { value, args, .. } => value.height.max(args.height()),
            Kind::Compare(first, rest) => {
                let rest = rest.iter().map(|(_, operand)| operand.height).max().unwrap_or(0);
                first.height.max(rest)
            }
            Kind::Conditional { test, then, otherwise } => {
                let otherwise = otherwise.as_ref().map_or(0, |otherwise| otherwise.height);
                test.height.max(then.height).max(otherwise)
            }
        }
    }
}

impl Args {
    fn height(&self) -> usize {
        let named = self.named.iter().map(|(_, value)| value);
        let rest = self.rest.as_deref().into_iter().chain(self.rest_named.as_deref());
        let all = self.positional.iter().chain(named).chain(rest);
        all.map(|value| value.height).max().unwrap_or(0)
    }
}

#[derive(Debug)]
pub(crate) enum Kind {
    None,
    Bool(bool),
    Int(Int),
    Float(f64),
    Str(Rc<str>),
    Name(Rc<str>),
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Attribute(Box<Expr>, Rc<str>),
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Args),
    /// The filtered value is absent in filter blocks.
    Filter {
        value: Option<Box<Expr>>,
        name: Rc<str>,
        args: Args,
    },
    Test {
        value: Box<Expr>,
        name: Rc<str>,
        args: Args,
    },
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Positive(Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    Conditional {
        test: Box<Expr>,
        then: Box<Expr>,
        otherwise: Option<Box<Expr>>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(Rc<str>, Expr)>,
    pub(crate) rest: Option<Box<Expr>>,
    pub(crate) rest_named: Option<Box<Expr>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

impl Binary {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::Div => "/",
            Binary::FloorDiv => "//",
            Binary::Mod => "%",
            Binary::Pow => "** or pow()",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

impl Template {
    /// The text that the template was parsed from.
    pub fn source(&self) -> &TemplateSource {
        &self.source
    }
}
