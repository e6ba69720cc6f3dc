//! Files and the definitions that may only stand at file level.

use super::{Parsed, Parser};
use crate::kind::SyntaxKind::*;

impl Parser<'_> {
    /// `[MLS] { top }`
    pub(super) fn file(&mut self) {
        let marker = super::Marker { first: 0, nodes_before: 0 };
        self.docstring();
        while !self.at_end() {
            let item = self.start();
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
            self.expect(PathSep)?;
        }
        self.expect(ClassId)?;
        self.finish(marker, Path);
        Ok(())
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
        if self.at(Id) {
            let name = self.token_bytes(self.current_index());
            self.bump();
            self.lower_case_entity(name);
        } else {
            self.expect(ClassId)?;
        }
        if self.at(ExtendsKw) {
            let extends = self.start();
            self.bump();
            self.parent()?;
            while self.eat(Comma) {
                self.parent()?;
            }
            self.finish(extends, Extends);
        }
        self.expect(Colon)?;
        self.docstring();
        while !self.at(EndKw) {
            let attribute = self.start();
            if self.attribute().is_err() {
                self.recover(attribute);
                if self.at_end() || self.at_definition() {
                    break;
                }
            }
        }
        self.eat(EndKw);
        self.finish(marker, Entity);
        Ok(())
    }

    fn lower_case_entity(&mut self, name: (u32, u32)) {
        self.error_at(
            "Syntax error: Invalid identifier: Entity names must start with a capital",
            name,
        );
    }

    /// A class after `extends`, where a lower-case name has a message of its own.
    fn parent(&mut self) -> Parsed {
        let marker = self.start();
        let first = self.token_bytes(self.current_index()).0;
        while self.eat(Id) {
            if !self.eat(PathSep) {
                let end = self.token_bytes(self.consumed_end - 1).1;
                self.lower_case_entity((first, end));
                self.finish(marker, Path);
                return Ok(());
            }
        }
        self.expect(ClassId)?;
        self.finish(marker, Path);
        Ok(())
    }

    fn attribute(&mut self) -> Parsed {
        let marker = self.start();
        if self.at(DictKw) {
            return self.dict_attribute();
        }
        let ty = self.start();
        self.namespace()?;
        if self.eat(LBracket) {
            self.expect(RBracket)?;
        }
        self.eat(Question);
        self.finish(ty, TypeRef);
        self.attribute_name()?;
        if self.eat(Equal) {
            match self.current {
                UndefKw => self.bump(),
                LBracket => self.constant_list()?,
                _ => self.constant()?,
            }
        }
        self.finish(marker, Attribute);
        Ok(())
    }

    fn attribute_name(&mut self) -> Parsed {
        if self.at(ClassId) {
            let name = self.token_bytes(self.current_index());
            self.bump();
            self.error_at(
                "Syntax error: Invalid identifier: attribute names must start with a lower case character",
                name,
            );
            return Ok(());
        }
        self.expect(Id)
    }

    fn dict_attribute(&mut self) -> Parsed {
        let marker = self.start();
        self.bump();
        let nullable = self.eat(Question);
        self.finish(marker, TypeRef);
        let name = self.current_index();
        self.attribute_name()?;
        if self.eat(Equal) {
            if self.at(NullKw) {
                self.constant()?;
                if !nullable {
                    let text = self.token_text(name);
                    let message = format!(
                        "Syntax error: null can not be assigned to dict, did you mean \"dict? {text} = null\""
                    );
                    self.error_at(message, self.token_bytes(name));
                }
            } else if self.at(LBrace) {
                self.dict()?;
            } else {
                return Err(self.unexpected());
            }
        }
        self.finish(marker, Attribute);
        Ok(())
    }

    /// A literal, as defaults have it.
    fn constant(&mut self) -> Parsed {
        if !self.at_literal() {
            return Err(self.unexpected());
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
        self.expect(RBracket)?;
        self.finish(marker, ListExpr);
        Ok(())
    }

    fn implementation(&mut self) -> Parsed {
        let marker = self.start();
        self.bump();
        self.expect(Id)?;
        self.expect(ForKw)?;
        self.class()?;
        self.expect(Colon)?;
        self.docstring();
        self.block();
        self.close_block()?;
        self.finish(marker, Implementation);
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

    /// The rest of a relation whose left class has been parsed; the current token is the dot.
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
        self.expect(LBracket)?;
        if self.eat(Colon) {
            self.expect(Int)?;
        } else {
            self.expect(Int)?;
            if self.eat(Colon) {
                self.eat(Int);
            }
        }
        self.expect(RBracket)?;
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
            return Err(self.unexpected());
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
        self.expect(RParen)?;
        self.finish(attributes, IndexAttributes);
        self.finish(marker, Index);
        Ok(())
    }
}
