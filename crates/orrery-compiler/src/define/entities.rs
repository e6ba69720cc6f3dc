//! Entities: parents before children, attributes with their types, then the consequences of
//! inheritance: cell order, defaults and ancestors.

use orrery_syntax::Symbol;
use orrery_syntax::ast::{self, Item};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::define::{Builder, duplicate};
use crate::error::{CompileError, Result};
use crate::load::LoadedFile;
use crate::program::{Attribute, AttributeId, Definition, EntityId, NamespaceId, Type};
use crate::value::Value;

/// Limit on ancestors, attributes and implementations of all entities, counting inherited ones for
/// each. Every entity has its own tables, so a chain of parents needs memory quadratic in its
/// length; this limit allows a chain of 6,000. The reference compiler overflows its stack at about
/// 1,000.
const INHERITED_MAX: usize = 20_000_000;

impl Builder {
    pub(crate) fn define_entities(
        &mut self,
        files: &[LoadedFile],
        names: &FxHashMap<(usize, usize), u32>,
    ) -> Result<()> {
        let mut sources: Vec<(u32, &ast::Entity, NamespaceId)> = Vec::new();
        for (at, file) in files.iter().enumerate() {
            for (position, item) in file.ast.items.iter().enumerate() {
                if let Item::Entity(entity) = item {
                    sources.push((names[&(at, position)], entity, NamespaceId(at as u32)));
                }
            }
        }
        sources.sort_by_key(|(number, ..)| *number);
        for (_, source, namespace) in &sources {
            let entity = self.new_entity(*namespace, source.name.symbol, source.loc);
            self.program.entities.push(entity);
        }
        self.ensure_root();
        for (number, source, namespace) in &sources {
            self.parents(EntityId(*number), source, *namespace)?;
        }
        let order = self.parents_first(&sources)?;
        let root = self.std_entity;
        self.program.entities[root.index()].ancestors = vec![root];
        for id in order {
            let Some((_, source, namespace)) = sources.get(id.index()) else { continue };
            self.collect_ancestors(id)?;
            for attribute in &source.attributes {
                self.attribute(id, source, attribute, *namespace)?;
            }
            self.check_parents_agree(id)?;
        }
        Ok(())
    }

    /// Collects the ancestors of an entity: itself and those of its parents, which are already
    /// complete.
    fn collect_ancestors(&mut self, id: EntityId) -> Result<()> {
        let parents = &self.program.entity(id).parents;
        let mut ancestors = match parents.first() {
            Some(&parent) => self.program.entity(parent).ancestors.clone(),
            None => Vec::new(),
        };
        if parents.len() > 1 {
            for &parent in parents.iter().skip(1) {
                ancestors.extend(&self.program.entity(parent).ancestors);
            }
            ancestors.sort_unstable();
            ancestors.dedup();
        }
        if let Err(at) = ancestors.binary_search(&id) {
            ancestors.insert(at, id);
        }
        self.count_inherited(id, ancestors.len())?;
        ancestors.shrink_to_fit();
        self.program.entities[id.index()].ancestors = ancestors;
        Ok(())
    }

    /// Counts inherited items and enforces `INHERITED_MAX`.
    pub(crate) fn count_inherited(&mut self, id: EntityId, count: usize) -> Result<()> {
        self.inherited += count;
        if self.inherited <= INHERITED_MAX {
            return Ok(());
        }
        let entity = self.program.entity(id);
        let text = format!(
            "entities inherit too much from each other: more than {INHERITED_MAX} ancestors and \
             attributes for all of them, with `{}`, which has {count}",
            self.text(entity.name)
        );
        Err(CompileError::new("NestingException", text)
            .at(entity.loc)
            .help("shorten the chains of parents, or give the common parents fewer attributes"))
    }

    /// Creates `std::Entity` if no file defines it.
    fn ensure_root(&mut self) {
        let std = self.program.namespace_of[&self.known.std];
        let entity = self.known.entity;
        let found = self.program.namespaces[std.index()].definitions.get(&entity).copied();
        self.std_entity = match found {
            Some(Definition::Entity(id)) => id,
            _ => {
                let file = self.program.namespaces[std.index()].file;
                let loc = ast::Loc { file, start: 0, end: 0, column: false };
                let id = EntityId(self.program.entities.len() as u32);
                let root = self.new_entity(std, entity, loc);
                self.program.entities.push(root);
                let definitions = &mut self.program.namespaces[std.index()].definitions;
                definitions.insert(entity, Definition::Entity(id));
                id
            }
        };
    }

    fn parents(
        &mut self,
        id: EntityId,
        source: &ast::Entity,
        namespace: NamespaceId,
    ) -> Result<()> {
        let statement = format!("Entity({})", self.text(source.name.symbol));
        let mut parents = Vec::new();
        for parent in &source.parents {
            let parent = self
                .resolve_entity(parent.symbol, parent.loc, namespace)
                .map_err(|e| e.or_in_statement(|| statement.clone(), source.loc))?;
            if parents.contains(&parent) {
                let error = CompileError::new("TypingException", "same parent defined twice");
                let loc = ast::Loc { column: false, ..source.loc };
                return Err(error.in_statement(statement, loc));
            }
            parents.push(parent);
        }
        if parents.is_empty() && id != self.std_entity {
            parents.push(self.std_entity);
        }
        for &parent in &parents {
            self.program.entities[parent.index()].children.push(id);
        }
        self.program.entities[id.index()].parents = parents;
        Ok(())
    }

    fn parents_first(&self, sources: &[(u32, &ast::Entity, NamespaceId)]) -> Result<Vec<EntityId>> {
        let mut order = Vec::new();
        let mut done: FxHashSet<EntityId> = FxHashSet::default();
        for (number, ..) in sources {
            let mut path: Vec<(EntityId, usize)> = vec![(EntityId(*number), 0)];
            let mut on_path: FxHashSet<EntityId> = FxHashSet::default();
            while let Some((id, next)) = path.pop() {
                if done.contains(&id) {
                    continue;
                }
                let parents = &self.program.entity(id).parents;
                if next == parents.len() {
                    done.insert(id);
                    order.push(id);
                    on_path.remove(&id);
                    continue;
                }
                path.push((id, next + 1));
                on_path.insert(id);
                let parent = parents[next];
                if on_path.contains(&parent)
                    && let Some(start) = path.iter().position(|(other, _)| *other == parent)
                {
                    let mut names: Vec<&str> = Vec::new();
                    for (other, _) in path[start..].iter().rev() {
                        names.push(self.text(self.program.entity(*other).name));
                    }
                    let text = format!("Entity can not be its own parent {}", names.join(","));
                    let last = path.last().map_or(path[start].0, |(last, _)| *last);
                    let last = self.program.entity(last);
                    let statement = format!("Entity({})", self.text(last.short));
                    let loc = ast::Loc { column: false, ..last.loc };
                    let error = CompileError::new("CycleException", text);
                    return Err(error.in_statement(statement, loc));
                }
                if !done.contains(&parent) {
                    path.push((parent, 0));
                }
            }
        }
        Ok(order)
    }

    fn attribute(
        &mut self,
        id: EntityId,
        source: &ast::Entity,
        attribute: &ast::Attribute,
        namespace: NamespaceId,
    ) -> Result<()> {
        let statement = format!("Entity({})", self.text(source.name.symbol));
        let mut ty = self
            .resolve_type(attribute.ty.path.symbol, attribute.ty.path.loc, namespace)
            .map_err(|e| e.or_in_statement(|| statement.clone(), source.loc))?;
        if attribute.ty.list {
            ty = self.program.intern_type(Type::ListOf(ty));
        }
        if attribute.ty.nullable {
            ty = self.program.intern_type(Type::Nullable(ty));
        }
        if let Some(&own) = self.own_names.get(&(id, attribute.name.symbol)) {
            let text = format!(
                "attribute '{}' already exists on entity '{}'",
                self.text(attribute.name.symbol),
                self.text(self.program.entity(id).short)
            );
            return Err(duplicate(text, self.program.attribute(own).loc, attribute.loc));
        }
        let differs = |other: &Attribute| {
            other.name == attribute.name.symbol && other.ty != ty && other.relation.is_none()
        };
        if let Some(other) = self.inherited_attribute(id, differs) {
            return Err(duplicate("Incompatible attributes", attribute.loc, other.loc));
        }
        let number = AttributeId(self.program.attributes.len() as u32);
        self.program.attributes.push(Attribute {
            name: attribute.name.symbol,
            entity: id,
            ty,
            relation: None,
            loc: attribute.loc,
        });
        self.program.entities[id.index()].own.push(number);
        self.own_names.insert((id, attribute.name.symbol), number);
        let default = match &attribute.default {
            ast::Default::None | ast::Default::Undef => None,
            ast::Default::Value(expr) => Some(self.constant(expr).ok_or_else(|| {
                let shown = self.render_ast(non_constant_part(expr));
                let declaration = self.render_attribute(attribute);
                CompileError::new("RuntimeException", format!("{shown} is not a constant"))
                    .in_statement(declaration, attribute.name.loc)
            })?),
        };
        let declaration = self.render_attribute(attribute);
        let entity = &mut self.program.entities[id.index()];
        entity.own_defaults.push((attribute.name.symbol, default));
        if default.is_some() {
            let name = attribute.name;
            entity.declarations.push((name.symbol, declaration, name.loc));
        }
        Ok(())
    }

    /// The nearest matching attribute of an ancestor.
    pub(crate) fn inherited_attribute(
        &self,
        id: EntityId,
        wanted: impl Fn(&Attribute) -> bool,
    ) -> Option<&Attribute> {
        let of = |ancestor: &EntityId| {
            let own = &self.program.entity(*ancestor).own;
            own.iter().map(|&own| self.program.attribute(own)).find(|&own| wanted(own))
        };
        // Usually none exists: the search order matters only when one does.
        let mut ancestors = self.program.entity(id).ancestors.iter().filter(|&&other| other != id);
        ancestors.find_map(of)?;
        self.lineage(id).iter().skip(1).find_map(of)
    }

    /// Checks that parents that share an attribute name share its type.
    fn check_parents_agree(&self, id: EntityId) -> Result<()> {
        let parents = &self.program.entity(id).parents;
        if parents.len() < 2 {
            return Ok(());
        }
        let mut seen: FxHashMap<Symbol, AttributeId> = FxHashMap::default();
        for &parent in parents {
            for ancestor in self.lineage(parent) {
                for &own in &self.program.entity(ancestor).own {
                    let attribute = self.program.attribute(own);
                    let first = *seen.entry(attribute.name).or_insert(own);
                    let first = self.program.attribute(first);
                    if first.ty != attribute.ty {
                        return Err(duplicate("Incompatible attributes", first.loc, attribute.loc));
                    }
                }
            }
        }
        Ok(())
    }

    /// Computes cells, defaults and ancestors from the declarations; parents before children.
    pub(crate) fn finish_entities(&mut self) -> Result<()> {
        let mut done: FxHashSet<EntityId> = FxHashSet::default();
        for number in 0..self.program.entities.len() {
            self.finish_entity(EntityId(number as u32), &mut done)?;
        }
        Ok(())
    }

    fn finish_entity(&mut self, root: EntityId, done: &mut FxHashSet<EntityId>) -> Result<()> {
        let mut path = vec![root];
        while let Some(&id) = path.last() {
            let waiting = self.program.entity(id).parents.iter().find(|p| !done.contains(p));
            if let Some(&parent) = waiting {
                path.push(parent);
                continue;
            }
            path.pop();
            if !done.insert(id) {
                continue;
            }
            self.compute_slots(id);
            self.count_inherited(id, self.program.entity(id).slots.len())?;
            self.compute_defaults(id);
        }
        Ok(())
    }

    /// Ancestors first, the right-most parent first, own ones last; a name keeps its first
    /// position.
    fn compute_slots(&mut self, id: EntityId) {
        let mut slots: Vec<AttributeId> = Vec::new();
        let mut slot_of: FxHashMap<Symbol, u32> = FxHashMap::default();
        let entity = self.program.entity(id);
        let inherited = entity
            .parents
            .iter()
            .rev()
            .flat_map(|&parent| self.program.entity(parent).slots.iter().copied());
        for attribute in inherited.chain(entity.own.iter().copied()) {
            let name = self.program.attribute(attribute).name;
            match slot_of.get(&name) {
                Some(&slot) => {
                    let known = self.program.attribute(slots[slot as usize]).entity;
                    let declared = self.program.attribute(attribute).entity;
                    // The left-most parent counts, unless another declaration refines its own.
                    if !self.program.is_subtype(known, declared) || known == declared {
                        slots[slot as usize] = attribute;
                    }
                }
                None => {
                    slot_of.insert(name, slots.len() as u32);
                    slots.push(attribute);
                }
            }
        }
        let entity = &mut self.program.entities[id.index()];
        entity.slots = slots;
        entity.slot_of = slot_of;
    }

    /// Walks all ancestors once each, the right-most parent first. The last one wins, even if it
    /// declares the attribute without a default.
    fn compute_defaults(&mut self, id: EntityId) {
        let entity = self.program.entity(id);
        if let ([parent], []) = (entity.parents.as_slice(), entity.own_defaults.as_slice()) {
            let inherited = self.program.entity(*parent).defaults.clone();
            self.program.entities[id.index()].defaults = inherited;
            return;
        }
        let mut seen: FxHashSet<EntityId> = FxHashSet::default();
        let mut order: Vec<EntityId> = Vec::new();
        let mut path: Vec<(EntityId, bool)> = vec![(id, false)];
        while let Some((at, visited)) = path.pop() {
            if visited {
                order.push(at);
            } else if seen.insert(at) {
                path.push((at, true));
                path.extend(self.program.entity(at).parents.iter().map(|&parent| (parent, false)));
            }
        }
        let mut merged: indexmap::IndexMap<Symbol, Option<Value>> = indexmap::IndexMap::new();
        for ancestor in order {
            for &(name, value) in &self.program.entity(ancestor).own_defaults {
                if value.is_some() || merged.contains_key(&name) {
                    merged.insert(name, value);
                }
            }
        }
        let defaults =
            merged.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        self.program.entities[id.index()].defaults = defaults;
    }
}

/// The part of a default that prevents it from being constant.
fn non_constant_part(expr: &ast::Expr) -> &ast::Expr {
    let constant = |expr: &&ast::Expr| {
        matches!(
            expr.kind,
            ast::ExprKind::Null
                | ast::ExprKind::Bool(_)
                | ast::ExprKind::Int(_)
                | ast::ExprKind::Float(_)
                | ast::ExprKind::String(_)
        )
    };
    match &expr.kind {
        ast::ExprKind::List(items) => {
            items.iter().find(|item| !constant(item)).map_or(expr, non_constant_part)
        }
        ast::ExprKind::Dict(items) => {
            let mut values = items.iter().map(|(_, _, value)| value);
            values.find(|value| !constant(value)).map_or(expr, non_constant_part)
        }
        _ => expr,
    }
}
