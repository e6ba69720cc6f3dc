//! Expressions as messages show them: `f(1,k='v')`, `(a + b)`, `Construct(E)`, `List()`.

use std::fmt::Write;

use orrery_python::{repr_float, repr_str};

use crate::ast::{Arg, BinaryOp, Expr, ExprKind, Path};
use crate::interner::Interner;

/// An expression as messages show it.
pub fn render_expr(expr: &Expr, interner: &Interner) -> String {
    let mut renderer = Renderer { out: String::new(), interner };
    renderer.expr(expr);
    renderer.out
}

/// A call as messages show it.
pub(crate) fn call<'a>(
    function: Path,
    args: impl Iterator<Item = &'a Arg>,
    interner: &Interner,
) -> String {
    let mut renderer = Renderer { out: String::new(), interner };
    renderer.call(function, args);
    renderer.out
}

struct Renderer<'i> {
    out: String,
    interner: &'i Interner,
}

impl Renderer<'_> {
    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn name(&mut self, symbol: crate::Symbol) {
        self.out.push_str(self.interner.text(symbol));
    }

    fn expr(&mut self, expr: &Expr) {
        if constant(expr) {
            return self.constant(expr, true);
        }
        match &expr.kind {
            ExprKind::Regex(pattern) => {
                self.push("/");
                self.push(pattern);
                self.push("/");
            }
            ExprKind::Interpolation { text, .. } => {
                self.push("Format(");
                self.push(&repr_str(text));
                self.push(")");
            }
            ExprKind::FString { text, .. } => self.push(&repr_str(text)),
            ExprKind::Variable(path) => self.name(path.symbol),
            ExprKind::Attribute { base, attribute } => {
                self.expr(base);
                self.push(".");
                self.name(attribute.symbol);
            }
            ExprKind::Call { function, args } => self.call(*function, args.iter()),
            ExprKind::Construct { class, .. } => {
                self.push("Construct(");
                self.name(class.symbol);
                self.push(")");
            }
            ExprKind::IndexLookup { class, args } => {
                self.name(class.symbol);
                self.index_args(args);
            }
            ExprKind::ShortIndexLookup { base, relation, args } => {
                self.expr(base);
                self.push(".");
                self.name(relation.symbol);
                self.index_args(args);
            }
            ExprKind::Lookup { base, key } => {
                self.expr(base);
                self.push("[");
                self.expr(key);
                self.push("]");
            }
            ExprKind::Dict(_) => self.push("Dict()"),
            ExprKind::Comprehension { value, variable, iterable, guard } => {
                self.push("[");
                self.expr(value);
                self.push(" for ");
                self.name(variable.symbol);
                self.push(" in ");
                self.expr(iterable);
                if let Some(guard) = guard {
                    self.push(" if ");
                    self.expr(guard);
                }
                self.push("]");
            }
            ExprKind::Not(inner) => {
                self.push("Not(");
                self.expr(inner);
                self.push(")");
            }
            ExprKind::Binary { op, left, right } => {
                self.push("(");
                self.expr(left);
                self.push(operator(*op));
                self.expr(right);
                self.push(")");
            }
            ExprKind::Conditional { condition, then, otherwise } => {
                self.expr(condition);
                self.push(" ? ");
                self.expr(then);
                self.push(" : ");
                self.expr(otherwise);
            }
            ExprKind::IsDefined { base, name } => {
                if let Some(base) = base {
                    self.expr(base);
                    self.push(".");
                }
                self.name(name.symbol);
                self.push(" is defined");
            }
            _ => self.push("List()"),
        }
    }

    /// Positional arguments first, then those with keywords, then `**` ones.
    fn call<'a>(&mut self, function: Path, args: impl Iterator<Item = &'a Arg>) {
        let mut args: Vec<&Arg> = args.collect();
        args.sort_by_key(|arg| match arg {
            Arg::Positional(_) => 0,
            Arg::Keyword(..) => 1,
            Arg::Spread(_) => 2,
        });
        self.name(function.symbol);
        self.push("(");
        for (index, arg) in args.into_iter().enumerate() {
            if index > 0 {
                self.push(",");
            }
            match arg {
                Arg::Positional(value) => self.expr(value),
                Arg::Keyword(name, value) => {
                    self.name(name.symbol);
                    self.push("=");
                    self.expr(value);
                }
                Arg::Spread(value) => {
                    self.push("**");
                    self.expr(value);
                }
            }
        }
        self.push(")");
    }

    /// `[[('n', 'x')]]`
    fn index_args(&mut self, args: &[Arg]) {
        self.push("[[");
        let mut first = true;
        for arg in args {
            if let Arg::Keyword(name, value) = arg {
                self.push(if first { "('" } else { ", ('" });
                first = false;
                self.name(name.symbol);
                self.push("', ");
                self.expr(value);
                self.push(")");
            }
        }
        self.push("]]");
    }

    /// A constant as Python's `repr` shows it; alone, a boolean is shown in lower case.
    fn constant(&mut self, expr: &Expr, alone: bool) {
        match &expr.kind {
            ExprKind::Bool(value) => self.push(match (*value, alone) {
                (true, true) => "true",
                (false, true) => "false",
                (true, false) => "True",
                (false, false) => "False",
            }),
            ExprKind::Int(value) => {
                let _ = write!(self.out, "{value}");
            }
            ExprKind::Float(value) => self.push(&repr_float(*value)),
            ExprKind::String(value) => self.push(&repr_str(value)),
            ExprKind::List(items) => {
                self.push("[");
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.push(", ");
                    }
                    self.constant(item, false);
                }
                self.push("]");
            }
            ExprKind::Dict(entries) => {
                self.push("{");
                for (index, (key, _, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        self.push(", ");
                    }
                    self.push(&repr_str(key));
                    self.push(": ");
                    self.constant(value, false);
                }
                self.push("}");
            }
            _ => self.push("null"),
        }
    }
}

/// Returns true if the value is known without evaluation: literals, and lists and dicts of such.
fn constant(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Null
        | ExprKind::Bool(_)
        | ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::String(_) => true,
        ExprKind::List(items) => items.iter().all(constant),
        ExprKind::Dict(entries) => entries.iter().all(|(_, _, value)| constant(value)),
        _ => false,
    }
}

fn operator(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Equal => " == ",
        BinaryOp::NotEqual => " != ",
        BinaryOp::Less => " < ",
        BinaryOp::Greater => " > ",
        BinaryOp::LessEqual => " <= ",
        BinaryOp::GreaterEqual => " >= ",
        BinaryOp::Add => " + ",
        BinaryOp::Subtract => " - ",
        BinaryOp::Multiply => " * ",
        BinaryOp::Divide => " / ",
        BinaryOp::Modulo => " % ",
        BinaryOp::Power => " ** ",
        BinaryOp::In => " in ",
        BinaryOp::And => " and ",
        BinaryOp::Or => " or ",
    }
}
