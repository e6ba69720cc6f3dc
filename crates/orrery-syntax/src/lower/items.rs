//! Files and definitions.

use super::Lowering;
use crate::ast::{
    Arity, Attribute, Default, Entity, File, Implement, Implementation, ImplementationRef, Import,
    Index, Item, Name, Relation, TypeRef, Typedef,
};
use crate::kind::SyntaxKind;
use crate::tree::{Element, NodeId, TokenId};

impl Lowering<'_, '_> {
    pub(super) fn file(&mut self) -> File {
        let root = self.tree.root();
        let mut file = File { docstring: self.docstring(root), items: Vec::new() };
        for child in self.tree.children(root) {
            if let Some(item) = self.item(child) {
                file.items.push(item);
            }
        }
        file
    }

    fn item(&mut self, node: NodeId) -> Option<Item> {
        Some(match self.tree.kind(node) {
            SyntaxKind::Import => Item::Import(self.import(node)?),
            SyntaxKind::Entity => Item::Entity(self.entity(node)?),
            SyntaxKind::Implementation => Item::Implementation(self.implementation(node)?),
            SyntaxKind::Implement => Item::Implement(self.implement(node)?),
            SyntaxKind::Relation => Item::Relation(self.relation(node)?),
            SyntaxKind::Typedef => Item::Typedef(self.typedef(node)?),
            SyntaxKind::Index => Item::Index(self.index(node)?),
            SyntaxKind::Docstring => return None,
            _ => Item::Stmt(self.statement(node)?),
        })
    }

    fn docstring(&mut self, node: NodeId) -> Option<Box<str>> {
        let docstring = self.child(node, SyntaxKind::Docstring)?;
        let token = self.tokens(docstring).next()?;
        Some(self.string_value(token).into())
    }

    fn class_child(&mut self, node: NodeId) -> Option<crate::ast::Path> {
        self.child(node, SyntaxKind::Path).map(|path| self.path(path))
    }

    fn name_child(&mut self, node: NodeId) -> Option<Name> {
        let name = self.tokens(node).find(|token| {
            matches!(self.tree.token_kind(*token), SyntaxKind::Id | SyntaxKind::ClassId)
        })?;
        Some(self.token_name(name))
    }

    fn import(&mut self, node: NodeId) -> Option<Import> {
        let path = self.class_child(node)?;
        let alias = self.name_child(node);
        let loc = self.line_loc(self.tree.range(node));
        if let Some(alias) = alias {
            self.check_hyphen(alias, node);
        }
        let text = self.interner.text(path.symbol);
        if text.contains('-') {
            let message = format!(
                "{text} is not a valid module name: hyphens are not allowed, please use underscores instead."
            );
            self.push_error("CompilerException", message, path.loc, self.after(node));
        }
        Some(Import { path, alias, loc })
    }

    fn entity(&mut self, node: NodeId) -> Option<Entity> {
        let name = self.name_child(node)?;
        self.check_hyphen(name, node);
        let mut entity = Entity {
            name,
            parents: Vec::new(),
            docstring: self.docstring(node),
            attributes: Vec::new(),
            loc: name.loc,
        };
        if let Some(extends) = self.child(node, SyntaxKind::Extends) {
            entity.parents = self.tree.children(extends).map(|path| self.path(path)).collect();
        }
        for child in self.tree.children(node) {
            match self.tree.kind(child) {
                SyntaxKind::Attribute => entity.attributes.extend(self.attribute(child)),
                SyntaxKind::Error => self.salvage(child),
                _ => {}
            }
        }
        Some(entity)
    }

    fn attribute(&mut self, node: NodeId) -> Option<Attribute> {
        let ty = self.child(node, SyntaxKind::TypeRef)?;
        let ty = self.type_ref(ty)?;
        let name = self.name_child(node)?;
        self.check_hyphen(name, node);
        let default = if self.token(node, SyntaxKind::UndefKw).is_some() {
            Default::Undef
        } else {
            let value = self
                .tree
                .children(node)
                .find(|child| self.tree.kind(*child) != SyntaxKind::TypeRef);
            value.map_or(Default::None, |value| Default::Value(self.expr(value)))
        };
        Some(Attribute { ty, name, default, loc: name.loc })
    }

    fn type_ref(&mut self, node: NodeId) -> Option<TypeRef> {
        let path = match self.child(node, SyntaxKind::Path) {
            Some(path) => self.path(path),
            None => {
                let dict = self.token(node, SyntaxKind::DictKw)?;
                let Name { symbol, loc } = self.token_name(dict);
                crate::ast::Path { symbol, loc }
            }
        };
        let list = self.token(node, SyntaxKind::LBracket).is_some();
        let nullable = self.token(node, SyntaxKind::Question).is_some();
        Some(TypeRef { path, list, nullable })
    }

    fn implementation(&mut self, node: NodeId) -> Option<Implementation> {
        let name = self.name_child(node)?;
        let entity = self.class_child(node)?;
        let docstring = self.docstring(node);
        let body = self.child(node, SyntaxKind::Block).map(|block| self.block(block));
        self.check_hyphen(name, node);
        let body = body.unwrap_or_default();
        Some(Implementation { name, entity, docstring, body, loc: name.loc })
    }

    fn implement(&mut self, node: NodeId) -> Option<Implement> {
        let entity = self.class_child(node)?;
        let using = self.child(node, SyntaxKind::Using)?;
        let mut implementations = Vec::new();
        for element in self.tree.elements(using) {
            match element {
                Element::Node(path) => {
                    implementations.push(ImplementationRef::Named(self.path(path)));
                }
                Element::Token(token) if self.tree.token_kind(token) == SyntaxKind::ParentsKw => {
                    let loc = self.column_loc(self.tree.token_bytes(token));
                    implementations.push(ImplementationRef::Parents(loc));
                }
                Element::Token(_) => {}
            }
        }
        let when = self.child(node, SyntaxKind::When);
        let when = when.and_then(|when| self.tree.children(when).next());
        let when = when.map(|condition| self.expr(condition));
        let docstring = self.docstring(node);
        self.check_parents(entity, &implementations, when.as_ref(), node);
        Some(Implement { entity, using: implementations, when, docstring, loc: entity.loc })
    }

    fn relation(&mut self, node: NodeId) -> Option<Relation> {
        let mut classes =
            self.tree.children(node).filter(|n| self.tree.kind(*n) == SyntaxKind::Path);
        let (left, right) = (classes.next()?, classes.next()?);
        let mut names = self.tokens(node).filter(|t| self.tree.token_kind(*t) == SyntaxKind::Id);
        let (name, inverse) = (names.next()?, names.next());
        let mut arities =
            self.tree.children(node).filter(|n| self.tree.kind(*n) == SyntaxKind::Arity);
        let (arity, inverse_arity) = (arities.next()?, arities.next());
        let annotations = self.child(node, SyntaxKind::Annotations);
        let annotations = annotations.map(|list| self.tree.children(list)).into_iter().flatten();
        let annotations = annotations.map(|annotation| self.expr(annotation)).collect();
        let name = self.token_name(name);
        self.check_hyphen(name, node);
        let inverse = match (inverse, inverse_arity) {
            (Some(inverse), Some(arity)) => {
                let inverse = self.token_name(inverse);
                self.check_hyphen(inverse, node);
                Some((inverse, self.arity(arity)))
            }
            _ => None,
        };
        Some(Relation {
            left: self.path(left),
            name,
            arity: self.arity(arity),
            right: self.path(right),
            inverse,
            annotations,
            docstring: self.docstring(node),
            loc: name.loc,
        })
    }

    /// `[n]`, `[n:]`, `[n:m]` or `[:m]`
    fn arity(&mut self, node: NodeId) -> Arity {
        let mut bounds = [None, None];
        let mut colon = 0;
        for token in self.tokens(node) {
            match self.tree.token_kind(token) {
                SyntaxKind::Colon => colon = 1,
                SyntaxKind::Int => bounds[colon] = Some(self.bound(token)),
                _ => {}
            }
        }
        let low = bounds[0].unwrap_or(0);
        Arity { low, high: if colon == 1 { bounds[1] } else { Some(low) } }
    }

    /// Saturates a bound beyond 32 bits, which cannot be reached.
    fn bound(&self, token: TokenId) -> u32 {
        let text = self.tree.token_text(token);
        if text.starts_with('-') { 0 } else { text.parse().unwrap_or(u32::MAX) }
    }

    fn typedef(&mut self, node: NodeId) -> Option<Typedef> {
        let name = self.name_child(node)?;
        let base = self.class_child(node)?;
        let constraint = self
            .tree
            .children(node)
            .find(|n| !matches!(self.tree.kind(*n), SyntaxKind::Path | SyntaxKind::Docstring))?;
        let constraint = self.expr(constraint);
        self.check_constraint(name, &constraint, node);
        self.check_hyphen(name, node);
        let docstring = self.docstring(node);
        Some(Typedef { name, base, constraint, docstring, loc: name.loc })
    }

    fn index(&mut self, node: NodeId) -> Option<Index> {
        let entity = self.class_child(node)?;
        let list = self.child(node, SyntaxKind::IndexAttributes)?;
        let names = self.tokens(list).filter(|t| self.tree.token_kind(*t) == SyntaxKind::Id);
        let attributes = names.map(|name| self.token_name(name)).collect();
        Some(Index { entity, attributes, loc: self.line_loc(self.tree.range(node)) })
    }

    /// Finds further errors in the parsed parts of a broken construct.
    pub(super) fn salvage(&mut self, node: NodeId) {
        for child in self.tree.children(node) {
            match self.tree.kind(child) {
                SyntaxKind::Attribute => drop(self.attribute(child)),
                SyntaxKind::Block => drop(self.block(child)),
                SyntaxKind::Args
                | SyntaxKind::PositionalArg
                | SyntaxKind::KeywordArg
                | SyntaxKind::SpreadArg
                | SyntaxKind::DictEntry
                | SyntaxKind::ComprehensionFor
                | SyntaxKind::ComprehensionIf
                | SyntaxKind::Elif
                | SyntaxKind::Else
                | SyntaxKind::When
                | SyntaxKind::Annotations => self.salvage(child),
                kind if kind >= SyntaxKind::Literal => drop(self.expr(child)),
                SyntaxKind::Path
                | SyntaxKind::Extends
                | SyntaxKind::Using
                | SyntaxKind::TypeRef
                | SyntaxKind::Arity
                | SyntaxKind::IndexAttributes => {}
                _ => drop(self.item(child)),
            }
        }
    }
}
