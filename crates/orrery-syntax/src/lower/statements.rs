//! Statements.

use super::Lowering;
use crate::ast::{Assign, AssignmentTarget, ExprKind, For, If, Stmt};
use crate::kind::SyntaxKind;
use crate::tree::{NodeId, TokenId};

impl Lowering<'_, '_> {
    pub(super) fn block(&mut self, node: NodeId) -> Vec<Stmt> {
        let mut statements = Vec::new();
        for child in self.tree.children(node) {
            statements.extend(self.statement(child));
        }
        statements
    }

    pub(super) fn statement(&mut self, node: NodeId) -> Option<Stmt> {
        Some(match self.tree.kind(node) {
            SyntaxKind::Assign => Stmt::Assign(self.assign(node)?),
            SyntaxKind::For => Stmt::For(self.for_loop(node)?),
            SyntaxKind::If => Stmt::If(self.conditional_statement(node)?),
            SyntaxKind::ExprStmt => {
                let expr = self.tree.children(node).next()?;
                Stmt::Expr(self.expr(expr))
            }
            _ => {
                self.salvage(node);
                return None;
            }
        })
    }

    fn assign(&mut self, node: NodeId) -> Option<Assign> {
        let mut children = self.tree.children(node);
        let (target, value) = (children.next()?, children.next()?);
        let operator = self.tokens(node).next()?;
        let append = self.tree.token_kind(operator) == SyntaxKind::PlusEqual;
        let anchor = self.tree.token_bytes(operator).start;
        let loc = self.anchored(anchor, self.tree.range(node));
        let target = match self.expr(target).kind {
            ExprKind::Variable(path) => {
                let name = crate::ast::Name { symbol: path.symbol, loc: path.loc };
                // `+=` on a variable is an error whatever its name.
                if !append {
                    self.check_hyphen(name, node);
                }
                AssignmentTarget::Variable(path)
            }
            ExprKind::Attribute { base, attribute } => {
                AssignmentTarget::Attribute { base: *base, attribute }
            }
            _ => return None,
        };
        let value = self.expr(value);
        Some(Assign { target, append, value, loc })
    }

    fn for_loop(&mut self, node: NodeId) -> Option<For> {
        let mut children = self.tree.children(node);
        let (iterable, body) = (children.next()?, children.next()?);
        let name = self.token(node, SyntaxKind::Id)?;
        let header = self.tree.range(node).start..self.tree.range(iterable).end;
        Some(For {
            variable: self.token_name(name),
            iterable: self.expr(iterable),
            body: self.block(body),
            loc: self.line_loc(header),
        })
    }

    /// `if`, with each `elif` as an `if` alone in the branch before.
    fn conditional_statement(&mut self, node: NodeId) -> Option<If> {
        let keyword = self.tree.range(node).start;
        let mut children = self.tree.children(node);
        let (condition, then) = (children.next()?, children.next()?);
        let header = keyword..self.tree.range(condition).end;
        let mut levels = vec![If {
            condition: self.expr(condition),
            then: self.block(then),
            otherwise: Vec::new(),
            loc: self.line_loc(header),
        }];
        let mut otherwise = Vec::new();
        for branch in children {
            match self.tree.kind(branch) {
                SyntaxKind::Elif => levels.extend(self.elif(branch)),
                SyntaxKind::Else => {
                    let block = self.tree.children(branch).next();
                    otherwise = block.map(|block| self.block(block)).unwrap_or_default();
                }
                _ => {}
            }
        }
        while let Some(mut level) = levels.pop() {
            level.otherwise = otherwise;
            if levels.is_empty() {
                return Some(level);
            }
            otherwise = vec![Stmt::If(level)];
        }
        None
    }

    fn elif(&mut self, node: NodeId) -> Option<If> {
        let mut children = self.tree.children(node);
        let (condition, then) = (children.next()?, children.next()?);
        let colon: TokenId = self.token(node, SyntaxKind::Colon)?;
        let colon = self.tree.token_bytes(colon);
        let loc = self.anchored(colon.start, self.tree.range(node).start..colon.end);
        Some(If {
            condition: self.expr(condition),
            then: self.block(then),
            otherwise: Vec::new(),
            loc,
        })
    }
}
