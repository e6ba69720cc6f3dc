//! Selects the server and environment of a command. Precedence: command line, environment
//! variables, `.orrery.toml` in the project directory, current context. The default environment of
//! a context applies only outside of projects: a choice made elsewhere must not decide what a
//! project replaces. If nothing is selected, a command uses the local project.

pub(crate) mod contexts;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::{Args, ValueHint};
use orrery_api::Environment;
use orrery_api::client::{Client, ClientError, Connection, path};
use orrery_model::SecretText;
use serde::Deserialize;
use uuid::Uuid;

use crate::error::CliError;
use crate::{output, style};
use contexts::{Context, Contexts, quoted};

const HEADING: &str = "Server";
pub(crate) const TOKEN_VARIABLE: &str = "ORRERY_TOKEN";
/// Selects the environment of a project, in its directory.
pub(crate) const PROJECT_FILE: &str = ".orrery.toml";

/// Maximum number of environments that an error lists.
const NAMES_MAX: usize = 10;

/// Selection of a server.
#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::doc_markdown, reason = "help texts, shown without markup")]
pub(crate) struct ServerChoice {
    /// URL of a server.
    #[arg(help = "URL of a server, such as https://orrery.example.com:8888 [env: ORRERY_SERVER]")]
    #[arg(long, global = true, value_name = "URL", help_heading = HEADING)]
    #[arg(value_hint = ValueHint::Url)]
    pub(crate) server: Option<String>,
    /// Context, by name [env: ORRERY_CONTEXT]
    #[arg(long, global = true, value_name = "NAME", help_heading = HEADING)]
    #[arg(conflicts_with = "server", value_hint = ValueHint::Other)]
    pub(crate) context: Option<String>,
    /// CA certificate file to trust instead of the system's certificates [env: ORRERY_CA]
    #[arg(long, global = true, value_name = "FILE", help_heading = HEADING)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
}

/// Selection of an environment.
#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::doc_markdown, reason = "help texts, shown without markup")]
pub(crate) struct EnvironmentChoice {
    /// Environment: project/name, a unique name, or an id [env: ORRERY_ENVIRONMENT]
    #[arg(short, long, global = true, value_name = "NAME", help_heading = HEADING)]
    #[arg(value_hint = ValueHint::Other)]
    pub(crate) environment: Option<String>,
}

/// Selection of an environment on a server or of the local project.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DeploymentChoice {
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    #[command(flatten)]
    pub(crate) environment: EnvironmentChoice,
    /// Use the local project even if a server is selected
    #[arg(long, help_heading = HEADING, conflicts_with_all = ["server", "context", "environment"])]
    pub(crate) local: bool,
}

/// Content of `.orrery.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProjectFile {
    server: String,
    environment: String,
    /// Informative only.
    #[serde(default)]
    #[expect(dead_code, reason = "only the id is used")]
    name: Option<String>,
}

/// The selected server.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) client: Client,
    /// Name of the context that it comes from.
    pub(crate) context: Option<String>,
    /// Selected environment: a name or an id.
    environment: Option<String>,
    /// Name of the environment, if it is the default of a context.
    by_default: Option<String>,
}

/// An environment on a server.
#[derive(Clone, Debug)]
pub(crate) struct RemoteEnvironment {
    pub(crate) client: Client,
    pub(crate) id: Uuid,
    /// Fetched on demand: a token may grant access to resources of an environment but not to the
    /// environment itself.
    details: OnceLock<Environment>,
}

impl ServerChoice {
    /// Returns the selected server.
    pub(crate) fn open(&self, environment: Option<&EnvironmentChoice>) -> Result<Remote, CliError> {
        self.open_for(environment, None)
    }

    /// Returns the selected server for the project in a directory, if given.
    pub(crate) fn open_for(
        &self,
        environment: Option<&EnvironmentChoice>,
        project: Option<&Path>,
    ) -> Result<Remote, CliError> {
        let asked = environment.and_then(|choice| choice.environment.clone());
        let project = project.map(Path::to_owned).or_else(orrery_project::around_here);
        match self.resolve(asked, project.as_deref())? {
            Some(remote) => Ok(remote),
            None => Err(CliError::new("no server selected")
                .help("log in with `orrery login URL`, or name one with --server URL")),
        }
    }

    /// Returns the selected server, if any.
    pub(crate) fn find(&self) -> Result<Option<Remote>, CliError> {
        self.resolve(None, orrery_project::around_here().as_deref())
    }

    /// True if the command names a server, rather than a context selecting one.
    pub(crate) fn is_named(&self) -> bool {
        let named = variable("ORRERY_SERVER").or_else(|| variable("ORRERY_CONTEXT"));
        self.server.is_some() || self.context.is_some() || named.is_some()
    }

    /// Resolves the selection.
    fn resolve(
        &self,
        asked: Option<String>,
        project: Option<&Path>,
    ) -> Result<Option<Remote>, CliError> {
        let contexts = Contexts::read()?;
        let asked = asked.or_else(|| variable("ORRERY_ENVIRONMENT"));
        let token = variable(TOKEN_VARIABLE).map(SecretText::new);
        // The command line takes precedence over every variable.
        let is_said = self.server.is_some() || self.context.is_some();
        let server = self.server.clone().or_else(|| variable("ORRERY_SERVER").filter(|_| !is_said));
        let is_said = is_said || server.is_some();
        let context =
            self.context.clone().or_else(|| variable("ORRERY_CONTEXT").filter(|_| !is_said));
        if let Some(server) = &server {
            let known = contexts.of_server(server);
            let asked = match asked {
                Some(asked) => Some(asked),
                None => of_directory(project, server)?,
            };
            return self.connect(server, known, token, asked, project).map(Some);
        }
        if let Some(name) = &context {
            let Some(context) = contexts.contexts.get(name) else {
                let error = CliError::new(format!("no context {name}"));
                return Err(error.help("`orrery context list` lists the contexts"));
            };
            let asked = match asked {
                Some(asked) => Some(asked),
                None => of_directory(project, &context.server)?,
            };
            let known = Some((name.as_str(), context));
            return self.connect(&context.server, known, token, asked, project).map(Some);
        }
        if let Some(file) = project.map(read_project).transpose()?.flatten() {
            // A file in a project must not be able to send a token to an arbitrary server.
            let Some(known) = contexts.of_server(&file.server) else {
                let error = CliError::new(format!(
                    "{PROJECT_FILE} selects an environment on {}, but you are not logged in there",
                    file.server
                ));
                let help =
                    format!("orrery login {}, or use the local project with --local", file.server);
                return Err(error.help(help));
            };
            let environment = asked.or(Some(file.environment));
            return self.connect(&file.server, Some(known), token, environment, project).map(Some);
        }
        if let Some((name, context)) = contexts.current() {
            let known = Some((name, context));
            return self.connect(&context.server, known, token, asked, project).map(Some);
        }
        match asked {
            Some(name) => Err(CliError::new(format!("no server selected for environment {name}"))
                .help("log in with `orrery login URL`, or name one with --server URL")),
            None => Ok(None),
        }
    }

    fn connect(
        &self,
        server: &str,
        known: Option<(&str, &Context)>,
        token: Option<SecretText>,
        asked: Option<String>,
        project: Option<&Path>,
    ) -> Result<Remote, CliError> {
        let context = known.map(|(_, context)| context);
        let connection = Connection {
            server: server.to_owned(),
            token: token.or_else(|| context.and_then(|context| context.token.clone())),
            ca: self
                .ca
                .clone()
                .or_else(|| variable("ORRERY_CA").map(PathBuf::from))
                .or_else(|| context.and_then(|context| context.ca.clone())),
        };
        let client = Client::new(&connection)?;
        tracing::debug!(server, context = ?known.map(|(name, _)| name), "server selected");
        let default = context.filter(|_| asked.is_none() && project.is_none());
        let by_default = default.and_then(|context| {
            context.environment_name.clone().or_else(|| context.environment.clone())
        });
        let environment = asked.or_else(|| default?.environment.clone());
        let context = known.map(|(name, _)| name.to_owned());
        Ok(Remote { client, context, environment, by_default })
    }
}

impl DeploymentChoice {
    /// Returns the selected environment on a server; `None` for the local project.
    pub(crate) fn remote(
        &self,
        project: Option<&Path>,
    ) -> Result<Option<RemoteEnvironment>, CliError> {
        if self.local {
            return Ok(None);
        }
        let project = project.map(Path::to_owned).or_else(orrery_project::around_here);
        let asked = self.environment.environment.clone();
        let Some(remote) = self.server.resolve(asked, project.as_deref())? else { return Ok(None) };
        // In a project, a login alone does not select a server.
        if remote.environment.is_none() && !self.server.is_named() {
            let server = style::sanitize(remote.client.server());
            output::print_status(&format!(
                "{}: no environment of {server} selected, using the local project; `orrery environment use NAME` selects one for this directory",
                style::help("note")
            ));
            return Ok(None);
        }
        remote.in_environment().map(Some)
    }

    /// True if an environment on a server is selected; does not check that it exists.
    pub(crate) fn is_remote(&self, project: Option<&Path>) -> Result<bool, CliError> {
        if self.local {
            return Ok(false);
        }
        let project = project.map(Path::to_owned).or_else(orrery_project::around_here);
        let asked = self.environment.environment.clone();
        let remote = self.server.resolve(asked, project.as_deref())?;
        Ok(remote.is_some_and(|remote| remote.environment.is_some()))
    }
}

impl Remote {
    /// A server without a selected environment.
    pub(crate) fn without_environment(client: Client) -> Self {
        Remote { client, context: None, environment: None, by_default: None }
    }

    /// Returns the selected environment.
    pub(crate) fn in_environment(&self) -> Result<RemoteEnvironment, CliError> {
        let Some(name) = &self.environment else {
            let error = CliError::new("no environment selected");
            return Err(error.help(
                "name one with --environment, or select one for the project directory: orrery environment use NAME",
            ));
        };
        if let Some(name) = &self.by_default {
            let context = self.context.as_deref().unwrap_or_default();
            let text = format!(
                "not in a project: using {name}, the default environment of context {context}; -e NAME selects another"
            );
            output::print_status(&format!("{}: {}", style::help("note"), style::sanitize(&text)));
        }
        let client = self.client.clone();
        if let Ok(id) = name.parse::<Uuid>() {
            return Ok(RemoteEnvironment { client, id, details: OnceLock::new() });
        }
        let found = self.find_environment(name)?;
        Ok(RemoteEnvironment { client, id: found.id, details: OnceLock::from(found) })
    }

    /// True if the environment is the selected one.
    pub(crate) fn has_chosen(&self, environment: &Environment) -> bool {
        let Environment { id, project_name, name, .. } = environment;
        self.environment.as_ref().is_some_and(|chosen| {
            *chosen == id.to_string()
                || chosen == name
                || *chosen == format!("{project_name}/{name}")
        })
    }

    /// Finds an environment by id, project/name, or unique name.
    pub(crate) fn find_environment(&self, name: &str) -> Result<Environment, CliError> {
        let help = "`orrery environment list` lists the environments";
        if let Ok(id) = name.parse::<Uuid>() {
            let found = self.client.find(&path(&["environments", &id.to_string()]))?;
            return found.ok_or_else(|| CliError::new(format!("no environment {name}")).help(help));
        }
        let all = self.client.list::<Environment>(&path(&["environments"]));
        let (mut fitting, mut names) = (Vec::new(), Vec::new());
        for environment in all {
            let environment = environment?;
            let full = format!("{}/{}", environment.project_name, environment.name);
            names.push(full.clone());
            if environment.name == name || full == name {
                fitting.push((full, environment));
            }
        }
        match fitting.len() {
            1 => Ok(fitting.remove(0).1),
            0 => {
                names.truncate(NAMES_MAX);
                let known = match names.join(", ") {
                    names if names.is_empty() => "none is visible to you".to_owned(),
                    names => format!("available: {names}"),
                };
                Err(CliError::new(format!("no environment {name}; {known}")).help(help))
            }
            _ => {
                let names: Vec<&str> = fitting.iter().map(|(full, _)| full.as_str()).collect();
                let names = names.join(", ");
                let error =
                    CliError::new(format!("several environments are named {name}: {names}"));
                Err(error.help("name one as project/name"))
            }
        }
    }
}

impl RemoteEnvironment {
    /// Properties of the environment on the server.
    pub(crate) fn details(&self) -> Result<&Environment, CliError> {
        Ok(self.try_details()?)
    }

    fn try_details(&self) -> Result<&Environment, ClientError> {
        if let Some(known) = self.details.get() {
            return Ok(known);
        }
        let found = self.client.get(&self.path(&[]))?;
        Ok(self.details.get_or_init(|| found))
    }

    /// True if the environment is halted. Without the right to ask, returns false: the server
    /// decides.
    pub(crate) fn is_halted(&self) -> Result<bool, CliError> {
        match self.try_details() {
            Ok(details) => Ok(details.halted),
            Err(error) if error.status() == Some(403) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// API path below the environment.
    pub(crate) fn path(&self, parts: &[&str]) -> String {
        let id = self.id.to_string();
        let mut all = vec!["environments", id.as_str()];
        all.extend(parts);
        path(&all)
    }

    /// Full name, or the id without the right to read the name.
    pub(crate) fn name(&self) -> String {
        match self.try_details() {
            Ok(details) => format!("{}/{}", details.project_name, details.name),
            Err(_) => self.id.to_string(),
        }
    }

    /// Name and server.
    pub(crate) fn display_name(&self) -> String {
        format!("{} on {}", self.name(), self.client.server())
    }
}

/// A non-empty environment variable.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn read_project(directory: &Path) -> Result<Option<ProjectFile>, CliError> {
    let file = directory.join(PROJECT_FILE);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(CliError::new(format!("cannot read {}: {error}", file.display())));
        }
    };
    let read = toml::from_str(&text);
    read.map(Some).map_err(|error| {
        let error = CliError::new(format!("{} is invalid: {}", file.display(), error.message()));
        error.help("`orrery environment use NAME` rewrites it")
    })
}

/// Environment that a project directory selects on a server, if any.
fn of_directory(project: Option<&Path>, server: &str) -> Result<Option<String>, CliError> {
    let Some(file) = project.map(read_project).transpose()?.flatten() else { return Ok(None) };
    let is_same = file.server.trim_end_matches('/') == server.trim_end_matches('/');
    Ok(is_same.then_some(file.environment))
}

/// Stores the selected environment of a project in its directory.
pub(crate) fn store_project_choice(
    directory: &Path,
    server: &str,
    chosen: &Environment,
) -> Result<PathBuf, CliError> {
    let file = directory.join(PROJECT_FILE);
    let text = format!(
        "# The environment that this project is deployed to; `orrery environment use` writes this. It holds no secrets.\n\
         server = {}\nenvironment = {}\nname = {}\n",
        quoted(server),
        quoted(&chosen.id.to_string()),
        quoted(&format!("{}/{}", chosen.project_name, chosen.name)),
    );
    std::fs::write(&file, text)
        .map_err(|error| CliError::new(format!("cannot write {}: {error}", file.display())))?;
    Ok(file)
}

/// Removes the selection.
pub(crate) fn clear_project_choice(directory: &Path) -> Result<(), CliError> {
    let file = directory.join(PROJECT_FILE);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CliError::new(format!("cannot remove {}: {error}", file.display())))
        }
        _ => Ok(()),
    }
}
