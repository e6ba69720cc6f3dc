//! Expressions of a template, by precedence from the weakest to the strongest operator.

use std::rc::Rc;

use super::ast::{Args, Binary, Comparison, Expr, Kind};
use super::lexer::Tok;
use super::parser::{ParseResult, Parser};

/// Maximum height of an expression, for example of a sum of that many numbers.
const HEIGHT_MAX: usize = 500;

impl Parser {
    /// Builds an expression over its parsed subexpressions.
    fn node(&self, kind: Kind, line: usize) -> ParseResult<Expr> {
        let expr = Expr::new(kind, line);
        if expr.height > HEIGHT_MAX {
            return self.fail("the template is nested too deeply");
        }
        Ok(expr)
    }

    /// One expression, or several separated by commas, which form a tuple.
    pub(crate) fn tuple(&mut self, with_conditional: bool, ends: &[&str]) -> ParseResult<Expr> {
        self.tuple_or_nothing(with_conditional, ends, false)
    }

    fn tuple_or_nothing(
        &mut self,
        with_conditional: bool,
        ends: &[&str],
        may_be_empty: bool,
    ) -> ParseResult<Expr> {
        let line = self.line();
        let mut parts = Vec::new();
        let mut is_tuple = false;
        loop {
            let at_end = matches!(self.current(), Tok::VariableEnd | Tok::BlockEnd)
                || self.is_op(")")
                || ends.iter().any(|end| self.is_name(end));
            if at_end {
                break;
            }
            parts.push(if with_conditional { self.expression()? } else { self.or_expression()? });
            if !self.is_op(",") {
                break;
            }
            is_tuple = true;
            self.next();
        }
        if !is_tuple {
            if let Some(only) = parts.pop() {
                return Ok(only);
            }
            if !may_be_empty {
                let got = self.current().describe();
                return self.fail(format!("Expected an expression, got '{got}'"));
            }
        }
        self.node(Kind::Tuple(parts), line)
    }

    pub(crate) fn expression(&mut self) -> ParseResult<Expr> {
        self.enter_level()?;
        let line = self.line();
        let mut value = self.or_expression()?;
        while self.skip_name("if") {
            let test = Box::new(self.or_expression()?);
            let otherwise =
                if self.skip_name("else") { Some(Box::new(self.expression()?)) } else { None };
            let kind = Kind::Conditional { test, then: Box::new(value), otherwise };
            value = self.node(kind, line)?;
        }
        self.leave_level();
        Ok(value)
    }

    fn or_expression(&mut self) -> ParseResult<Expr> {
        let mut left = self.and_expression()?;
        while self.skip_name("or") {
            let line = left.line;
            let right = self.and_expression()?;
            left = self.node(Kind::Or(Box::new(left), Box::new(right)), line)?;
        }
        Ok(left)
    }

    fn and_expression(&mut self) -> ParseResult<Expr> {
        let mut left = self.not_expression()?;
        while self.skip_name("and") {
            let line = left.line;
            let right = self.not_expression()?;
            left = self.node(Kind::And(Box::new(left), Box::new(right)), line)?;
        }
        Ok(left)
    }

    fn not_expression(&mut self) -> ParseResult<Expr> {
        let line = self.line();
        if self.skip_name("not") {
            self.enter_level()?;
            let value = self.not_expression()?;
            self.leave_level();
            return self.node(Kind::Not(Box::new(value)), line);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> ParseResult<Expr> {
        let first = self.sum()?;
        let line = first.line;
        let mut rest = Vec::new();
        loop {
            let operator = match self.current() {
                Tok::Op("==") => Comparison::Equal,
                Tok::Op("!=") => Comparison::NotEqual,
                Tok::Op("<") => Comparison::Less,
                Tok::Op("<=") => Comparison::LessOrEqual,
                Tok::Op(">") => Comparison::Greater,
                Tok::Op(">=") => Comparison::GreaterOrEqual,
                Tok::Name(name) if name == "in" => Comparison::In,
                Tok::Name(name)
                    if name == "not" && matches!(self.peek(), Tok::Name(next) if next == "in") =>
                {
                    self.next();
                    Comparison::NotIn
                }
                _ => break,
            };
            self.next();
            rest.push((operator, self.sum()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        self.node(Kind::Compare(Box::new(first), rest), line)
    }

    fn binary(
        &mut self,
        operators: &[(&str, Binary)],
        operand: fn(&mut Parser) -> ParseResult<Expr>,
    ) -> ParseResult<Expr> {
        let mut left = operand(self)?;
        loop {
            let found = operators.iter().find(|(symbol, _)| self.is_op(symbol));
            let Some(&(_, operator)) = found else {
                return Ok(left);
            };
            self.next();
            let line = left.line;
            let right = operand(self)?;
            left = self.node(Kind::Binary(operator, Box::new(left), Box::new(right)), line)?;
        }
    }

    fn sum(&mut self) -> ParseResult<Expr> {
        self.binary(&[("+", Binary::Add), ("-", Binary::Sub)], Parser::concatenation)
    }

    fn concatenation(&mut self) -> ParseResult<Expr> {
        let first = self.product()?;
        if !self.is_op("~") {
            return Ok(first);
        }
        let line = first.line;
        let mut parts = vec![first];
        while self.skip_op("~") {
            parts.push(self.product()?);
        }
        self.node(Kind::Concat(parts), line)
    }

    fn product(&mut self) -> ParseResult<Expr> {
        let operators =
            [("*", Binary::Mul), ("/", Binary::Div), ("//", Binary::FloorDiv), ("%", Binary::Mod)];
        self.binary(&operators, Parser::power)
    }

    fn power(&mut self) -> ParseResult<Expr> {
        self.binary(&[("**", Binary::Pow)], |parser| parser.unary(true))
    }

    fn unary(&mut self, with_filter: bool) -> ParseResult<Expr> {
        let line = self.line();
        let value = if self.skip_op("-") {
            self.signed(Kind::Negative, line)?
        } else if self.skip_op("+") {
            self.signed(Kind::Positive, line)?
        } else {
            self.primary()?
        };
        let value = self.postfix(value)?;
        if with_filter { self.filters(value) } else { Ok(value) }
    }

    fn signed(&mut self, sign: fn(Box<Expr>) -> Kind, line: usize) -> ParseResult<Expr> {
        self.enter_level()?;
        let value = self.unary(false)?;
        self.leave_level();
        self.node(sign(Box::new(value)), line)
    }

    pub(crate) fn primary(&mut self) -> ParseResult<Expr> {
        let line = self.line();
        let kind = match self.current().clone() {
            Tok::Name(name) => {
                self.next();
                match name.as_str() {
                    "true" | "True" => Kind::Bool(true),
                    "false" | "False" => Kind::Bool(false),
                    "none" | "None" => Kind::None,
                    name => Kind::Name(name.into()),
                }
            }
            Tok::Str(_) => {
                let mut text = String::new();
                while let Tok::Str(part) = self.current() {
                    text.push_str(part);
                    self.next();
                }
                Kind::Str(text.into())
            }
            Tok::Int(int) => {
                self.next();
                Kind::Int(int)
            }
            Tok::Float(float) => {
                self.next();
                Kind::Float(float)
            }
            Tok::Op("(") => {
                self.next();
                self.enter_level()?;
                let inner = self.tuple_or_nothing(true, &[], true)?;
                self.leave_level();
                self.expect_op(")")?;
                return Ok(inner);
            }
            Tok::Op("[") => Kind::List(self.list()?),
            Tok::Op("{") => Kind::Dict(self.dict()?),
            other => return self.fail(format!("unexpected '{}'", other.describe())),
        };
        self.node(kind, line)
    }

    fn list(&mut self) -> ParseResult<Vec<Expr>> {
        self.next();
        let mut items = Vec::new();
        while !self.is_op("]") {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if self.is_op("]") {
                break;
            }
            items.push(self.expression()?);
        }
        self.expect_op("]")?;
        Ok(items)
    }

    fn dict(&mut self) -> ParseResult<Vec<(Expr, Expr)>> {
        self.next();
        let mut items = Vec::new();
        while !self.is_op("}") {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if self.is_op("}") {
                break;
            }
            let key = self.expression()?;
            self.expect_op(":")?;
            items.push((key, self.expression()?));
        }
        self.expect_op("}")?;
        Ok(items)
    }

    fn postfix(&mut self, mut value: Expr) -> ParseResult<Expr> {
        loop {
            let line = self.line();
            let kind = if self.skip_op(".") {
                match self.next() {
                    Tok::Name(name) => Kind::Attribute(Box::new(value), name.into()),
                    Tok::Int(int) => {
                        let index = Box::new(Expr::new(Kind::Int(int), line));
                        Kind::Item(Box::new(value), index)
                    }
                    _ => return self.fail("expected name or number"),
                }
            } else if self.is_op("[") {
                let index = self.subscript()?;
                Kind::Item(Box::new(value), Box::new(index))
            } else if self.is_op("(") {
                Kind::Call(Box::new(value), self.arguments()?)
            } else {
                return Ok(value);
            };
            value = self.node(kind, line)?;
        }
    }

    fn subscript(&mut self) -> ParseResult<Expr> {
        let line = self.line();
        self.next();
        let mut parts = Vec::new();
        while !self.is_op("]") {
            if !parts.is_empty() {
                self.expect_op(",")?;
            }
            parts.push(self.subscribed()?);
        }
        self.expect_op("]")?;
        match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => self.node(Kind::Tuple(parts), line),
        }
    }

    fn subscribed(&mut self) -> ParseResult<Expr> {
        let line = self.line();
        let start = if self.is_op(":") {
            None
        } else {
            let index = self.expression()?;
            if !self.is_op(":") {
                return Ok(index);
            }
            Some(index)
        };
        self.next();
        let bound = |parser: &mut Parser| -> ParseResult<Option<Expr>> {
            let is_absent = parser.is_op(":") || parser.is_op("]") || parser.is_op(",");
            if is_absent { Ok(None) } else { parser.expression().map(Some) }
        };
        let stop = bound(self)?;
        let step = if self.skip_op(":") { bound(self)? } else { None };
        self.node(Kind::Slice(Box::new([start, stop, step])), line)
    }

    fn arguments(&mut self) -> ParseResult<Args> {
        let mut args = Args::default();
        let mut is_first = true;
        self.next();
        while !self.is_op(")") {
            if !is_first {
                self.expect_op(",")?;
                if self.is_op(")") {
                    break;
                }
            }
            is_first = false;
            let is_named = matches!((self.current(), self.peek()), (Tok::Name(_), Tok::Op("=")));
            let fits = if self.skip_op("*") {
                let fits = args.rest.is_none() && args.rest_named.is_none();
                args.rest = Some(Box::new(self.expression()?));
                fits
            } else if self.skip_op("**") {
                let fits = args.rest_named.is_none();
                args.rest_named = Some(Box::new(self.expression()?));
                fits
            } else if is_named {
                let fits = args.rest_named.is_none();
                let name = self.name()?;
                self.next();
                args.named.push((name, self.expression()?));
                fits
            } else {
                let fits =
                    args.rest.is_none() && args.rest_named.is_none() && args.named.is_empty();
                if fits {
                    args.positional.push(self.expression()?);
                }
                fits
            };
            if !fits {
                return self.fail("invalid syntax for function call expression");
            }
        }
        self.expect_op(")")?;
        Ok(args)
    }

    /// Filters, tests and calls after an expression.
    pub(crate) fn filters(&mut self, mut value: Expr) -> ParseResult<Expr> {
        loop {
            let line = self.line();
            value = if self.skip_op("|") {
                self.filter(Some(Box::new(value)), line)?
            } else if self.is_name("is") {
                self.test(value, line)?
            } else if self.is_op("(") {
                let args = self.arguments()?;
                self.node(Kind::Call(Box::new(value), args), line)?
            } else {
                return Ok(value);
            };
        }
    }

    fn dotted_name(&mut self) -> ParseResult<Rc<str>> {
        let mut name = self.name()?.to_string();
        while self.skip_op(".") {
            name.push('.');
            name.push_str(&self.name()?);
        }
        Ok(name.into())
    }

    pub(crate) fn filter(&mut self, value: Option<Box<Expr>>, line: usize) -> ParseResult<Expr> {
        let name = self.dotted_name()?;
        let args = if self.is_op("(") { self.arguments()? } else { Args::default() };
        self.node(Kind::Filter { value, name, args }, line)
    }

    fn test(&mut self, value: Expr, line: usize) -> ParseResult<Expr> {
        self.next();
        let is_negated = self.skip_name("not");
        let name = self.dotted_name()?;
        let mut args = Args::default();
        if self.is_op("(") {
            args = self.arguments()?;
        } else {
            let may_be_argument = match self.current() {
                Tok::Name(name) => !matches!(name.as_str(), "else" | "or" | "and"),
                Tok::Str(_) | Tok::Int(_) | Tok::Float(_) => true,
                Tok::Op(op) => matches!(*op, "[" | "{"),
                _ => false,
            };
            if may_be_argument {
                if self.is_name("is") {
                    return self.fail("You cannot chain multiple tests with is");
                }
                let argument = self.primary()?;
                args.positional.push(self.postfix(argument)?);
            }
        }
        let test = self.node(Kind::Test { value: Box::new(value), name, args }, line)?;
        if is_negated { self.node(Kind::Not(Box::new(test)), line) } else { Ok(test) }
    }
}
