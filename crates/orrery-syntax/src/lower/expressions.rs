//! Expressions.

use super::Lowering;
use crate::ast::{Arg, BinaryOp, Expr, ExprKind, Loc, Name};
use crate::kind::SyntaxKind::{self, *};
use crate::tree::{Element, NodeId};

/// `d[k] is defined` repeats its parts, so the number of copies grows with a power of how deeply
/// such tests nest in each other's keys.
const DEFINED_DEPTH_MAX: u32 = 6;

impl Lowering<'_, '_> {
    pub(super) fn expr(&mut self, node: NodeId) -> Expr {
        match self.tree.kind(node) {
            Literal => self.literal(node),
            VariableExpr => self.variable(node),
            AttributeExpr => self.attribute_access(node),
            CallExpr | ConstructExpr | IndexLookupExpr => self.with_args(node),
            ShortIndexLookupExpr => self.short_index_lookup(node),
            LookupExpr => self.lookup(node),
            ListExpr => {
                let range = self.tree.range(node);
                let mut items = Vec::new();
                for child in self.tree.children(node) {
                    items.push(self.expr(child));
                }
                Expr { kind: ExprKind::List(items), loc: self.line_loc(range) }
            }
            DictExpr => self.dict(node),
            ComprehensionExpr => self.comprehension(node),
            ParenExpr => self.only_child(node),
            NotExpr => {
                let loc = self.line_loc(self.tree.range(node));
                Expr { kind: ExprKind::Not(Box::new(self.only_child(node))), loc }
            }
            BinaryExpr => self.binary(node),
            ConditionalExpr => self.conditional(node),
            IsDefinedExpr => self.is_defined(node),
            _ => self.nothing(node),
        }
    }

    /// Placeholder for a missing expression. Only reached in trees with errors.
    fn nothing(&self, node: NodeId) -> Expr {
        Expr { kind: ExprKind::Null, loc: self.line_loc(self.tree.range(node)) }
    }

    fn only_child(&mut self, node: NodeId) -> Expr {
        match self.tree.children(node).next() {
            Some(child) => self.expr(child),
            None => self.nothing(node),
        }
    }

    fn children_of<const N: usize>(&self, node: NodeId) -> Option<[NodeId; N]> {
        let mut children = self.tree.children(node);
        let mut found = [node; N];
        for slot in &mut found {
            *slot = children.next()?;
        }
        Some(found)
    }

    fn variable(&mut self, node: NodeId) -> Expr {
        match self.child(node, Path) {
            Some(path) => {
                let path = self.path(path);
                Expr { kind: ExprKind::Variable(path), loc: path.loc }
            }
            None => self.nothing(node),
        }
    }

    /// The last direct `.` and name of a node: an access wraps the one before it.
    fn dot_and_name(&mut self, node: NodeId) -> Option<(Loc, Name)> {
        let dot = self.token(node, Dot)?;
        let name = self.token(node, Id)?;
        let name = self.token_name(name);
        let range = self.tree.range(node).start..name.loc.end as usize;
        let loc = self.anchored(self.tree.token_bytes(dot).start, range);
        Some((loc, name))
    }

    fn attribute_access(&mut self, node: NodeId) -> Expr {
        let base = Box::new(self.only_child(node));
        match self.dot_and_name(node) {
            Some((loc, attribute)) => Expr { kind: ExprKind::Attribute { base, attribute }, loc },
            None => *base,
        }
    }

    fn with_args(&mut self, node: NodeId) -> Expr {
        let Some([path, args_node]) = self.children_of(node) else {
            return self.nothing(node);
        };
        if self.tree.kind(path) != Path {
            return self.nothing(node);
        }
        let path = self.path(path);
        let args = self.args(args_node);
        let bracket = self.tree.range(args_node).start;
        match self.tree.kind(node) {
            CallExpr => {
                self.check_call(path, &args, node);
                Expr { kind: ExprKind::Call { function: path, args }, loc: path.loc }
            }
            kind => {
                let loc = self.anchored(bracket, self.tree.range(node));
                if kind == IndexLookupExpr {
                    return Expr { kind: ExprKind::IndexLookup { class: path, args }, loc };
                }
                self.check_constructor(path, &args, loc, node);
                Expr { kind: ExprKind::Construct { class: path, args }, loc }
            }
        }
    }

    fn short_index_lookup(&mut self, node: NodeId) -> Expr {
        let (Some([base, args_node]), Some((_, relation))) =
            (self.children_of(node), self.dot_and_name(node))
        else {
            return self.nothing(node);
        };
        let base = Box::new(self.expr(base));
        let args = self.args(args_node);
        let loc = self.anchored(self.tree.range(args_node).start, self.tree.range(node));
        Expr { kind: ExprKind::ShortIndexLookup { base, relation, args }, loc }
    }

    fn args(&mut self, node: NodeId) -> Vec<Arg> {
        let mut args = Vec::new();
        for arg in self.tree.children(node) {
            let value = self.only_child(arg);
            args.push(match self.tree.kind(arg) {
                KeywordArg => match self.token(arg, Id) {
                    Some(name) => Arg::Keyword(self.token_name(name), value),
                    None => continue,
                },
                SpreadArg => Arg::Spread(value),
                _ => Arg::Positional(value),
            });
        }
        args
    }

    fn lookup(&mut self, node: NodeId) -> Expr {
        let Some([base, key]) = self.children_of(node) else {
            return self.nothing(node);
        };
        let base = Box::new(self.expr(base));
        let key = Box::new(self.expr(key));
        let loc = self.line_loc(base.loc.start as usize..self.tree.range(node).end);
        Expr { kind: ExprKind::Lookup { base, key }, loc }
    }

    fn binary(&mut self, node: NodeId) -> Expr {
        let mut left = None;
        let mut right = None;
        let mut operator = None;
        let mut negated = false;
        for element in self.tree.elements(node) {
            match element {
                Element::Node(child) if left.is_none() => left = Some(child),
                Element::Node(child) => right = Some(child),
                Element::Token(token) => {
                    negated = operator.is_some();
                    operator.get_or_insert(token);
                }
            }
        }
        let (Some(left), Some(right), Some(operator)) = (left, right, operator) else {
            return self.nothing(node);
        };
        let anchor = self.tree.token_bytes(operator).start;
        let loc = self.anchored(anchor, self.tree.range(node));
        let op = if negated { BinaryOp::In } else { binary_op(self.tree.token_kind(operator)) };
        let left = Box::new(self.expr(left));
        let right = Box::new(self.expr(right));
        let membership = Expr { kind: ExprKind::Binary { op, left, right }, loc };
        if negated {
            return Expr { kind: ExprKind::Not(Box::new(membership)), loc };
        }
        membership
    }

    fn conditional(&mut self, node: NodeId) -> Expr {
        let Some([condition, then, otherwise]) = self.children_of(node) else {
            return self.nothing(node);
        };
        let condition = Box::new(self.expr(condition));
        let then = Box::new(self.expr(then));
        let otherwise = Box::new(self.expr(otherwise));
        let loc = self.line_loc(condition.loc.start as usize..self.tree.range(node).end);
        Expr { kind: ExprKind::Conditional { condition, then, otherwise }, loc }
    }

    fn is_defined(&mut self, node: NodeId) -> Expr {
        let Some([subject]) = self.children_of(node) else {
            return self.nothing(node);
        };
        if self.tree.kind(subject) == LookupExpr {
            return self.lookup_is_defined(node, subject);
        }
        let subject = self.expr(subject);
        let (base, name) = match subject.kind {
            ExprKind::Variable(path) => (None, Name { symbol: path.symbol, loc: path.loc }),
            ExprKind::Attribute { base, attribute } => (Some(base), attribute),
            _ => return self.nothing(node),
        };
        let range = subject.loc.start as usize..self.tree.range(node).end;
        Expr { kind: ExprKind::IsDefined { base, name }, loc: self.line_loc(range) }
    }

    /// `d[k] is defined` is `k in d and d[k] != null and d[k] != []`.
    fn lookup_is_defined(&mut self, node: NodeId, lookup: NodeId) -> Expr {
        let (Some([base, key]), Some(is)) = (self.children_of(lookup), self.token(node, IsKw))
        else {
            return self.nothing(node);
        };
        let loc = self.anchored(self.tree.token_bytes(is).start, self.tree.range(node));
        let binary = |op, left: Expr, right: Expr| Expr {
            kind: ExprKind::Binary { op, left: Box::new(left), right: Box::new(right) },
            loc,
        };
        let null = Expr { kind: ExprKind::Null, loc };
        let empty = Expr { kind: ExprKind::List(Vec::new()), loc };
        if self.defined_depth >= DEFINED_DEPTH_MAX {
            let message = "Syntax error: this is nested too deeply".to_owned();
            self.push_error("ParserException", message, loc, self.after_expression(node));
            return self.nothing(node);
        }
        self.defined_depth += 1;
        let present = binary(BinaryOp::In, self.expr(key), self.expr(base));
        // Errors of the parts are reported already, and must not be repeated three times.
        let reported = (self.errors.len(), self.warnings.len());
        let not_null = binary(BinaryOp::NotEqual, self.expr(lookup), null);
        let not_empty = binary(BinaryOp::NotEqual, self.expr(lookup), empty);
        self.errors.truncate(reported.0);
        self.warnings.truncate(reported.1);
        self.defined_depth -= 1;
        binary(BinaryOp::And, binary(BinaryOp::And, present, not_null), not_empty)
    }

    fn dict(&mut self, node: NodeId) -> Expr {
        let range = self.tree.range(node);
        let mut entries: Vec<(Box<str>, Loc, Expr)> = Vec::new();
        for entry in self.tree.children(node) {
            let Some(key) = self.tokens(entry).next() else {
                continue;
            };
            let loc = self.column_loc(self.tree.token_bytes(key));
            let text = self.string_value(key).into();
            let value = self.only_child(entry);
            entries.push((text, loc, value));
        }
        self.check_duplicate_keys(node, &mut entries);
        Expr { kind: ExprKind::Dict(entries), loc: self.line_loc(range) }
    }

    /// Several `for`s nest, the first outermost; the guards are one condition on the innermost.
    fn comprehension(&mut self, node: NodeId) -> Expr {
        let loc = self.line_loc(self.tree.range(node));
        let mut children = self.tree.children(node);
        let Some(value) = children.next() else {
            return self.nothing(node);
        };
        let mut expr = self.expr(value);
        let mut levels = Vec::new();
        let mut guard: Option<Expr> = None;
        for part in children {
            let operand = self.only_child(part);
            match self.tree.kind(part) {
                ComprehensionFor => {
                    if let Some(name) = self.token(part, Id) {
                        levels.push((self.token_name(name), operand));
                    }
                }
                _ => {
                    guard = Some(match guard {
                        Some(before) => Expr {
                            kind: ExprKind::Binary {
                                op: BinaryOp::And,
                                left: Box::new(before),
                                right: Box::new(operand),
                            },
                            loc,
                        },
                        None => operand,
                    });
                }
            }
        }
        while let Some((variable, iterable)) = levels.pop() {
            expr = Expr {
                kind: ExprKind::Comprehension {
                    value: Box::new(expr),
                    variable,
                    iterable: Box::new(iterable),
                    guard: guard.take().map(Box::new),
                },
                loc,
            };
        }
        expr
    }
}

fn binary_op(token: SyntaxKind) -> BinaryOp {
    match token {
        EqualEqual => BinaryOp::Equal,
        NotEqual => BinaryOp::NotEqual,
        Less => BinaryOp::Less,
        Greater => BinaryOp::Greater,
        LessEqual => BinaryOp::LessEqual,
        GreaterEqual => BinaryOp::GreaterEqual,
        Plus => BinaryOp::Add,
        Minus => BinaryOp::Subtract,
        Star => BinaryOp::Multiply,
        Slash => BinaryOp::Divide,
        Percent => BinaryOp::Modulo,
        StarStar => BinaryOp::Power,
        AndKw => BinaryOp::And,
        OrKw => BinaryOp::Or,
        _ => BinaryOp::In,
    }
}
