//! Commands against a server, one module for each kind of thing. What they have in common is here: asking questions, and showing
//! answers as a table or as the JSON of the API.

mod accounts;
mod agents;
mod audit;
mod compiles;
pub(super) mod dry_run;
mod environments;
mod places;
pub(super) mod projects;
mod remote_agents;
mod session;
mod settings;
pub(super) mod table;
pub(super) mod terminal;
mod tokens;
mod values;
mod versions;

use orrery_api::client::{ClientError, Pages};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::cli_things::{AskEnvironment, AskServer, Named};
use crate::commands::trouble::Trouble;
use crate::remote::{EnvironmentChoice, Remote, RemoteEnvironment};
use crate::{Exit, output};

pub(super) use accounts::user;
pub(super) use agents::agent;
pub(super) use audit::audit;
pub(super) use compiles::compile;
pub(super) use environments::environment;
pub(super) use projects::project;
pub(super) use session::{context, login, logout};
pub(super) use tokens::token;
pub(super) use values::{fact, notification, param, secret};
pub(super) use versions::version;

use table::Table;

impl AskServer {
    pub(super) fn open(&self) -> Result<Remote, Trouble> {
        self.server.open(None)
    }
}

impl AskEnvironment {
    fn open(&self) -> Result<Remote, Trouble> {
        self.server.open(Some(&self.environment))
    }

    fn in_environment(&self) -> Result<RemoteEnvironment, Trouble> {
        self.open()?.in_environment()
    }

    /// The environment of this name, or the one that is chosen.
    fn named(&self, named: Named) -> Result<RemoteEnvironment, Trouble> {
        let environment = named.named.or_else(|| self.environment.environment.clone());
        self.server.open(Some(&EnvironmentChoice { environment }))?.in_environment()
    }
}

/// Writes JSON for programs.
pub(super) fn print_json(value: &impl Serialize) -> Result<Exit, Trouble> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Trouble::of(&error))?;
    let written = output::print(|out| writeln!(out, "{text}"));
    Ok(if written { Exit::Done } else { Exit::Error })
}

/// The whole list, or the first of it.
pub(super) fn read_list<T: DeserializeOwned>(
    pages: Pages<'_, T>,
    limit: Option<usize>,
) -> Result<Vec<T>, ClientError> {
    pages.take(limit.unwrap_or(usize::MAX)).collect()
}

/// Shows a list: as the API has it, or as a table.
pub(super) fn show_list<T: Serialize>(
    json: bool,
    items: &[T],
    mut table: Table,
    row: impl Fn(&T) -> Vec<String>,
) -> Result<Exit, Trouble> {
    if json {
        return print_json(&json!({ "items": items }));
    }
    items.iter().for_each(|item| table.row(row(item)));
    table.print()
}

/// Shows that something was done: as the API has it, or in a line.
pub(super) fn show_done(json: bool, value: &impl Serialize, text: &str) -> Result<Exit, Trouble> {
    if json {
        return print_json(value);
    }
    output::say(text);
    Ok(Exit::Done)
}
