//! Project metadata, `project.yml`, and the module search path.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::LazyLock;

use orrery_model::{PipSettings, ResourceType};
use regex::Regex;

use crate::error::Result;
use crate::files::Files;
use crate::metadata::{self, MetadataReader};
use crate::modules::join_normalized;
use crate::plugins::{Facts, ServerEnvironmentInfo};
use crate::value::WRITTEN_BYTES_MAX;
use crate::yaml::Yaml;

mod settings;

pub use settings::{ProjectSettings, TemplateMode};

/// Inputs of a compile.
#[derive(Clone, Debug)]
pub struct Options {
    pub project_dir: PathBuf,
    /// Relative to the project's directory.
    pub main_file: String,
    /// Content of `project.yml`, if it was read before.
    pub metadata: Option<ProjectMetadata>,
    /// Imports `std` implicitly.
    pub implicit_std: bool,
    /// A virtualenv that is also searched for modules.
    pub python_environment: Option<PathBuf>,
    /// The time visible to models, in seconds since 1970: constant during a compile.
    pub now: f64,
    /// Facts of deployed resources; `None` if nothing is ever deployed.
    pub facts: Option<Arc<dyn Facts>>,
    /// Resource types that need no module code.
    pub resources: Vec<ResourceType>,
    /// The server environment that the model is compiled for.
    pub server: Option<ServerEnvironmentInfo>,
    pub limits: CompileLimits,
}

/// Limits that turn an infinite model into an error.
#[derive(Clone, Copy, Debug)]
pub struct CompileLimits {
    pub instances: u32,
    /// Maximum depth of instances created by implementations of instances.
    pub creation_depth: u32,
    /// Approximate memory limit of a run.
    pub memory_bytes: usize,
    /// Maximum length of the text of one value.
    pub text_bytes: usize,
}

impl Default for CompileLimits {
    fn default() -> Self {
        CompileLimits {
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
            metadata: None,
            implicit_std: true,
            python_environment: None,
            now: 0.0,
            facts: None,
            resources: Vec::new(),
            server: None,
            limits: CompileLimits::default(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct ProjectMetadata {
    pub name: String,
    pub module_path: Vec<PathBuf>,
    pub precedence: Vec<String>,
    /// Required modules, with version specifiers.
    pub requires: Vec<String>,
    /// Warnings about its metadata, as class and text.
    pub warnings: Vec<(&'static str, String)>,
    pub pip: PipSettings,
    pub settings: ProjectSettings,
    pub repositories: ModuleRepositories,
}

/// Repositories from which modules of the module path are cloned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleRepositories {
    /// URLs in the order of attempts: with `{}` for the module name, or a prefix of it.
    pub addresses: Vec<String>,
    /// The directory for cloned modules: `downloadpath`, or else the first directory of the module
    /// path.
    pub directory: Option<PathBuf>,
    pub mode: InstallMode,
}

impl ModuleRepositories {
    /// The candidate URLs of a module.
    pub fn addresses_of(&self, module: &str) -> Vec<String> {
        let address = |base: &String| match base.contains("{}") {
            true => base.replacen("{}", module, 1),
            // As in the reference compiler: a local path is a directory of modules, a URL a prefix.
            false if base.contains(':') || base.ends_with('/') => format!("{base}{module}"),
            false => format!("{base}/{module}"),
        };
        self.addresses.iter().map(address).collect()
    }
}

/// Revision of a cloned module to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstallMode {
    /// The newest released version that the requirements allow.
    #[default]
    Release,
    /// The same, including prereleases.
    Prerelease,
    /// The branch `master`.
    Master,
}

const DESCRIPTION: &str = "project.yml";
const CONFIGURATION_WARNING: &str = "ProjectConfigurationWarning";

impl ProjectMetadata {
    /// Reads `project.yml`. A directory without one is a project that consists of its main file.
    pub fn load(files: &dyn Files, dir: &Path) -> Result<ProjectMetadata> {
        let path = dir.join(DESCRIPTION);
        if let Err(error) = files.kind(&path)
            && error.kind() == std::io::ErrorKind::NotFound
        {
            return Ok(ProjectMetadata {
                module_path: vec![dir.join("libs")],
                ..ProjectMetadata::default()
            });
        }
        let shown = format!("./{DESCRIPTION}");
        let read = metadata::read_yaml(files, &path, &shown);
        let read = read.and_then(|fields| Self::from_yaml(&fields, dir, &shown));
        read.map_err(metadata::MetadataError::into_project_error)
    }

    fn from_yaml(
        fields: &Yaml,
        dir: &Path,
        shown: &str,
    ) -> Result<ProjectMetadata, metadata::MetadataError> {
        let mut checks = MetadataReader::new(fields);
        let mut project =
            ProjectMetadata { name: checks.required_text("name"), ..ProjectMetadata::default() };
        checks.common();
        for key in ["author", "license", "copyright"] {
            checks.optional_text(key);
        }
        check_email(&mut checks);
        let module_path = checks.texts("modulepath");
        project.module_path = module_path.iter().map(|part| join_normalized(dir, part)).collect();
        let download = checks.optional_text("downloadpath").filter(|path| !path.is_empty());
        let download = download.map(|path| join_normalized(dir, &path));
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

    /// Reads the repositories of modules: URLs, each alone or with its type.
    fn check_repositories(&mut self, fields: &Yaml, checks: &mut MetadataReader<'_>) {
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

    /// Reads the settings for the installation of packages.
    fn check_pip(&mut self, fields: &Yaml, checks: &mut MetadataReader<'_>) {
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
                ("index-url" | "pre", Yaml::Null) => {}
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

/// Checks an e-mail address, alone or as `Name <address>`. Only the form is checked.
fn check_email(checks: &mut MetadataReader<'_>) {
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
    // A value that is not a text has already been refused.
    if !given.is_empty() {
        checks.refuse("author_email", format!("value is not a valid email address: {reason}"));
    }
}

/// Checks settings for the server: plain values, or mappings of these.
fn check_settings(fields: &Yaml, checks: &mut MetadataReader<'_>) {
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

/// The virtualenv of a project: the configured one, or the one inside the project.
pub fn python_environment(files: &dyn Files, options: &Options) -> Option<PathBuf> {
    crate::modules::environment(files, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Memory;

    fn load(text: &str) -> Result<ProjectMetadata, String> {
        let mut files = Memory::default();
        files.add("p/project.yml", text);
        ProjectMetadata::load(&files, Path::new("p"))
            .map_err(|error| error.message(&|_| String::new()))
    }

    #[test]
    fn accepts_what_the_reference_compiler_accepts() {
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
    fn errors_name_the_key() {
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
    fn several_errors_are_reported_together() {
        let error = load("freeze_recursive: [1]").unwrap_err();
        assert!(error.contains("2 validation errors for ProjectMetadata\n  name\n"), "{error}");
    }

    #[test]
    fn invalid_metadata_has_a_location() {
        let error = load("name: [\n").unwrap_err();
        assert!(error.starts_with("Invalid yaml syntax in ./project.yml:\n"), "{error}");
        assert!(error.ends_with("in \"./project.yml\", line 1, column 7"), "{error}");
        assert!(load("- a").unwrap_err().contains("but it is a list"));
        assert!(load("").unwrap_err().contains("but it is empty"));
        assert!(load("5: 6\nname: t").unwrap_err().contains("a key that is a number"));
    }

    #[test]
    fn unusual_metadata_causes_warnings() {
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
    fn a_directory_without_metadata_is_a_project_but_a_directory_as_metadata_is_not() {
        let mut files = Memory::default();
        files.add("p/main.cf", "");
        assert!(ProjectMetadata::load(&files, Path::new("p")).is_ok());
        files.add("p/project.yml/x", "");
        let error = ProjectMetadata::load(&files, Path::new("p")).unwrap_err();
        assert!(error.text.contains("it is a directory"), "{}", error.text);
    }
}
