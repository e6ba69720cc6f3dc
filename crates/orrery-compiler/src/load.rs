//! Finds and parses all files that a main file imports directly or indirectly, in the order in
//! which their statements run.

use std::io;
use std::path::Path;

use orrery_syntax::ast::{File, FileId, Item, Loc};
use orrery_syntax::{Explanation, Interner, Symbol, SyntaxError, SyntaxWarning};
use rustc_hash::FxHashMap;

use crate::builtin;
use crate::error::{CompileError, Result};
use crate::files::Files;
use crate::modules::Search;
use crate::modules::requirements::install_advice;
pub use crate::modules::{Module, Origin, display_path};
use crate::pep440;
use crate::project::{Options, ProjectMetadata};
use crate::similar_names;
use crate::source::Sources;

/// True if an entity, or anything else in a namespace, belongs to a built-in module that is not
/// replaced by another one.
pub fn is_builtin_entity(modules: &[Module], name: &str) -> bool {
    let module = name.split("::").next().unwrap_or(name);
    modules.iter().any(|of| of.name == module && of.origin == Origin::Builtin)
}

#[derive(Debug)]
pub struct LoadedFile {
    pub namespace: Symbol,
    pub file: FileId,
    pub ast: File,
    /// True if its module has code that is not loaded.
    pub foreign_plugins: bool,
}

pub struct Loader<'f> {
    search: Search<'f>,
    options: &'f Options,
    pub project: ProjectMetadata,
    pub sources: Sources,
    pub interner: Interner,
    pub loaded: Vec<LoadedFile>,
    pub modules: Vec<Module>,
    by_namespace: FxHashMap<String, usize>,
    pub warnings: Vec<(&'static str, String, Option<Loc>)>,
    /// All syntax errors; the first one ends the compile.
    pub syntax_errors: Vec<SyntaxError>,
}

const MAIN_NAMESPACE: &str = "__config__";

/// A namespace to load, and the import that names it.
type Pending = Vec<(String, Option<Loc>)>;

impl<'f> Loader<'f> {
    pub fn new(files: &'f dyn Files, options: &'f Options) -> Result<Self> {
        let mut project = match &options.metadata {
            Some(known) => known.clone(),
            None => ProjectMetadata::load(files, &options.project_dir)?,
        };
        let warnings = std::mem::take(&mut project.warnings);
        Ok(Loader {
            search: Search::new(files, options),
            options,
            project,
            sources: Sources::default(),
            interner: Interner::default(),
            loaded: Vec::new(),
            modules: Vec::new(),
            by_namespace: FxHashMap::default(),
            warnings: warnings.into_iter().map(|(class, text)| (class, text, None)).collect(),
            syntax_errors: Vec::new(),
        })
    }

    /// Loads the main file and all its direct and indirect imports.
    pub fn load_all(&mut self) -> Result<()> {
        let main = self.options.project_dir.join(&self.options.main_file);
        let shown = if Path::new(&self.options.main_file).is_absolute() {
            self.search.show(&main)
        } else {
            format!("./{}", self.options.main_file.trim_start_matches("./"))
        };
        let bytes = self.search.files.read(&main).map_err(|e| unreadable(&shown, &e))?;
        self.parse(MAIN_NAMESPACE, shown, bytes, false)?;
        check_requirements(&self.project.requires)?;
        let mut pending = Pending::new();
        self.push_imports(0, &mut pending);
        while let Some((name, import)) = pending.pop() {
            // The main file is loaded, but cannot be imported.
            if self.by_namespace.contains_key(&name) && name != MAIN_NAMESPACE {
                continue;
            }
            for file in self.load_namespace(&name).map_err(|cause| cause.reported(&name, import))? {
                self.push_imports(file, &mut pending);
            }
        }
        self.group_by_module();
        Ok(())
    }

    fn push_imports(&self, file: usize, pending: &mut Pending) {
        if self.options.implicit_std {
            pending.push(("std".into(), None));
        }
        for item in &self.loaded[file].ast.items {
            let Item::Import(import) = item else { continue };
            let name = self.interner.text(import.path.symbol).to_owned();
            pending.push((name, Some(import.loc)));
        }
    }

    /// Loads a namespace and its parents; returns the new files.
    fn load_namespace(&mut self, name: &str) -> Result<Vec<usize>, LoadFailure> {
        let mut new = Vec::new();
        let parts: Vec<&str> = name.split("::").collect();
        let (module, requires) = self.find_module(parts[0])?;
        let foreign_plugins = module.code.is_some();
        for depth in 1..=parts.len() {
            let namespace = parts[..depth].join("::");
            if self.by_namespace.contains_key(&namespace) {
                continue;
            }
            let path = self.search.model_file(&module, &parts[1..depth].join("/"));
            let shown = self.search.show(&path);
            let bytes = self
                .search
                .read_model(&module, &path)
                .map_err(|error| LoadFailure::unreadable(&namespace, &shown, &error))?;
            let file = self
                .parse(&namespace, shown, bytes, foreign_plugins)
                .map_err(LoadFailure::Whole)?;
            new.push(file);
        }
        check_requirements(&requires).map_err(LoadFailure::Whole)?;
        Ok(new)
    }

    /// The module of a name, with its requirements if it is new.
    fn find_module(&mut self, name: &str) -> Result<(Module, Vec<String>), LoadFailure> {
        if let Some(found) = self.modules.iter().find(|module| module.name == name) {
            return Ok((found.clone(), Vec::new()));
        }
        // Module names follow package names, which begin with a letter.
        pep440::check_requirement(name).map_err(|text| {
            let help = "the name of a module has to begin with a letter or digit";
            LoadFailure::Whole(bare("InvalidRequirement", text).help(help))
        })?;
        let located = self.search.locate(&self.project, name).map_err(LoadFailure::Module)?;
        let Some(located) = located else {
            let text = format!(
                "Could not find module {name}. Please make sure to add any module v2 requirements with \
                 `inmanta module add --v2` and to install all the project's dependencies with \
                 `inmanta project install`."
            );
            let error = CompileError::new("ModuleNotFoundException", text);
            return Err(LoadFailure::Module(error.explained(self.module_not_found(name))));
        };
        let warnings = located.warnings.into_iter().map(|(class, text)| (class, text, None));
        self.warnings.extend(warnings);
        self.modules.push(located.module.clone());
        Ok((located.module, located.requires))
    }

    /// Explains a missing module: the searched locations, and how to install it.
    fn module_not_found(&self, name: &str) -> Explanation {
        let explanation = Explanation::new(format!("module `{name}` not found"));
        let builtin: Vec<&str> =
            builtin::builtin_modules().iter().map(|module| module.name).collect();
        let mut places: Vec<String> =
            self.project.module_path.iter().map(|base| self.search.show(base)).collect();
        places.push(format!("the built-in modules ({})", builtin.join(", ")));
        places.push(match &self.search.environment {
            Some(environment) if environment.exists() => environment.dir.display().to_string(),
            Some(environment) => {
                format!("{} (not a Python environment)", environment.dir.display())
            }
            None => "no virtualenv".into(),
        });
        let explanation = explanation.note(format!("looked in {}", places.join("; ")));
        let own =
            self.project.module_path.iter().filter_map(|base| self.search.files.list(base).ok());
        let own: Vec<String> = own.flatten().collect();
        let known = builtin.iter().copied().chain(own.iter().map(String::as_str));
        if let Some(near) = similar_names::closest(name, known) {
            return explanation.help(format!("did you mean `import {near}`?"));
        }
        explanation.help(install_advice(self.search.files, &self.options.project_dir, name))
    }

    fn parse(
        &mut self,
        namespace: &str,
        shown: String,
        bytes: Vec<u8>,
        foreign_plugins: bool,
    ) -> Result<usize> {
        let text = decode(&shown, bytes)?;
        let file = FileId(u32::try_from(self.loaded.len()).expect("invariant: few files"));
        let parsed = orrery_syntax::parse_file(&text, file, &mut self.interner);
        let id = self.sources.add(shown, text);
        debug_assert_eq!(id, file);
        for SyntaxWarning { class, message, loc } in parsed.warnings {
            self.warnings.push((class, message, Some(loc)));
        }
        if let Some(first) = parsed.errors.first() {
            let mut error = CompileError::from_syntax(first);
            // The message names no location for an invalid module name.
            error.bare = first.class == "CompilerException";
            self.syntax_errors.extend(parsed.errors);
            return Err(error);
        }
        let index = self.loaded.len();
        self.by_namespace.insert(namespace.to_owned(), index);
        let namespace = self.interner.intern(namespace);
        self.loaded.push(LoadedFile { namespace, file, ast: parsed.file, foreign_plugins });
        Ok(index)
    }

    /// Groups files by module, modules in the order of their first file.
    fn group_by_module(&mut self) {
        let module = |file: &LoadedFile| {
            let name = self.interner.text(file.namespace);
            name.split("::").next().unwrap_or(name).to_owned()
        };
        let names: Vec<String> = self.loaded.iter().map(module).collect();
        let mut first: FxHashMap<&str, usize> = FxHashMap::default();
        for (at, name) in names.iter().enumerate() {
            first.entry(name).or_insert(at);
        }
        let mut order: Vec<(usize, LoadedFile)> = names
            .iter()
            .map(|name| first[name.as_str()])
            .zip(std::mem::take(&mut self.loaded))
            .collect();
        order.sort_by_key(|(at, _)| *at);
        self.loaded = order.into_iter().map(|(_, file)| file).collect();
    }
}

/// Failure to load a namespace: below "Failed to load module", or a separate error.
enum LoadFailure {
    Module(Box<CompileError>),
    Whole(Box<CompileError>),
}

impl LoadFailure {
    fn unreadable(namespace: &str, shown: &str, error: &io::Error) -> Self {
        if error.kind() != io::ErrorKind::NotFound {
            return LoadFailure::Whole(system_error(shown, error));
        }
        let text = format!("FileNotFoundError: [Errno 2] No such file or directory: '{shown}'");
        let cause = CompileError::new("FileNotFoundError", text);
        let text = format!("could not locate module with name: {namespace}");
        LoadFailure::Module(CompileError::new("InvalidModuleException", text).caused_by(cause))
    }

    /// Converts the failure, as reported by the import of `name`.
    fn reported(self, name: &str, import: Option<Loc>) -> Box<CompileError> {
        match self {
            LoadFailure::Whole(mut whole) => {
                // The message names no location, but diagnostics show the import.
                if whole.bare {
                    whole.loc = whole.loc.or(import);
                }
                whole
            }
            LoadFailure::Module(cause) => {
                let text = format!("Failed to load module {name}");
                let mut error = CompileError::new("ModuleLoadingException", text);
                error.explanation.clone_from(&cause.explanation);
                let error = error.caused_by(cause);
                match import {
                    Some(loc) => error.in_statement(format!("import {name}"), loc),
                    None => error,
                }
            }
        }
    }
}

/// An error with a message that never names a location.
fn bare(class: &'static str, text: impl Into<String>) -> Box<CompileError> {
    let mut error = CompileError::new(class, text);
    error.bare = true;
    error
}

/// Checks that requirements are well-formed. They are not used here.
pub(crate) fn check_requirements(requirements: &[String]) -> Result<()> {
    let help = "this is one of the requirements in project.yml or module.yml";
    requirements.iter().try_for_each(|requirement| {
        pep440::check_requirement(requirement).map_err(|text| {
            let mut error = bare("InvalidRequirement", text).help(help);
            error.id = Some("invalid-metadata");
            error
        })
    })
}

/// The error of the operating system for a file that exists but cannot be read.
fn system_error(shown: &str, error: &io::Error) -> Box<CompileError> {
    const SYMBOLIC_LINK_LOOP: i32 = 40;
    let (class, text) = match error.kind() {
        io::ErrorKind::IsADirectory => ("IsADirectoryError", "[Errno 21] Is a directory"),
        io::ErrorKind::NotADirectory => ("NotADirectoryError", "[Errno 20] Not a directory"),
        io::ErrorKind::PermissionDenied => ("PermissionError", "[Errno 13] Permission denied"),
        _ if error.raw_os_error() == Some(SYMBOLIC_LINK_LOOP) => {
            ("OSError", "[Errno 40] Too many levels of symbolic links")
        }
        _ => return unreadable(shown, error),
    };
    bare(class, format!("{text}: '{shown}'"))
}

/// The error for a file that cannot be read.
pub fn unreadable(shown: &str, error: &io::Error) -> Box<CompileError> {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string(),
    };
    CompileError::new("UnreadableFile", format!("could not read {shown}: {reason}"))
}

/// A file's text in the language's form, with `
/// ` at the end of every line.
pub fn decode(shown: &str, bytes: Vec<u8>) -> Result<String> {
    let text = String::from_utf8(bytes).map_err(|error| not_utf8(shown, &error))?;
    if u32::try_from(text.len()).is_err() {
        return Err(CompileError::new("UnreadableFile", format!("{shown} is over 4 GiB")));
    }
    if !text.contains('\r') {
        return Ok(text);
    }
    Ok(text.replace("\r\n", "\n").replace('\r', "\n"))
}

/// The error for bytes that are not UTF-8, in the words of Python's decoder.
fn not_utf8(shown: &str, error: &std::string::FromUtf8Error) -> Box<CompileError> {
    let bytes = error.as_bytes();
    let start = error.utf8_error().valid_up_to();
    let first = bytes.get(start).copied().unwrap_or_default();
    let (length, reason) = match error.utf8_error().error_len() {
        None => (bytes.len() - start, "unexpected end of data"),
        Some(1) if !(0xc2..0xf5).contains(&first) => (1, "invalid start byte"),
        Some(length) => (length, "invalid continuation byte"),
    };
    let what = match length {
        1 => format!("byte {first:#04x} in position {start}"),
        _ => format!("bytes in position {start}-{}", start + length - 1),
    };
    #[expect(clippy::naive_bytecount, reason = "counts the lines before one error")]
    let line = bytes[..start].iter().filter(|&&byte| byte == b'\n').count() + 1;
    let text = format!("'utf-8' codec can't decode {what}: {reason}");
    let mut error = CompileError::new("UnicodeDecodeError", text);
    error.bare = true;
    error.help(format!("line {line} of {shown} has bytes that are no text: save the file as UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_utf8_is_described_as_in_python() {
        let said = |bytes: &[u8]| match decode("x.cf", bytes.to_vec()) {
            Ok(text) => text,
            Err(error) => error.text.replace("'utf-8' codec can't decode ", ""),
        };
        assert_eq!(said(b"a\r\nb\rc"), "a\nb\nc");
        assert_eq!(said(b"a\xff"), "byte 0xff in position 1: invalid start byte");
        assert_eq!(said(b"\x80"), "byte 0x80 in position 0: invalid start byte");
        assert_eq!(said(b"\xc1\x81"), "byte 0xc1 in position 0: invalid start byte");
        assert_eq!(said(b"\xe9 "), "byte 0xe9 in position 0: invalid continuation byte");
        assert_eq!(said(b"\xe2\x82 "), "bytes in position 0-1: invalid continuation byte");
        assert_eq!(said(b"\xe2\x82"), "bytes in position 0-1: unexpected end of data");
        assert_eq!(said(b"\xe2"), "byte 0xe2 in position 0: unexpected end of data");
        assert_eq!(said(b"\xed\xa0\x80"), "byte 0xed in position 0: invalid continuation byte");
    }
}
