//! `orrery user`: accounts, their passwords and their roles.

use orrery_api::client::path;
use orrery_api::{Me, NewRoleAssignment, NewUser, PasswordChange, RoleAssignment, User};
use serde_json::{Value, json};

use super::table::{Table, moment, yes};
use super::{projects, read_list, show_done, show_list, terminal};
use crate::cli_values::{RoleAction, RolePlace, UserAction, UserGroup};
use crate::commands::trouble::{Trouble, finish};
use crate::remote::Remote;
use crate::{Exit, style};

pub(crate) fn user(options: UserGroup) -> Exit {
    finish(run(options))
}

fn run(options: UserGroup) -> Result<Exit, Trouble> {
    let UserGroup { ask, action } = options;
    let remote = ask.open()?;
    let json = ask.json;
    match action {
        UserAction::List => {
            let found = read_list(remote.client.list::<User>(&path(&["users"])), None)?;
            let headings = ["NAME", "ADMIN", "STATE", "ISSUER", "MADE", "ID"];
            show_list(json, &found, Table::new("user", &headings), |user| {
                vec![
                    user.name.clone(),
                    yes(user.admin).to_owned(),
                    if user.disabled { "disabled" } else { "active" }.to_owned(),
                    user.issuer.clone().unwrap_or_else(|| "-".to_owned()),
                    moment(&user.created),
                    user.id.to_string(),
                ]
            })
        }
        UserAction::Create { name, admin, issuer } => {
            let password = match &issuer {
                Some(_) => None,
                None => Some(terminal::new_secret("password")?),
            };
            let new = NewUser { name, password, issuer, admin };
            let made: User = remote.client.post_once(&path(&["users"]), &new)?;
            let text = format!("the account {} was made", style::harmless(&made.name));
            show_done(json, &made, &text)
        }
        UserAction::Delete { name, confirmation } => {
            let user = find(&remote, &name)?;
            let name = style::harmless(&user.name);
            terminal::confirm(confirmation.yes, &format!("delete the account {name}"))?;
            remote.client.delete::<Value>(&path(&["users", &user.id.to_string()]))?;
            show_done(json, &json!({}), &format!("the account {name} was deleted"))
        }
        UserAction::Password { name } => password(&remote, name.as_deref(), json),
        UserAction::Role { action } => role(&remote, action, json),
    }
}

fn find(remote: &Remote, name: &str) -> Result<User, Trouble> {
    let all = remote.client.list::<User>(&path(&["users"]));
    for user in all {
        let user = user?;
        if user.name == name || user.id.to_string() == name {
            return Ok(user);
        }
    }
    let trouble = Trouble::said(format!("there is no account {name}"));
    Err(trouble.help("`orrery user list` shows those that there are"))
}

fn password(remote: &Remote, name: Option<&str>, json: bool) -> Result<Exit, Trouble> {
    let me: Me = remote.client.get(&path(&["me"]))?;
    let own = me.name.strip_prefix("user:").unwrap_or(&me.name);
    let is_own = name.is_none_or(|name| name == own);
    let (id, name) = match name.filter(|_| !is_own) {
        Some(name) => {
            let user = find(remote, name)?;
            (user.id, user.name)
        }
        None => {
            let Some(id) = me.id else {
                return Err(Trouble::said(format!("{} has no password on this server", me.name)));
            };
            (id, own.to_owned())
        }
    };
    let current = match is_own {
        true if terminal::is_interactive() => Some(terminal::secret("current password")?),
        true => return own_from_input(remote, id, json),
        false => None,
    };
    let change = PasswordChange { current, password: terminal::new_secret("new password")? };
    set(remote, id, &name, &change, json)
}

/// Without a terminal: the current password on the first line, the new one on the second.
fn own_from_input(remote: &Remote, id: uuid::Uuid, json: bool) -> Result<Exit, Trouble> {
    let given = terminal::secret("password")?;
    let Some((current, new)) = given.expose().split_once('\n') else {
        let trouble = Trouble::said("the new password is missing");
        return Err(trouble.help("standard input has the current password on its first line, and the new one on its second"));
    };
    let secret = |text: &str| orrery_model::SecretText::new(text.trim_end_matches('\r'));
    let change = PasswordChange { current: Some(secret(current)), password: secret(new) };
    set(remote, id, "your account", &change, json)
}

fn set(
    remote: &Remote,
    id: uuid::Uuid,
    name: &str,
    change: &PasswordChange,
    json: bool,
) -> Result<Exit, Trouble> {
    remote.client.put::<Value>(&path(&["users", &id.to_string(), "password"]), change)?;
    let name = style::harmless(name);
    show_done(json, &json!({}), &format!("{name} has another password"))
}

/// The path of the roles in a place.
fn roles_in(remote: &Remote, place: &RolePlace) -> Result<Vec<String>, Trouble> {
    Ok(match (&place.in_project, &place.in_environment) {
        (Some(name), _) => {
            vec!["projects".to_owned(), projects::find(remote, name)?.id.to_string()]
        }
        (None, Some(name)) => {
            vec!["environments".to_owned(), remote.find_environment(name)?.id.to_string()]
        }
        (None, None) => Vec::new(),
    })
}

fn place_of(granted: &orrery_api::Granted) -> String {
    match (granted.environment, granted.project) {
        (Some(id), _) => format!("environment {id}"),
        (None, Some(id)) => format!("project {id}"),
        (None, None) => "everywhere".to_owned(),
    }
}

fn role(remote: &Remote, action: RoleAction, json: bool) -> Result<Exit, Trouble> {
    let at = |place: &RolePlace, rest: &[&str]| -> Result<String, Trouble> {
        let parts = roles_in(remote, place)?;
        let mut all: Vec<&str> = parts.iter().map(String::as_str).collect();
        all.push("role-assignments");
        all.extend(rest);
        Ok(path(&all))
    };
    match action {
        RoleAction::List { place } => {
            let found = read_list(remote.client.list::<RoleAssignment>(&at(&place, &[])?), None)?;
            let table = Table::new("role", &["USER", "ROLE", "WHERE"]);
            show_list(json, &found, table, |one| {
                vec![one.user_name.clone(), one.granted.role.clone(), place_of(&one.granted)]
            })
        }
        RoleAction::Add { name, role, place } => {
            let new = NewRoleAssignment { user: name, role: role.as_str().to_owned() };
            let made: RoleAssignment = remote.client.post(&at(&place, &[])?, &new)?;
            let user = style::harmless(&made.user_name);
            show_done(json, &made, &format!("{user} is {} there", made.granted.role))
        }
        RoleAction::Remove { name, role, place } => {
            let user = id_of(remote, &name, &at(&place, &[])?)?;
            remote.client.delete::<Value>(&at(&place, &[&user, role.as_str()])?)?;
            let name = style::harmless(&name);
            show_done(json, &json!({}), &format!("{name} is no longer {} there", role.as_str()))
        }
    }
}

/// The id of an account that has a role in a place: who gives roles there need not see all accounts.
fn id_of(remote: &Remote, name: &str, roles: &str) -> Result<String, Trouble> {
    for one in remote.client.list::<RoleAssignment>(roles) {
        let one = one?;
        if one.user_name == name {
            return Ok(one.user.to_string());
        }
    }
    let trouble = Trouble::said(format!("{name} has no role there"));
    Err(trouble.help("`orrery user role list` shows who has"))
}
