//! `implement` statements: the implementations that an entity's instances run and their conditions;
//! and further per-entity layout before the run.

use indexmap::IndexSet;
use orrery_syntax::ast::{self, Item, Loc};
use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::define::Builder;
use crate::error::{CompileError, Result};
use crate::ir::{ExprKind, Implement};
use crate::load::LoadedFile;
use crate::lower::{Globals, Level, Lowering};
use crate::program::{Definition, EntityId, NamespaceId, Type};
use crate::value::Value;

impl Builder {
    pub(crate) fn lower_implements(
        &mut self,
        files: &[LoadedFile],
        globals: &[Globals],
    ) -> Result<()> {
        for (at, file) in files.iter().enumerate() {
            for item in &file.ast.items {
                let Item::Implement(implement) = item else { continue };
                let namespace = NamespaceId(at as u32);
                let statement = format!("Implement({})", self.text(implement.entity.symbol));
                self.implement(implement, namespace, globals[at].clone()).map_err(|e| {
                    e.or_in_statement(|| statement, Loc { column: false, ..implement.loc })
                })?;
            }
        }
        for number in 0..self.program.entities.len() {
            let all = self.implements_of(EntityId(number as u32));
            let mut bits = IndexSet::<u32, FxBuildHasher>::default();
            for &implement in &all {
                bits.extend(&self.program.implements[implement as usize].implementations);
            }
            self.count_inherited(EntityId(number as u32), all.len())?;
            self.program.entities[number].implements = all;
            self.program.entities[number].implementations = bits.into_iter().collect();
            self.compute_index_slots(EntityId(number as u32));
        }
        Ok(())
    }

    /// The `implement` statements of an entity in effective order: its own, then, if one of them
    /// says `parents`, those of each parent with its ancestors.
    fn implements_of(&self, id: EntityId) -> Vec<u32> {
        let mut all = Vec::new();
        let mut seen = FxHashSet::default();
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            if !seen.insert(id) {
                continue;
            }
            let entity = self.program.entity(id);
            all.extend(&entity.own_implements);
            let says_parents =
                |&implement: &u32| self.program.implements[implement as usize].parents;
            if entity.own_implements.iter().any(says_parents) {
                pending.extend(entity.parents.iter().rev());
            }
        }
        all
    }

    /// Computes the slots of an entity's index attributes.
    fn compute_index_slots(&mut self, id: EntityId) {
        let entity = self.program.entity(id);
        let mut all = Vec::new();
        for &index in &entity.indexes {
            let mut slots = Vec::new();
            for name in &self.program.indexes[index as usize].attributes {
                let slot = entity.slot_of[name];
                let mut ty = self.program.slot(id, slot).ty;
                if let Type::Nullable(inner) = self.program.ty(ty) {
                    ty = *inner;
                }
                slots.push((slot, *self.program.ty(ty) == Type::Float));
            }
            all.push(slots);
        }
        let delayed = |slot: &usize| {
            let attribute = self.program.attribute(entity.slots[*slot]);
            attribute.relation.is_some_and(|end| !end.is_single() && end.low == 0)
        };
        let open = (0..entity.slots.len()).filter(delayed).map(|slot| slot as u32).collect();
        let entity = &mut self.program.entities[id.index()];
        entity.index_slots = all;
        entity.open_slots = open;
    }

    fn implement(
        &mut self,
        implement: &ast::Implement,
        namespace: NamespaceId,
        globals: Globals,
    ) -> Result<()> {
        let entity =
            self.resolve_entity(implement.entity.symbol, implement.entity.loc, namespace)?;
        let mut implementations = Vec::new();
        let mut parents = false;
        for using in &implement.using {
            let path = match using {
                ast::ImplementationRef::Parents(_) => {
                    parents = true;
                    continue;
                }
                ast::ImplementationRef::Named(path) => path,
            };
            let number = match self.lookup(path.symbol, namespace) {
                Some(Definition::Implementation(number)) => number,
                Some(_) => {
                    let text = format!("{} is not an implementation", self.text(path.symbol));
                    let mut error = CompileError::new("AssertionError", text);
                    error.bare = true;
                    return Err(error);
                }
                None => return Err(self.type_not_found(path.symbol, path.loc, namespace)),
            };
            let target = self.program.implementations[number as usize].entity;
            if !self.program.is_subtype(entity, target) {
                let text = format!(
                    "Type mismatch: cannot use {} as implementation for  {} because its implementing type is {}",
                    self.text(self.program.implementations[number as usize].name),
                    self.text(self.program.entity(entity).name),
                    self.text(self.program.entity(target).name),
                );
                return Err(CompileError::new("TypingException", text));
            }
            implementations.push(number);
        }
        let mut lowering = Lowering {
            b: self,
            levels: vec![Level::Instance(entity)],
            namespace,
            globals,
            error: None,
        };
        let when = implement.when.as_ref().map(|when| lowering.expr(when));
        if let Some(mut error) = lowering.error.take() {
            // The reference compiler names no statement here.
            error.location_only = true;
            return Err(error);
        }
        let when = when.filter(|&when| {
            !matches!(self.program.expr(when).kind, ExprKind::Const(Value::Bool(true)))
        });
        if parents && when.is_some() {
            let text = "Conditional implementation with parents not allowed";
            let shown = format!("Implement({})", self.text(implement.entity.symbol));
            let error = CompileError::new("RuntimeException", text);
            return Err(error.in_statement(shown, implement.entity.loc));
        }
        let number = self.program.implements.len() as u32;
        self.program.implements.push(Implement {
            entity,
            implementations: implementations.into_boxed_slice(),
            parents,
            when,
            namespace,
            loc: implement.entity.loc,
        });
        self.program.entities[entity.index()].own_implements.push(number);
        Ok(())
    }
}
