//! The project's own description, `project.yml`, and where its modules are looked for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::LazyLock;

use orrery_model::ResourceType;
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::files::Files;
use crate::metadata::{self, Checks};
use crate::modules::join_plainly;
use crate::plugins::{Facts, ServerSide};
use crate::value::WRITTEN_BYTES_MAX;
use crate::yaml::Yaml;

mod settings;

pub use settings::{ProjectSettings, TemplateMode};

/// What a compile starts from.
#[derive(Clone, Debug)]
pub struct Options {
    pub project_dir: PathBuf,
    /// Relative to the project's directory.
    pub main_file: String,
    /// Import `std` without being asked.
    pub implicit_std: bool,
    /// A Python environment whose installed modules are found too.
    pub python_environment: Option<PathBuf>,
    /// The time that models are told, in seconds since 1970: one for the whole compile.
    pub now: f64,
    /// What is known about deployed resources; `None` if nothing is ever deployed.
    pub facts: Option<Arc<dyn Facts>>,
    /// What becomes a resource without code of a module.
    pub resources: Vec<ResourceType>,
    /// The environment of a server that the model is compiled for.
    pub server: Option<ServerSide>,
    pub limits: Limits,
}

/// Bounds that turn an endless model into an error.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub instances: u32,
    /// How deep instances may be created from implementations of instances.
    pub creation_depth: u32,
    /// What a run may need, roughly.
    pub memory_bytes: usize,
    /// How long the text of one value may become.
    pub text_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            instances: 20_000_000,
            creation_depth: 100_000,
            memory_bytes: 4 << 30,
            text_bytes: WRITTEN_BYTES_MAX,
        }
    }
}

impl Options {
    pub fn new(project_dir: impl Into<PathBuf>) -> Self {
        Options {
            project_dir: project_dir.into(),
            main_file: "main.cf".into(),
            implicit_std: true,
            python_environment: None,
            now: 0.0,
            facts: None,
            resources: Vec::new(),
            server: None,
            limits: Limits::default(),
        }
    }
}

#[derive(Debug, Default)]
pub struct Project {
    pub name: String,
    pub module_path: Vec<PathBuf>,
    pub precedence: Vec<String>,
    /// Modules that it wants, with versions.
    pub requires: Vec<String>,
    /// What is odd about its description, as class and text.
    pub warnings: Vec<(&'static str, String)>,
    pub pip: PipSettings,
    pub settings: ProjectSettings,
    pub repositories: ModuleRepositories,
}

/// Where modules of the module path are cloned from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleRepositories {
    /// Addresses, in the order in which they are tried: with `{}` for the name of a module, or what stands before it.
    pub addresses: Vec<String>,
    /// The directory that modules are cloned into: `downloadpath`, or else the first directory of the module path.
    pub directory: Option<PathBuf>,
    pub mode: InstallMode,
}

impl ModuleRepositories {
    /// The addresses that a module may be at.
    pub fn addresses_of(&self, module: &str) -> Vec<String> {
        let address = |base: &String| match base.contains("{}") {
            true => base.replacen("{}", module, 1),
            // As the reference does: a path of this machine is a directory of modules, an address a beginning.
            false if base.contains(':') || base.ends_with('/') => format!("{base}{module}"),
            false => format!("{base}/{module}"),
        };
        self.addresses.iter().map(address).collect()
    }
}

/// Which state of a cloned module is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstallMode {
    /// The newest released version that the requirements allow.
    #[default]
    Release,
    /// The same, and versions before a release count too.
    Prerelease,
    /// The branch `master`.
    Master,
}

/// What a project says about the installation of packages. Other programs write it in the same words as `project.yml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct PipSettings {
    #[serde(alias = "index_url", skip_serializing_if = "Option::is_none")]
    pub index_url: Option<String>,
    #[serde(alias = "extra_index_url", skip_serializing_if = "Vec::is_empty")]
    pub extra_index_url: Vec<String>,
    /// Whether versions count that are not released yet; if nothing is said, not unless the system's configuration counts
    /// and says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre: Option<bool>,
    /// Whether pip's own configuration counts too, where the project names an index.
    #[serde(alias = "use_system_config", skip_serializing_if = "std::ops::Not::not")]
    pub use_system_config: bool,
}

impl PipSettings {
    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        *self == PipSettings::default()
    }
}

const DESCRIPTION: &str = "project.yml";
const CONFIGURATION_WARNING: &str = "ProjectConfigurationWarning";

impl Project {
    /// Reads `project.yml`. A directory without one is a project with nothing but its main file.
    pub fn load(files: &dyn Files, dir: &Path) -> Result<Project> {
        let path = dir.join(DESCRIPTION);
        if let Err(error) = files.kind(&path)
            && error.kind() == std::io::ErrorKind::NotFound
        {
            return Ok(Project { module_path: vec![dir.join("libs")], ..Project::default() });
        }
        let shown = format!("./{DESCRIPTION}");
        let read = metadata::read_yaml(files, &path, &shown);
        let read = read.and_then(|fields| Self::of(&fields, dir, &shown));
        read.map_err(metadata::Unusable::of_project)
    }

    fn of(fields: &Yaml, dir: &Path, shown: &str) -> Result<Project, metadata::Unusable> {
        let mut checks = Checks::new(fields);
        let mut project = Project { name: checks.required_text("name"), ..Project::default() };
        checks.common();
        for key in ["author", "license", "copyright"] {
            checks.optional_text(key);
        }
        check_email(&mut checks);
        let module_path = checks.texts("modulepath");
        project.module_path = module_path.iter().map(|part| join_plainly(dir, part)).collect();
        let download = checks.optional_text("downloadpath").filter(|path| !path.is_empty());
        let download = download.map(|path| join_plainly(dir, &path));
        project.check_repositories(fields, &mut checks);
        project.repositories.directory = download.or_else(|| project.module_path.first().cloned());
        project.requires = checks.texts("requires");
        checks.choice("install_mode", &["release", "prerelease", "master"]);
        project.repositories.mode = match fields.get("install_mode") {
            Some(Yaml::Text(mode)) if mode == "prerelease" => InstallMode::Prerelease,
            Some(Yaml::Text(mode)) if mode == "master" => InstallMode::Master,
            _ => InstallMode::Release,
        };
        project.precedence = checks.text_list("relation_precedence_policy");
        for (at, rule) in project.precedence.iter().enumerate() {
            if !is_precedence_rule(rule) {
                checks.refuse(
                    format!("relation_precedence_policy.{at}"),
                    format!(
                        "A rule should have the form `<entity>.<relation> before <entity>.<relation>`, but it is `{rule}`"
                    ),
                );
            }
        }
        project.check_pip(fields, &mut checks);
        check_settings(fields, &mut checks);
        project.settings = ProjectSettings::read(fields, &mut checks);
        checks.finish(shown, "ProjectMetadata")?;
        Ok(project)
    }

    /// Where modules can be cloned from: addresses, each alone or with its type.
    fn check_repositories(&mut self, fields: &Yaml, checks: &mut Checks<'_>) {
        let one;
        let repositories = match fields.get("repo") {
            None | Some(Yaml::Null) => return,
            Some(Yaml::List(several)) => several,
            Some(single) => {
                one = vec![single.clone()];
                &one
            }
        };
        for (at, repository) in repositories.iter().enumerate() {
            match repository {
                Yaml::Text(address) => self.repositories.addresses.push(address.clone()),
                Yaml::Map(_) => {
                    match repository.get("url") {
                        None => checks.refuse(format!("repo.{at}.url"), "Field required"),
                        Some(Yaml::Text(_)) => {}
                        Some(other) => checks.refuse(
                            format!("repo.{at}.url"),
                            format!("Input should be a valid string, but it is {}", other.kind()),
                        ),
                    }
                    match repository.get("type") {
                        Some(Yaml::Text(kind)) if kind == "git" => {
                            if let Some(Yaml::Text(address)) = repository.get("url") {
                                self.repositories.addresses.push(address.clone());
                            }
                        }
                        Some(Yaml::Text(kind)) if kind == "package" => {
                            let text = "Setting a pip index through the `repo.url` option with type `package` in the project.yml file is no longer supported and will be ignored. Please set the pip index url through the `pip.index_url` option instead.";
                            self.warnings.push((CONFIGURATION_WARNING, text.into()));
                        }
                        None => checks.refuse(format!("repo.{at}.type"), "Field required"),
                        Some(_) => checks.refuse(
                            format!("repo.{at}.type"),
                            "Input should be 'git' or 'package'",
                        ),
                    }
                }
                other => checks.refuse(
                    format!("repo.{at}"),
                    format!(
                        "Input should be a string or a mapping with url and type, but it is {}",
                        other.kind()
                    ),
                ),
            }
        }
    }

    /// Settings for the installation of packages.
    fn check_pip(&mut self, fields: &Yaml, checks: &mut Checks<'_>) {
        let entries = match fields.get("pip") {
            None => return,
            Some(Yaml::Map(entries)) => entries,
            Some(other) => {
                let reason = format!("Input should be a mapping, but it is {}", other.kind());
                checks.refuse("pip", reason);
                return;
            }
        };
        for (key, value) in entries {
            let key = match key {
                Yaml::Text(key) => key.replace('_', "-"),
                Yaml::Int(key) => key.clone(),
                other => other.kind().to_owned(),
            };
            let path = format!("pip.{key}");
            let kind = value.kind();
            match (key.as_str(), value) {
                ("index-url", Yaml::Text(url)) => self.pip.index_url = Some(url.clone()),
                ("index-url", Yaml::Null) | ("pre", Yaml::Null) => {}
                ("index-url", _) => {
                    checks
                        .refuse(path, format!("Input should be a valid string, but it is {kind}"));
                }
                ("extra-index-url", Yaml::List(items)) => {
                    for (at, item) in items.iter().enumerate() {
                        let Yaml::Text(url) = item else {
                            let reason = format!(
                                "Input should be a valid string, but it is {}",
                                item.kind()
                            );
                            checks.refuse(format!("{path}.{at}"), reason);
                            continue;
                        };
                        self.pip.extra_index_url.push(url.clone());
                    }
                }
                ("extra-index-url", _) => {
                    checks.refuse(path, format!("Input should be a list, but it is {kind}"));
                }
                ("pre", _) => self.pip.pre = Some(checks.truth(&path, value)),
                ("use-system-config", _) => {
                    self.pip.use_system_config = checks.truth(&path, value);
                }
                _ => {
                    let text =
                        format!("Found unexpected configuration value '{path}' in 'project.yml'");
                    self.warnings.push((CONFIGURATION_WARNING, text));
                }
            }
        }
    }
}

/// An address, alone or as `Name <address>`. Only the form is checked.
fn check_email(checks: &mut Checks<'_>) {
    let Some(given) = checks.optional_text("author_email") else { return };
    let address = match given.split_once('<') {
        Some((_, rest)) => rest.trim_end().strip_suffix('>').unwrap_or(rest),
        None => &given,
    };
    let reason = match address.rsplit_once('@') {
        None => "An email address must have an @-sign.",
        Some((_, domain)) if !domain.trim_matches('.').contains('.') => {
            "The part after the @-sign is not valid. It should have a period."
        }
        Some(("", _)) => "There must be something before the @-sign.",
        Some(_) => return,
    };
    // What is no text at all has been refused already.
    if !given.is_empty() {
        checks.refuse("author_email", format!("value is not a valid email address: {reason}"));
    }
}

/// Settings for the server: plain values, or mappings of such.
fn check_settings(fields: &Yaml, checks: &mut Checks<'_>) {
    let plain = |value: &Yaml| {
        matches!(value, Yaml::Text(_) | Yaml::Int(_) | Yaml::Float(_) | Yaml::Bool(_))
    };
    match fields.get("environment_settings") {
        None | Some(Yaml::Null) => {}
        Some(Yaml::Map(settings)) => {
            for (key, value) in settings {
                let fits = match value {
                    Yaml::Map(inner) => inner.iter().all(|(_, value)| plain(value)),
                    other => plain(other),
                };
                if fits {
                    continue;
                }
                let name = match key {
                    Yaml::Text(text) => text.as_str(),
                    other => other.kind(),
                };
                checks.refuse(
                    format!("environment_settings.{name}"),
                    format!("Input should be a string, number, boolean or a mapping of those, but it is {}", value.kind()),
                );
            }
        }
        Some(other) => checks.refuse(
            "environment_settings",
            format!("Input should be a valid dictionary, but it is {}", other.kind()),
        ),
    }
}

fn is_precedence_rule(rule: &str) -> bool {
    static RULE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^[^\s.]+\.[^\s.]+\s+before\s+[^\s.]+\.[^\s.]+$")
            .expect("invariant: the pattern is valid")
    });
    RULE.is_match(rule)
}

/// The Python environment of a project: the one that was asked for, or the one that lies in it.
pub fn python_environment(files: &dyn Files, options: &Options) -> Option<PathBuf> {
    crate::modules::environment(files, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Memory;

    fn load(text: &str) -> Result<Project, String> {
        let mut files = Memory::default();
        files.add("p/project.yml", text);
        Project::load(&files, Path::new("p")).map_err(|error| error.message(&|_| String::new()))
    }

    #[test]
    fn what_the_reference_accepts() {
        for text in [
            "name: t",
            "name: 5",
            "name: n",
            "name: \"yes\"",
            "name: t\nmodulepath: [1, a]",
            "name: t\nmodulepath:",
            "name: t\nfreeze_recursive: yes",
            "name: t\nfreeze_recursive: \"ON\"",
            "name: t\nfreeze_recursive: 1.0",
            "name: t\nrepo: [a, {url: b, type: git}]",
            "name: t\npip: {index-url: a, extra_index_url: [b], pre: true}",
            "name: t\nenvironment_settings: {a: {b: 1}, c: 1.5}",
            "name: t\nauthor_email: Ann <ann@example.com>",
            "name: t\nunknown: {a: [b]}",
            "name: t\norrery: {local_agents: [web1, 'db*'], templates: lenient}",
        ] {
            assert!(load(text).is_ok(), "{text}: {:?}", load(text));
        }
    }

    #[test]
    fn mistakes_name_the_key() {
        for (text, key, reason) in [
            ("modulepath: libs", "name", "Field required"),
            ("name: yes", "name", "but it is a boolean"),
            ("name: 2020-01-01", "name", "but it is a date"),
            ("name: t\nmodulepath: {a: b}", "modulepath.0", "but it is a mapping"),
            ("name: t\nrequires: [[a]]", "requires.0", "but it is a list"),
            ("name: t\nfreeze_recursive: maybe", "freeze_recursive", "but it is `maybe`"),
            ("name: t\nfreeze_recursive:", "freeze_recursive", "but it is empty"),
            ("name: t\nfreeze_operator: <", "freeze_operator", "==, ~=, >="),
            ("name: t\ninstall_mode: x", "install_mode", "release, prerelease, master"),
            ("name: t\nrepo: [{url: 5, type: git}]", "repo.0.url", "but it is a number"),
            ("name: t\nrepo: {url: a}", "repo.0.type", "Field required"),
            ("name: t\nrepo: 5", "repo.0", "but it is a number"),
            ("name: t\npip: 5", "pip", "but it is a number"),
            ("name: t\npip: {extra-index-url: a}", "pip.extra-index-url", "but it is a string"),
            ("name: t\nenvironment_settings: {a: [1]}", "environment_settings.a", "a list"),
            ("name: t\norrery: 5", "orrery", "but it is a number"),
            ("name: t\norrery: {local_agents: web1}", "orrery.local_agents", "a list of agent"),
            ("name: t\norrery: {local_agents: [5]}", "orrery.local_agents.0", "a number"),
            ("name: t\norrery: {templates: 5}", "orrery.templates", "'strict' or 'lenient'"),
            ("name: t\norrery: {localagents: []}", "orrery.localagents", "unknown setting"),
            ("name: t\nauthor_email: nobody", "author_email", "@-sign"),
            ("name: t\nrelation_precedence_policy: [x]", "relation_precedence_policy.0", "`x`"),
        ] {
            let error = load(text).unwrap_err();
            let start = "Metadata defined in ./project.yml is invalid:\n  1 validation error for ProjectMetadata\n";
            assert!(error.starts_with(&format!("{start}  {key}\n    ")), "{text}: {error}");
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn several_mistakes_are_told_at_once() {
        let error = load("freeze_recursive: [1]").unwrap_err();
        assert!(error.contains("2 validation errors for ProjectMetadata\n  name\n"), "{error}");
    }

    #[test]
    fn a_broken_description_has_a_place() {
        let error = load("name: [\n").unwrap_err();
        assert!(error.starts_with("Invalid yaml syntax in ./project.yml:\n"), "{error}");
        assert!(error.ends_with("in \"./project.yml\", line 1, column 7"), "{error}");
        assert!(load("- a").unwrap_err().contains("but it is a list"));
        assert!(load("").unwrap_err().contains("but it is empty"));
        assert!(load("5: 6\nname: t").unwrap_err().contains("a key that is a number"));
    }

    #[test]
    fn oddities_are_warned_of() {
        let project = load("name: t\npip: {foo: 1}\nrepo: {url: b, type: package}").unwrap();
        assert_eq!(project.warnings.len(), 2);
        assert!(project.warnings.iter().any(|(_, text)| text.contains("'pip.foo'")));
    }

    #[test]
    fn module_paths_are_plain() {
        let project = load("name: t\nmodulepath: [./a/../libs/, ., /abs]").unwrap();
        let plain: Vec<PathBuf> = ["p/libs", "p", "/abs"].map(PathBuf::from).into();
        assert_eq!(project.module_path, plain);
    }

    #[test]
    fn a_directory_without_description_is_a_project_but_a_directory_as_description_is_not() {
        let mut files = Memory::default();
        files.add("p/main.cf", "");
        assert!(Project::load(&files, Path::new("p")).is_ok());
        files.add("p/project.yml/x", "");
        let error = Project::load(&files, Path::new("p")).unwrap_err();
        assert!(error.text.contains("it is a directory"), "{}", error.text);
    }
}
