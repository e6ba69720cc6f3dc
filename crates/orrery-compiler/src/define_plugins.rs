//! Registers the plugins that the host offers, and finds the types of their parameters and results.

use orrery_syntax::Symbol;
use orrery_syntax::ast::{self, Loc};
use std::path::Path;

use crate::define::{Builder, duplicate, item_loc};
use crate::error::{CompileError, Result};
use crate::host::{LoadError, Place, Signature};
use crate::load::LoadedFile;
use crate::program::{Definition, NamespaceId, Plugin, Type, TypeId};

/// Shows a file of a plugin, if there is need: its name in messages and its text.
pub(crate) type ShowFile<'f> = &'f dyn Fn(&Path) -> (String, String);

impl LoadError {
    /// As the reference reports it.
    pub(crate) fn into_error(self) -> Box<CompileError> {
        let mut placed = false;
        let (class, text) = match self {
            LoadError::Code { module, problems, place } => {
                placed = place.is_some();
                let mut text = format!("Unable to load all plug-ins for module {module}:");
                for problem in problems {
                    text.push_str("\n\t");
                    text.push_str(&problem);
                }
                ("CompilerException", text)
            }
            LoadError::Plugin(text) => ("RuntimeException", text),
        };
        let mut error = CompileError::new(class, text);
        error.bare = !placed;
        error
    }
}

impl Builder {
    /// Gives every plugin its number. The first one of a name is the one that is called.
    pub(crate) fn plugins(
        &mut self,
        plugins: Vec<Signature>,
        files: &[LoadedFile],
        show: ShowFile<'_>,
    ) -> Result<()> {
        for (number, signature) in (0..).zip(plugins) {
            let target = signature.name.rsplit_once("::").and_then(|(namespace, name)| {
                let namespace = self.program.interner.get(namespace)?;
                let namespace = *self.program.namespace_of.get(&namespace)?;
                Some((namespace, self.program.interner.intern(name)))
            });
            if let Some((namespace, name)) = target {
                let definitions = &mut self.program.namespaces[namespace.index()].definitions;
                let found = *definitions.entry(name).or_insert(Definition::Plugin(number));
                if let (false, Some(place)) =
                    (matches!(found, Definition::Plugin(_)), &signature.place)
                {
                    let text = format!("Type {} is already defined", signature.name);
                    let loc = self.plugin_loc(place, false, show);
                    let other = defined_at(&files[namespace.index()], name);
                    return Err(match other {
                        Some(other) => duplicate(text, loc, other),
                        None => CompileError::new("DuplicateException", text).at(loc),
                    });
                }
            }
            let namespace = target.map(|(namespace, _)| namespace);
            self.program.plugins.push(Plugin {
                signature,
                namespace,
                param_types: Vec::new(),
                result_type: None,
            });
        }
        Ok(())
    }

    /// Finds the types in the signatures of all plugins. Those that no namespace has stay unchecked:
    /// nobody can call them.
    pub(crate) fn plugin_types(&mut self, show: ShowFile<'_>) -> Result<()> {
        let others = [Type::Any, Type::Null, Type::AnyList, Type::AnyDict];
        for ty in Type::primitives().chain(others) {
            self.program.intern_type(ty);
        }
        for typedef in 0..self.program.typedefs.len() {
            self.program.intern_type(Type::Typedef(typedef as u32));
        }
        for number in 0..self.program.plugins.len() {
            let plugin = &self.program.plugins[number];
            let Some(namespace) = plugin.namespace else {
                self.program.plugins[number].param_types =
                    vec![None; self.program.plugins[number].signature.params.len()];
                continue;
            };
            let place = plugin.signature.place.clone();
            let mut texts: Vec<String> =
                plugin.signature.params.iter().map(|param| param.ty.to_string()).collect();
            texts.push(plugin.signature.returns.to_string());
            let mut types = Vec::with_capacity(texts.len());
            for text in texts {
                if place.is_some() && mentions(&text, "number") {
                    let warning = "Type 'number' is deprecated, use 'float' or 'int' instead";
                    self.warnings.push(("TypeDeprecationWarning", warning.to_owned(), None));
                }
                types.push(match (self.annotation(&text, namespace), &place) {
                    (Ok(found), _) => found,
                    // A plugin of the program itself, whose module is not loaded.
                    (Err(_), None) => (None, text),
                    (Err(error), Some(place)) => {
                        return Err(error.at(self.plugin_loc(place, true, show)));
                    }
                });
            }
            let plugin = &mut self.program.plugins[number];
            if let Some((result, shown)) = types.pop() {
                plugin.result_type = result;
                plugin.signature.returns = shown.into();
            }
            for (param, (ty, shown)) in plugin.signature.params.iter_mut().zip(types) {
                plugin.param_types.push(ty);
                param.ty = shown.into();
            }
        }
        Ok(())
    }

    /// The type that a text means in a namespace, `None` where nothing is checked; and the text with
    /// full names, as messages have it.
    pub(crate) fn annotation(
        &mut self,
        text: &str,
        namespace: NamespaceId,
    ) -> Result<(Option<TypeId>, String)> {
        let text = text.trim();
        let mut shown = text.to_owned();
        let ty = match text {
            "any" | "expression" | "" => return Ok((None, shown)),
            "list" => Type::AnyList,
            "dict" => Type::AnyDict,
            "null" => Type::Null,
            _ if text.contains(" | ") => {
                // The program's own plugins, which take references to anything.
                if !(text.starts_with('(') && text.ends_with(")[]")) {
                    return Ok((None, shown));
                }
                Type::AnyList
            }
            _ => {
                if let Some(primitive) = self.primitive(text) {
                    return Ok((Some(primitive), shown));
                }
                if let Some(inner) = text.strip_suffix('?') {
                    let (inner, of) = self.annotation(inner, namespace)?;
                    shown = format!("{of}?");
                    let Some(inner) = inner else { return Ok((None, shown)) };
                    Type::Nullable(inner)
                } else if let Some(inner) = text.strip_suffix("[]") {
                    let (inner, of) = self.annotation(inner, namespace)?;
                    shown = format!("{of}[]");
                    inner.map_or(Type::AnyList, Type::ListOf)
                } else if let Some(inner) = within(text, "(", ")") {
                    let (inner, of) = self.annotation(inner, namespace)?;
                    return Ok((inner, format!("({of})")));
                } else if let Some(inner) = within(text, "dict[string,", "]") {
                    let (inner, of) = self.annotation(inner, namespace)?;
                    shown = format!("dict[string, {of}]");
                    inner.map_or(Type::AnyDict, Type::DictOf)
                } else if let Some(inner) = within(text, "Reference[", "]") {
                    let (inner, of) = self.annotation(inner, namespace)?;
                    shown = format!("Reference[{of}]");
                    match inner {
                        Some(inner) => Type::Reference(inner),
                        None => Type::Reference(self.program.intern_type(Type::Any)),
                    }
                } else if let Some(inner) = within(text, "Union[", "]") {
                    let mut members = Vec::new();
                    let mut names = Vec::new();
                    for member in split_outside(inner) {
                        let (member, of) = self.annotation(member, namespace)?;
                        names.push(of);
                        members.push(member);
                    }
                    shown = format!("Union[{}]", names.join(","));
                    match members.into_iter().collect() {
                        Some(members) => Type::Union(members),
                        None => return Ok((None, shown)),
                    }
                } else {
                    let ty = self.named_type(text, namespace)?;
                    shown = self.program.type_name(ty);
                    return Ok((Some(ty), shown));
                }
            }
        };
        Ok((Some(self.program.intern_type(ty)), shown))
    }

    /// A type by its name: as the namespace sees it, or by its full name.
    fn named_type(&mut self, text: &str, namespace: NamespaceId) -> Result<TypeId> {
        let name = self.program.interner.intern(text);
        let found = self.lookup(name, namespace).or_else(|| self.program.find_definition(text));
        match found {
            Some(Definition::Entity(entity)) => Ok(self.program.intern_type(Type::Entity(entity))),
            Some(Definition::Typedef(typedef)) => {
                Ok(self.program.intern_type(Type::Typedef(typedef)))
            }
            _ => {
                let nowhere = Loc {
                    file: self.program.namespaces[namespace.index()].file,
                    start: 0,
                    end: 0,
                    column: false,
                };
                let mut error = self.type_not_found(name, nowhere, namespace);
                error.final_place = true;
                Err(error)
            }
        }
    }

    /// The line of a plugin's definition.
    fn plugin_loc(&mut self, place: &Place, column: bool, show: ShowFile<'_>) -> Loc {
        let (name, text) = show(&place.file);
        Loc { column, ..self.program.sources.add_line(name, text, place.line) }
    }
}

/// Whether a type is made with the type of a name.
fn mentions(text: &str, name: &str) -> bool {
    text.split(|char: char| !char.is_alphanumeric() && !"_:".contains(char))
        .any(|word| word == name)
}

/// What stands between a beginning and an end.
fn within<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    text.strip_prefix(start)?.strip_suffix(end)
}

/// The parts of a list of types: a comma inside of brackets separates none.
fn split_outside(text: &str) -> Vec<&str> {
    let mut depth = 0usize;
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, char) in text.char_indices() {
        match char {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Where a file defines a type or implementation.
fn defined_at(file: &LoadedFile, name: Symbol) -> Option<Loc> {
    file.ast.items.iter().find_map(|item| {
        let of = match item {
            ast::Item::Entity(entity) => entity.name,
            ast::Item::Typedef(typedef) => typedef.name,
            ast::Item::Implementation(implementation) => implementation.name,
            _ => return None,
        };
        (of.symbol == name).then(|| item_loc(item))
    })
}
