//! `orrery token`.

use orrery_api::client::{path, query};
use orrery_api::{MadeToken, NewToken, Token, UnknownVariant, Verb};
use orrery_handlers::clock::now;
use orrery_model::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::name_lookup::NameLookup;
use super::table::{Table, moment, moment_or};
use super::{print_json, projects, read_list, show_done, show_list, terminal};
use crate::cli::token::{TokenAction, TokenGroup};
use crate::error::{CliError, finish};
use crate::remote::Remote;
use crate::{Exit, output, style};

pub(crate) fn token(options: TokenGroup) -> Exit {
    finish(run(options))
}

fn run(options: TokenGroup) -> Result<Exit, CliError> {
    let TokenGroup { args, action } = options;
    let remote = args.open()?;
    match action {
        TokenAction::List { all } => {
            let headings =
                ["NAME", "ROLE", "SCOPE", "LIMITS", "EXPIRES", "LAST USED", "STATE", "ID"];
            let found = tokens(&remote, all)?;
            let ids = found.iter().map(|token| (token.project, token.environment));
            let lookup =
                if args.json { NameLookup::default() } else { NameLookup::fetch(&remote, ids) };
            let now = now();
            let row = |token: &Token| row(token, &lookup, now);
            show_list(args.json, &found, Table::new("token", &headings), row)
        }
        TokenAction::Create { name, role, only_project, only_environment, verbs, groups, days } => {
            let project = only_project.map(|name| projects::find(&remote, &name)).transpose()?;
            let environment =
                only_environment.map(|name| remote.find_environment(&name)).transpose()?;
            let new = NewToken {
                name,
                role: role.into(),
                project: project.map(|project| project.id),
                environment: environment.map(|environment| environment.id),
                verbs: parse_verbs(&verbs)?,
                groups: Some(groups).filter(|groups| !groups.is_empty()),
                days: Some(days),
            };
            let created: MadeToken = remote.client.post_once(&path(&["tokens"]), &new)?;
            if args.json {
                return print_json(&created);
            }
            output::print_status("the token is shown only once:");
            let written = output::print(|out| writeln!(out, "{}", created.secret.expose()));
            Ok(if written { Exit::Done } else { Exit::Error })
        }
        TokenAction::Revoke { token, confirmation } => {
            let found = find(&remote, &token)?;
            let name = style::sanitize(&found.name);
            terminal::confirm(confirmation.yes, &format!("revoke token {name}"))?;
            remote.client.delete::<Value>(&path(&["tokens", &found.id.to_string()]))?;
            let text = format!("token {name} revoked");
            show_done(args.json, &json!({}), &text)
        }
    }
}

/// Parses the methods of a new token; `None` for all.
fn parse_verbs(verbs: &[String]) -> Result<Option<Vec<Verb>>, CliError> {
    let parsed = verbs.iter().map(|verb| verb.to_ascii_uppercase().parse());
    let parsed: Result<Vec<Verb>, UnknownVariant> = parsed.collect();
    let parsed = parsed.map_err(|error| CliError::new(format!("--verbs: {error}")))?;
    Ok(Some(parsed).filter(|verbs| !verbs.is_empty()))
}

fn tokens(remote: &Remote, all: bool) -> Result<Vec<Token>, CliError> {
    let all = if all { Some("true") } else { None };
    let at = query(&path(&["tokens"]), &[("all", all)]);
    Ok(read_list(remote.client.list::<Token>(&at), None)?)
}

fn row(token: &Token, lookup: &NameLookup, now: Timestamp) -> Vec<String> {
    let verbs = token.verbs.as_ref().map(|verbs| {
        let verbs: Vec<&str> = verbs.iter().copied().map(Verb::as_str).collect();
        format!("verbs {}", verbs.join(" "))
    });
    let groups = token.groups.as_ref().map(|groups| format!("groups {}", groups.join(" ")));
    let limits: Vec<String> = [verbs, groups].into_iter().flatten().collect();
    vec![
        token.name.clone(),
        token.role.to_string(),
        lookup.describe(token.project, token.environment),
        if limits.is_empty() { "-".to_owned() } else { limits.join("; ") },
        moment_or(token.expires.as_ref(), "never"),
        moment_or(token.last_used.as_ref(), "-"),
        state(token, now).to_owned(),
        token.id.to_string(),
    ]
}

/// Current state of a token.
fn state(token: &Token, now: Timestamp) -> &'static str {
    match (token.revoked, token.expires) {
        (Some(_), _) => "revoked",
        (None, Some(end)) if end.0 <= now => "expired",
        (None, _) => "active",
    }
}

fn find(remote: &Remote, name: &str) -> Result<Token, CliError> {
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
        0 => Err(CliError::new(format!("you have no token {name}"))
            .help("`orrery token list` lists the tokens")),
        _ => {
            let mut text = format!("several tokens are named {name}:");
            for token in &found {
                text += &format!("\n  {}, created {}", token.id, moment(&token.created));
            }
            Err(CliError::new(text).help("name one by its id"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_active_until_revoked_or_expired() {
        let token = |expires: Option<&str>, revoked: Option<&str>| Token {
            id: Uuid::nil(),
            name: "ci".to_owned(),
            user: Uuid::nil(),
            role: orrery_api::RoleName::Viewer,
            project: None,
            environment: None,
            verbs: None,
            groups: None,
            created: "2026-11-16T00:00:00.000000Z".parse().unwrap(),
            expires: expires.map(|at| at.parse().unwrap()),
            revoked: revoked.map(|at| at.parse().unwrap()),
            last_used: None,
        };
        let now = "2026-11-16T12:00:00.000000Z".parse().unwrap();
        let (before, later) = ("2026-11-16T11:59:59.000000Z", "2026-11-16T12:00:01.000000Z");
        assert_eq!(state(&token(None, None), now), "active");
        assert_eq!(state(&token(Some(later), None), now), "active");
        assert_eq!(state(&token(Some(before), None), now), "expired");
        assert_eq!(state(&token(Some(before), Some(before)), now), "revoked");
    }
}
