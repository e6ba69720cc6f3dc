//! Which server, and which environment of it, a command is about. One order everywhere: what is said on the command line,
//! environment variables, what the project's directory says (`.orrery.toml`), and the current context. The environment that a
//! context names counts outside of projects only: a choice that was made elsewhere must not decide what a project replaces. If none
//! of them says anything, a command works on the local project.

pub(crate) mod contexts;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::{Args, ValueHint};
use orrery_api::Environment;
use orrery_api::client::{Client, ClientError, Connection, path};
use orrery_model::SecretText;
use serde::Deserialize;
use uuid::Uuid;

use crate::commands::trouble::Trouble;
use crate::{output, projects, style};
use contexts::{Context, Contexts, quoted};

const HEADING: &str = "Server";
pub(crate) const TOKEN_VARIABLE: &str = "ORRERY_TOKEN";
/// In a project's directory: the environment that the project belongs to.
pub(crate) const PROJECT_FILE: &str = ".orrery.toml";

/// How many environments are named to somebody who named none of them.
const NAMES_MAX: usize = 10;

/// Which server.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServerChoice {
    /// The address of a server.
    #[arg(
        help = "The address of a server, such as https://orrery.example.com:8888 [env: ORRERY_SERVER]"
    )]
    #[arg(long, global = true, value_name = "URL", help_heading = HEADING)]
    #[arg(value_hint = ValueHint::Url)]
    pub(crate) server: Option<String>,
    /// A server that you logged in to, by the name of its context [env: ORRERY_CONTEXT]
    #[arg(long, global = true, value_name = "NAME", help_heading = HEADING)]
    #[arg(conflicts_with = "server", value_hint = ValueHint::Other)]
    pub(crate) context: Option<String>,
    /// A file with the certificate to trust, instead of those of this machine [env: ORRERY_CA]
    #[arg(long, global = true, value_name = "FILE", help_heading = HEADING)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
}

/// Which environment of it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct EnvironmentChoice {
    /// The environment: project/name, a name that no other one has, or its id [env: ORRERY_ENVIRONMENT]
    #[arg(short, long, global = true, value_name = "NAME", help_heading = HEADING)]
    #[arg(value_hint = ValueHint::Other)]
    pub(crate) environment: Option<String>,
}

/// For commands that work on the local project too.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WhereChoice {
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    #[command(flatten)]
    pub(crate) environment: EnvironmentChoice,
    /// Work on the local project, whatever else is chosen
    #[arg(long, help_heading = HEADING, conflicts_with_all = ["server", "context", "environment"])]
    pub(crate) local: bool,
}

/// What a project's directory says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProjectFile {
    server: String,
    environment: String,
    /// For people who read the file.
    #[serde(default)]
    #[expect(dead_code, reason = "the id is what counts")]
    name: Option<String>,
}

/// A server that was chosen.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) client: Client,
    /// The name of the context that it came from.
    pub(crate) context: Option<String>,
    /// The environment that was chosen, in whatever way it is called.
    environment: Option<String>,
    /// What the environment is called, if a context says that it is meant.
    by_default: Option<String>,
}

/// One environment on a server.
#[derive(Clone, Debug)]
pub(crate) struct RemoteEnvironment {
    pub(crate) client: Client,
    pub(crate) id: Uuid,
    /// Asked for when somebody wants to know: a token may be good for what is in an environment, but not for itself.
    details: OnceLock<Environment>,
}

impl ServerChoice {
    /// The server that is meant.
    pub(crate) fn open(&self, environment: Option<&EnvironmentChoice>) -> Result<Remote, Trouble> {
        self.open_for(environment, None)
    }

    /// The same for the project in a directory, if one is given.
    pub(crate) fn open_for(
        &self,
        environment: Option<&EnvironmentChoice>,
        project: Option<&Path>,
    ) -> Result<Remote, Trouble> {
        let asked = environment.and_then(|choice| choice.environment.clone());
        let project = project.map(Path::to_owned).or_else(projects::around_here);
        match self.resolve(asked, project.as_deref())? {
            Some(remote) => Ok(remote),
            None => Err(Trouble::said("no server is chosen")
                .help("log in with `orrery login URL`, or name one with --server URL")),
        }
    }

    /// The server that is meant, if one is, for commands that work without one, too.
    pub(crate) fn find(&self) -> Result<Option<Remote>, Trouble> {
        self.resolve(None, projects::around_here().as_deref())
    }

    /// True if a server is named for this command, and not only logged in to.
    pub(crate) fn is_named(&self) -> bool {
        let named = variable("ORRERY_SERVER").or_else(|| variable("ORRERY_CONTEXT"));
        self.server.is_some() || self.context.is_some() || named.is_some()
    }

    /// The server that is meant, if one is.
    fn resolve(
        &self,
        asked: Option<String>,
        project: Option<&Path>,
    ) -> Result<Option<Remote>, Trouble> {
        let contexts = Contexts::read()?;
        let asked = asked.or_else(|| variable("ORRERY_ENVIRONMENT"));
        let token = variable(TOKEN_VARIABLE).map(SecretText::new);
        // What is said on the command line is stronger than every variable.
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
                let trouble = Trouble::said(format!("there is no context {name}"));
                return Err(trouble.help("`orrery context list` shows those that there are"));
            };
            let asked = match asked {
                Some(asked) => Some(asked),
                None => of_directory(project, &context.server)?,
            };
            let known = Some((name.as_str(), context));
            return self.connect(&context.server, known, token, asked, project).map(Some);
        }
        if let Some(file) = project.map(read_project).transpose()?.flatten() {
            // A file that comes with a project must not be able to send a token anywhere.
            let Some(known) = contexts.of_server(&file.server) else {
                let trouble = Trouble::said(format!(
                    "{PROJECT_FILE} says that the project belongs to an environment on {}, where you are not logged in",
                    file.server
                ));
                let help = format!("orrery login {}, or work without it: --local", file.server);
                return Err(trouble.help(help));
            };
            let environment = asked.or(Some(file.environment));
            return self.connect(&file.server, Some(known), token, environment, project).map(Some);
        }
        if let Some((name, context)) = contexts.current() {
            let known = Some((name, context));
            return self.connect(&context.server, known, token, asked, project).map(Some);
        }
        match asked {
            Some(name) => {
                Err(Trouble::said(format!("no server is chosen for the environment {name}"))
                    .help("log in with `orrery login URL`, or name one with --server URL"))
            }
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
    ) -> Result<Remote, Trouble> {
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
        tracing::debug!(server, context = ?known.map(|(name, _)| name), "a server is chosen");
        let default = context.filter(|_| asked.is_none() && project.is_none());
        let by_default = default.and_then(|context| {
            context.environment_name.clone().or_else(|| context.environment.clone())
        });
        let environment = asked.or_else(|| default?.environment.clone());
        let context = known.map(|(name, _)| name.to_owned());
        Ok(Remote { client, context, environment, by_default })
    }
}

impl WhereChoice {
    /// The environment on a server that is meant; `None` for the local project.
    pub(crate) fn remote(
        &self,
        project: Option<&Path>,
    ) -> Result<Option<RemoteEnvironment>, Trouble> {
        if self.local {
            return Ok(None);
        }
        let project = project.map(Path::to_owned).or_else(projects::around_here);
        let asked = self.environment.environment.clone();
        let Some(remote) = self.server.resolve(asked, project.as_deref())? else { return Ok(None) };
        // Whoever is merely logged in, and in a project, means the project.
        if remote.environment.is_none() && !self.server.is_named() {
            let server = style::harmless(remote.client.server());
            output::say(&format!(
                "{}: no environment of {server} is chosen, so this is about the local project; `orrery environment use NAME` chooses one for this directory",
                style::help("note")
            ));
            return Ok(None);
        }
        remote.in_environment().map(Some)
    }

    /// Whether an environment on a server is meant; nobody is asked whether it is there.
    pub(crate) fn is_remote(&self, project: Option<&Path>) -> Result<bool, Trouble> {
        if self.local {
            return Ok(false);
        }
        let project = project.map(Path::to_owned).or_else(projects::around_here);
        let asked = self.environment.environment.clone();
        let remote = self.server.resolve(asked, project.as_deref())?;
        Ok(remote.is_some_and(|remote| remote.environment.is_some()))
    }
}

impl Remote {
    /// A server without a chosen environment.
    pub(crate) fn of(client: Client) -> Self {
        Remote { client, context: None, environment: None, by_default: None }
    }

    /// The environment that is meant.
    pub(crate) fn in_environment(&self) -> Result<RemoteEnvironment, Trouble> {
        let Some(name) = &self.environment else {
            let trouble = Trouble::said("no environment is chosen");
            return Err(trouble.help(
                "name one with --environment, or choose one for the project's directory: orrery environment use NAME",
            ));
        };
        if let Some(name) = &self.by_default {
            let context = self.context.as_deref().unwrap_or_default();
            let text = format!(
                "this is no project: the environment is {name}, the default of the context {context}; -e NAME names another"
            );
            output::say(&format!("{}: {}", style::help("note"), style::harmless(&text)));
        }
        let client = self.client.clone();
        if let Ok(id) = name.parse::<Uuid>() {
            return Ok(RemoteEnvironment { client, id, details: OnceLock::new() });
        }
        let found = self.find_environment(name)?;
        Ok(RemoteEnvironment { client, id: found.id, details: OnceLock::from(found) })
    }

    /// Whether an environment is the chosen one.
    pub(crate) fn has_chosen(&self, environment: &Environment) -> bool {
        let Environment { id, project_name, name, .. } = environment;
        self.environment.as_ref().is_some_and(|chosen| {
            *chosen == id.to_string()
                || chosen == name
                || *chosen == format!("{project_name}/{name}")
        })
    }

    /// The environment of this name: an id, project/name, or a name that no other one has.
    pub(crate) fn find_environment(&self, name: &str) -> Result<Environment, Trouble> {
        let help = "`orrery environment list` shows those that there are";
        if let Ok(id) = name.parse::<Uuid>() {
            let found = self.client.find(&path(&["environments", &id.to_string()]))?;
            return found.ok_or_else(|| {
                Trouble::said(format!("there is no environment {name}")).help(help)
            });
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
                    names if names.is_empty() => "you can see none there".to_owned(),
                    names => format!("there are {names}"),
                };
                Err(Trouble::said(format!("there is no environment {name}; {known}")).help(help))
            }
            _ => {
                let names: Vec<&str> = fitting.iter().map(|(full, _)| full.as_str()).collect();
                let names = names.join(", ");
                let trouble =
                    Trouble::said(format!("several environments are called {name}: {names}"));
                Err(trouble.help("name one as project/name"))
            }
        }
    }
}

impl RemoteEnvironment {
    /// What the server knows of the environment itself.
    pub(crate) fn details(&self) -> Result<&Environment, Trouble> {
        Ok(self.try_details()?)
    }

    fn try_details(&self) -> Result<&Environment, ClientError> {
        if let Some(known) = self.details.get() {
            return Ok(known);
        }
        let found = self.client.get(&self.path(&[]))?;
        Ok(self.details.get_or_init(|| found))
    }

    /// Whether nothing is deployed there at present. Who may not ask goes on: the server knows.
    pub(crate) fn is_halted(&self) -> Result<bool, Trouble> {
        match self.try_details() {
            Ok(details) => Ok(details.halted),
            Err(error) if error.status() == Some(403) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The path of something in the environment.
    pub(crate) fn path(&self, parts: &[&str]) -> String {
        let id = self.id.to_string();
        let mut all = vec!["environments", id.as_str()];
        all.extend(parts);
        path(&all)
    }

    /// What it is called, or its id for those who may not know.
    pub(crate) fn name(&self) -> String {
        match self.try_details() {
            Ok(details) => format!("{}/{}", details.project_name, details.name),
            Err(_) => self.id.to_string(),
        }
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> String {
        format!("{} on {}", self.name(), self.client.server())
    }
}

/// An environment variable that says something.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn read_project(directory: &Path) -> Result<Option<ProjectFile>, Trouble> {
    let file = directory.join(PROJECT_FILE);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Trouble::said(format!("{} cannot be read: {error}", file.display())));
        }
    };
    let read = toml::from_str(&text);
    read.map(Some).map_err(|error| {
        let trouble =
            Trouble::said(format!("{} is not right: {}", file.display(), error.message()));
        trouble.help("`orrery environment use NAME` writes it anew")
    })
}

/// The environment that a project's directory chooses on a server, if it chooses one there.
fn of_directory(project: Option<&Path>, server: &str) -> Result<Option<String>, Trouble> {
    let Some(file) = project.map(read_project).transpose()?.flatten() else { return Ok(None) };
    let is_same = file.server.trim_end_matches('/') == server.trim_end_matches('/');
    Ok(is_same.then_some(file.environment))
}

/// Notes in a project's directory which environment it is deployed to.
pub(crate) fn choose_for_project(
    directory: &Path,
    server: &str,
    chosen: &Environment,
) -> Result<PathBuf, Trouble> {
    let file = directory.join(PROJECT_FILE);
    let text = format!(
        "# The environment that this project is deployed to; `orrery environment use` writes this. It holds no secrets.\n\
         server = {}\nenvironment = {}\nname = {}\n",
        quoted(server),
        quoted(&chosen.id.to_string()),
        quoted(&format!("{}/{}", chosen.project_name, chosen.name)),
    );
    std::fs::write(&file, text)
        .map_err(|error| Trouble::said(format!("{} cannot be written: {error}", file.display())))?;
    Ok(file)
}

/// Forgets the choice.
pub(crate) fn forget_for_project(directory: &Path) -> Result<(), Trouble> {
    let file = directory.join(PROJECT_FILE);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Trouble::said(format!("{} cannot be removed: {error}", file.display())))
        }
        _ => Ok(()),
    }
}
