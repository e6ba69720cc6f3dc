//! Indexes: instances by the values of their key attributes, and lookups that wait for one.

use orrery_syntax::Symbol;
use rustc_hash::FxHashMap;

use crate::error::{CompileError, Result};
use crate::ir::{ExprId, ExprKind};
use crate::program::{EntityId, Program, Type};
use crate::value::{InstanceId, Value};

use super::emit::Dest;
use super::{Machine, PendingLookup, Unit};

/// Values in a form in which equal keys are equal words.
type Key = Box<[u64]>;

#[derive(Debug)]
pub(super) struct Indexes {
    tables: Vec<FxHashMap<Key, InstanceId>>,
    /// Per entity: its indexes and their tables.
    of_entity: Vec<Vec<(u32, u32)>>,
    pub(super) pending: FxHashMap<(u32, Key), Vec<PendingLookup>>,
    scratch: Vec<u64>,
}

impl Indexes {
    pub(super) fn new(program: &Program) -> Self {
        let mut tables = Vec::new();
        let mut of_entity = Vec::new();
        for entity in &program.entities {
            let mut own = Vec::new();
            for &index in &entity.indexes {
                own.push((index, tables.len() as u32));
                tables.push(FxHashMap::default());
            }
            of_entity.push(own);
        }
        Indexes { tables, of_entity, pending: FxHashMap::default(), scratch: Vec::new() }
    }

    pub(super) fn of(&self, entity: EntityId) -> &[(u32, u32)] {
        &self.of_entity[entity.index()]
    }
}

impl Machine<'_> {
    fn key_word(&mut self, entity: EntityId, name: Symbol, value: Value, key: &mut Vec<u64>) {
        let value = self.key_value(entity, name, value);
        let (tag, payload) = match value {
            Value::Null => (0, 0),
            Value::Bool(b) => (1, u64::from(b)),
            Value::Int(i) => (2, i as u64),
            Value::Float(f) if f.is_nan() => (3, f64::NAN.to_bits()),
            Value::Float(f) => (3, f.to_bits()),
            Value::Str(id) => (4, u64::from(id.0)),
            Value::Instance(id) => (5, u64::from(id.0)),
            Value::Unknown(id) => (6, u64::from(id.0)),
            Value::List(_) | Value::Dict(_) | Value::Big(_) | Value::Other(_) => {
                let text = self.repr(value);
                (7, u64::from(self.heap.intern(&text).0))
            }
        };
        key.push(tag);
        key.push(payload);
    }

    /// Integers stand for floats where the attribute is declared so.
    fn key_value(&self, entity: EntityId, name: Symbol, value: Value) -> Value {
        let Some(&slot) = self.program.entity(entity).slot_of.get(&name) else { return value };
        let mut ty = self.program.slot(entity, slot).ty;
        if let Type::Nullable(inner) = self.program.ty(ty) {
            ty = *inner;
        }
        match (self.program.ty(ty), value) {
            (Type::Float, Value::Int(i)) => Value::Float(i as f64),
            (Type::Float, Value::Bool(b)) => Value::Float(f64::from(u8::from(b))),
            _ => value,
        }
    }

    /// Puts the words of a key into a buffer that is used again and again.
    fn key(&mut self, entity: EntityId, names: &[Symbol], values: &[(Symbol, Value)]) -> Vec<u64> {
        let mut key = std::mem::take(&mut self.indexes.scratch);
        key.clear();
        for &name in names {
            let value = values.iter().find(|(other, _)| *other == name);
            let value = value.map_or(Value::Null, |(_, value)| *value);
            self.key_word(entity, name, value, &mut key);
        }
        key
    }

    /// `name=repr` pairs as messages show a key.
    fn key_text(&self, entity: EntityId, names: &[Symbol], values: &[(Symbol, Value)]) -> String {
        let mut parts = Vec::new();
        for &name in names {
            let value = values.iter().find(|(other, _)| *other == name);
            let value = value.map_or(Value::Null, |(_, value)| *value);
            let value = self.key_value(entity, name, value);
            parts.push(format!("{}={}", self.text(name), self.repr(value)));
        }
        parts.join(", ")
    }

    /// All instances that match one of the entity's indexes completely.
    pub(super) fn index_matches(
        &mut self,
        entity: EntityId,
        values: &[(Symbol, Value)],
    ) -> Vec<InstanceId> {
        let program = self.program;
        let mut found = Vec::new();
        for at in 0..self.indexes.of(entity).len() {
            let (index, table) = self.indexes.of(entity)[at];
            let names = &program.indexes[index as usize].attributes;
            let key = self.key(entity, names, values);
            if let Some(&instance) = self.indexes.tables[table as usize].get(key.as_slice()) {
                found.push(instance);
            }
            self.indexes.scratch = key;
        }
        found
    }

    /// Enters a new instance into its own tables and those of its ancestors.
    pub(super) fn register(
        &mut self,
        instance: InstanceId,
        values: &[(Symbol, Value)],
        constructor: ExprId,
    ) -> Result<()> {
        let program = self.program;
        let entity = self.instances[instance.index()].entity;
        for at in 0..self.indexes.of(entity).len() {
            let (index, _) = self.indexes.of(entity)[at];
            let names = &program.indexes[index as usize].attributes;
            let key = self.key(entity, names, values);
            for &ancestor in &program.entity(entity).ancestors {
                let table = self.indexes.of(ancestor).iter().find(|(other, _)| *other == index);
                let Some(&(_, table)) = table else { continue };
                if let Some(&other) = self.indexes.tables[table as usize].get(key.as_slice()) {
                    let text = format!(
                        "Duplicate key in index. {}",
                        self.key_text(entity, names, values)
                    );
                    return Err(self.duplicate_instances(text, constructor, other));
                }
                self.indexes.tables[table as usize].insert(key.as_slice().into(), instance);
                if self.indexes.pending.is_empty() {
                    continue;
                }
                let waiting = self.indexes.pending.remove(&(table, key.as_slice().into()));
                for lookup in waiting.unwrap_or_default() {
                    let dest = Dest { unit: lookup.dest, slot: lookup.dest_slot };
                    self.deliver(dest, Value::Instance(instance));
                }
            }
            self.indexes.scratch = key;
        }
        Ok(())
    }

    fn find_instance(
        &mut self,
        id: ExprId,
        entity: EntityId,
        mut query: Vec<(Symbol, Value)>,
        dest: Dest,
    ) -> Result<()> {
        let program = self.program;
        let full = self.text(program.entity(entity).name);
        let mut names: Vec<Symbol> = query.iter().map(|(name, _)| *name).collect();
        names.sort_by_key(|&name| self.text(name));
        let found = self
            .indexes
            .of(entity)
            .iter()
            .find(|(index, _)| program.indexes[*index as usize].attributes == names)
            .copied();
        let Some((_, table)) = found else {
            query.sort_by_key(|(name, _)| self.text(*name));
            let parts: Vec<String> = query
                .iter()
                .map(|(name, value)| format!("('{}', {})", self.text(*name), self.repr(*value)))
                .collect();
            let text =
                format!("No index defined on {full} for this lookup: [{}]", parts.join(", "));
            let error = CompileError::new("NotFoundException", text);
            return Err(self.blame_expr(error, id));
        };
        let key = self.key(entity, &names, &query);
        let found = self.indexes.tables[table as usize].get(key.as_slice()).copied();
        if let Some(instance) = found {
            self.indexes.scratch = key;
            self.deliver(dest, Value::Instance(instance));
            return Ok(());
        }
        let text = self.key_text(entity, &names, &query);
        let lookup = PendingLookup {
            dest: dest.unit,
            dest_slot: dest.slot,
            expr: id,
            key: text,
            entity,
        };
        self.indexes.pending.entry((table, key.as_slice().into())).or_default().push(lookup);
        self.indexes.scratch = key;
        Ok(())
    }

    fn query_values(
        &mut self,
        id: ExprId,
        unit: &Unit,
        mut slot: u32,
        query: &[(Symbol, ExprId)],
        spread: &[ExprId],
    ) -> Result<Vec<(Symbol, Value)>> {
        let mut values = Vec::new();
        for &(name, expr) in query {
            values.push((name, self.eval_in(expr, unit, slot).map_err(|e| self.blame_expr(e, id))?));
            slot += self.program.expr(expr).temps;
        }
        for &expr in spread {
            let value = self.eval_in(expr, unit, slot).map_err(|e| self.blame_expr(e, id))?;
            for (name, value) in self.spread_entries(expr, value)? {
                if let Some(symbol) = self.program.interner.get(&name) {
                    if values.iter().any(|(other, _)| *other == symbol) {
                        let text = format!("Attribute {name} provided twice in index lookup");
                        let error = CompileError::new("RuntimeException", text);
                        return Err(self.blame_expr(error, id));
                    }
                    values.push((symbol, value));
                }
            }
            slot += self.program.expr(expr).temps;
        }
        Ok(values)
    }

    /// The entries of a `**dict`.
    pub(super) fn spread_entries(&self, expr: ExprId, value: Value) -> Result<Vec<(String, Value)>> {
        let Value::Dict(dict) = value else {
            let text = "The ** operator can only be applied to dictionaries";
            let shown = format!("**{}", self.renderer().expr(expr));
            let loc = orrery_syntax::ast::Loc { column: false, ..self.program.expr(expr).loc };
            return Err(CompileError::new("TypingException", text).in_statement(shown, loc));
        };
        let entries = self.heap.entries(dict);
        Ok(entries.iter().map(|(&key, &value)| (self.heap.text(key).to_owned(), value)).collect())
    }

    pub(super) fn run_index_lookup(&mut self, unit: &Unit) -> Result<()> {
        let id = ExprId(unit.node);
        let ExprKind::IndexLookup(lookup) = &self.program.expr(id).kind else { return Ok(()) };
        let query = self.query_values(id, unit, 0, &lookup.query, &lookup.spread)?;
        let dest = Dest { unit: unit.dest, slot: unit.dest_slot };
        self.find_instance(id, lookup.entity, query, dest)
    }

    pub(super) fn run_short_index_lookup(&mut self, unit: &Unit) -> Result<()> {
        let program = self.program;
        let id = ExprId(unit.node);
        let ExprKind::ShortIndexLookup(lookup) = &program.expr(id).kind else { return Ok(()) };
        let base = self.eval_in(lookup.base, unit, 0).map_err(|e| self.blame_expr(e, id))?;
        let relation = self.text(lookup.relation);
        let Value::Instance(owner) = base else {
            let text = format!(
                "short index lookup is only possible on one objects, {} is not an object",
                self.str(base)
            );
            return Err(self.blame_expr(CompileError::new("TypingException", text), id));
        };
        let slot = self
            .slot_named(owner, lookup.relation)
            .map_err(|e| self.blame_expr(e, id))?;
        let attribute = self.slot_attribute(owner, slot);
        let declared = self.text(program.entity(attribute.entity).name);
        let Some(end) = attribute.relation else {
            let text = format!(
                "short index lookup is only possible on relations, {declared}.{relation} is an attribute"
            );
            return Err(self.blame_expr(CompileError::new("TypingException", text), id));
        };
        let Some(inverse) = end.inverse else {
            let text = format!(
                "short index lookup is only possible on bi-drectional relations, {declared}.{relation} is unidirectional"
            );
            return Err(self.blame_expr(CompileError::new("TypingException", text), id));
        };
        let first = program.expr(lookup.base).temps;
        let mut query = vec![(program.attribute(inverse).name, base)];
        query.extend(self.query_values(id, unit, first, &lookup.query, &lookup.spread)?);
        let dest = Dest { unit: unit.dest, slot: unit.dest_slot };
        self.find_instance(id, end.target, query, dest)
    }
}
