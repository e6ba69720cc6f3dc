//! Code of versions from Inmanta clients: source files of modules, converted to a code bundle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use orrery_api::{UploadScope, VersionUpload};
use orrery_handlers::Registry;
use orrery_host::bundle::{Bundle, sha1_hex};
use orrery_host::code_store::CodeSet;
use orrery_host::handshake::ModuleCode;
use orrery_model::PipSettings;
use orrery_pyenv::InstalledModule;
use orrery_server::ServerError;
use orrery_server::contents::{VersionAuthor, count_unknown};
use orrery_server::versions::{content_hash, version_info};
use orrery_store::{ContentHash, EnvironmentKey, Store};
use serde::Deserialize;
use serde_json::Value;

use crate::client_info::{INMANTA_INFO, inmanta_info};
use crate::request::bad_request;

/// Directory with the code of modules in a source tree. Other files are for building packages.
const ROOT: &str = "inmanta_plugins";
/// Packages that the SDK replaces.
const OWN: [&str; 2] = ["inmanta-core", "inmanta-module-"];

/// A file of a module.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct ModuleFile {
    path: String,
    hash_value: String,
}

/// A module as clients send it. Without files, it is a package that was installed where the model
/// was compiled.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Module {
    version: String,
    #[serde(default)]
    files_in_module: Option<Vec<ModuleFile>>,
    #[serde(default)]
    requirements: Option<Vec<String>>,
}

/// Modules by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modules(BTreeMap<String, Module>);

impl Modules {
    pub(crate) fn parse(given: Option<&Value>) -> Result<Self, ServerError> {
        let Some(given) = given else { return Ok(Modules::default()) };
        let read = BTreeMap::<String, Module>::deserialize(given);
        let modules =
            read.map_err(|error| bad_request(format!("Field 'module_version_info': {error}")))?;
        for (name, module) in &modules {
            let is_plain = |text: &str| {
                let mut parts = Path::new(text).components();
                !text.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
            };
            let files = module.files_in_module.iter().flatten();
            if !is_plain(name)
                || name.contains('/')
                || files.clone().any(|file| !is_plain(&file.path))
            {
                return Err(bad_request(format!("the module {name:?} has a file outside of it")));
            }
        }
        Ok(Modules(modules))
    }

    /// Stores the code bundle of a version, if it needs code. A partial version also has the code
    /// of the previous one, which may not change unless the upload allows it.
    pub(crate) fn bundle(
        &self,
        store: &Store,
        environment: EnvironmentKey,
        author: &VersionAuthor,
        upload: &mut VersionUpload,
    ) -> Result<Option<String>, ServerError> {
        let (mut modules, mut handlers) = (self.clone(), BTreeSet::new());
        let mut pip = pip_settings(stored_pip(&upload.info))?;
        if upload.scope == UploadScope::Partial {
            let base = modules.add_base(store, environment, upload.allow_code_update)?;
            handlers = base.handlers;
            pip = pip.or(base.pip);
            // Already checked here, module by module.
            upload.allow_code_update = true;
            if let Some(kept) = upload.info.get_mut(INMANTA_INFO) {
                kept["modules"] = modules.to_json();
            }
        }
        for resource in &upload.resources {
            let Some((entity, _)) = resource.id.split_once('[') else { continue };
            if modules.handles(entity) {
                handlers.insert(entity.to_owned());
            }
        }
        if handlers.is_empty() {
            return Ok(None);
        }
        let bundle = modules.bundle_for(handlers, pip.unwrap_or_default())?;
        refuse_missing(store, author, &bundle)?;
        let text = bundle.to_json();
        let text = text.map_err(|error| ServerError::Internal(format!("a bundle: {error}")))?;
        let sha1 = sha1_hex(&text);
        let hash = content_hash(&sha1);
        let hash = hash.ok_or_else(|| ServerError::Internal("a hash is none".to_owned()))?;
        store.contents().put(&[(hash, &text)])?;
        Ok(Some(sha1))
    }

    /// True if the code of these modules handles the resources of an entity. Modules with source
    /// always do; packages only for entities without a native handler.
    fn handles(&self, entity: &str) -> bool {
        let module = entity.split("::").next().unwrap_or(entity);
        match self.0.get(module).map(|module| module.files_in_module.is_some()) {
            Some(true) => true,
            Some(false) => Registry::native().declaration(entity).is_none(),
            // Handlers may be in another module than the entity.
            None => {
                let has_source = self.0.values().any(|module| module.files_in_module.is_some());
                has_source && Registry::native().declaration(entity).is_none()
            }
        }
    }

    /// Adds the modules of the newest version. Returns the rest of its code.
    fn add_base(
        &mut self,
        store: &Store,
        environment: EnvironmentKey,
        may_change: bool,
    ) -> Result<Base, ServerError> {
        let Some(number) = store.versions().newest(environment)? else {
            return Ok(Base::default());
        };
        let base = version_info(store, environment, number)?;
        let before =
            Modules::parse(Some(&inmanta_info(&base, "modules")).filter(|kept| kept.is_object()))?;
        for (name, module) in before.0 {
            match self.0.get(&name) {
                Some(given) if given.version != module.version && !may_change => {
                    return Err(bad_request(format!(
                        "The handler code of the module {name} differs from that of the version before: \
                         it has version {}, and had {}. Store a full version, or use allow_handler_code_update.",
                        given.version, module.version
                    )));
                }
                Some(_) => {}
                None => drop(self.0.insert(name, module)),
            }
        }
        let code = base.info.get("code").and_then(Value::as_str).and_then(content_hash);
        let Some(text) = code.map(|hash| store.contents().get(&hash)).transpose()?.flatten() else {
            return Ok(Base::default());
        };
        let bundle: Bundle = serde_json::from_slice(&text)
            .map_err(|error| ServerError::Internal(format!("a bundle: {error}")))?;
        let handlers = bundle.set.handlers.into_iter().collect();
        Ok(Base { handlers, pip: Some(bundle.set.pip) })
    }

    /// Most tests push versions.
    fn to_json(&self) -> Value {
        let one = |module: &Module| {
            let files = module.files_in_module.as_ref().map(|files| {
                let file = |file: &ModuleFile| serde_json::json!({"path": file.path, "hash_value": file.hash_value});
                files.iter().map(file).collect::<Vec<_>>()
            });
            serde_json::json!({
                "version": module.version,
                "files_in_module": files,
                "requirements": module.requirements,
            })
        };
        Value::Object(self.0.iter().map(|(name, module)| (name.clone(), one(module))).collect())
    }
}

/// Parts of the previous version's code that a partial version takes over.
#[derive(Debug, Default)]
struct Base {
    /// Entities with handlers.
    handlers: BTreeSet<String>,
    pip: Option<PipSettings>,
}

fn stored_pip(info: &serde_json::Map<String, Value>) -> Option<&Value> {
    info.get(INMANTA_INFO)?.get("pip_config").filter(|given| !given.is_null())
}

/// Parses the pip settings of the exporting project.
fn pip_settings(given: Option<&Value>) -> Result<Option<PipSettings>, ServerError> {
    let read = given.map(PipSettings::deserialize).transpose();
    read.map_err(|error| bad_request(format!("Field 'pip_config': {error}")))
}

impl Modules {
    /// Builds the bundle: the code of all modules with source, and the packages of modules with
    /// handlers.
    fn bundle_for(
        &self,
        handlers: BTreeSet<String>,
        pip: PipSettings,
    ) -> Result<Bundle, ServerError> {
        let mut files = BTreeMap::new();
        let mut requirements = BTreeSet::new();
        let (mut code, mut installed) = (Vec::new(), Vec::new());
        for (name, module) in &self.0 {
            let Some(sources) = &module.files_in_module else {
                let is_needed = |entity: &String| entity.split("::").next() == Some(name);
                if handlers.iter().any(is_needed) {
                    let (name, version) = (name.clone(), module.version.clone());
                    installed.push(InstalledModule { name, version });
                }
                continue;
            };
            for file in sources {
                if Path::new(&file.path).starts_with(ROOT) {
                    files.insert(file.path.clone(), file.hash_value.clone());
                }
            }
            let wanted = module.requirements.iter().flatten().filter(|line| {
                let name = line.to_ascii_lowercase().replace('_', "-");
                !OWN.iter().any(|own| name.starts_with(own))
            });
            requirements.extend(wanted.cloned());
            code.push(ModuleCode {
                name: name.clone(),
                package: format!("{ROOT}.{name}"),
                code: PathBuf::new(),
                root: PathBuf::from(name.as_str()),
                version: module.version.clone(),
            });
        }
        let set = CodeSet {
            modules: code,
            handlers: handlers.into_iter().collect(),
            // Unknown without loading the code: such handlers connect on their own.
            machine_handlers: Vec::new(),
            python: None,
            // Empty: a virtualenv with the requirements is found or created.
            program: PathBuf::new(),
            path: Vec::new(),
            requirements: requirements.into_iter().collect(),
            installed,
            pip,
        };
        Bundle::new(&set, files)
            .map_err(|error| ServerError::Internal(format!("a bundle: {error}")))
    }
}

fn refuse_missing(
    store: &Store,
    author: &VersionAuthor,
    bundle: &Bundle,
) -> Result<(), ServerError> {
    let mut hashes: Vec<ContentHash> = Vec::with_capacity(bundle.files.len());
    for (path, sha1) in &bundle.files {
        let hash = content_hash(sha1);
        hashes.push(
            hash.ok_or_else(|| bad_request(format!("the hash of {path} is no SHA-1: {sha1:?}")))?,
        );
    }
    match count_unknown(store, author, &hashes)? {
        0 => Ok(()),
        missing => Err(bad_request(format!("{missing} files of the code were not uploaded"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_code_of_modules_goes_into_a_bundle() {
        let given = json!({
            "mymod": {"name": "mymod", "version": "src-1", "files_in_module": [
                {"path": "inmanta_plugins/mymod/__init__.py", "hash_value": "aa"},
                {"path": "setup.cfg", "hash_value": "bb"},
            ], "requirements": ["PyYAML>=6", "inmanta_module_std"], "load_module_on_agents": ["a"]},
            "std": {"name": "std", "version": "8", "files_in_module": null, "requirements": null},
        });
        let modules = Modules::parse(Some(&given)).unwrap();
        let handlers = BTreeSet::from(["mymod::Note".to_owned()]);
        let bundle = modules.bundle_for(handlers.clone(), PipSettings::default()).unwrap();
        assert_eq!(bundle.files.keys().collect::<Vec<_>>(), ["inmanta_plugins/mymod/__init__.py"]);
        assert_eq!(bundle.set.requirements, ["PyYAML>=6"]);
        assert_eq!(bundle.set.modules[0].package, "inmanta_plugins.mymod");
        let other = |handlers, pip| modules.bundle_for(handlers, pip).unwrap().hash;
        assert_eq!(bundle.hash, other(handlers.clone(), PipSettings::default()));
        assert_ne!(bundle.hash, other(BTreeSet::new(), PipSettings::default()));
        let given =
            json!({"index-url": "https://index.example", "extra-index-url": [], "pre": null});
        let pip = pip_settings(Some(&given)).unwrap().unwrap();
        assert_ne!(bundle.hash, other(handlers, pip));
        assert!(pip_settings(Some(&json!({"index-url": 5}))).is_err());
        assert!(bundle.set.installed.is_empty());
    }

    #[test]
    fn packages_serve_what_this_program_does_not() {
        let given = json!({
            "std": {"version": "8.7.5", "files_in_module": null, "requirements": null},
            "toy": {"version": "1.5", "files_in_module": null, "requirements": null},
            "spare": {"version": "1.0", "files_in_module": null},
        });
        let modules = Modules::parse(Some(&given)).unwrap();
        assert!(modules.handles("toy::Thing"));
        assert!(!modules.handles("std::testing::NullResource"));
        assert!(!modules.handles("strange::Thing"));
        let handlers = BTreeSet::from(["toy::Thing".to_owned()]);
        let bundle = modules.bundle_for(handlers, PipSettings::default()).unwrap();
        let installed: Vec<(&str, &str)> =
            bundle.set.installed.iter().map(|one| (&*one.name, &*one.version)).collect();
        assert_eq!(installed, [("toy", "1.5")]);
        assert!(bundle.files.is_empty() && bundle.set.modules.is_empty());
    }

    #[test]
    fn files_outside_of_a_module_are_refused() {
        for path in ["../x.py", "/etc/passwd", "inmanta_plugins/../../x.py", ""] {
            let given = json!({"m": {"version": "1", "files_in_module": [{"path": path, "hash_value": "a"}]}});
            assert!(Modules::parse(Some(&given)).is_err(), "{path}");
        }
    }
}
