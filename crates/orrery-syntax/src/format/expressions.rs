//! Expressions.

use super::{Formatter, Op, Separator};
use crate::kind::SyntaxKind::{self, *};
use crate::tree::{Element, NodeId, TokenId};

impl Formatter<'_> {
    pub(super) fn expression(&mut self, node: NodeId) {
        match self.kind(node) {
            Args | ListExpr | DictExpr | ComprehensionExpr => self.bracketed(node),
            ParenExpr => self.parenthesized(node),
            BinaryExpr => self.binary(node),
            ConditionalExpr => self.conditional(node),
            NotExpr | IsDefinedExpr | ComprehensionFor | ComprehensionIf => self.spaced(node),
            DictEntry => self.dict_entry(node),
            // Names, dots, calls, subscripts, literals and arguments.
            _ => self.tight(node),
        }
    }

    fn dict_entry(&mut self, node: NodeId) {
        for element in self.elements(node) {
            match element {
                Element::Token(token) => self.token(token),
                Element::Node(value) => {
                    self.space();
                    self.node(value);
                }
            }
        }
    }

    /// Elements in brackets: all on one line, or each on its own with a comma after the last.
    fn bracketed(&mut self, node: NodeId) {
        let elements = self.elements(node);
        let [Element::Token(open), inner @ .., Element::Token(close)] = &elements[..] else {
            return self.tight(node);
        };
        let comprehension = self.kind(node) == ComprehensionExpr;
        let magic_comma = inner.last().is_some_and(|last| self.is(*last, Comma));
        if inner.is_empty() {
            return self.empty_brackets(*open, *close);
        }
        if let [Element::Node(only)] = inner
            && self.hugs(*only, *close)
        {
            self.token(*open);
            self.node(*only);
            return self.token(*close);
        }
        self.token(*open);
        self.open_brackets(magic_comma);
        self.indent();
        self.separate(Separator::Soft);
        for (index, element) in inner.iter().enumerate() {
            match element {
                Element::Token(comma) if index + 1 == inner.len() => {
                    // Its position is the same for an existing and an added comma.
                    self.write_gap(*comma);
                    self.ops.push(Op::TrailingComma);
                }
                Element::Token(comma) => {
                    self.token(*comma);
                    self.separate(Separator::SoftSpace);
                }
                Element::Node(child) => {
                    if comprehension && index > 0 {
                        self.separate(Separator::SoftSpace);
                    }
                    self.node(*child);
                }
            }
        }
        if !comprehension && !magic_comma {
            self.ops.push(Op::TrailingComma);
        }
        self.close_bracket(*close);
    }

    fn close_bracket(&mut self, close: TokenId) {
        self.comments_before(close);
        self.dedent();
        if !matches!(self.separator, Separator::Line { .. }) {
            self.separate(Separator::Soft);
        }
        self.token(close);
        self.close();
    }

    /// `[]`, unless there is a comment inside.
    fn empty_brackets(&mut self, open: TokenId, close: TokenId) {
        self.token(open);
        self.open_brackets(false);
        self.indent();
        self.comments_before(close);
        self.dedent();
        self.token(close);
        self.close();
    }

    /// Returns true if a single argument shares the lines of its brackets: `f([` … `])`.
    fn hugs(&self, node: NodeId, close: TokenId) -> bool {
        let only = match self.kind(node) {
            PositionalArg => self.tree.children(node).next(),
            _ => None,
        };
        let literal = |node: NodeId| {
            let first = TokenId(self.tree.token_range(node).start as u32);
            self.tree.token_kind(first) == MultiLineString
        };
        let brackets = only.is_some_and(|only| match self.kind(only) {
            ListExpr | DictExpr | ComprehensionExpr => true,
            Literal => literal(only),
            _ => false,
        });
        brackets && !self.has_comment(node, close)
    }

    /// Returns true if there is a comment right before `node`, or between its end and `close`.
    fn has_comment(&self, node: NodeId, close: TokenId) -> bool {
        let range = self.tree.token_range(node);
        let comment = |index: usize| self.tree.tokens()[index].kind == Comment;
        let before = (0..range.start).rev();
        let before = before.take_while(|i| self.tree.tokens()[*i].kind.is_trivia());
        before.chain(range.end..close.0 as usize).any(comment)
    }

    fn parenthesized(&mut self, node: NodeId) {
        let elements = self.elements(node);
        let [Element::Token(open), Element::Node(inner), Element::Token(close)] = &elements[..]
        else {
            return self.tight(node);
        };
        self.token(*open);
        self.open_brackets(false);
        self.indent();
        self.separate(Separator::Soft);
        self.node(*inner);
        self.close_bracket(*close);
    }

    /// Operators of one level: all operands on one line, or each operator at the start of its own.
    fn binary(&mut self, node: NodeId) {
        let level = self.level(node);
        // The chain from its last operator to its first, as trees of left operands go.
        let mut chain = Vec::new();
        let mut current = node;
        loop {
            let elements = self.elements(current);
            let Some((Element::Node(left), rest)) = elements.split_first() else {
                break;
            };
            let left = *left;
            chain.push(rest.to_vec());
            if self.kind(left) != BinaryExpr || self.level(left) != level {
                current = left;
                break;
            }
            current = left;
        }
        self.write_gap_of(current);
        let group = self.ops.len();
        self.open_operators();
        self.node(current);
        let mut last = (current, group);
        for rest in chain.into_iter().rev() {
            self.separate(Separator::SoftSpace);
            for element in rest {
                match element {
                    Element::Token(token) => {
                        self.token(token);
                        self.space();
                    }
                    Element::Node(operand) => {
                        last = (operand, self.ops.len());
                        self.node(operand);
                    }
                }
            }
        }
        self.hang(group, last);
        self.close();
    }

    /// Lets the brackets of the last operand break instead of the operators: `x in [` … `]`.
    fn hang(&mut self, group: usize, (operand, begin): (NodeId, usize)) {
        let brackets = matches!(
            self.kind(operand),
            ListExpr | DictExpr | ComprehensionExpr | CallExpr | ConstructExpr | IndexLookupExpr
        );
        let opening = self.ops[begin..].iter().position(|op| matches!(op, Op::Open { .. }));
        if let (true, Some(opening), Op::Open { until, .. }) =
            (brackets, opening, &mut self.ops[group])
        {
            *until = begin + opening;
        }
    }

    /// Writes the gap before a node, so that a group can begin after it.
    fn write_gap_of(&mut self, node: NodeId) {
        let first = self.tree.token_range(node).start;
        self.write_gap(TokenId(first as u32));
        self.next = first;
    }

    /// Something that is equal for operators that bind equally.
    fn level(&self, node: NodeId) -> SyntaxKind {
        let operator = self.tree.elements(node).find_map(|element| match element {
            Element::Token(token) => Some(self.tree.token_kind(token)),
            Element::Node(_) => None,
        });
        match operator {
            Some(Plus | Minus) => Plus,
            Some(Star | Slash | Percent) => Star,
            Some(InKw | NotKw) => InKw,
            Some(kind @ (AndKw | OrKw | StarStar)) => kind,
            _ => EqualEqual,
        }
    }

    fn conditional(&mut self, node: NodeId) {
        let elements = self.elements(node);
        self.write_gap_of(node);
        self.open_operators();
        for element in elements {
            match element {
                Element::Token(token) => {
                    self.separate(Separator::SoftSpace);
                    self.token(token);
                    self.space();
                }
                Element::Node(part) => self.node(part),
            }
        }
        self.close();
    }
}
