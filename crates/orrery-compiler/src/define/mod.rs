//! Registers the definitions of all files: names first, then typedefs, entities (parents first),
//! relations and implementations in statement order, indexes and implements. Authors can ignore the
//! order, but it decides the order of cells in an instance.

pub(crate) mod dataclasses;
mod entities;
mod plugins;
mod undefined_names;

use indexmap::IndexSet;
use orrery_syntax::ast::{self, Item, Loc};
use orrery_syntax::{Interner, Symbol};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::define::plugins::ShowFile;
use crate::error::{CompileError, Result};
use crate::host::Signature;
use crate::load::LoadedFile;
use crate::program::{
    Attribute, AttributeId, Definition, Entity, EntityId, Index, Namespace, NamespaceId, Program,
    RelationEnd, Type, TypeId,
};
use crate::source::Sources;
use crate::value::Heap;

/// Symbols that the compiler itself uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WellKnownSymbols {
    pub self_: Symbol,
    pub requires: Symbol,
    pub provides: Symbol,
    pub std: Symbol,
    pub entity: Symbol,
}

pub(crate) struct Builder {
    pub program: Program,
    pub heap: Heap,
    pub known: WellKnownSymbols,
    pub warnings: Vec<(&'static str, String, Option<Loc>)>,
    pub std_entity: EntityId,
    pub policy: Vec<String>,
    /// Number of ancestors, attributes and implementations that all entities have inherited so far.
    pub inherited: usize,
    /// Attributes and relations by the entity that declares them.
    pub own_names: FxHashMap<(EntityId, Symbol), AttributeId>,
}

/// Position of a definition among the loaded files.
type ItemPosition = (usize, usize);

impl Builder {
    pub(crate) fn new(mut interner: Interner, sources: Sources, policy: Vec<String>) -> Self {
        let known = WellKnownSymbols {
            self_: interner.intern("self"),
            requires: interner.intern("requires"),
            provides: interner.intern("provides"),
            std: interner.intern("std"),
            entity: interner.intern("Entity"),
        };
        let program = Program { interner, sources, ..Program::default() };
        Builder {
            program,
            heap: Heap::default(),
            known,
            warnings: Vec::new(),
            std_entity: EntityId(0),
            policy,
            inherited: 0,
            own_names: FxHashMap::default(),
        }
    }

    pub(crate) fn define(
        &mut self,
        files: &[LoadedFile],
        plugins: Vec<Signature>,
        show: ShowFile<'_>,
    ) -> Result<()> {
        self.register_namespaces(files)?;
        let names = self.register_names(files)?;
        self.register_plugins(plugins, files, show)?;
        self.typedef_bases(files, &names)?;
        self.define_entities(files, &names)?;
        self.resolve_plugin_types(show)?;
        self.builtin_relation();
        self.relations_and_implementations(files)?;
        self.check_inherited_names()?;
        self.finish_entities()?;
        self.define_indexes(files)?;
        self.apply_precedence_policy()?;
        Ok(())
    }

    pub(crate) fn text(&self, symbol: Symbol) -> &str {
        self.program.interner.text(symbol)
    }

    fn register_namespaces(&mut self, files: &[LoadedFile]) -> Result<()> {
        for file in files {
            self.add_namespace(file.namespace, file.file, file.foreign_plugins);
        }
        if !self.program.namespace_of.contains_key(&self.known.std) {
            // The root of all entities lives in `std`, loaded or not.
            self.add_namespace(self.known.std, files[0].file, false);
        }
        for at in 0..self.program.namespaces.len() {
            let name = self.text(self.program.namespaces[at].name).to_owned();
            let parent = name.rsplit_once("::").and_then(|(parent, _)| {
                let parent = self.program.interner.get(parent)?;
                self.program.namespace_of.get(&parent).copied()
            });
            self.program.namespaces[at].parent = parent;
        }
        for (at, file) in files.iter().enumerate() {
            let own = self.program.namespaces[at].name;
            let mut seen: FxHashMap<Symbol, Loc> = FxHashMap::default();
            let mut visible = FxHashMap::default();
            for item in &file.ast.items {
                let Item::Import(import) = item else { continue };
                let name = import.alias.map_or(import.path.symbol, |alias| alias.symbol);
                if let Some(&first) = seen.get(&name) {
                    let text = "Two import statements have the same name";
                    return Err(duplicate(text, import.loc, first));
                }
                seen.insert(name, import.loc);
                visible.insert(name, self.program.namespace_of[&import.path.symbol]);
            }
            // An alias can hide the file's own name.
            visible.entry(own).or_insert(NamespaceId(at as u32));
            if let Some(&std) = self.program.namespace_of.get(&self.known.std) {
                visible.entry(self.known.std).or_insert(std);
            }
            self.program.namespaces[at].imports = visible;
        }
        Ok(())
    }

    fn add_namespace(&mut self, name: Symbol, file: ast::FileId, foreign_plugins: bool) {
        let id = NamespaceId(self.program.namespaces.len() as u32);
        self.program.namespaces.push(Namespace {
            name,
            parent: None,
            imports: FxHashMap::default(),
            definitions: FxHashMap::default(),
            variables: FxHashMap::default(),
            file,
            foreign_plugins,
        });
        self.program.namespace_of.insert(name, id);
    }

    /// Numbers every entity, typedef and implementation. Returns the positions of entities.
    fn register_names(&mut self, files: &[LoadedFile]) -> Result<FxHashMap<ItemPosition, u32>> {
        let mut numbers = FxHashMap::default();
        let mut seen: FxHashMap<(NamespaceId, Symbol), Loc> = FxHashMap::default();
        let (mut entities, mut typedefs, mut implementations) = (0u32, 0u32, 0u32);
        for (at, file) in files.iter().enumerate() {
            let namespace = NamespaceId(at as u32);
            for (position, item) in file.ast.items.iter().enumerate() {
                let (name, definition) = match item {
                    Item::Entity(entity) => {
                        entities += 1;
                        (entity.name, Definition::Entity(EntityId(entities - 1)))
                    }
                    Item::Typedef(typedef) => {
                        let text = self.text(typedef.name.symbol);
                        if matches!(text, "string" | "int" | "float" | "number" | "bool" | "list") {
                            let text = format!(
                                "Trying to override a built-in type: {text} (reported in Type({text}) ({}))",
                                self.program.sources.location(typedef.loc)
                            );
                            self.warnings.push(("CompilerRuntimeWarning", text, Some(typedef.loc)));
                        }
                        typedefs += 1;
                        (typedef.name, Definition::Typedef(typedefs - 1))
                    }
                    Item::Implementation(implementation) => {
                        implementations += 1;
                        (implementation.name, Definition::Implementation(implementations - 1))
                    }
                    _ => continue,
                };
                let number = match definition {
                    Definition::Entity(id) => id.0,
                    Definition::Typedef(id) | Definition::Implementation(id) => id,
                    Definition::Plugin(_) => continue,
                };
                numbers.insert((at, position), number);
                let loc = item_loc(item);
                if let Some(&first) = seen.get(&(namespace, name.symbol)) {
                    let full = self.full_name(namespace, name.symbol);
                    let text = match item {
                        Item::Entity(_) => format!("Entity {full} is already defined"),
                        Item::Typedef(_) => format!("TypeConstraint {full} is already defined"),
                        Item::Implementation(implementation) => format!(
                            "Implementation {full} for type {} is already defined",
                            self.text(implementation.entity.symbol)
                        ),
                        _ => continue,
                    };
                    return Err(duplicate(text, loc, first));
                }
                seen.insert((namespace, name.symbol), loc);
                self.program.namespaces[at].definitions.insert(name.symbol, definition);
            }
        }
        Ok(numbers)
    }

    pub(crate) fn full_name(&self, namespace: NamespaceId, name: Symbol) -> String {
        let namespace = self.program.namespaces[namespace.index()].name;
        format!("{}::{}", self.text(namespace), self.text(name))
    }

    fn typedef_bases(
        &mut self,
        files: &[LoadedFile],
        names: &FxHashMap<ItemPosition, u32>,
    ) -> Result<()> {
        let mut collected: Vec<(u32, &ast::Typedef, NamespaceId)> = Vec::new();
        for (at, file) in files.iter().enumerate() {
            for (position, item) in file.ast.items.iter().enumerate() {
                if let Item::Typedef(typedef) = item {
                    let number = names[&(at, position)];
                    collected.push((number, typedef, NamespaceId(at as u32)));
                }
            }
        }
        collected.sort_by_key(|(number, ..)| *number);
        for (_, typedef, namespace) in collected {
            let base = self.resolve_type(typedef.base.symbol, typedef.base.loc, namespace)?;
            self.program.typedefs.push(crate::ir::Typedef {
                name: typedef.name.symbol,
                base,
                constraint: crate::ir::ExprId(0),
                namespace,
                loc: typedef.loc,
            });
        }
        Ok(())
    }

    /// Looks up a name as the files see it. Unqualified names: own namespace, then its parents.
    pub(crate) fn lookup(&self, name: Symbol, namespace: NamespaceId) -> Option<Definition> {
        let text = self.text(name);
        if let Some((prefix, last)) = text.rsplit_once("::") {
            let target = self.visible_namespace(prefix, namespace)?;
            let last = self.program.interner.get(last)?;
            return self.program.namespaces[target.index()].definitions.get(&last).copied();
        }
        let mut at = Some(namespace);
        while let Some(id) = at {
            let namespace = &self.program.namespaces[id.index()];
            if let Some(&found) = namespace.definitions.get(&name) {
                return Some(found);
            }
            at = namespace.parent;
        }
        None
    }

    pub(crate) fn visible_namespace(&self, prefix: &str, from: NamespaceId) -> Option<NamespaceId> {
        let prefix = self.program.interner.get(prefix)?;
        self.program.namespaces[from.index()].imports.get(&prefix).copied()
    }

    pub(crate) fn primitive(&mut self, text: &str) -> Option<TypeId> {
        Type::primitive(text).map(|ty| self.program.intern_type(ty))
    }

    pub(crate) fn warn_number_type(&mut self, loc: Loc) {
        let text = "Type 'number' is deprecated, use 'float' or 'int' instead".to_owned();
        self.warnings.push(("TypeDeprecationWarning", text, Some(loc)));
    }

    /// Resolves the type of an attribute or typedef: primitive or typedef.
    pub(crate) fn resolve_type(
        &mut self,
        name: Symbol,
        loc: Loc,
        namespace: NamespaceId,
    ) -> Result<TypeId> {
        let text = self.text(name).to_owned();
        if let Some(primitive) = self.primitive(&text) {
            if text == "number" {
                self.warn_number_type(loc);
            }
            return Ok(primitive);
        }
        match self.lookup(name, namespace) {
            Some(Definition::Typedef(typedef)) => {
                Ok(self.program.intern_type(Type::Typedef(typedef)))
            }
            Some(Definition::Entity(entity)) => Ok(self.program.intern_type(Type::Entity(entity))),
            _ => Err(self.type_not_found(name, loc, namespace)),
        }
    }

    pub(crate) fn resolve_entity(
        &mut self,
        name: Symbol,
        loc: Loc,
        namespace: NamespaceId,
    ) -> Result<EntityId> {
        match self.lookup(name, namespace) {
            Some(Definition::Entity(entity)) => Ok(entity),
            _ => Err(self.type_not_found(name, loc, namespace)),
        }
    }

    fn relations_and_implementations(&mut self, files: &[LoadedFile]) -> Result<()> {
        for (at, file) in files.iter().enumerate() {
            let namespace = NamespaceId(at as u32);
            for item in &file.ast.items {
                match item {
                    Item::Relation(relation) => self.relation(relation, namespace)?,
                    Item::Implementation(implementation) => {
                        let entity = self.resolve_entity(
                            implementation.entity.symbol,
                            implementation.entity.loc,
                            namespace,
                        );
                        let name = implementation.name.symbol;
                        let entity = entity.map_err(|e| {
                            let statement = format!("Implementation({})", self.text(name));
                            e.or_in_statement(|| statement, implementation.loc)
                        })?;
                        self.program.implementations.push(crate::ir::Implementation {
                            name,
                            entity,
                            body: crate::ir::BlockId(0),
                            namespace,
                            loc: implementation.loc,
                        });
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn relation(&mut self, relation: &ast::Relation, namespace: NamespaceId) -> Result<()> {
        let left = self.resolve_entity(relation.left.symbol, relation.left.loc, namespace);
        let left = left?;
        let right = self.resolve_entity(relation.right.symbol, relation.right.loc, namespace);
        let right = right?;
        // The far end first: if both names are taken, the reference compiler reports that one.
        if let Some((name, _)) = relation.inverse {
            self.check_relation_name(right, name)?;
        }
        self.check_relation_name(left, relation.name)?;
        if let Some((name, _)) = relation.inverse
            && left == right
            && name.symbol == relation.name.symbol
        {
            let own = self.add_relation(left, relation.name, relation.arity, right);
            if let Some(end) = &mut self.program.attributes[own.index()].relation {
                end.inverse = Some(own);
            }
            return Ok(());
        }
        let inverse =
            relation.inverse.map(|(name, arity)| self.add_relation(right, name, arity, left));
        let own = self.add_relation(left, relation.name, relation.arity, right);
        if let Some(inverse) = inverse {
            for (one, other) in [(own, inverse), (inverse, own)] {
                if let Some(end) = &mut self.program.attributes[one.index()].relation {
                    end.inverse = Some(other);
                }
            }
        }
        Ok(())
    }

    /// Checks that the entity has no other attribute or relation of this name.
    fn check_relation_name(&self, entity: EntityId, name: ast::Name) -> Result<()> {
        match self.own_names.get(&(entity, name.symbol)) {
            Some(&own) if entity != self.std_entity => {
                let text = format!(
                    "attribute '{}' already exists on entity '{}'",
                    self.text(name.symbol),
                    self.text(self.program.entity(entity).short)
                );
                Err(duplicate(text, self.program.attribute(own).loc, name.loc))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no relation has the name of an inherited attribute or relation.
    fn check_inherited_names(&self) -> Result<()> {
        for relation in &self.program.attributes {
            if relation.relation.is_none() {
                continue;
            }
            let same_name = |other: &Attribute| other.name == relation.name;
            if let Some(other) = self.inherited_attribute(relation.entity, same_name) {
                let text = format!(
                    "Attribute name {} is already defined in {}, unable to define relationship",
                    self.text(relation.name),
                    self.text(self.program.entity(other.entity).short)
                );
                return Err(duplicate(text, relation.loc, other.loc));
            }
        }
        Ok(())
    }

    fn add_relation(
        &mut self,
        entity: EntityId,
        name: ast::Name,
        arity: ast::Arity,
        target: EntityId,
    ) -> AttributeId {
        let id = AttributeId(self.program.attributes.len() as u32);
        let ty = self.program.intern_type(Type::Entity(target));
        self.program.attributes.push(Attribute {
            name: name.symbol,
            entity,
            ty,
            relation: Some(RelationEnd {
                low: arity.low,
                high: arity.high,
                target,
                inverse: None,
                precedence: None,
                held_back: false,
            }),
            loc: name.loc,
        });
        self.program.entities[entity.index()].own.push(id);
        self.own_names.entry((entity, name.symbol)).or_insert(id);
        id
    }

    /// `std::Entity.requires [0:] -- std::Entity.provides [0:]`
    fn builtin_relation(&mut self) {
        let entity = self.std_entity;
        let file = self.program.sources.add("internal".into(), String::new());
        let loc = Loc { file, start: 0, end: 0, column: true };
        let any = ast::Arity { low: 0, high: None };
        let name = |symbol| ast::Name { symbol, loc };
        let requires = self.add_relation(entity, name(self.known.requires), any, entity);
        let provides = self.add_relation(entity, name(self.known.provides), any, entity);
        for (one, other) in [(provides, requires), (requires, provides)] {
            if let Some(end) = &mut self.program.attributes[one.index()].relation {
                end.inverse = Some(other);
            }
        }
    }

    fn define_indexes(&mut self, files: &[LoadedFile]) -> Result<()> {
        for (at, file) in files.iter().enumerate() {
            for item in &file.ast.items {
                let Item::Index(index) = item else { continue };
                let names: Vec<&str> =
                    index.attributes.iter().map(|a| self.text(a.symbol)).collect();
                let statement =
                    format!("index {}({})", self.text(index.entity.symbol), names.join(", "));
                let namespace = NamespaceId(at as u32);
                let entity =
                    self.resolve_entity(index.entity.symbol, index.entity.loc, namespace)?;
                self.index(index, entity)
                    .map_err(|e| e.or_in_statement(|| statement, index.loc))?;
            }
        }
        for at in 0..self.program.entities.len() {
            let mut all = Vec::new();
            for &ancestor in &self.program.entities[at].ancestors {
                for &index in &self.program.entity(ancestor).own_indexes {
                    let same = |&other: &u32| {
                        self.program.indexes[other as usize].attributes
                            == self.program.indexes[index as usize].attributes
                    };
                    if !all.iter().any(same) {
                        all.push(index);
                    }
                }
            }
            all.sort_unstable();
            self.program.entities[at].indexes = all;
        }
        Ok(())
    }

    fn index(&mut self, index: &ast::Index, entity: EntityId) -> Result<()> {
        let full = self.text(self.program.entity(entity).name).to_owned();
        let mut attributes: Vec<Symbol> = Vec::new();
        for name in &index.attributes {
            let Some(&slot) = self.program.entity(entity).slot_of.get(&name.symbol) else {
                let text = format!(
                    "Attribute '{}' referenced in index is not defined in entity {full}",
                    self.text(name.symbol)
                );
                return Err(CompileError::new("NotFoundException", text));
            };
            let attribute = self.program.slot(entity, slot);
            let shown = self.text(name.symbol);
            match &attribute.relation {
                Some(end) if end.is_single() => {}
                Some(_) => {
                    let text = format!(
                        "Index can not contain optional relations, Relation ' {shown}.{full}' is optional"
                    );
                    return Err(CompileError::new("IndexException", text));
                }
                None => {
                    let mut ty = self.program.ty(attribute.ty);
                    if let Type::Nullable(inner) = ty {
                        ty = self.program.ty(*inner);
                    }
                    if matches!(ty, Type::ListOf(_)) {
                        let text = format!(
                            "Index can not contain list attributes, Attribute ' {shown}.{full}' is a list"
                        );
                        return Err(CompileError::new("IndexException", text));
                    }
                }
            }
            attributes.push(name.symbol);
        }
        attributes.sort_by_key(|&symbol| self.text(symbol).to_owned());
        let own = &self.program.entity(entity).own_indexes;
        if own.iter().any(|&i| self.program.indexes[i as usize].attributes == attributes) {
            return Ok(());
        }
        let number = self.program.indexes.len() as u32;
        self.program.indexes.push(Index { entity, attributes, loc: index.loc });
        self.program.entities[entity.index()].own_indexes.push(number);
        Ok(())
    }

    /// The entity followed by all its ancestors.
    pub(crate) fn lineage(&self, entity: EntityId) -> Vec<EntityId> {
        let mut all = IndexSet::<EntityId, FxBuildHasher>::default();
        all.insert(entity);
        let mut at = 0;
        while at < all.len() {
            all.extend(&self.program.entity(all[at]).parents);
            at += 1;
        }
        all.into_iter().collect()
    }

    pub(crate) fn new_entity(&mut self, namespace: NamespaceId, short: Symbol, loc: Loc) -> Entity {
        let full = self.full_name(namespace, short);
        Entity {
            name: self.program.interner.intern(&full),
            short,
            namespace,
            parents: Vec::new(),
            children: Vec::new(),
            ancestors: Vec::new(),
            own: Vec::new(),
            own_defaults: Vec::new(),
            declarations: Vec::new(),
            slots: Vec::new(),
            slot_of: FxHashMap::default(),
            defaults: Vec::new(),
            own_indexes: Vec::new(),
            indexes: Vec::new(),
            index_slots: Vec::new(),
            open_slots: Vec::new(),
            own_implements: Vec::new(),
            implements: Vec::new(),
            implementations: Vec::new(),
            loc,
        }
    }
}

pub(crate) fn duplicate(text: impl Into<String>, second: Loc, first: Loc) -> Box<CompileError> {
    let mut error = CompileError::new("DuplicateException", text).at(second);
    error.duplicate_locations = Some((second, first));
    error.related(first, "first defined here")
}

pub(crate) fn item_loc(item: &Item) -> Loc {
    match item {
        Item::Import(item) => item.loc,
        Item::Entity(item) => item.loc,
        Item::Implementation(item) => item.loc,
        Item::Implement(item) => item.loc,
        Item::Relation(item) => item.loc,
        Item::Typedef(item) => item.loc,
        Item::Index(item) => item.loc,
        Item::Stmt(ast::Stmt::Assign(stmt)) => stmt.loc,
        Item::Stmt(ast::Stmt::For(stmt)) => stmt.loc,
        Item::Stmt(ast::Stmt::If(stmt)) => stmt.loc,
        Item::Stmt(ast::Stmt::Expr(expr)) => expr.loc,
    }
}
