//! Values and statements as printed in messages of the reference compiler.

use orrery_syntax::Symbol;
use orrery_syntax::ast::BinaryOp;

use crate::ir::{Call, Construct, ExprId, ExprKind, StmtId, StmtKind};
use crate::program::Program;
use crate::value::{Heap, InstanceId, Value};

/// Names instances; without it, instances print by number only.
pub trait Instances {
    /// `m::E`
    fn entity_name(&self, instance: InstanceId) -> String;
    /// `m::E (instantiated at ./main.cf:3)`
    fn description(&self, instance: InstanceId) -> String;
}

/// For text that holds no instances.
pub struct NoInstances;

impl Instances for NoInstances {
    fn entity_name(&self, instance: InstanceId) -> String {
        format!("instance {}", instance.0)
    }

    fn description(&self, instance: InstanceId) -> String {
        self.entity_name(instance)
    }
}

pub struct Renderer<'a> {
    pub program: &'a Program,
    pub heap: &'a Heap,
    pub instances: &'a dyn Instances,
}

/// A stable stand-in for a memory address.
pub fn address(number: u32) -> String {
    format!("7f{:010x}", u64::from(number) * 16)
}

impl Renderer<'_> {
    pub fn repr(&self, value: Value) -> String {
        let mut out = String::new();
        self.write_repr(value, &mut out);
        out
    }

    fn write_repr(&self, value: Value, out: &mut String) {
        if self.heap.is_too_long(out) {
            return;
        }
        match value {
            Value::Null => out.push_str("null"),
            Value::Bool(true) => out.push_str("True"),
            Value::Bool(false) => out.push_str("False"),
            Value::Int(i) => out.push_str(&i.to_string()),
            Value::Big(id) => out.push_str(&self.heap.big(id).to_string()),
            Value::Float(f) => out.push_str(&orrery_python::repr_float(f)),
            Value::Str(id) => out.push_str(&orrery_python::repr_str(self.heap.text(id))),
            Value::List(id) => {
                out.push('[');
                for (at, &item) in self.heap.items(id).iter().enumerate() {
                    if at > 0 {
                        out.push_str(", ");
                    }
                    self.write_repr(item, out);
                }
                out.push(']');
            }
            Value::Dict(id) => {
                out.push('{');
                for (at, (&key, &item)) in self.heap.entries(id).iter().enumerate() {
                    if at > 0 {
                        out.push_str(", ");
                    }
                    out.push_str(&orrery_python::repr_str(self.heap.text(key)));
                    out.push_str(": ");
                    self.write_repr(item, out);
                }
                out.push('}');
            }
            Value::Instance(id) => {
                out.push_str(&self.instances.entity_name(id));
                out.push(' ');
                out.push_str(&address(id.0));
            }
            Value::Unknown(id) => {
                out.push_str("<inmanta.execute.util.Unknown object at 0x");
                out.push_str(&address(id.0));
                out.push('>');
            }
            Value::Other(id) => out.push_str(&self.heap.get_other(id).repr),
        }
    }

    /// Python's `str`.
    pub fn str(&self, value: Value) -> String {
        match value {
            Value::Str(id) => self.heap.text(id).to_owned(),
            Value::Instance(id) => self.instances.description(id),
            other => self.repr(other),
        }
    }

    fn text(&self, symbol: Symbol) -> &str {
        self.program.text(symbol)
    }

    pub fn stmt(&self, id: StmtId) -> String {
        match &self.program.stmt(id).kind {
            StmtKind::Assign { name, value, .. } => {
                format!("{} = {}", self.text(*name), self.expr(*value))
            }
            StmtKind::SetAttr { base, name, value, .. } => {
                format!("{}.{} = {}", self.expr(*base), self.text(*name), self.expr(*value))
            }
            StmtKind::For { variable, .. } => format!("For({})", self.text(*variable)),
            StmtKind::If { .. } => "If".into(),
            StmtKind::Expr(expr) => self.expr(*expr),
        }
    }

    pub fn expr(&self, id: ExprId) -> String {
        match &self.program.expr(id).kind {
            ExprKind::Const(Value::Bool(true)) => "true".into(),
            ExprKind::Const(Value::Bool(false)) => "false".into(),
            ExprKind::Const(value) => self.repr(*value),
            ExprKind::Nothing => format!("<object object at 0x{}>", address(0)),
            ExprKind::Regex(at) => format!("/{}/", self.program.regexes[*at as usize].0),
            ExprKind::Var { name, .. } => self.text(*name).into(),
            ExprKind::Attr { base, name, .. } => {
                format!("{}.{}", self.expr(*base), self.text(*name))
            }
            ExprKind::Call(call) => self.call_with(call, Self::expr),
            ExprKind::Construct(construct) => self.construct(construct),
            ExprKind::IndexLookup(lookup) => {
                format!(
                    "{}[{}]",
                    self.text(lookup.class),
                    self.query(&lookup.query, &lookup.spread)
                )
            }
            ExprKind::ShortIndexLookup(lookup) => format!(
                "{}.{}[{}]",
                self.expr(lookup.base),
                self.text(lookup.relation),
                self.query(&lookup.query, &lookup.spread)
            ),
            ExprKind::Lookup { base, key } => format!("{}[{}]", self.expr(*base), self.expr(*key)),
            ExprKind::List(_) => "List()".into(),
            ExprKind::Dict(_) => "Dict()".into(),
            ExprKind::Comprehension(comprehension) => {
                let mut out = format!(
                    "[{} for {} in {}",
                    self.pretty(comprehension.value),
                    self.text(comprehension.variable),
                    self.pretty(comprehension.iterable)
                );
                if let Some(guard) = comprehension.guard {
                    out.push_str(&format!(" if {}", self.pretty(guard)));
                }
                out.push(']');
                out
            }
            ExprKind::Not(inner) => format!("Not({})", self.expr(*inner)),
            ExprKind::Binary { op, left, right } => {
                format!("({} {} {})", self.pretty(*left), operator(*op), self.pretty(*right))
            }
            ExprKind::Lazy { or, left, right, .. } => {
                let op = if *or { "or" } else { "and" };
                format!("({} {op} {})", self.pretty(*left), self.pretty(*right))
            }
            ExprKind::Conditional { condition, then, otherwise, .. } => format!(
                "{} ? {} : {}",
                self.expr(*condition),
                self.expr(*then),
                self.expr(*otherwise)
            ),
            ExprKind::Defined { .. } => format!(
                "<inmanta.ast.constraint.expression.IsDefined object at 0x{}>",
                address(id.0)
            ),
            ExprKind::Format(format) => {
                format!("Format({})", orrery_python::repr_str(&format.text))
            }
            ExprKind::FString(format) => orrery_python::repr_str(&format.text),
        }
    }

    /// The form that stands inside operators.
    fn pretty(&self, id: ExprId) -> String {
        match &self.program.expr(id).kind {
            ExprKind::Not(inner) => format!("(not {})", self.pretty(*inner)),
            ExprKind::Call(call) => self.call_with(call, Self::pretty),
            ExprKind::Conditional { condition, then, otherwise, .. } => format!(
                "{} ? {} : {}",
                self.pretty(*condition),
                self.pretty(*then),
                self.pretty(*otherwise)
            ),
            ExprKind::List(items) => {
                let items: Vec<String> = items.iter().map(|&item| self.pretty(item)).collect();
                format!("[{}]", items.join(","))
            }
            ExprKind::Construct(construct) => {
                let mut parts = Vec::new();
                for &slot in &construct.written {
                    let direct = construct.direct.iter().find(|(other, _)| *other == slot);
                    let indirect = construct.indirect.iter().find(|(other, ..)| *other == slot);
                    let value = direct.map(|(_, value)| *value);
                    if let Some(value) = value.or(indirect.map(|(_, value, _)| *value)) {
                        parts.push(self.argument(construct, slot, value));
                    }
                }
                parts.extend(construct.spread.iter().map(|&e| format!("****{}", self.expr(e))));
                format!("{}({})", self.text(construct.class), parts.join(","))
            }
            ExprKind::Defined { base, name, .. } => match base {
                Some(base) => format!("{}.{} is defined", self.pretty(*base), self.text(*name)),
                None => format!("{} is defined", self.text(*name)),
            },
            _ => self.expr(id),
        }
    }

    fn argument(&self, construct: &Construct, slot: u32, value: ExprId) -> String {
        let name = self.program.slot(construct.entity, slot).name;
        format!("{}={}", self.text(name), self.pretty(value))
    }

    /// A call with its arguments in the given form.
    fn call_with(&self, call: &Call, shown: fn(&Self, ExprId) -> String) -> String {
        let mut parts: Vec<String> = call.positional.iter().map(|&arg| shown(self, arg)).collect();
        for (name, arg) in &call.keyword {
            parts.push(format!("{}={}", self.text(*name), shown(self, *arg)));
        }
        parts.extend(call.spread.iter().map(|&arg| format!("**{}", self.expr(arg))));
        format!("{}({})", self.text(call.name), parts.join(","))
    }

    fn construct(&self, construct: &Construct) -> String {
        format!("Construct({})", self.text(construct.class))
    }

    fn query(&self, query: &[(Symbol, ExprId)], spread: &[ExprId]) -> String {
        let parts: Vec<String> = query
            .iter()
            .map(|(name, value)| format!("('{}', {})", self.text(*name), self.expr(*value)))
            .collect();
        let spread: String = spread.iter().map(|&e| format!(",**{}", self.expr(e))).collect();
        format!("[{}]{spread}", parts.join(", "))
    }
}

pub fn operator(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Equal => "==",
        BinaryOp::NotEqual => "!=",
        BinaryOp::Less => "<",
        BinaryOp::Greater => ">",
        BinaryOp::LessEqual => "<=",
        BinaryOp::GreaterEqual => ">=",
        BinaryOp::Add => "+",
        BinaryOp::Subtract => "-",
        BinaryOp::Multiply => "*",
        BinaryOp::Divide => "/",
        BinaryOp::Modulo => "%",
        BinaryOp::Power => "**",
        BinaryOp::In => "in",
        BinaryOp::And => "and",
        BinaryOp::Or => "or",
    }
}
