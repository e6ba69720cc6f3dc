//! `orrery login`, `orrery logout`, `orrery context`.

use std::path::PathBuf;

use orrery_api::client::{Client, Connection, path};
use orrery_api::{Granted, Me, Session, Setup, User};
use orrery_model::SecretText;
use serde_json::{Value, json};

use super::name_lookup::NameLookup;
use super::table::{Table, moment, properties};
use super::{print_json, terminal};
use crate::cli::session::{ContextAction, ContextGroup, Login, Logout};
use crate::error::{CliError, finish};
use crate::remote::contexts::{self, Context, Contexts};
use crate::remote::{Remote, ServerChoice, TOKEN_VARIABLE, variable};
use crate::{Exit, output, style};

pub(crate) fn login(options: Login) -> Exit {
    finish(log_in(options))
}

pub(crate) fn logout(options: &Logout) -> Exit {
    finish(log_out(options))
}

pub(crate) fn context(options: ContextGroup) -> Exit {
    finish(change(options))
}

fn log_in(options: Login) -> Result<Exit, CliError> {
    let Login { server, name, token, setup, context, ca, json } = options;
    let mut contexts = Contexts::read()?;
    let current = || contexts.current().map(|(_, known)| known.server.clone());
    let Some(server) = server.or_else(current) else {
        let error = CliError::new("no server given");
        return Err(error.help("orrery login https://orrery.example.com:8888"));
    };
    // Accepts the whole setup link, which users copy from the log.
    let (server, setup) = match server.split_once("/setup#") {
        Some((address, ticket)) => (address.to_owned(), setup.or_else(|| Some(ticket.to_owned()))),
        None => (server, setup),
    };
    let known = contexts.of_server(&server).map(|(name, known)| (name.to_owned(), known.clone()));
    let of_known = known.as_ref().and_then(|(_, known)| known.ca.clone());
    let ca = absolute(ca)?.or(of_known);
    let client = Client::new(&Connection { server, token: None, ca: ca.clone() })?;
    let (secret, me, expires) = if token {
        let secret = terminal::secret("token")?;
        let me: Me = client.clone().with_token(Some(secret.clone())).get(&path(&["me"]))?;
        (secret, me, None)
    } else {
        let session = open_session(&client, name, setup.map(SecretText::new))?;
        let Some(secret) = session.token else {
            return Err(CliError::new(format!("{} returned no session", client.server())));
        };
        (secret, session.user, Some(session.expires.to_string()))
    };
    let name = context
        .or_else(|| known.as_ref().map(|(name, _)| name.clone()))
        .unwrap_or_else(|| free_name(&contexts, client.server()));
    let before = contexts.contexts.get(&name).filter(|before| before.server == client.server());
    let (environment, environment_name) = before
        .map(|before| (before.environment.clone(), before.environment_name.clone()))
        .unwrap_or_default();
    let entry = Context {
        server: client.server().to_owned(),
        token: Some(secret),
        expires,
        user: Some(me.name.clone()),
        ca,
        environment,
        environment_name,
    };
    let form = as_json(&name, &entry, true);
    contexts.contexts.insert(name.clone(), entry);
    contexts.current = Some(name.clone());
    contexts.write()?;
    if json {
        return print_json(&form);
    }
    let who = style::sanitize(&me.name);
    let server = style::sanitize(client.server());
    let name = style::sanitize(&name);
    let done = style::good("logged in");
    output::print_status(&format!("{done}: {who} on {server} (context {name})"));
    Ok(Exit::Done)
}

fn open_session(
    client: &Client,
    name: Option<String>,
    setup: Option<SecretText>,
) -> Result<Session, CliError> {
    let asked = if setup.is_some() { "name for the first account" } else { "name" };
    let name = match name {
        Some(name) => name,
        None if terminal::is_interactive() => terminal::ask(asked)?,
        None => {
            let error = CliError::new("no name given");
            return Err(error.help("--name NAME, with the password on standard input"));
        }
    };
    let password = match &setup {
        Some(_) => terminal::new_secret("password")?,
        None => terminal::secret("password")?,
    };
    if let Some(token) = setup {
        let account = Setup { token, name: name.clone(), password: password.clone() };
        let created: User = client.post_once(&path(&["setup"]), &account).map_err(|error| {
            match error.status() {
                // The server says what is wrong with the link; logging in would need an account.
                Some(401) => CliError::from_error(&error)
                    .help(format!("with an account: orrery login {}", client.server())),
                _ => error.into(),
            }
        })?;
        output::print_status(&format!("created account {}", style::sanitize(&created.name)));
    }
    let login = orrery_api::Login { name, password, cookie: false };
    client.post_once(&path(&["login"]), &login).map_err(|error| match error.status() {
        // The default help, to log in, would repeat the failed command.
        Some(401) => CliError::from_error(&error),
        _ => error.into(),
    })
}

/// Host name of a server, with a number if that context exists.
fn free_name(contexts: &Contexts, server: &str) -> String {
    let host = server.split("://").last().unwrap_or(server);
    let host = host.split('/').next().unwrap_or(host);
    let mut names = (1..).map(|number| match number {
        1 => host.to_owned(),
        number => format!("{host}-{number}"),
    });
    let free = names.find(|name| !contexts.contexts.contains_key(name));
    free.unwrap_or_else(|| host.to_owned())
}

fn absolute(ca: Option<PathBuf>) -> Result<Option<PathBuf>, CliError> {
    // Later commands run in other directories.
    let absolute = ca.map(std::path::absolute).transpose();
    absolute.map_err(|error| CliError::new(format!("--ca: {error}")))
}

fn log_out(options: &Logout) -> Result<Exit, CliError> {
    let mut contexts = Contexts::read()?;
    let name = chosen(&contexts, options.context.as_deref())?;
    let Some(context) = contexts.contexts.get_mut(&name) else {
        return Err(unknown_context(&name));
    };
    let was_logged_in = context.token.is_some();
    // A session ends; a token stays valid for its other users.
    if let Some(token) = context.token.take().filter(|_| context.expires.is_some()) {
        let connection = Connection {
            server: context.server.clone(),
            token: Some(token),
            ca: context.ca.clone(),
        };
        let ended = Client::new(&connection)
            .and_then(|client| client.post_once::<Value>(&path(&["logout"]), &json!({})));
        if let Err(error) = ended
            && error.status() != Some(401)
        {
            let text = format!("session deleted locally, but the server could not end it: {error}");
            output::print_status(&format!(
                "{}: {}",
                style::warning("warning"),
                style::sanitize(&text)
            ));
        }
    }
    context.expires = None;
    context.user = None;
    let server = style::sanitize(&context.server);
    let form = as_json(&name, context, contexts.current.as_deref() == Some(&*name));
    contexts.write()?;
    if options.json {
        return print_json(&form);
    }
    match was_logged_in {
        true => output::print_status(&format!("{} of {server}", style::good("logged out"))),
        false => output::print_status(&format!("not logged in to {server}")),
    }
    Ok(Exit::Done)
}

fn chosen(contexts: &Contexts, named: Option<&str>) -> Result<String, CliError> {
    match named.map(str::to_owned).or_else(|| contexts.current.clone()) {
        Some(name) if contexts.contexts.contains_key(&name) => Ok(name),
        Some(name) => Err(unknown_context(&name)),
        None => Err(CliError::new("no current context")
            .help("orrery login URL, or orrery context use NAME")),
    }
}

fn unknown_context(name: &str) -> CliError {
    CliError::new(format!("no context {name}")).help("`orrery context list` lists the contexts")
}

fn change(options: ContextGroup) -> Result<Exit, CliError> {
    let mut contexts = Contexts::read()?;
    let json = options.json;
    match options.action {
        ContextAction::List => return list(&contexts, json),
        ContextAction::Show { name } => return show(&contexts, name.as_deref(), json),
        ContextAction::Use { name } => {
            let name = chosen(&contexts, Some(&name))?;
            contexts.current = Some(name);
        }
        ContextAction::Leave => contexts.current = None,
        ContextAction::Add { name, server, ca } => {
            if contexts.contexts.contains_key(&name) {
                let error = CliError::new(format!("context {name} already exists"));
                return Err(error.help(format!("orrery context remove {name}, or another name")));
            }
            let ca = absolute(ca)?;
            let token = terminal::secret("token")?;
            let connection = Connection { server, token: Some(token.clone()), ca: ca.clone() };
            let client = Client::new(&connection)?;
            let me: Me = client.get(&path(&["me"]))?;
            let context = Context {
                server: client.server().to_owned(),
                token: Some(token),
                user: Some(me.name),
                ca,
                ..Context::default()
            };
            contexts.contexts.insert(name.clone(), context);
            contexts.current.get_or_insert(name);
        }
        ContextAction::Remove { name } => {
            if contexts.contexts.remove(&name).is_none() {
                return Err(unknown_context(&name));
            }
            contexts.current = contexts.current.filter(|current| *current != name);
        }
    }
    contexts.write()?;
    list(&contexts, json)
}

/// JSON of a context, without secrets.
fn as_json(name: &str, context: &Context, is_current: bool) -> Value {
    json!({
        "name": name,
        "current": is_current,
        "server": context.server,
        "user": context.user,
        "logged_in": context.token.is_some(),
        "expires": context.expires,
        "ca": context.ca,
        "environment": context.environment,
        "environment_name": context.environment_name,
    })
}

fn list(contexts: &Contexts, json: bool) -> Result<Exit, CliError> {
    let is_current = |name: &String| contexts.current.as_ref() == Some(name);
    if json {
        let items: Vec<Value> = contexts
            .contexts
            .iter()
            .map(|(name, context)| as_json(name, context, is_current(name)))
            .collect();
        print_json(&json!({ "items": items }))?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new("context", &["", "NAME", "SERVER", "USER", "ENVIRONMENT"]);
    for (name, context) in &contexts.contexts {
        let user = match (&context.token, &context.user) {
            (None, _) => "-",
            (Some(_), user) => user.as_deref().unwrap_or("?"),
        };
        let environment = context.environment_name.as_deref().unwrap_or("-");
        let mark = if is_current(name) { "*" } else { "" };
        table.row([mark, name, &context.server, user, environment]);
    }
    table.print()
}

/// Expiry of the session, as the contexts file has it if that is no time.
fn expiry(context: &Context) -> String {
    let Some(at) = &context.expires else { return String::new() };
    at.parse().map_or_else(|_| at.clone(), |at| moment(&at))
}

/// Shows the account of the current selection.
fn show(contexts: &Contexts, name: Option<&str>, json: bool) -> Result<Exit, CliError> {
    // Variables override the current context, here as in other commands.
    let by_variable = ["ORRERY_SERVER", "ORRERY_CONTEXT", TOKEN_VARIABLE]
        .into_iter()
        .filter(|name_of| name.is_none() && variable(name_of).is_some());
    let by_variable: Vec<&str> = by_variable.collect();
    let (client, name) = match by_variable.is_empty() {
        false => {
            let remote = ServerChoice::default().open(None)?;
            (remote.client, remote.context)
        }
        true => {
            let name = chosen(contexts, name)?;
            let Some(context) = contexts.contexts.get(&name) else {
                return Err(unknown_context(&name));
            };
            let Context { server, token, ca, .. } = context.clone();
            (Client::new(&Connection { server, token, ca })?, Some(name))
        }
    };
    let nothing = Context { server: client.server().to_owned(), ..Context::default() };
    let context = name.as_ref().and_then(|name| contexts.contexts.get(name)).unwrap_or(&nothing);
    let by_token = by_variable.contains(&TOKEN_VARIABLE);
    let me: Option<Me> = match by_token || context.token.is_some() {
        true => Some(client.get(&path(&["me"]))?),
        false => None,
    };
    if json {
        let is_current = name.is_some() && contexts.current == name;
        let mut form = as_json(name.as_deref().unwrap_or_default(), context, is_current);
        form["me"] = serde_json::to_value(&me).map_err(|error| CliError::from_error(&error))?;
        form["variables"] = json!(by_variable);
        return print_json(&form);
    }
    let granted: Vec<&Granted> = me.iter().flat_map(|me| &me.roles).collect();
    let remote = Remote::without_environment(client);
    let lookup = NameLookup::fetch(
        &remote,
        granted.iter().map(|granted| (granted.project, granted.environment)),
    );
    let roles = granted.iter().map(|granted| {
        let place = lookup.describe(granted.project, granted.environment);
        match place.as_str() {
            "everywhere" => format!("{} everywhere", granted.role),
            place => format!("{} in {place}", granted.role),
        }
    });
    let roles: Vec<String> = roles.collect();
    let ca = context.ca.as_ref().map(|ca| ca.display().to_string());
    let until = if by_token { String::new() } else { expiry(context) };
    let environment = variable("ORRERY_ENVIRONMENT").or_else(|| context.environment_name.clone());
    properties(&[
        ("name", name.unwrap_or_default()),
        ("server", context.server.clone()),
        ("user", me.as_ref().map_or_else(|| "not logged in".to_owned(), |me| me.name.clone())),
        ("roles", roles.join("\n")),
        ("until", until),
        ("environment", environment.unwrap_or_default()),
        ("certificate", ca.unwrap_or_default()),
        ("selected by", by_variable.join(", ")),
        ("stored in", contexts::file()?.display().to_string()),
    ])
}
