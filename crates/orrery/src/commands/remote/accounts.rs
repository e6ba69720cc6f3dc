//! `orrery user`: accounts, their passwords and their roles.

use orrery_api::client::path;
use orrery_api::{
    Granted, Me, NewRoleAssignment, NewUser, PasswordChange, RoleAssignment, User, UserUpdate,
};
use serde_json::{Value, json};

use super::name_lookup::NameLookup;
use super::table::{Table, moment, properties, yes};
use super::{print_json, projects, read_list, show_done, show_list, terminal};
use crate::cli::user::{RoleAction, RoleName, RoleTarget, UserAction, UserGroup};
use crate::error::{CliError, finish};
use crate::remote::Remote;
use crate::{Exit, style};

pub(crate) fn user(options: UserGroup) -> Exit {
    finish(run(options))
}

fn run(options: UserGroup) -> Result<Exit, CliError> {
    let UserGroup { args, action } = options;
    let remote = args.open()?;
    let json = args.json;
    match action {
        UserAction::List => {
            let found = read_list(remote.client.list::<User>(&path(&["users"])), None)?;
            let headings = ["NAME", "ADMIN", "STATE", "ISSUER", "CREATED", "ID"];
            show_list(json, &found, Table::new("account", &headings), |user| {
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
        UserAction::Show { name } => show(&remote, &find(&remote, &name)?, json),
        UserAction::Create { name, admin, issuer } => {
            let password = match &issuer {
                Some(_) => None,
                None => Some(terminal::new_secret("password")?),
            };
            let new = NewUser { name, password, issuer, admin };
            let created: User = remote.client.post_once(&path(&["users"]), &new)?;
            let text = format!("created account {}", style::sanitize(&created.name));
            show_done(json, &created, &text)
        }
        UserAction::Update { name, disable, enable, admin, no_admin } => {
            let user = find(&remote, &name)?;
            let update = UserUpdate {
                admin: (admin || no_admin).then_some(admin),
                disabled: (disable || enable).then_some(disable),
            };
            let now: User =
                remote.client.patch(&path(&["users", &user.id.to_string()]), &update)?;
            let state = if now.disabled { "disabled" } else { "active" };
            let rights = if now.admin { ", administrator" } else { "" };
            let text = format!("account {} is {state}{rights}", style::sanitize(&now.name));
            show_done(json, &now, &text)
        }
        UserAction::Delete { name, confirmation } => {
            let user = find(&remote, &name)?;
            let name = style::sanitize(&user.name);
            terminal::confirm(confirmation.yes, &format!("delete account {name}"))?;
            remote.client.delete::<Value>(&path(&["users", &user.id.to_string()]))?;
            show_done(json, &json!({}), &format!("deleted account {name}"))
        }
        UserAction::Password { name } => password(&remote, name.as_deref(), json),
        UserAction::Role { action } => role(&remote, action, json),
    }
}

fn show(remote: &Remote, user: &User, json: bool) -> Result<Exit, CliError> {
    let all = remote.client.list::<RoleAssignment>(&path(&["role-assignments"]));
    let mut granted = Vec::new();
    for one in all {
        let one = one?;
        if one.user == user.id {
            granted.push(one.granted);
        }
    }
    if json {
        let mut form = serde_json::to_value(user).map_err(|error| CliError::from_error(&error))?;
        form["roles"] = json!(granted);
        return print_json(&form);
    }
    let lookup =
        NameLookup::fetch(remote, granted.iter().map(|one| (one.project, one.environment)));
    let mut roles: Vec<String> = granted
        .iter()
        .map(|one| format!("{} {}", one.role, lookup.describe(one.project, one.environment)))
        .collect();
    if user.admin {
        roles.insert(0, "administrator".to_owned());
    }
    properties(&[
        ("name", user.name.clone()),
        ("id", user.id.to_string()),
        ("state", if user.disabled { "disabled" } else { "active" }.to_owned()),
        ("issuer", user.issuer.clone().unwrap_or_default()),
        ("created", moment(&user.created)),
        ("roles", if roles.is_empty() { "none".to_owned() } else { roles.join("\n") }),
    ])
}

fn find(remote: &Remote, name: &str) -> Result<User, CliError> {
    let all = remote.client.list::<User>(&path(&["users"]));
    for user in all {
        let user = user?;
        if user.name == name || user.id.to_string() == name {
            return Ok(user);
        }
    }
    let error = CliError::new(format!("no account {name}"));
    Err(error.help("`orrery user list` lists the accounts"))
}

fn password(remote: &Remote, name: Option<&str>, json: bool) -> Result<Exit, CliError> {
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
                return Err(CliError::new(format!("{} has no password on this server", me.name)));
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
fn own_from_input(remote: &Remote, id: uuid::Uuid, json: bool) -> Result<Exit, CliError> {
    let given = terminal::secret("password")?;
    let Some((current, new)) = given.expose().split_once('\n') else {
        let error = CliError::new("no new password given");
        return Err(error.help("put the current password on the first line of standard input and the new one on the second"));
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
) -> Result<Exit, CliError> {
    remote.client.put::<Value>(&path(&["users", &id.to_string(), "password"]), change)?;
    let name = style::sanitize(name);
    show_done(json, &json!({}), &format!("password of {name} changed"))
}

/// API path of the roles in a scope.
fn roles_in(remote: &Remote, target: &RoleTarget) -> Result<Vec<String>, CliError> {
    Ok(match (&target.in_project, &target.in_environment) {
        (Some(name), _) => {
            vec!["projects".to_owned(), projects::find(remote, name)?.id.to_string()]
        }
        (None, Some(name)) => {
            vec!["environments".to_owned(), remote.find_environment(name)?.id.to_string()]
        }
        (None, None) => Vec::new(),
    })
}

fn role(remote: &Remote, action: RoleAction, json: bool) -> Result<Exit, CliError> {
    let at = |target: &RoleTarget, rest: &[&str]| -> Result<String, CliError> {
        let parts = roles_in(remote, target)?;
        let mut all: Vec<&str> = parts.iter().map(String::as_str).collect();
        all.push("role-assignments");
        all.extend(rest);
        Ok(path(&all))
    };
    match action {
        RoleAction::List { name, target } => {
            let mut found =
                read_list(remote.client.list::<RoleAssignment>(&at(&target, &[])?), None)?;
            found.retain(|one| name.as_ref().is_none_or(|name| one.user_name == *name));
            let table = Table::new("role", &["USER", "ROLE", "SCOPE"]);
            let ids = found.iter().map(|one| (one.granted.project, one.granted.environment));
            let lookup = if json { NameLookup::default() } else { NameLookup::fetch(remote, ids) };
            show_list(json, &found, table, |one| {
                let Granted { role, project, environment } = &one.granted;
                vec![
                    one.user_name.clone(),
                    role.to_string(),
                    lookup.describe(*project, *environment),
                ]
            })
        }
        RoleAction::Add { name, role, target } => {
            let new = NewRoleAssignment { user: name, role: role.into() };
            let created: RoleAssignment = remote.client.post(&at(&target, &[])?, &new)?;
            let user = style::sanitize(&created.user_name);
            let scope = style::sanitize(&target.to_string());
            show_done(json, &created, &format!("{user} is now {} {scope}", created.granted.role))
        }
        RoleAction::Remove { name, role, target } => {
            let is_everywhere = target.in_project.is_none() && target.in_environment.is_none();
            let roles = at(&target, &[])?;
            let user = id_of(remote, &name, role, &roles, is_everywhere)?;
            remote.client.delete::<Value>(&at(&target, &[&user, role.as_str()])?)?;
            let name = style::sanitize(&name);
            let scope = style::sanitize(&target.to_string());
            let text = format!("{name} is no longer {} {scope}", role.as_str());
            show_done(json, &json!({}), &text)
        }
    }
}

/// Id of an account with this role in a scope. Role administrators may not see all accounts.
fn id_of(
    remote: &Remote,
    name: &str,
    role: RoleName,
    roles: &str,
    is_everywhere: bool,
) -> Result<String, CliError> {
    let mut others = Vec::new();
    for one in remote.client.list::<RoleAssignment>(roles) {
        let one = one?;
        let granted = &one.granted;
        // The list of global roles includes those of all scopes.
        let is_here =
            !is_everywhere || (granted.project.is_none() && granted.environment.is_none());
        if one.user_name != name || !is_here {
            continue;
        }
        if granted.role == role.into() {
            return Ok(one.user.to_string());
        }
        others.push(one.granted.role.as_str());
    }
    let error = match others.join(", ") {
        others if others.is_empty() => CliError::new(format!("{name} has no role in this scope")),
        others => {
            CliError::new(format!("{name} is not {} in this scope, but {others}", role.as_str()))
        }
    };
    Err(error.help("`orrery user role list` lists the roles"))
}
