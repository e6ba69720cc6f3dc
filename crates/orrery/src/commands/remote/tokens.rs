//! `orrery token`.

use orrery_api::client::{path, query};
use orrery_api::{MadeToken, NewToken, Token};
use serde_json::{Value, json};
use uuid::Uuid;

use super::table::{Table, moment_or};
use super::{print_json, projects, read_list, show_done, show_list};
use crate::cli_values::{RoleName, TokenAction, TokenGroup};
use crate::commands::trouble::{Trouble, finish};
use crate::remote::Remote;
use crate::{Exit, output, style};

pub(crate) fn token(options: TokenGroup) -> Exit {
    finish(run(options))
}

fn run(options: TokenGroup) -> Result<Exit, Trouble> {
    let TokenGroup { ask, action } = options;
    let remote = ask.open()?;
    match action {
        TokenAction::List { all } => {
            let headings = ["NAME", "ROLE", "WHERE", "EXPIRES", "LAST USED", "STATE", "ID"];
            show_list(ask.json, &tokens(&remote, all)?, Table::new("token", &headings), row)
        }
        TokenAction::Create { name, role, only_project, only_environment, verbs, days } => {
            let project = only_project.map(|name| projects::find(&remote, &name)).transpose()?;
            let environment =
                only_environment.map(|name| remote.find_environment(&name)).transpose()?;
            let new = NewToken {
                name,
                role: RoleName::as_str(role).to_owned(),
                project: project.map(|project| project.id),
                environment: environment.map(|environment| environment.id),
                verbs: Some(verbs).filter(|verbs| !verbs.is_empty()),
                groups: None,
                days: Some(days),
            };
            let made: MadeToken = remote.client.post_once(&path(&["tokens"]), &new)?;
            if ask.json {
                return print_json(&made);
            }
            output::say("this is the only time that the token is shown:");
            let written = output::print(|out| writeln!(out, "{}", made.secret.expose()));
            Ok(if written { Exit::Done } else { Exit::Error })
        }
        TokenAction::Revoke { token } => {
            let found = find(&remote, &token)?;
            remote.client.delete::<Value>(&path(&["tokens", &found.id.to_string()]))?;
            let text = format!("the token {} is useless now", style::harmless(&found.name));
            show_done(ask.json, &json!({}), &text)
        }
    }
}

fn tokens(remote: &Remote, all: bool) -> Result<Vec<Token>, Trouble> {
    let all = if all { Some("true") } else { None };
    let at = query(&path(&["tokens"]), &[("all", all)]);
    Ok(read_list(remote.client.list::<Token>(&at), None)?)
}

fn row(token: &Token) -> Vec<String> {
    let place = match (token.environment, token.project) {
        (Some(id), _) => format!("environment {id}"),
        (None, Some(id)) => format!("project {id}"),
        (None, None) => "everywhere".to_owned(),
    };
    vec![
        token.name.clone(),
        token.role.clone(),
        place,
        moment_or(token.expires.as_ref(), "never"),
        moment_or(token.last_used.as_ref(), "-"),
        if token.revoked.is_some() { "revoked" } else { "good" }.to_owned(),
        token.id.to_string(),
    ]
}

fn find(remote: &Remote, name: &str) -> Result<Token, Trouble> {
    let id: Option<Uuid> = name.parse().ok();
    let good = |token: &Token| token.revoked.is_none();
    let mut found: Vec<Token> = match id {
        Some(id) => tokens(remote, true)
            .or_else(|_| tokens(remote, false))?
            .into_iter()
            .filter(|token| token.id == id)
            .collect(),
        None => tokens(remote, false)?
            .into_iter()
            .filter(|token| token.name == name)
            .filter(good)
            .collect(),
    };
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Trouble::said(format!("you have no token {name}"))
            .help("`orrery token list` shows those that there are")),
        _ => Err(Trouble::said(format!("several tokens are called {name}"))
            .help("name one by its id: `orrery token list` shows them")),
    }
}
