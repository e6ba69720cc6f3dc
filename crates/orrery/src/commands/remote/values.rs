//! `orrery param`, `orrery fact`, `orrery secret`, `orrery notification`.

use orrery_api::client::{path, query};
use orrery_api::{
    Notification, NotificationUpdate, Parameter, ParameterSet, ParameterUpdate, Secret, SecretValue,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::table::{Table, moment};
use super::{print_json, read_list, show_done, show_list, terminal};
use crate::cli::fact::{FactAction, FactGroup};
use crate::cli::notification::{NotificationAction, NotificationGroup, NotificationIds};
use crate::cli::param::{ParamAction, ParamGroup};
use crate::cli::secret::{SecretAction, SecretGroup};
use crate::commands::inspect::text;
use crate::error::{CliError, finish};
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

pub(crate) fn param(options: ParamGroup) -> Exit {
    finish(run_param(options))
}

pub(crate) fn fact(options: FactGroup) -> Exit {
    finish(run_fact(options))
}

pub(crate) fn secret(options: SecretGroup) -> Exit {
    finish(run_secret(options))
}

pub(crate) fn notification(options: NotificationGroup) -> Exit {
    finish(run_notification(options))
}

/// Prints only the value, for scripts; the JSON has the rest.
fn show_value(found: &Parameter, json: bool) -> Result<Exit, CliError> {
    if json {
        return print_json(found);
    }
    let written = output::print(|out| writeln!(out, "{}", found.value));
    Ok(if written { Exit::Done } else { Exit::Error })
}

fn show_set(set: &ParameterSet, json: bool) -> Result<Exit, CliError> {
    let name = style::sanitize(&set.parameter.name);
    let mut text =
        if set.changed { format!("{name} is set") } else { format!("{name} is unchanged") };
    if let Some(compile) = set.compile {
        text += &format!("; requested compile {compile}");
    }
    show_done(json, set, &text)
}

fn run_param(options: ParamGroup) -> Result<Exit, CliError> {
    let ParamGroup { args, action } = options;
    let of = args.in_environment()?;
    let at = |name: &str| of.path(&["parameters", name]);
    match action {
        ParamAction::List => {
            let pages = of.client.list::<Parameter>(&of.path(&["parameters"])).large();
            let found = read_list(pages, None)?;
            let table = Table::new("parameter", &["NAME", "VALUE", "SOURCE", "UPDATED"]);
            show_list(args.json, &found, table, |one| {
                let value = text::short(&one.value).into_owned();
                vec![one.name.clone(), value, one.source.to_string(), moment(&one.updated)]
            })
        }
        ParamAction::Get { name } => show_value(&of.client.get(&at(&name))?, args.json),
        ParamAction::Set { name, value, recompile } => {
            let update =
                ParameterUpdate { value, source: None, recompile, expires: None, metadata: None };
            show_set(&of.client.put(&at(&name), &update)?, args.json)
        }
        ParamAction::Delete { name, confirmation } => {
            let shown = style::sanitize(&name);
            terminal::confirm(confirmation.yes, &format!("delete parameter {shown}"))?;
            of.client.delete::<Value>(&at(&name))?;
            show_done(args.json, &json!({}), &format!("deleted parameter {shown}"))
        }
    }
}

fn run_fact(options: FactGroup) -> Result<Exit, CliError> {
    let FactGroup { args, action } = options;
    let of = args.in_environment()?;
    let at = |resource: &str, name: &str| of.path(&["resources", resource, "facts", name]);
    match action {
        FactAction::List { resource } => {
            let path = query(&of.path(&["facts"]), &[("resource", resource.as_deref())]);
            let found = read_list(of.client.list::<Parameter>(&path).large(), None)?;
            let table = Table::new("fact", &["NAME", "VALUE", "UPDATED", "RESOURCE"]);
            show_list(args.json, &found, table, |one| {
                let resource = one.resource.clone().unwrap_or_default();
                let expired = if one.expired { " (expired)" } else { "" };
                let updated = moment(&one.updated) + expired;
                vec![one.name.clone(), text::short(&one.value).into_owned(), updated, resource]
            })
        }
        FactAction::Get { resource, name } => {
            show_value(&of.client.get(&at(&resource, &name))?, args.json)
        }
        FactAction::Set { resource, name, value, permanent, recompile } => {
            let expires = permanent.then_some(false);
            let update =
                ParameterUpdate { value, source: None, recompile, expires, metadata: None };
            show_set(&of.client.put(&at(&resource, &name), &update)?, args.json)
        }
        FactAction::Delete { resource, name, confirmation } => {
            let shown = style::sanitize(&name);
            let what = format!("delete fact {shown} of {}", style::sanitize(&resource));
            terminal::confirm(confirmation.yes, &what)?;
            of.client.delete::<Value>(&at(&resource, &name))?;
            show_done(args.json, &json!({}), &format!("deleted fact {shown}"))
        }
    }
}

fn run_secret(options: SecretGroup) -> Result<Exit, CliError> {
    let SecretGroup { args, shared, action } = options;
    let (client, of) = if shared {
        (args.open()?.client, None)
    } else {
        let of = args.in_environment()?;
        (of.client.clone(), Some(of))
    };
    let within = |parts: &[&str]| of.as_ref().map_or_else(|| path(parts), |of| of.path(parts));
    let at = |name: &str| within(&["secrets", name]);
    match action {
        SecretAction::List => {
            let found = read_list(client.list::<Secret>(&within(&["secrets"])), None)?;
            let table = Table::new("secret", &["NAME", "UPDATED"]);
            show_list(args.json, &found, table, |one| vec![one.name.clone(), moment(&one.updated)])
        }
        SecretAction::Set { name } => {
            let value = terminal::new_secret("secret")?;
            let now: Value = client.put(&at(&name), &SecretValue { value })?;
            show_done(args.json, &now, &format!("secret {} is set", style::sanitize(&name)))
        }
        SecretAction::Delete { name, confirmation } => {
            let shown = style::sanitize(&name);
            terminal::confirm(confirmation.yes, &format!("delete secret {shown}"))?;
            client.delete::<Value>(&at(&name))?;
            show_done(args.json, &json!({}), &format!("deleted secret {shown}"))
        }
    }
}

fn run_notification(options: NotificationGroup) -> Result<Exit, CliError> {
    let NotificationGroup { args, action } = options;
    let of = args.in_environment()?;
    match action {
        NotificationAction::List { all } => {
            let found = notifications(&of, all)?;
            let headings = ["ID", "TIME", "SEVERITY", "TITLE", "MESSAGE"];
            show_list(args.json, &found, Table::new("notification", &headings), |one| {
                vec![
                    one.id.to_string(),
                    moment(&one.created),
                    one.severity.to_string(),
                    one.title.clone(),
                    one.message.clone(),
                ]
            })
        }
        NotificationAction::Read(NotificationIds { ids, all }) => {
            let ids = if all { ids_of(notifications(&of, false)?) } else { ids };
            let update = NotificationUpdate { read: Some(true), cleared: None };
            mark(&of, &ids, &update, "read", args.json)
        }
        NotificationAction::Clear(NotificationIds { ids, all }) => {
            let path = query(&of.path(&["notifications"]), &[("cleared", Some("false"))]);
            let ids = match all {
                true => ids_of(read_list(of.client.list(&path).large(), None)?),
                false => ids,
            };
            let update = NotificationUpdate { read: Some(true), cleared: Some(true) };
            mark(&of, &ids, &update, "cleared", args.json)
        }
    }
}

fn ids_of(notifications: Vec<Notification>) -> Vec<Uuid> {
    notifications.into_iter().map(|one| one.id).collect()
}

fn mark(
    of: &RemoteEnvironment,
    ids: &[Uuid],
    update: &NotificationUpdate,
    word: &str,
    json: bool,
) -> Result<Exit, CliError> {
    let mut now = Vec::new();
    for id in ids {
        let at = of.path(&["notifications", &id.to_string()]);
        now.push(of.client.patch::<Notification>(&at, update)?);
    }
    let text = format!("{} {word}", style::count(now.len(), "notification"));
    show_done(json, &json!({ "items": now }), &text)
}

fn notifications(of: &RemoteEnvironment, all: bool) -> Result<Vec<Notification>, CliError> {
    let no = if all { None } else { Some("false") };
    let path = query(&of.path(&["notifications"]), &[("read", no), ("cleared", no)]);
    Ok(read_list(of.client.list::<Notification>(&path).large(), None)?)
}
