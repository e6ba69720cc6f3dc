//! Files, definitions, statements and blocks.

use super::{Formatter, LINE, Separator, TIGHT_LINE};
use crate::kind::SyntaxKind::{self, *};
use crate::tree::{Element, NodeId};

impl Formatter<'_> {
    pub(super) fn file(&mut self) {
        let mut before = None;
        self.separate(LINE);
        for item in self.tree.children(self.tree.root()) {
            let kind = self.kind(item);
            if let Some(before) = before {
                let blank_min = u8::from(stands_apart(before, kind));
                self.separate(Separator::Line { blank_min, blank_max: 1 });
            }
            self.item(item);
            before = Some(kind);
        }
        self.separate(LINE);
        self.write_comments(self.tree.tokens().len());
    }

    fn item(&mut self, node: NodeId) {
        match self.kind(node) {
            Entity | Implementation | For | If => self.with_body(node),
            Relation | Typedef | Implement => self.with_docstring(node),
            Index => self.spaced(node),
            Import => self.spaced(node),
            Docstring => self.spaced(node),
            _ => self.statement(node),
        }
    }

    fn statement(&mut self, node: NodeId) {
        match self.kind(node) {
            For | If => self.with_body(node),
            Assign => self.spaced(node),
            _ => self.tight(node),
        }
    }

    /// All elements of a node with a space between.
    pub(super) fn spaced(&mut self, node: NodeId) {
        for (index, element) in self.elements(node).into_iter().enumerate() {
            if index > 0 && !self.is(element, Comma) && !self.is_kind(element, IndexAttributes) {
                self.space();
            }
            self.element(element);
        }
    }

    /// All elements of a node with nothing between.
    pub(super) fn tight(&mut self, node: NodeId) {
        for element in self.elements(node) {
            self.element(element);
        }
    }

    fn element(&mut self, element: Element) {
        match element {
            Element::Token(token) => self.token(token),
            Element::Node(node) => self.node(node),
        }
    }

    pub(super) fn is(&self, element: Element, kind: SyntaxKind) -> bool {
        matches!(element, Element::Token(token) if self.tree.token_kind(token) == kind)
    }

    fn is_kind(&self, element: Element, kind: SyntaxKind) -> bool {
        matches!(element, Element::Node(node) if self.kind(node) == kind)
    }

    pub(super) fn node(&mut self, node: NodeId) {
        match self.kind(node) {
            Extends | Using | When | Annotations => self.spaced(node),
            IndexAttributes => self.comma_list(node),
            Attribute => self.spaced(node),
            Path | TypeRef | Arity | Docstring => self.tight(node),
            _ => self.expression(node),
        }
    }

    fn comma_list(&mut self, node: NodeId) {
        for element in self.elements(node) {
            self.element(element);
            if self.is(element, Comma) {
                self.space();
            }
        }
    }

    /// `A.x [0:] -- B.y [1]`, `typedef …`, `implement …`, and a docstring on the next line.
    fn with_docstring(&mut self, node: NodeId) {
        for (index, element) in self.elements(node).into_iter().enumerate() {
            let tight = self.is(element, Dot) || self.after_dot(node, element);
            if self.is_kind(element, Docstring) {
                self.separate(TIGHT_LINE);
            } else if index > 0 && !tight {
                self.space();
            }
            self.element(element);
        }
    }

    fn after_dot(&self, node: NodeId, element: Element) -> bool {
        let mut before = None;
        for candidate in self.tree.elements(node) {
            if candidate == element {
                break;
            }
            before = Some(candidate);
        }
        before.is_some_and(|before| self.is(before, Dot))
    }

    /// A header up to a colon, indented lines, and `end`.
    fn with_body(&mut self, node: NodeId) {
        let mut first = true;
        for element in self.elements(node) {
            match element {
                Element::Node(child) if matches!(self.kind(child), Elif | Else) => {
                    self.branch(child);
                    continue;
                }
                Element::Node(child) if self.kind(child) == Block => {
                    self.block(child);
                    continue;
                }
                Element::Node(child) if matches!(self.kind(child), Attribute | Docstring) => {
                    self.indent();
                    self.item_in_body(child);
                    self.dedent();
                    continue;
                }
                Element::Token(token) if self.is(element, EndKw) => {
                    self.indent();
                    self.comments_before(token);
                    self.dedent();
                    self.separate(TIGHT_LINE);
                    self.token(token);
                    continue;
                }
                _ => {}
            }
            if !first && !self.is(element, Colon) {
                self.space();
            }
            first = false;
            self.element(element);
            if self.is(element, Colon) {
                self.separate(TIGHT_LINE);
            }
        }
    }

    /// An attribute or docstring of an entity, or a docstring of an implementation.
    fn item_in_body(&mut self, node: NodeId) {
        self.node(node);
        self.separate(LINE);
    }

    /// `elif …:` or `else:`, after the block of the branch before.
    fn branch(&mut self, node: NodeId) {
        for element in self.elements(node) {
            match element {
                Element::Node(child) if self.kind(child) == Block => self.block(child),
                Element::Token(token) if matches!(self.tree.token_kind(token), ElifKw | ElseKw) => {
                    self.indent();
                    self.comments_before(token);
                    self.dedent();
                    self.separate(TIGHT_LINE);
                    self.token(token);
                }
                _ => {
                    if !self.is(element, Colon) {
                        self.space();
                    }
                    self.element(element);
                    if self.is(element, Colon) {
                        self.separate(TIGHT_LINE);
                    }
                }
            }
        }
    }

    fn block(&mut self, node: NodeId) {
        self.indent();
        for statement in self.tree.children(node) {
            self.statement(statement);
            self.separate(LINE);
        }
        self.dedent();
    }
}

/// Returns true if two items are always separated by a blank line.
fn stands_apart(before: SyntaxKind, after: SyntaxKind) -> bool {
    let has_body = |kind| matches!(kind, Entity | Implementation | Docstring);
    has_body(before) || has_body(after) || (before == Import) != (after == Import)
}
