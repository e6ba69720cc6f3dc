//! Finds and parses all files that a main file reaches through its imports, in the order in which
//! their statements run later.

use std::path::{Path, PathBuf};

use orrery_syntax::ast::{File, FileId, Item, Loc};
use orrery_syntax::{Interner, Symbol, SyntaxError, SyntaxWarning};
use rustc_hash::FxHashMap;

use crate::builtin;
use crate::error::{CompileError, Result};
use crate::files::Files;
use crate::project::{Options, Project};
use crate::source::Sources;

#[derive(Debug)]
pub struct LoadedFile {
    pub namespace: Symbol,
    pub file: FileId,
    pub ast: File,
    pub foreign_plugins: bool,
}

/// Where a module comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Below the project's module path, the classic layout.
    ModulePath,
    /// Installed in a Python environment.
    Python,
    /// Inside the program.
    Builtin,
}

#[derive(Clone, Debug)]
pub struct Module {
    pub name: String,
    pub dir: PathBuf,
    pub origin: Origin,
    pub version: Option<String>,
    pub foreign_plugins: bool,
}

pub struct Loader<'f> {
    files: &'f dyn Files,
    options: &'f Options,
    pub project: Project,
    pub sources: Sources,
    pub interner: Interner,
    pub loaded: Vec<LoadedFile>,
    pub modules: Vec<Module>,
    by_namespace: FxHashMap<String, usize>,
    pub warnings: Vec<(&'static str, String, Option<Loc>)>,
    /// Every syntax error that was found; the first one ends the compile.
    pub syntax_errors: Vec<SyntaxError>,
}

impl<'f> Loader<'f> {
    pub fn new(files: &'f dyn Files, options: &'f Options) -> Result<Self> {
        Ok(Loader {
            files,
            options,
            project: Project::load(files, &options.project_dir)?,
            sources: Sources::default(),
            interner: Interner::default(),
            loaded: Vec::new(),
            modules: Vec::new(),
            by_namespace: FxHashMap::default(),
            warnings: Vec::new(),
            syntax_errors: Vec::new(),
        })
    }

    /// Loads the main file and everything that it imports, directly or not.
    pub fn load_all(&mut self) -> Result<()> {
        let main = self.options.project_dir.join(&self.options.main_file);
        let shown = if Path::new(&self.options.main_file).is_absolute() {
            self.show(&main)
        } else {
            format!("./{}", self.options.main_file.trim_start_matches("./"))
        };
        let bytes = self.files.read(&main).map_err(|e| unreadable(&shown, &e))?;
        self.parse("__config__", shown, bytes, false)?;
        let mut pending: Vec<(String, Option<Loc>)> = Vec::new();
        self.push_imports(0, &mut pending);
        while let Some((name, import)) = pending.pop() {
            if self.by_namespace.contains_key(&name) {
                continue;
            }
            for (file, _) in self.load_namespace(&name).map_err(|cause| {
                let mut error = CompileError::new(
                    "ModuleLoadingException",
                    format!("Failed to load module {name}"),
                );
                if let Some(loc) = import {
                    error = error.in_statement(format!("import {name}"), loc);
                }
                match cause {
                    LoadFailure::Module(cause) => error.caused_by(cause),
                    LoadFailure::Whole(whole) => whole,
                }
            })? {
                self.push_imports(file, &mut pending);
            }
        }
        self.group_by_module();
        Ok(())
    }

    fn push_imports(&self, file: usize, pending: &mut Vec<(String, Option<Loc>)>) {
        if self.options.implicit_std {
            pending.push(("std".into(), None));
        }
        for item in &self.loaded[file].ast.items {
            if let Item::Import(import) = item {
                let name = self.interner.text(import.path.symbol).to_owned();
                pending.push((name, Some(import.loc)));
            }
        }
    }

    /// Loads a namespace and those above it; answers the files that are new.
    fn load_namespace(&mut self, name: &str) -> Result<Vec<(usize, ())>, LoadFailure> {
        let mut new = Vec::new();
        let parts: Vec<&str> = name.split("::").collect();
        let module = self.find_module(parts[0])?;
        for depth in 1..=parts.len() {
            let namespace = parts[..depth].join("::");
            if self.by_namespace.contains_key(&namespace) {
                continue;
            }
            let relative = parts[1..depth].join("/");
            let (shown, bytes) = self.read_model(&module, &relative).map_err(|missing| {
                let cause = CompileError::new(
                    "FileNotFoundError",
                    format!(
                        "FileNotFoundError: [Errno 2] No such file or directory: '{}'",
                        self.show(&missing)
                    ),
                );
                LoadFailure::Module(
                    CompileError::new(
                        "InvalidModuleException",
                        format!("could not locate module with name: {namespace}"),
                    )
                    .caused_by(cause),
                )
            })?;
            let file = self
                .parse(&namespace, shown, bytes, module.foreign_plugins)
                .map_err(LoadFailure::Whole)?;
            new.push((file, ()));
        }
        Ok(new)
    }

    fn read_model(
        &self,
        module: &Module,
        relative: &str,
    ) -> std::result::Result<(String, Vec<u8>), PathBuf> {
        let model = module.dir.join("model");
        let directory = if relative.is_empty() { model.clone() } else { model.join(relative) };
        if module.origin == Origin::Builtin {
            let path = if relative.is_empty() {
                "model/_init.cf".to_owned()
            } else if builtin::find(&module.name, &format!("model/{relative}/_init.cf")).is_some() {
                format!("model/{relative}/_init.cf")
            } else {
                format!("model/{relative}.cf")
            };
            let shown = module.dir.join(&path);
            return match builtin::find(&module.name, &path) {
                Some(text) => Ok((shown.display().to_string(), text.as_bytes().to_vec())),
                None => Err(shown),
            };
        }
        let path = if relative.is_empty() || self.files.is_dir(&directory) {
            directory.join("_init.cf")
        } else {
            model.join(format!("{relative}.cf"))
        };
        match self.files.read(&path) {
            Ok(bytes) => Ok((self.show(&path), bytes)),
            Err(_) => Err(path),
        }
    }

    /// A path as messages show it: relative to the project where it lies inside.
    fn show(&self, path: &Path) -> String {
        match path.strip_prefix(&self.options.project_dir) {
            Ok(inside) => format!("./{}", inside.display()),
            Err(_) => path.display().to_string(),
        }
    }

    fn find_module(&mut self, name: &str) -> Result<Module, LoadFailure> {
        if let Some(found) = self.modules.iter().find(|module| module.name == name) {
            return Ok(found.clone());
        }
        let module = match locate_module(self.files, self.options, &self.project, name) {
            Ok(Some(module)) => module,
            Ok(None) => {
                let text = format!(
                    "Could not find module {name}. Please make sure to add any module v2 requirements with \
                     `inmanta module add --v2` and to install all the project's dependencies with \
                     `inmanta project install`."
                );
                let error =
                    CompileError::new("ModuleNotFoundException", text).help(self.searched());
                return Err(LoadFailure::Module(error));
            }
            Err(error) => return Err(LoadFailure::Module(error)),
        };
        if module.origin == Origin::ModulePath {
            self.warnings.push((
                "InmantaWarning",
                format!(
                    "Loaded V1 module {name}. The use of V1 modules is deprecated. Use the equivalent V2 module instead."
                ),
                None,
            ));
        }
        self.modules.push(module.clone());
        Ok(module)
    }

    /// Where modules were looked for.
    fn searched(&self) -> String {
        let mut places: Vec<String> =
            self.project.module_path.iter().map(|base| self.show(base)).collect();
        let names: Vec<&str> =
            builtin::builtin_modules().iter().map(|module| module.name).collect();
        places.push(format!("the built-in modules ({})", names.join(", ")));
        match &self.options.python_environment {
            Some(environment) => places.push(environment.display().to_string()),
            None => places
                .push("no Python environment (activate one, or name it with --python-env)".into()),
        }
        format!("it was looked for in {}", places.join("; "))
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
            let error = CompileError::syntax(first);
            self.syntax_errors.extend(parsed.errors);
            return Err(error);
        }
        let index = self.loaded.len();
        self.by_namespace.insert(namespace.to_owned(), index);
        let namespace = self.interner.intern(namespace);
        self.loaded.push(LoadedFile { namespace, file, ast: parsed.file, foreign_plugins });
        Ok(index)
    }

    /// Files of one module stand together, modules in the order of their first file.
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

/// The error for a file that cannot be read.
pub fn unreadable(shown: &str, error: &std::io::Error) -> Box<CompileError> {
    let reason = match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string(),
    };
    CompileError::new("UnreadableFile", format!("could not read {shown}: {reason}"))
}

/// A file's text as the language sees it, with `\n` at the end of every line.
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

/// The error for bytes that are no text, in the words of Python's decoder.
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
    let line = bytes[..start].iter().filter(|&&byte| byte == b'\n').count() + 1;
    let text = format!("'utf-8' codec can't decode {what}: {reason}");
    let mut error = CompileError::new("UnicodeDecodeError", text);
    error.bare = true;
    error.help(format!("line {line} of {shown} has bytes that are no text: save the file as UTF-8"))
}

/// Why a namespace could not be loaded: below "Failed to load module", or an error of its own.
enum LoadFailure {
    Module(Box<CompileError>),
    Whole(Box<CompileError>),
}

/// Finds a module by name: the project's module path, then the program's own, then Python's.
pub fn locate_module(
    files: &dyn Files,
    options: &Options,
    project: &Project,
    name: &str,
) -> Result<Option<Module>> {
    for base in &project.module_path {
        let dir = base.join(name);
        if !files.is_dir(&dir) {
            continue;
        }
        if !files.is_file(&dir.join("module.yml")) && files.is_file(&dir.join("setup.cfg")) {
            let shown = match dir.strip_prefix(&options.project_dir) {
                Ok(inside) => format!("./{}", inside.display()),
                Err(_) => dir.display().to_string(),
            };
            return Err(CompileError::new(
                "ModuleV2InV1PathException",
                format!(
                    "Module at {shown} looks like a v2 module. Please have a look at the documentation on how to use v2 modules."
                ),
            ));
        }
        if !files.is_file(&dir.join("module.yml")) {
            continue;
        }
        let metadata = files.read(&dir.join("module.yml")).unwrap_or_default();
        let version = version_in(&metadata, ':');
        let foreign_plugins = files.is_dir(&dir.join("plugins"));
        return Ok(Some(Module {
            name: name.into(),
            dir,
            origin: Origin::ModulePath,
            version,
            foreign_plugins,
        }));
    }
    if let Some(module) = builtin::builtin_modules().iter().find(|module| module.name == name) {
        return Ok(Some(Module {
            name: name.into(),
            dir: PathBuf::from(format!("<builtin>/{name}")),
            origin: Origin::Builtin,
            version: Some(module.version.into()),
            foreign_plugins: false,
        }));
    }
    let Some(environment) = &options.python_environment else { return Ok(None) };
    for lib in ["lib", "lib64"] {
        for python in files.list(&environment.join(lib)).unwrap_or_default() {
            let package = environment
                .join(lib)
                .join(&python)
                .join("site-packages/inmanta_plugins")
                .join(name);
            if files.is_file(&package.join("setup.cfg"))
                && files.is_file(&package.join("model/_init.cf"))
            {
                let metadata = files.read(&package.join("setup.cfg")).unwrap_or_default();
                return Ok(Some(Module {
                    name: name.into(),
                    dir: package,
                    origin: Origin::Python,
                    version: version_in(&metadata, '='),
                    foreign_plugins: true,
                }));
            }
        }
    }
    Ok(None)
}

/// The value of the line `version: 1.2` or `version = 1.2` in a module's metadata.
fn version_in(metadata: &[u8], separator: char) -> Option<String> {
    let metadata = String::from_utf8_lossy(metadata);
    let value = metadata
        .lines()
        .find_map(|line| line.strip_prefix("version")?.trim_start().strip_prefix(separator));
    value.map(|version| version.trim().trim_matches(['"', '\'']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_described_as_python_does() {
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
