//! Expressions: names, operators, calls of macros, methods, globals, filters and plugins.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use indexmap::IndexMap;
use orrery_python::Int;

use super::operators::type_error;
use super::render::{CALL_COST, RenderResult, Renderer, template_error};
use super::scope::Scope;
use super::value::{Cycler, Joiner, Key, Macro, Val};
use crate::error::{TemplateError, UndefinedName};
use crate::model::ModelAccess;
use crate::syntax::ast::{Args, Comparison, Expr, Kind, MacroDef};

/// Arguments of a call, evaluated.
#[derive(Clone, Default)]
pub(super) struct CallArgs {
    pub(super) positional: Vec<Val>,
    pub(super) named: Vec<(Rc<str>, Val)>,
}

impl CallArgs {
    /// The arguments in the order of the parameters; `None` if they do not fit.
    pub(super) fn bound<const N: usize>(self, params: [&str; N]) -> Option<[Option<Val>; N]> {
        let mut bound = [const { None }; N];
        if self.positional.len() > N {
            return None;
        }
        for (slot, value) in bound.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.named {
            let at = params.iter().position(|param| *param == &*name)?;
            if bound[at].replace(value).is_some() {
                return None;
            }
        }
        Some(bound)
    }
}

impl<M: ModelAccess> Renderer<'_, M> {
    pub(super) fn eval(&mut self, expr: &Expr, scope: &Rc<Scope>) -> RenderResult<Val> {
        let outcome = self.with_deeper_stack(1, |renderer| renderer.eval_here(expr, scope));
        self.record_failure(outcome)
    }

    fn eval_here(&mut self, expr: &Expr, scope: &Rc<Scope>) -> RenderResult<Val> {
        self.line.set(expr.line);
        Ok(match &expr.kind {
            Kind::None => Val::None,
            Kind::Bool(bool) => Val::Bool(*bool),
            Kind::Int(int) => Val::Int(int.clone()),
            Kind::Float(float) => Val::Float(*float),
            Kind::Str(text) => Val::Str(text.clone()),
            Kind::Name(name) => self.name(name, scope)?,
            Kind::Tuple(parts) => Val::tuple(self.all(parts, scope)?),
            Kind::List(parts) => Val::list(self.all(parts, scope)?),
            Kind::Dict(entries) => {
                let mut dict = IndexMap::new();
                for (key, value) in entries {
                    let key = self.eval(key, scope)?;
                    let value = self.eval(value, scope)?;
                    insert(&mut dict, self.key(&key)?, value);
                }
                Val::Dict(Rc::new(RefCell::new(dict)))
            }
            Kind::Attribute(value, name) => {
                let value = self.eval(value, scope)?;
                self.attribute(&value, name)?
            }
            Kind::Item(value, key) => {
                let value = self.eval(value, scope)?;
                if let Kind::Slice(bounds) = &key.kind {
                    let mut evaluated = [Val::None, Val::None, Val::None];
                    for (slot, bound) in evaluated.iter_mut().zip(bounds.iter()) {
                        if let Some(bound) = bound {
                            *slot = self.eval(bound, scope)?;
                        }
                    }
                    return self.slice(&value, &evaluated);
                }
                let key = self.eval(key, scope)?;
                self.item(&value, &key)?
            }
            Kind::Slice(_) => return Err(self.unsupported("a slice outside of brackets")),
            Kind::Call(function, args) => {
                let function = self.eval(function, scope)?;
                let given = self.arguments(args, scope)?;
                self.call(&function, given)?
            }
            Kind::Filter { value, name, args } => {
                let value = match value {
                    Some(value) => self.eval(value, scope)?,
                    None => Val::None,
                };
                let given = self.arguments(args, scope)?;
                self.line.set(expr.line);
                self.filter(name, value, given)?
            }
            Kind::Test { value, name, args } => {
                let value = self.eval(value, scope)?;
                let given = self.arguments(args, scope)?;
                self.line.set(expr.line);
                Val::Bool(self.test(name, &value, given)?)
            }
            Kind::Not(value) => {
                let value = self.eval(value, scope)?;
                Val::Bool(!self.truth(&value)?)
            }
            Kind::Negative(value) => {
                let value = self.eval(value, scope)?;
                self.signed(value, "-")?
            }
            Kind::Positive(value) => {
                let value = self.eval(value, scope)?;
                self.signed(value, "+")?
            }
            Kind::Binary(operator, left, right) => {
                let left = self.eval(left, scope)?;
                let right = self.eval(right, scope)?;
                self.binary(*operator, &left, &right)?
            }
            Kind::And(left, right) => {
                let left = self.eval(left, scope)?;
                if self.truth(&left)? { self.eval(right, scope)? } else { left }
            }
            Kind::Or(left, right) => {
                let left = self.eval(left, scope)?;
                if self.truth(&left)? { left } else { self.eval(right, scope)? }
            }
            Kind::Concat(parts) => {
                let mut text = String::new();
                for part in self.all(parts, scope)? {
                    text.push_str(&self.text(&part)?);
                }
                Val::str(text)
            }
            Kind::Compare(first, rest) => self.comparison(first, rest, scope)?,
            Kind::Conditional { test, then, otherwise } => {
                let test = self.eval(test, scope)?;
                if self.truth(&test)? {
                    self.eval(then, scope)?
                } else if let Some(otherwise) = otherwise {
                    self.eval(otherwise, scope)?
                } else {
                    Val::lenient(format!(
                        "the inline if-expression on line {} in '{}' evaluated to false and no else \
                         section was defined.",
                        expr.line, self.template_name
                    ))
                }
            }
        })
    }

    fn all(&mut self, exprs: &[Expr], scope: &Rc<Scope>) -> RenderResult<Vec<Val>> {
        exprs.iter().map(|expr| self.eval(expr, scope)).collect()
    }

    /// Resolves a name: template variables, then the model's, then Jinja's.
    pub(super) fn name(&mut self, name: &Rc<str>, scope: &Scope) -> RenderResult<Val> {
        if let Some(value) = scope.get(name) {
            return Ok(value);
        }
        if &**name == "self" {
            return Ok(Val::Blocks);
        }
        self.model_or_global(name)
    }

    /// Resolves a name that the template does not define.
    pub(super) fn model_or_global(&mut self, name: &Rc<str>) -> RenderResult<Val> {
        if !self.sees_model {
            // The reference compiler looks for the model here and finds that it was not passed on.
            return Err(TemplateError::python("KeyError", "'{{resolver'"));
        }
        if let Some(known) = self.known.get(name) {
            return Ok(known.clone());
        }
        let found = self.model.variable(name)?.map(Val::from_item);
        if let Some(found) = found {
            let found = self.known_value(found)?;
            self.known.insert(name.clone(), found.clone());
            return Ok(found);
        }
        let globals = ["range", "dict", "namespace", "cycler", "joiner"];
        if let Some(global) = globals.iter().find(|global| **global == &**name) {
            return Ok(Val::Global(global));
        }
        if &**name == "lipsum" {
            return Err(self.unsupported("the function `lipsum`"));
        }
        let missing = UndefinedName { name: name.clone(), of: None };
        Ok(Val::missing(format!("'{name}' is undefined"), missing))
    }

    fn signed(&self, value: Val, sign: &str) -> RenderResult<Val> {
        self.require_defined(&value)?;
        Ok(match (value, sign) {
            (Val::Int(int), "-") => Val::Int(int.neg()),
            (Val::Bool(bool), "-") => Val::Int(Int::Small(-i64::from(bool))),
            (Val::Bool(bool), _) => Val::Int(Int::from(bool)),
            (Val::Float(float), "-") => Val::Float(-float),
            (number @ (Val::Int(_) | Val::Float(_)), _) => number,
            (other, sign) => {
                let class = other.class();
                return type_error(format!("bad operand type for unary {sign}: '{class}'"));
            }
        })
    }

    fn comparison(
        &mut self,
        first: &Expr,
        rest: &[(Comparison, Expr)],
        scope: &Rc<Scope>,
    ) -> RenderResult<Val> {
        let mut left = self.eval(first, scope)?;
        for (operator, right) in rest {
            let right = self.eval(right, scope)?;
            if !self.compare(*operator, &left, &right)? {
                return Ok(Val::Bool(false));
            }
            left = right;
        }
        Ok(Val::Bool(true))
    }

    pub(super) fn compare(
        &self,
        operator: Comparison,
        left: &Val,
        right: &Val,
    ) -> RenderResult<bool> {
        let (symbol, accepts): (&str, fn(std::cmp::Ordering) -> bool) = match operator {
            Comparison::Equal => return self.equal(left, right),
            Comparison::NotEqual => return Ok(!self.equal(left, right)?),
            Comparison::In => return self.contains(right, left),
            Comparison::NotIn => return Ok(!self.contains(right, left)?),
            Comparison::Less => ("<", std::cmp::Ordering::is_lt),
            Comparison::LessOrEqual => ("<=", std::cmp::Ordering::is_le),
            Comparison::Greater => (">", std::cmp::Ordering::is_gt),
            Comparison::GreaterOrEqual => (">=", std::cmp::Ordering::is_ge),
        };
        Ok(self.ordering(left, right, symbol)?.is_some_and(accepts))
    }

    pub(super) fn arguments(&mut self, args: &Args, scope: &Rc<Scope>) -> RenderResult<CallArgs> {
        let mut given =
            CallArgs { positional: self.all(&args.positional, scope)?, named: Vec::new() };
        for (name, value) in &args.named {
            given.named.push((name.clone(), self.eval(value, scope)?));
        }
        if let Some(rest) = &args.rest {
            let rest = self.eval(rest, scope)?;
            given.positional.extend(self.iterate(&rest)?);
        }
        if let Some(rest) = &args.rest_named {
            let rest = self.eval(rest, scope)?;
            self.require_defined(&rest)?;
            for key in self.iterate(&rest)? {
                let (Some(name), Some(value)) = (key.as_text(), self.plain_item(&rest, &key)?)
                else {
                    return type_error("keywords must be strings");
                };
                given.named.push((name.clone(), value));
            }
        }
        Ok(given)
    }

    /// Calls the callee of an expression, with the body of a `call` block as `caller`.
    pub(super) fn call_with_caller(
        &mut self,
        call: &Expr,
        scope: &Rc<Scope>,
        caller: Val,
    ) -> RenderResult<Val> {
        let Kind::Call(function, args) = &call.kind else {
            return Err(self.unsupported("a `call` block without a call"));
        };
        let function = self.eval(function, scope)?;
        let mut given = self.arguments(args, scope)?;
        given.named.push(("caller".into(), caller));
        self.call(&function, given)
    }

    /// Applies the filters of a filter block or of a `set` block, innermost first.
    pub(super) fn filtered(
        &mut self,
        filter: &Expr,
        text: Val,
        scope: &Rc<Scope>,
    ) -> RenderResult<Val> {
        let Kind::Filter { value, name, args } = &filter.kind else {
            return Err(self.unsupported("a block that is not filtered"));
        };
        let value = match value {
            Some(inner) => self.filtered(inner, text, scope)?,
            None => text,
        };
        let given = self.arguments(args, scope)?;
        self.filter(name, value, given)
    }

    pub(super) fn call(&mut self, function: &Val, given: CallArgs) -> RenderResult<Val> {
        self.require_defined(function)?;
        match function {
            Val::Macro(found) => self.call_macro(found, given),
            Val::Method(method) => self.call_method(&method.object, &method.name, given),
            Val::Global(name) => self.call_global(name, given),
            Val::Block(name, level) => Ok(Val::str(self.run_block(name, *level, None)?)),
            Val::Loop(state) => {
                let Some((each, scope)) = state.recursion.clone() else {
                    return type_error(
                        "The loop must have the 'recursive' marker to be called recursively.",
                    );
                };
                let Some([Some(iterable)]) = given.bound(["iterable"]) else {
                    return Err(self.unsupported("these arguments of a recursive loop"));
                };
                let mut out = String::new();
                let depth = state.depth + 1;
                self.with_deeper_stack(CALL_COST, |renderer| {
                    renderer.run_loop(&each, &iterable, depth, &scope, &mut out)
                })?;
                Ok(Val::str(out))
            }
            Val::Joiner(joiner) => {
                let is_first = !joiner.used.replace(true);
                Ok(if is_first { Val::str("") } else { Val::Str(joiner.separator.clone()) })
            }
            other => type_error(format!("'{}' object is not callable", other.class())),
        }
    }

    fn call_macro(&mut self, found: &Macro, given: CallArgs) -> RenderResult<Val> {
        let definition = found.definition.clone();
        let scope = Scope::inner(&found.scope);
        let CallArgs { positional, mut named } = given;
        let mut take = |name: &str| {
            let at = named.iter().position(|(found, _)| &**found == name)?;
            Some(named.remove(at).1)
        };
        let mut values = Vec::new();
        for (index, param) in definition.params.iter().enumerate() {
            values.push(positional.get(index).cloned().or_else(|| take(param)));
        }
        if definition.uses_caller {
            let caller = take("caller").unwrap_or_else(|| Val::undefined("No caller defined"));
            scope.set("caller".into(), caller);
        }
        let name = &found.name;
        if definition.uses_kwargs {
            let mut dict = IndexMap::new();
            for (name, value) in named.drain(..) {
                dict.insert(Key::text(&name), value);
            }
            scope.set("kwargs".into(), Val::Dict(Rc::new(RefCell::new(dict))));
        } else if let Some((first, _)) = named.first() {
            if named.iter().any(|(name, _)| &**name == "caller") {
                return type_error(format!(
                    "macro '{name}' was invoked with two values for the special caller argument. \
                     This is most likely a bug."
                ));
            }
            return type_error(format!("macro '{name}' takes no keyword argument '{first}'"));
        }
        let rest = positional.get(definition.params.len()..).unwrap_or_default();
        if definition.uses_varargs {
            scope.set("varargs".into(), Val::tuple(rest.to_vec()));
        } else if !rest.is_empty() {
            let count = definition.params.len();
            return type_error(format!("macro '{name}' takes not more than {count} argument(s)"));
        }
        let saw_model = std::mem::replace(&mut self.sees_model, found.sees_model);
        let template = std::mem::replace(&mut self.template_name, found.template.clone());
        let source = std::mem::replace(&mut self.source, found.source.clone());
        let text = self.with_deeper_stack(CALL_COST, |renderer| {
            renderer.run_macro(&definition, values, &scope)
        });
        self.template_name = template;
        self.source = source;
        self.sees_model = saw_model;
        Ok(Val::str(text?))
    }

    fn run_macro(
        &mut self,
        definition: &MacroDef,
        values: Vec<Option<Val>>,
        scope: &Rc<Scope>,
    ) -> RenderResult<String> {
        self.load_free_names(&definition.loads, scope)?;
        let first_default = definition.params.len() - definition.defaults.len();
        for (index, (param, value)) in definition.params.iter().zip(values).enumerate() {
            let value = match (value, index.checked_sub(first_default)) {
                (Some(value), _) => value,
                (None, Some(at)) => self.eval(&definition.defaults[at], scope)?,
                (None, None) => Val::undefined(format!("parameter '{param}' was not provided")),
            };
            scope.set(param.clone(), value);
        }
        self.buffered(&definition.body, scope)
    }

    fn call_global(&mut self, name: &str, given: CallArgs) -> RenderResult<Val> {
        match name {
            "range" => self.range(&given),
            "dict" | "namespace" => {
                let mut dict = IndexMap::new();
                for value in &given.positional {
                    for key in self.iterate(value)? {
                        let Some(item) = self.plain_item(value, &key)? else {
                            return Err(self.unsupported(&format!("`{name}` of a list of pairs")));
                        };
                        dict.insert(self.key(&key)?, item);
                    }
                }
                for (key, value) in given.named {
                    dict.insert(Key::text(&key), value);
                }
                if name == "dict" {
                    return Ok(Val::Dict(Rc::new(RefCell::new(dict))));
                }
                let named = dict.into_iter().filter_map(|(key, value)| {
                    key.value.as_text().map(|name| (name.clone(), value))
                });
                Ok(Val::Namespace(Rc::new(RefCell::new(named.collect()))))
            }
            "cycler" => {
                if given.positional.is_empty() {
                    return Err(TemplateError::python(
                        "RuntimeError",
                        "at least one item has to be provided",
                    ));
                }
                let position = Cell::new(0);
                Ok(Val::Cycler(Rc::new(Cycler { items: given.positional, position })))
            }
            _ => {
                let Some([separator]) = given.bound(["sep"]) else {
                    return Err(self.unsupported("these arguments of `joiner`"));
                };
                let separator = match separator {
                    Some(separator) => self.text(&separator)?,
                    None => ", ".into(),
                };
                Ok(Val::Joiner(Rc::new(Joiner { separator, used: Cell::new(false) })))
            }
        }
    }

    fn range(&self, given: &CallArgs) -> RenderResult<Val> {
        let mut bounds = Vec::new();
        for bound in &given.positional {
            self.require_defined(bound)?;
            bounds.push(match bound {
                Val::Int(int) => int.to_i64().unwrap_or(i64::MAX),
                Val::Bool(bool) => i64::from(*bool),
                other => {
                    let class = other.class();
                    return type_error(format!(
                        "'{class}' object cannot be interpreted as an integer"
                    ));
                }
            });
        }
        match bounds.as_slice() {
            [stop] => Ok(Val::Range(0, *stop, 1)),
            [start, stop] => Ok(Val::Range(*start, *stop, 1)),
            [_, _, 0] => Err(TemplateError::python("ValueError", "range() arg 3 must not be zero")),
            [start, stop, step] => Ok(Val::Range(*start, *stop, *step)),
            [] => type_error("range expected at least 1 argument, got 0"),
            more => type_error(format!("range expected at most 3 arguments, got {}", more.len())),
        }
    }
}

/// Inserts an entry; like Python, it keeps the first spelling of a key.
fn insert(dict: &mut IndexMap<Key, Val>, key: Key, value: Val) {
    match dict.get_mut(&key) {
        Some(slot) => *slot = value,
        None => {
            dict.insert(key, value);
        }
    }
}

/// The error for an undefined filter or test that is reached.
pub(super) fn no_such_name(kind: &str, name: &str) -> TemplateError {
    template_error(&format!("No {kind} named '{name}' found."))
}
