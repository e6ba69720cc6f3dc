//! `orrery environment`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orrery_api::client::{path, query};
use orrery_api::{
    Environment, EnvironmentUpdate, NewEnvironment, NewWebhookSecret, Operation, Project,
    ResourceCounts, Transitioning, Webhook,
};
use serde_json::{Value, json};

use super::table::{Table, counts_by_name, moment, properties, yes};
use super::{print_json, projects, read_list, settings, show_done, show_list, terminal};
use crate::cli::common::EnvironmentArgs;
use crate::cli::environment::{EnvironmentAction, EnvironmentGroup, EnvironmentProperties};
use crate::error::{CliError, finish};
use crate::remote::contexts::Contexts;
use crate::remote::{Remote, RemoteEnvironment, clear_project_choice, store_project_choice};
use crate::{Exit, output, style};

/// Poll interval of operations.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn environment(options: EnvironmentGroup) -> Exit {
    finish(run(options))
}

fn run(options: EnvironmentGroup) -> Result<Exit, CliError> {
    let EnvironmentGroup { args, action } = options;
    let json = args.json;
    match action {
        EnvironmentAction::List { project } => list(&args.open()?, project.as_deref(), json),
        EnvironmentAction::Show(named) => show(&args.named(named)?, json),
        EnvironmentAction::Create { name, project, properties, then_use } => {
            create(&args, name, project, properties, then_use)
        }
        EnvironmentAction::Update { named, name, project, model_project, properties } => {
            let of = args.named(named)?;
            let EnvironmentProperties { description, repository, branch, icon } = properties;
            let project = project.map(|name| projects::find(&args.open()?, &name)).transpose()?;
            let project = project.map(|project| project.id);
            let update = EnvironmentUpdate {
                project,
                name,
                description,
                icon,
                repository,
                branch,
                model_project,
            };
            let now: Environment = of.client.patch(&of.path(&[]), &update)?;
            show_done(json, &now, &format!("changed environment {}", full_name(&now)))
        }
        EnvironmentAction::Delete { named, confirmation } => {
            let of = args.named(named)?;
            let name = style::sanitize(&of.name());
            let what = format!("delete environment {name} with all its history");
            terminal::confirm(confirmation.yes, &what)?;
            let begun: Operation = of.client.delete(&of.path(&[]))?;
            wait_until_gone(&of)?;
            show_done(json, &begun, &format!("deleted environment {name}"))
        }
        EnvironmentAction::Clear { named, confirmation } => {
            let of = args.named(named)?;
            let name = style::sanitize(&of.name());
            let what = format!("delete all data of environment {name}");
            terminal::confirm(confirmation.yes, &what)?;
            let begun: Operation = of.client.post_empty(&of.path(&["clear"]))?;
            let ended = wait(&of, begun)?;
            show_done(json, &ended, &format!("cleared environment {name}"))
        }
        EnvironmentAction::Halt(named) => {
            let of = args.named(named)?;
            let now: Environment = of.client.post_empty(&of.path(&["halt"]))?;
            let text = format!("environment {} is {}", full_name(&now), style::warning("halted"));
            show_done(json, &now, &text)
        }
        EnvironmentAction::Resume(named) => {
            let of = args.named(named)?;
            let now: Environment = of.client.post_empty(&of.path(&["resume"]))?;
            show_done(json, &now, &format!("resumed environment {}", full_name(&now)))
        }
        EnvironmentAction::Use { chosen, project } => choose(&args, &chosen, project),
        EnvironmentAction::Setting { action } => {
            settings::run(&args.in_environment()?, action, json)
        }
        EnvironmentAction::Webhook { named, new_secret, remove } => {
            webhook(&args.named(named)?, new_secret, remove, json)
        }
    }
}

fn webhook(
    of: &RemoteEnvironment,
    new_secret: bool,
    remove: bool,
    json: bool,
) -> Result<Exit, CliError> {
    let at = of.path(&["webhook"]);
    let address = |path: &str| format!("{}{path}", of.client.server().trim_end_matches('/'));
    if remove {
        of.client.delete::<Value>(&at)?;
        return show_done(json, &json!({}), "removed the webhook secret");
    }
    if new_secret {
        let created: NewWebhookSecret = of.client.post_empty(&at)?;
        if json {
            return print_json(&created);
        }
        let secret = created.secret.expose().to_owned();
        properties(&[("address", address(&created.path)), ("secret", secret)])?;
        output::print_status(
            "the secret is not shown again; enter both in the forge, content type application/json",
        );
        return Ok(Exit::Done);
    }
    let found: Webhook = of.client.get(&at)?;
    if json {
        return print_json(&found);
    }
    let secret = match &found.updated {
        Some(at) => format!("created {}", moment(at)),
        None => "none: every call is rejected".to_owned(),
    };
    properties(&[("address", address(&found.path)), ("secret", secret)])?;
    if !found.enabled {
        output::print_status(&format!(
            "{}: orrery environment webhook --new-secret",
            style::help("help")
        ));
    }
    Ok(Exit::Done)
}

/// State of the followed branch, in a line.
fn followed(environment: &Environment) -> String {
    let Some(known) = &environment.followed else { return String::new() };
    let short = |commit: &String| commit.chars().take(12).collect::<String>();
    let mut parts = Vec::new();
    if let Some(error) = &known.error {
        parts.push(format!("cannot be read: {error}"));
    }
    if let Some(commit) = &known.commit {
        parts.push(format!("commit {}", short(commit)));
    }
    if let Some(checked) = &known.checked {
        parts.push(format!("checked {}", moment(checked)));
    }
    match &known.next_check {
        Some(next) => parts.push(format!("next check {}", moment(next))),
        None => parts.push("checked only on webhook calls".to_owned()),
    }
    parts.join(", ")
}

fn full_name(environment: &Environment) -> String {
    style::sanitize(&format!("{}/{}", environment.project_name, environment.name))
}

fn list(remote: &Remote, project: Option<&str>, json: bool) -> Result<Exit, CliError> {
    let project = project.map(|name| projects::find(remote, name)).transpose()?;
    let id = project.map(|project| project.id.to_string());
    let at = query(&path(&["environments"]), &[("project", id.as_deref())]);
    let found = read_list(remote.client.list::<Environment>(&at), None)?;
    let headings = ["", "NAME", "STATE", "REPOSITORY", "BRANCH", "ID"];
    show_list(json, &found, Table::new("environment", &headings), |one| {
        let id = one.id.to_string();
        let mark = if remote.has_chosen(one) { "*" } else { "" };
        let state = state(one).to_owned();
        let name = format!("{}/{}", one.project_name, one.name);
        vec![mark.to_owned(), name, state, one.repository.clone(), one.branch.clone(), id]
    })
}

fn state(environment: &Environment) -> &'static str {
    match (environment.transitioning, environment.halted) {
        (Transitioning::No, false) => "active",
        (Transitioning::No, true) => "halted",
        _ => "being deleted",
    }
}

fn show(of: &RemoteEnvironment, json: bool) -> Result<Exit, CliError> {
    let it = of.details()?;
    if json {
        return print_json(it);
    }
    let counts: ResourceCounts = of.client.get(&of.path(&["resource-counts"]))?;
    let resources = counts_by_name(&counts.by_status);
    properties(&[
        ("name", of.name()),
        ("description", it.description.clone()),
        ("id", it.id.to_string()),
        ("server", of.client.server().to_owned()),
        ("state", state(it).to_owned()),
        ("protected", yes(it.protected).to_owned()),
        ("repository", it.repository.clone()),
        ("branch", it.branch.clone()),
        ("followed", followed(it)),
        ("bound to", it.model_project.clone()),
        ("created", moment(&it.created)),
        ("resources", if resources.is_empty() { "none".to_owned() } else { resources }),
    ])
}

fn create(
    args: &EnvironmentArgs,
    name: String,
    project: Option<String>,
    properties: EnvironmentProperties,
    then_use: bool,
) -> Result<Exit, CliError> {
    let remote = args.open()?;
    // `project/name` is accepted, too.
    let (project, name) = match (project, name.split_once('/')) {
        (None, Some((project, name))) => (Some(project.to_owned()), name.to_owned()),
        (project, _) => (project, name),
    };
    let project = match project {
        Some(project) => projects::find(&remote, &project)?,
        None => only_project(&remote)?,
    };
    let EnvironmentProperties { description, repository, branch, icon } = properties;
    let new = NewEnvironment {
        id: None,
        project: project.id,
        name,
        description: description.unwrap_or_default(),
        icon: icon.unwrap_or_default(),
        repository: repository.unwrap_or_default(),
        branch: branch.unwrap_or_default(),
    };
    let created: Environment = remote.client.post(&path(&["environments"]), &new)?;
    let exit =
        show_done(args.json, &created, &format!("created environment {}", full_name(&created)))?;
    if then_use {
        let (_, text) =
            store_choice(&remote, Some(&created), orrery_project::around_here().as_deref())?;
        output::print_status(&text);
    }
    Ok(exit)
}

fn only_project(remote: &Remote) -> Result<Project, CliError> {
    let mut all = read_list(remote.client.list::<Project>(&path(&["projects"])), Some(2))?;
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(CliError::new("no project yet").help("orrery project create NAME")),
        _ => Err(CliError::new("several projects exist").help("select one with --project NAME")),
    }
}

/// Selects an environment for a directory.
fn choose(args: &EnvironmentArgs, name: &str, project: Option<PathBuf>) -> Result<Exit, CliError> {
    let remote = args.open()?;
    let environment = match name {
        "none" => None,
        name => Some(remote.find_environment(name)?),
    };
    let directory = match project {
        Some(given) => Some(
            orrery_project::find_directory(Some(&given), orrery_project::MAIN_FILE)
                .map_err(CliError::Project)?,
        ),
        None => orrery_project::around_here(),
    };
    let (file, text) = store_choice(&remote, environment.as_ref(), directory.as_deref())?;
    match &environment {
        Some(environment) => {
            let id = environment.id;
            let known = json!({ "file": file, "id": id, "name": environment.name });
            show_done(args.json, &known, &text)
        }
        None => show_done(args.json, &json!({}), &text),
    }
}

/// Stores the selection in the project directory, or outside of projects in the context of the
/// server. Returns the file and a message.
fn store_choice(
    remote: &Remote,
    environment: Option<&Environment>,
    directory: Option<&Path>,
) -> Result<(Option<PathBuf>, String), CliError> {
    let server = remote.client.server();
    let mut contexts = Contexts::read()?;
    let known = remote.context.as_ref().and_then(|name| contexts.contexts.get_mut(name));
    // A directory's selection applies only to servers with a context.
    let Some(context) = known else {
        let error = CliError::new(format!("no context for {server}"));
        return Err(error.help(format!("orrery login {server}")));
    };
    match (directory, environment) {
        (Some(directory), Some(chosen)) => {
            let file = store_project_choice(directory, server, chosen)?;
            let project = style::sanitize(&orrery_project::name_of(directory));
            let (name, shown) = (full_name(chosen), file.display());
            let text = format!("project {project} is now deployed to {name} (stored in {shown})");
            Ok((Some(file), text))
        }
        (Some(directory), None) => {
            clear_project_choice(directory)?;
            let project = style::sanitize(&orrery_project::name_of(directory));
            Ok((None, format!("project {project} is now deployed on this machine")))
        }
        (None, chosen) => {
            context.environment = chosen.map(|chosen| chosen.id.to_string());
            context.environment_name =
                chosen.map(|chosen| format!("{}/{}", chosen.project_name, chosen.name));
            contexts.write()?;
            let text = match chosen {
                Some(chosen) => format!(
                    "{} is now the default outside of projects; `orrery environment use` in a project directory selects one for the project",
                    full_name(chosen)
                ),
                None => "no default environment".to_owned(),
            };
            Ok((None, text))
        }
    }
}

/// Waits for an operation.
pub(super) fn wait(of: &RemoteEnvironment, begun: Operation) -> Result<Operation, CliError> {
    let at = of.path(&["operations", &begun.id.to_string()]);
    let mut operation = begun;
    loop {
        match operation.transitioning {
            Transitioning::No => return Ok(operation),
            Transitioning::Error => {
                return Err(CliError::new(operation.transitioning_message));
            }
            Transitioning::Yes => std::thread::sleep(LOOK_EVERY),
        }
        operation = of.client.get(&at)?;
    }
}

fn wait_until_gone(of: &RemoteEnvironment) -> Result<(), CliError> {
    let mut told = false;
    loop {
        let now: Option<Environment> = match of.client.find(&of.path(&[])) {
            Ok(now) => now,
            // Without rights elsewhere, a deleted environment is reported as forbidden.
            Err(error) if error.status() == Some(403) => None,
            Err(error) => return Err(error.into()),
        };
        if now.is_none() {
            return Ok(());
        }
        if !told {
            output::print_status("waiting for running operations");
            told = true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
