//! `orrery project`.

use orrery_api::client::{path, query};
use orrery_api::{Environment, NewProject, Project, ProjectUpdate};
use serde_json::{Value, json};
use uuid::Uuid;

use super::table::{Table, moment, properties};
use super::{print_json, read_list, show_done, show_list, terminal};
use crate::cli::project::{ProjectAction, ProjectGroup};
use crate::error::{CliError, finish};
use crate::remote::Remote;
use crate::{Exit, style};

pub(crate) fn project(options: ProjectGroup) -> Exit {
    finish(run(options))
}

/// Finds a project by name or id.
pub(in crate::commands) fn find(remote: &Remote, name: &str) -> Result<Project, CliError> {
    let id: Option<Uuid> = name.parse().ok();
    for project in remote.client.list::<Project>(&path(&["projects"])) {
        let project = project?;
        if project.name == name || Some(project.id) == id {
            return Ok(project);
        }
    }
    let error = CliError::new(format!("no project {name}"));
    Err(error.help("`orrery project list` lists the projects"))
}

fn run(options: ProjectGroup) -> Result<Exit, CliError> {
    let ProjectGroup { args, action } = options;
    let json = args.json;
    let remote = args.open()?;
    let at = |project: &Project| path(&["projects", &project.id.to_string()]);
    match action {
        ProjectAction::List => {
            let found = read_list(remote.client.list::<Project>(&path(&["projects"])), None)?;
            let table = Table::new("project", &["NAME", "CREATED", "ID", "DESCRIPTION"]);
            show_list(json, &found, table, |project| {
                let Project { id, name, description, created } = project;
                vec![name.clone(), moment(created), id.to_string(), description.clone()]
            })
        }
        ProjectAction::Show { project } => show(&remote, &find(&remote, &project)?, json),
        ProjectAction::Create { name, description } => {
            let new = NewProject { id: None, name, description };
            let created: Project = remote.client.post(&path(&["projects"]), &new)?;
            let text = format!("created project {}", style::sanitize(&created.name));
            show_done(json, &created, &text)
        }
        ProjectAction::Rename { project, name, description } => {
            let project = find(&remote, &project)?;
            let update = ProjectUpdate { name: Some(name), description };
            let now: Project = remote.client.patch(&at(&project), &update)?;
            let (before, after) = (style::sanitize(&project.name), style::sanitize(&now.name));
            show_done(json, &now, &format!("renamed project {before} to {after}"))
        }
        ProjectAction::Delete { project, confirmation } => {
            let project = find(&remote, &project)?;
            let name = style::sanitize(&project.name);
            terminal::confirm(confirmation.yes, &format!("delete project {name}"))?;
            remote.client.delete::<Value>(&at(&project))?;
            show_done(json, &json!({}), &format!("deleted project {name}"))
        }
    }
}

fn show(remote: &Remote, project: &Project, json: bool) -> Result<Exit, CliError> {
    let id = project.id.to_string();
    let of = query(&path(&["environments"]), &[("project", Some(&id))]);
    let environments = read_list(remote.client.list::<Environment>(&of), None)?;
    if json {
        let mut form =
            serde_json::to_value(project).map_err(|error| CliError::from_error(&error))?;
        form["environments"] =
            serde_json::to_value(&environments).map_err(|error| CliError::from_error(&error))?;
        return print_json(&form);
    }
    let names: Vec<String> = environments.into_iter().map(|environment| environment.name).collect();
    properties(&[
        ("name", project.name.clone()),
        ("description", project.description.clone()),
        ("id", id),
        ("created", moment(&project.created)),
        ("environments", if names.is_empty() { "none".to_owned() } else { names.join("\n") }),
    ])
}
