//! Statements that refer to other templates.

use super::ast::Stmt;
use super::lexer::Tok;
use super::parser::{ParseResult, Parser};
use crate::error::TemplateSyntaxError;

impl Parser {
    /// Parses `with context` or `without context`, if present.
    fn import_context(&mut self) -> Option<bool> {
        let with = self.is_name("with");
        let is_context = matches!(self.peek(), Tok::Name(name) if name == "context");
        if !is_context || !(with || self.is_name("without")) {
            return None;
        }
        self.next();
        self.next();
        Some(with)
    }

    pub(crate) fn include_statement(&mut self, _: usize) -> ParseResult<Stmt> {
        let template = self.expression()?;
        let ignore_missing =
            self.is_name("ignore") && matches!(self.peek(), Tok::Name(name) if name == "missing");
        if ignore_missing {
            self.next();
            self.next();
        }
        let with_context = self.import_context().unwrap_or(true);
        Ok(Stmt::Include { template, ignore_missing, with_context })
    }

    pub(crate) fn import_statement(&mut self, _: usize) -> ParseResult<Stmt> {
        let template = self.expression()?;
        self.expect_name("as")?;
        let target = self.target_name()?;
        let with_context = self.import_context().unwrap_or(false);
        Ok(Stmt::Import { template, target, with_context })
    }

    pub(crate) fn import_names_statement(&mut self, line: usize) -> ParseResult<Stmt> {
        let template = self.expression()?;
        self.expect_name("import")?;
        let mut names = Vec::new();
        let mut with_context = false;
        loop {
            if !names.is_empty() {
                self.expect_op(",")?;
            }
            if let Some(found) = self.import_context() {
                with_context = found;
                break;
            }
            let name = self.target_name()?;
            if name.starts_with('_') {
                let message = "names starting with an underline can not be imported";
                return Err(TemplateSyntaxError::assertion(message));
            }
            let alias = if self.skip_name("as") { self.target_name()? } else { name.clone() };
            names.push((name, alias));
            if let Some(found) = self.import_context() {
                with_context = found;
                break;
            }
            if !self.is_op(",") {
                break;
            }
        }
        Ok(Stmt::FromImport { template, names, with_context, line })
    }
}
