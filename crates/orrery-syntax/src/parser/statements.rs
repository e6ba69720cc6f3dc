//! Statements and blocks.

use super::{Expected, Header, Marker, NESTING_MAX, Parsed, Parser};
use crate::kind::SyntaxKind::*;

impl Parser<'_> {
    /// A statement; at file level a class followed by a dot is a relation.
    pub(super) fn statement(&mut self, file_level: bool) -> Parsed {
        match self.current {
            ForKw => self.nested(Self::for_statement),
            IfKw => self.nested(Self::if_statement),
            Id | ClassId => self.named_statement(file_level),
            _ => {
                let marker = self.start();
                self.expression()?;
                self.finish(marker, ExprStmt);
                Ok(())
            }
        }
    }

    /// An assignment, a relation, or an expression that starts with a name.
    fn named_statement(&mut self, file_level: bool) -> Parsed {
        let marker = self.start();
        let is_class = self.path()?;
        if is_class && file_level && self.at(Dot) {
            return self.relation(marker);
        }
        let operand = self.named_operand(marker, is_class)?;
        if operand.assignable && matches!(self.current, Equal | PlusEqual) {
            return self.assignment(marker);
        }
        let height = operand.height;
        self.operators(marker, height, 0)?;
        self.finish(marker, ExprStmt);
        Ok(())
    }

    fn assignment(&mut self, marker: Marker) -> Parsed {
        let append = self.at(PlusEqual);
        let target = self.nodes.last().copied();
        self.bump();
        self.expression()?;
        if let (true, Some(target)) = (append, target)
            && target.kind == VariableExpr
        {
            let range = (self.token_bytes(target.first).0, self.token_bytes(target.end - 1).1);
            let name = &self.text[range.0 as usize..range.1 as usize];
            let message = format!("Syntax error: Can not perform += on variable {name}");
            self.error_at(message, range);
        }
        self.finish(marker, Assign);
        Ok(())
    }

    /// Parses statements up to the end of the block. Recovers from errors inside.
    pub(super) fn block(&mut self, of: Marker) {
        let marker = self.start();
        while !matches!(self.current, EndKw | ElifKw | ElseKw | EndOfFile)
            && !self.at_next_definition(of)
        {
            let statement = self.start();
            self.statement = statement.first;
            if self.statement(false).is_err() {
                self.recover(statement);
                if self.at_definition() {
                    break;
                }
            }
        }
        self.finish(marker, Block);
    }

    /// The `end` of a block. A definition that begins instead has been reported already.
    pub(super) fn close_block(&mut self) -> Parsed {
        if self.at_definition() {
            return Ok(());
        }
        if self.eat_end() { Ok(()) } else { Err(self.unexpected(Expected::End)) }
    }

    fn for_statement(&mut self) -> Parsed {
        let marker = self.start();
        self.bump();
        let header = self.header(marker, |parser| {
            parser.expect(Id)?;
            parser.expect(InKw)?;
            parser.expression().map(|_| ())
        })?;
        self.in_block(marker, |parser| {
            parser.block(marker);
            parser.close_block()
        })?;
        self.finish(marker, header.node(For));
        Ok(())
    }

    fn if_statement(&mut self) -> Parsed {
        let marker = self.start();
        let mut header = Header::Complete;
        self.in_block(marker, |parser| {
            header = parser.branches(marker)?;
            parser.close_block()
        })?;
        self.finish(marker, header.node(If));
        Ok(())
    }

    /// The branches of an `if`, up to its `end`.
    fn branches(&mut self, marker: Marker) -> Parsed<Header> {
        let mut header = self.condition(marker)?;
        let mut branches = 0;
        while self.at(ElifKw) {
            // Each `elif` is an `if` inside the one before, as far as depth goes.
            branches += 1;
            if self.depth + branches > NESTING_MAX {
                return Err(self.nested_too_deeply());
            }
            let elif = self.start();
            let elif_header = self.condition(elif)?;
            self.finish(elif, elif_header.node(Elif));
            header = header.and(elif_header);
        }
        if self.at(ElseKw) {
            let otherwise = self.start();
            self.bump();
            let else_header = self.header(otherwise, |_| Ok(()))?;
            self.block(otherwise);
            self.finish(otherwise, else_header.node(Else));
            header = header.and(else_header);
        }
        Ok(header)
    }

    /// `if` or `elif`, a condition and its block.
    fn condition(&mut self, marker: Marker) -> Parsed<Header> {
        self.bump();
        let header = self.header(marker, |parser| parser.expression().map(|_| ()))?;
        self.block(marker);
        Ok(header)
    }
}
