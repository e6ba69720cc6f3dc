//! Indexes: instances by the values of their key attributes, and lookups that wait for one.

use orrery_syntax::Symbol;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::error::{CompileError, Result};
use crate::ir::{ExprId, ExprKind};
use crate::program::{EntityId, Program};
use crate::value::{InstanceId, Value};

use super::build_units::Dest;
use super::{Evaluator, PendingLookup, Unit};

/// Instances found for a key.
pub(super) type Matches = SmallVec<[InstanceId; 4]>;

/// Encoded key: equal keys have equal words.
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

    pub(super) fn tables_of(&self, entity: EntityId) -> &[(u32, u32)] {
        &self.of_entity[entity.index()]
    }
}

/// Converts integers to floats for attributes of type float.
fn key_value(value: Value, float: bool) -> Value {
    match value {
        Value::Int(i) if float => Value::Float(i as f64),
        Value::Bool(b) if float => Value::Float(f64::from(u8::from(b))),
        _ => value,
    }
}

fn value_at(slot: u32, values: &[(u32, Value)]) -> Value {
    let found = values.iter().find(|(other, _)| *other == slot);
    found.map_or(Value::Null, |(_, value)| *value)
}

impl Evaluator<'_> {
    fn key_word(&mut self, value: Value, float: bool, key: &mut Vec<u64>) {
        let (tag, payload) = match key_value(value, float) {
            Value::Null => (0, 0),
            Value::Bool(b) => (1, u64::from(b)),
            Value::Int(i) => (2, i as u64),
            Value::Float(f) if f.is_nan() => (3, f64::NAN.to_bits()),
            Value::Float(f) => (3, f.to_bits()),
            Value::Str(id) => (4, u64::from(id.0)),
            Value::Instance(id) => (5, u64::from(id.0)),
            Value::Unknown(id) => (6, u64::from(id.0)),
            value @ (Value::List(_) | Value::Dict(_) | Value::Big(_) | Value::Other(_)) => {
                let text = self.repr(value);
                (7, u64::from(self.heap.intern(&text).0))
            }
        };
        key.push(tag);
        key.push(payload);
    }

    /// Writes the words of a key into a reused buffer.
    fn key(&mut self, slots: &[(u32, bool)], values: &[(u32, Value)]) -> Vec<u64> {
        let mut key = std::mem::take(&mut self.indexes.scratch);
        key.clear();
        for &(slot, float) in slots {
            self.key_word(value_at(slot, values), float, &mut key);
        }
        key
    }

    /// `name=repr` pairs of a key for messages.
    pub(super) fn key_text(
        &self,
        entity: EntityId,
        slots: &[(u32, bool)],
        values: &[(u32, Value)],
    ) -> String {
        let mut parts = Vec::new();
        for &(slot, float) in slots {
            let name = self.text(self.program.slot(entity, slot).name);
            let value = key_value(value_at(slot, values), float);
            parts.push(format!("{name}={}", self.repr(value)));
        }
        parts.join(", ")
    }

    /// All instances that match one of the entity's indexes completely.
    pub(super) fn index_matches(&mut self, entity: EntityId, values: &[(u32, Value)]) -> Matches {
        let program = self.program;
        let mut found = Matches::new();
        for at in 0..self.indexes.tables_of(entity).len() {
            let (_, table) = self.indexes.tables_of(entity)[at];
            let key = self.key(&program.entity(entity).index_slots[at], values);
            if let Some(&instance) = self.indexes.tables[table as usize].get(key.as_slice()) {
                found.push(instance);
            }
            self.indexes.scratch = key;
        }
        found
    }

    /// Registers a new instance in its own tables and those of its ancestors.
    pub(super) fn register(
        &mut self,
        instance: InstanceId,
        values: &[(u32, Value)],
        constructor: ExprId,
    ) -> Result<()> {
        let program = self.program;
        let entity = self.instances[instance.index()].entity;
        for at in 0..self.indexes.tables_of(entity).len() {
            let (index, _) = self.indexes.tables_of(entity)[at];
            let slots = &program.entity(entity).index_slots[at];
            let key = self.key(slots, values);
            for &ancestor in &program.entity(entity).ancestors {
                let table =
                    self.indexes.tables_of(ancestor).iter().find(|(other, _)| *other == index);
                let Some(&(_, table)) = table else { continue };
                if let Some(&other) = self.indexes.tables[table as usize].get(key.as_slice()) {
                    let text =
                        format!("Duplicate key in index. {}", self.key_text(entity, slots, values));
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
        query: Vec<(Symbol, Value)>,
        dest: Dest,
    ) -> Result<()> {
        let program = self.program;
        let full = self.text(program.entity(entity).name);
        let mut names: Vec<Symbol> = query.iter().map(|(name, _)| *name).collect();
        names.sort_by_key(|&name| self.text(name));
        let found = self
            .indexes
            .tables_of(entity)
            .iter()
            .position(|(index, _)| program.indexes[*index as usize].attributes == names);
        let Some(at) = found else {
            let parts: Vec<String> = query
                .iter()
                .map(|(name, value)| format!("('{}', {})", self.text(*name), self.repr(*value)))
                .collect();
            let text =
                format!("No index defined on {full} for this lookup: [{}]", parts.join(", "));
            let error = CompileError::new("NotFoundException", text);
            return Err(self.blame_expr(error, id));
        };
        let (_, table) = self.indexes.tables_of(entity)[at];
        let slot_of = &program.entity(entity).slot_of;
        let values: Vec<(u32, Value)> =
            query.iter().filter_map(|(name, value)| Some((*slot_of.get(name)?, *value))).collect();
        let key = self.key(&program.entity(entity).index_slots[at], &values);
        let found = self.indexes.tables[table as usize].get(key.as_slice()).copied();
        if let Some(instance) = found {
            self.indexes.scratch = key;
            self.deliver(dest, Value::Instance(instance));
            return Ok(());
        }
        let lookup = PendingLookup {
            dest: dest.unit,
            dest_slot: dest.slot,
            expr: id,
            values,
            index: at as u32,
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
            if values.iter().any(|(other, _)| *other == name) {
                return Err(self.provided_twice(id, self.text(name)));
            }
            values
                .push((name, self.eval_in(expr, unit, slot).map_err(|e| self.blame_expr(e, id))?));
            slot += self.program.expr(expr).temps;
        }
        for &expr in spread {
            let value = self.eval_in(expr, unit, slot).map_err(|e| self.blame_expr(e, id))?;
            let entries = self.spread_entries(expr, value).map_err(|e| {
                let loc = self.program.expr(id).loc;
                e.in_statement(self.renderer().expr(id), loc)
            })?;
            for (name, value) in entries {
                if let Some(symbol) = self.program.interner.get(&name) {
                    if values.iter().any(|(other, _)| *other == symbol) {
                        return Err(self.provided_twice(id, &name));
                    }
                    values.push((symbol, value));
                }
            }
            slot += self.program.expr(expr).temps;
        }
        Ok(values)
    }

    fn provided_twice(&self, id: ExprId, name: &str) -> Box<CompileError> {
        let text = format!("Attribute {name} provided twice in index lookup");
        self.blame_expr(CompileError::new("RuntimeException", text), id)
    }

    /// The entries of a `**dict`.
    pub(super) fn spread_entries(
        &self,
        expr: ExprId,
        value: Value,
    ) -> Result<Vec<(String, Value)>> {
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
                "short index lookup is only possible one objects, {} is not an object",
                self.str(base)
            );
            return Err(self.blame_expr(CompileError::new("TypingException", text), id));
        };
        let slot = self.slot_named(owner, lookup.relation).map_err(|e| self.blame_expr(e, id))?;
        let attribute = self.slot_attribute(owner, slot);
        let declared = self.text(program.entity(attribute.entity).name);
        let Some(end) = attribute.relation else {
            let text = format!(
                "short index lookup is only possible on relations, {relation} is an attribute"
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
