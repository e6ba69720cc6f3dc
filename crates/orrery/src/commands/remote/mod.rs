//! Commands about a server, one module per noun. This module has their shared output: tables, or
//! the JSON of the API.

mod accounts;
mod agents;
mod audit;
mod compiles;
pub(super) mod dry_run;
mod environments;
mod name_lookup;
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

use crate::cli::common::{EnvironmentArgs, ServerArgs};
use crate::cli::environment::EnvironmentName;
use crate::error::CliError;
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

impl ServerArgs {
    pub(super) fn open(&self) -> Result<Remote, CliError> {
        self.server.open(None)
    }
}

impl EnvironmentArgs {
    fn open(&self) -> Result<Remote, CliError> {
        self.server.open(Some(&self.environment))
    }

    fn in_environment(&self) -> Result<RemoteEnvironment, CliError> {
        self.open()?.in_environment()
    }

    /// The named environment, or the selected one.
    fn named(&self, named: EnvironmentName) -> Result<RemoteEnvironment, CliError> {
        let environment = named.named.or_else(|| self.environment.environment.clone());
        self.server.open(Some(&EnvironmentChoice { environment }))?.in_environment()
    }
}

/// Writes JSON to standard output.
pub(super) fn print_json(value: &impl Serialize) -> Result<Exit, CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| CliError::from_error(&error))?;
    let written = output::print(|out| writeln!(out, "{text}"));
    Ok(if written { Exit::Done } else { Exit::Error })
}

/// Reads a list, up to a limit.
pub(super) fn read_list<T: DeserializeOwned>(
    pages: Pages<'_, T>,
    limit: Option<usize>,
) -> Result<Vec<T>, ClientError> {
    pages.take(limit.unwrap_or(usize::MAX)).collect()
}

/// Prints a list as the API's JSON or as a table.
pub(super) fn show_list<T: Serialize>(
    json: bool,
    items: &[T],
    mut table: Table,
    row: impl Fn(&T) -> Vec<String>,
) -> Result<Exit, CliError> {
    if json {
        return print_json(&json!({ "items": items }));
    }
    items.iter().for_each(|item| table.row(row(item)));
    table.print()
}

/// Prints a result as the API's JSON or as a line.
pub(super) fn show_done(json: bool, value: &impl Serialize, text: &str) -> Result<Exit, CliError> {
    if json {
        return print_json(value);
    }
    output::print_status(text);
    Ok(Exit::Done)
}
