//! Checks the names of filters and tests before rendering.
//!
//! Jinja looks them up when it compiles, except in branches of conditions, where a missing one is
//! only an error once it is reached.

use super::filters::{FILTERS, REFUSED_FILTERS};
use super::tests::TESTS;
use crate::error::{TemplateError, TemplateSyntaxError};
use crate::model::ModelAccess;
use crate::syntax::ast::{Args, Expr, Kind, MacroDef, Stmt, Template};

/// Checks the filters and tests that a template names against Jinja's and the model's.
///
/// # Errors
/// If it names one that does not exist, or a feature that only Jinja2 supports.
pub fn check<M: ModelAccess>(template: &Template, model: &M) -> Result<(), TemplateError> {
    let checker = Checker { model, template };
    checker.statements(&template.body, false)
}

pub(super) fn has_filter<M: ModelAccess>(name: &str, model: &M) -> bool {
    debug_assert!(FILTERS.is_sorted(), "names of filters are searched by halves");
    FILTERS.binary_search(&name).is_ok()
        || REFUSED_FILTERS.contains(&name)
        || (name.contains('.') && model.has_filter(name))
}

/// The error for a feature that only Python supports.
pub(super) fn unsupported(what: &str, line: usize) -> TemplateError {
    TemplateError::Unsupported { feature: what.to_owned(), line }
}

struct Checker<'a, M> {
    model: &'a M,
    template: &'a Template,
}

type CheckResult = Result<(), TemplateError>;

impl<M: ModelAccess> Checker<'_, M> {
    fn statements(&self, statements: &[Stmt], soft: bool) -> CheckResult {
        statements.iter().try_for_each(|statement| self.statement(statement, soft))
    }

    fn statement(&self, statement: &Stmt, soft: bool) -> CheckResult {
        match statement {
            Stmt::Data(_) => Ok(()),
            Stmt::Output(values) => self.all(values, soft),
            Stmt::For(each) => {
                self.expr(&each.iterable, soft)?;
                self.all(&each.test, false)?;
                self.statements(&each.body, false)?;
                self.statements(&each.otherwise, false)
            }
            Stmt::If { branches, otherwise } => {
                for (test, body) in branches {
                    self.expr(test, true)?;
                    self.statements(body, true)?;
                }
                self.statements(otherwise, true)
            }
            Stmt::Macro(_, definition) => self.definition(definition),
            Stmt::Call { call, body } => {
                self.definition(body)?;
                self.expr(call, soft)
            }
            Stmt::Filter { filter, body, .. } => {
                self.statements(body, false)?;
                self.expr(filter, false)
            }
            Stmt::Set { value, .. } => self.expr(value, soft),
            Stmt::SetBlock { filter, body, .. } => {
                self.statements(body, false)?;
                self.all(filter, false)
            }
            Stmt::With { values, body, .. } => {
                values.iter().try_for_each(|(_, value)| self.expr(value, soft))?;
                self.statements(body, false)
            }
            Stmt::Block(block) => self.statements(&block.body, false),
            Stmt::Extends { template }
            | Stmt::Include { template, .. }
            | Stmt::Import { template, .. }
            | Stmt::FromImport { template, .. } => self.expr(template, soft),
            Stmt::Autoescape { enabled, body, .. } => {
                if !matches!(enabled.kind, Kind::Bool(false)) {
                    return Err(unsupported("automatic escaping", enabled.line));
                }
                self.statements(body, soft)
            }
        }
    }

    /// The failure for an undefined filter or test.
    fn unknown(&self, message: String, line: usize) -> TemplateError {
        let error = TemplateSyntaxError::assertion(message).at(line);
        TemplateError::Syntax(Box::new(error), self.template.source.clone())
    }

    fn definition(&self, definition: &MacroDef) -> CheckResult {
        self.all(&definition.defaults, false)?;
        self.statements(&definition.body, false)
    }

    fn all<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>, soft: bool) -> CheckResult {
        exprs.into_iter().try_for_each(|expr| self.expr(expr, soft))
    }

    fn args(&self, args: &Args, soft: bool) -> CheckResult {
        self.all(&args.positional, soft)?;
        args.named.iter().try_for_each(|(_, value)| self.expr(value, soft))?;
        self.all(args.rest.as_deref(), soft)?;
        self.all(args.rest_named.as_deref(), soft)
    }

    fn expr(&self, expr: &Expr, soft: bool) -> CheckResult {
        match &expr.kind {
            Kind::None
            | Kind::Bool(_)
            | Kind::Int(_)
            | Kind::Float(_)
            | Kind::Str(_)
            | Kind::Name(_) => Ok(()),
            Kind::Tuple(parts) | Kind::List(parts) | Kind::Concat(parts) => self.all(parts, soft),
            Kind::Dict(entries) => entries.iter().try_for_each(|(key, value)| {
                self.expr(key, soft)?;
                self.expr(value, soft)
            }),
            Kind::Attribute(value, _)
            | Kind::Not(value)
            | Kind::Negative(value)
            | Kind::Positive(value) => self.expr(value, soft),
            Kind::Item(left, right)
            | Kind::Binary(_, left, right)
            | Kind::And(left, right)
            | Kind::Or(left, right) => {
                self.expr(left, soft)?;
                self.expr(right, soft)
            }
            Kind::Slice(parts) => self.all(parts.iter().flatten(), soft),
            Kind::Call(function, args) => {
                self.expr(function, soft)?;
                self.args(args, soft)
            }
            Kind::Filter { value, name, args } => {
                if REFUSED_FILTERS.contains(&&**name) {
                    return Err(unsupported(&format!("the filter `{name}`"), expr.line));
                }
                if !soft && !has_filter(name, self.model) {
                    let message = format!("No filter named '{name}'.");
                    return Err(self.unknown(message, expr.line));
                }
                self.all(value.as_deref(), soft)?;
                self.args(args, soft)
            }
            Kind::Test { value, name, args } => {
                if !soft && !TESTS.contains(&&**name) {
                    let message = format!("No test named '{name}'.");
                    return Err(self.unknown(message, expr.line));
                }
                self.expr(value, soft)?;
                self.args(args, soft)
            }
            Kind::Compare(first, rest) => {
                self.expr(first, soft)?;
                rest.iter().try_for_each(|(_, operand)| self.expr(operand, soft))
            }
            Kind::Conditional { test, then, otherwise } => {
                self.expr(test, true)?;
                self.expr(then, true)?;
                self.all(otherwise.as_deref(), true)
            }
        }
    }
}
