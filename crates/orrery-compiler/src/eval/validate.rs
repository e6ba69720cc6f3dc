//! Type checks for values that enter a cell or cross a plugin boundary.

use crate::error::{CompileError, Result};
use crate::ir::{Callee, Comprehension, ExprId, ExprKind, Var};
use crate::program::{Type, TypeId};
use crate::value::{Dict, Value};

use super::Evaluator;

impl Evaluator<'_> {
    /// Checks all defaults once, used or not.
    pub fn check_defaults(&mut self) -> Result<()> {
        let program = self.program;
        for (number, entity) in program.entities.iter().enumerate() {
            for (name, declaration, loc) in &entity.declarations {
                let default = entity.own_defaults.iter().find(|(other, _)| other == name);
                let slot = entity.slot_of.get(name);
                let (Some((_, Some(value))), Some(&slot)) = (default, slot) else { continue };
                let ty = program.slot(crate::program::EntityId(number as u32), slot).ty;
                self.validate(ty, *value).map_err(|e| e.in_statement(declaration.clone(), *loc))?;
            }
        }
        Ok(())
    }

    pub(super) fn validate(&mut self, ty: TypeId, value: Value) -> Result<()> {
        if value.is_unknown() {
            return Ok(());
        }
        let program = self.program;
        if let Value::Other(id) = value
            && let Some(of) = self.heap.get_other(id).reference.as_deref()
        {
            if self.accepts_late_bound(ty, of) {
                return Ok(());
            }
            let wanted = match program.ty(ty) {
                Type::Reference(_) => program.type_name(ty),
                _ => format!("Reference[{}]", program.type_name(ty)),
            };
            let text = format!("Invalid value: {} is not a subtype of {wanted}", self.repr(value));
            return self.fail("RuntimeException", text);
        }
        let fits = match (program.ty(ty), value) {
            (Type::Any, _)
            | (Type::String, Value::Str(_))
            | (Type::Int, Value::Int(_) | Value::Bool(_) | Value::Big(_))
            | (Type::Float, Value::Float(_))
            | (Type::Number, Value::Int(_) | Value::Bool(_) | Value::Big(_) | Value::Float(_))
            | (Type::Bool, Value::Bool(_))
            | (Type::Null | Type::Nullable(_), Value::Null)
            | (Type::AnyList, Value::List(_))
            | (Type::AnyDict, Value::Dict(_)) => true,
            (Type::List, Value::List(list)) => {
                for at in 0..self.heap.items(list).len() {
                    self.literal(self.heap.items(list)[at])?;
                }
                true
            }
            (Type::Dict, Value::Dict(dict)) => {
                for at in 0..self.heap.entries(dict).len() {
                    let (_, &value) =
                        self.heap.entries(dict).get_index(at).expect("invariant: in range");
                    self.literal(value)?;
                }
                true
            }
            (Type::ListOf(inner), Value::List(list)) => {
                for at in 0..self.heap.items(list).len() {
                    let item = self.heap.items(list)[at];
                    self.validate(*inner, item)?;
                }
                true
            }
            (Type::DictOf(inner), Value::Dict(dict)) => {
                for at in 0..self.heap.entries(dict).len() {
                    let (_, &value) =
                        self.heap.entries(dict).get_index(at).expect("invariant: in range");
                    self.validate(*inner, value)?;
                }
                true
            }
            (Type::DictOf(_), _) => {
                let text = format!("Invalid value '{}', expected dict", self.str(value));
                return Err(self.mismatch(text, ty, value));
            }
            (Type::Union(members), _) => {
                members.iter().any(|&member| self.validate(member, value).is_ok())
            }
            (Type::Nullable(inner), _) => return self.validate(*inner, value),
            (Type::Typedef(typedef), _) => return self.validate_typedef(*typedef, value),
            (Type::Entity(entity), Value::Instance(instance)) => {
                let actual = self.instances[instance.index()].entity;
                if program.is_subtype(actual, *entity) {
                    return Ok(());
                }
                let text = format!(
                    "Invalid class type for {}, should be {}",
                    self.str(value),
                    self.text(program.entity(*entity).name)
                );
                return Err(self.mismatch(text, ty, value));
            }
            (Type::Entity(entity), _) => {
                let text = format!(
                    "Invalid type for value '{}', should be type {}",
                    self.str(value),
                    self.text(program.entity(*entity).name)
                );
                return Err(self.mismatch(text, ty, value));
            }
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let text =
            format!("Invalid value '{}', expected {}", self.str(value), program.type_name(ty));
        Err(self.mismatch(text, ty, value))
    }

    /// The error for a type mismatch.
    fn mismatch(&self, text: String, ty: TypeId, value: Value) -> Box<CompileError> {
        let mut error = CompileError::new("RuntimeException", text);
        self.explain_mismatch(&mut error, ty, value);
        error
    }

    /// True if the type accepts a late-bound value of type `of`; instances never do.
    fn accepts_late_bound(&self, ty: TypeId, of: &str) -> bool {
        let program = self.program;
        match program.ty(ty) {
            Type::Any => true,
            Type::Nullable(inner) | Type::Reference(inner) => self.accepts_late_bound(*inner, of),
            Type::Union(members) => {
                members.iter().any(|&member| self.accepts_late_bound(member, of))
            }
            Type::Typedef(typedef) => {
                program.type_name(ty) == of
                    || self.accepts_late_bound(program.typedefs[*typedef as usize].base, of)
            }
            Type::Number => matches!(of, "int" | "float" | "bool" | "number"),
            Type::Int => matches!(of, "int" | "bool"),
            Type::Entity(_)
            | Type::Null
            | Type::String
            | Type::Float
            | Type::Bool
            | Type::List
            | Type::Dict
            | Type::AnyList
            | Type::AnyDict
            | Type::ListOf(_)
            | Type::DictOf(_) => program.type_name(ty) == of,
        }
    }

    /// Checks members of a `list` or `dict` attribute: instances are not allowed.
    fn literal(&self, value: Value) -> Result<()> {
        match value {
            Value::Other(id) if self.heap.get_other(id).reference.is_some() => Ok(()),
            Value::Instance(_) | Value::Other(_) => {
                let text = format!("Invalid value '{}', expected Literal", self.str(value));
                self.fail("RuntimeException", text)
            }
            Value::List(list) => self.heap.items(list).iter().try_for_each(|&v| self.literal(v)),
            Value::Dict(dict) => {
                self.heap.entries(dict).values().try_for_each(|&v| self.literal(v))
            }
            _ => Ok(()),
        }
    }

    fn validate_typedef(&mut self, number: u32, value: Value) -> Result<()> {
        let memo = match value {
            Value::Str(id) => Some(u64::from(number) << 33 | u64::from(id.0)),
            Value::Int(int) => u32::try_from(int)
                .ok()
                .map(|int| u64::from(number) << 33 | 1 << 32 | u64::from(int)),
            _ => None,
        };
        if memo.is_some_and(|memo| self.validated.contains(&memo)) {
            return Ok(());
        }
        let typedef = &self.program.typedefs[number as usize];
        self.validate(typedef.base, value)?;
        let constraint = typedef.constraint;
        let result = self
            .eval_constraint(constraint, &ConstraintScope { this: value, variables: Vec::new() })?;
        if !self.heap.truthy(result) {
            let text = format!(
                "Invalid value {}, does not match constraint `{}`",
                self.repr(value),
                self.renderer().expr(constraint)
            );
            let shown = self.program.type_name(self.program.type_of[&Type::Typedef(number)]);
            let mut error = CompileError::new("RuntimeException", text);
            self.explain_constraint(&mut error, number, value);
            return Err(error.in_statement(shown, self.program.typedefs[number as usize].loc));
        }
        if let Some(memo) = memo {
            self.validated.insert(memo);
        }
        Ok(())
    }

    /// Evaluates the constraint of a typedef immediately, with only `self` bound.
    fn eval_constraint(&mut self, id: ExprId, this: &ConstraintScope) -> Result<Value> {
        let program = self.program;
        let expr = program.expr(id);
        match &expr.kind {
            ExprKind::Const(value) => Ok(*value),
            ExprKind::Nothing => Ok(Value::List(self.empty_list)),
            ExprKind::Regex(at) => {
                let Value::Str(text) = this.this else {
                    return Err(CompileError::from_python(orrery_python::PyError {
                        kind: "AssertionError",
                        message: String::new(),
                    }));
                };
                let (_, regex) = &program.regexes[*at as usize];
                let found = regex.is_match_at_start(self.heap.text(text));
                found.map(Value::Bool).map_err(CompileError::from_python)
            }
            ExprKind::Var { var: Var::SelfValue, .. } => Ok(this.this),
            ExprKind::Var { var: Var::Local { hops, .. }, .. } => {
                let at = this.variables.len() - 1 - usize::from(*hops);
                Ok(this.variables[at])
            }
            ExprKind::Var { name, .. } => {
                let text = format!(
                    "Unable to resolve `{}`: a type constraint can not reference variables.",
                    self.text(*name)
                );
                Err(self.blame_expr(CompileError::new("NotFoundException", text), id))
            }
            ExprKind::Binary { op, left, right } => {
                let left = self.eval_constraint(*left, this)?;
                let right = self.eval_constraint(*right, this)?;
                self.binary(*op, left, right).map_err(|e| self.blame_expr(e, id))
            }
            ExprKind::Not(inner) => {
                let value = self.eval_constraint(*inner, this)?;
                match value {
                    Value::Bool(b) => Ok(Value::Bool(!b)),
                    Value::Unknown(_) => Ok(value),
                    other => {
                        let text =
                            format!("Invalid value `{}`: `not` expects a boolean", self.str(other));
                        Err(self.blame_expr(CompileError::new("RuntimeException", text), id))
                    }
                }
            }
            ExprKind::Lazy { or, left, right, .. } => {
                let value = self.eval_constraint(*left, this)?;
                match value {
                    Value::Bool(b) if b == *or => Ok(value),
                    Value::Unknown(_) => Ok(value),
                    Value::Bool(_) => {
                        let value = self.eval_constraint(*right, this)?;
                        if matches!(value, Value::Bool(_) | Value::Unknown(_)) {
                            return Ok(value);
                        }
                        let word = if *or { "or" } else { "and" };
                        let text = format!(
                            "Invalid right hand value `{}`: `{word}` expects a boolean",
                            self.str(value)
                        );
                        Err(self.blame_expr(CompileError::new("RuntimeException", text), id))
                    }
                    other => {
                        let word = if *or { "or" } else { "and" };
                        let text = format!(
                            "Invalid left hand value `{}`: `{word}` expects a boolean",
                            self.str(other)
                        );
                        Err(self.blame_expr(CompileError::new("RuntimeException", text), id))
                    }
                }
            }
            ExprKind::Conditional { condition, then, otherwise, .. } => {
                match self.eval_constraint(*condition, this)? {
                    Value::Bool(true) => self.eval_constraint(*then, this),
                    Value::Bool(false) => self.eval_constraint(*otherwise, this),
                    unknown @ Value::Unknown(_) => Ok(unknown),
                    other => {
                        let text = format!(
                            "Invalid value `{}`: the condition for a conditional expression must be a boolean expression",
                            self.str(other)
                        );
                        Err(self.blame_expr(CompileError::new("RuntimeException", text), id))
                    }
                }
            }
            ExprKind::List(items) => {
                let mut values = Vec::new();
                for &item in items {
                    match self.eval_constraint(item, this)? {
                        Value::List(list) => values.extend_from_slice(self.heap.items(list)),
                        value => values.push(value),
                    }
                }
                Ok(self.heap.list(values))
            }
            ExprKind::Dict(items) => {
                let mut dict = Dict::default();
                for &(key, item) in items {
                    dict.insert(key, self.eval_constraint(item, this)?);
                }
                Ok(self.heap.dict(dict))
            }
            ExprKind::Comprehension(comprehension) => {
                self.direct_comprehension(comprehension, id, this)
            }
            ExprKind::Call(call) => {
                let mut positional = Vec::new();
                for &arg in &call.positional {
                    positional.push(self.eval_constraint(arg, this)?);
                }
                let mut keyword = Vec::new();
                for &(name, arg) in &call.keyword {
                    keyword.push((self.text(name).to_owned(), self.eval_constraint(arg, this)?));
                }
                for &arg in &call.spread {
                    let value = self.eval_constraint(arg, this)?;
                    keyword.extend(self.spread_entries(arg, value)?);
                }
                match call.callee {
                    Callee::Cast(cast) => {
                        let value = positional.first().copied().unwrap_or(Value::Null);
                        self.cast(cast, value)
                    }
                    Callee::Plugin(number) => self.call_direct(id, number, positional, keyword),
                }
            }
            _ => {
                let text = format!(
                    "The statement {} can not be executed in this context",
                    self.renderer().expr(id)
                );
                Err(self.blame_expr(CompileError::new("DirectExecuteException", text), id))
            }
        }
    }

    fn direct_comprehension(
        &mut self,
        comprehension: &Comprehension,
        id: ExprId,
        this: &ConstraintScope,
    ) -> Result<Value> {
        let iterable = self.eval_constraint(comprehension.iterable, this)?;
        let items = match iterable {
            Value::List(list) => self.heap.items(list).to_vec(),
            unknown @ Value::Unknown(_) => vec![unknown],
            other => {
                let text = format!(
                    "A list comprehension can only be applied to lists and relations, got {}",
                    self.heap.class_name(other)
                );
                return Err(self.blame_expr(CompileError::new("TypingException", text), id));
            }
        };
        let mut values = Vec::new();
        for item in items {
            let mut inner = this.clone();
            inner.variables.push(item);
            let element = match item {
                Value::Unknown(_) => comprehension.unknown,
                _ => comprehension.element,
            };
            match self.eval_constraint(element, &inner)? {
                Value::List(list) => values.extend_from_slice(self.heap.items(list)),
                value => values.push(value),
            }
        }
        Ok(self.heap.list(values))
    }
}

/// Names visible to a constraint: the value itself and the variables of enclosing comprehensions.
#[derive(Clone)]
struct ConstraintScope {
    this: Value,
    variables: Vec<Value>,
}
