//! Documentation extracted from models: entities with their attributes, relations and descriptions,
//! read from the sources alone. Nothing is evaluated, so the documentation of a module is available
//! for a model that does not compile.

use std::collections::{BTreeMap, BTreeSet};

use orrery_syntax::Symbol;
use orrery_syntax::ast::{self, Arity, AssignmentTarget, Item, Stmt, TypeRef};

use crate::load::{LoadedFile, Loader};
use crate::similar_names::closest;

/// Documentation of everything that a project can use.
#[derive(Debug, Default)]
pub struct Documentation {
    /// By full name.
    pub entities: BTreeMap<String, EntityDoc>,
    /// Refinement types, by full name.
    pub types: BTreeMap<String, TypeDoc>,
    /// Descriptions of namespaces.
    pub namespaces: BTreeMap<String, String>,
    /// Attributes that implementations set, by full name of their entity.
    assigned: BTreeSet<(String, String)>,
}

#[derive(Clone, Debug, Default)]
pub struct EntityDoc {
    pub name: String,
    /// The description without the parts about attributes and without the example.
    pub text: String,
    /// An example model.
    pub example: Option<String>,
    pub parents: Vec<String>,
    pub attributes: Vec<AttributeDoc>,
    pub relations: Vec<RelationDoc>,
    /// Attributes and relations that identify an instance.
    pub indexes: Vec<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeDoc {
    pub name: String,
    pub r#type: String,
    /// Source text of the default.
    pub default: Option<String>,
    /// True if a constructor has to set it.
    pub required: bool,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationDoc {
    pub name: String,
    /// The entity at the other end.
    pub to: String,
    /// Source text of the arity: `[0:1]`.
    pub arity: String,
    pub required: bool,
    pub text: String,
}

#[derive(Clone, Debug)]
pub struct TypeDoc {
    pub name: String,
    /// Source text of the definition.
    pub definition: String,
    pub text: String,
}

impl Documentation {
    /// Builds the documentation of all loaded files.
    pub fn from_loader(loader: &Loader<'_>) -> Self {
        let mut found = Documentation::default();
        for file in &loader.loaded {
            Reader { loader, file, found: &mut found }.definitions();
        }
        // Relations, indexes and implementations may belong to entities of any file.
        for file in &loader.loaded {
            Reader { loader, file, found: &mut found }.add_related_items();
        }
        found
    }

    /// Adds other documentation, which takes precedence.
    pub fn extend(&mut self, other: Self) {
        self.entities.extend(other.entities);
        self.types.extend(other.types);
        self.namespaces.extend(other.namespaces);
        self.assigned.extend(other.assigned);
    }

    /// An entity with all inherited members: its own attributes first, then those of its parents.
    pub fn with_inherited(&self, name: &str) -> Option<EntityDoc> {
        let mut whole = self.entities.get(name)?.clone();
        let lineage = self.lineage(name);
        for ancestor in lineage.iter().skip(1).filter_map(|name| self.entities.get(name)) {
            for attribute in &ancestor.attributes {
                match whole.attributes.iter_mut().find(|own| own.name == attribute.name) {
                    None => whole.attributes.push(attribute.clone()),
                    Some(own) if own.text.is_empty() => own.text.clone_from(&attribute.text),
                    Some(_) => {}
                }
            }
            for relation in &ancestor.relations {
                if whole.relations.iter().all(|own| own.name != relation.name) {
                    whole.relations.push(relation.clone());
                }
            }
            whole.indexes.extend(ancestor.indexes.iter().cloned());
        }
        for attribute in &mut whole.attributes {
            let is_set =
                |entity: &String| self.assigned.contains(&(entity.clone(), attribute.name.clone()));
            attribute.required = attribute.default.is_none() && !lineage.iter().any(is_set);
        }
        whole
            .relations
            .retain(|relation| relation.name != "requires" && relation.name != "provides");
        Some(whole)
    }

    /// True if an entity equals another one or descends from it.
    pub fn descends(&self, name: &str, ancestor: &str) -> bool {
        self.lineage(name).iter().any(|one| one == ancestor)
    }

    /// An entity and its ancestors, the nearest first.
    fn lineage(&self, name: &str) -> Vec<String> {
        let mut found = vec![name.to_owned()];
        let mut at = 0;
        while let Some(entity) = found.get(at).and_then(|name| self.entities.get(name)) {
            for parent in &entity.parents {
                if !found.contains(parent) {
                    found.push(parent.clone());
                }
            }
            at += 1;
        }
        found
    }

    /// The most similar documented name for an undefined one.
    pub fn closest(&self, name: &str) -> Option<&str> {
        let names = || {
            let types = self.entities.keys().chain(self.types.keys()).chain(self.namespaces.keys());
            types.map(String::as_str)
        };
        // The name without its namespace, compared case-insensitively.
        let last = |name: &'_ str| name.rsplit("::").next().unwrap_or(name).to_lowercase();
        let same = names().find(|known| last(known) == last(name));
        same.or_else(|| closest(name, names()))
    }
}

/// Reads one file.
struct Reader<'r, 'f> {
    loader: &'r Loader<'f>,
    file: &'r LoadedFile,
    found: &'r mut Documentation,
}

impl Reader<'_, '_> {
    fn text(&self, symbol: Symbol) -> &str {
        self.loader.interner.text(symbol)
    }

    fn namespace(&self) -> &str {
        self.text(self.file.namespace)
    }

    fn full_name(&self, name: Symbol) -> String {
        format!("{}::{}", self.namespace(), self.text(name))
    }

    /// Resolves an entity or type name in this file.
    fn resolve(&self, path: Symbol) -> String {
        let name = self.text(path);
        if let Some((first, rest)) = name.split_once("::") {
            let alias = self.file.ast.items.iter().find_map(|item| match item {
                Item::Import(import)
                    if import.alias.is_some_and(|alias| self.text(alias.symbol) == first) =>
                {
                    Some(self.text(import.path.symbol))
                }
                _ => None,
            });
            return alias.map_or_else(|| name.to_owned(), |alias| format!("{alias}::{rest}"));
        }
        let mut around = self.namespace();
        loop {
            let full = format!("{around}::{name}");
            if self.found.entities.contains_key(&full) || self.found.types.contains_key(&full) {
                return full;
            }
            match around.rsplit_once("::") {
                Some((above, _)) => around = above,
                None => return name.to_owned(),
            }
        }
    }

    fn definitions(&mut self) {
        let namespace = self.namespace().to_owned();
        let about = self.file.ast.docstring.as_deref().map(dedented).unwrap_or_default();
        self.found.namespaces.insert(namespace, about);
        for item in &self.file.ast.items {
            match item {
                Item::Entity(entity) => self.entity(entity),
                Item::Typedef(typedef) => {
                    let name = self.full_name(typedef.name.symbol);
                    let definition = self.line_from(typedef.loc.start).to_owned();
                    let text = typedef.docstring.as_deref().map(dedented).unwrap_or_default();
                    let doc = TypeDoc { name: name.clone(), definition, text };
                    self.found.types.insert(name, doc);
                }
                _ => {}
            }
        }
    }

    fn entity(&mut self, entity: &ast::Entity) {
        let name = self.full_name(entity.name.symbol);
        let about = ParsedDocstring::read(entity.docstring.as_deref().unwrap_or_default());
        let attributes = entity.attributes.iter().map(|attribute| {
            let name = self.text(attribute.name.symbol).to_owned();
            let default = match attribute.default {
                ast::Default::Value(_) => {
                    let rest = self.line_from(attribute.name.loc.end);
                    rest.split_once('=').map(|(_, default)| default.trim().to_owned())
                }
                ast::Default::None | ast::Default::Undef => None,
            };
            AttributeDoc {
                r#type: self.type_of(&attribute.ty),
                required: default.is_none(),
                default,
                text: about.of.get(&name).cloned().unwrap_or_default(),
                name,
            }
        });
        let attributes = attributes.collect();
        let doc = EntityDoc {
            name: name.clone(),
            text: about.text,
            example: about.example,
            attributes,
            ..EntityDoc::default()
        };
        self.found.entities.insert(name, doc);
    }

    fn type_of(&self, ty: &TypeRef) -> String {
        let name = self.resolve_type(ty.path.symbol);
        let list = if ty.list { "[]" } else { "" };
        let nullable = if ty.nullable { "?" } else { "" };
        format!("{name}{list}{nullable}")
    }

    /// The full name of a type declared in this file, possibly further down.
    fn resolve_type(&self, path: Symbol) -> String {
        let own = self
            .file
            .ast
            .items
            .iter()
            .any(|item| matches!(item, Item::Typedef(typedef) if typedef.name.symbol == path));
        if own { self.full_name(path) } else { self.resolve(path) }
    }

    fn add_related_items(&mut self) {
        for item in &self.file.ast.items {
            match item {
                Item::Entity(entity) => {
                    let parents = entity.parents.iter().map(|parent| self.resolve(parent.symbol));
                    let parents: Vec<String> = parents.collect();
                    let name = self.full_name(entity.name.symbol);
                    if let Some(entity) = self.found.entities.get_mut(&name) {
                        entity.parents = parents;
                    }
                }
                Item::Relation(relation) => self.relation(relation),
                Item::Index(index) => {
                    let names: Vec<String> = index
                        .attributes
                        .iter()
                        .map(|one| self.text(one.symbol).to_owned())
                        .collect();
                    let entity = self.resolve(index.entity.symbol);
                    if let Some(entity) = self.found.entities.get_mut(&entity) {
                        entity.indexes.push(names);
                    }
                }
                Item::Implementation(implementation) => {
                    let entity = self.resolve(implementation.entity.symbol);
                    for statement in &implementation.body {
                        if let Stmt::Assign(assign) = statement
                            && let AssignmentTarget::Attribute { attribute, .. } = &assign.target
                        {
                            let name = self.text(attribute.symbol).to_owned();
                            self.found.assigned.insert((entity.clone(), name));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn relation(&mut self, relation: &ast::Relation) {
        let text = relation.docstring.as_deref().map(dedented).unwrap_or_default();
        let (left, right) =
            (self.resolve(relation.left.symbol), self.resolve(relation.right.symbol));
        let name = self.text(relation.name.symbol).to_owned();
        self.end(&left, name, &right, relation.arity, &text);
        if let Some((inverse, arity)) = &relation.inverse {
            let name = self.text(inverse.symbol).to_owned();
            self.end(&right, name, &left, *arity, "");
        }
    }

    fn end(&mut self, of: &str, name: String, to: &str, arity: Arity, text: &str) {
        let shown = match (arity.low, arity.high) {
            (low, Some(high)) if low == high => format!("[{low}]"),
            (low, Some(high)) => format!("[{low}:{high}]"),
            (low, None) => format!("[{low}:]"),
        };
        let end = RelationDoc {
            name,
            to: to.to_owned(),
            arity: shown,
            required: arity.low > 0,
            text: text.to_owned(),
        };
        if let Some(entity) = self.found.entities.get_mut(of) {
            entity.relations.push(end);
        }
    }

    /// The rest of a source line.
    fn line_from(&self, start: u32) -> &str {
        let text = &self.loader.sources.file(self.file.file).text;
        let rest = text.get(start as usize..).unwrap_or_default();
        rest.lines().next().unwrap_or_default().trim()
    }
}

/// A docstring, parsed.
struct ParsedDocstring {
    text: String,
    example: Option<String>,
    /// Descriptions of attributes, by name.
    of: BTreeMap<String, String>,
}

impl ParsedDocstring {
    fn read(docstring: &str) -> Self {
        let dedented = dedented(docstring);
        let (mut text, mut example) = (Vec::new(), Vec::new());
        let mut of: BTreeMap<String, String> = BTreeMap::new();
        let mut attribute: Option<String> = None;
        let mut in_example = false;
        for line in dedented.lines() {
            let declared = line.strip_prefix(":attr ").or_else(|| line.strip_prefix(":rel "));
            if let Some((name, about)) = declared.and_then(|rest| rest.split_once(':')) {
                of.insert(name.trim().to_owned(), about.trim().to_owned());
                (attribute, in_example) = (Some(name.trim().to_owned()), false);
            } else if line.trim() == "Example::" {
                (attribute, in_example) = (None, true);
            } else if in_example && (line.is_empty() || line.starts_with("    ")) {
                example.push(line.strip_prefix("    ").unwrap_or(line));
            } else if let Some(name) = attribute.as_ref().filter(|_| line.starts_with(' ')) {
                if let Some(about) = of.get_mut(name) {
                    about.push(' ');
                    about.push_str(line.trim());
                }
            } else {
                (attribute, in_example) = (None, false);
                text.push(line);
            }
        }
        let example = example.join("\n").trim().to_owned();
        ParsedDocstring {
            text: text.join("\n").trim().to_owned(),
            example: (!example.is_empty()).then(|| example + "\n"),
            of,
        }
    }
}

/// A docstring without the indentation of its block.
fn dedented(docstring: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = docstring.lines().collect();
    let inner = lines.iter().skip(1).filter(|line| !line.trim().is_empty());
    let least = inner.map(|line| indent(line)).min().unwrap_or(0);
    let cut = |(number, line): (usize, &&str)| {
        let start = if number == 0 { indent(line) } else { least.min(indent(line)) };
        line[start..].trim_end().to_owned()
    };
    let lines: Vec<String> = lines.iter().enumerate().map(cut).collect();
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Memory;
    use crate::project::Options;

    fn read(main: &str) -> Documentation {
        let mut files = Memory::default();
        files.add("p/project.yml", "name: t\n");
        files.add("p/main.cf", main);
        let options = Options::new("p");
        let mut loader = Loader::new(&files, &options).unwrap();
        loader.load_all().unwrap();
        Documentation::from_loader(&loader)
    }

    #[test]
    fn the_documentation_of_an_entity_includes_inherited_members() {
        let found = read(
            "\"\"\"\nMine.\n\"\"\"\n\
             entity Shop extends std::File:\n    \"\"\"\n    A shop.\n\n    Example::\n\n        Shop()\n\n    \
             :attr size: how large,\n        in squares\n    \"\"\"\n    int size = 3\n    string[]? names\nend\n\
             Shop.rooms [1:] -- Room.shop [1]\nentity Room:\nend\nindex Shop(size)\n",
        );
        let shop = found.with_inherited("__config__::Shop").unwrap();
        assert_eq!(shop.text, "A shop.");
        assert_eq!(shop.example.as_deref(), Some("Shop()\n"));
        let size = &shop.attributes[0];
        assert_eq!(
            (&*size.r#type, size.default.as_deref(), size.required),
            ("int", Some("3"), false)
        );
        assert_eq!(size.text, "how large, in squares");
        let names = &shop.attributes[1];
        assert_eq!((&*names.r#type, names.required), ("string[]?", true));
        let of = |name: &str| shop.attributes.iter().find(|one| one.name == name).unwrap();
        assert!(of("path").required && !of("mode").required && !of("purged").required);
        // An implementation sets it.
        assert!(!of("send_event").required);
        let rooms = &shop.relations[0];
        assert_eq!((&*rooms.to, &*rooms.arity, rooms.required), ("__config__::Room", "[1:]", true));
        assert!(shop.relations.iter().any(|one| one.name == "host" && one.to == "std::Host"));
        assert_eq!(shop.indexes[0], ["size"]);
        assert_eq!(found.namespaces["__config__"], "Mine.");
    }

    #[test]
    fn names_are_found_without_their_namespace_and_misspelled() {
        let found = read("");
        assert_eq!(found.closest("file"), Some("std::File"));
        assert_eq!(found.closest("std::Direktory"), Some("std::Directory"));
        assert_eq!(found.closest("nothing-like-it"), None);
        assert!(found.descends("std::ConfigFile", "std::Resource"));
    }
}
