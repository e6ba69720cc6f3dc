//! Statements of a template. Expressions are in `expressions`.

use std::cell::OnceCell;
use std::rc::Rc;

use super::ast::{Block, Expr, For, Kind, MacroDef, Stmt, Target, Template};
use super::free_names::analyse;
use super::lexer::{Tok, Token, tokenize};
use crate::error::TemplateSyntaxError;
use crate::source::TemplateSource;

/// Maximum nesting depth, independent of the machine's stack.
pub(crate) const DEPTH_MAX: usize = 200;

pub(crate) struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    blocks: Vec<Rc<Block>>,
    /// End tags expected by the open blocks, outermost first.
    end_tags: Vec<&'static [&'static str]>,
    /// The tags of those blocks and their lines.
    open_tags: Vec<(usize, String)>,
    pub(crate) source: Rc<TemplateSource>,
}

pub(crate) type ParseResult<T> = Result<T, TemplateSyntaxError>;

pub(crate) fn parse(source: &Rc<TemplateSource>) -> ParseResult<Template> {
    let mut parser = Parser {
        tokens: tokenize(&source.text)?,
        source: source.clone(),
        at: 0,
        depth: 0,
        blocks: Vec::new(),
        end_tags: Vec::new(),
        open_tags: Vec::new(),
    };
    let body = parser.body(&[]).map_err(|mut error| {
        error.open = parser.open_tags.last().cloned();
        error.at(parser.line())
    })?;
    let template =
        Template { source: source.clone(), body, blocks: parser.blocks, loads: OnceCell::new() };
    analyse(&template);
    Ok(template)
}

impl Parser {
    pub(crate) fn fail<T>(&self, message: impl Into<String>) -> ParseResult<T> {
        Err(TemplateSyntaxError::syntax(message))
    }

    /// Guards recursion; `leave_level` undoes it.
    pub(crate) fn enter_level(&mut self) -> ParseResult<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { self.fail("the template is nested too deeply") } else { Ok(()) }
    }

    pub(crate) fn leave_level(&mut self) {
        self.depth -= 1;
    }

    pub(crate) fn current(&self) -> &Tok {
        &self.tokens[self.at].tok
    }

    pub(crate) fn line(&self) -> usize {
        self.tokens[self.at].line
    }

    pub(crate) fn peek(&self) -> &Tok {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].tok
    }

    pub(crate) fn next(&mut self) -> Tok {
        let tok = self.tokens[self.at].tok.clone();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        tok
    }

    pub(crate) fn is_op(&self, op: &str) -> bool {
        matches!(self.current(), Tok::Op(found) if *found == op)
    }

    pub(crate) fn is_name(&self, name: &str) -> bool {
        matches!(self.current(), Tok::Name(found) if found == name)
    }

    pub(crate) fn skip_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        if found {
            self.next();
        }
        found
    }

    pub(crate) fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        if found {
            self.next();
        }
        found
    }

    fn expected<T>(&self, what: &str) -> ParseResult<T> {
        if *self.current() == Tok::Eof {
            return self.fail(format!("unexpected end of template, expected '{what}'."));
        }
        self.fail(format!("expected token '{what}', got '{}'", self.current().describe()))
    }

    pub(crate) fn expect_op(&mut self, op: &str) -> ParseResult<()> {
        if self.skip_op(op) { Ok(()) } else { self.expected(op) }
    }

    pub(crate) fn expect_name(&mut self, name: &str) -> ParseResult<()> {
        if self.skip_name(name) { Ok(()) } else { self.expected(name) }
    }

    pub(crate) fn name(&mut self) -> ParseResult<Rc<str>> {
        match self.current() {
            Tok::Name(name) => {
                let name = Rc::from(name.as_str());
                self.next();
                Ok(name)
            }
            _ => self.expected("name"),
        }
    }

    fn expect_block_end(&mut self) -> ParseResult<()> {
        if *self.current() == Tok::BlockEnd {
            self.next();
            return Ok(());
        }
        self.expected("end of statement block")
    }

    /// Text, prints and statements up to one of the tags, or up to the end if there are none.
    fn body(&mut self, ends: &'static [&'static str]) -> ParseResult<Vec<Stmt>> {
        self.enter_level()?;
        if !ends.is_empty() {
            self.end_tags.push(ends);
        }
        let mut body = Vec::new();
        loop {
            match self.current() {
                Tok::Data(_) => {
                    if let Tok::Data(text) = self.next() {
                        body.push(Stmt::Data(text.into()));
                    }
                }
                Tok::VariableBegin => {
                    self.next();
                    body.push(Stmt::Output(vec![self.tuple(true, &[])?]));
                    if *self.current() != Tok::VariableEnd {
                        return self.expected("end of print statement");
                    }
                    self.next();
                }
                Tok::BlockBegin => {
                    self.next();
                    if let Tok::Name(name) = self.current()
                        && ends.contains(&name.as_str())
                    {
                        break;
                    }
                    let statement = self.statement()?;
                    body.extend(statement);
                    self.expect_block_end()?;
                }
                _ => break,
            }
        }
        if !ends.is_empty() {
            self.end_tags.pop();
        }
        self.leave_level();
        Ok(body)
    }

    /// The body of a statement after its opening tag, and the tag that ended it.
    fn statements(&mut self, ends: &'static [&'static str]) -> ParseResult<(Vec<Stmt>, String)> {
        self.skip_op(":");
        self.expect_block_end()?;
        let body = self.body(ends)?;
        match self.next() {
            Tok::Name(end) => Ok((body, end)),
            _ => {
                self.end_tags.push(ends);
                self.unexpected_tag(None)
            }
        }
    }

    fn statements_until(&mut self, ends: &'static [&'static str]) -> ParseResult<Vec<Stmt>> {
        Ok(self.statements(ends)?.0)
    }

    /// The error for a misplaced tag or for the end of the template.
    fn unexpected_tag<T>(&self, name: Option<&str>) -> ParseResult<T> {
        let mut message = match name {
            None => "Unexpected end of template.".to_owned(),
            Some(name) => format!("Encountered unknown tag '{name}'."),
        };
        if let Some(ends) = self.end_tags.last() {
            let looking: Vec<String> = ends.iter().map(|end| format!("'{end}'")).collect();
            let looking = looking.join(" or ");
            let is_expected =
                name.is_some_and(|name| self.end_tags.iter().any(|ends| ends.contains(&name)));
            message += &if is_expected {
                format!(
                    " You probably made a nesting mistake. Jinja is expecting this tag, but \
                     currently looking for {looking}."
                )
            } else {
                format!(" Jinja was looking for the following tags: {looking}.")
            };
        }
        if let Some((_, open)) = self.open_tags.last() {
            message += &format!(" The innermost block that needs to be closed is '{open}'.");
        }
        self.fail(message)
    }

    fn statement(&mut self) -> ParseResult<Vec<Stmt>> {
        let Tok::Name(tag) = self.current().clone() else {
            return self.fail("tag name expected");
        };
        let line = self.line();
        let parse: fn(&mut Parser, usize) -> ParseResult<Stmt> = match tag.as_str() {
            "for" => Parser::for_statement,
            "if" => Parser::if_statement,
            "block" => Parser::block_statement,
            "extends" => Parser::extends_statement,
            "print" => Parser::print_statement,
            "macro" => Parser::macro_statement,
            "include" => Parser::include_statement,
            "from" => Parser::import_names_statement,
            "import" => Parser::import_statement,
            "set" => Parser::set_statement,
            "with" => Parser::with_statement,
            "autoescape" => Parser::autoescape_statement,
            "call" => Parser::call_statement,
            "filter" => Parser::filter_statement,
            _ => return self.unexpected_tag(Some(&tag)),
        };
        self.open_tags.push((line, tag));
        self.next();
        let statement = parse(self, line)?;
        self.open_tags.pop();
        Ok(vec![statement])
    }

    fn for_statement(&mut self, _: usize) -> ParseResult<Stmt> {
        let target = self.target(&["in"])?;
        self.expect_name("in")?;
        let iterable = self.tuple(false, &["recursive"])?;
        let test = if self.skip_name("if") { Some(self.expression()?) } else { None };
        let recursive = self.skip_name("recursive");
        let (body, end) = self.statements(&["endfor", "else"])?;
        let otherwise =
            if end == "endfor" { Vec::new() } else { self.statements_until(&["endfor"])? };
        Ok(Stmt::For(Rc::new(For {
            target,
            iterable,
            test,
            recursive,
            body,
            otherwise,
            loads: OnceCell::new(),
            test_loads: OnceCell::new(),
            otherwise_loads: OnceCell::new(),
        })))
    }

    fn if_statement(&mut self, _: usize) -> ParseResult<Stmt> {
        let mut branches = Vec::new();
        loop {
            let test = self.tuple(false, &[])?;
            let (body, end) = self.statements(&["elif", "else", "endif"])?;
            branches.push((test, body));
            let otherwise = match end.as_str() {
                "elif" => continue,
                "else" => self.statements_until(&["endif"])?,
                _ => Vec::new(),
            };
            return Ok(Stmt::If { branches, otherwise });
        }
    }

    fn block_statement(&mut self, _: usize) -> ParseResult<Stmt> {
        let name = self.name()?;
        let scoped = self.skip_name("scoped");
        let required = self.skip_name("required");
        if self.is_op("-") {
            return self.fail(
                "Block names in Jinja have to be valid Python identifiers and may not contain \
                 hyphens, use an underscore instead.",
            );
        }
        let body = self.statements_until(&["endblock"])?;
        let is_blank = |stmt: &Stmt| matches!(stmt, Stmt::Data(text) if text.chars().all(orrery_python::is_space));
        if required && !body.iter().all(is_blank) {
            return self.fail("Required blocks can only contain comments or whitespace");
        }
        self.skip_name(&name);
        if self.blocks.iter().any(|block| block.name == name) {
            return Err(TemplateSyntaxError::assertion(format!("block '{name}' defined twice")));
        }
        let (source, loads) = (self.source.clone(), OnceCell::new());
        let block = Rc::new(Block { source, name, scoped, required, body, loads });
        self.blocks.push(block.clone());
        Ok(Stmt::Block(block))
    }

    fn extends_statement(&mut self, _: usize) -> ParseResult<Stmt> {
        Ok(Stmt::Extends { template: self.expression()? })
    }

    fn print_statement(&mut self, _: usize) -> ParseResult<Stmt> {
        let mut values = Vec::new();
        while *self.current() != Tok::BlockEnd {
            if !values.is_empty() {
                self.expect_op(",")?;
            }
            values.push(self.expression()?);
        }
        Ok(Stmt::Output(values))
    }

    fn macro_statement(&mut self, _: usize) -> ParseResult<Stmt> {
        let name = self.target_name()?;
        let (params, defaults) = self.signature()?;
        let from = self.at;
        let body = self.statements_until(&["endmacro"])?;
        Ok(Stmt::Macro(name, self.macro_definition(params, defaults, body, from)))
    }

    fn macro_definition(
        &self,
        params: Vec<Rc<str>>,
        defaults: Vec<Expr>,
        body: Vec<Stmt>,
        from: usize,
    ) -> Rc<MacroDef> {
        let mentions = |name: &str| {
            let tokens = &self.tokens[from..self.at];
            tokens.iter().any(|token| matches!(&token.tok, Tok::Name(found) if found == name))
        };
        Rc::new(MacroDef {
            uses_varargs: mentions("varargs"),
            uses_kwargs: mentions("kwargs"),
            uses_caller: mentions("caller"),
            params,
            defaults,
            body,
            loads: OnceCell::new(),
        })
    }

    fn signature(&mut self) -> ParseResult<(Vec<Rc<str>>, Vec<Expr>)> {
        let (mut params, mut defaults) = (Vec::new(), Vec::new());
        self.expect_op("(")?;
        while !self.is_op(")") {
            if !params.is_empty() {
                self.expect_op(",")?;
            }
            params.push(self.target_name()?);
            if self.skip_op("=") {
                defaults.push(self.expression()?);
            } else if !defaults.is_empty() {
                return self.fail("non-default argument follows default argument");
            }
        }
        self.expect_op(")")?;
        Ok((params, defaults))
    }

    fn call_statement(&mut self, _: usize) -> ParseResult<Stmt> {
        let (params, defaults) =
            if self.is_op("(") { self.signature()? } else { (Vec::new(), Vec::new()) };
        let call = self.expression()?;
        let Kind::Call(..) = call.kind else {
            return self.fail("expected call");
        };
        let from = self.at;
        let body = self.statements_until(&["endcall"])?;
        Ok(Stmt::Call { call, body: self.macro_definition(params, defaults, body, from) })
    }

    fn filter_statement(&mut self, line: usize) -> ParseResult<Stmt> {
        let first = self.filter(None, line)?;
        let filter = self.filters(first)?;
        let body = self.statements_until(&["endfilter"])?;
        Ok(Stmt::Filter { filter, body, loads: OnceCell::new() })
    }

    fn set_statement(&mut self, line: usize) -> ParseResult<Stmt> {
        let target = match (self.current(), self.peek()) {
            (Tok::Name(_), Tok::Op(".")) => {
                let namespace = self.name()?;
                self.next();
                Target::Attribute(namespace, self.name()?)
            }
            _ => self.target(&[])?,
        };
        if self.skip_op("=") {
            return Ok(Stmt::Set { target, value: self.tuple(true, &[])? });
        }
        let filter = if self.skip_op("|") {
            let first = self.filter(None, line)?;
            Some(self.filters(first)?)
        } else {
            None
        };
        let body = self.statements_until(&["endset"])?;
        Ok(Stmt::SetBlock { target, filter, body, loads: OnceCell::new() })
    }

    fn with_statement(&mut self, _: usize) -> ParseResult<Stmt> {
        let mut values = Vec::new();
        while *self.current() != Tok::BlockEnd {
            if !values.is_empty() {
                self.expect_op(",")?;
            }
            let target = self.target(&[])?;
            self.expect_op("=")?;
            values.push((target, self.expression()?));
        }
        let body = self.statements_until(&["endwith"])?;
        Ok(Stmt::With { values, body, loads: OnceCell::new() })
    }

    fn autoescape_statement(&mut self, _: usize) -> ParseResult<Stmt> {
        let enabled = self.expression()?;
        let body = self.statements_until(&["endautoescape"])?;
        Ok(Stmt::Autoescape { enabled, body, loads: OnceCell::new() })
    }

    pub(crate) fn target_name(&mut self) -> ParseResult<Rc<str>> {
        let name = self.name()?;
        if let "true" | "false" | "True" | "False" | "none" | "None" = &*name {
            return self.fail("can't assign to 'name'");
        }
        Ok(name)
    }

    /// Parses an assignment target: one name or several.
    fn target(&mut self, ends: &[&str]) -> ParseResult<Target> {
        let mut targets = Vec::new();
        let mut is_tuple = false;
        loop {
            let at_end = matches!(self.current(), Tok::VariableEnd | Tok::BlockEnd)
                || self.is_op(")")
                || ends.iter().any(|end| self.is_name(end));
            if at_end {
                break;
            }
            let part = self.primary()?;
            targets.push(self.as_target(part)?);
            if !self.is_op(",") {
                break;
            }
            is_tuple = true;
            self.next();
        }
        if is_tuple {
            return Ok(Target::Tuple(targets));
        }
        match targets.pop() {
            Some(target) => Ok(target),
            None => {
                let got = self.current().describe();
                self.fail(format!("Expected an expression, got '{got}'"))
            }
        }
    }

    fn as_target(&self, expr: Expr) -> ParseResult<Target> {
        let class = match expr.kind {
            Kind::Name(name) => return Ok(Target::Name(name)),
            Kind::Tuple(parts) => {
                let parts = parts.into_iter().map(|part| self.as_target(part));
                return Ok(Target::Tuple(parts.collect::<ParseResult<_>>()?));
            }
            Kind::List(_) => "list",
            Kind::Dict(_) => "dict",
            _ => "const",
        };
        self.fail(format!("can't assign to '{class}'"))
    }
}
