//! Registers the plugins of the host and resolves the types of their parameters and results.

use orrery_syntax::Symbol;
use orrery_syntax::ast::{self, Loc};
use std::path::Path;

use crate::define::{Builder, duplicate, item_loc};
use crate::error::{CompileError, Result};
use crate::host::{CodeLocation, LoadError, Signature};
use crate::load::LoadedFile;
use crate::program::{Definition, NamespaceId, Plugin, Type, TypeId};

/// Loads a plugin's file for a message: its display name and its text.
pub(crate) type ShowFile<'f> = &'f dyn Fn(&Path) -> (String, String);

impl LoadError {
    /// The error in the reference compiler's wording.
    pub(crate) fn into_error(self) -> Box<CompileError> {
        let mut placed = false;
        let (class, text) = match self {
            LoadError::Code { module, problems, location } => {
                placed = location.is_some();
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
    /// Numbers every plugin. The first plugin of a name is the one that is called.
    pub(crate) fn register_plugins(
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
                if let (false, Some(location)) =
                    (matches!(found, Definition::Plugin(_)), &signature.location)
                {
                    let text = format!("Type {} is already defined", signature.name);
                    let loc = self.plugin_loc(location, false, show);
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

    /// Resolves the types in the signatures of all plugins. Plugins outside all namespaces stay
    /// unchecked: they cannot be called.
    pub(crate) fn resolve_plugin_types(&mut self, show: ShowFile<'_>) -> Result<()> {
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
            let location = plugin.signature.location.clone();
            let mut texts: Vec<String> =
                plugin.signature.params.iter().map(|param| param.ty.to_string()).collect();
            texts.push(plugin.signature.returns.to_string());
            let mut types = Vec::with_capacity(texts.len());
            for text in texts {
                if location.is_some() && mentions_type(&text, "number") {
                    let warning = "Type 'number' is deprecated, use 'float' or 'int' instead";
                    self.warnings.push(("TypeDeprecationWarning", warning.to_owned(), None));
                }
                types.push(match (self.annotation(&text, namespace), &location) {
                    (Ok(found), _) => found,
                    // A built-in plugin of a module that is not loaded.
                    (Err(_), None) => (None, text),
                    (Err(error), Some(location)) => {
                        return Err(error.at(self.plugin_loc(location, true, show)));
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

    /// The type that an annotation means in a namespace (`None`: unchecked), and its text with full
    /// names for messages.
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
                // Built-in plugins, which accept references to any type.
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
                } else if let Some(inner) = text_between(text, "(", ")") {
                    let (inner, of) = self.annotation(inner, namespace)?;
                    return Ok((inner, format!("({of})")));
                } else if let Some(inner) = text_between(text, "dict[string,", "]") {
                    let (inner, of) = self.annotation(inner, namespace)?;
                    shown = format!("dict[string, {of}]");
                    inner.map_or(Type::AnyDict, Type::DictOf)
                } else if let Some(inner) = text_between(text, "Reference[", "]") {
                    let (inner, of) = self.annotation(inner, namespace)?;
                    shown = format!("Reference[{of}]");
                    match inner {
                        Some(inner) => Type::Reference(inner),
                        None => Type::Reference(self.program.intern_type(Type::Any)),
                    }
                } else if let Some(inner) = text_between(text, "Union[", "]") {
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

    /// Looks up a type by its name in the namespace, or by its full name.
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
                error.location_only = true;
                Err(error)
            }
        }
    }

    /// The line of a plugin's definition.
    fn plugin_loc(&mut self, location: &CodeLocation, column: bool, show: ShowFile<'_>) -> Loc {
        let (name, text) = show(&location.file);
        Loc { column, ..self.program.sources.add_line(name, text, location.line) }
    }
}

/// True if a type expression contains the named type.
fn mentions_type(text: &str, name: &str) -> bool {
    text.split(|char: char| !char.is_alphanumeric() && !"_:".contains(char))
        .any(|word| word == name)
}

/// The text between a prefix and a suffix.
fn text_between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    text.strip_prefix(start)?.strip_suffix(end)
}

/// Splits a list of types at commas outside of brackets.
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

/// Location at which a file defines a type or implementation.
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
