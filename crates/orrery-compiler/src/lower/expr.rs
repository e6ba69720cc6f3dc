//! Lowering of expressions: calls, constructors with their order of assignments, type hints,
//! lookups and constant folding.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use orrery_syntax::ast::{self, BinaryOp, Loc};
use orrery_syntax::{Explanation, Symbol};
use rustc_hash::FxHashSet;

use crate::error::CompileError;
use crate::ir::{
    Call, Callee, Cast, Comprehension, Construct, ExprId, ExprKind, Format, IndexLookup, Segment,
    ShortIndexLookup, SlotCache, Spec, Var,
};
use crate::lower::Lowering;
use crate::program::{Definition, EntityId};
use crate::value::{Dict, Value};

/// Splits a text with placeholders into segments, if that is possible at compile time.
type Cut = fn(&str, &[(Box<str>, ExprId)]) -> Option<Box<[Segment]>>;

type Keywords = Box<[(Symbol, ExprId)]>;

/// Context of an expression that is a direct right-hand side.
#[derive(Clone, Copy, Default)]
pub(crate) struct Position<'a> {
    /// Target of the relation: an additional scope for an unqualified constructor name.
    hint: Option<EntityId>,
    /// An owner that may fill in a missing index attribute.
    owner: Option<Owner<'a>>,
}

/// The owner of the attribute that an expression becomes.
#[derive(Clone, Copy)]
pub(crate) enum Owner<'a> {
    /// `reference.relation = …`
    Reference(&'a ast::Expr),
    /// The instance that a constructor creates.
    Constructed,
}

impl Lowering<'_> {
    pub(crate) fn expr(&mut self, expr: &ast::Expr) -> ExprId {
        self.lower(expr, Position::default())
    }

    /// Lowers the right-hand side of an attribute assignment or constructor argument.
    pub(crate) fn value_for(
        &mut self,
        expr: &ast::Expr,
        hint: Option<EntityId>,
        owner: Option<Owner<'_>>,
    ) -> ExprId {
        self.lower(expr, Position { hint, owner })
    }

    fn lower(&mut self, expr: &ast::Expr, position: Position<'_>) -> ExprId {
        let loc = expr.loc;
        let kind = match &expr.kind {
            ast::ExprKind::Null => ExprKind::Const(Value::Null),
            ast::ExprKind::Bool(b) => ExprKind::Const(Value::Bool(*b)),
            ast::ExprKind::Int(int) => ExprKind::Const(self.b.heap.int(int.clone())),
            ast::ExprKind::Float(f) => ExprKind::Const(Value::Float(*f)),
            ast::ExprKind::String(text) => ExprKind::Const(self.b.heap.str(text)),
            ast::ExprKind::Regex(pattern) => self.regex(pattern, loc),
            ast::ExprKind::Interpolation { text, parts } => {
                ExprKind::Format(self.format(text, parts, interpolation_segments))
            }
            ast::ExprKind::FString { text, parts } => {
                ExprKind::FString(self.format(text, parts, fstring_segments))
            }
            ast::ExprKind::Variable(path) => self.variable_expr(path, loc),
            ast::ExprKind::Attribute { base, attribute } => {
                let base = self.expr(base);
                ExprKind::Attr { base, name: attribute.symbol, cache: SlotCache::new() }
            }
            ast::ExprKind::Call { function, args } => self.call(function, args, loc),
            ast::ExprKind::Construct { class, args } => self.construct(class, args, position, loc),
            ast::ExprKind::IndexLookup { class, args } => self.index_lookup(class, args),
            ast::ExprKind::ShortIndexLookup { base, relation, args } => {
                let base = self.expr(base);
                let (query, spread) = self.keyword_args(args);
                ExprKind::ShortIndexLookup(Box::new(ShortIndexLookup {
                    base,
                    relation: relation.symbol,
                    parts: query_parts(Some(base), &query, &spread),
                    query,
                    spread,
                }))
            }
            ast::ExprKind::Lookup { base, key } => {
                ExprKind::Lookup { base: self.expr(base), key: self.expr(key) }
            }
            ast::ExprKind::List(items) => self.list(items, position),
            ast::ExprKind::Dict(items) => self.dict(items),
            ast::ExprKind::Comprehension { value, variable, iterable, guard } => {
                let iterable = self.expr(iterable);
                self.with_variable(*variable, |this| {
                    let value = this.lower(value, position);
                    let guard = guard.as_ref().map(|guard| this.expr(guard));
                    let var = Var::Local { hops: 0, slot: 0 };
                    // An unknown member is forwarded in its own step, even without a guard.
                    let member = guard.is_some();
                    let cache = SlotCache::new();
                    let itself =
                        this.add(ExprKind::Var { var, name: variable.symbol, member, cache }, loc);
                    let mut unknown = itself;
                    let element = match guard {
                        None => value,
                        Some(condition) => {
                            let otherwise = this.add(ExprKind::Nothing, loc);
                            let kind = ExprKind::Conditional { condition, then: itself, otherwise };
                            unknown = this.add(kind, loc);
                            let otherwise = this.add(ExprKind::Nothing, loc);
                            let kind = ExprKind::Conditional { condition, then: value, otherwise };
                            this.add(kind, loc)
                        }
                    };
                    ExprKind::Comprehension(Box::new(Comprehension {
                        variable: variable.symbol,
                        iterable,
                        element,
                        guard,
                        unknown,
                        value,
                        names: this.b.add_frame_names(&[variable.symbol]),
                    }))
                })
            }
            ast::ExprKind::Not(inner) => ExprKind::Not(self.expr(inner)),
            ast::ExprKind::Binary { op, left, right } => {
                let (left, right) = (self.expr(left), self.expr(right));
                match op {
                    BinaryOp::And | BinaryOp::Or => {
                        ExprKind::Lazy { or: *op == BinaryOp::Or, left, right }
                    }
                    _ => ExprKind::Binary { op: *op, left, right },
                }
            }
            ast::ExprKind::Conditional { condition, then, otherwise } => ExprKind::Conditional {
                condition: self.expr(condition),
                then: self.lower(then, position),
                otherwise: self.lower(otherwise, position),
            },
            ast::ExprKind::IsDefined { base, name } => {
                let base = base.as_ref().map(|base| self.expr(base));
                let var = if base.is_some() { Var::Missing } else { self.variable(name.symbol) };
                ExprKind::Defined { base, var, name: name.symbol }
            }
        };
        self.add(kind, loc)
    }

    fn variable_expr(&mut self, path: &ast::Path, loc: Loc) -> ExprKind {
        let var = self.variable(path.symbol);
        if matches!(var, Var::MissingNamespace) {
            let text = self.b.text(path.symbol).to_owned();
            let prefix = text.rsplit_once("::").map_or("", |(prefix, _)| prefix);
            let message =
                format!("Namespace {prefix} not found.\nTry importing it with `import {prefix}`");
            self.fail(CompileError::new("NotFoundException", message).in_statement(text, loc));
        }
        let member = self.is_member(path.symbol);
        ExprKind::Var { var, name: path.symbol, member, cache: SlotCache::new() }
    }

    fn regex(&mut self, pattern: &str, loc: Loc) -> ExprKind {
        match orrery_python::PyRegex::new(pattern) {
            Ok(regex) => {
                self.b.program.regexes.push((pattern.into(), regex));
                ExprKind::Regex(self.b.program.regexes.len() as u32 - 1)
            }
            Err(error) => {
                let text = format!("Syntax error: Regex error in /{pattern}/: '{}'", error.message);
                let end = loc.end;
                let start = end - (pattern.len() as u32 + 2).min(end);
                let loc = Loc { start, column: true, ..loc };
                self.fail(CompileError::new("ParserException", text).at(loc));
                ExprKind::Const(Value::Null)
            }
        }
    }

    #[expect(clippy::unnecessary_box_returns, reason = "the expression holds a box")]
    fn format(&mut self, text: &str, parts: &[ast::Interpolated], cut: Cut) -> Box<Format> {
        let parts: Box<[(Box<str>, ExprId)]> =
            parts.iter().map(|part| (part.text.clone(), self.expr(&part.reference))).collect();
        let segments = cut(text, &parts);
        Box::new(Format { text: text.into(), parts, segments })
    }

    fn list(&mut self, items: &[ast::Expr], position: Position<'_>) -> ExprKind {
        let items: Vec<ExprId> = items.iter().map(|item| self.lower(item, position)).collect();
        let mut values = Vec::new();
        for &item in &items {
            match self.b.program.expr(item).kind {
                ExprKind::Const(Value::List(list)) => {
                    values.extend_from_slice(self.b.heap.items(list));
                }
                ExprKind::Const(value) => values.push(value),
                _ => return ExprKind::List(items.into_boxed_slice()),
            }
        }
        ExprKind::Const(self.b.heap.list(values))
    }

    fn dict(&mut self, items: &[(Box<str>, Loc, ast::Expr)]) -> ExprKind {
        let mut entries = Vec::new();
        for (key, _, item) in items {
            let value = self.expr(item);
            entries.push((self.b.heap.intern(key), value));
        }
        let mut dict = Dict::default();
        for &(key, value) in &entries {
            match self.b.program.expr(value).kind {
                ExprKind::Const(value) => dict.insert(key, value),
                _ => return ExprKind::Dict(entries.into_boxed_slice()),
            };
        }
        ExprKind::Const(self.b.heap.dict(dict))
    }

    fn keyword_args(&mut self, args: &[ast::Arg]) -> (Keywords, Box<[ExprId]>) {
        let (mut keyword, mut spread) = (Vec::new(), Vec::new());
        for arg in args {
            match arg {
                ast::Arg::Keyword(name, value) => keyword.push((name.symbol, self.expr(value))),
                ast::Arg::Spread(value) | ast::Arg::Positional(value) => {
                    spread.push(self.expr(value));
                }
            }
        }
        (keyword.into_boxed_slice(), spread.into_boxed_slice())
    }

    fn call(&mut self, function: &ast::Path, args: &[ast::Arg], loc: Loc) -> ExprKind {
        let (mut positional, mut keyword, mut spread) = (Vec::new(), Vec::new(), Vec::new());
        let mut repeated = None;
        for arg in args {
            match arg {
                ast::Arg::Positional(value) => positional.push(self.expr(value)),
                ast::Arg::Keyword(name, value) => {
                    if keyword.iter().any(|(other, _)| *other == name.symbol) {
                        repeated = Some(name.symbol);
                        break;
                    }
                    keyword.push((name.symbol, self.expr(value)));
                }
                ast::Arg::Spread(value) => spread.push(self.expr(value)),
            }
        }
        let text = self.b.text(function.symbol).to_owned();
        let callee = match text.as_str() {
            "string" => Some(Callee::Cast(Cast::String)),
            "int" => Some(Callee::Cast(Cast::Int)),
            "float" => Some(Callee::Cast(Cast::Float)),
            "number" => Some(Callee::Cast(Cast::Number)),
            "bool" => Some(Callee::Cast(Cast::Bool)),
            _ => match self.b.lookup(function.symbol, self.namespace) {
                Some(Definition::Plugin(number)) => Some(Callee::Plugin(number)),
                Some(_) => None,
                None if text == "list" => None,
                None => {
                    let error =
                        self.b.type_not_found(function.symbol, function.loc, self.namespace);
                    self.fail(error);
                    Some(Callee::Cast(Cast::String))
                }
            },
        };
        let parts = positional
            .iter()
            .copied()
            .chain(keyword.iter().map(|(_, value)| *value))
            .chain(spread.iter().copied())
            .collect();
        let call = Call {
            parts,
            name: function.symbol,
            callee: callee.unwrap_or(Callee::Cast(Cast::String)),
            positional: positional.into_boxed_slice(),
            keyword: keyword.into_boxed_slice(),
            spread: spread.into_boxed_slice(),
            namespace: self.namespace,
        };
        let mut failure = None;
        if callee.is_none() {
            let message =
                format!("Can not call '{text}', can only call plugin or primitive type cast");
            failure = Some(CompileError::new("RuntimeException", message));
        } else if let Some(name) = repeated {
            let message = format!(
                "Keyword argument {} repeated in function call {text}()",
                self.b.text(name)
            );
            failure = Some(CompileError::new("RuntimeException", message));
        } else if text == "number" {
            self.b.warn_number_type(loc);
        }
        let kind = ExprKind::Call(Box::new(call));
        if let Some(failure) = failure {
            let id = self.add(kind, loc);
            let shown = self.b.renderer().expr(id);
            self.fail(failure.in_statement(shown, loc));
            return ExprKind::Const(Value::Null);
        }
        kind
    }

    fn constructor_type(&mut self, class: &ast::Path, position: Position<'_>) -> Option<EntityId> {
        if let Some(Definition::Entity(entity)) = self.b.lookup(class.symbol, self.namespace) {
            return Some(entity);
        }
        let not_found = |this: &mut Self| {
            let error = this.b.type_not_found(class.symbol, class.loc, this.namespace);
            this.fail(error);
            None
        };
        let Some(target) = position.hint else { return not_found(self) };
        if self.b.text(class.symbol).contains("::") {
            return not_found(self);
        }
        let mut candidates: Vec<EntityId> = Vec::new();
        for (number, entity) in self.b.program.entities.iter().enumerate() {
            let id = EntityId(number as u32);
            if entity.short == class.symbol && self.b.program.is_subtype(id, target) {
                candidates.push(id);
            }
        }
        match candidates.as_slice() {
            [] => not_found(self),
            [one] => Some(*one),
            many => {
                let mut names: Vec<&str> =
                    many.iter().map(|&id| self.b.text(self.b.program.entity(id).name)).collect();
                names.sort_unstable();
                let text = format!(
                    "Could not determine namespace for type {}. {} possible candidates exists: [{}]. \
                     To resolve this, use the fully qualified name instead of the short name.",
                    self.b.text(class.symbol),
                    names.len(),
                    names.join(", ")
                );
                self.fail(CompileError::new("AmbiguousTypeException", text).at(class.loc));
                None
            }
        }
    }

    fn construct(
        &mut self,
        class: &ast::Path,
        args: &[ast::Arg],
        position: Position<'_>,
        loc: Loc,
    ) -> ExprKind {
        let entity = self.constructor_type(class, position);
        let mut written: Vec<(Symbol, ExprId)> = Vec::new();
        let mut spread = Vec::new();
        for arg in args {
            let (name, value) = match arg {
                ast::Arg::Keyword(name, value) => (name, value),
                ast::Arg::Spread(value) | ast::Arg::Positional(value) => {
                    spread.push(self.expr(value));
                    continue;
                }
            };
            let attribute = entity.and_then(|entity| {
                let slot = *self.b.program.entity(entity).slot_of.get(&name.symbol)?;
                Some(self.b.program.slot(entity, slot))
            });
            let relation = attribute.and_then(|attribute| attribute.relation);
            if let (Some(entity), None) = (entity, attribute) {
                let text = format!(
                    "no attribute {} on type {}",
                    self.b.text(name.symbol),
                    self.b.text(self.b.program.entity(entity).name)
                );
                let shown = self.b.text(name.symbol).to_owned();
                let owner = self.b.text(self.b.program.entity(entity).name);
                let owner = owner.strip_prefix("__config__::").unwrap_or(owner);
                let headline = format!("`{owner}` has no attribute `{shown}`");
                let mut error = CompileError::new("TypingException", text)
                    .in_statement(shown.clone(), name.loc)
                    .explained(Explanation::new(headline).at(name.loc, ""));
                let known = self.b.program.entity(entity).slot_of.keys().copied();
                if let Some(near) = self.b.suggest(&shown, known) {
                    error = error.help(format!("did you mean `{near}`?"));
                }
                self.fail(error);
            }
            let value = self.value_for(
                value,
                relation.map(|end| end.target),
                relation.map(|_| Owner::Constructed),
            );
            self.check_argument_type(relation.map(|end| end.target), value);
            if written.iter().any(|(other, _)| *other == name.symbol) {
                let text = format!(
                    "The attribute {} in the constructor call of {} is already set.",
                    self.b.text(name.symbol),
                    self.b.text(class.symbol)
                );
                let shown = format!("Construct({})", self.b.text(class.symbol));
                self.fail(CompileError::new("RuntimeException", text).in_statement(shown, loc));
            }
            written.push((name.symbol, value));
        }
        let Some(entity) = entity else {
            let kind = Construct {
                class: class.symbol,
                entity: self.b.std_entity,
                direct: Box::default(),
                indirect: Box::default(),
                spread: Box::default(),
                written: Box::default(),
                owner: None,
                parts: Box::default(),
            };
            return ExprKind::Construct(Box::new(kind));
        };
        self.plan_construct(class, entity, written, spread, position, loc)
    }

    /// Checks that a constructor argument creates an instance of the relation's type.
    fn check_argument_type(&mut self, target: Option<EntityId>, value: ExprId) {
        let Some(target) = target else { return };
        let parts: Vec<ExprId> = match &self.b.program.expr(value).kind {
            ExprKind::List(items) => items.to_vec(),
            ExprKind::Conditional { then, otherwise, .. } => vec![*then, *otherwise],
            ExprKind::Comprehension(comprehension) => vec![comprehension.value],
            _ => Vec::new(),
        };
        for part in parts {
            self.check_argument_type(Some(target), part);
        }
        let ExprKind::Construct(inner) = &self.b.program.expr(value).kind else { return };
        if self.error.is_some() || self.b.program.is_subtype(inner.entity, target) {
            return;
        }
        let text = format!(
            "Can not assign a value of type {} to a variable of type {}",
            self.b.text(self.b.program.entity(inner.entity).name),
            self.b.text(self.b.program.entity(target).name)
        );
        let shown = format!("Construct({})", self.b.text(inner.class));
        let loc = self.b.program.expr(value).loc;
        self.fail(CompileError::new("TypingException", text).in_statement(shown, loc));
    }

    /// Orders the assignments: defaults in their order with overridden values in their position,
    /// then the rest as written.
    fn plan_construct(
        &mut self,
        class: &ast::Path,
        entity: EntityId,
        written: Vec<(Symbol, ExprId)>,
        spread: Vec<ExprId>,
        position: Position<'_>,
        loc: Loc,
    ) -> ExprKind {
        let defaults = self.b.program.entity(entity).defaults.clone();
        let mut all: Vec<(Symbol, ExprId)> = Vec::new();
        for (name, value) in defaults {
            let given = written.iter().find(|(other, _)| *other == name);
            let value = match given {
                Some((_, value)) => *value,
                None => {
                    let slot = self.b.program.entity(entity).slot_of[&name];
                    let declared = Loc { column: false, ..self.b.program.slot(entity, slot).loc };
                    self.add(ExprKind::Const(value), declared)
                }
            };
            all.push((name, value));
        }
        for &(name, value) in &written {
            if !all.iter().any(|(other, _)| *other == name) {
                all.push((name, value));
            }
        }
        let mut in_index: Vec<Symbol> = Vec::new();
        for &index in &self.b.program.entity(entity).indexes {
            for &name in &self.b.program.indexes[index as usize].attributes {
                if !in_index.contains(&name) {
                    in_index.push(name);
                }
            }
        }
        let missing: Vec<Symbol> = in_index
            .iter()
            .copied()
            .filter(|name| !all.iter().any(|(other, _)| other == name))
            .collect();
        let mut inverse = None;
        if spread.is_empty() && !missing.is_empty() {
            if position.owner.is_some() && missing.len() == 1 {
                inverse = Some(missing[0]);
            } else {
                let error = missing_index_attributes(&self.b.program, entity, &missing);
                let shown = format!("Construct({})", self.b.text(class.symbol));
                self.fail(error.in_statement(shown, loc));
            }
        } else if position.owner.is_some() && missing.len() == 1 {
            inverse = Some(missing[0]);
        }
        let owner = match position.owner {
            Some(Owner::Reference(base))
                if inverse.is_some() && matches!(base.kind, ast::ExprKind::Attribute { .. }) =>
            {
                Some(self.expr(base))
            }
            _ => None,
        };
        let slot_of = &self.b.program.entity(entity).slot_of;
        let (mut direct, mut indirect) = (Vec::new(), Vec::new());
        for (name, value) in all {
            let slot = slot_of.get(&name).copied().unwrap_or(0);
            if in_index.contains(&name) {
                direct.push((slot, value));
            } else {
                let default = !written.iter().any(|(other, _)| *other == name);
                indirect.push((slot, value, default));
            }
        }
        let written = written.iter().filter_map(|(name, _)| slot_of.get(name).copied()).collect();
        let parts = direct
            .iter()
            .map(|(_, value)| *value)
            .chain(spread.iter().copied())
            .chain(owner)
            .collect();
        ExprKind::Construct(Box::new(Construct {
            parts,
            class: class.symbol,
            entity,
            direct: direct.into_boxed_slice(),
            indirect: indirect.into_boxed_slice(),
            spread: spread.into_boxed_slice(),
            written,
            owner,
        }))
    }

    fn index_lookup(&mut self, class: &ast::Path, args: &[ast::Arg]) -> ExprKind {
        let entity = match self.b.resolve_entity(class.symbol, class.loc, self.namespace) {
            Ok(entity) => entity,
            Err(error) => {
                self.fail(error);
                self.b.std_entity
            }
        };
        let (query, spread) = self.keyword_args(args);
        let parts = query_parts(None, &query, &spread);
        let lookup = IndexLookup { class: class.symbol, entity, query, spread, parts };
        ExprKind::IndexLookup(Box::new(lookup))
    }
}

/// Splits a `{{x}}` text at its placeholders.
fn interpolation_segments(text: &str, parts: &[(Box<str>, ExprId)]) -> Option<Box<[Segment]>> {
    let mut segments = Vec::new();
    let mut done = 0;
    // Next occurrence of each placeholder; of equal ones, the first wins.
    let mut seen = FxHashSet::default();
    let mut next: BinaryHeap<Reverse<(usize, usize)>> = parts
        .iter()
        .enumerate()
        .filter(|(_, (pattern, _))| !pattern.is_empty() && seen.insert(&**pattern))
        .filter_map(|(number, (pattern, _))| Some(Reverse((text.find(&**pattern)?, number))))
        .collect();
    while let Some(Reverse((at, number))) = next.pop() {
        let pattern = &*parts[number].0;
        if at >= done {
            let part = Some((number as u32, Spec::None));
            segments.push(Segment { literal: text[done..at].into(), part });
            done = at + pattern.len();
        }
        next.extend(text[done..].find(pattern).map(|after| Reverse((done + after, number))));
    }
    segments.push(Segment { literal: text[done..].into(), part: None });
    Some(segments.into_boxed_slice())
}

/// Splits an f-string at its fields, unless part of it must be examined at run time.
fn fstring_segments(text: &str, parts: &[(Box<str>, ExprId)]) -> Option<Box<[Segment]>> {
    let mut segments = Vec::new();
    for piece in orrery_python::parse_format(text).ok()? {
        let part = match piece.field {
            None => None,
            Some(field) => {
                if field.conversion.is_some() || field.spec.contains('{') {
                    return None;
                }
                let number = parts.iter().position(|(name, _)| **name == *field.name)?;
                Some((number as u32, spec(&field.spec)))
            }
        };
        segments.push(Segment { literal: piece.literal.as_str().into(), part });
    }
    Some(segments.into_boxed_slice())
}

fn spec(text: &str) -> Spec {
    let width = text.strip_prefix('0').map(|rest| rest.strip_suffix('d').unwrap_or(rest));
    match width.and_then(|digits| digits.parse::<usize>().ok()) {
        _ if text.is_empty() => Spec::None,
        Some(width) if width < 100 => Spec::Zeroes(width, text.into()),
        _ => Spec::Other(text.into()),
    }
}

/// Expressions of a lookup, in order of evaluation.
fn query_parts(
    base: Option<ExprId>,
    query: &[(Symbol, ExprId)],
    spread: &[ExprId],
) -> Box<[ExprId]> {
    base.into_iter()
        .chain(query.iter().map(|(_, value)| *value))
        .chain(spread.iter().copied())
        .collect()
}

/// The error for index attributes that a constructor lacks.
pub(crate) fn missing_index_attributes(
    program: &crate::program::Program,
    entity: EntityId,
    missing: &[Symbol],
) -> Box<CompileError> {
    let full = program.text(program.entity(entity).name);
    let mut text = "Invalid Constructor call:".to_owned();
    for &name in missing {
        let slot = program.entity(entity).slot_of.get(&name);
        let relation = slot.is_some_and(|&slot| program.slot(entity, slot).relation.is_some());
        let kind = if relation { "relation" } else { "attribute" };
        let name = program.text(name);
        text.push_str(&format!(
            "\n\t* Missing {kind} '{name}'. The {kind} {full}.{name} is part of an index."
        ));
    }
    CompileError::new("IndexAttributeMissingInConstructorException", text)
}
