//! Files and the definitions that are only valid at file level.

use super::{CARDINALITY, Expected, Parsed, Parser};
use crate::ast::Loc;
use crate::kind::SyntaxKind::*;

impl Parser<'_> {
    /// `[MLS] { top }`
    pub(super) fn file(&mut self) {
        let marker = super::Marker { first: 0, nodes_before: 0 };
        self.docstring();
        while !self.at_end() {
            let item = self.start();
            self.statement = item.first;
            if self.item().is_err() {
                self.recover(item);
            }
        }
        // The root covers the trivia at both ends too.
        self.consumed_end = self.tokens.len() as u32;
        self.finish(marker, File);
    }

    fn item(&mut self) -> Parsed {
        match self.current {
            EntityKw => self.entity(),
            ImplementKw => self.implement(),
            ImplementationKw => self.implementation(),
            TypedefKw => self.typedef(),
            IndexKw => self.index(),
            ImportKw => self.import(),
            _ => self.statement(true),
        }
    }

    pub(super) fn docstring(&mut self) {
        if self.at(MultiLineString) {
            let marker = self.start();
            self.bump();
            self.finish(marker, Docstring);
        }
    }

    /// `ID { "::" ID }`
    fn namespace(&mut self) -> Parsed {
        let marker = self.start();
        self.expect(Id)?;
        while self.eat(PathSep) {
            self.expect(Id)?;
        }
        self.finish(marker, Path);
        Ok(())
    }

    /// `CID` or `ns "::" CID`
    fn class(&mut self) -> Parsed {
        let marker = self.start();
        while self.eat(Id) {
            if self.at(Dot) {
                return self.dotted_class(marker);
            }
            self.expect(PathSep)?;
        }
        self.expect(ClassId)?;
        self.finish(marker, Path);
        Ok(())
    }

    /// `ns "." CID`, in which the dot is an error.
    fn dotted_class(&mut self, marker: super::Marker) -> Parsed {
        while self.eat(Dot) {
            if self.eat(ClassId) {
                self.invalid_namespace_access(marker);
                self.finish(marker, Path);
                return Ok(());
            }
            self.expect(Id)?;
        }
        Err(self.unexpected(Expected::Token(ClassId)))
    }

    fn import(&mut self) -> Parsed {
        let marker = self.start();
        self.bump();
        self.namespace()?;
        if self.eat(AsKw) {
            self.expect(Id)?;
        }
        self.finish(marker, Import);
        Ok(())
    }

    fn entity(&mut self) -> Parsed {
        let marker = self.start();
        self.bump();
        let name = self.current_index();
        let lower_case = self.at(Id);
        let header = self.header(marker, |parser| {
            if !parser.eat(Id) {
                parser.expect(ClassId)?;
            }
            if parser.at(ExtendsKw) {
                parser.extends()?;
            }
            Ok(())
        })?;
        self.docstring();
        self.in_block(marker, |parser| {
            parser.attributes(marker);
            parser.eat_end();
            Ok(())
        })?;
        if lower_case {
            self.lower_case_entity(self.loc_of(name, name + 1));
        }
        self.finish(marker, header.node(Entity));
        Ok(())
    }

    /// Parses the attributes of an entity, up to its end.
    fn attributes(&mut self, entity: super::Marker) {
        let mut indented = false;
        while !self.at(EndKw) && !self.at_next_definition(entity) {
            let attribute = self.start();
            self.statement = attribute.first;
            if self.at_end() {
                self.unexpected(Expected::End);
                break;
            }
            // A line indented outside of the entity, unlike its other lines, is not an attribute:
            // the entity lacks its end.
            let outside = indented && !self.is_indented(entity.first);
            indented |= self.is_indented(entity.first);
            let errors = self.errors.len();
            if self.attribute().is_err() {
                if outside && self.errors.len() > errors {
                    self.explain_last(Expected::End);
                }
                self.recover(attribute);
                if outside || self.at_end() || self.at_definition() {
                    break;
                }
            }
        }
    }

    fn lower_case_entity(&mut self, loc: Loc) {
        let message = "Syntax error: Invalid identifier: Entity names must start with a capital";
        self.error_at(message, (loc.start, loc.end));
        if let Some(error) = self.errors.last_mut() {
            error.loc = loc;
        }
    }

    /// `extends a, b`. Names in lower case are noticed when the list is complete, the last first.
    fn extends(&mut self) -> Parsed {
        let marker = self.start();
        self.bump();
        let mut in_lower_case = Vec::new();
        loop {
            in_lower_case.extend(self.parent()?);
            if !self.eat(Comma) {
                break;
            }
        }
        while let Some(loc) = in_lower_case.pop() {
            self.lower_case_entity(loc);
        }
        self.finish(marker, Extends);
        Ok(())
    }

    /// Parses a class after `extends`; returns the location of its name if that is in lower case.
    fn parent(&mut self) -> Parsed<Option<Loc>> {
        let marker = self.start();
        while self.eat(Id) {
            if self.eat(PathSep) {
                continue;
            }
            let mut loc = self.loc_of(marker.first, self.consumed_end);
            while self.at(Dot) {
                let dot = self.current_index();
                self.bump();
                if self.eat(ClassId) {
                    self.invalid_namespace_access(marker);
                    self.finish(marker, Path);
                    return Ok(None);
                }
                self.expect(Id)?;
                loc = Loc { column: false, ..self.loc_of(dot, self.consumed_end) };
            }
            self.finish(marker, Path);
            return Ok(Some(loc));
        }
        self.expect(ClassId)?;
        self.finish(marker, Path);
        Ok(None)
    }

    fn attribute(&mut self) -> Parsed {
        let marker = self.start();
        if self.at(DictKw) {
            return self.dict_attribute();
        }
        let ty = self.start();
        self.namespace()?;
        let bracket = self.current_index();
        if self.eat(LBracket) {
            self.close(RBracket, bracket, "")?;
        }
        self.eat(Question);
        self.finish(ty, TypeRef);
        let name = self.attribute_name()?;
        if self.eat(Equal) {
            match self.current {
                UndefKw => self.bump(),
                LBracket => self.constant_list()?,
                _ => self.constant()?,
            }
        }
        self.check_attribute_name(name);
        self.finish(marker, Attribute);
        Ok(())
    }

    /// The index of the token that names an attribute.
    fn attribute_name(&mut self) -> Parsed<u32> {
        let name = self.current_index();
        if !self.eat(ClassId) {
            self.expect(Id)?;
        }
        Ok(name)
    }

    fn check_attribute_name(&mut self, name: u32) {
        if self.tokens[name as usize].kind == ClassId {
            let message = "Syntax error: Invalid identifier: \
                           attribute names must start with a lower case character";
            self.error_at(message, self.token_bytes(name));
        }
    }

    fn dict_attribute(&mut self) -> Parsed {
        let marker = self.start();
        self.bump();
        let nullable = self.eat(Question);
        self.finish(marker, TypeRef);
        let name = self.attribute_name()?;
        let mut null = false;
        if self.eat(Equal) {
            null = self.at(NullKw);
            if null {
                self.null_of_dict = Some(self.current_index());
                self.constant()?;
            } else if self.at(LBrace) {
                self.dict()?;
            } else {
                return Err(self.unexpected(Expected::What("a dictionary or `null`")));
            }
        }
        self.check_attribute_name(name);
        if null && !nullable {
            let text = self.token_text(name);
            let message = format!(
                "Syntax error: null can not be assigned to dict, did you mean \"dict? {text} = null\""
            );
            self.error_at(message, self.token_bytes(name));
        }
        self.finish(marker, Attribute);
        Ok(())
    }

    /// A literal, as defaults have it.
    fn constant(&mut self) -> Parsed {
        if !self.at_literal() {
            return Err(self.unexpected(Expected::What("a constant")));
        }
        let marker = self.start();
        self.bump();
        self.finish(marker, Literal);
        Ok(())
    }

    fn constant_list(&mut self) -> Parsed {
        let marker = self.start();
        self.bump();
        while !self.at(RBracket) {
            self.constant()?;
            if !self.eat(Comma) {
                break;
            }
        }
        self.close(RBracket, marker.first, "`,`")?;
        self.finish(marker, ListExpr);
        Ok(())
    }

    fn implementation(&mut self) -> Parsed {
        let marker = self.start();
        self.bump();
        let header = self.header(marker, |parser| {
            parser.expect(Id)?;
            parser.expect(ForKw)?;
            parser.class()
        })?;
        self.docstring();
        self.in_block(marker, |parser| {
            parser.block(marker);
            parser.close_block()
        })?;
        self.finish(marker, header.node(Implementation));
        Ok(())
    }

    fn implement(&mut self) -> Parsed {
        let marker = self.start();
        self.bump();
        self.class()?;
        let using = self.start();
        self.expect(UsingKw)?;
        loop {
            if !self.eat(ParentsKw) {
                self.namespace()?;
            }
            if !self.eat(Comma) {
                break;
            }
        }
        self.finish(using, Using);
        if self.at(WhenKw) {
            let when = self.start();
            self.bump();
            self.expression()?;
            self.finish(when, When);
        }
        self.docstring();
        self.finish(marker, Implement);
        Ok(())
    }

    /// Parses the rest of a relation after its left class; the current token is the dot.
    pub(super) fn relation(&mut self, marker: super::Marker) -> Parsed {
        self.bump();
        self.expect(Id)?;
        self.arity()?;
        if !self.eat(RelationOp) {
            let annotations = self.start();
            self.expression()?;
            while self.eat(Comma) {
                self.expression()?;
            }
            self.finish(annotations, Annotations);
        }
        self.class()?;
        if self.eat(Dot) {
            self.expect(Id)?;
            self.arity()?;
        }
        self.docstring();
        self.finish(marker, Relation);
        Ok(())
    }

    fn arity(&mut self) -> Parsed {
        let marker = self.start();
        if !self.eat(LBracket) {
            return Err(self.unexpected(Expected::What(CARDINALITY)));
        }
        if self.eat(Colon) {
            self.expect(Int)?;
        } else {
            self.expect(Int)?;
            if self.eat(Colon) {
                self.eat(Int);
            }
        }
        self.close(RBracket, marker.first, "")?;
        self.finish(marker, Arity);
        Ok(())
    }

    fn typedef(&mut self) -> Parsed {
        let marker = self.start();
        self.bump();
        if self.at(ClassId) {
            return self.default_constructor();
        }
        self.expect(Id)?;
        self.expect(AsKw)?;
        self.namespace()?;
        if self.at(Regex) {
            self.constant()?;
        } else {
            self.expect(MatchingKw)?;
            self.expression()?;
        }
        self.docstring();
        self.finish(marker, Typedef);
        Ok(())
    }

    /// `typedef Name as Class(…)`, a form that the language has given up.
    fn default_constructor(&mut self) -> Parsed {
        let marker = self.start();
        let name = self.token_bytes(self.current_index());
        self.bump();
        self.expect(AsKw)?;
        let constructor = self.start();
        self.class()?;
        if !self.at(LParen) {
            return Err(self.unexpected(Expected::Token(LParen)));
        }
        self.keyword_args(RParen)?;
        self.finish(constructor, ConstructExpr);
        self.error_at("Syntax error: The use of default constructors is no longer supported", name);
        self.finish(marker, Error);
        Ok(())
    }

    fn index(&mut self) -> Parsed {
        let marker = self.start();
        self.bump();
        self.class()?;
        let attributes = self.start();
        self.expect(LParen)?;
        self.expect(Id)?;
        while self.eat(Comma) {
            self.expect(Id)?;
        }
        self.close(RParen, attributes.first, "`,`")?;
        self.finish(attributes, IndexAttributes);
        self.finish(marker, Index);
        Ok(())
    }
}
