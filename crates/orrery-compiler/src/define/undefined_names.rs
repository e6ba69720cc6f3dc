//! Errors about undefined types and plugins, with a suggested name.

use orrery_syntax::ast::Loc;
use orrery_syntax::{Explanation, Symbol};

use crate::define::Builder;
use crate::error::CompileError;
use crate::program::{Namespace, NamespaceId};
use crate::similar_names;

impl Builder {
    /// The error for an undefined type or plugin name.
    pub(crate) fn type_not_found(
        &self,
        name: Symbol,
        loc: Loc,
        namespace: NamespaceId,
    ) -> Box<CompileError> {
        let text = self.text(name);
        let own = &self.program.namespaces[namespace.index()];
        if let Some((prefix, last)) = text.rsplit_once("::") {
            if let Some(target) = self.visible_namespace(prefix, namespace) {
                let target = &self.program.namespaces[target.index()];
                let target_name = self.text(target.name);
                let shown = format!("could not find type {text} in namespace {target_name}");
                let mut error = CompileError::new("TypeNotFoundException", shown).at(loc);
                let inside = format!(" in module `{target_name}`");
                error = error.explained(not_found(last, &inside).at(loc, ""));
                if target.foreign_plugins && last.starts_with(|c: char| c.is_lowercase()) {
                    error = error.help(format!(
                        "module {prefix} has plugins written in Python; if `{text}` is one of them, \
                         it cannot be called by this version"
                    ));
                    error.id = Some("plugin-not-available");
                } else if let Some(near) = self.suggest(last, target.definitions.keys().copied()) {
                    error = error.help(format!("did you mean `{prefix}::{near}`?"));
                }
                return error;
            }
            let file = &self.program.sources.file(own.file).name;
            let shown = format!(
                "could not find type {text} in namespace {}.\nTry importing the module with `import {prefix}` in {file}",
                self.text(own.name)
            );
            let headline = format!("module `{prefix}` is not imported in this file");
            let explanation = Explanation::new(headline).at(loc, "");
            let explanation =
                explanation.help(format!("add `import {prefix}` at the top of {file}"));
            return CompileError::new("MissingImportException", shown)
                .at(loc)
                .explained(explanation);
        }
        let shown = format!("could not find type {text} in namespace {}", self.text(own.name));
        let error = CompileError::new("TypeNotFoundException", shown).at(loc);
        let error = error.explained(not_found(text, "").at(loc, ""));
        if let Some(help) = self.qualified_name(name, namespace) {
            return error.help(help);
        }
        match self.suggest(text, own.definitions.keys().copied()) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error,
        }
    }

    /// The qualified spelling, from here, of a name that other namespaces define.
    fn qualified_name(&self, name: Symbol, from: NamespaceId) -> Option<String> {
        let own = &self.program.namespaces[from.index()];
        let defines = |namespace: &Namespace| namespace.definitions.contains_key(&name);
        let imported = own.imports.iter().filter(|(_, target)| {
            **target != from && defines(&self.program.namespaces[target.index()])
        });
        // The shortest prefix, then the first in alphabetical order.
        let mut imported: Vec<&str> = imported.map(|(prefix, _)| self.text(*prefix)).collect();
        imported.sort_unstable_by_key(|prefix| (prefix.len(), *prefix));
        let text = self.text(name);
        if let Some(prefix) = imported.first() {
            return Some(format!("did you mean `{prefix}::{text}`?"));
        }
        let mut others: Vec<&str> = self
            .program
            .namespaces
            .iter()
            .filter(|namespace| namespace.name != own.name && defines(namespace))
            .map(|namespace| self.text(namespace.name))
            .filter(|prefix| *prefix != "__config__")
            .collect();
        others.sort_unstable_by_key(|prefix| (prefix.len(), *prefix));
        let prefix = others.first()?;
        Some(format!("did you mean `{prefix}::{text}`? It needs `import {prefix}` in this file"))
    }

    /// The most similar known name, if one is similar enough.
    pub(crate) fn suggest(
        &self,
        name: &str,
        known: impl Iterator<Item = Symbol>,
    ) -> Option<String> {
        similar_names::closest(name, known.map(|symbol| self.text(symbol))).map(str::to_owned)
    }
}

/// Explains an undefined name: a capital initial suggests an entity, otherwise a type or plugin.
fn not_found(name: &str, place: &str) -> Explanation {
    let kind = match name.chars().next() {
        Some(first) if first.is_uppercase() => "entity",
        _ => "type or plugin",
    };
    Explanation::new(format!("{kind} `{name}` not found{place}"))
}
