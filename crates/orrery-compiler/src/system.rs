//! Outside world of plugins: the project's files, environment variables, time and randomness.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use orrery_model::{FieldRule, ResourceType, field_rules};
use rustc_hash::FxHashMap;

use crate::builtin;
use crate::eval::System;
use crate::export::ResourceClass;
use crate::files::Files;
use crate::load::{Module, Origin, is_builtin_entity};
use crate::plugins::{DeclaredBy, Facts, PathKind, ResourceIdentity, ServerEnvironmentInfo};
use crate::project::{Options, TemplateMode};

pub(crate) struct ProjectSystem<'f> {
    files: &'f dyn Files,
    project_dir: PathBuf,
    modules: Vec<Module>,
    now: f64,
    facts: Option<Arc<dyn Facts>>,
    server: Option<ServerEnvironmentInfo>,
    templates: TemplateMode,
    /// By entity.
    identities: FxHashMap<String, ResourceIdentity>,
}

impl<'f> ProjectSystem<'f> {
    pub(crate) fn new(
        files: &'f dyn Files,
        options: &Options,
        modules: &[Module],
        classes: &[ResourceClass],
        templates: TemplateMode,
    ) -> Self {
        ProjectSystem {
            templates,
            files,
            project_dir: options.project_dir.clone(),
            modules: modules.to_vec(),
            now: options.now,
            facts: options.facts.clone(),
            server: options.server.clone(),
            identities: identities(options, modules, classes),
        }
    }

    fn builtin_text(&self, path: &str) -> Option<&'static str> {
        let inside = path.strip_prefix("<builtin>/")?;
        let (module, file) = inside.split_once('/')?;
        builtin::find(module, file)
    }
}

/// Resource identities by entity, as the export uses them: built-in declarations apply to entities
/// of built-in modules, unless the class of another module replaces them.
fn identities(
    options: &Options,
    modules: &[Module],
    classes: &[ResourceClass],
) -> FxHashMap<String, ResourceIdentity> {
    let identity = |of: &ResourceType, computed: bool, declared: DeclaredBy| ResourceIdentity {
        entity: of.entity.to_string(),
        agent: of.agent.to_string(),
        attribute: of.id_attribute.to_string(),
        computed,
        declared,
    };
    let native = options.resources.iter().filter(|of| is_builtin_entity(modules, &of.entity));
    let native = native.map(|of| (of.entity.to_string(), identity(of, false, DeclaredBy::Program)));
    let mut all: FxHashMap<String, ResourceIdentity> = native.collect();
    for class in classes {
        let name = &*class.declaration.entity;
        let declared = match all.contains_key(name) {
            true if is_builtin_entity(modules, &class.module) => continue,
            true => DeclaredBy::CodeInstead,
            false => DeclaredBy::Code,
        };
        let computed = class.computed.iter().any(|field| *field == class.declaration.id_attribute);
        all.insert(name.to_owned(), identity(&class.declaration, computed, declared));
    }
    all
}

/// A path relative to the project's directory, if it is inside.
pub(crate) fn show(project: &Path, path: &str) -> String {
    match Path::new(path).strip_prefix(project) {
        Ok(inside) => format!("./{}", inside.display()),
        Err(_) => path.to_owned(),
    }
}

impl System for ProjectSystem<'_> {
    fn module_dir(&self, module: &str) -> Option<String> {
        let found = self.modules.iter().find(|other| other.name == module)?;
        Some(match found.origin {
            Origin::Builtin => format!("<builtin>/{module}"),
            _ => found.dir.display().to_string(),
        })
    }

    fn project_dir(&self) -> String {
        self.project_dir.display().to_string()
    }

    fn read_text(&self, path: &str) -> Result<String, String> {
        if let Some(text) = self.builtin_text(path) {
            return Ok(text.to_owned());
        }
        let bytes = self.files.read(Path::new(path)).map_err(|e| e.to_string())?;
        String::from_utf8(bytes).map_err(|e| e.to_string())
    }

    fn file_kind(&self, path: &str) -> PathKind {
        let at = Path::new(path);
        if self.builtin_text(path).is_some() || self.files.is_file(at) {
            PathKind::File
        } else if self.files.is_dir(at) {
            PathKind::Directory
        } else {
            PathKind::Missing
        }
    }

    fn list_dir(&self, path: &str) -> Result<Vec<String>, String> {
        self.files.list(Path::new(path)).map_err(|e| e.to_string())
    }

    fn write_text(&self, path: &str, text: &str) -> Result<(), String> {
        self.files.write(Path::new(path), text).map_err(|e| e.to_string())
    }

    fn environment_variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn facts(&self) -> Option<&dyn Facts> {
        self.facts.as_deref()
    }

    fn server(&self) -> Option<&ServerEnvironmentInfo> {
        self.server.as_ref()
    }

    fn identity(&self, entity: &str) -> Option<&ResourceIdentity> {
        self.identities.get(entity)
    }

    fn now(&self) -> f64 {
        self.now
    }

    fn field_rules(&self, entity: &str) -> Vec<(&'static str, FieldRule)> {
        let module = entity.split("::").next().unwrap_or(entity);
        let built_in = |of: &Module| of.name == module && of.origin == Origin::Builtin;
        if !self.modules.iter().any(built_in) {
            return Vec::new();
        }
        field_rules(entity).collect()
    }

    fn template_mode(&self) -> TemplateMode {
        self.templates
    }

    fn show_path(&self, path: &str) -> String {
        show(&self.project_dir, path)
    }

    fn random_bytes(&self, count: usize) -> Vec<u8> {
        // The operating system's random source; without one, generated passwords are refused.
        let mut bytes = vec![0; count];
        let read = std::fs::File::open("/dev/urandom")
            .and_then(|mut source| std::io::Read::read_exact(&mut source, &mut bytes));
        if read.is_err() { Vec::new() } else { bytes }
    }
}
