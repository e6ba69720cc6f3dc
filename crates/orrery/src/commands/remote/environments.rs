//! `orrery environment`.

use std::path::PathBuf;
use std::time::Duration;

use orrery_api::client::{path, query};
use orrery_api::{
    Environment, EnvironmentUpdate, NewEnvironment, Operation, Project, ResourceCounts,
    Transitioning,
};
use serde_json::json;

use super::table::{Table, moment, properties, yes};
use super::{print_json, projects, read_list, settings, show_done, show_list, terminal};
use crate::cli_things::{
    AskEnvironment, EnvironmentAction, EnvironmentGroup, EnvironmentProperties,
};
use crate::commands::trouble::{Trouble, finish};
use crate::remote::contexts::Contexts;
use crate::remote::{Remote, RemoteEnvironment, save_project};
use crate::{Exit, output, projects as local, style};

/// How often is looked whether something has ended.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn environment(options: EnvironmentGroup) -> Exit {
    finish(run(options))
}

fn run(options: EnvironmentGroup) -> Result<Exit, Trouble> {
    let EnvironmentGroup { ask, action } = options;
    let json = ask.json;
    match action {
        EnvironmentAction::List { project } => list(&ask.open()?, project.as_deref(), json),
        EnvironmentAction::Show(named) => show(&ask.named(named)?, json),
        EnvironmentAction::Create { name, project, properties, then_use } => {
            create(&ask, name, project, properties, then_use)
        }
        EnvironmentAction::Update { named, name, project, properties } => {
            let of = ask.named(named)?;
            let EnvironmentProperties { description, repository, branch, icon } = properties;
            let project = project.map(|name| projects::find(&ask.open()?, &name)).transpose()?;
            let project = project.map(|project| project.id);
            let update = EnvironmentUpdate { project, name, description, icon, repository, branch };
            let now: Environment = of.client.patch(&of.path(&[]), &update)?;
            show_done(json, &now, &format!("changed environment {}", called(&now)))
        }
        EnvironmentAction::Delete { named, confirmation } => {
            let of = ask.named(named)?;
            let name = style::harmless(&of.name());
            let what = format!("delete the environment {name} with all its history");
            terminal::confirm(confirmation.yes, &what)?;
            let begun: Operation = of.client.delete(&of.path(&[]))?;
            wait_until_gone(&of)?;
            show_done(json, &begun, &format!("deleted environment {name}"))
        }
        EnvironmentAction::Clear { named, confirmation } => {
            let of = ask.named(named)?;
            let name = style::harmless(&of.name());
            let what = format!("forget everything of the environment {name}");
            terminal::confirm(confirmation.yes, &what)?;
            let begun: Operation = of.client.act(&of.path(&["clear"]))?;
            let ended = wait(&of, begun)?;
            show_done(json, &ended, &format!("cleared environment {name}"))
        }
        EnvironmentAction::Halt(named) => {
            let of = ask.named(named)?;
            let now: Environment = of.client.act(&of.path(&["halt"]))?;
            let text = format!("environment {} is {}", called(&now), style::warning("halted"));
            show_done(json, &now, &text)
        }
        EnvironmentAction::Resume(named) => {
            let of = ask.named(named)?;
            let now: Environment = of.client.act(&of.path(&["resume"]))?;
            show_done(json, &now, &format!("resumed environment {}", called(&now)))
        }
        EnvironmentAction::Use { chosen } => choose(&ask, &chosen),
        EnvironmentAction::Save { project } => save(&ask, project),
        EnvironmentAction::Setting { action } => {
            settings::run(&ask.in_environment()?, action, json)
        }
    }
}

fn called(environment: &Environment) -> String {
    style::harmless(&format!("{}/{}", environment.project_name, environment.name))
}

fn list(remote: &Remote, project: Option<&str>, json: bool) -> Result<Exit, Trouble> {
    let project = project.map(|name| projects::find(remote, name)).transpose()?;
    let id = project.map(|project| project.id.to_string());
    let at = query(&path(&["environments"]), &[("project", id.as_deref())]);
    let found = read_list(remote.client.list::<Environment>(&at), None)?;
    let chosen = Contexts::read()?.current().and_then(|(_, context)| context.environment.clone());
    let headings = ["", "NAME", "STATE", "REPOSITORY", "BRANCH", "ID"];
    show_list(json, &found, Table::new("environment", &headings), |one| {
        let id = one.id.to_string();
        let mark = if chosen.as_ref() == Some(&id) { "*" } else { "" };
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

fn show(of: &RemoteEnvironment, json: bool) -> Result<Exit, Trouble> {
    let it = of.details()?;
    if json {
        return print_json(it);
    }
    let counts: ResourceCounts = of.client.get(&of.path(&["resource-counts"]))?;
    let resources: Vec<String> =
        counts.by_status.iter().map(|(status, count)| format!("{count} {status}")).collect();
    properties(&[
        ("name", of.name()),
        ("description", it.description.clone()),
        ("id", it.id.to_string()),
        ("server", of.client.server().to_owned()),
        ("state", state(it).to_owned()),
        ("protected", yes(it.protected).to_owned()),
        ("repository", it.repository.clone()),
        ("branch", it.branch.clone()),
        ("made", moment(&it.created)),
        ("resources", if resources.is_empty() { "none".to_owned() } else { resources.join(", ") }),
    ])
}

fn create(
    ask: &AskEnvironment,
    name: String,
    project: Option<String>,
    properties: EnvironmentProperties,
    then_use: bool,
) -> Result<Exit, Trouble> {
    let remote = ask.open()?;
    // People write what they will call it.
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
    let made: Environment = remote.client.post(&path(&["environments"]), &new)?;
    let exit = show_done(ask.json, &made, &format!("created environment {}", called(&made)))?;
    if then_use {
        note(&remote, Some(&made))?;
    }
    Ok(exit)
}

fn only_project(remote: &Remote) -> Result<Project, Trouble> {
    let mut all = read_list(remote.client.list::<Project>(&path(&["projects"])), Some(2))?;
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(Trouble::said("there is no project yet").help("orrery project create NAME")),
        _ => Err(Trouble::said("there are several projects").help("name one: --project NAME")),
    }
}

/// Chooses an environment for the commands that follow.
fn choose(ask: &AskEnvironment, name: &str) -> Result<Exit, Trouble> {
    let remote = ask.open()?;
    let environment = match name {
        "none" => None,
        name => Some(remote.find_environment(name)?),
    };
    note(&remote, environment.as_ref())?;
    match &environment {
        Some(environment) => {
            let text = format!("commands are about the environment {}", called(environment));
            show_done(ask.json, environment, &text)
        }
        None => show_done(ask.json, &json!({}), "no environment is chosen"),
    }
}

/// Notes the choice in the context of the server.
fn note(remote: &Remote, environment: Option<&Environment>) -> Result<(), Trouble> {
    let mut contexts = Contexts::read()?;
    let known = remote.context.as_ref().and_then(|name| contexts.contexts.get_mut(name));
    let Some(context) = known else {
        let trouble = Trouble::said(format!("there is no context of {}", remote.client.server()));
        return Err(trouble.help(format!("orrery login {}", remote.client.server())));
    };
    context.environment = environment.map(|environment| environment.id.to_string());
    context.environment_name = environment.map(|one| format!("{}/{}", one.project_name, one.name));
    Ok(contexts.write()?)
}

fn save(ask: &AskEnvironment, project: Option<PathBuf>) -> Result<Exit, Trouble> {
    let of = ask.in_environment()?;
    let directory = local::directory(project.as_deref(), local::MAIN_FILE);
    let file = save_project(&directory.map_err(Trouble::Project)?, &of)?;
    let name = style::harmless(&of.name());
    let text = format!("{} says that the project belongs to {name}", file.display());
    show_done(ask.json, &json!({ "file": file, "environment": of.id }), &text)
}

/// Waits for the end of something that was begun.
pub(super) fn wait(of: &RemoteEnvironment, begun: Operation) -> Result<Operation, Trouble> {
    let at = of.path(&["operations", &begun.id.to_string()]);
    let mut operation = begun;
    loop {
        match operation.transitioning {
            Transitioning::No => return Ok(operation),
            Transitioning::Error => {
                return Err(Trouble::said(operation.transitioning_message));
            }
            Transitioning::Yes => std::thread::sleep(LOOK_EVERY),
        }
        operation = of.client.get(&at)?;
    }
}

fn wait_until_gone(of: &RemoteEnvironment) -> Result<(), Trouble> {
    let mut told = false;
    loop {
        let now: Option<Environment> = match of.client.find(&of.path(&[])) {
            Ok(now) => now,
            // Who has no right elsewhere is not told that it is gone.
            Err(error) if error.status() == Some(403) => None,
            Err(error) => return Err(error.into()),
        };
        if now.is_none() {
            return Ok(());
        }
        if !told {
            output::say("what is under way in it is brought to its end");
            told = true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
